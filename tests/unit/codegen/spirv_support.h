// What the SPIR-V tests share: small lane-level kernels built op by op, the SPIRV-Tools validator, and one Vulkan
// device.
#pragma once
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "codegen/program/target.h"
#include "codegen/spirv/emit.h"
#include "engine/ir/builder.h"
#include "engine/ir/reference.h"
#include "tests/support/vulkan_runner.h"
#ifdef TESSERA_SPIRV_TOOLS
#include <spirv-tools/libspirv.hpp>
#endif

namespace tessera::test {

using ir::Attr;
using ir::Index;
using ir::Opcode;
using ir::Type;
using ir::Value;

/// A lane-level kernel under construction; finish() ends the body.
class LaneKernel {
 public:
  explicit LaneKernel(int32_t workgroup_size = 8) : b(k) {
    k.name = "test";
    k.level = ir::Level::lane;
    k.lane.workgroup_size = workgroup_size;
    k.body = b.new_region({});
    b.set_region(k.body);
  }
  LaneKernel(const LaneKernel&) = delete;

  Value arg(DType t) {
    ir::BlockMapping m;
    m.origin = "arg" + std::to_string(k.blocks.size());
    m.dtype = t;
    k.blocks.push_back(m);
    return b.add_arg(k.body, Type::ref(t, {-1}, ir::MemorySpace::global));
  }
  Value value(Opcode c, const Type& requested = {}) { return b.one({.code = c}, requested); }
  Value i32c(int64_t v) { return b.constant_int(DType::i32, v); }
  Value op(Opcode c, std::vector<Value> operands, DType result = DType::f32) {
    return b.elementwise(c, std::move(operands), result);
  }
  Value load(Value ref, Value index) {
    return b.one({.code = Opcode::load, .operands = {ref, index}, .index = {at(1)}});
  }
  Value load_masked(Value ref, Value index, Value mask, Value other) {
    ir::Op o{.code = Opcode::load, .operands = {ref, mask, other, index}, .index = {at(3)}};
    o.set(Attr::mask, 1);
    o.set(Attr::other, 1);
    return b.one(o);
  }
  void store(Value ref, Value index, Value v) {
    b.append({.code = Opcode::store, .operands = {ref, v, index}, .index = {at(2)}});
  }
  void store_masked(Value ref, Value index, Value v, Value mask) {
    ir::Op o{.code = Opcode::store, .operands = {ref, v, mask, index}, .index = {at(3)}};
    o.set(Attr::mask, 1);
    b.append(o);
  }
  Value alloc(Opcode c, DType t, int64_t length, int64_t offset) {
    ir::Op o{.code = c};
    o.set(Attr::offset, offset);
    return b.one(o,
                 Type::ref(t, {length}, c == Opcode::alloc_shared ? ir::MemorySpace::shared : ir::MemorySpace::global));
  }
  Value view(Value ref, Value offset) { return b.one({.code = Opcode::view, .operands = {ref, offset}}); }
  Value extent(int64_t i, bool wide) {
    ir::Op o{.code = Opcode::extent};
    o.set(Attr::index, i);
    return b.one(o, Type::array(wide ? DType::i64 : DType::i32));
  }
  Value reduce(Opcode kind, Value v, Opcode code = Opcode::subgroup_reduce) {
    ir::Op o{.code = code, .operands = {v}};
    o.set(Attr::kind, static_cast<int64_t>(kind));
    return b.one(o);
  }
  Value shuffle_xor(Value v, int64_t mask) {
    ir::Op o{.code = Opcode::subgroup_shuffle_xor, .operands = {v}};
    o.set(Attr::mask, mask);
    return b.one(o);
  }
  void barrier() { b.append({.code = Opcode::barrier}); }
  /// workgroup_index * workgroup_size + local_index
  Value global_index() {
    const Value base = op(Opcode::mul, {value(Opcode::workgroup_index), i32c(k.lane.workgroup_size)});
    return op(Opcode::add, {base, value(Opcode::local_index)});
  }
  const ir::Kernel& finish() {
    b.yield({});
    return k;
  }

  ir::Kernel k;
  ir::Builder b;

 private:
  static Index at(size_t operand) { return Index::at(Index::Dynamic{operand}); }
};

/// The validator's complaints about a module for Vulkan 1.3, "" if there are none.
inline std::string validate([[maybe_unused]] const std::vector<uint32_t>& words) {
  std::string out;
#ifdef TESSERA_SPIRV_TOOLS
  spvtools::SpirvTools tools(SPV_ENV_VULKAN_1_3);
  tools.SetMessageConsumer([&](spv_message_level_t, const char*, const spv_position_t&, const char* message) {
    out += std::string(message) + "\n";
  });
  tools.Validate(words);
#endif
  return out;
}

/// Emits and validates.
inline std::vector<uint32_t> emit_valid(const ir::Kernel& k, const Target& t, bool indirect_table = false,
                                        bool relaxed = false) {
  std::vector<uint32_t> words = spirv::emit(k, t, indirect_table, nullptr, relaxed);
  const std::string complaint = validate(words);
  CHECK_MESSAGE(complaint.empty(), complaint << "\n" << spirv::disassemble(words));
  return words;
}

/// The device, or null (with a message) where there is none: such tests then check validity only.
inline VulkanRunner* device() {
  static std::string why;
  static const std::unique_ptr<VulkanRunner> runner = VulkanRunner::open(why);
  if (!runner) MESSAGE("not run on a device: ", why);
  return runner.get();
}

/// No validation message has come.
inline void quiet() {
  if (!device()) return;
  for (const std::string& m : device()->messages()) FAIL_CHECK(m);
}

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& v) {
  std::vector<std::byte> out(v.size() * sizeof(T));
  if (!v.empty()) std::memcpy(out.data(), v.data(), out.size());
  return out;
}
template <class T>
std::vector<T> values_of(const std::vector<std::byte>& b) {
  std::vector<T> out(b.size() / sizeof(T));
  if (!b.empty()) std::memcpy(out.data(), b.data(), b.size());
  return out;
}

/// Elements of a dtype in host bytes, by their zero-extended bits.
struct Elements {
  DType dtype;
  std::vector<std::byte> bytes;
  Elements(DType t, int64_t n) : dtype(t), bytes(static_cast<size_t>(n * size_bytes(t))) {}
  int64_t size() const { return static_cast<int64_t>(bytes.size()) / size_bytes(dtype); }
  uint64_t get(int64_t i) const {
    uint64_t v = 0;
    std::memcpy(&v, &bytes[static_cast<size_t>(i * size_bytes(dtype))], static_cast<size_t>(size_bytes(dtype)));
    return v;
  }
  void set(int64_t i, uint64_t v) {
    std::memcpy(&bytes[static_cast<size_t>(i * size_bytes(dtype))], &v, static_cast<size_t>(size_bytes(dtype)));
  }
};

}  // namespace tessera::test
