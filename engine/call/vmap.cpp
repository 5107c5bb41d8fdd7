#include "engine/call/vmap.h"

#include "engine/base/plural.h"
#include "engine/ir/builder.h"
#include "engine/ir/verify.h"

namespace tessera {
namespace {

/// Gives a block mapping the batch: the new program id is argument 0 of every index map, and the index of the new dim
/// if there is one.
void batch(ir::Kernel& k, int block, const Extent& size, std::optional<int64_t> axis) {
  ir::BlockMapping& b = k.blocks[static_cast<size_t>(block)];
  ir::Builder builder(k);
  builder.set_loc(b.loc);
  if (b.is_whole() && !axis) return;
  if (b.is_whole()) {  // becomes one block per element of the batch; its memory space stays
    ir::BlockMapping::Blocks blocks;
    for (const Extent& e : b.array_shape) {
      if (!e.is_static())
        throw SpecError(k.name + ": " + b.origin +
                            ": a Ref without a BlockSpec needs static extents, but the array is " +
                            to_string(b.array_shape),
                        b.loc, "give a BlockSpec with a static block shape");
      blocks.dims.push_back({ir::BlockDim::Blocked{*e.value()}});
    }
    b.space = k.block_ref_type(block).space;
    std::vector<ir::Type> args(k.grid.size() - 1, ir::Type::array(DType::i32));
    for (int i = 0; i < k.num_prefetch && block >= k.num_prefetch; ++i) args.push_back(k.block_ref_type(i));
    blocks.index_map = builder.new_region(args);
    builder.set_region(blocks.index_map);
    std::vector<ir::Value> zeros;
    for (size_t d = 0; d < blocks.dims.size(); ++d) zeros.push_back(builder.constant_int(DType::i32, 0));
    builder.yield(std::move(zeros));
    b.what = std::move(blocks);
  }
  const ir::Value id = builder.add_arg(b.index_map(), ir::Type::array(DType::i32));
  ir::Region& r = k.region(b.index_map());
  r.args.pop_back();
  r.args.insert(r.args.begin(), id);
  for (size_t i = 0; i < r.args.size(); ++i) k.values[r.args[i].index].number = static_cast<uint32_t>(i);
  if (!axis) return;
  auto& results = k.op(r.ops.back()).operands;
  results.insert(results.begin() + static_cast<std::ptrdiff_t>(k.map_result(block, static_cast<size_t>(*axis))), id);
  b.array_shape.insert(b.array_shape.begin() + *axis, size);
  b.block().insert(b.block().begin() + *axis, {ir::BlockDim::Squeezed{}});
}
}  // namespace

ir::Kernel vmap_kernel(ir::Kernel k, const Extent& size, const std::vector<std::optional<int64_t>>& in_axes,
                       const std::vector<int64_t>& out_axes) {
  k.grid.insert(k.grid.begin(), ir::GridAxis{size, "", true, true});
  for (size_t i = 0; i < k.blocks.size(); ++i) {
    const size_t inputs = static_cast<size_t>(k.num_inputs);
    batch(k, static_cast<int>(i), size, i < inputs ? in_axes[i] : std::optional(out_axes[i - inputs]));
  }
  if (auto& cost = k.call.cost_estimate)
    cost = CostEstimate{cost->flops * size, cost->transcendentals * size, cost->bytes_accessed * size,
                        cost->remote_bytes_transferred * size};
  ir::verify(k, "vmap");
  return k;
}

namespace {
/// A call for one element of the batch, and where the batch lies in what the kernel gets.
struct Batched {
  const ir::Kernel* one;
  Extent size;
  std::vector<std::optional<int64_t>> in_axes;
  std::vector<int64_t> out_axes;
  struct Spread {
    std::vector<Extent> shape;
    std::vector<int64_t> dims;
  };
  std::vector<std::optional<Spread>> spreads;  // from an argument to what the kernel gets
};

Batched batched(const PallasCall& call, const BatchAxes& in_axes, const BatchAxes& out_axes,
                const std::vector<ShapeDtype>& inputs, Loc loc) {
  const auto fail = [&](const std::string& what, const std::string& note = {}) {
    throw SpecError(call.name() + ": vmap: " + what, loc, note);
  };
  const auto normalise = [&](int64_t axis, size_t rank, const std::string& place) {
    const int64_t n = static_cast<int64_t>(rank);
    if (axis < -n || axis >= n)
      fail(place + " is " + std::to_string(axis) + ", but the batched array has " + plural(rank, "dim"));
    return axis < 0 ? axis + n : axis;
  };
  if (in_axes.each() && in_axes.each()->size() != inputs.size())
    fail("in_axes has " + std::to_string(in_axes.each()->size()) +
         (in_axes.each()->size() == 1 ? " entry" : " entries") + " but the call has " +
         plural(inputs.size(), "argument"));
  std::vector<ShapeDtype> inner = inputs;
  Batched r;
  std::optional<size_t> first;  // the argument that gave the batch its size
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::optional<int64_t> axis = in_axes.each() ? (*in_axes.each())[i] : std::optional(in_axes.all());
    r.in_axes.push_back(axis);
    if (!axis) continue;
    const int64_t at = normalise(*axis, inputs[i].shape.size(), "in_axes[" + std::to_string(i) + "]");
    r.in_axes.back() = at;
    const Extent& n = inputs[i].shape[static_cast<size_t>(at)];
    if (first && n != r.size)
      fail("argument " + std::to_string(*first) + " has a batch of " + to_string(r.size) + " but argument " +
           std::to_string(i) + " of shape " + to_string(inputs[i].shape) + " has " + to_string(n) + " along axis " +
           std::to_string(at));
    if (!first) first = i;
    r.size = n;
    inner[i].shape.erase(inner[i].shape.begin() + at);
  }
  if (!first) fail("no argument is batched", "in_axes must name an axis of at least one argument");
  r.one = &call.trace(inner);
  const ir::Kernel& k = *r.one;
  if (k.has_threads())
    fail("kernels of mosaic_gpu are not batched yet", "give the batch an axis of the grid, and index the Refs by it");
  const size_t outputs = static_cast<size_t>(k.num_outputs());
  if (out_axes.each() && out_axes.each()->size() != outputs)
    fail("out_axes has " + std::to_string(out_axes.each()->size()) +
         (out_axes.each()->size() == 1 ? " entry" : " entries") + " but the call has " + plural(outputs, "output"));
  for (size_t i = 0; i < outputs; ++i) {
    const std::optional<int64_t> axis = out_axes.each() ? (*out_axes.each())[i] : std::optional(out_axes.all());
    if (!axis) fail("out_axes[" + std::to_string(i) + "] is nullopt, but every output is batched");
    r.out_axes.push_back(normalise(*axis, k.blocks[static_cast<size_t>(k.num_inputs) + i].array_shape.size() + 1,
                                   "out_axes[" + std::to_string(i) + "]"));
  }
  // What the kernel stores to, each element of the batch has for itself; an aliased input lies as its output does.
  const auto before = call.spreads(inner);
  for (size_t i = 0; i < inputs.size(); ++i) {
    r.spreads.emplace_back();
    const int output = k.aliased_output(static_cast<int>(i));
    const std::optional<int64_t> given = r.in_axes[i];
    if (!before[i] && (output < 0 ? given || !k.is_stored(static_cast<int>(i))
                                  : given == r.out_axes[static_cast<size_t>(output - k.num_inputs)]))
      continue;
    const int64_t at = output < 0 ? 0 : r.out_axes[static_cast<size_t>(output - k.num_inputs)];
    r.in_axes[i] = at;
    Batched::Spread s{k.blocks[i].array_shape, {}};
    s.shape.insert(s.shape.begin() + at, r.size);
    for (size_t d = 0; d < inner[i].shape.size(); ++d) {
      const int64_t to = before[i] ? before[i]->dims[d] : static_cast<int64_t>(d);
      s.dims.push_back(to + (to >= at));
    }
    if (given) s.dims.insert(s.dims.begin() + *given, at);
    r.spreads.back() = std::move(s);
  }
  return r;
}
}  // namespace

