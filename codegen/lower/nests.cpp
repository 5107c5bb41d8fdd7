#include "codegen/lower/nests.h"

#include <algorithm>
#include <numeric>

#include "codegen/lower/emission.h"
#include "engine/base/function.h"

namespace tessera::lowering {

void LoopNests::prepare() {
  tile_base_.resize(axes_.size());
  for (const AxisPlan& p : s_.plans) {
    if (p.invocations == 1) continue;
    Value& v = coords_[{p.invocation_stride, p.invocations}];
    if (v) continue;
    v = b_.div(invocation_, p.invocation_stride);
    if (p.invocation_stride * p.invocations < s_.group) v = b_.rem(v, p.invocations);
  }
}

void LoopNests::set_tile_base(int axis, Value v) { tile_base_[static_cast<size_t>(axis)] = v; }

Value LoopNests::invocation_coord(const AxisPlan& p) {
  if (p.invocations == 1) return b_.i32(0);
  Value& v = coords_[{p.invocation_stride, p.invocations}];
  if (!v) throw InternalError(k_.name + ": coordinate was not prepared");
  return v;
}

Value LoopNests::invocation_start(const AxisPlan& p) {
  if (p.run && p.run < p.invocations) {
    const Value i = invocation_coord(p), run = b_.rem(i, p.run), runs = b_.div(i, p.run);
    return b_.add(run, b_.mul(runs, b_.i32(p.run * p.between)));
  }
  const Value vec = b_.i32(p.vec);
  return b_.mul(invocation_coord(p), vec);
}

Value LoopNests::tile_base(int axis) {
  const Value v = tile_base_[static_cast<size_t>(axis)];
  return v ? v : b_.i32(0);
}

Value LoopNests::first_invocation(int used_bits) {
  const int rest = (s_.group - 1) & ~used_bits;
  if (rest == 0) return {};
  if (used_bits == 0) return b_.eq(invocation_, b_.i32(0));
  const Value zero = b_.i32(0);
  return b_.eq(b_.op(ir::Opcode::and_, {invocation_, b_.i32(rest)}), zero);
}

int LoopNests::invocation_bits(const std::vector<int>& dims) const {
  int bits = 0;
  for (int a : dims)
    if (a != kNoAxis) bits |= (plan(a).invocations - 1) * plan(a).invocation_stride;
  return bits;
}

bool LoopNests::fits(const std::vector<int>& dims) const {
  int bits = 0;
  for (int a : dims) {
    if (a == kNoAxis) continue;
    const AxisPlan& p = plan(a);
    // of a packed program one invocation has all elements
    if (axes_.axes[static_cast<size_t>(a)].mixed && uniform_group()) return false;
    const int mine = (p.invocations - 1) * p.invocation_stride;
    if (bits & mine) return false;
    bits |= mine;
  }
  return true;
}

Coord LoopNests::axis_coord(int axis, int64_t n, Value strip, int r, Value& valid) {
  if (axis == kNoAxis) return {b_.i32(0)};
  return axis_coord(plan(axis), axis, n, {strip, r, {}}, valid);
}

Coord LoopNests::axis_coord(const AxisPlan& p, int axis, int64_t n, const OwnElement& own, Value& valid) {
  const auto [strip, r, within] = own;
  Value e = tile_base(axis);
  if (strip) e = b_.add(e, b_.mul(strip, b_.i32(p.cover())));
  e = b_.add(e, invocation_start(p));
  e = within ? b_.add(e, within) : b_.add(e, b_.i32(p.local(r)));
  const int64_t parts = p.split ? cdiv(n, p.tile) : 1;
  const bool overhangs = parts * p.strips() * p.cover() != n;
  if (!overhangs || (p.split && whole_.count(axis))) return {e, axis, r};
  // Known positions need no test.
  const int last = within ? p.vec - 1 : r;
  if (!p.split && !strip && p.local(last) + p.start(p.invocations - 1) < n) return {e, axis, r};
  const int64_t divisor = std::gcd(n, int64_t{16});
  const Value end = b_.i32(n);
  valid = b_.both(valid, b_.lt(divisor % p.vec == 0 && !within ? b_.add(e, b_.i32(-(r % p.vec))) : e, end));
  return {clamp_along(e, end, divisor, p.vec == 1 || within ? kNoAxis : axis, r), axis, r};
}

Value LoopNests::whole_tiles(const std::vector<int>& dims) {
  Value whole;
  for (int a : dims) {
    if (a == kNoAxis || !plan(a).split) continue;
    const int64_t n = axes_.axes[static_cast<size_t>(a)].extent, part = plan(a).strips() * plan(a).cover();
    if (n % part == 0 || n < part) continue;
    const Value base = tile_base(a), last = b_.add(base, b_.i32(part - 1));
    whole = b_.both(whole, b_.lt(last, b_.i32(n)));
  }
  return whole;
}

Values LoopNests::with_whole_tiles(const std::vector<int>& dims, FunctionRef<Values()> body) {
  const std::set<int> outer = whole_;
  for (int a : dims)
    if (a != kNoAxis && plan(a).split &&
        axes_.axes[static_cast<size_t>(a)].extent >= plan(a).strips() * plan(a).cover())
      whole_.insert(a);
  Values result = body();
  whole_ = outer;
  return result;
}

void LoopNests::counted(int64_t n, FunctionRef<void(Value)> body) {
  counted(n, {}, [&](Value i, const Values&) {
    body(i);
    return Values{};
  });
}

Values LoopNests::counted(int64_t n, const Values& init, FunctionRef<Values(Value, const Values&)> body) {
  if (n <= 0) return init;
  if (n == 1) return body(b_.i32(0), init);
  const PendingAccesses before = arena_.pending();
  const Values after = b_.for_loop(0, n, init, [&](Value i, const Values& v) {
    arena_.loop_begins();
    Values next = body(i, v);
    arena_.loop_ends();
    return next;
  });
  arena_.pending().merge(before);
  return after;
}

void LoopNests::each_strip(const std::vector<int>& axes, std::vector<Value>& strip, FunctionRef<void()> body) {
  std::vector<size_t> all(axes.size());
  std::iota(all.begin(), all.end(), size_t{0});
  each_strip(axes, all, strip, body);
}

void LoopNests::each_strip(const std::vector<int>& axes, const std::vector<size_t>& dims, std::vector<Value>& strip,
                           FunctionRef<void()> body) {
  const Function<void(size_t)> loops = [&](size_t i) {
    if (i == dims.size()) return body();
    const size_t d = dims[i];
    const int64_t n = axes[d] == kNoAxis ? 1 : plan(axes[d]).strips();
    if (n == 1) {
      strip[d] = {};
      return loops(i + 1);
    }
    counted(n, [&](Value j) {
      strip[d] = j;
      loops(i + 1);
    });
  };
  loops(0);
}

void LoopNests::each(const Shape& s, const std::vector<int>& dims, bool needs_layout, bool effects,
                     FunctionRef<void(const NestPoint&)> body, bool rolled) {
  if (num_elements(s) == 0) return;
  if (!s_.general && fits(dims)) {
    // Without registers to read, a nest that leaves invocations idle does better dealt out flat.
    int64_t invocations = 1, elements = 1;
    for (int a : dims)
      if (a != kNoAxis) {
        invocations *= plan(a).invocations;
        elements *= plan(a).tile;
      }
    if (needs_layout || invocations == s_.group || elements <= invocations)
      return by_layout(s, dims, effects, body, (s_.rolled || rolled) && !needs_layout);
  }
  if (needs_layout) throw InternalError(k_.name + ": a nest without a layout reads values in registers");
  flat(s, dims, body);
}

void LoopNests::by_layout(const Shape& s, const std::vector<int>& dims, bool effects,
                          FunctionRef<void(const NestPoint&)> body, bool rolled) {
  // Rolled: loops go over the registers, for CPUs vector by vector, else element by element. So coordinates name no
  // registers. Each element still belongs to the same invocation as in the nest that is not rolled: a program may store
  // it by the one nest and the next program by the other, without a barrier between them.
  // Not of axes whose registers lie between invocations.
  rolled = rolled && std::none_of(dims.begin(), dims.end(), [&](int a) { return a != kNoAxis && plan(a).run > 0; });
  const bool by_elements = rolled && !s_.rolled;
  const auto plan_of = [&](size_t d) {
    AxisPlan p = dims[d] == kNoAxis ? AxisPlan{} : plan(dims[d]);
    if (rolled) p.reg = p.vec;
    return p;
  };
  const Value first = effects ? first_invocation(invocation_bits(dims)) : Value{};
  std::vector<Value> strip(dims.size()), within(dims.size());
  Function<void(size_t)> loops, registers;
  NestPoint point;
  point.c.resize(dims.size());
  point.regs.resize(dims.size());
  registers = [&](size_t d) {
    if (d == dims.size()) {
      point.valid = first;
      for (size_t i = 0; i < dims.size(); ++i) {
        if (dims[i] == kNoAxis) point.c[i] = at(0);
        else point.c[i] = axis_coord(plan_of(i), dims[i], s[i], {strip[i], point.regs[i], within[i]}, point.valid);
        if (rolled) point.c[i] = {point.c[i].v};
      }
      body(point);
      return;
    }
    const int n = by_elements ? 1 : plan_of(d).reg;
    for (int r = 0; r < n; ++r) {
      point.regs[d] = r;
      registers(d + 1);
    }
  };
  loops = [&](size_t d) {
    if (d == dims.size()) return registers(0);
    const AxisPlan p = plan_of(d);
    const auto elements = [&] {
      if (!by_elements || p.vec == 1) return loops(d + 1);
      counted(p.vec, [&](Value i) {
        within[d] = i;
        loops(d + 1);
      });
      within[d] = {};
    };
    if (p.strips() == 1) return elements();
    counted(p.strips(), [&](Value i) {
      strip[d] = i;
      elements();
    });
    strip[d] = {};
  };
  loops(0);
}

void LoopNests::flat(const Shape& s, const std::vector<int>& dims, FunctionRef<void(const NestPoint&)> body) {
  Shape part = s;
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d] != kNoAxis && plan(dims[d]).split) part[d] = std::min(plan(dims[d]).tile, s[d]);
  const int64_t n = num_elements(part);
  auto at_element = [&](Value e, Value valid) {
    NestPoint p;
    p.c = unravel(e, part);
    p.regs.assign(dims.size(), 0);
    for (size_t d = 0; d < dims.size(); ++d) {
      if (s[d] == 1) p.c[d] = at(0);
      if (part[d] == s[d]) continue;
      p.c[d].v = b_.add(p.c[d].v, tile_base(dims[d]));
      if (s[d] % part[d] != 0) {
        valid = b_.both(valid, b_.lt(p.c[d].v, b_.i32(s[d])));
        p.c[d].v = b_.min(p.c[d].v, b_.i32(s[d] - 1));
      }
    }
    p.valid = valid;
    body(p);
  };
  const int64_t g = s_.group, full = n / g, rest = n % g;
  // Whole rounds, in which every invocation has an element, then the last partial one.
  if (full > 0) counted(full, [&](Value i) { at_element(b_.add(b_.mul(i, b_.i32(g)), invocation_), {}); });
  if (rest > 0) {
    b_.when(b_.lt(invocation_, b_.i32(rest)), [&] { at_element(b_.add(b_.i32(full * g), invocation_), {}); });
  }
}

Value LoopNests::clamp_along(Value e, Value n, int64_t divisor, int axis, int reg) {
  const int vec = axis == kNoAxis ? 1 : plan(axis).vec;
  if (vec == 1 || divisor % vec != 0) return b_.min(e, b_.add(n, b_.i32(-1)));
  const int within = reg % vec;
  const Value back = b_.i32(within), last = b_.add(n, b_.i32(-vec));
  return b_.add(b_.min(b_.add(e, b_.i32(-within)), last), back);
}

}  // namespace tessera::lowering
