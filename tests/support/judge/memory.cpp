#include "tests/support/judge/memory.h"

#include <algorithm>
#include <bit>
#include <spirv/unified1/spirv.hpp>

namespace tessera::judge {
namespace {
constexpr uint32_t kMany = UINT32_MAX - 1;
const char* verb(How how) { return how == kRead ? "read" : how == kWrite ? "written" : "atomically updated"; }
constexpr bool disturbs(How a, How b) { return a != b ? true : a == kWrite; }
bool changes(How how, const Instr& i) {
  return how != kRead && !(i.code == Code::atomic && i.aux == spv::OpAtomicLoad);
}
std::string element(const Object& o, uint64_t offset) { return "byte " + std::to_string(offset) + " of " + o.name; }
}  // namespace

// Objects are 2^40 bytes apart, and many lie across a multiple of 2^32: sums of addresses carry into the upper word.
Object& Memory::add(std::string name, uint64_t bytes, uint64_t alignment, uint64_t random) {
  auto o = std::make_unique<Object>();
  o->name = std::move(name);
  o->size = bytes;
  const uint64_t far = uint64_t{objects.size() + 1 + random % 16 * 4096} << 40;
  uint64_t near = uint64_t{1 + (random >> 8) % 7} << 32;
  if ((random >> 16) % 4)
    near -= std::min<uint64_t>((bytes / 2 + alignment) / alignment * alignment, uint64_t{1} << 31);
  near = near / (2 * alignment) * (2 * alignment) + alignment;
  o->base = far + near;
  const uint64_t whole = (bytes + 3) / 4 * 4;
  o->bytes.resize(whole);
  o->poison.resize(whole);
  std::fill(o->poison.begin() + static_cast<std::ptrdiff_t>(bytes), o->poison.end(), uint8_t{0xff});
  objects.push_back(std::move(o));
  return *objects.back();
}

void Memory::sort() {
  std::sort(objects.begin(), objects.end(), [](const auto& a, const auto& b) { return a->base < b->base; });
  bases_.clear();
  for (const auto& o : objects) bases_.push_back(o->base);
}

void Memory::forget() {
  for (const auto& o : objects) std::fill(o->cells.begin(), o->cells.end(), Cell{});
}

std::string Memory::place(uint64_t address, uint32_t bytes) const {
  const auto behind = std::upper_bound(bases_.begin(), bases_.end(), address);
  const Object* near = nullptr;
  if (behind != bases_.begin()) near = objects[static_cast<size_t>(behind - bases_.begin()) - 1].get();
  if (behind != bases_.end() && (!near || *behind - address < address - (near->base + near->size)))
    near = objects[static_cast<size_t>(behind - bases_.begin())].get();
  std::string s = std::to_string(bytes) + " bytes at ";
  if (!near) return s + std::to_string(address);
  const auto offset = static_cast<int64_t>(address - near->base);
  return s + "byte " + std::to_string(offset) + " of " + near->name + ", which has " + std::to_string(near->size);
}

Memory::Reached Memory::buffer(uint32_t at, const Instr& i, How how, const Who& who, uint64_t address, uint32_t bytes,
                               uint32_t touched) {
  if (last_ >= objects.size() || address - objects[last_]->base >= objects[last_]->size) {
    const auto behind = std::upper_bound(bases_.begin(), bases_.end(), address);
    last_ = behind == bases_.begin() ? 0 : static_cast<size_t>(behind - bases_.begin()) - 1;
  }
  Object* o = last_ < objects.size() ? objects[last_].get() : nullptr;
  const uint64_t offset = o ? address - o->base : 0;
  const bool words = o && o->element < 4 && bytes == 4 && offset % 4 == 0;
  if (!o || offset >= o->size || offset + bytes > (words ? o->bytes.size() : o->size)) {
    reports_.add(Kind::bounds, at, 0, [&] {
      return "out of bounds: " + place(address, bytes) + ", in " + reports_.at(at) + " by " + Reports::who(who);
    });
    return {};
  }
  if (const uint64_t align = std::max<uint64_t>(i.aux && i.code != Code::atomic ? i.aux : 1, i.width / 8);
      (std::has_single_bit(align) ? address & (align - 1) : address % align) != 0)
    reports_.add(Kind::alignment, at, 0, [&] {
      return "not aligned to " + std::to_string(align) + ": " + place(address, bytes) + ", in " + reports_.at(at) +
             " by " + Reports::who(who);
    });
  if (changes(how, i) ? !o->may_write : !o->may_read)
    reports_.add(Kind::may, at, how, [&] {
      return o->name + " is " + verb(how) + ", but its Program does not say so, in " + reports_.at(at) + " by " +
             Reports::who(who);
    });
  if (o->slice && (offset / o->slice != who.group || (offset + bytes - 1) / o->slice != who.group))
    reports_.add(Kind::bounds, at, 1, [&] {
      return "another workgroup's slice: " + place(address, bytes) + ", in " + reports_.at(at) + " by " +
             Reports::who(who);
    });
  if (!o->cells.empty()) {
    Who of_all = who;  // a subgroup's own barriers order nothing here
    of_all.own_epoch = 0;
    touch(*o, at, i, how, of_all, who.buffer_epoch, offset, bytes, touched);
  }
  return {&o->bytes[offset], &o->poison[offset]};
}

Memory::Reached Memory::shared(Object& o, uint32_t at, const Instr& i, How how, const Who& who, uint64_t offset,
                               uint32_t bytes) {
  if (offset >= o.size || offset + bytes > o.size) {
    reports_.add(Kind::bounds, at, 0, [&] {
      return "out of bounds: " + std::to_string(bytes) + " bytes at byte " +
             std::to_string(static_cast<int64_t>(offset)) + " of shared memory, which has " + std::to_string(o.size) +
             ", in " + reports_.at(at) + " by " + Reports::who(who);
    });
    return {};
  }
  touch(o, at, i, how, who, who.shared_epoch, offset, bytes, ~0u);
  return {&o.bytes[offset], &o.poison[offset]};
}

void Memory::touch(Object& o, uint32_t at, const Instr& i, How how, const Who& who, uint32_t epoch, uint64_t offset,
                   uint32_t bytes, uint32_t touched) {
  if (how == kRead) touch<kRead>(o, at, i, who, epoch, offset, bytes, touched);
  else if (how == kWrite) touch<kWrite>(o, at, i, who, epoch, offset, bytes, touched);
  else touch<kAtomic>(o, at, i, who, epoch, offset, bytes, touched);
}

template <How how>
void Memory::touch(Object& o, uint32_t at, const Instr& i, const Who& who, uint32_t epoch, uint64_t offset,
                   uint32_t bytes, uint32_t touched) {
  const bool is_private = how != kAtomic && !(i.flags & kNonPrivate), makes = changes(how, i);
  const int shift = std::countr_zero(o.granule);
  for (uint64_t g = offset >> shift, last = (offset + bytes - 1) >> shift; g <= last; ++g) {
    if (touched != ~0u) {  // which of the access's bytes this cell has
      uint32_t mine = 0;
      for (uint32_t b = 0; b < bytes; ++b)
        if ((offset + b) >> shift == g) mine |= touched >> b & 1;
      if (!mine) continue;
    }
    Cell& c = o.cells[g];
    const auto meet = [&](How other) {
      if (!disturbs(how, other)) return;
      const bool ordered = c.subgroup[other] == who.subgroup && c.own[other] < who.own_epoch;
      if (c.epoch[other] == epoch && c.by[other] != who.invocation && !ordered)
        conflict(o, c, at, how, other, who, g * o.granule);
      if (!o.slice && c.group[other] != kNone && c.group[other] != who.group)
        group_conflict(o, c, at, how, other, who, g * o.granule);
    };
    meet(kWrite), meet(kRead), meet(kAtomic);
    const bool again = how != kWrite && c.epoch[how] == epoch, others = again && c.subgroup[how] != who.subgroup;
    const bool several = again && c.own[how] == who.own_epoch && c.by[how] != who.invocation;
    c.by[how] = others || several ? kMany : who.invocation;
    c.subgroup[how] = others ? kMany : who.subgroup;
    c.epoch[how] = epoch, c.own[how] = who.own_epoch, c.at[how] = at;
    c.group[how] = how == kWrite || c.group[how] == kNone || c.group[how] == who.group ? who.group : kMany;
    c.group_at[how] = at;
    // What another invocation makes is seen, and what is made is seen by another, only through NonPrivatePointer,
    // whatever barriers there are.
    const auto meets = [&](uint32_t other) { return other != kNone && other != who.id; };
    if ((is_private && meets(c.writer)) || (makes && meets(c.alone)))
      reports_.add(Kind::is_private, at, c.alone_at, [&] {
        return "not NonPrivatePointer: " + element(o, g * o.granule) + " is " + verb(how) + " in " + reports_.at(at) +
               " by " + Reports::who(who) +
               (is_private ? ", and written by another invocation"
                           : ", and accessed by another in " + reports_.at(c.alone_at));
      });
    if (is_private) c.alone = c.alone == kNone || c.alone == who.id ? who.id : kMany, c.alone_at = at;
    if (makes) c.writer = c.writer == kNone || c.writer == who.id ? who.id : kMany;
  }
}

void Memory::conflict(const Object& o, const Cell& c, uint32_t at, How how, How other, const Who& who,
                      uint64_t offset) {
  reports_.add(Kind::conflict, at, c.at[other], [&] {
    return "conflict without a barrier between: " + element(o, offset) + " is " + verb(how) + " by " +
           Reports::who(who) + " in " + reports_.at(at) + " and " + verb(other) + " by " +
           (c.by[other] == kMany ? "several" : "invocation " + std::to_string(c.by[other])) + " in " +
           reports_.at(c.at[other]);
  });
}

void Memory::group_conflict(const Object& o, const Cell& c, uint32_t at, How how, How other, const Who& who,
                            uint64_t offset) {
  reports_.add(Kind::group_conflict, at, c.group_at[other], [&] {
    return "conflict between workgroups: " + element(o, offset) + " is " + verb(how) + " by " + Reports::who(who) +
           " in " + reports_.at(at) + " and " + verb(other) + " by " +
           (c.group[other] == kMany ? "several workgroups" : "workgroup " + std::to_string(c.group[other])) + " in " +
           reports_.at(c.group_at[other]);
  });
}

}  // namespace tessera::judge