PallasCall vmap(const PallasCall& call, BatchAxes in_axes, BatchAxes out_axes, Loc loc) {
  PallasCall::Parts parts;
  parts.name = call.name();
  parts.loc = loc;
  parts.interpret = call.interpret_options();
  parts.lint = call.lint();
  for (size_t i = 0; in_axes.each() && i < in_axes.each()->size(); ++i)
    parts.values.push_back((*in_axes.each())[i] ? std::nullopt : call.value_dtype(i));
  if (parts.interpret && !parts.interpret->parallel.empty())
    parts.interpret->parallel.insert(parts.interpret->parallel.begin(), true);
  parts.trace = [=](const std::vector<ShapeDtype>& inputs) {
    const Batched b = batched(call, in_axes, out_axes, inputs, loc);
    return vmap_kernel(*b.one, b.size, b.in_axes, b.out_axes);
  };
  parts.spreads = [=](const std::vector<ShapeDtype>& inputs) {
    std::vector<std::optional<PallasCall::Spread>> r;
    for (const auto& s : batched(call, in_axes, out_axes, inputs, loc).spreads) {
      r.emplace_back();
      if (!s) continue;
      r.back().emplace().dims = s->dims;
      for (const Extent& e : s->shape) r.back()->shape.push_back(e.value().value_or(-1));
    }
    return r;
  };
  return PallasCall(std::move(parts));
}

}  // namespace tessera
