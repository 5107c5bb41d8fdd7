// Where memory lies, and what an address leads to.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/ptx/machine.h"

namespace tessera::ptx {

namespace {

std::string hex(uint64_t x) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(x));
  return text;
}
const char* name_of(Space s) {
  switch (s) {
    case Space::generic: return "generic";
    case Space::global: return "global";
    case Space::shared: return "shared";
    case Space::local: return "local";
    case Space::param: return "parameter";
    case Space::constant: return "constant";
    case Space::reg: break;
  }
  return "";
}
constexpr uint64_t kWindow = uint64_t{1} << 32;
constexpr uint64_t kParamBase = 0;

/// What cuTensorMapEncodeTiled demands.
void check_tensor(const TensorMap& m, const Object& o) {
  const auto bad = [&](const std::string& what) {
    throw Stop{Fault::invalid, "the tensor map of " + o.name + ": " + what, 0};
  };
  const size_t rank = m.dims.size();
  const uint64_t w = width_of(m.type) / 8;
  if (rank < 1 || rank > 5 || m.strides.size() + 1 != rank || m.box.size() != rank)
    bad("1 to 5 dims, a box of as many, and one stride less");
  for (const uint32_t s : m.element_strides)
    if (s != 1) bad("element strides other than 1 are not known here");
  if (m.offset % 16) bad("its address is no multiple of 16");
  for (const uint64_t s : m.strides)
    if (s % 16) bad("the stride " + std::to_string(s) + " is no multiple of 16");
  for (const uint32_t b : m.box)
    if (b == 0 || b > 256) bad("a box of " + std::to_string(b) + " elements");
  if (m.box[0] * w % 16) bad("the box's first dim has " + std::to_string(m.box[0] * w) + " bytes, no multiple of 16");
  const uint64_t most = m.swizzle == TensorMap::b128  ? 128
                        : m.swizzle == TensorMap::b64 ? 64
                        : m.swizzle == TensorMap::b32 ? 32
                                                      : ~uint64_t{0};
  if (m.box[0] * w > most)
    bad("the box's first dim has " + std::to_string(m.box[0] * w) + " bytes, more than the swizzle's " +
        std::to_string(most));
}

}  // namespace

void Launch::place(const void* bytes, size_t size, size_t alignment) {
  while (parameters.size() % alignment) parameters.push_back(std::byte{0});
  const auto* p = static_cast<const std::byte*>(bytes);
  parameters.insert(parameters.end(), p, p + size);
}
Launch& Launch::buffer(Buffer b) {
  const uint64_t zero = 0;
  place(&zero, 8, 8);
  addresses.push_back({parameters.size() - 8, static_cast<uint32_t>(buffers.size()), 0, kNone});
  buffers.push_back(std::move(b));
  return *this;
}

void Machine::place_memory() {
  // far apart, and many across a multiple of 2^32
  std::vector<uint64_t> slots;
  const size_t n = launch.buffers.size() + code.module->variables.size() + 8;
  for (size_t i = 0; i < n; ++i) slots.push_back(i + 1);
  for (size_t i = n; i > 1; --i) std::swap(slots[i - 1], slots[random.below(static_cast<uint32_t>(i))]);
  size_t next = 0;
  const auto address = [&] {
    const uint64_t base = uint64_t{0x7000} << 32 | slots[next++] << 36;
    return base +
           (random.below(2) ? uint64_t{random.below(1u << 24)} << 8 : kWindow - (uint64_t{1 + random.below(4)} << 8));
  };
  shared_window = address() & ~(kWindow - 1);
  local_window = address() & ~(kWindow - 1);
  constant_window = address() & ~(kWindow - 1);
  param_window = address() & ~(kWindow - 1);
  for (const Buffer& b : launch.buffers) {
    auto o = std::make_unique<Object>();
    o->name = b.name, o->base = address(), o->may_write = b.may_write, o->granule = code.granule;
    o->make(b.bytes.size(), launch.races);
    std::memcpy(o->bytes.data(), b.bytes.data(), b.bytes.size());
    if (!b.initialised) {
      for (uint8_t& x : o->bytes) x = static_cast<uint8_t>(random.next());
      std::fill(o->poison.begin(), o->poison.end(), uint8_t{0xff});
    }
    buffers.push_back(o.get());
    globals.push_back(std::move(o));
  }
  constants.name = "constant memory", constants.base = 0, constants.may_write = false;
  constants.make(code.constant_bytes, false);
  const auto& variables = code.module->variables;
  std::vector<Object*> global_variables(variables.size(), nullptr);
  variable_bases.assign(variables.size(), 0);
  for (size_t v = 0; v < variables.size(); ++v) {
    if (variables[v].space == Space::constant) {
      std::memcpy(constants.bytes.data() + code.offsets[v], variables[v].initial.data(), variables[v].initial.size());
    } else if (variables[v].space == Space::global) {
      auto o = std::make_unique<Object>();
      o->name = variables[v].name, o->base = address(), o->granule = code.granule;
      o->make(variables[v].size, launch.races);
      std::memcpy(o->bytes.data(), variables[v].initial.data(), variables[v].initial.size());
      global_variables[v] = o.get(), variable_bases[v] = o->base;
      globals.push_back(std::move(o));
    }
  }
  for (size_t v = 0; v < variables.size(); ++v) {
    for (const auto& [at, name] : variables[v].addresses) {
      for (size_t w = 0; w < variables.size(); ++w) {
        if (variables[w].name != name || !global_variables[w]) continue;
        Object& o = variables[v].space == Space::constant ? constants : *global_variables[v];
        std::memcpy(o.bytes.data() + (variables[v].space == Space::constant ? code.offsets[v] : 0) + at,
                    &global_variables[w]->base, 8);
      }
    }
  }
  parameters.name = "the parameters", parameters.base = kParamBase, parameters.may_write = false;
  parameters.make(code.entry->param_bytes, false);
  std::memcpy(parameters.bytes.data(), launch.parameters.data(),
              std::min<size_t>(launch.parameters.size(), parameters.size));
  for (const Launch::Address& a : launch.addresses) {
    Object& into = a.in_buffer == kNone ? parameters : *buffers.at(a.in_buffer);
    const uint64_t value = buffers.at(a.buffer)->base + static_cast<uint64_t>(a.offset);
    if (a.at + 8 > into.size) throw Stop{Fault::invalid, "an address lies outside " + into.name, 0};
    std::memcpy(into.bytes.data() + a.at, &value, 8);
  }
  for (const Launch::Tensor& t : launch.tensors) {
    if (t.at + 128 > parameters.size) throw Stop{Fault::invalid, "a tensor map lies outside the parameters", 0};
    check_tensor(t.map, *buffers.at(t.map.buffer));
    const uint64_t words[2] = {kTensorMagic, tensors.size()};
    std::memcpy(parameters.bytes.data() + t.at, words, 16);
    tensors.push_back(t.map);
  }
  std::sort(globals.begin(), globals.end(), [](const auto& a, const auto& b) { return a->base < b->base; });
}

