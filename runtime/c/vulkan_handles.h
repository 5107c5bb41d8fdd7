// The structs behind the handles of tessera_vulkan.h. Internal to runtime/c.
#pragma once
#include <tessera/tessera_vulkan.h>

#include <string>
#include <variant>
#include <vector>

#include "engine/base/plural.h"
#include "runtime/c/handles.h"
#include "runtime/interop.h"
#include "runtime/loaded_graph.h"
#include "runtime/record.h"
#include "runtime/record_graph.h"

namespace tessera::c {
/// Throws SpecError unless a call gives `all` arguments.
inline void check_count(const std::string& name, Loc loc, size_t all, int32_t count) {
  if (count < 0 || static_cast<size_t>(count) != all)
    throw SpecError(name + ": has " + plural(all, "argument") + ", inputs and outputs together, but " +
                        std::to_string(count) + (count == 1 ? " was given" : " were given"),
                    loc);
}
inline tessera_scopes scopes_of(const Scopes& s) {
  return {s.wait_stages, s.wait_accesses, s.signal_stages, s.signal_accesses};
}
/// Sizes of a resize, into room that is there.
inline void take_sizes(const char* function, const tessera_size* sizes, int32_t num_sizes,
                       std::vector<NamedSize>& taken) {
  check_sizes(function, sizes, num_sizes);
  taken.clear();
  for (int32_t i = 0; i < num_sizes; ++i) taken.push_back({sizes[i].name, sizes[i].value});
}
}  // namespace tessera::c

struct tessera_image {
  tessera::DeviceImage image;
};
struct tessera_stream {
  tessera::CommandStream stream;
  std::vector<tessera::TimedCommand> traced = {};  // what the last tessera_stream_trace() has given
};
struct tessera_graph {
  std::variant<tessera::LoadedGraph, tessera::PreparedGraph> graph;
  std::string signature;
  std::vector<tessera::DeviceArray> arrays;  // of the call that is being recorded, with room for all
  std::vector<tessera::NamedSize> sizes;     // of a resize
};
struct tessera_prepared {
  tessera_prepared(const tessera_kernel& k, const tessera::PrepareOptions& options)
      : kernel(k.kernel.prepare(options)) {
    arrays.reserve(k.arguments.size());
    arguments.reserve(k.arguments.size());
    sizes.reserve(options.dims.size());
  }
  tessera::PreparedKernel kernel;
  // Of the call that is being recorded, with room for all, so that recording allocates nothing.
  std::vector<tessera::DeviceArray> arrays;
  std::vector<tessera::Argument> arguments;  // some are in arrays
  std::vector<tessera::NamedSize> sizes;     // of a resize

  /// A call of the arguments at(0) to at(count - 1).
  template <class At> void record(tessera_stream& stream, int32_t count, tessera_scopes* scopes, At at) {
    const tessera::Program& p = kernel.program();
    tessera::c::check_count(p.name, p.loc, p.args.size(), count);
    struct Cleared {
      tessera_prepared& prepared;
      ~Cleared() { prepared.arguments.clear(), prepared.arrays.clear(); }
    } const cleared{*this};
    for (int32_t i = 0; i < count; ++i) {
      const tessera_argument a = at(i);
      if (!a.array && !a.image)
        throw tessera::SpecError(p.name + ": argument " + std::to_string(i) + " is NULL", p.loc);
      if (a.array && a.image)
        throw tessera::SpecError(p.name + ": argument " + std::to_string(i) + " is an array and an image", p.loc,
                                 "leave one of them NULL");
      if (a.image) {
        arguments.emplace_back(a.image->image, tessera::ImageLayouts{a.layouts.before, a.layouts.after});
      } else {
        arrays.push_back(a.array->donate ? donate(a.array->array) : a.array->array);
        arguments.emplace_back(arrays.back());
      }
    }
    const tessera::Scopes s = stream.stream.record(kernel, arguments);
    for (int32_t i = 0; i < count; ++i)
      if (tessera_array* const array = at(i).array) array->donate = false;  // it was for this call
    if (scopes) *scopes = tessera::c::scopes_of(s);
  }
};
