// Module: collects SPIR-V instructions by section and gives the module's words. Types and constants are deduplicated;
// ids are handed out in order of creation, so the same calls give the same words. It knows the binary form only: not
// our IR, not what is legal in Vulkan. Read next: function.h (arithmetic on top of it), spirv/emitter.h (the walk over
// a kernel).
#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <set>
#include <spirv/unified1/spirv.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::spirv {

using Id = uint32_t;
using Words = std::vector<uint32_t>;

class Module {
 public:
  Id fresh() { return next_++; }

  void capability(spv::Capability c) { capabilities_.insert(c); }
  void extension(std::string_view name) { extensions_.emplace(name); }
  void execution_mode(spv::ExecutionMode mode, std::initializer_list<uint32_t> literals);
  void entry_point(Id function, std::string_view name);  ///< GLCompute; the interface is every global variable made
  void name(Id id, std::string_view text);
  void name_member(Id type, uint32_t member, std::string_view text);
  Id string(std::string_view text);       ///< OpString, deduplicated; cut where it is longer than names and paths are
  Id long_string(std::string_view text);  ///< the same for up to 262,131 bytes
  void decorate(Id id, spv::Decoration d, std::initializer_list<uint32_t> literals = {});
  void decorate_member(Id type, uint32_t member, spv::Decoration d, std::initializer_list<uint32_t> literals = {});
  Id import(std::string_view set);  ///< of extended instructions, deduplicated
  Id glsl() { return import("GLSL.std.450"); }

  Id type_void() { return declare(spv::OpTypeVoid, {}); }
  Id type_bool() { return declare(spv::OpTypeBool, {}); }
  Id type_sint(uint32_t width) { return declare(spv::OpTypeInt, {width, 1}); }
  /// A type that SPIR-V's headers may not know yet.
  Id type_of(uint32_t code, const Words& operands) { return declare(static_cast<spv::Op>(code), operands); }
  Id type_uint(uint32_t width) { return declare(spv::OpTypeInt, {width, 0}); }
  Id type_float(uint32_t width) { return declare(spv::OpTypeFloat, {width}); }
  Id type_vector(Id element, uint32_t n) { return declare(spv::OpTypeVector, {element, n}); }
  Id type_array(Id element, uint32_t length);                          ///< no stride: for Workgroup memory
  Id type_block(const std::vector<std::pair<Id, uint32_t>>& members);  ///< a Block struct of (type, offset)
  /// A Block struct of one member that the module does not write: loads through it may be cached and moved.
  Id type_read_only(Id member);
  /// A plain struct, as results of extended arithmetic have.
  Id type_pair(Id a, Id b) { return declare(spv::OpTypeStruct, {a, b}); }
  Id type_pointer(spv::StorageClass c, Id pointee) {
    return declare(spv::OpTypePointer, {static_cast<uint32_t>(c), pointee});
  }
  Id type_function(Id result) { return declare(spv::OpTypeFunction, {result}); }

  Id constant_bool(bool v);
  Id constant(Id type, uint64_t bits, uint32_t width);  ///< of a scalar type of 32 or 64 bits
  Id constant_vector(Id type, const Words& elements) {
    Words w{type};
    w.insert(w.end(), elements.begin(), elements.end());
    return declare(spv::OpConstantComposite, w, true);
  }
  Id variable(spv::StorageClass c, Id pointee);
  Id global_op(spv::Op code, Id type, const Words& operands);  ///< among the types and constants, not deduplicated

  // Instructions of the function, in order.
  Id op(spv::Op code, Id type, const Words& operands);                  ///< with a result
  void op(spv::Op code, const Words& operands);                         ///< without
  void op_as(spv::Op code, Id type, Id result, const Words& operands);  ///< result id taken beforehand
  size_t position() const { return code_.size(); }
  void patch(size_t at, uint32_t word) { code_[at] = word; }

  Words words() const;

 private:
  /// A deduplicated instruction of the declaration section. `typed`: the first operand is the result type.
  Id declare(spv::Op code, const Words& operands, bool typed = false);

  Id next_ = 1;
  std::set<spv::Capability> capabilities_;
  std::set<std::string> extensions_;
  Words imports_, modes_, strings_, names_, decorations_, declarations_, code_;
  std::vector<Id> globals_;
  Id entry_function_ = 0;
  std::string_view entry_name_;
  std::map<std::pair<spv::Op, Words>, Id> declared_;
  std::map<std::vector<std::pair<Id, uint32_t>>, Id> blocks_;
  std::map<Id, Id> read_only_;  // by member
  std::map<std::string, Id, std::less<>> string_ids_, import_ids_;
};

}  // namespace tessera::spirv
