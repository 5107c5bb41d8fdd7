// Programs in the C++ that CUDA and other compilers share. CUDA's compiler makes PTX of them, which the emulator runs;
// the host's compiler makes the answers. Read next: nvcc_test.cpp.
#pragma once
#ifdef __CUDACC__
#define PTX_DEVICE __device__
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned;
using u64 = unsigned long long;
using i8 = signed char;
using i16 = short;
using i32 = int;
using i64 = long long;
PTX_DEVICE inline u32 bits(float x) { return __float_as_uint(x); }
PTX_DEVICE inline float real(u32 x) { return __uint_as_float(x); }
PTX_DEVICE inline u64 bits64(double x) { return __double_as_longlong(x); }
PTX_DEVICE inline double real64(u64 x) { return __longlong_as_double(x); }
PTX_DEVICE inline int popcount(u32 x) { return __popc(x); }
PTX_DEVICE inline int zeros(u32 x) { return __clz(x); }
PTX_DEVICE inline int zeros64(u64 x) { return __clzll(x); }
#else
#include <bit>
#include <cmath>
#include <cstdint>
#define PTX_DEVICE
using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = unsigned long long;
using i8 = int8_t;
using i16 = int16_t;
using i32 = int32_t;
using i64 = long long;
inline u32 bits(float x) { return std::bit_cast<u32>(x); }
inline float real(u32 x) { return std::bit_cast<float>(x); }
inline u64 bits64(double x) { return std::bit_cast<u64>(x); }
inline double real64(u64 x) { return std::bit_cast<double>(x); }
inline int popcount(u32 x) { return std::popcount(x); }
inline int zeros(u32 x) { return std::countl_zero(x); }
inline int zeros64(u64 x) { return std::countl_zero(x); }
#endif

// name, and what it makes of three words
#define PTX_PROGRAMS(X)                                                                                                \
  X(add, a + b * c)                                                                                                    \
  X(sub, a - (b ^ ~c))                                                                                                 \
  X(mul_high, u32((u64(a) * b) >> 32) + u32((i64(i32(a)) * i32(c)) >> 32))                                             \
  X(mul64, fold(pair(a, b) * pair(c, a)))                                                                              \
  X(high64, fold(high(pair(a, b), pair(c, a))))                                                                        \
  X(div_unsigned, a / (b | 1) + a % (c | 1))                                                                           \
  X(div_signed, u32(i32(a) / i32((b >> 1) | 1)) ^ u32(i32(a) % i32((c >> 1) | 1)))                                     \
  X(div64, fold(pair(a, b) / (pair(c, a) | 1)) ^ fold(u64(i64(pair(a, b)) / i64((pair(c, b) >> 1) | 1))))              \
  X(div_small, (a & 0xffff) / ((b & 0xff) + 1) + a / 7 + u32(i32(b) / 10) + c % 1000)                                  \
  X(shifts, (a << (b & 31)) ^ (a >> (c & 31)) ^ u32(i32(a) >> (b & 31)))                                               \
  X(shifts64, fold(pair(a, b) << (c & 63)) ^ fold(pair(a, b) >> (c & 63)) ^ fold(u64(i64(pair(a, b)) >> (c & 63))))    \
  X(rotate, (a << (b & 31)) | (a >> ((32 - (b & 31)) & 31)))                                                           \
  X(logic, (a & b) | ((~a & c) ^ (b & ~c)))                                                                            \
  X(lop, (a & b) ^ (b & c) ^ (a & c))                                                                                  \
  X(least, smaller(a, b) ^ u32(smaller(i32(b), i32(c))) ^ fold(smaller(pair(a, b), pair(c, a))))                       \
  X(largest, larger(a, b) ^ u32(larger(i32(b), i32(c))) ^ u32(larger(i16(a), i16(b))))                                 \
  X(counts, u32(popcount(a)) * 1000 + u32(zeros(b)) * 100 + u32(zeros64(pair(a, c))))                                  \
  X(absolute, u32(i32(a) < 0 ? 0 - i32(a & 0x7fffffff) : i32(a)) + b)                                                  \
  X(bytes, (a << 24) | ((b & 0xff00) << 8) | ((c >> 8) & 0xff00) | (a >> 24))                                          \
  X(narrow, u32(i32(i8(a))) + u32(u8(b)) * u32(i32(i16(c))) + u16(a >> 3))                                             \
  X(narrow_arithmetic, u32(u8(a + b)) ^ u32(i32(i16(i16(a) * i16(b)))) ^ u32(u16(u16(c) / u16(b | 1))))                \
  X(compare, u32(a < b) + 2 * u32(i32(a) < i32(b)) + 4 * u32(pair(a, b) >= pair(c, a)) + 8 * u32(a == c))              \
  X(choose, a < b ? (b < c ? a * 3 : b) : (c < a ? c - 1 : a))                                                         \
  X(f32_add, number(real(a) + real(b)) ^ number(real(b) - real(c)))                                                    \
  X(f32_mul, number(real(a) * real(b)))                                                                                \
  X(f32_fma, number(fmaf(real(a), real(b), real(c))))                                                                  \
  X(f32_div, number(real(a) / real(b)))                                                                                \
  X(f32_root, number(sqrtf(real(a))))                                                                                  \
  X(f32_compare, u32(real(a) < real(b)) + 2 * u32(real(a) >= real(c)) + 4 * u32(real(a) != real(b)) +                  \
                     8 * u32(!(real(b) > real(c))) + 16 * u32(real(a) == real(a)))                                     \
  X(f32_round, number(floorf(real(a))) ^ number(ceilf(real(b))) ^ number(truncf(real(c))) ^ number(rintf(real(a))))    \
  X(f32_sign, bits(fabsf(real(a))) ^ bits(-real(b)) ^ bits(copysignf(real(a), real(c))))                               \
  X(f32_least, number(fminf(real(quiet(a)), real(quiet(b)))) ^ number(fmaxf(real(quiet(b)), real(quiet(c)))))          \
  X(f32_from_int, bits(float(i32(a))) ^ bits(float(b)) ^ bits(float(pair(a, c))) ^ bits(float(i64(pair(c, b)))))       \
  X(f32_to_int, to_int(real(a)) ^ to_unsigned(real(b)) ^ fold(to_long(real(c))))                                       \
  X(f64_add, number64(real64(pair(a, b)) + real64(pair(c, a))))                                                        \
  X(f64_mul, number64(real64(pair(a, b)) * real64(pair(c, a))))                                                        \
  X(f64_fma, number64(fma(real64(pair(a, b)), real64(pair(c, a)), real64(pair(b, c)))))                                \
  X(f64_div, number64(real64(pair(a, b)) / real64(pair(c, a))))                                                        \
  X(f64_root, number64(sqrt(real64(pair(a, b) & 0x7fffffffffffffffull))))                                              \
  X(f64_from, fold(bits64(double(i64(pair(a, b))))) ^ fold(bits64(double(pair(b, c)))) ^ fold(bits64(double(i32(a))))) \
  X(f64_f32, number(float(real64(pair(a, b)))) ^ number64(double(real(c))))                                            \
  X(f64_round, number64(floor(real64(pair(a, b)))) ^ number64(rint(real64(pair(b, c)))))                               \
  X(collatz, collatz_steps(a & 0xffff))                                                                                \
  X(gcd, greatest_divisor(a, b))                                                                                       \
  X(cases, by_case(a, b, c))                                                                                           \
  X(array, sorted(a, b, c))                                                                                            \
  X(table, a_table[a & 15] + a_table[b & 15] * c)                                                                      \
  X(crc, crc32(a, b))