Space Machine::space_of(uint64_t g) const {
  if (g - shared_window < kWindow) return Space::shared;
  if (g - local_window < kWindow) return Space::local;
  if (g - constant_window < kWindow) return Space::constant;
  if (g - param_window < kWindow) return Space::param;
  return Space::global;
}
uint64_t Machine::to_generic(Space s, uint64_t address) const {
  switch (s) {
    case Space::shared: return shared_window + address;
    case Space::local: return local_window + address;
    case Space::constant: return constant_window + address;
    case Space::param: return param_window + address;
    default: return address;
  }
}
uint64_t Machine::from_generic(Space s, uint64_t address) const { return address - to_generic(s, 0); }

Block* Machine::block_of(Thread& t, uint64_t address) const {
  const uint64_t rank = address >> 24;
  if (rank == 0) return t.block;
  return rank <= t.block->cluster.size() ? t.block->cluster[rank - 1] : nullptr;
}

Access Machine::reach(Thread& t, const Instr& i, Space space, uint64_t address, uint64_t bytes, uint64_t alignment,
                      How how) {
  const uint64_t written = address;
  if (space == Space::generic) {
    space = space_of(address);
    address = from_generic(space, address);
  }
  Object* o = nullptr;
  uint64_t base = 0;
  switch (space) {
    case Space::shared: {
      Block* b = block_of(t, address);
      if (!b) stop(Fault::bounds, t, i, "the shared address " + hex(written) + " is of no block of the cluster");
      o = &b->shared, base = kSharedBase;
      address &= 0xffffff;
      break;
    }
    case Space::local: o = t.local, base = kLocalBase; break;
    case Space::constant: o = &constants, base = kSharedBase; break;
    case Space::param: o = &parameters, base = kParamBase; break;
    default: {
      if (globals.empty()) break;
      Object* last = globals[std::min(last_global_, globals.size() - 1)].get();
      if (address - last->base >= last->size) {
        const auto found = std::upper_bound(globals.begin(), globals.end(), address,
                                            [](uint64_t x, const auto& g) { return x < g->base; });
        if (found == globals.begin()) break;
        last_global_ = static_cast<size_t>(found - globals.begin()) - 1;
        last = globals[last_global_].get();
      }
      o = last, base = last->base;
    }
  }
  const uint64_t offset = o ? address - base : 0;
  if (!o || address < base || offset > o->size || bytes > o->size - offset) {
    std::string where = space == Space::global ? place_of(address) : "";
    if (where.empty() && o) where = o->name + " has " + std::to_string(o->size) + " bytes from " + hex(base);
    stop(Fault::bounds, t, i,
         std::to_string(bytes) + " bytes at the " + name_of(space) + " address " + hex(written) + ": " + where);
  }
  if (alignment > 1 && (address & (alignment - 1)) != 0)
    stop(Fault::alignment, t, i,
         "the " + std::string(name_of(space)) + " address " + hex(written) + " (byte " + std::to_string(offset) +
             " of " + o->name + ") is no multiple of " + std::to_string(alignment));
  if (how != How::read && !o->may_write)
    stop(Fault::bounds, t, i, o->name + " (byte " + std::to_string(offset) + ") may not be written");
  if (!o->opaque.empty() && !i.opaque) {
    for (uint64_t k = offset / 8; k <= (offset + bytes - 1) / 8 && k < o->opaque.size(); ++k)
      if (o->opaque[k])
        stop(Fault::undefined, t, i, "byte " + std::to_string(offset) + " of " + o->name + " belongs to an mbarrier");
  }
  return {o, offset};
}

std::string Machine::place_of(uint64_t address) const {
  const Object* nearest = nullptr;
  uint64_t distance = ~uint64_t{0};
  bool below = false;
  for (const auto& g : globals) {
    const uint64_t before = g->base - address, after = address - g->base;
    if (after < (uint64_t{1} << 40) && after < distance) nearest = g.get(), distance = after, below = false;
    if (before < (uint64_t{1} << 40) && before < distance) nearest = g.get(), distance = before, below = true;
  }
  if (!nearest) return "no buffer is near";
  const std::string size =
      nearest->name + " (" + std::to_string(nearest->size) + " bytes at " + hex(nearest->base) + ")";
  return below ? std::to_string(distance) + " bytes before " + size
               : "byte " + std::to_string(distance) + " of " + size;
}

}  // namespace tessera::ptx
