// wgmma: products of 64 x K and K x N by four warps, with operands in shared memory. Each warp makes its 16 rows. What
// is begun reads shared memory at once or at the wait, as the seed decides; the registers of the result are poison
// between.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/ptx/decode.h"

namespace tessera::ptx {

namespace {

enum Flags : uint16_t { kSaturate = 1, kNegateA = 2, kNegateB = 4, kTransA = 8, kTransB = 16, kRegistersA = 32 };

/// A matrix descriptor, in bytes.
struct Descriptor {
  uint64_t start, leading, stride;
  uint32_t swizzle;  // bytes: 128, 64, 32, or 16 for none
};
Descriptor decoded(uint64_t bits) {
  static const uint32_t kSwizzles[] = {16, 128, 64, 32};
  return {(bits & 0x3fff) << 4, (bits >> 16 & 0x3fff) << 4, (bits >> 32 & 0x3fff) << 4, kSwizzles[bits >> 62]};
}
constexpr uint64_t kOfDescriptor = uint64_t{3} << 62 | uint64_t{0x3fff} << 32 | 0x3fff3fff;
uint64_t swizzled(uint64_t address, uint32_t swizzle) { return address ^ (address >> 7 & (swizzle / 16 - 1)) << 4; }

/// Where an element is: `row` of the side that is not summed, `k` of the one that is; in bytes along what is
/// contiguous.
uint64_t address_of(const Descriptor& d, uint32_t row, uint32_t k, uint32_t bytes, bool transposed) {
  if (!transposed) {  // K is contiguous: groups of 8 rows, each row as long as the swizzle
    const uint64_t along = uint64_t{k} * bytes;
    if (d.swizzle == 16) return d.start + row / 8 * d.stride + along / 16 * d.leading + row % 8 * 16 + along % 16;
    return swizzled(d.start + row / 8 * d.stride + row % 8 * d.swizzle + along, d.swizzle);
  }
  const uint64_t along = uint64_t{row} * bytes;
  if (d.swizzle == 16) return d.start + along / 16 * d.stride + k / 8 * d.leading + k % 8 * 16 + along % 16;
  return swizzled(d.start + along / d.swizzle * d.leading + k / 8 * d.stride + k % 8 * d.swizzle + along % d.swizzle,
                  d.swizzle);
}

struct Side {
  std::vector<double> real;
  std::vector<int64_t> whole;
  std::vector<uint8_t> poison;
  explicit Side(size_t n) : real(n), whole(n), poison(n) {}
  void set(size_t at, Type t, uint64_t bits, bool p) {
    if (is_float(t)) real[at] = widen(t, bits);
    else whole[at] = is_signed(t) ? signed_of(bits, width_of(t)) : static_cast<int64_t>(bits);
    poison[at] = p;
  }
};
uint32_t element_bytes(Type t) { return t == Type::tf32 ? 4 : width_of(t) / 8; }

/// Rows `first` and on of an operand in shared memory: by row, then k.
void fetch(Thread& t, const Instr& i, uint64_t bits, uint32_t first, uint32_t rows, uint32_t k_size, Type type,
           bool transposed, bool notes, Side* into) {
  Machine& m = *t.m;
  const Descriptor d = decoded(bits);
  const uint32_t w = element_bytes(type);
  for (uint32_t row = 0; row < rows; ++row)
    for (uint32_t k = 0; k < k_size; ++k) {
      const uint64_t address = address_of(d, first + row, k, w, transposed);
      const Access a = m.reach(t, i, Space::shared, address, w, w, How::read);
      if (notes) m.touch(t, i, a, w, How::read, false, kCopies);
      if (!into) continue;
      uint64_t value = 0, poison = 0;
      std::memcpy(&value, a.bytes(), w), std::memcpy(&poison, a.poison(), w);
      into->set(size_t{row} * k_size + k, type, value, poison != 0);
    }
}

struct Shape {
  uint32_t n, k;
};
Shape shape_of(const Instr& i) {
  return {static_cast<uint32_t>(i.imm & 0xffff), static_cast<uint32_t>(i.imm >> 16 & 0xffff)};
}

Products& products(const Thread& t) { return t.block->products[t.warp]; }

/// One of a warpgroup's instructions: the other warps have to come here, too, with the same descriptors.
void note(Thread& t, const Instr& i, uint64_t a, uint64_t b) {
  Products& p = products(t);
  for (const uint64_t x : {uint64_t{i.pc}, a, b}) p.history = (p.history ^ x) * 0x9e3779b97f4a7c15u + 1;
  p.last = i.pc;
}

void aligned_fence(Thread& t, const Instr& i) {
  const std::vector<Thread*> all = t.m->gather(t, i, 0xffffffff, true);
  if (all.empty()) return;
  Products& p = products(t);
  note(t, i, 0, 0);
  p.fenced = true;
  p.given.clear();
  p.at_fence.clear();
  for (const uint32_t slot : t.m->code.of_products)
    for (const Thread* x : all) p.at_fence[slot].push_back(x->r[slot].bits);
}
void commit(Thread& t, const Instr& i) {
  if (t.m->gather(t, i, 0xffffffff, true).empty()) return;
  note(t, i, 0, 0);
  ++products(t).committed;
}

/// A register of a product that is under way holds nothing: whoever writes it meanwhile makes it hold something.
void check_untouched(const std::vector<Thread*>& all, const Instr& i, const Sums& s) {
  for (const Thread* x : all)
    for (const uint32_t slot : s.slots)
      if (x->r[slot].poison != ~uint64_t{0})
        x->m->stop(Fault::undefined, *x, i, "a register of a product under way has been written");
}

/// Makes the products of the oldest groups, and gives the sums that nothing else is added to.
void wait_group(Thread& t, const Instr& i) {
  const std::vector<Thread*> all = t.m->gather(t, i, 0xffffffff, true);
  if (all.empty()) return;
  Products& p = products(t);
  note(t, i, 0, 0);
  while (!p.begun.empty() && p.begun.front().group + i.imm < p.committed) {
    const Product x = std::move(p.begun.front());
    p.begun.pop_front();
    x.make();
    const bool more =
        std::any_of(p.begun.begin(), p.begun.end(), [&](const Product& y) { return y.result == x.result; });
    if (more) continue;
    Sums s = std::move(p.sums.at(x.result));
    check_untouched(all, i, s);
    p.sums.erase(x.result);
    for (Thread* u : all)
      for (size_t k = 0; k < s.slots.size(); ++k) u->r[s.slots[k]] = s.values[u->lane * s.slots.size() + k];
    p.given[x.result] = std::move(s);
  }
  p.fenced = false;  // the registers are the threads' again
  for (Thread* u : all) {
    auto& groups = u->committed_products;
    for (; !groups.empty() && groups.front().first + i.imm < p.committed; groups.pop_front())
      u->async_done = std::max(u->async_done, groups.front().second);
  }
  // what has read shared memory for the warp is the first lane's
  const ClockPtr read = t.m->launch.races ? t.m->clock_of_copy(*all[0], all[0]->async_done) : nullptr;
  ClockPtr before, after;
  for (Thread* u : all) {
    if (!read) break;
    if (!after || u->seen != before) {
      before = u->seen;
      t.m->see(*u, read, nullptr);
      after = u->seen;
    } else {
      u->seen = after;
      u->row = after->find(u->block->number);
    }
  }
}

/// One warp's rows: sums += a b.
void multiply(Machine& m, const Instr& i, Sums& sums, const Side& a, const Side& b, bool adds) {
  const Shape s = shape_of(i);
  const Type into = i.type;
  const uint32_t w = width_of(into), per = w < 32 ? 2 : 1, count = static_cast<uint32_t>(sums.slots.size());
  for (uint32_t lane = 0; lane < 32; ++lane)
    for (uint32_t e = 0; e < count * per; ++e) {
      const uint32_t row = lane / 4 + 8 * (e / 2 % 2), column = 8 * (e / 4) + 2 * (lane % 4) + e % 2;
      Slot& slot = sums.values[lane * count + e / per];
      const uint32_t shift = per == 2 ? 16 * (e % 2) : 0;
      const uint64_t mask = mask_of(w) << shift, old = slot.bits >> shift & mask_of(w);
      bool poison = adds && (slot.poison & mask);
      const size_t at_a = size_t{row} * s.k, at_b = size_t{column} * s.k;
      for (uint32_t k = 0; k < s.k; ++k) poison = poison || a.poison[at_a + k] || b.poison[at_b + k];
      uint64_t r = 0;
      if (is_float(into)) {
        r = narrow(into, accumulate(m, into, adds ? widen(into, old) : 0, &a.real[at_a], &b.real[at_b], s.k),
                   Round::even);
      } else {
        int64_t sum = adds ? signed_of(old, 32) : 0;
        for (uint32_t k = 0; k < s.k; ++k) sum += a.whole[at_a + k] * b.whole[at_b + k];
        if (i.flags & kSaturate) sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
        r = static_cast<uint64_t>(sum) & 0xffffffff;
      }
      const uint64_t others = mask_of(32) & ~mask;  // the register has 32 bits, whatever it held before
      slot.bits = (slot.bits & others) | r << shift;
      slot.poison = (slot.poison & others) | (poison ? mask : 0);
    }
}

/// A in registers: as mma's, 16 rows to a warp.
void fetch_registers(const std::vector<Thread*>& all, const uint32_t* slots, Type type, uint32_t k_size, Side& into) {
  const uint32_t w = element_bytes(type) * 8, n = 32 / w;
  for (Thread* x : all)
    for (uint32_t r = 0; r < 4; ++r) {
      const Slot s = x->r[slots[r]];
      for (uint32_t e = 0; e < n; ++e) {
        const uint32_t row = x->lane / 4 + 8 * (r % 2), k = r / 2 * 4 * n + x->lane % 4 * n + e;
        into.set(size_t{row} * k_size + k, type, s.bits >> (e * w) & mask_of(w),
                 (s.poison >> (e * w) & mask_of(w)) != 0);
      }
    }
}

/// The sums that a product adds to: those of products before it that nobody has waited for, or the registers.
Sums& sums_of(Thread& t, const Instr& i, const std::vector<Thread*>& all, const uint32_t* slots, uint32_t count) {
  Products& p = products(t);
  const auto found = p.sums.find(slots[0]);
  if (found != p.sums.end()) {
    if (found->second.slots.size() != count)
      t.m->stop(Fault::undefined, t, i, "a product into other registers has not ended yet");
    check_untouched(all, i, found->second);
    return found->second;
  }
  for (const auto& [first, other] : p.sums)
    for (uint32_t k = 0; k < count; ++k)
      if (std::find(other.slots.begin(), other.slots.end(), slots[k]) != other.slots.end())
        t.m->stop(Fault::undefined, t, i, "a product into some of these registers has not ended yet");
  Sums& s = p.sums[slots[0]];
  s.slots.assign(slots, slots + count);
  s.values.resize(size_t{32} * count);
  for (Thread* x : all)
    for (uint32_t k = 0; k < count; ++k) s.values[x->lane * count + k] = x->r[slots[k]];
  return s;
}

void mma_async(Thread& t, const Instr& i) {
  Machine& m = *t.m;
  if (m.alive_lanes(t) != 0xffffffff) m.stop(Fault::divergence, t, i, "a warp of 32 threads is needed");
  if ((t.warp | 3) >= m.warps_per_block) m.stop(Fault::divergence, t, i, "four warps are needed");
  const std::vector<Thread*> all = m.gather(t, i, 0xffffffff, true);
  if (all.empty()) return;
  const Shape s = shape_of(i);
  const uint32_t* list = m.code.lists.data() + i.list;
  const uint32_t count = i.count - 4;
  const Type a_type = static_cast<Type>(i.kind & 0xff), b_type = static_cast<Type>(i.kind >> 8 & 0xff);
  Products& p = products(t);
  if (!p.fenced) {
    const auto given = p.given.find(list[4]);
    bool same = given != p.given.end() || p.sums.count(list[4]);
    if (given != p.given.end() && !p.sums.count(list[4]))
      for (Thread* x : all)
        for (uint32_t k = 0; k < count; ++k)
          same = same && k < given->second.slots.size() &&
                 x->r[list[4 + k]].bits == given->second.values[x->lane * count + k].bits;
    if (!same) m.stop(Fault::undefined, t, i, "its registers may have been written, and there is no wgmma.fence since");
  }
  const auto as_fenced = [&](uint32_t slot) {
    const auto found = p.at_fence.find(slot);
    for (size_t lane = 0; lane < all.size(); ++lane)
      if (found == p.at_fence.end() || found->second[lane] != all[lane]->r[slot].bits)
        m.stop(Fault::undefined, *all[lane], i, "a register has been written, and there is no wgmma.fence since");
  };
  if (i.flags & kRegistersA)
    for (uint32_t k = 0; k < 4; ++k) as_fenced(list[k]);
  if (p.fenced && !p.sums.count(list[4]))
    for (uint32_t k = 0; k < count; ++k) as_fenced(list[4 + k]);
  const auto same_everywhere = [&](uint32_t slot) {
    for (Thread* x : all)
      if (x->r[slot].poison || x->r[slot].bits != t.r[slot].bits)
        m.stop(Fault::divergence, *x, i,
               "an operand differs between the threads of a warp, or hangs on what nobody has written");
    return t.r[slot].bits;
  };
  const bool adds = same_everywhere(i.e) != 0;
  const uint64_t b_bits = same_everywhere(i.b), a_bits = i.flags & kRegistersA ? 0 : same_everywhere(i.a);
  if ((a_bits | b_bits) & ~kOfDescriptor)
    m.stop(Fault::undefined, t, i, "a descriptor has a base offset, or bits that mean nothing");
  note(t, i, a_bits, b_bits);
  sums_of(t, i, all, list + 4, count);
  for (Thread* x : all) {
    ++x->async_epoch;
    x->committed_products.push_back({p.committed, x->async_epoch});
    for (uint32_t k = 0; k < count; ++k) x->r[list[4 + k]].poison = ~uint64_t{0};
  }
  const uint32_t first = t.warp % 4 * 16;
  auto a = std::make_shared<Side>(size_t{16} * s.k), b = std::make_shared<Side>(size_t{s.n} * s.k);
  if (i.flags & kRegistersA) fetch_registers(all, list, a_type, s.k, *a);
  else fetch(*all[0], i, a_bits, first, 16, s.k, a_type, i.flags & kTransA, true, a.get());
  fetch(*all[0], i, b_bits, 0, s.n, s.k, b_type, i.flags & kTransB, true, b.get());
  const bool late = m.random.below(2) != 0;
  Thread* reader = all[0];
  const uint32_t result = list[4];
  Product x;
  x.group = p.committed, x.result = result;
  std::vector<uint64_t> held;  // by fragments of A in registers, which may not change meanwhile
  for (uint32_t k = 0; (i.flags & kRegistersA) && k < 4; ++k)
    for (const Thread* y : all) held.push_back(y->r[list[k]].bits);
  x.make = [&m, &i, &p, reader, all, list, held, a, b, adds, late, a_bits, b_bits, first, s, a_type, b_type, result] {
    for (size_t k = 0; k < held.size(); ++k)
      if (const Thread& y = *all[k % 32]; y.r[list[k / 32]].bits != held[k])
        m.stop(Fault::undefined, y, i, "a register of A has been written before the product has ended");
    if (late) {
      if (!(i.flags & kRegistersA))
        fetch(*reader, i, a_bits, first, 16, s.k, a_type, i.flags & kTransA, false, a.get());
      fetch(*reader, i, b_bits, 0, s.n, s.k, b_type, i.flags & kTransB, false, b.get());
    }
    for (double& v : a->real) v = i.flags & kNegateA ? -v : v;
    for (double& v : b->real) v = i.flags & kNegateB ? -v : v;
    multiply(m, i, p.sums.at(result), *a, *b, adds);
  };
  p.begun.push_back(std::move(x));
  p.fenced = true;  // of the same registers, one product after another
}

// ---- decoding

bool parse_shape(Decoder& d, Shape& s) {
  for (const std::string& w : d.s->words) {
    unsigned n = 0, k = 0;
    int end = 0;
    if (std::sscanf(w.c_str(), "m64n%uk%u%n", &n, &k, &end) != 2 || end != static_cast<int>(w.size())) continue;
    s = {n, k};
    return d.take(w);
  }
  return false;
}
uint64_t one_number(Decoder& d, size_t k) {
  if (d.operand(k).kind != Operand::integer) d.fail("a number is expected");
  return d.operand(k).bits;
}

void decode_product(Decoder& d) {
  Instr& i = *d.i;
  Shape s{};
  if (!parse_shape(d, s)) d.fail("the shape is missing");
  if (d.take("satfinite")) i.flags |= kSaturate;
  const Type into = d.need_type(), a = d.need_type(), b = d.need_type();
  const bool whole = a == Type::s8 || a == Type::u8, halves = a == Type::f16 || a == Type::bf16;
  // of whole numbers beyond 32 columns there are multiples of 16 alone
  if (s.n % 8 || s.n > 256 || s.n == 0 || (whole && s.n > 32 && s.n % 16) || s.k * element_bytes(a) != 32)
    d.fail("there is no such shape");
  const bool known =
      whole ? into == Type::s32 : into == Type::f32 || (into == Type::f16 && (a == Type::f16 || element_bytes(a) == 1));
  if (!known || element_bytes(a) != element_bytes(b)) d.fail("it is not known for these types");
  i.type = into, i.kind = static_cast<uint32_t>(a) | static_cast<uint32_t>(b) << 8;
  i.imm = s.n | uint64_t{s.k} << 16;
  const uint32_t count = s.n / 2 * width_of(into) / 32;
  const Operand& result = d.operand(0);
  if (result.kind != Operand::vector || result.parts.size() != count)
    d.fail("the result takes " + std::to_string(count) + " registers");
  std::vector<uint32_t> slots(4, kNone);
  if (d.operand(1).kind == Operand::vector) {
    i.flags |= kRegistersA;
    if (d.operand(1).parts.size() != 4) d.fail("A takes 4 registers");
    for (size_t k = 0; k < 4; ++k) slots[k] = d.source(d.operand(1).parts[k], Type::b32);
  } else {
    i.a = d.source(1, Type::b64);
  }
  for (const Operand& o : result.parts) slots.push_back(d.result(o, into == Type::f16 ? Type::b32 : into));
  i.b = d.source(2, Type::b64);
  i.e = d.predicate(d.operand(3));
  size_t at = 4;
  if (!whole) {
    if (one_number(d, at++) == ~uint64_t{0}) i.flags |= kNegateA;
    if (one_number(d, at++) == ~uint64_t{0}) i.flags |= kNegateB;
  }
  if (halves) {
    if (!(i.flags & kRegistersA) && one_number(d, at++)) i.flags |= kTransA;
    if (one_number(d, at++)) i.flags |= kTransB;
  }
  d.need_operands(at);
  d.begin_list();
  for (const uint32_t slot : slots) {
    d.append(slot);
    if (slot != kNone) d.code.of_products.insert(slot);
  }
  d.accesses(element_bytes(a));
  i.run = mma_async;
}

void decode_wgmma(Decoder& d) {
  Instr& i = *d.i;
  i.effects = i.proxy = true;
  if (d.module.target.find('a') == std::string::npos) d.fail("it is of sm_90a, and the module of " + d.module.target);
  const bool product = d.take("mma_async"), fence = d.take("fence"), commits = d.take("commit_group"),
             waits = d.take("wait_group");
  if (!d.take("sync") || !d.take("aligned")) d.fail(".sync.aligned is missing");
  if (product) return decode_product(d);
  d.need_operands(waits ? 1 : 0);
  if (waits) i.imm = one_number(d, 0);
  i.run = fence ? aligned_fence : commits ? commit : wait_group;
  if (!fence && !commits && !waits) d.fail("it is not known in this form");
}

/// The number of registers is a promise to the hardware: only its form is looked at.
void nothing(Thread& t, const Instr& i) { t.m->gather(t, i, 0xffffffff, true); }

}  // namespace

void add_wgmma_ops(Opcodes& o) {
  o["wgmma"] = decode_wgmma;
  o["setmaxnreg"] = [](Decoder& d) {
    if (d.take_any({"inc", "dec"}) < 0 || !d.take("sync") || !d.take("aligned") || d.need_type() != Type::u32)
      d.fail("it is not known in this form");
    d.need_operands(1);
    const uint64_t n = one_number(d, 0);
    if (n < 24 || n > 256 || n % 8)
      d.fail(std::to_string(n) + " registers: a multiple of 8 from 24 to 256 is expected");
    d.i->effects = true;
    d.i->run = nothing;
  };
}

}  // namespace tessera::ptx
