// What a subgroup does to matrices together: loads and stores of shared memory, products, fills.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <spirv/unified1/spirv.hpp>

#include "tests/support/judge/machine.h"

namespace tessera::judge {
namespace {

// The OFP8 formats (Open Compute Project, 2023): E5M2 is the upper half of a float16; E4M3 has no infinities.
double from_e4m3(uint64_t bits) {
  const int exponent = static_cast<int>(bits >> 3 & 15), mantissa = static_cast<int>(bits & 7);
  if ((bits & 0x7f) == 0x7f) return std::numeric_limits<double>::quiet_NaN();
  const double size = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (bits & 0x80) != 0 ? -size : size;
}
double number(const MatrixOp::Part& p, uint64_t bits) {
  if (p.encoding == kBfloat16) return std::bit_cast<float>(static_cast<uint32_t>(bits << 16));
  if (p.encoding == kFloat8E4M3) return from_e4m3(bits);
  if (p.encoding == kFloat8E5M2) return from_half(bits << 8);
  if (p.is_float) return p.width == 16 ? from_half(bits) : std::bit_cast<float>(static_cast<uint32_t>(bits));
  return 0;
}
int64_t integer(const MatrixOp::Part& p, uint64_t bits) {
  return p.is_signed ? signed_of(bits, p.width) : static_cast<int64_t>(bits & mask_of(p.width));
}

}  // namespace

void Machine::matrix_op(Group& g, size_t first, size_t n, uint32_t at) {
  const Instr& i = m_.code[at];
  const MatrixOp& m = m_.matrices[i.c];
  const auto element = [&](const MatrixOp::Part& p, uint64_t e) -> Slot& {
    return g.invocations[first + e % n].slots[p.slot + e / n];
  };
  const auto same = [&](uint32_t slot, const char* use) {
    const Slot x = g.invocations[first].slots[slot];
    for (size_t l = 0; l < n; ++l) {
      Invocation& v = g.invocations[first + l];
      if (v.slots[slot].poison) poisoned(g, v, at, use);
      if (v.slots[slot].bits != x.bits)
        reports_.add(Kind::undefined, at, 1, [&] {
          return std::string(use) + " differs within a subgroup, in " + reports_.at(at) + " by " +
                 Reports::who(who(g, v));
        });
    }
    return x.bits;
  };
  if (i.aux == kMatrixFill) {
    const uint64_t bits = same(m.a.slot, "the element of a matrix");
    for (uint64_t e = 0; e < uint64_t{m.result.rows} * m.result.cols; ++e) element(m.result, e) = {bits, 0};
    return;
  }
  if (i.aux == kMatrixMultiplyAdd) {
    const uint32_t depth = m.a.cols, cols = m.b.cols;
    const uint32_t start = random_.below(depth);  // devices may begin anywhere
    std::vector<Slot> out;
    for (uint64_t e = 0; e < uint64_t{m.a.rows} * cols; ++e) {
      Slot sum = element(m.c, e);
      for (uint32_t k = 0; k < depth; ++k) {
        const uint32_t at_k = (start + k) % depth;
        const Slot &a = element(m.a, e / cols * depth + at_k), &b = element(m.b, uint64_t{at_k} * cols + e % cols);
        if (m.c.is_float) {
          const float s = std::bit_cast<float>(static_cast<uint32_t>(sum.bits));
          sum.bits = std::bit_cast<uint32_t>(static_cast<float>(number(m.a, a.bits) * number(m.b, b.bits) + s));
        } else {
          sum.bits =
              static_cast<uint32_t>(static_cast<int64_t>(sum.bits) + integer(m.a, a.bits) * integer(m.b, b.bits));
        }
        sum.poison |= whole(a.poison | b.poison | sum.poison, mask_of(32));
      }
      out.push_back(sum);
    }
    for (uint64_t e = 0; e < out.size(); ++e) element(m.result, e) = out[e];
    return;
  }
  const bool loads = i.aux == kMatrixLoad;
  const MatrixOp::Part& p = loads ? m.result : m.a;
  const uint64_t base = same(m.pointer, "the place of a matrix"), stride = same(m.stride, "the stride of a matrix");
  const uint32_t bytes = p.width / 8;
  for (uint64_t e = 0; e < uint64_t{p.rows} * p.cols; ++e) {
    Invocation& v = g.invocations[first + e % n];
    const uint64_t row = e / p.cols, col = e % p.cols;
    const uint64_t from = base + (m.by_columns ? col : row) * stride * m.unit + (m.by_columns ? row : col) * bytes;
    if (!loads && v.meets != kNone) poisoned(g, v, at, "whether this is done");
    const Memory::Reached r = memory_.shared(g.shared, at, i, loads ? kRead : kWrite, who(g, v), from, bytes);
    Slot& x = element(p, e);
    if (!loads) {
      if (!r.bytes) continue;
      std::memcpy(r.bytes, &x.bits, bytes);
      std::memcpy(r.poison, &x.poison, bytes);
    } else if (r.bytes) {
      x = {};
      std::memcpy(&x.bits, r.bytes, bytes);
      std::memcpy(&x.poison, r.poison, bytes);
    } else {
      x = {random_.next() & mask_of(p.width), 0};
    }
  }
}

}  // namespace tessera::judge
