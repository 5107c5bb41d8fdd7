#include "engine/passes/cost.h"

#include <algorithm>

namespace tessera {
namespace {
using ir::Opcode;

// Costs saturate: an estimate of 2^63 says enough.
int64_t plus(int64_t a, int64_t b) {
  int64_t r = 0;
  return __builtin_add_overflow(a, b, &r) ? INT64_MAX : r;
}
int64_t times(int64_t a, int64_t b) {
  int64_t r = 0;
  return __builtin_mul_overflow(a, b, &r) ? INT64_MAX : r;
}
Extent times(const Extent& a, const Extent& b) {
  if (a.is_static() && b.is_static()) return times(*a.value(), *b.value());
  return a * b;
}
Extent plus(const Extent& a, const Extent& b) {
  if (a.is_static() && b.is_static()) return plus(*a.value(), *b.value());
  return a + b;
}

struct Count {  // of one program
  int64_t flops = 0, transcendentals = 0, bytes = 0;
  void add(const Count& c, int64_t iterations = 1) {
    flops = plus(flops, times(c.flops, iterations));
    transcendentals = plus(transcendentals, times(c.transcendentals, iterations));
    bytes = plus(bytes, times(c.bytes, iterations));
  }
};

class Estimator {
 public:
  explicit Estimator(const ir::Kernel& k) : k_(k), touched_(k.blocks.size()) {}

  CostEstimate run() {
    const Count program = region(k_.body);
    Extent programs = 1;
    for (const ir::GridAxis& a : k_.grid) programs = times(programs, a.size);
    CostEstimate c{times(programs, program.flops), times(programs, program.transcendentals),
                   times(programs, program.bytes)};
    for (size_t i = 0; i < k_.blocks.size(); ++i)
      if (touched_[i] || static_cast<int>(i) < k_.num_prefetch)
        c.bytes_accessed = plus(c.bytes_accessed, block_bytes(k_.blocks[i], static_cast<int>(i)));
    return c;
  }

 private:
  int64_t elements(ir::Value v) const { return num_elements(k_.type(v).shape); }

  Count region(ir::RegionId r) {
    Count c;
    for (const ir::OpId o : k_.region(r).ops) c.add(op(k_.op(o)));
    return c;
  }

  Count op(const ir::Op& o) {
    Count c;
    const ir::OpInfo& row = ir::info(o.code);
    if (is_elementwise(o.code)) {
      const int64_t n = elements(o.results[0]);
      const bool moves = row.result != ir::ResultRule::same || o.code == Opcode::select;
      if (row.transcendental || o.code == Opcode::sqrt || o.code == Opcode::rsqrt) c.transcendentals = n;
      else if (!moves) c.flops = o.code == Opcode::fma ? times(2, n) : n;
      return c;
    }
    switch (row.family) {
      case ir::Family::memory: return access(o, {o.operands[0], 0, o.index.size()});
      case ir::Family::contract: {
        int64_t contracted = 1;
        for (const int64_t d : ir::dot_dims(k_, o).lhs_contract)
          contracted = times(contracted, k_.type(o.operands[0]).shape[static_cast<size_t>(d)]);
        c.flops = plus(times(times(2, contracted), elements(o.results[0])),
                       o.operands.size() > 2 ? elements(o.results[0]) : 0);
        return c;
      }
      case ir::Family::reduce:
      case ir::Family::argreduce:
      case ir::Family::scan: c.flops = elements(o.operands[0]); return c;
      case ir::Family::control: return control(o);
      case ir::Family::async:
        for (const ir::CopyPlace& place :
             o.code == Opcode::copy_start ? ir::copy_places(k_, o) : std::array<ir::CopyPlace, 3>{})
          if (place.ref && place.ref != o.operands[2]) c.add(access(o, place));
        return c;
      case ir::Family::thread: {
        const std::vector<ir::CopyPlace> places = ir::thread_places(k_, o);
        for (const ir::CopyPlace& place : places)
          if (ir::is_thread_copy(o.code) && !ir::is_barrier(k_.type(place.ref).space)) c.add(access(o, place));
        if (o.code != Opcode::wgmma) return c;
        const Shape& sum = k_.type(o.operands[2]).shape;
        c.flops = times(2, times(num_elements(sum), ir::wgmma_depth(k_, o)));
        return c;
      }
      case ir::Family::elementwise:
      case ir::Family::source:
      case ir::Family::move:
      case ir::Family::rearrange:
      case ir::Family::grid:
      case ir::Family::print:
      case ir::Family::end:
      case ir::Family::launch:
      case ir::Family::ref:
      case ir::Family::group:
      case ir::Family::packed:
      case ir::Family::matrix:
      case ir::Family::report: break;
    }
    return c;
  }

