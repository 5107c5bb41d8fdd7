// Random numbers inside kernels. jax.random's own: threefry2x32 keys and the numbers drawn from them, bit for bit as in
// JAX 0.10 with its default settings (jax_threefry_partitionable); Philox 4x32-10; and the stateful generator of TPU
// kernels. All are compositions of integer ops. A key is a Value u32[2]. As in jax.random it is used once: split() it,
// or fold_in() a number that tells two uses apart (the program's id, a step).
#pragma once
#include <array>
#include <optional>
#include <utility>

#include "engine/front/ops.h"

namespace tessera::random {

// -- threefry2x32
/// The hash itself: 20 rounds of Threefry-2x32 over two u32 counters with two u32 key words, which broadcast together.
std::pair<Value, Value> threefry2x32(Operand key0, Operand key1, Operand count0, Operand count1);

/// jax.random.key(seed), as its two words. Seeds of 32 bits or fewer make the second word, the first is 0; an i64 or
/// u64 Value fills both. A number is taken modulo 2^32, as JAX takes it without 64-bit types.
Value key(Operand seed);
Value fold_in(Operand key, Operand data);      ///< another key: an integer scalar, modulo 2^32, mixed into it
Value split(Operand key, int64_t number = 2);  ///< u32[number, 2]: as many keys
/// Uniform bits: u8, u16, u32 or u64.
Value bits(Operand key, Shape shape, DType dtype = u32);
/// Floats in [low, high), of f16, bf16, f32 or f64: jax.random.uniform, bit for bit.
Value uniform(Operand key, Shape shape, DType dtype = f32, Operand low = 0.0, Operand high = 1.0);
/// Floats of mean 0 and variance 1, of f16, bf16, f32 or f64: jax.random.normal, within 4 units in the last place of
/// what it gives on the CPU (which in f32 is up to 90 units away from what its uniform numbers and the exact inverse
/// error function make).
Value normal(Operand key, Shape shape, DType dtype = f32);
/// Integers in [low, high): jax.random.randint, bit for bit; low where high is not above it. Bounds beyond the dtype
/// count as its last value, or for high as one more than that.
Value randint(Operand key, Shape shape, Operand low, Operand high, DType dtype = i32);
/// true with probability p (jax.random.bernoulli); p broadcasts to shape.
Value bernoulli(Operand key, Operand p, Shape shape);

// -- Philox 4x32-10
/// The hash itself (Salmon and others, Parallel random numbers: as easy as 1, 2, 3): ten rounds over four u32 counters
/// with two key words, which broadcast together. NumPy's Philox is the 64-bit one.
std::array<Value, 4> philox4x32(Operand key0, Operand key1, const std::array<Operand, 4>& counter);
/// u32 words of any shape: element i is word i % 4 of the hash of counter (i / 4, stream, 0, 0), i row-major.
Value philox_bits(Operand key, Shape shape, Operand stream = 0);

// -- stateful, as in TPU kernels
/// pltpu.prng_seed: sets this program's generator by one or more integer scalars. Its state is scratch of the kernel's:
/// what a program draws before it has seeded is unspecified.
void prng_seed(std::vector<Operand> seeds);
inline void prng_seed(Operand seed) { prng_seed(std::vector<Operand>{std::move(seed)}); }
/// pltpu.prng_random_bits: i32 of any shape, others each time. The bits are Philox's, not those of any TPU.
Value prng_random_bits(Shape shape, Loc loc = Loc::here());

}  // namespace tessera::random
