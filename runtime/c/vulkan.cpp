#include <tessera/tessera_vulkan.h>

#include <algorithm>
#include <memory>
#include <string>

#include "runtime/c/vulkan_handles.h"

using namespace tessera;
using c::guarded, c::need;

namespace {

const std::vector<DeviceFeature>& features(int32_t required) {
  return required ? required_device_features() : optional_device_features();
}

const DeviceFeature& feature_at(const char* function, int32_t required, int32_t index) {
  const auto& all = features(required);
  if (index < 0 || static_cast<size_t>(index) >= all.size())
    throw SpecError(std::string(function) + ": there is no feature " + std::to_string(index) + ": their number is " +
                    std::to_string(all.size()));
  return all[static_cast<size_t>(index)];
}
tessera_device_feature c_feature(const DeviceFeature& f) { return {f.name, f.structure, f.gives, f.type, f.offset}; }

}  // namespace

int32_t tessera_device_feature_count(int32_t required) {
  int32_t count = -1;
  guarded(__func__, [&] { count = static_cast<int32_t>(features(required).size()); });
  return count;
}

tessera_result tessera_device_feature_at(int32_t required, int32_t index, tessera_device_feature* feature) {
  return guarded(__func__, [&] {
    need("tessera_device_feature_at", "feature", feature);
    *feature = c_feature(feature_at("tessera_device_feature_at", required, index));
  });
}

tessera_result tessera_enable_device_features(const void* has, void* enable, int32_t* left_out) {
  return guarded(__func__, [&] {
    need("tessera_enable_device_features", "has", has);
    need("tessera_enable_device_features", "enable", enable);
    const std::vector<std::string> names = enable_device_features(has, enable);
    if (left_out) *left_out = static_cast<int32_t>(names.size());
  });
}

tessera_result tessera_missing_device_features(const void* has, const void* enabled,
                                               void (*say)(void* user, const tessera_device_feature* feature),
                                               void* user) {
  return guarded(__func__, [&] {
    need("tessera_missing_device_features", "enabled", enabled);
    if (!say) throw SpecError("tessera_missing_device_features: say is NULL");
    for (const DeviceFeature* f : missing_device_features(has, enabled)) {
      const tessera_device_feature feature = c_feature(*f);
      say(user, &feature);
    }
  });
}

tessera_result tessera_device_feature_enabled(const tessera_device* device, int32_t required, int32_t index,
                                              int32_t* enabled) {
  return guarded(__func__, [&] {
    need("tessera_device_feature_enabled", "device", device);
    need("tessera_device_feature_enabled", "enabled", enabled);
    *enabled = is_enabled(device->device, feature_at("tessera_device_feature_enabled", required, index));
  });
}

int32_t tessera_device_extension_count(void) {
  int32_t count = -1;
  guarded(__func__, [&] { count = static_cast<int32_t>(optional_device_extensions().size()); });
  return count;
}
tessera_result tessera_device_extension_at(int32_t index, const char** name, const char** gives) {
  return guarded(__func__, [&] {
    need("tessera_device_extension_at", "name", name);
    need("tessera_device_extension_at", "gives", gives);
    const auto& all = optional_device_extensions();
    if (index < 0 || static_cast<size_t>(index) >= all.size())
      throw SpecError("tessera_device_extension_at: there is no extension " + std::to_string(index) +
                      ": their number is " + std::to_string(all.size()));
    *name = all[static_cast<size_t>(index)].name;
    *gives = all[static_cast<size_t>(index)].gives;
  });
}

tessera_result tessera_device_import(const tessera_imported_device* imported, const tessera_device_options* options,
                                     tessera_device** device) {
  return guarded(__func__, [&] {
    need("tessera_device_import", "imported", imported);
    need("tessera_device_import", "device", device);
    const tessera_imported_device& i = *imported;
    if (i.size != sizeof i)
      throw SpecError("tessera_device_import: imported.size is " + std::to_string(i.size) + " but " +
                      std::to_string(sizeof i) + " is right");
    if (!i.lock_queue != !i.unlock_queue)
      throw SpecError("tessera_device_import: of lock_queue and unlock_queue one is NULL and the other is not");
    if (!i.allocate_memory != !i.free_memory)
      throw SpecError("tessera_device_import: of allocate_memory and free_memory one is NULL and the other is not");
    if (i.num_device_extensions > 0) need("tessera_device_import", "device_extensions", i.device_extensions);
    if (i.num_instance_extensions > 0) need("tessera_device_import", "instance_extensions", i.instance_extensions);
    const auto names = [](const char* parameter, const char* const* list, uint32_t n) {
      for (uint32_t k = 0; k < n; ++k)
        need("tessera_device_import", (std::string(parameter) + "[" + std::to_string(k) + "]").c_str(), list[k]);
      return std::vector<std::string>(list, list + n);
    };
    ImportedDevice d;
    d.get_instance_proc_addr = i.get_instance_proc_addr;
    d.instance = i.instance;
    d.api_version = i.api_version;
    d.physical_device = i.physical_device;
    d.device = i.device;
    d.queue = i.queue;
    d.queue_family = i.queue_family;
    d.features = i.features;
    d.enabled_features = i.enabled_features;
    d.device_extensions = names("device_extensions", i.device_extensions, i.num_device_extensions);
    d.instance_extensions = names("instance_extensions", i.instance_extensions, i.num_instance_extensions);
    d.pipeline_cache = i.pipeline_cache;
    if (i.lock_queue) {
      d.lock_queue = [lock = i.lock_queue, user = i.queue_user] { lock(user); };
      d.unlock_queue = [unlock = i.unlock_queue, user = i.queue_user] { unlock(user); };
    }
    if (i.allocate_memory) {
      d.memory.allocate = [allocate = i.allocate_memory, user = i.memory_user](const MemoryRequest& r, MemoryPiece& p) {
        const tessera_memory_request request{r.size, r.alignment, r.memory_type_bits, r.required, r.preferred};
        tessera_memory_piece piece{};
        const VkResult result = allocate(user, &request, &piece);
        p = {piece.memory, piece.offset, piece.size, piece.memory_type, piece.mapped, piece.user};
        return result;
      };
      d.memory.free = [free = i.free_memory, user = i.memory_user](const MemoryPiece& p) {
        const tessera_memory_piece piece{p.memory, p.offset, p.size, p.memory_type, p.mapped, p.user};
        free(user, &piece);
      };
    }
    *device = new tessera_device{Device::import(d, c::options_of("tessera_device_import", options))};
  });
}

