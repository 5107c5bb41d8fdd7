// tessera_vulkan.h: images and semaphores of the program's.
#include <memory>
#include <string>

#include "runtime/c/vulkan_handles.h"
#include "runtime/interop.h"

using namespace tessera;
using c::guarded, c::need;

namespace {

ImageLayouts layouts_of(const tessera_layouts& l) { return {l.before, l.after}; }

void need_semaphore(const char* function, VkSemaphore semaphore) {
  if (semaphore == VK_NULL_HANDLE) throw SpecError(std::string(function) + ": semaphore is VK_NULL_HANDLE");
}

void import_part(const char* function, tessera_device* device, const tessera_imported_image* imported,
                 const tessera_image_part* part, tessera_image** image) {
  need(function, "device", device);
  need(function, "imported", imported);
  need(function, "image", image);
  const tessera_imported_image& i = *imported;
  if (i.image == VK_NULL_HANDLE) throw SpecError(std::string(function) + ": imported.image is VK_NULL_HANDLE");
  ImportedImage to{i.image, i.format, i.extent, i.usage, i.mip_level, i.array_layer};
  if (part) {
    if (part->size != sizeof *part)
      throw SpecError(std::string(function) + ": part.size is " + std::to_string(part->size) + ", but " +
                          std::to_string(sizeof *part) + " is right",
                      {}, "begin with tessera_image_part_defaults()");
    to.type = part->type, to.depth = part->depth, to.layer_count = part->layer_count;
    to.mip_levels = part->mip_levels, to.array_layers = part->array_layers;
  }
  *image = new tessera_image{DeviceImage(device->device, to)};
}

}  // namespace

tessera_result tessera_semaphore_wait(tessera_device* device, VkSemaphore semaphore, uint64_t value) {
  return guarded(__func__, [&] {
    need("tessera_semaphore_wait", "device", device);
    need_semaphore("tessera_semaphore_wait", semaphore);
    wait_for(device->device, semaphore, value);
  });
}
tessera_result tessera_semaphore_signal(tessera_device* device, VkSemaphore semaphore, uint64_t value) {
  return guarded(__func__, [&] {
    need("tessera_semaphore_signal", "device", device);
    need_semaphore("tessera_semaphore_signal", semaphore);
    signal(device->device, semaphore, value);
  });
}

tessera_result tessera_image_import(tessera_device* device, const tessera_imported_image* imported,
                                    tessera_image** image) {
  return guarded(__func__, [&] { import_part("tessera_image_import", device, imported, nullptr, image); });
}
tessera_image_part tessera_image_part_defaults(void) {
  tessera_image_part part{};
  part.size = sizeof part;
  part.type = VK_IMAGE_TYPE_2D;
  part.depth = 1;
  return part;
}
tessera_result tessera_image_import_part(tessera_device* device, const tessera_imported_image* imported,
                                         const tessera_image_part* part, tessera_image** image) {
  return guarded(__func__, [&] { import_part("tessera_image_import_part", device, imported, part, image); });
}
void tessera_image_destroy(tessera_image* image) { delete image; }

tessera_result tessera_image_channels(const tessera_image* image, int32_t* channels) {
  return guarded(__func__, [&] {
    need("tessera_image_channels", "image", image);
    need("tessera_image_channels", "channels", channels);
    *channels = image->image.channels();
  });
}

tessera_result tessera_image_read(const tessera_image* image, tessera_dtype dtype, int32_t channels,
                                  tessera_layouts layouts, tessera_array** array) {
  return guarded(__func__, [&] {
    need("tessera_image_read", "image", image);
    need("tessera_image_read", "array", array);
    c::shape_of("tessera_image_read", dtype, 0, nullptr);  // throws if there is no such dtype
    const int32_t most = image->image.channels();
    if (channels < 0 || channels > most)
      throw SpecError("tessera_image_read: channels is " + std::to_string(channels) + " but the image has " +
                      std::to_string(most));
    auto made = std::make_unique<tessera_array>();
    made->array = read_image(image->image, static_cast<DType>(dtype), layouts_of(layouts), channels);
    made->shape = made->array.shape();
    *array = made.release();
  });
}

tessera_result tessera_image_write(tessera_image* image, const tessera_array* array, tessera_layouts layouts) {
  return guarded(__func__, [&] {
    need("tessera_image_write", "image", image);
    need("tessera_image_write", "array", array);
    write_image(image->image, array->array, layouts_of(layouts));
  });
}

tessera_result tessera_kernel_prepare_images(const tessera_kernel* kernel, int32_t frames_in_flight,
                                             int32_t calls_per_frame, const tessera_size* sizes, int32_t num_sizes,
                                             const tessera_image_argument* images, int32_t num_images,
                                             tessera_prepared** prepared) {
  return guarded(__func__, [&] {
    need("tessera_kernel_prepare_images", "kernel", kernel);
    need("tessera_kernel_prepare_images", "prepared", prepared);
    if (num_images < 0)
      throw SpecError("tessera_kernel_prepare_images: num_images is " + std::to_string(num_images) +
                      ", which is below 0");
    if (num_images > 0) need("tessera_kernel_prepare_images", "images", images);
    const Program& p = kernel->kernel.program();
    PrepareOptions o;
    o.frames_in_flight = frames_in_flight;
    o.calls_per_frame = calls_per_frame;
    o.dims = c::dims_of("tessera_kernel_prepare_images", p.name, p.loc, sizes, num_sizes);
    for (int32_t i = 0; i < num_images; ++i) {
      const tessera_image_argument& a = images[i];
      if (!a.like) need("tessera_kernel_prepare_images", ("images[" + std::to_string(i) + "].like").c_str(), nullptr);
      if (a.argument < 0 || static_cast<size_t>(a.argument) >= p.args.size())
        throw SpecError(p.name + ": there is no argument " + std::to_string(a.argument) +
                            " to be an image: their number is " + std::to_string(p.args.size()),
                        p.loc);
      o.images.push_back({static_cast<size_t>(a.argument), a.like->image});
    }
    *prepared = new tessera_prepared(*kernel, o);
  });
}

tessera_result tessera_stream_record_arguments(tessera_stream* stream, tessera_prepared* prepared,
                                               const tessera_argument* arguments, int32_t count,
                                               tessera_scopes* scopes) {
  return guarded(__func__, [&] {
    need("tessera_stream_record_arguments", "stream", stream);
    need("tessera_stream_record_arguments", "prepared", prepared);
    if (count > 0) need("tessera_stream_record_arguments", "arguments", arguments);
    prepared->record(*stream, count, scopes, [&](int32_t i) -> tessera_argument { return arguments[i]; });
  });
}
