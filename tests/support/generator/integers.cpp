#include "tests/support/generator/integers.h"

#include <algorithm>

namespace tessera::fuzz {
using ir::Opcode, ir::Value;

namespace {
class Chain {
 public:
  Chain(ir::Builder& b, Random& random) : b_(b), random_(random) {}

  /// An integer made from x and y, of any dtype.
  Value make(Value x, Value y) {
    if (random_.chance(0.25)) return narrowed(x);
    Value v = step(b_.convert(x, some_dtype()));
    if (random_.chance(0.4)) v = binary(v, b_.convert(y, dtype(v)));
    for (int64_t n = random_.in(0, 3); n-- > 0;) {
      if (random_.chance(0.4)) v = through(v);
      v = step(v);
    }
    return v;
  }
  Value to_i32(Value v, int64_t n) {
    if (random_.chance(0.75)) {
      const DType t = dtype(v);
      const Value most = number(t, std::min<int64_t>(std::max<int64_t>(n, 1), is_int4(t)     ? 7
                                                                              : bits(t) == 8 ? 127
                                                                                             : INT16_MAX));
      if (random_.chance(0.7)) v = b_.elementwise(Opcode::rem, {v, most});
      else v = b_.elementwise(Opcode::clamp, {number(t, random_.in(is_signed_int(t) ? -2 : 0, 1)), v, most});
    }
    return b_.convert(v, DType::i32);
  }
  Value compare(Value v) {
    constexpr Opcode kOps[] = {Opcode::eq, Opcode::ne, Opcode::lt, Opcode::le, Opcode::gt, Opcode::ge};
    if (random_.chance(0.25)) return b_.convert(v, DType::boolean);
    const Opcode op = kOps[random_.below(6)];
    return b_.elementwise(op, {v, limit(dtype(v))});
  }

 private:
  DType dtype(Value v) { return b_.kernel().type(v).dtype; }
  Value number(DType t, int64_t v) { return b_.constant_int(t, v); }
  /// What the plainest analysis follows, a few numbers added and multiplied, until a narrow dtype wraps it.
  Value narrowed(Value x) {
    constexpr DType kNarrow[] = {DType::i8, DType::i8, DType::u8, DType::i16, DType::u16, DType::i4, DType::u4};
    Value v = b_.convert(x, DType::i32);
    if (random_.chance(0.3)) v = b_.elementwise(Opcode::mul, {v, number(DType::i32, random_.in(-3, 100))});
    v = b_.elementwise(
        Opcode::add, {v, number(DType::i32, random_.chance(0.8) ? random_.in(-400, 400) : random_.in(-40000, 40000))});
    v = b_.convert(v, kNarrow[random_.below(std::size(kNarrow))]);
    return random_.chance(0.3) ? b_.elementwise(Opcode::add, {v, number(dtype(v), random_.in(-5, 5))}) : v;
  }
  DType some_dtype() {
    constexpr DType kTypes[] = {DType::i64, DType::i64, DType::u64, DType::i32, DType::i32, DType::u32, DType::i16,
                                DType::u16, DType::i8,  DType::i8,  DType::u8,  DType::i4,  DType::u4};
    return kTypes[random_.below(std::size(kTypes))];
  }
  /// Small, or near an end, or a power of two: what makes sums and products wrap.
  Value limit(DType t) {
    const int n = bits(t);
    switch (random_.below(6)) {
      case 0: return number(t, random_.in(-3, 5));
      case 1: return number(t, (n == 64 ? INT64_MAX : (int64_t{1} << (n - 1)) - 1) - random_.in(0, 2));
      // the least, or half of the unsigned
      case 2: return number(t, static_cast<int64_t>((uint64_t{1} << (n - 1)) + random_.below(3)));
      case 3: {
        const bool odd = random_.chance(0.5);
        return number(t, static_cast<int64_t>((uint64_t{1} << random_.in(0, n - 1)) + odd));
      }
      case 4: return number(t, -random_.in(1, 2));
      default: return number(t, static_cast<int64_t>(random_.next()));
    }
  }
  /// A bool on the way, or another width.
  Value through(Value v) {
    if (random_.chance(0.25)) {
      Value p = compare(v);
      if (random_.chance(0.3)) p = b_.elementwise(Opcode::not_, {p});
      if (random_.chance(0.5)) return b_.elementwise(Opcode::select, {p, v, limit(dtype(v))});
      return b_.convert(p, some_dtype());
    }
    return b_.convert(v, some_dtype());
  }
  Value binary(Value v, Value w) {
    constexpr Opcode kOps[] = {Opcode::add, Opcode::add, Opcode::mul, Opcode::mul,  Opcode::sub, Opcode::rem,
                               Opcode::div, Opcode::min, Opcode::max, Opcode::and_, Opcode::or_, Opcode::xor_};
    return b_.elementwise(kOps[random_.below(std::size(kOps))], {v, w});
  }
  Value step(Value v) {
    const DType t = dtype(v);
    switch (random_.below(9)) {
      case 0: return b_.elementwise(random_.chance(0.5) ? Opcode::neg : Opcode::abs, {v});
      case 1: {
        constexpr Opcode kShifts[] = {Opcode::shift_left, Opcode::shift_right_logical, Opcode::shift_right_arithmetic};
        const Opcode op = kShifts[random_.below(3)];
        return b_.elementwise(op, {v, number(t, random_.in(-1, bits(t) + 1))});
      }
      case 2: return b_.elementwise(Opcode::clamp, {limit(t), v, limit(t)});
      case 3: return b_.elementwise(Opcode::mul, {v, number(t, random_.in(-4, 100))});
      case 4: return b_.elementwise(Opcode::not_, {v});
      default: return binary(v, limit(t));
    }
  }

  ir::Builder& b_;
  Random& random_;
};
}  // namespace

Value wrapped_int(ir::Builder& b, Random random, Value x, Value y, int64_t n) {
  Chain chain(b, random);
  const Value v = chain.make(x, y);
  return chain.to_i32(v, n);
}

Value wrapped_bool(ir::Builder& b, Random random, Value x, Value y) {
  Chain chain(b, random);
  Value v = chain.compare(chain.make(x, y));
  if (!random.chance(0.4)) return v;
  const Opcode op = random.chance(0.5) ? Opcode::and_ : Opcode::or_;
  return b.elementwise(op, {v, chain.compare(chain.make(y, x))});
}

ExtremeLoop extreme_loop(Random& random, int64_t rounds) {
  constexpr int64_t kLeast = INT32_MIN, kMost = INT32_MAX;
  const int64_t gap = random.in(0, 3 * rounds);
  const ExtremeLoop ends[] = {{kLeast, kMost, 0},
                              {0, kMost, 0},
                              {kLeast, 0, 0},
                              {kMost - gap, kMost, 0},
                              {kLeast, kLeast + gap, 0},
                              {kMost, kLeast, 0},
                              {kLeast + gap, kMost - gap, 0}};
  ExtremeLoop e = ends[random.below(std::size(ends))];
  const int64_t span = std::max<int64_t>(e.upper - e.lower, 1);
  const int64_t more = random.chance(0.3) ? random.in(0, 5) : 0;
  e.step = std::min(cdiv(span, random.in(1, rounds)) + more, kMost);
  if (random.chance(0.3)) {  // a power of two
    int64_t p = 1;
    while (p < e.step && p <= kMost / 2) p *= 2;
    if (span / p <= 2 * rounds) e.step = p;
  }
  return e;
}

}  // namespace tessera::fuzz
