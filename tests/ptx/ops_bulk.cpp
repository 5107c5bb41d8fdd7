// Bulk copies (cp.async.bulk), of bytes in a row and of boxes of tensors: they land late, in pieces and in random
// order.
#include <algorithm>
#include <cstring>

#include "tests/ptx/decode.h"

namespace tessera::ptx {

void copies_arrive(Thread& t, const Instr& i);
uint64_t combine_atomic(const Instr& i, uint64_t a, uint64_t b, uint64_t c);
int atomic_op(Decoder& d);

namespace {

enum Kind : uint32_t { kToShared, kToGlobal, kSharedToShared };
enum Flags : uint16_t { kMulticast = 1, kReduces = 2 };

/// Operands that did not fit into the Instr, by slots in its list.
enum Extra : uint32_t {
  kSource,
  kSourceLow,
  kSourceHigh,
  kSize,
  kBarrier,
  kBarrierLow,
  kBarrierHigh,
  kMask,
  kFirstCoordinate
};

uint32_t extra(Thread& t, const Instr& i, uint32_t k) { return t.m->code.lists[i.list + k]; }
uint64_t offset_in(Thread& t, const Instr& i, uint32_t low) {
  return extra(t, i, low) | uint64_t{extra(t, i, low + 1)} << 32;
}
uint64_t number(Thread& t, const Instr& i, uint32_t slot) {
  if (t.r[slot].poison) t.m->stop(Fault::poison, t, i, "its operand hangs on what nobody has written");
  return t.r[slot].bits;
}

/// A run of bytes that a copy takes from one place to another.
struct Piece {
  Access from, to;
  uint64_t bytes = 0;
  bool outside = false;  // of the tensor: filled
};

void reduce(const Instr& i, Type type, const Piece& p, const uint8_t* bytes, const uint8_t* poison) {
  Instr op = i;
  op.kind = i.kind >> 8, op.type = type;
  const uint64_t w = width_of(type) / 8;
  for (uint64_t at = 0; at + w <= p.bytes; at += w) {
    uint64_t a = 0, b = 0, ap = 0, bp = 0;
    std::memcpy(&a, p.to.bytes() + at, w), std::memcpy(&b, bytes + at, w);
    std::memcpy(&ap, p.to.poison() + at, w), std::memcpy(&bp, poison + at, w);
    const uint64_t r = combine_atomic(op, a, b, 0), rp = ap | bp ? ~uint64_t{0} : 0;
    std::memcpy(p.to.bytes() + at, &r, w), std::memcpy(p.to.poison() + at, &rp, w);
  }
}

/// What a copy does with the pieces; the barrier's block and offset where bytes are counted.
struct Copy {
  std::vector<Piece> pieces;
  Block* block = nullptr;
  uint64_t barrier = 0, bytes = 0;
  bool nan = false;
  Type type = Type::b8;
};

void fill(const Copy& c, const Piece& p) {
  std::memset(p.to.bytes(), 0, p.bytes);
  std::memset(p.to.poison(), 0, p.bytes);
  if (!c.nan) return;
  const uint64_t w = width_of(c.type) / 8,
                 bits = narrow(c.type, std::bit_cast<double>(uint64_t{0x7ff8} << 48), Round::even);
  for (uint64_t at = 0; at + w <= p.bytes; at += w) std::memcpy(p.to.bytes() + at, &bits, w);
}

/// Into shared memory: each part by itself, and then its bytes are counted.
void to_shared(Thread& t, const Instr& i, Copy c) {
  Machine& m = *t.m;
  for (const Piece& p : c.pieces) {
    if (!p.outside) m.touch(t, i, p.from, p.bytes, How::read, false, kCopies);
    m.touch(t, i, p.to, p.bytes, How::write, false, kCopies);
    std::memset(p.to.poison(), 0xff, p.bytes);
  }
  const ClockPtr clock = m.launch.races ? m.clock_of_copy(t, t.async_epoch) : nullptr;
  const size_t parts = c.pieces.empty() ? 1 : std::min<size_t>(c.pieces.size(), 1 + m.random.below(3));
  for (size_t part = 0; part < parts; ++part) {
    Copy some = c;
    some.pieces.clear();
    uint64_t bytes = part + 1 == parts ? c.bytes : 0;
    for (size_t k = 0; k < c.pieces.size(); ++k) {
      if (k % parts == part) some.pieces.push_back(c.pieces[k]);
      if (part + 1 == parts && k % parts != part) bytes -= c.pieces[k].bytes;
    }
    if (part + 1 < parts)
      for (const Piece& p : some.pieces) bytes += p.bytes;
    m.launch_async(t, i, kToBarrier, true, [&m, some, bytes, clock] {
      for (const Piece& p : some.pieces) {
        if (p.outside) {
          fill(some, p);
          continue;
        }
        std::memcpy(p.to.bytes(), p.from.bytes(), p.bytes);
        std::memcpy(p.to.poison(), p.from.poison(), p.bytes);
      }
      m.mbarrier_bytes(*some.block, some.barrier, static_cast<int64_t>(bytes), clock);
    });
  }
}

/// Out of shared memory: first the source is read, then, later, the destination written.
void to_global(Thread& t, const Instr& i, const Copy& c) {
  Machine& m = *t.m;
  for (const Piece& p : c.pieces) {
    m.touch(t, i, p.from, p.bytes, How::read, false, kSources);
    m.touch(t, i, p.to, p.bytes, i.flags & kReduces ? How::atomic : How::write, (i.flags & kReduces) != 0, kCopies);
  }
  t.last_source = t.async_epoch, t.last_source_at = i.pc;
  const uint32_t group = static_cast<uint32_t>(t.committed[kBulk].size());
  m.launch_async(t, i, kBulkSource, true, [&m, &t, &i, c, group] {
    std::vector<std::vector<uint8_t>> bytes, poison;
    for (const Piece& p : c.pieces) {
      bytes.emplace_back(p.from.bytes(), p.from.bytes() + p.bytes);
      poison.emplace_back(p.from.poison(), p.from.poison() + p.bytes);
    }
    m.launch_async(t, i, kBulk, false, [&i, c, bytes, poison] {
      for (size_t k = 0; k < c.pieces.size(); ++k) {
        const Piece& p = c.pieces[k];
        if (i.flags & kReduces) {
          reduce(i, c.type, p, bytes[k].data(), poison[k].data());
          continue;
        }
        std::memcpy(p.to.bytes(), bytes[k].data(), p.bytes);
        std::memcpy(p.to.poison(), poison[k].data(), p.bytes);
      }
    });
    m.pending.back().group = group;
  });
}

void find_barrier(Thread& t, const Instr& i, Copy& c) {
  const uint64_t address = address_in(t, i, extra(t, i, kBarrier), offset_in(t, i, kBarrierLow));
  const Machine::Found f = t.m->mbarrier_at(t, i, Space::shared, address, true);
  c.block = f.block, c.barrier = f.offset;
}

/// The blocks that a copy goes to: all of a mask, or the one of the address.
std::vector<Block*> receivers(Thread& t, const Instr& i, uint64_t address) {
  if (!(i.flags & kMulticast)) return {t.m->block_of(t, address)};
  const uint64_t mask = number(t, i, extra(t, i, kMask));
  std::vector<Block*> all;
  for (uint32_t r = 0; r < 16; ++r) {
    if (!(mask >> r & 1)) continue;
    if (r >= t.block->cluster.size())
      t.m->stop(Fault::bounds, t, i, "the cluster has no block of rank " + std::to_string(r));
    all.push_back(t.block->cluster[r]);
  }
  return all;
}

void bulk(Thread& t, const Instr& i) {
  Machine& m = *t.m;
  const uint32_t kind = i.kind & 0xff;
  const uint64_t bytes = number(t, i, extra(t, i, kSize));
  if (bytes % 16 || bytes == 0) m.stop(Fault::alignment, t, i, std::to_string(bytes) + " bytes are no multiple of 16");
  ++t.async_epoch;
  const uint64_t to_address = address_in(t, i, i.a, i.imm),
                 from_address = address_in(t, i, extra(t, i, kSource), offset_in(t, i, kSourceLow));
  const How how = i.flags & kReduces ? How::atomic : How::write;
  const Access to = m.reach(t, i, kind == kToGlobal ? Space::global : Space::shared, to_address, bytes, 16, how);
  const Access from =
      m.reach(t, i, kind == kToShared ? Space::global : Space::shared, from_address, bytes, 16, How::read);
  const auto pieces = [&](Object* into) {
    std::vector<Piece> all;
    for (uint64_t at = 0; at < bytes;) {
      const uint64_t n = std::min<uint64_t>(bytes - at, std::max<uint64_t>(16, bytes / 48 * 16));
      all.push_back({{from.object, from.offset + at}, {into, to.offset + at}, n});
      at += n;
    }
    return all;
  };
  Copy c;
  c.bytes = bytes, c.type = i.type;
  if (kind == kToGlobal) {
    c.pieces = pieces(to.object);
    return to_global(t, i, c);
  }
  find_barrier(t, i, c);
  for (Block* b : receivers(t, i, to_address)) {
    Copy one = c;
    if (i.flags & kMulticast) one.block = b;
    one.pieces = pieces(i.flags & kMulticast ? &b->shared : to.object);
    if (i.flags & kMulticast && !b->mbarriers.count(one.barrier))
      m.stop(Fault::undefined, t, i, "the block of rank " + std::to_string(b->rank) + " has no mbarrier there");
    to_shared(t, i, one);
  }
}

// ---- tensors

/// Where the swizzle puts a byte: chunks of 16 bytes change places within 128 (64, 32), by the rows of 128 before.
uint64_t swizzled(uint64_t address, TensorMap::Swizzle s) {
  const uint64_t bits = s == TensorMap::b128 ? 7 : s == TensorMap::b64 ? 3 : s == TensorMap::b32 ? 1 : 0;
  return address ^ (address >> 7 & bits) << 4;
}

const TensorMap& map_at(Thread& t, const Instr& i, uint64_t address) {
  Machine& m = *t.m;
  const Access a = m.reach(t, i, Space::generic, address, 128, 64, How::read);
  uint64_t words[2];
  std::memcpy(words, a.bytes(), 16);
  if (words[0] != kTensorMagic || words[1] >= m.tensors.size())
    m.stop(Fault::undefined, t, i,
           "there is no tensor map at byte " + std::to_string(a.offset) + " of " + a.object->name);
  return m.tensors[words[1]];
}

/// The box at some coordinates: runs of elements, in the tensor and in shared memory.
std::vector<Piece> box(Thread& t, const Instr& i, const TensorMap& map, const std::vector<int64_t>& at, Object* shared,
                       uint64_t shared_offset, bool loads) {
  Machine& m = *t.m;
  const uint64_t w = width_of(map.type) / 8;
  Object* o = m.buffers.at(map.buffer);
  const size_t rank = map.dims.size();
  std::vector<uint32_t> index(rank, 0);
  std::vector<Piece> all;
  uint64_t number = 0;  // of the element in the box
  uint64_t count = 1;
  for (const uint32_t b : map.box) count *= b;
  while (number < count) {
    // an inner run of 16 bytes or less: what a swizzle moves together
    const uint64_t left = map.box[0] - index[0];
    const uint64_t in_chunk = (16 - number * w % 16) / w;
    const uint64_t run = std::max<uint64_t>(1, std::min(left, in_chunk));
    const uint64_t linear = kSharedBase + shared_offset + number * w;
    const Access to{shared, swizzled(linear, map.swizzle) - kSharedBase};
    bool inside = true;
    uint64_t offset = map.offset;
    for (size_t k = 1; k < rank; ++k) {
      const int64_t x = at[k] + index[k];
      inside = inside && x >= 0 && static_cast<uint64_t>(x) < map.dims[k];
      offset += static_cast<uint64_t>(x) * map.strides[k - 1];
    }
    for (uint64_t k = 0; k < run;) {  // the parts inside and outside of the first dim
      const int64_t x = at[0] + index[0] + static_cast<int64_t>(k);
      const bool in = inside && x >= 0 && static_cast<uint64_t>(x) < map.dims[0];
      uint64_t n = 1;
      while (k + n < run &&
             (inside && x + static_cast<int64_t>(n) >= 0 && static_cast<uint64_t>(x) + n < map.dims[0]) == in)
        ++n;
      Piece p;
      p.bytes = n * w, p.outside = !in;
      const Access in_shared{to.object, to.offset + k * w}, in_tensor{o, offset + static_cast<uint64_t>(x) * w};
      if (in && in_tensor.offset + p.bytes > o->size)
        m.stop(Fault::bounds, t, i,
               "the tensor map reaches byte " + std::to_string(in_tensor.offset + p.bytes - 1) + " of " + o->name +
                   ", which has " + std::to_string(o->size));
      p.from = loads ? in_tensor : in_shared, p.to = loads ? in_shared : in_tensor;
      if (in || loads) all.push_back(p);
      k += n;
    }
    number += run;
    index[0] += static_cast<uint32_t>(run);
    for (size_t k = 0; k + 1 < rank && index[k] == map.box[k]; ++k) index[k] = 0, ++index[k + 1];
  }
  return all;
}

void tensor(Thread& t, const Instr& i) {
  Machine& m = *t.m;
  const uint32_t kind = i.kind & 0xff;
  const bool loads = kind == kToShared;
  ++t.async_epoch;
  const TensorMap& map = map_at(t, i, address_in(t, i, extra(t, i, kSource), offset_in(t, i, kSourceLow)));
  if (map.dims.size() != i.n)
    m.stop(Fault::undefined, t, i, "the tensor map has " + std::to_string(map.dims.size()) + " dims");
  std::vector<int64_t> at;
  for (uint32_t k = 0; k < i.n; ++k) at.push_back(signed_of(number(t, i, extra(t, i, kFirstCoordinate + k)), 32));
  uint64_t bytes = width_of(map.type) / 8;
  for (const uint32_t b : map.box) bytes *= b;
  const uint64_t address = address_in(t, i, i.a, i.imm);
  const Access shared = m.reach(t, i, Space::shared, address, bytes, 128, loads ? How::write : How::read);
  Copy c;
  c.bytes = bytes, c.nan = map.nan_fill, c.type = map.type;
  if (!loads) {
    c.pieces = box(t, i, map, at, shared.object, shared.offset, false);
    if (!c.pieces.empty() && !c.pieces[0].to.object->may_write)
      m.stop(Fault::bounds, t, i, c.pieces[0].to.object->name + " may not be written");
    return to_global(t, i, c);
  }
  find_barrier(t, i, c);
  for (Block* b : receivers(t, i, address)) {
    Copy one = c;
    if (i.flags & kMulticast) one.block = b;
    if (!one.block->mbarriers.count(one.barrier))
      m.stop(Fault::undefined, t, i, "the block of rank " + std::to_string(b->rank) + " has no mbarrier there");
    one.pieces = box(t, i, map, at, i.flags & kMulticast ? &b->shared : shared.object, shared.offset, true);
    to_shared(t, i, one);
  }
}

void commit(Thread& t, const Instr&) { t.m->commit(t, kBulk); }
void wait_groups(Thread& t, const Instr& i) { t.m->wait_group(t, kBulk, i.imm, i.flags != 0); }
void nothing(Thread&, const Instr&) {}

// ---- decoding

void append_address(Decoder& d, const Operand& o, Space s) {
  uint32_t slot = 0;
  uint64_t offset = 0;
  d.address(o, s, slot, offset);
  d.append(slot), d.append(static_cast<uint32_t>(offset)), d.append(static_cast<uint32_t>(offset >> 32));
}

void decode_tensor(Decoder& d) {
  Instr& i = *d.i;
  const int dims = d.take_any({"1d", "2d", "3d", "4d", "5d"});
  if (dims < 0) d.fail("the number of dims is missing");
  i.n = static_cast<uint8_t>(dims + 1);
  if (d.take("im2col")) d.fail(".im2col is not known");
  d.take("tile");
  const bool loads = (i.kind & 0xff) == kToShared;
  const Operand& map = d.operand(loads ? 1 : 0);
  const Operand& shared = d.operand(loads ? 0 : 1);
  if (map.kind != Operand::address || map.parts.size() != 2 || map.parts[1].parts.size() != i.n)
    d.fail("[map, {coordinates}] is expected");
  Space s = Space::shared;
  d.address(shared, s, i.a, i.imm);
  std::vector<uint32_t> slots;
  for (const Operand& o : map.parts[1].parts) slots.push_back(d.source(o, Type::b32));
  const uint32_t mask = i.flags & kMulticast ? d.source(3, Type::b16, true) : kNone;
  d.begin_list();
  append_address(d, map, Space::generic);
  d.append(kNone);
  if (loads) append_address(d, d.operand(2), Space::shared);
  else d.append(0), d.append(0), d.append(0);
  d.append(mask);
  for (const uint32_t slot : slots) d.append(slot);
  i.run = tensor;
}

}  // namespace

/// After "cp.async.bulk", "cp.reduce.async.bulk" or "cp.async.mbarrier".
void decode_bulk(Decoder& d, bool reduces) {
  Instr& i = *d.i;
  i.effects = true;
  if (d.take("arrive")) {
    i.opaque = true;
    i.kind = d.take("noinc") ? 1 : 0;
    i.space = d.space(Space::generic);
    d.need_type();
    d.need_operands(1);
    d.address(0);
    i.run = copies_arrive;
    return;
  }
  if (d.take("commit_group")) {
    d.need_operands(0);
    i.run = commit;
    return;
  }
  if (d.take("wait_group")) {
    d.need_operands(1);
    i.flags = d.take("read");
    i.imm = d.operand(0).bits;
    i.run = wait_groups;
    return;
  }
  const bool is_tensor = d.take("tensor");
  if (d.take("prefetch")) {
    d.ignore({"tensor", "1d", "2d", "3d", "4d", "5d", "L2", "global", "tile", "L2::cache_hint"});
    i.run = nothing;
    return;
  }
  i.proxy = i.opaque = true;
  const Space to = d.space(Space::generic), from = d.space(Space::generic);
  i.kind = to == Space::shared ? (from == Space::shared ? kSharedToShared : kToShared) : kToGlobal;
  if (to == Space::generic || from == Space::generic) d.fail("the spaces are missing");
  if (!d.take(i.kind == kToGlobal ? "bulk_group" : "mbarrier::complete_tx::bytes"))
    d.fail("the way of its completion is missing or not known");
  d.ignore({"L2::cache_hint"});
  if (d.take("multicast::cluster")) i.flags |= kMulticast;
  if (d.take("cp_mask")) d.fail(".cp_mask is not known");
  if (reduces) {
    const int op = atomic_op(d);
    d.take("noftz");
    if (op < 0 || i.kind != kToGlobal) d.fail("it is not known in this form");
    i.flags |= kReduces;
    i.kind |= static_cast<uint32_t>(op) << 8;
    i.type = is_tensor ? Type::none : d.need_type();
    if (!is_tensor) i.from = static_cast<uint8_t>(width_of(i.type));
  }
  d.accesses(2);
  if (is_tensor) return decode_tensor(d);
  const bool counts = (i.kind & 0xff) != kToGlobal;
  if (d.operands() < (counts ? 4u : 3u)) d.fail("there are too few operands");
  Space s = to;
  d.address(d.operand(0), s, i.a, i.imm);
  const uint32_t size = d.source(2, Type::b32);
  const uint32_t mask = i.flags & kMulticast ? d.source(4, Type::b16, true) : kNone;
  d.begin_list();
  append_address(d, d.operand(1), from);
  d.append(size);
  if (counts) append_address(d, d.operand(3), Space::shared);
  else d.append(0), d.append(0), d.append(0);
  d.append(mask);
  i.run = bulk;
}

}  // namespace tessera::ptx
