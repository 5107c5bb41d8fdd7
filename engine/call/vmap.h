// vmap: a pallas_call over a batch. The batch becomes a new leading grid axis that the kernel does not see: program_id
// and num_programs do not count it, and each batched array's block gets a squeezed dim at the batch's axis. Works on
// traced kernels, so vmaps nest and combine. Elements of the batch share no memory that is written: an input aliased to
// an output gets the output's batch axis, and an input that the kernel stores to is batched. If the caller's array has
// no such axis, the call copies it first (PallasCall::spreads).
#pragma once
#include <initializer_list>
#include <optional>
#include <vector>

#include "engine/call/pallas_call.h"

namespace tessera {

/// Where the batch lies: one axis for all arguments, or one per argument with std::nullopt for an argument that has
/// none (every element of the batch sees the same). Negative axes count from the last dim of the batched array.
class BatchAxes {
 public:
  BatchAxes(int64_t all) : all_(all) {}  // NOLINT: implicit on purpose
  BatchAxes(int all) : all_(all) {}      // NOLINT
  BatchAxes(std::initializer_list<std::optional<int64_t>> each) : each_(std::vector<std::optional<int64_t>>(each)) {}
  BatchAxes(std::vector<std::optional<int64_t>> each) : each_(std::move(each)) {}  // NOLINT
  const std::optional<std::vector<std::optional<int64_t>>>& each() const { return each_; }
  int64_t all() const { return all_; }

 private:
  int64_t all_ = 0;
  std::optional<std::vector<std::optional<int64_t>>> each_;
};

/// jax.vmap of a pallas_call: batched arguments gain a dim at in_axes, every output gains one at out_axes. Scratch
/// starts unspecified for each element of the batch. An argument that an output is aliased to may be batched along
/// another axis than the output, or not at all, and one that the kernel stores to not at all: each element of the batch
/// has a copy. (So does JAX with aliases. What a kernel stores to an input that is neither batched nor aliased, the
/// next elements of the batch see under its interpret=True.) Throws SpecError at the call (or trace) where axes and
/// arguments do not fit.
PallasCall vmap(const PallasCall& call, BatchAxes in_axes = 0, BatchAxes out_axes = 0, Loc loc = Loc::here());

/// The same on a traced kernel: `size` is the batch's, axes are normalised, one per input and output.
ir::Kernel vmap_kernel(ir::Kernel k, const Extent& size, const std::vector<std::optional<int64_t>>& in_axes,
                       const std::vector<int64_t>& out_axes);

}  // namespace tessera