// the same, of floats in a range, with the most ulp that they may be off if PTX's approximations are as bad as
// documented
#define PTX_FUNCTIONS(X)                     \
  X(exp_, expf(x), -80, 80, 5)               \
  X(log_, logf(fabsf(x) + 1e-3f), 0, 1e6, 2) \
  X(sin_, sinf(x), -1e4, 1e4, 2)             \
  X(cos_, cosf(x), -1e4, 1e4, 2)             \
  X(tanh_, tanhf(x), -10, 10, 4)             \
  X(pow_, powf(fabsf(x), 1.7f), 0, 1e4, 8)   \
  X(atan_, atanf(x), -50, 50, 2)             \
  X(erf_, erff(x), -4, 4, 2)                 \
  X(cbrt_, cbrtf(x), -1e5, 1e5, 2)

PTX_DEVICE inline u64 pair(u32 a, u32 b) { return u64(a) << 32 | b; }
PTX_DEVICE inline u32 fold(u64 x) { return u32(x) ^ u32(x >> 32); }
PTX_DEVICE inline u32 number(float x) { return x != x ? 0x7fffffff : bits(x); }
PTX_DEVICE inline u32 number64(double x) { return x != x ? 0x7fffffff : fold(bits64(x)); }
/// The host's fminf gives NaN for a signalling one, and either zero of two.
PTX_DEVICE inline u32 quiet(u32 x) { return (x & 0x7fffffff) > 0x7f800000 ? x | 0x400000 : x == 0x80000000 ? 0 : x; }
PTX_DEVICE inline u64 high(u64 a, u64 b) {
  const u64 al = u32(a), ah = a >> 32, bl = u32(b), bh = b >> 32;
  const u64 middle = ah * bl + ((al * bl) >> 32), other = al * bh + u32(middle);
  return ah * bh + (middle >> 32) + (other >> 32);
}
template <class T>
PTX_DEVICE inline T smaller(T a, T b) {
  return a < b ? a : b;
}
template <class T>
PTX_DEVICE inline T larger(T a, T b) {
  return a < b ? b : a;
}
PTX_DEVICE inline u32 to_int(float x) { return x > -2e9f && x < 2e9f ? u32(i32(x)) : 5; }
PTX_DEVICE inline u32 to_unsigned(float x) { return x > -0.9f && x < 4e9f ? u32(x) : 5; }
PTX_DEVICE inline u64 to_long(float x) { return x > -9e18f && x < 9e18f ? u64(i64(x)) : 5; }
PTX_DEVICE inline u32 collatz_steps(u32 x) {
  u32 n = 0;
  for (x |= 1; x != 1; ++n) x = x & 1 ? 3 * x + 1 : x / 2;
  return n;
}
PTX_DEVICE inline u32 greatest_divisor(u32 a, u32 b) {
  while (b) {
    const u32 r = a % b;
    a = b, b = r;
  }
  return a;
}
PTX_DEVICE inline u32 by_case(u32 a, u32 b, u32 c) {
  switch (a % 11) {
    case 0: return b + c;
    case 1: return b * c;
    case 2: return b ^ (c << 3);
    case 3: return b - c;
    case 4: return b / (c | 1);
    case 5: return b & c;
    case 6: return b | c;
    case 7: return popcount(b) + c;
    case 8: return collatz_steps(b & 255);
    default: return a;
  }
}
/// An array with indices that are known at run time only: local memory.
PTX_DEVICE inline u32 sorted(u32 a, u32 b, u32 c) {
  u32 x[9];
  for (u32 k = 0; k < 9; ++k) x[k] = (a >> k) ^ (b << k) ^ (c * k);
  for (u32 i = 1; i < 9; ++i) {
    const u32 v = x[i];
    u32 k = i;
    for (; k > 0 && x[k - 1] > v; --k) x[k] = x[k - 1];
    x[k] = v;
  }
  return x[a % 9] ^ x[b % 9];
}
#ifdef __CUDACC__
__constant__
#endif
    const u32 a_table[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
#ifdef __CUDACC__
__device__ __noinline__
#else
inline
#endif
    u32
    crc32(u32 x, u32 start) {
  for (u32 k = 0; k < 32; ++k) start = (start >> 1) ^ ((start ^ (x >> k)) & 1 ? 0xedb88320u : 0);
  return start;
}

#ifdef __CUDACC__
#define X(name, value)                                              \
  extern "C" __global__ void name(const u32* in, u32* out, u32 n) { \
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;            \
    if (i >= n) return;                                             \
    const u32 a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];  \
    out[i] = value;                                                 \
  }