  Count control(const ir::Op& o) {
    Count c;
    switch (ir::Control(o.code)) {
      case ir::Control::for_: {
        const auto lower = ir::constant_int(k_, o.operands[0]), upper = ir::constant_int(k_, o.operands[1]),
                   step = ir::constant_int(k_, o.operands[2]);
        const bool known = lower && upper && step;  // the verifier has seen to it that constant steps are positive
        c.add(region(o.regions[0]), known ? cdiv(std::max<int64_t>(*upper - *lower, 0), *step) : 1);
        return c;
      }
      case ir::Control::if_:
      case ir::Control::switch_:
        for (const ir::RegionId r : o.regions) {
          const Count branch = region(r);
          c.flops = std::max(c.flops, branch.flops);
          c.transcendentals = std::max(c.transcendentals, branch.transcendentals);
          c.bytes = std::max(c.bytes, branch.bytes);
        }
        return c;
      case ir::Control::while_:
      case ir::Control::run_scoped:
        for (const ir::RegionId r : o.regions) c.add(region(r));
    }
    return c;
  }

  /// Bytes of what is loaded from or stored to an array without blocks; blocks are counted once each, by block_bytes().
  Count access(const ir::Op& o, const ir::CopyPlace& place) {
    Count c;
    const ir::ValueInfo& ref = k_.value(place.ref);
    if (o.code == Opcode::addupdate) c.flops = elements(o.operands[1]);
    if (ref.region != k_.body || ref.number >= k_.blocks.size()) return c;
    touched_.at(ref.number) = true;
    if (!k_.blocks[ref.number].is_whole() || static_cast<int>(ref.number) < k_.num_prefetch) return c;
    c.bytes = size_bytes(k_.type(place.ref).dtype);
    bool arrays = false;  // their shape is common to all
    for (size_t d = 0; d < place.rank; ++d) {
      const ir::Index& x = o.index[place.first + d];
      if (x.slice()) c.bytes = times(c.bytes, x.slice()->size);
      if (x.is_array() && !arrays) c.bytes = times(c.bytes, elements(o.operand_of(x)));
      arrays = arrays || x.is_array();
    }
    return c;
  }

  Extent block_bytes(const ir::BlockMapping& b, int i) const {
    Extent bytes = size_bytes(b.dtype);
    if (b.is_whole()) {
      if (i >= k_.num_prefetch) return 0;  // access() has counted it
      for (const Extent& e : b.array_shape) bytes = times(bytes, e);
      return bytes;
    }
    for (size_t d = 0; d < b.block().size(); ++d)
      bytes =
          times(bytes, Extent(b.array_shape[d].is_static() ? std::min(b.block()[d].size(), *b.array_shape[d].value())
                                                           : b.block()[d].size()));
    // Fetched anew when an axis on which the index depends moves, or one outside it.
    std::vector<bool> on(k_.grid.size()), seen(k_.values.size());
    for (const ir::Value v : k_.terminator(b.index_map()).operands) depends(v, on, seen);
    const auto innermost = static_cast<size_t>(std::find(on.rbegin(), on.rend(), true).base() - on.begin());
    for (size_t a = 0; a < innermost; ++a) bytes = times(bytes, k_.grid[a].size);
    return bytes;
  }
  void depends(ir::Value v, std::vector<bool>& on, std::vector<bool>& seen) const {
    if (seen[v.index]) return;
    seen[v.index] = true;
    const ir::ValueInfo& info = k_.value(v);
    if (!info.def) {
      if (info.number < on.size()) on[info.number] = true;
      return;
    }
    for (const ir::Value operand : k_.op(info.def).operands) depends(operand, on, seen);
  }

  const ir::Kernel& k_;
  std::vector<bool> touched_;
};
}  // namespace

CostEstimate estimate_cost(const ir::Kernel& k) { return Estimator(k).run(); }

}  // namespace tessera
