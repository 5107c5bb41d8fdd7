// Copies of boxes of arrays (tensor_load) in the lane-level interpreter: what is there is poison until they are waited
// for, when they land. Internal to interpreter.cpp, whose machine reaches memory.
#pragma once
#include <cstring>
#include <string>
#include <vector>

#include "codegen/lane/bytecode.h"
#include "codegen/lane/touched.h"
#include "engine/base/splitmix64.h"

namespace tessera::lane {

/// An element as memory has it.
inline uint64_t read(const std::byte* from, DType t) {
  uint64_t v = 0;
  switch (size_bytes(t)) {
    case 1: std::memcpy(&v, from, 1); break;
    case 2: std::memcpy(&v, from, 2); break;
    case 4: std::memcpy(&v, from, 4); break;
    default: std::memcpy(&v, from, 8); break;
  }
  return t == DType::boolean ? v != 0 : is_int4(t) ? v & 15 : v;
}
inline void write(std::byte* to, DType t, uint64_t v) { std::memcpy(to, &v, static_cast<size_t>(size_bytes(t))); }

class TensorCopies {
 public:
  /// By invocation 0 for all; what the others would have begun is compared when copies land. `word`: of shared memory,
  /// the first.
  template <class Machine, class Registers>
  void begin(Machine& m, const Instr& i, uint32_t at, uint32_t invocation, int64_t word, const Registers& r) {
    const TensorOp& t = m.code_.tensors[i.d];
    Copy c{&i, at, r[i.c].bits, word, {}};
    if (begun_.size() <= invocation) begun_.resize(invocation + 1);
    uint64_t& begun = begun_[invocation];
    begun = mix(mix(mix(begun, at), c.barrier), static_cast<uint64_t>(word));
    for (const uint32_t reg : t.at) {
      if (r[reg].poison) m.poisoned(invocation, at, r[reg], "a coordinate");
      c.first.push_back(static_cast<int32_t>(static_cast<uint32_t>(r[reg].bits)));
      begun = mix(begun, static_cast<uint64_t>(c.first.back()));
    }
    if (invocation != 0) return;
    constexpr int64_t kSwizzled = 1024;  // bytes, from which on rows are swizzled as the first ones
    if (const Place& p = m.code_.places[t.to];
        (p.arena()->offset + word * p.stride) % kSwizzled != 0 && m.is_new(9, at, 0))
      m.report("a box is copied to word " + std::to_string(word) + ", which is at no multiple of 1024 bytes, in " +
               m.op_at(at));
    copy(m, c, false);
    under_way_.push_back(std::move(c));
  }

  /// Those that `barrier` is told of, which has to be as many as end its phase.
  template <class Machine>
  void land(Machine& m, uint64_t barrier, uint32_t at, const std::vector<int32_t>& arrivals) {
    for (size_t i = 1; i < begun_.size(); ++i)
      if (begun_[i] != begun_[0] && m.is_new(11, at, 0))
        m.report("invocations 0 and " + std::to_string(i) + " begin other copies, before " + m.op_at(at));
    int32_t landed = 0;
    std::vector<Copy> others;
    for (Copy& c : under_way_) {
      if (c.barrier != barrier) {
        others.push_back(std::move(c));
        continue;
      }
      copy(m, c, true);
      ++landed;
    }
    under_way_ = std::move(others);
    const int32_t wanted = barrier < arrivals.size() ? arrivals[static_cast<size_t>(barrier)] : 0;
    if (landed != wanted && m.is_new(10, at, 0))
      m.report(std::to_string(landed) + " copies are told to a barrier that waits for " + std::to_string(wanted) +
               ", in " + m.op_at(at));
  }

 private:
  struct Copy {
    const Instr* op;
    uint32_t at;
    uint64_t barrier;
    int64_t word;
    std::vector<int64_t> first;  // coordinates
  };

  static uint64_t mix(uint64_t a, uint64_t b) { return SplitMix64::mix(a ^ b); }

  template <class Machine>
  static void copy(Machine& m, const Copy& c, bool lands) {
    const TensorOp& t = m.code_.tensors[c.op->d];
    Instr from = *c.op, to = *c.op;
    from.aux = t.array, to.aux = t.to;
    const Shape& whole = m.arrays_[m.code_.places[t.array].arg()->number].shape();
    const DType dtype = m.code_.places[t.array].dtype;
    const int64_t size = size_bytes(dtype), n = num_elements(t.box), row = t.box.back();
    for (int64_t e = 0; e < n * t.count; ++e) {
      const int64_t in_box = e % n, byte = in_box % row * size, across = in_box / row;
      const int64_t piece = (byte / 16) ^ (across % 8), in_piece = byte % 16;
      const int64_t word = c.word + e / n * (n * size / 4) + across * 32 + piece * 4 + in_piece / 4;
      uint8_t* poison = nullptr;
      std::byte* place = m.template reach<kWrite>(to, c.at, 0, word, &poison);
      if (!place) return;
      std::memset(poison + byte % 4, lands ? 0 : 1, static_cast<size_t>(size));
      if (!lands) continue;
      int64_t element = 0, stride = 1, rest = in_box;
      bool inside = true;
      for (size_t d = whole.size(); d-- > 0;) {
        const int64_t x = c.first[d] + rest % t.box[d] + (d + 1 == whole.size() ? e / n * row : 0);
        inside = inside && x >= 0 && x < whole[d];
        element += x * stride;
        stride *= whole[d];
        rest /= t.box[d];
      }
      uint8_t* none = nullptr;
      const std::byte* source = inside ? m.template reach<kRead>(from, c.at, 0, element, &none) : nullptr;
      write(place + byte % 4, dtype, source ? read(source, dtype) : 0);
    }
  }

  std::vector<Copy> under_way_;
  std::vector<uint64_t> begun_;  // a hash of the copies that each invocation has passed
};

}  // namespace tessera::lane