PTX_PROGRAMS(X)
#undef X
#define X(name, value, least, most, ulp)                                \
  extern "C" __global__ void name(const float* in, float* out, u32 n) { \
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;                \
    if (i >= n) return;                                                 \
    const float x = in[i];                                              \
    out[i] = value;                                                     \
  }
PTX_FUNCTIONS(X)
#undef X

/// The sum of all, by shuffles, shared memory and an atomic.
extern "C" __global__ void sum_all(const u32* in, u32* out, u32 n) {
  __shared__ u32 part[32];
  u32 s = 0;
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += in[i];
  for (int k = 16; k > 0; k /= 2) s += __shfl_down_sync(~0u, s, k);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  s = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
  s = __reduce_add_sync(~0u, s);
  if (threadIdx.x == 0) atomicAdd(out, s);
}
/// Inclusive sums of a block's elements, through shared memory.
extern "C" __global__ void scan_block(const u32* in, u32* out, u32 n) {
  extern __shared__ u32 row[];
  const u32 t = threadIdx.x, at = blockIdx.x * blockDim.x + t;
  row[t] = at < n ? in[at] : 0;
  __syncthreads();
  for (u32 k = 1; k < blockDim.x; k *= 2) {
    const u32 other = t >= k ? row[t - k] : 0;
    __syncthreads();
    row[t] += other;
    __syncthreads();
  }
  if (at < n) out[at] = row[t];
}
/// Blocks in a chain: each waits for the sum of those before it.
extern "C" __global__ void scan_chain(const u32* in, u32* out, u32 n, u32* ticket, volatile u32* sums,
                                      volatile u32* ready) {
  __shared__ u32 number, before;
  if (threadIdx.x == 0) number = atomicAdd(ticket, 1);
  __syncthreads();
  const u32 at = number * blockDim.x + threadIdx.x;
  u32 s = at < n ? in[at] : 0;
  for (int k = 1; k < 32; k *= 2) {
    const u32 other = __shfl_up_sync(~0u, s, k);
    if (threadIdx.x % 32 >= k) s += other;
  }
  if (threadIdx.x == blockDim.x - 1) {
    u32 b = 0;
    if (number > 0) {
      while (ready[number - 1] == 0) {
      }
      __threadfence();
      b = sums[number - 1];
    }
    sums[number] = b + s;
    __threadfence();
    ready[number] = 1;
    before = b;
  }
  __syncthreads();
  if (at < n) out[at] = before + s;
}
extern "C" __global__ void histogram(const u32* in, u32* out, u32 n) {
  __shared__ u32 bins[64];
  for (u32 i = threadIdx.x; i < 64; i += blockDim.x) bins[i] = 0;
  __syncthreads();
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&bins[in[i] % 64], 1);
  __syncthreads();
  for (u32 i = threadIdx.x; i < 64; i += blockDim.x) atomicAdd(&out[i], bins[i]);
}
#endif
