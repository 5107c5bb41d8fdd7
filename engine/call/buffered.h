// buffered_pallas_call: a pallas_call that says how many blocks of each input are in memory at once, and prefetches
// them itself. It is a kernel over whole arrays: grid axes declared "parallel" are its grid, the others the grid of an
// emit_pipeline inside, whose index maps and body see all axes, and scalar-prefetch operands, as if they were one grid.
// Arrays need static extents.
#pragma once
#include <optional>
#include <vector>

#include "engine/call/pallas_call.h"

namespace tessera {

namespace spec {
PallasCall make_buffered_pallas_call(KernelFunction kernel, PallasCallParams params,
                                     const std::optional<std::vector<int64_t>>& input_buffer_count, Loc loc);
}  // namespace spec

/// kernel and params as of pallas_call; input_buffer_count has one number per entry of in_specs, two each where it is
/// left out. Throws SpecError if there are more or fewer. Scratch is each parallel coordinate's own.
template <class F>
PallasCall buffered_pallas_call(F kernel, PallasCallParams params,
                                const std::optional<std::vector<int64_t>>& input_buffer_count = std::nullopt,
                                Loc loc = Loc::here()) {
  static_assert(
      spec::Countable<F>,
      "buffered_pallas_call: the kernel's parameters must be spelled as Ref (not auto), so that they can be counted");
  using P = typename spec::Signature<F>::Parameters;
  static_assert(
      spec::all_are<Ref, P>,
      "buffered_pallas_call: every parameter of a kernel must be a Ref (scalar prefetch, inputs, outputs, scratch)");
  constexpr size_t n = std::tuple_size_v<P>;
  return spec::make_buffered_pallas_call({static_cast<int>(n),
                                          [f = std::move(kernel)](const std::vector<Ref>& r) {
                                            [&]<size_t... i>(std::index_sequence<i...>) {
                                              f(r[i]...);
                                            }(std::make_index_sequence<n>{});
                                          }},
                                         std::move(params), input_buffer_count, loc);
}

}  // namespace tessera
