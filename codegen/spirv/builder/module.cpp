#include "codegen/spirv/builder/module.h"

namespace tessera::spirv {
namespace {

void put(Words& out, spv::Op code, const Words& operands) {
  out.push_back(static_cast<uint32_t>(operands.size() + 1) << spv::WordCountShift | static_cast<uint32_t>(code));
  out.insert(out.end(), operands.begin(), operands.end());
}

/// Appends a literal string: UTF-8, little-endian in words, ended by at least one zero byte.
void put_string(Words& out, std::string_view text) {
  for (size_t i = 0; i <= text.size(); i += 4) {
    uint32_t word = 0;
    for (size_t j = i; j < i + 4 && j < text.size(); ++j)
      word |= static_cast<uint32_t>(static_cast<unsigned char>(text[j])) << (8 * (j - i));
    out.push_back(word);
  }
}

/// No name or path needs more; an instruction's length has 16 bits.
std::string_view shorten(std::string_view text) { return text.substr(0, 4096); }

}  // namespace

Id Module::declare(spv::Op code, const Words& operands, bool typed) {
  Id& id = declared_[{code, operands}];
  if (id) return id;
  id = fresh();
  Words w;
  if (typed) w.push_back(operands[0]);
  w.push_back(id);
  w.insert(w.end(), operands.begin() + (typed ? 1 : 0), operands.end());
  put(declarations_, code, w);
  return id;
}

void Module::execution_mode(spv::ExecutionMode mode, std::initializer_list<uint32_t> literals) {
  Words w{entry_function_, static_cast<uint32_t>(mode)};
  w.insert(w.end(), literals);
  put(modes_, spv::OpExecutionMode, w);
}

void Module::entry_point(Id function, std::string_view name) {
  entry_function_ = function;
  entry_name_ = name;
}

void Module::name(Id id, std::string_view text) {
  Words w{id};
  put_string(w, shorten(text));
  put(names_, spv::OpName, w);
}

void Module::name_member(Id type, uint32_t member, std::string_view text) {
  Words w{type, member};
  put_string(w, shorten(text));
  put(names_, spv::OpMemberName, w);
}

Id Module::string(std::string_view text) { return long_string(shorten(text)); }

Id Module::long_string(std::string_view text) {
  Id& id = string_ids_[std::string(text)];
  if (id) return id;
  id = fresh();
  Words w{id};
  put_string(w, text);
  put(strings_, spv::OpString, w);
  return id;
}

void Module::decorate(Id id, spv::Decoration d, std::initializer_list<uint32_t> literals) {
  Words w{id, static_cast<uint32_t>(d)};
  w.insert(w.end(), literals);
  put(decorations_, spv::OpDecorate, w);
}

void Module::decorate_member(Id type, uint32_t member, spv::Decoration d, std::initializer_list<uint32_t> literals) {
  Words w{type, member, static_cast<uint32_t>(d)};
  w.insert(w.end(), literals);
  put(decorations_, spv::OpMemberDecorate, w);
}

Id Module::import(std::string_view set) {
  Id& id = import_ids_[std::string(set)];
  if (id) return id;
  id = fresh();
  Words w{id};
  put_string(w, set);
  put(imports_, spv::OpExtInstImport, w);
  return id;
}

Id Module::type_array(Id element, uint32_t length) {
  return declare(spv::OpTypeArray, {element, constant(type_uint(32), length, 32)});
}

Id Module::type_block(const std::vector<std::pair<Id, uint32_t>>& members) {
  Id& id = blocks_[members];
  if (id) return id;
  id = fresh();
  Words w{id};
  for (const auto& [type, offset] : members) w.push_back(type);
  put(declarations_, spv::OpTypeStruct, w);
  decorate(id, spv::DecorationBlock);
  for (uint32_t i = 0; i < members.size(); ++i) decorate_member(id, i, spv::DecorationOffset, {members[i].second});
  return id;
}

Id Module::type_read_only(Id member) {
  Id& id = read_only_[member];
  if (id) return id;
  id = fresh();
  put(declarations_, spv::OpTypeStruct, {id, member});
  decorate(id, spv::DecorationBlock);
  decorate_member(id, 0, spv::DecorationOffset, {0});
  decorate_member(id, 0, spv::DecorationNonWritable);
  return id;
}

Id Module::constant_bool(bool v) {
  return declare(v ? spv::OpConstantTrue : spv::OpConstantFalse, {type_bool()}, true);
}

Id Module::constant(Id type, uint64_t bits, uint32_t width) {
  Words w{type, static_cast<uint32_t>(bits)};
  if (width == 64) w.push_back(static_cast<uint32_t>(bits >> 32));
  return declare(spv::OpConstant, w, true);
}

Id Module::variable(spv::StorageClass c, Id pointee) {
  const Id type = type_pointer(c, pointee), id = fresh();
  put(declarations_, spv::OpVariable, {type, id, static_cast<uint32_t>(c)});
  globals_.push_back(id);
  return id;
}

Id Module::global_op(spv::Op code, Id type, const Words& operands) {
  const Id id = fresh();
  Words w{type, id};
  w.insert(w.end(), operands.begin(), operands.end());
  put(declarations_, code, w);
  return id;
}

Id Module::op(spv::Op code, Id type, const Words& operands) {
  const Id id = fresh();
  op_as(code, type, id, operands);
  return id;
}

void Module::op_as(spv::Op code, Id type, Id result, const Words& operands) {
  code_.push_back(static_cast<uint32_t>(operands.size() + 3) << spv::WordCountShift | static_cast<uint32_t>(code));
  code_.push_back(type);
  code_.push_back(result);
  code_.insert(code_.end(), operands.begin(), operands.end());
}

void Module::op(spv::Op code, const Words& operands) { put(code_, code, operands); }

Words Module::words() const {
  // Magic, version 1.6, generator 0 (unregistered), id bound, schema.
  Words out{spv::MagicNumber, 0x00010600, 0, next_, 0};
  for (spv::Capability c : capabilities_) put(out, spv::OpCapability, {static_cast<uint32_t>(c)});
  for (const std::string& name : extensions_) {
    Words text;
    put_string(text, name);
    put(out, spv::OpExtension, text);
  }
  out.insert(out.end(), imports_.begin(), imports_.end());
  put(out, spv::OpMemoryModel,
      {static_cast<uint32_t>(spv::AddressingModelPhysicalStorageBuffer64),
       static_cast<uint32_t>(spv::MemoryModelVulkan)});
  Words entry{static_cast<uint32_t>(spv::ExecutionModelGLCompute), entry_function_};
  put_string(entry, entry_name_);
  entry.insert(entry.end(), globals_.begin(), globals_.end());
  put(out, spv::OpEntryPoint, entry);
  for (const Words* section : {&modes_, &strings_, &names_, &decorations_, &declarations_, &code_})
    out.insert(out.end(), section->begin(), section->end());
  return out;
}

}  // namespace tessera::spirv
