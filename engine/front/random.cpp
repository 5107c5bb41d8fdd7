#include "engine/front/random.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/front/bits.h"
#include "engine/front/normal.h"
#include "engine/front/ref.h"
#include "engine/front/trace.h"

namespace tessera::random {
namespace {
using std::array;
int width(DType t) { return tessera::bits(t); }

Value word(Emit& e, uint64_t bits) { return e.wrap(e.builder().constant(DType::u32, bits)); }
/// A u32 Value: u32 as it is, numbers modulo 2^32.
Value as_word(Emit& e, const Operand& o) {
  if (const auto& n = o.number()) {
    if (const int64_t* i = std::get_if<int64_t>(&*n)) return word(e, static_cast<uint32_t>(*i));
    if (const uint64_t* i = std::get_if<uint64_t>(&*n)) return word(e, static_cast<uint32_t>(*i));
  }
  const DType t = e.dtype(o);
  if (!is_int(t)) e.fail("takes integers but the operand is " + std::string(name(t)));
  return cast(e.wrap(e.as_is(o)), u32);
}
Value scalar_word(Emit& e, const Operand& o, const char* what) {
  const Value v = as_word(e, o);
  if (!v.shape().empty()) e.fail(std::string(what) + " must be a scalar but has shape " + to_string(v.shape()));
  return v;
}
Value rotated(const Value& x, int by) {
  const Value low = shift_right_logical(x, 32 - by);
  return (x << by) | low;
}

array<Value, 2> words(Emit& e, const Operand& key) {
  const DType t = e.dtype(key);
  const Shape shape = e.shape(key);
  if (t != u32 || shape != Shape{2})
    e.fail(
        "the key must be " + to_string(ir::Type::array(u32, {2})) + " but is " + to_string(ir::Type::array(t, shape)),
        "key() makes one, split() more");
  const Value v = e.wrap(e.as_is(key));
  return {reshape(slice(v, {0}, {1}), {}), reshape(slice(v, {1}, {2}), {})};
}
Value joined(const Value& a, const Value& b) { return stack({a, b}, -1); }

std::pair<Value, Value> hash(const array<Value, 2>& key, Value x0, Value x1) {
  constexpr int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const Value keys[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA};
  x0 = x0 + keys[0];
  x1 = x1 + keys[1];
  for (int group = 0; group < 5; ++group) {
    for (const int r : rotations[group % 2]) {
      x0 = x0 + x1;
      x1 = x0 ^ rotated(x1, r);
    }
    x0 = x0 + keys[(group + 1) % 3];
    x1 = x1 + keys[(group + 2) % 3] + (group + 1);
  }
  return {x0, x1};
}

Value drawn(Emit& e, const array<Value, 2>& key, const Shape& shape, DType t) {
  const auto [high, low] = iota_2x32(shape, e.loc());
  const auto [a, b] = hash(key, high, low);
  if (t != u64) return cast(a ^ b, t);
  const Value lower = cast(b, u64);
  return (cast(a, u64) << 32) | lower;
}

array<array<Value, 2>, 2> two_keys(Emit& e, const array<Value, 2>& key) {
  const auto child = [&](uint64_t i) {
    const Value count = word(e, i);
    const auto [a, b] = hash(key, word(e, 0), count);
    return array<Value, 2>{a, b};
  };
  return {child(0), child(1)};
}

void check_float(Emit& e, DType t) {
  if (!is_float(t) || width(t) < 16) e.fail("the dtype must be f16, bf16, f32 or f64 but is " + std::string(name(t)));
}

/// x * y + z, rounded once as JAX's compiler fuses it: the product's and the sum's errors (Dekker's and Knuth's, exact
/// unless they overflow) are added back. The product of two f16 is exact in f32; of bf16 JAX rounds it.
Value scaled(const Value& x, const Value& y, const Value& z) {
  const DType t = x.dtype();
  if (t == bf16) return x * y + z;
  if (t == f16) {
    const Value wide_z = cast(z, f32), wide_y = cast(y, f32);
    return cast(cast(x, f32) * wide_y + wide_z, t);
  }
  const auto halves = [&](const Value& v) {
    const Value far = v * (t == f32 ? 4097.0 : 134217729.0), upper = far - (far - v);
    return array<Value, 2>{upper, v - upper};
  };
  const Value product = x * y, sum = product + z;
  const auto [xu, xl] = halves(x);
  const auto [yu, yl] = halves(y);
  const Value lower = xl * yl, right = xl * yu, left = xu * yl;
  const Value lost = ((xu * yu - product) + left + right) + lower;
  const Value part = sum - product, of_z = z - part, lost_too = (product - (sum - part)) + of_z;
  const Value r = sum + (lost_too + lost);
  return where(is_finite(r), r, sum);
}

/// JAX's: random bits become the mantissa of a number from 1 to 2.
Value uniform_in(Emit& e, const array<Value, 2>& key, const Shape& shape, DType t, const Value& low,
                 const Value& high) {
  const int mantissa = t == f16    ? 10
                       : t == bf16 ? 7
                       : t == f32  ? 23
                                   : 52,
            n = width(t), random_bits = mantissa < 8 ? 8 : n;
  const DType u = unsigned_of(n);
  const Value one = e.wrap(e.builder().constant_int(t, 1));
  const Value raw = cast(drawn(e, key, shape, unsigned_of(random_bits)), u);
  const Value exponent = bitcast(one, u);
  const Value between = bitcast(shift_right_logical(raw, random_bits - mantissa) | exponent, t) - one;
  return maximum(low, scaled(between, high - low, low));
}
}  // namespace

std::pair<Value, Value> threefry2x32(Operand key0, Operand key1, Operand count0, Operand count1) {
  Emit e("threefry2x32", key0);
  const Shape shape = e.common_shape({&key0, &key1, &count0, &count1});
  const auto spread = [&](const Operand& o) { return broadcast_to(as_word(e, o), shape); };
  const Value x1 = spread(count1), x0 = spread(count0);
  return hash({as_word(e, key0), as_word(e, key1)}, x0, x1);
}

Value key(Operand seed) {
  Emit e("key", seed);
  const DType t = e.dtype(seed);
  if (seed.value() && is_int(t) && width(t) == 64 && e.shape(seed).empty()) {
    const Value v = e.wrap(e.as_is(seed));
    const Value low = cast(v, u32);
    return joined(cast(shift_right_logical(v, 32), u32), low);
  }
  const Value low = scalar_word(e, seed, "the seed");
  return joined(word(e, 0), low);
}

Value fold_in(Operand key, Operand data) {
  Emit e("fold_in", key);
  const Value x1 = scalar_word(e, data, "the data"), x0 = word(e, 0);
  const auto [a, b] = hash(words(e, key), x0, x1);
  return joined(a, b);
}

Value split(Operand key, int64_t number) {
  Emit e("split", key);
  if (number < 0) e.fail("there cannot be " + std::to_string(number) + " keys");
  const auto [high, low] = iota_2x32({number}, e.loc());
  const auto [a, b] = hash(words(e, key), high, low);
  return joined(a, b);
}

Value bits(Operand key, Shape shape, DType dtype) {
  Emit e("bits", key);
  if (!is_unsigned_int(dtype) || width(dtype) < 8)
    e.fail("the dtype must be u8, u16, u32 or u64 but is " + std::string(name(dtype)));
  return drawn(e, words(e, key), shape, dtype);
}

Value uniform(Operand key, Shape shape, DType dtype, Operand low, Operand high) {
  Emit e("uniform", key);
  check_float(e, dtype);
  const Value from = e.wrap(e.as(low, dtype)), to = e.wrap(e.as(high, dtype));
  return broadcast_to(uniform_in(e, words(e, key), shape, dtype, from, to), shape);
}

Value normal(Operand key, Shape shape, DType dtype) {
  Emit e("normal", key);
  check_float(e, dtype);
  const uint64_t one_bits = dtype == f16    ? 0x3c00
                            : dtype == bf16 ? 0x3f80
                            : dtype == f32  ? 0x3f800000
                                            : 0x3ff0000000000000;
  const uint64_t sign = uint64_t{1} << (width(dtype) - 1);
  const Value low = e.wrap(e.builder().constant(dtype, (one_bits - 1) | sign)),
              high = e.wrap(e.builder().constant(dtype, one_bits));
  const Value u = uniform_in(e, words(e, key), shape, dtype, low, high);
  const Value r = width(dtype) < 32 ? cast(erf_inv_of_jax(e, cast(u, f32)), dtype) : erf_inv_of_jax(e, u);
  return r * e.wrap(e.builder().constant_float(dtype, std::sqrt(2.0)));
}

namespace {
/// A bound of randint as dtype t, beyond its ends the end, and whether it was beyond the greatest.
struct Bound {
  Value v;
  std::optional<Value> beyond;
};
Bound bound(Emit& e, const Operand& o, DType t) {
  ir::Builder& b = e.builder();
  const uint64_t most =
      is_signed_int(t) ? (uint64_t{1} << (width(t) - 1)) - 1 : (uint64_t{1} << (width(t) - 1)) * 2 - 1;
  const int64_t least = is_signed_int(t) ? -static_cast<int64_t>(most) - 1 : 0;
  if (const auto& n = o.number()) {
    const bool negative = std::holds_alternative<int64_t>(*n) && std::get<int64_t>(*n) < 0;
    if (std::holds_alternative<double>(*n)) e.fail("the bounds must be integers");
    const uint64_t value = std::holds_alternative<bool>(*n)       ? std::get<bool>(*n)
                           : std::holds_alternative<uint64_t>(*n) ? std::get<uint64_t>(*n)
                                                                  : static_cast<uint64_t>(std::get<int64_t>(*n));
    const bool beyond = !negative && value > most;
    const int64_t signed_value = beyond ? 0 : static_cast<int64_t>(value);
    const Value v = e.wrap(beyond     ? b.constant(t, most)
                           : negative ? b.constant_int(t, std::max(signed_value, least))
                                      : b.constant(t, value));
    if (!beyond) return {v, std::nullopt};
    return {v, e.wrap(b.constant_int(DType::boolean, 1))};
  }
  const DType own = e.dtype(o);
  if (!is_int(own)) e.fail("the bounds must be integers but one is " + std::string(name(own)));
  Value v = e.wrap(e.as_is(o));
  std::optional<Value> beyond;
  const int own_bits = width(own) - is_signed_int(own), bits = width(t) - is_signed_int(t);
  if (own_bits > bits) {
    const Value end = e.wrap(b.constant(own, most));
    beyond = v > end;
    v = minimum(v, end);
  }
  if (is_signed_int(own) && (!is_signed_int(t) || own_bits > bits)) v = maximum(v, e.wrap(b.constant_int(own, least)));
  return {cast(v, t), beyond};
}
}  // namespace

Value randint(Operand key, Shape shape, Operand low, Operand high, DType dtype) {
  Emit e("randint", key);
  if (!is_int(dtype) || width(dtype) < 8) e.fail("the dtype must be integers but is " + std::string(name(dtype)));
  if (width(dtype) < 32) {  // drawn in 32 bits, which hold the bound above the greatest too
    const int64_t most = (int64_t{1} << (width(dtype) - is_signed_int(dtype))) - 1,
                  least = is_signed_int(dtype) ? -most - 1 : 0;
    const Value from = clamp(least, bound(e, low, i32).v, most), to = clamp(least, bound(e, high, i32).v, most + 1);
    return cast(randint(key, shape, from, to, i32), dtype);
  }
  const Bound from = bound(e, low, dtype), to = bound(e, high, dtype);
  const int n = width(dtype);
  const DType u = unsigned_of(n);
  const auto keys = two_keys(e, words(e, key));
  const Value apart = cast(to.v - from.v, u), one = e.wrap(e.builder().constant_int(u, 1));
  Value span = where(to.v <= from.v, one, apart);
  if (to.beyond) {
    const Value wider = span + 1;
    span = where(*to.beyond & (to.v > from.v), wider, span);
  }
  const Value half = e.wrap(e.builder().constant(u, uint64_t{1} << (n / 2)));
  Value multiplier = half % span;
  multiplier = multiplier * multiplier % span;
  // Twice the bits, so that a span which is no power of two favours none of its numbers by much.
  const Value lower = drawn(e, keys[1], shape, u) % span;
  const Value offset = (drawn(e, keys[0], shape, u) % span * multiplier + lower) % span;
  return broadcast_to(from.v + cast(offset, dtype), shape);
}

Value bernoulli(Operand key, Operand p, Shape shape) {
  Emit e("bernoulli", key);
  const DType t = is_float(e.dtype(p)) ? e.dtype(p) : f32;
  const Value chance = broadcast_to(e.wrap(e.as(p, t)), shape);
  return uniform(key, shape, t) < chance;
}

array<Value, 4> philox4x32(Operand key0, Operand key1, const array<Operand, 4>& counter) {
  Emit e("philox4x32", key0);
  const Shape shape = e.common_shape({&key0, &key1, &counter[0], &counter[1], &counter[2], &counter[3]});
  Value k0 = as_word(e, key0), k1 = as_word(e, key1);
  const auto spread = [&](const Operand& o) { return broadcast_to(as_word(e, o), shape); };
  array<Value, 4> x{spread(counter[0]), spread(counter[1]), spread(counter[2]), spread(counter[3])};
  const Value m0 = word(e, 0xD2511F53), m1 = word(e, 0xCD9E8D57);
  for (int round = 0; round < 10; ++round) {
    if (round > 0) {
      k0 = k0 + word(e, 0x9E3779B9);
      k1 = k1 + word(e, 0xBB67AE85);
    }
    x = {mulhi(m1, x[2]) ^ x[1] ^ k0, m1 * x[2], mulhi(m0, x[0]) ^ x[3] ^ k1, m0 * x[0]};
  }
  return x;
}

namespace {
Value philox_words(Emit& e, const Value& k0, const Value& k1, const Shape& shape, const Value& stream) {
  const int64_t n = num_elements(shape), blocks = (n + 3) / 4;
  const auto [high, low] = iota_2x32({blocks}, e.loc());
  const array<Value, 4> x = philox4x32(k0, k1, {low, stream, high, high});
  return reshape(slice(reshape(stack({x[0], x[1], x[2], x[3]}, 1), {4 * blocks}), {0}, {n}), shape);
}
}  // namespace

Value philox_bits(Operand key, Shape shape, Operand stream) {
  Emit e("philox_bits", key);
  const array<Value, 2> k = words(e, key);
  return philox_words(e, k[0], k[1], shape, scalar_word(e, stream, "the stream"));
}

// -- stateful: the state is two key words and how often bits were drawn
void prng_seed(std::vector<Operand> seeds) {
  Emit e("prng_seed", seeds.empty() ? Operand() : seeds[0]);
  if (seeds.empty()) e.fail("there is no seed");
  Value k0 = word(e, 0), k1 = word(e, 0);
  for (size_t i = 0; i < seeds.size(); ++i) {
    const array<Value, 4> x =
        philox4x32(k0, k1, {scalar_word(e, seeds[i], "a seed"), word(e, i), word(e, 0), word(e, 0)});
    k0 = x[0];
    k1 = x[1];
  }
  const Ref state = e.trace().prng_state();
  state[0] = k0;
  state[1] = k1;
  state[2] = word(e, 0);
}

Value prng_random_bits(Shape shape, Loc loc) {
  Emit e("prng_random_bits", loc);
  const Ref state = e.trace().prng_state();
  const Value draws = state[2];
  const Value k0 = state[0], k1 = state[1];
  state[2] = draws + 1;
  return bitcast(philox_words(e, k0, k1, shape, draws), i32);
}

}  // namespace tessera::random