tessera_result tessera_array_import(tessera_device* device, const tessera_imported_buffer* buffer, tessera_dtype dtype,
                                    int32_t rank, const int64_t* shape, tessera_array** array) {
  return guarded(__func__, [&] {
    need("tessera_array_import", "device", device);
    need("tessera_array_import", "buffer", buffer);
    need("tessera_array_import", "array", array);
    const Shape dims = c::shape_of("tessera_array_import", dtype, rank, shape);
    *array =
        new tessera_array{import_buffer(device->device, {buffer->buffer, buffer->size, buffer->usage, buffer->offset},
                                        dims, static_cast<DType>(dtype)),
                          dims};
  });
}

tessera_result tessera_kernel_prepare(const tessera_kernel* kernel, int32_t frames_in_flight, int32_t calls_per_frame,
                                      const tessera_size* sizes, int32_t num_sizes, tessera_prepared** prepared) {
  return guarded(__func__, [&] {
    need("tessera_kernel_prepare", "kernel", kernel);
    need("tessera_kernel_prepare", "prepared", prepared);
    PrepareOptions o;
    o.frames_in_flight = frames_in_flight;
    o.calls_per_frame = calls_per_frame;
    const Program& p = kernel->kernel.program();
    o.dims = c::dims_of("tessera_kernel_prepare", p.name, p.loc, sizes, num_sizes);
    *prepared = new tessera_prepared(*kernel, o);
  });
}
tessera_result tessera_prepared_resize(tessera_prepared* prepared, const tessera_size* sizes, int32_t num_sizes) {
  return guarded(__func__, [&] {
    need("tessera_prepared_resize", "prepared", prepared);
    c::take_sizes("tessera_prepared_resize", sizes, num_sizes, prepared->sizes);
    prepared->kernel.resize(prepared->sizes);
  });
}
void tessera_prepared_destroy(tessera_prepared* prepared) { delete prepared; }

tessera_result tessera_stream_create(tessera_device* device, tessera_stream** stream) {
  return guarded(__func__, [&] {
    need("tessera_stream_create", "device", device);
    need("tessera_stream_create", "stream", stream);
    *stream = new tessera_stream{CommandStream(device->device)};
  });
}
tessera_result tessera_stream_create_timed(tessera_device* device, int32_t timed_calls, int32_t frames_in_flight,
                                           tessera_stream** stream) {
  return guarded(__func__, [&] {
    need("tessera_stream_create_timed", "device", device);
    need("tessera_stream_create_timed", "stream", stream);
    if (timed_calls < 1)
      throw SpecError("tessera_stream_create_timed: timed_calls must be positive but is " +
                      std::to_string(timed_calls));
    const StreamOptions options{.timed_calls = timed_calls, .frames_in_flight = frames_in_flight};
    *stream = new tessera_stream{CommandStream(device->device, options)};
  });
}
void tessera_stream_destroy(tessera_stream* stream) { delete stream; }

tessera_result tessera_stream_trace(tessera_stream* stream, uint64_t frame, tessera_timed_call* calls, int32_t capacity,
                                    int32_t* count) {
  return guarded(__func__, [&] {
    need("tessera_stream_trace", "stream", stream);
    need("tessera_stream_trace", "count", count);
    if (capacity != 0) need("tessera_stream_trace", "calls", calls);
    stream->traced = stream->stream.trace(frame);
    *count = static_cast<int32_t>(stream->traced.size());
    for (int32_t i = 0; i < std::min(*count, capacity); ++i) {
      const TimedCommand& c = stream->traced[static_cast<size_t>(i)];
      calls[i] = {c.name.c_str(), c.begin, c.end};
    }
  });
}

tessera_result tessera_stream_begin(tessera_stream* stream, VkCommandBuffer commands, uint64_t frame) {
  return guarded(__func__, [&] {
    need("tessera_stream_begin", "stream", stream);
    need("tessera_stream_begin", "commands", commands);
    stream->stream.begin(commands, frame);
  });
}

tessera_result tessera_stream_record(tessera_stream* stream, tessera_prepared* prepared, tessera_array* const* arrays,
                                     int32_t count, tessera_scopes* scopes) {
  return guarded(__func__, [&] {
    need("tessera_stream_record", "stream", stream);
    need("tessera_stream_record", "prepared", prepared);
    if (count > 0) need("tessera_stream_record", "arrays", arrays);
    prepared->record(*stream, count, scopes, [&](int32_t i) -> tessera_argument { return {arrays[i], nullptr, {}}; });
  });
}

tessera_result tessera_stream_end(tessera_stream* stream, tessera_scopes* scopes) {
  return guarded(__func__, [&] {
    need("tessera_stream_end", "stream", stream);
    const Scopes s = stream->stream.end();
    if (scopes) *scopes = c::scopes_of(s);
  });
}
