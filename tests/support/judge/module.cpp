#include "tests/support/judge/module.h"

#define SPV_ENABLE_UTILITY_CODE
#include <spirv/unified1/GLSL.std.450.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <spirv/unified1/spirv.hpp>

#include "engine/base/error.h"

namespace tessera::judge {
namespace {
using Id = uint32_t;

struct Type {
  enum Kind : uint8_t { none, boolean, integer, floating, vector, array, structure, pointer } kind = none;
  uint32_t width = 0, count = 0, element = 0, storage = 0;
  std::vector<uint32_t> members, offsets;
  uint32_t stride = 0;
};
/// A pointer that is known before the module runs: into the push constants, or to a built-in.
struct Known {
  uint32_t storage = 0, offset = 0, built_in = kNone, type = 0;
};
struct Block {
  Id label = 0, merge = 0, next = 0;  // next: the continue target of a loop
  size_t begin = 0, terminator = 0;   // words: behind the phis, and the last instruction
  std::vector<size_t> phis;
  std::vector<Id> to;
  uint32_t target = kNone;       // of the code
  std::vector<uint32_t> around;  // loops
  uint32_t loop = kNone;         // that it is the header of
};

class Decoder {
 public:
  explicit Decoder(const std::vector<uint32_t>& spirv) : w_(spirv) { m_.words = spirv; }

  Module run() {
    if (w_.size() < 5 || w_[0] != spv::MagicNumber) throw InternalError("judge: no SPIR-V module");
    ids_.resize(w_[3]);
    size_t at = 5;
    for (; at < w_.size() && op(at) != spv::OpFunction; at += length(at)) declaration(at);
    blocks(at);
    find_loops();
    for (uint32_t b = 0; b < blocks_.size(); ++b) emit_block(b);
    for (uint32_t e = 0; e < m_.edges.size(); ++e) finish_edge(e);
    for (const auto& [instr, label] : merges_) {
      uint32_t& to = m_.code[instr].code == Code::branch ? m_.code[instr].aux : m_.code[instr].c;
      to = label ? blocks_[at_label(label)].target : kNone;
    }
    return std::move(m_);
  }

 private:
  struct Info {
    uint32_t type = 0, slot = kNone;
    bool no_contraction = false;
  };

  spv::Op op(size_t at) const { return static_cast<spv::Op>(w_[at] & 0xffff); }
  size_t length(size_t at) const {
    const size_t n = w_[at] >> 16;
    if (n == 0 || at + n > w_.size()) throw InternalError("judge: a broken instruction at word " + std::to_string(at));
    return n;
  }
  [[noreturn]] void unknown(size_t at) const {
    throw InternalError("judge: does not know `" + instruction_text(w_, at) + "`");
  }
  const Type& type(Id id) const { return types_.at(id); }
  const Type& type_of(Id value) const { return type(ids_.at(value).type); }
  std::string string(size_t at) const {
    std::string s;
    for (;; ++at)
      for (int i = 0; i < 4; ++i) {
        const char c = static_cast<char>(w_[at] >> (8 * i));
        if (!c) return s;
        s += c;
      }
  }

  // -- types, constants, variables

  uint32_t components(Id t) const {
    const Type& x = type(t);
    switch (x.kind) {
      case Type::none: return 0;
      case Type::vector: return x.count;
      case Type::array: return x.count * components(x.element);
      case Type::structure: {
        uint32_t n = 0;
        for (const uint32_t m : x.members) n += components(m);
        return n;
      }
      default: return 1;
    }
  }
  uint32_t width(Id t) const {
    const Type& x = type(t);
    switch (x.kind) {
      case Type::boolean: return 1;
      case Type::pointer: return 64;
      case Type::vector:
      case Type::array: return width(x.element);
      case Type::structure: return width(x.members.at(0));
      default: return x.width;
    }
  }
  uint32_t make_slots(Id id, uint32_t n) {
    const auto first = static_cast<uint32_t>(m_.slots.size());
    m_.slots.resize(m_.slots.size() + n);
    ids_.at(id).slot = first;
    return first;
  }
  uint32_t constant(Id id) const { return static_cast<uint32_t>(m_.slots.at(slot(id)).bits); }
  uint32_t slot(Id id) const {
    const uint32_t s = ids_.at(id).slot;
    if (s == kNone) throw InternalError("judge: %" + std::to_string(id) + " is used before it is computed");
    return s;
  }

  void declaration(size_t at) {
    const uint32_t* w = &w_[at];
    const auto declare = [&](Type t) { types_[w[1]] = std::move(t); };
    switch (op(at)) {
      case spv::OpTypeVoid:
      case spv::OpTypeFunction: return declare({});
      case spv::OpTypeBool: return declare({Type::boolean, 1, 1, 0, 0, {}, {}});
      case spv::OpTypeInt: return declare({Type::integer, w[2], 1, 0, 0, {}, {}});
      case spv::OpTypeFloat: return declare({Type::floating, w[2], 1, 0, 0, {}, {}});
      case spv::OpTypeVector: return declare({Type::vector, 0, w[3], w[2], 0, {}, {}});
      case spv::OpTypeArray: return declare({Type::array, 0, constant(w[3]), w[2], 0, {}, {}, strides_[w[1]]});
      case spv::OpTypeRuntimeArray: return declare({Type::array, 0, 0, w[2], 0, {}, {}, strides_[w[1]]});
      case spv::OpTypeStruct: {
        Type t{Type::structure, 0, 0, 0, 0, {w + 2, w + length(at)}, {}};
        for (uint32_t i = 0; i < t.members.size(); ++i) t.offsets.push_back(offsets_[{w[1], i}]);
        return declare(std::move(t));
      }
      case spv::OpTypePointer: return declare({Type::pointer, 64, 1, w[3], w[2], {}, {}});
      case spv::OpTypeForwardPointer: return;
      case spv::OpConstantTrue:
      case spv::OpConstantFalse:
      case spv::OpConstant:
      case spv::OpConstantNull:
      case spv::OpUndef: {
        ids_.at(w[2]).type = w[1];
        const uint32_t n = components(w[1]), first = make_slots(w[2], n), bits = width(w[1]);
        if (op(at) == spv::OpConstantTrue) m_.slots[first].bits = 1;
        // narrow ones are sign-extended in the word
        if (op(at) == spv::OpConstant)
          m_.slots[first].bits = (bits == 64 ? uint64_t{w[4]} << 32 | w[3] : w[3]) & ~uint64_t{0} >> (64 - bits);
        if (op(at) == spv::OpUndef)
          for (uint32_t i = 0; i < n; ++i) m_.slots[first + i].poison = ~uint64_t{0} >> (64 - bits);
        return;
      }
      case spv::OpConstantComposite: {
        ids_.at(w[2]).type = w[1];
        uint32_t next = make_slots(w[2], components(w[1]));
        for (size_t i = 3; i < length(at); ++i)
          for (uint32_t c = 0; c < components(ids_[w[i]].type); ++c) m_.slots[next++] = m_.slots[slot(w[i]) + c];
        return;
      }
      case spv::OpVariable: {
        ids_.at(w[2]).type = w[1];
        const Id pointee = type(w[1]).element;
        if (w[3] == spv::StorageClassWorkgroup) {
          const Type& t = type(pointee);
          if (m_.shared_bytes || t.kind != Type::array || width(t.element) != 32 || components(t.element) != 1)
            unknown(at);
          m_.shared_bytes = uint64_t{t.count} * 4;
          make_slots(w[2], 1);
        } else if (w[3] == spv::StorageClassPushConstant) {
          known_[w[2]] = {w[3], 0, kNone, pointee};
          const Type& t = type(pointee);
          for (size_t i = 0; i < t.members.size(); ++i)
            m_.push_bytes =
                std::max<uint64_t>(m_.push_bytes, t.offsets[i] + components(t.members[i]) * width(t.members[i]) / 8);
        } else if (w[3] == spv::StorageClassInput) {
          known_[w[2]] = {w[3], 0, built_ins_.count(w[2]) ? built_ins_[w[2]] : kNone, pointee};
        } else {
          unknown(at);
        }
        return;
      }
      case spv::OpDecorate:
        if (w[2] == spv::DecorationBuiltIn) built_ins_[w[1]] = w[3];
        if (w[2] == spv::DecorationArrayStride) strides_[w[1]] = w[3];
        if (w[2] == spv::DecorationNoContraction) ids_.at(w[1]).no_contraction = true;
        return;
      case spv::OpMemberDecorate:
        if (w[3] == spv::DecorationOffset) offsets_[{w[1], w[2]}] = w[4];
        return;
      case spv::OpExecutionMode:
        if (w[2] == spv::ExecutionModeLocalSize) std::copy(w + 3, w + 6, m_.local_size);
        if (w[2] == spv::ExecutionModeRoundingModeRTE) m_.rounds_even[w[3] == 16 ? 0 : w[3] == 32 ? 1 : 2] = true;
        return;
      case spv::OpExtInstImport:
        if (string(at + 2) == "GLSL.std.450") glsl_ = w[1];
        return;
      case spv::OpString: strings_[w[1]] = string(at + 2); return;
      case spv::OpExtInst:  // debug info
        types_.try_emplace(w[1]);
        return;
      case spv::OpMemoryModel:
      case spv::OpCapability:
      case spv::OpExtension:
      case spv::OpEntryPoint:
      case spv::OpName:
      case spv::OpMemberName:
      case spv::OpSource:
      case spv::OpSourceExtension:
      case spv::OpModuleProcessed:
      case spv::OpLine:
      case spv::OpNoLine: return;
      default: unknown(at);
    }
  }

  // -- blocks and loops

  size_t at_label(Id label) const { return labels_.at(label); }

  void blocks(size_t at) {
    bool ended = false;
    for (; at < w_.size(); at += length(at)) {
      const uint32_t* w = &w_[at];
      // one function is all
      if (ended || op(at) == spv::OpFunctionParameter || op(at) == spv::OpFunctionCall) unknown(at);
      bool has_result = false, has_type = false;
      spv::HasResultAndType(op(at), &has_result, &has_type);
      if (has_result && has_type && op(at) != spv::OpFunction) {
        ids_.at(w[2]).type = w[1];
      }
      switch (op(at)) {
        case spv::OpLabel:
          labels_[w[1]] = blocks_.size();
          blocks_.push_back({});
          blocks_.back().label = w[1];
          blocks_.back().begin = at + length(at);
          break;
        case spv::OpPhi:
          blocks_.back().phis.push_back(at);
          make_slots(w[2], components(w[1]));
          break;
        case spv::OpLoopMerge: blocks_.back().merge = w[1], blocks_.back().next = w[2]; break;
        case spv::OpSelectionMerge: blocks_.back().merge = w[1]; break;
        case spv::OpBranch: ends(at, {w[1]}); break;
        case spv::OpBranchConditional: ends(at, {w[2], w[3]}); break;
        case spv::OpSwitch: {
          if (width(ids_.at(w[1]).type) != 32) unknown(at);
          std::vector<Id> to{w[2]};
          for (size_t i = 4; i < length(at); i += 2) to.push_back(w[i]);
          ends(at, std::move(to));
          break;
        }
        case spv::OpReturn:
        case spv::OpUnreachable: ends(at, {}); break;
        case spv::OpFunctionEnd: ended = true; break;
        default: break;
      }
    }
  }
  void ends(size_t at, std::vector<Id> to) {
    blocks_.back().terminator = at;
    blocks_.back().to = std::move(to);
  }

  // A loop is what its header reaches without passing the block behind it.
  void find_loops() {
    std::vector<std::vector<bool>> inside;
    for (Block& b : blocks_)
      if (b.next) {
        b.loop = static_cast<uint32_t>(m_.loops.size());
        m_.loops.push_back({});
      }
    std::vector<size_t> stack;
    for (size_t h = 0; h < blocks_.size(); ++h) {
      if (!blocks_[h].next) continue;
      std::vector<bool> seen(blocks_.size(), false);
      const size_t behind = at_label(blocks_[h].merge);
      stack.assign(1, h);
      seen[h] = true;
      while (!stack.empty()) {
        const size_t b = stack.back();
        stack.pop_back();
        blocks_[b].around.push_back(blocks_[h].loop);
        for (const Id to : blocks_[b].to) {
          const size_t t = at_label(to);
          if (t != behind && !seen[t]) seen[t] = true, stack.push_back(t);
        }
      }
    }
    // Headers come before what they hold, in the order of blocks: so the loops around a block are listed from the
    // outermost in.
    for (const Block& b : blocks_)
      if (b.loop != kNone) {
        m_.loops[b.loop].around.assign(b.around.begin(), std::find(b.around.begin(), b.around.end(), b.loop));
        if (!m_.loops[b.loop].around.empty()) m_.loops[b.loop].parent = m_.loops[b.loop].around.back();
      }
  }

  uint32_t edge(uint32_t from, Id to) {
    edges_.push_back({from, to});
    m_.edges.push_back({});
    return static_cast<uint32_t>(m_.edges.size() - 1);
  }

  void finish_edge(uint32_t i) {
    Edge& e = m_.edges[i];
    const Block &from = blocks_[edges_[i].first], &to = blocks_[at_label(edges_[i].second)];
    e.target = to.target;
    e.first = static_cast<uint32_t>(m_.moves.size());
    for (const size_t phi : to.phis) {
      const uint32_t* w = &w_[phi];
      bool found = false;
      for (size_t p = 3; p + 1 < length(phi); p += 2)
        if (w[p + 1] == from.label) {
          found = true;
          for (uint32_t c = 0; c < components(w[1]); ++c) m_.moves.push_back({slot(w[2]) + c, slot(w[p]) + c});
          break;
        }
      if (!found) throw InternalError("judge: a phi without a value for block %" + std::to_string(from.label));
    }
    e.count = static_cast<uint32_t>(m_.moves.size()) - e.first;
    for (uint32_t a = 0; a < e.count && !e.clash; ++a)
      for (uint32_t b = a + 1; b < e.count && !e.clash; ++b)
        e.clash = m_.moves[e.first + b].second == m_.moves[e.first + a].first;
    const auto in = [](const Block& b, uint32_t loop) {
      return std::find(b.around.begin(), b.around.end(), loop) != b.around.end();
    };
    if (to.loop != kNone) e.enters = to.loop, e.back = in(from, to.loop);
    for (const uint32_t l : from.around)
      if (!in(to, l)) {
        if (e.leaves != kNone) throw InternalError("judge: one branch leaves two loops");
        e.leaves = l;
      }
  }

  // -- instructions

  Instr& add(Code code, size_t at) {
    Instr i;
    i.code = code;
    i.word = static_cast<uint32_t>(at);
    m_.code.push_back(i);
    return m_.code.back();
  }
  uint32_t loops_around(const Block& b) {
    m_.loops_around.push_back(b.around);
    return static_cast<uint32_t>(m_.loops_around.size() - 1);
  }
  void alias(Id id, uint32_t to) { ids_.at(id).slot = to; }

  /// One instruction for each component.
  void each(size_t at, Code code, std::vector<Id> operands, uint32_t aux = 0,
            std::optional<uint32_t> operand_width = {}) {
    const Id id = w_[at + 2];
    const uint32_t n = components(w_[at + 1]), dst = make_slots(id, n),
                   wide = operand_width ? *operand_width : width(ids_.at(operands.back()).type);
    for (uint32_t c = 0; c < n; ++c) {
      Instr& i = add(code, at);
      i.width = static_cast<uint8_t>(wide);
      i.n = static_cast<uint8_t>(width(w_[at + 1]));
      i.dst = dst + c;
      uint32_t* in[] = {&i.a, &i.b, &i.c};
      for (size_t o = 0; o < operands.size(); ++o)
        *in[o] = slot(operands[o]) + (components(ids_.at(operands[o]).type) == n ? c : 0);
      i.aux = aux;
    }
  }

  void emit_block(uint32_t index) {
    Block& b = blocks_[index];
    b.target = static_cast<uint32_t>(m_.code.size());
    for (size_t at = b.begin; at <= b.terminator; at += length(at)) emit(index, at);
  }

  void compare(size_t at, uint32_t when) { each(at, Code::fcompare, {w_[at + 3], w_[at + 4]}, when); }
  void arithmetic(size_t at, Code code) {
    if (!ids_.at(w_[at + 2]).no_contraction)
      m_.problems.push_back("may be contracted: `" + instruction_text(w_, at) + "`");
    each(at, code, {w_[at + 3], w_[at + 4]});
  }

  void emit(uint32_t index, size_t at);
  void composite(size_t at);
  void access(size_t at);
  void chain(size_t at);
  void atomic(size_t at);
  void subgroup(uint32_t index, size_t at);
  void glsl(size_t at);

  const std::vector<uint32_t>& w_;
  Module m_;
  std::vector<Info> ids_;
  std::map<Id, Type> types_;
  std::map<Id, Known> known_;
  std::map<Id, uint32_t> built_ins_, strides_;
  std::map<std::pair<Id, uint32_t>, uint32_t> offsets_;
  std::map<Id, std::string> strings_;
  std::map<Id, size_t> labels_;
  std::vector<Block> blocks_;
  std::vector<std::pair<uint32_t, Id>> edges_;  // block, label
  std::vector<std::pair<size_t, Id>> merges_;   // branches whose block to meet in is not known yet
  Id glsl_ = 0;
};

void Decoder::emit(uint32_t index, size_t at) {
  const uint32_t* w = &w_[at];
  const auto two = [&](Code c) { each(at, c, {w[3], w[4]}); };
  const auto swapped = [&](Code c) { each(at, c, {w[4], w[3]}); };
  // Where invocations that took either side of a branch meet again.
  const auto meets = [&] {
    const Block& b = blocks_[index];
    Id label = b.merge;
    if (!label && !b.around.empty())
      for (const Block& h : blocks_)
        if (h.loop == b.around.back()) label = h.merge;
    merges_.push_back({m_.code.size() - 1, label});
  };
  switch (op(at)) {
    case spv::OpLabel:
    case spv::OpPhi:
    case spv::OpSelectionMerge:
    case spv::OpLoopMerge:
    case spv::OpNoLine:
    case spv::OpNop: return;
    case spv::OpLine: m_.lines.push_back({static_cast<uint32_t>(m_.code.size()), strings_[w[1]], w[2]}); return;
    case spv::OpIAdd: return two(Code::add);
    case spv::OpISub: return two(Code::sub);
    case spv::OpIMul: return two(Code::mul);
    case spv::OpUDiv: return two(Code::udiv);
    case spv::OpSDiv: return two(Code::sdiv);
    case spv::OpUMod: return two(Code::umod);
    case spv::OpSRem: return two(Code::srem);
    case spv::OpSMod: return two(Code::smod);
    case spv::OpBitwiseAnd:
    case spv::OpLogicalAnd: return two(Code::and_);
    case spv::OpBitwiseOr:
    case spv::OpLogicalOr: return two(Code::or_);
    case spv::OpBitwiseXor: return two(Code::xor_);
    case spv::OpNot:
    case spv::OpLogicalNot: return each(at, Code::not_, {w[3]});
    case spv::OpSNegate: return each(at, Code::neg, {w[3]});
    // A shift is as wide as what is shifted.
    case spv::OpShiftLeftLogical: return each(at, Code::shl, {w[3], w[4]}, 0, width(w[1]));
    case spv::OpShiftRightLogical: return each(at, Code::shr, {w[3], w[4]}, 0, width(w[1]));
    case spv::OpShiftRightArithmetic: return each(at, Code::sar, {w[3], w[4]}, 0, width(w[1]));
    case spv::OpIEqual:
    case spv::OpLogicalEqual: return two(Code::eq);
    case spv::OpINotEqual:
    case spv::OpLogicalNotEqual: return two(Code::ne);
    case spv::OpULessThan: return two(Code::ult);
    case spv::OpULessThanEqual: return two(Code::ule);
    case spv::OpUGreaterThan: return swapped(Code::ult);
    case spv::OpUGreaterThanEqual: return swapped(Code::ule);
    case spv::OpSLessThan: return two(Code::slt);
    case spv::OpSLessThanEqual: return two(Code::sle);
    case spv::OpSGreaterThan: return swapped(Code::slt);
    case spv::OpSGreaterThanEqual: return swapped(Code::sle);
    case spv::OpUMulExtended:
    case spv::OpSMulExtended:
    case spv::OpIAddCarry:
    case spv::OpISubBorrow: {
      const Code c = op(at) == spv::OpUMulExtended   ? Code::umul_extended
                     : op(at) == spv::OpSMulExtended ? Code::smul_extended
                     : op(at) == spv::OpIAddCarry    ? Code::add_carry
                                                     : Code::sub_borrow;
      if (components(w[1]) != 2) unknown(at);
      const uint32_t dst = make_slots(w[2], 2);
      Instr& i = add(c, at);
      i.width = static_cast<uint8_t>(width(ids_.at(w[3]).type)), i.dst = dst, i.a = slot(w[3]), i.b = slot(w[4]);
      return;
    }
    case spv::OpBitFieldSExtract: return each(at, Code::sextract, {w[3], w[4], w[5]}, 0, width(w[1]));
    case spv::OpBitFieldUExtract: return each(at, Code::uextract, {w[3], w[4], w[5]}, 0, width(w[1]));
    // of four elements of 8 bits each, packed
    case spv::OpSDot:
    case spv::OpUDot:
    case spv::OpSUDot:
      if (length(at) != 6 || w[5] != spv::PackedVectorFormatPackedVectorFormat4x8Bit || width(w[1]) != 32) unknown(at);
      return two(op(at) == spv::OpSDot ? Code::sdot : op(at) == spv::OpUDot ? Code::udot : Code::sudot);
    case spv::OpBitCount: return each(at, Code::bit_count, {w[3]});
    case spv::OpBitReverse: return each(at, Code::bit_reverse, {w[3]});
    case spv::OpUConvert: return each(at, Code::uconvert, {w[3]});
    case spv::OpSConvert: return each(at, Code::sconvert, {w[3]});
    case spv::OpFAdd: return arithmetic(at, Code::fadd);
    case spv::OpFSub: return arithmetic(at, Code::fsub);
    case spv::OpFMul: return arithmetic(at, Code::fmul);
    case spv::OpFDiv: return arithmetic(at, Code::fdiv);
    case spv::OpFNegate: return each(at, Code::fneg, {w[3]});
    case spv::OpFOrdEqual: return compare(at, kEqual);
    case spv::OpFOrdNotEqual: return compare(at, kLess | kGreater);
    case spv::OpFOrdLessThan: return compare(at, kLess);
    case spv::OpFOrdLessThanEqual: return compare(at, kLess | kEqual);
    case spv::OpFOrdGreaterThan: return compare(at, kGreater);
    case spv::OpFOrdGreaterThanEqual: return compare(at, kGreater | kEqual);
    case spv::OpFUnordEqual: return compare(at, kEqual | kUnordered);
    case spv::OpFUnordNotEqual: return compare(at, kLess | kGreater | kUnordered);
    case spv::OpFUnordLessThan: return compare(at, kLess | kUnordered);
    case spv::OpFUnordLessThanEqual: return compare(at, kLess | kEqual | kUnordered);
    case spv::OpFUnordGreaterThan: return compare(at, kGreater | kUnordered);
    case spv::OpFUnordGreaterThanEqual: return compare(at, kGreater | kEqual | kUnordered);
    case spv::OpIsNan: return each(at, Code::is_nan, {w[3]});
    case spv::OpIsInf: return each(at, Code::is_inf, {w[3]});
    case spv::OpFConvert: return each(at, Code::fconvert, {w[3]});
    case spv::OpConvertFToU: return each(at, Code::f_to_u, {w[3]});
    case spv::OpConvertFToS: return each(at, Code::f_to_s, {w[3]});
    case spv::OpConvertUToF: return each(at, Code::u_to_f, {w[3]});
    case spv::OpConvertSToF: return each(at, Code::s_to_f, {w[3]});
    case spv::OpSelect: return each(at, Code::select, {w[3], w[4], w[5]});
    case spv::OpCompositeExtract:
    case spv::OpCompositeConstruct:
    case spv::OpCompositeInsert:
    case spv::OpVectorShuffle: return composite(at);
    case spv::OpCopyObject:
      if (known_.count(w[3])) known_[w[2]] = known_[w[3]];
      else alias(w[2], slot(w[3]));
      return;
    case spv::OpConvertUToPtr:
    case spv::OpConvertPtrToU:
    case spv::OpBitcast: {
      const uint32_t n = components(w[1]), wide = width(w[1]), m = components(ids_.at(w[3]).type),
                     from = width(ids_.at(w[3]).type);
      if (n * wide != m * from) unknown(at);
      if (n == m) return alias(w[2], slot(w[3]));
      const uint32_t dst = make_slots(w[2], n);
      Instr& i = add(Code::bitcast, at);
      i.dst = dst, i.a = slot(w[3]), i.width = static_cast<uint8_t>(from), i.n = static_cast<uint8_t>(m), i.b = wide,
      i.c = n;
      return;
    }
    case spv::OpUndef: {
      const uint32_t n = components(w[1]), first = make_slots(w[2], n);
      for (uint32_t c = 0; c < n; ++c) m_.slots[first + c].poison = ~uint64_t{0} >> (64 - width(w[1]));
      return;
    }
    case spv::OpAccessChain:
    case spv::OpInBoundsAccessChain: return chain(at);
    case spv::OpLoad:
    case spv::OpStore: return access(at);
    case spv::OpAtomicLoad:
    case spv::OpAtomicStore:
    case spv::OpAtomicExchange:
    case spv::OpAtomicCompareExchange:
    case spv::OpAtomicIAdd:
    case spv::OpAtomicISub:
    case spv::OpAtomicIIncrement:
    case spv::OpAtomicSMin:
    case spv::OpAtomicUMin:
    case spv::OpAtomicSMax:
    case spv::OpAtomicUMax:
    case spv::OpAtomicAnd:
    case spv::OpAtomicOr:
    case spv::OpAtomicXor: return atomic(at);
    case spv::OpControlBarrier: {
      const uint32_t around = loops_around(blocks_[index]);
      Instr& i = add(Code::barrier, at);
      i.a = constant(w[1]), i.b = constant(w[2]), i.c = constant(w[3]), i.aux = around;
      m_.waits = true;
      return;
    }
    case spv::OpBranch: {
      const uint32_t e = edge(index, w[1]);
      add(Code::jump, at).aux = e;
      return;
    }
    case spv::OpBranchConditional: {
      const uint32_t yes = edge(index, w[2]), no = edge(index, w[3]);
      Instr& i = add(Code::branch, at);
      i.a = slot(w[1]), i.b = yes, i.c = no;
      return meets();
    }
    case spv::OpSwitch: {
      Choice c;
      c.otherwise = edge(index, w[2]);
      for (size_t k = 3; k + 1 < length(at); k += 2) c.cases.push_back({w[k], edge(index, w[k + 1])});
      m_.choices.push_back(std::move(c));
      Instr& i = add(Code::choose, at);
      i.a = slot(w[1]), i.aux = static_cast<uint32_t>(m_.choices.size() - 1);
      return meets();
    }
    case spv::OpReturn: add(Code::end, at); return;
    case spv::OpUnreachable: add(Code::unreachable, at); return;
    case spv::OpExtInst: return glsl(at);
    default:
      if (op(at) >= spv::OpGroupNonUniformElect && op(at) <= spv::OpGroupNonUniformQuadSwap) return subgroup(index, at);
      unknown(at);
  }
}

void Decoder::composite(size_t at) {
  const uint32_t* w = &w_[at];
  // The first slot of a part, and how many it has.
  const auto part = [&](Id value, size_t first, size_t last) {
    uint32_t offset = 0;
    Id t = ids_.at(value).type;
    for (size_t i = first; i < last; ++i) {
      const Type& x = type(t);
      if (x.kind == Type::structure) {
        for (uint32_t m = 0; m < w[i]; ++m) offset += components(x.members[m]);
        t = x.members.at(w[i]);
      } else {
        t = x.element;
        offset += w[i] * components(t);
      }
    }
    return offset;
  };
  if (op(at) == spv::OpCompositeExtract) return alias(w[2], slot(w[3]) + part(w[3], 4, length(at)));
  const uint32_t n = components(w[1]), dst = make_slots(w[2], n);
  const auto move = [&](uint32_t to, uint32_t from) {
    Instr& i = add(Code::move, at);
    i.dst = to, i.a = from;
  };
  if (op(at) == spv::OpCompositeConstruct) {
    uint32_t next = dst;
    for (size_t i = 3; i < length(at); ++i)
      for (uint32_t c = 0; c < components(ids_.at(w[i]).type); ++c) move(next++, slot(w[i]) + c);
  } else if (op(at) == spv::OpCompositeInsert) {
    const uint32_t first = part(w[4], 5, length(at)), count = components(ids_.at(w[3]).type);
    for (uint32_t c = 0; c < n; ++c)
      move(dst + c, c >= first && c < first + count ? slot(w[3]) + c - first : slot(w[4]) + c);
  } else {
    const uint32_t m = components(ids_.at(w[3]).type);
    for (uint32_t c = 0; c < n; ++c) {
      const uint32_t from = w[5 + c];
      if (from != kNone) move(dst + c, from < m ? slot(w[3]) + from : slot(w[4]) + from - m);
    }
  }
}

void Decoder::chain(size_t at) {
  const uint32_t* w = &w_[at];
  if (const auto k = known_.find(w[3]); k != known_.end()) {
    Known to = k->second;
    for (size_t i = 4; i < length(at); ++i) {
      const Type& t = type(to.type);
      const uint32_t n = constant(w[i]);
      if (t.kind == Type::structure) to.offset += t.offsets.at(n), to.type = t.members.at(n);
      else to.type = t.element, to.offset += n * width(t.element) / 8;
    }
    known_[w[2]] = to;
    return;
  }
  Id t = type_of(w[3]).element;
  uint32_t from = slot(w[3]);
  const bool shared = type_of(w[3]).storage == spv::StorageClassWorkgroup;
  if (!shared && type_of(w[3]).storage != spv::StorageClassPhysicalStorageBuffer) unknown(at);
  for (size_t i = 4; i < length(at); ++i) {
    const Type& x = type(t);
    const auto to = static_cast<uint32_t>(m_.slots.size());
    m_.slots.push_back({});
    uint32_t index = slot(w[i]), stride = 1, wide = width(ids_.at(w[i]).type);
    if (x.kind == Type::structure) {
      m_.slots.push_back({x.offsets.at(constant(w[i])), 0});
      index = static_cast<uint32_t>(m_.slots.size() - 1), wide = 64;
      t = x.members.at(constant(w[i]));
    } else {
      t = x.element;
      stride = shared || x.kind == Type::vector ? width(t) / 8 : x.stride;
    }
    Instr& c = add(Code::chain, at);
    c.dst = to, c.a = from, c.b = index, c.aux = stride, c.width = static_cast<uint8_t>(wide);
    from = to;
  }
  alias(w[2], from);
}

void Decoder::access(size_t at) {
  const uint32_t* w = &w_[at];
  const bool loads = op(at) == spv::OpLoad;
  const Id pointer = loads ? w[3] : w[1], t = loads ? w[1] : ids_.at(w[2]).type;
  const uint32_t n = components(t);
  if (const auto k = known_.find(pointer); k != known_.end()) {
    if (!loads || type(t).kind == Type::structure) unknown(at);
    const uint32_t dst = make_slots(w[2], n);
    Instr& i = add(k->second.storage == spv::StorageClassInput ? Code::input : Code::load_push, at);
    i.dst = dst, i.n = static_cast<uint8_t>(n), i.width = static_cast<uint8_t>(width(t));
    if (i.code == Code::input) i.aux = k->second.built_in, i.b = k->second.offset / 4;
    else i.aux = k->second.offset;
    return;
  }
  if (type(t).kind == Type::structure || type(t).kind == Type::array || type(t).kind == Type::boolean) unknown(at);
  const bool shared = type_of(pointer).storage == spv::StorageClassWorkgroup;
  const uint32_t dst = loads ? make_slots(w[2], n) : kNone;
  Instr& i = add(shared ? (loads ? Code::load_shared : Code::store_shared) : loads ? Code::load : Code::store, at);
  i.a = slot(pointer), i.dst = dst, i.n = static_cast<uint8_t>(n), i.width = static_cast<uint8_t>(width(t));
  if (!loads) i.b = slot(w[2]);
  const size_t mask_at = loads ? 4 : 3;
  const uint32_t mask = length(at) > mask_at ? w[mask_at] : 0;
  if (mask & ~static_cast<uint32_t>(spv::MemoryAccessAlignedMask | spv::MemoryAccessNonPrivatePointerMask)) unknown(at);
  if (mask & spv::MemoryAccessAlignedMask) i.aux = w[mask_at + 1];
  if (mask & spv::MemoryAccessNonPrivatePointerMask) i.flags |= kNonPrivate;
}

void Decoder::atomic(size_t at) {
  const uint32_t* w = &w_[at];
  m_.has_atomics = true;
  const bool stores = op(at) == spv::OpAtomicStore;
  const uint32_t* o = stores ? w + 1 : w + 3;  // pointer, scope, semantics
  const bool shared = type_of(o[0]).storage == spv::StorageClassWorkgroup;
  const uint32_t scope = constant(o[1]);
  if (scope != spv::ScopeQueueFamily && scope != spv::ScopeDevice && !(shared && scope == spv::ScopeWorkgroup))
    m_.problems.push_back("an atomic whose scope is narrower than who may take part: `" + instruction_text(w_, at) +
                          "`");
  const uint32_t dst = stores ? kNone : make_slots(w[2], 1);
  Instr& i = add(Code::atomic, at);
  i.dst = dst, i.a = slot(o[0]), i.aux = static_cast<uint32_t>(op(at)), i.flags = shared ? kShared : 0;
  i.width = static_cast<uint8_t>(width(stores ? ids_.at(w[4]).type : w[1]));
  if (op(at) == spv::OpAtomicCompareExchange) i.b = slot(o[4]), i.c = slot(o[5]);
  else if (op(at) != spv::OpAtomicLoad && op(at) != spv::OpAtomicIIncrement) i.b = slot(o[3]);
}

void Decoder::subgroup(uint32_t index, size_t at) {
  const uint32_t* w = &w_[at];
  m_.waits = true;
  if (constant(w[3]) != spv::ScopeSubgroup) unknown(at);
  const uint32_t n = components(w[1]), around = loops_around(blocks_[index]), dst = make_slots(w[2], n);
  const bool ballot = op(at) == spv::OpGroupNonUniformBallot;
  if (n != 1 && !ballot) unknown(at);
  Instr& i = add(Code::subgroup, at);
  i.dst = dst, i.aux = static_cast<uint32_t>(op(at)), i.b = around;
  switch (op(at)) {
    case spv::OpGroupNonUniformElect: i.width = 1; return;
    case spv::OpGroupNonUniformAll:
    case spv::OpGroupNonUniformAny:
    case spv::OpGroupNonUniformAllEqual:
    case spv::OpGroupNonUniformBroadcastFirst:
    case spv::OpGroupNonUniformBallot: i.a = slot(w[4]); break;
    case spv::OpGroupNonUniformBroadcast:
    case spv::OpGroupNonUniformShuffle:
    case spv::OpGroupNonUniformShuffleXor:
    case spv::OpGroupNonUniformShuffleUp:
    case spv::OpGroupNonUniformShuffleDown: i.a = slot(w[4]), i.c = slot(w[5]); break;
    default:
      if (op(at) < spv::OpGroupNonUniformIAdd || op(at) > spv::OpGroupNonUniformLogicalXor ||
          w[4] > spv::GroupOperationExclusiveScan)
        unknown(at);
      i.n = static_cast<uint8_t>(w[4]), i.a = slot(w[5]);
  }
  i.width = static_cast<uint8_t>(width(
      ids_.at(op(at) == spv::OpGroupNonUniformBallot || i.c != kNone || op(at) <= spv::OpGroupNonUniformBroadcastFirst
                  ? w[4]
                  : w[5])
          .type));
}

void Decoder::glsl(size_t at) {
  const uint32_t* w = &w_[at];
  if (w[3] != glsl_) return;  // debug info
  switch (w[4]) {
    case GLSLstd450Round:
    case GLSLstd450RoundEven:
    case GLSLstd450Trunc:
    case GLSLstd450FAbs:
    case GLSLstd450SAbs:
    case GLSLstd450FSign:
    case GLSLstd450SSign:
    case GLSLstd450Floor:
    case GLSLstd450Ceil:
    case GLSLstd450Fract:
    case GLSLstd450Exp2:
    case GLSLstd450Log2:
    case GLSLstd450Sqrt:
    case GLSLstd450InverseSqrt:
    case GLSLstd450FindILsb:
    case GLSLstd450FindSMsb:
    case GLSLstd450FindUMsb: return each(at, Code::glsl, {w[5]}, w[4]);
    case GLSLstd450FMin:
    case GLSLstd450UMin:
    case GLSLstd450SMin:
    case GLSLstd450FMax:
    case GLSLstd450UMax:
    case GLSLstd450SMax:
    case GLSLstd450NMin:
    case GLSLstd450NMax: return each(at, Code::glsl, {w[5], w[6]}, w[4]);
    case GLSLstd450FClamp:
    case GLSLstd450UClamp:
    case GLSLstd450SClamp:
    case GLSLstd450NClamp:
    case GLSLstd450Fma: return each(at, Code::glsl, {w[5], w[6], w[7]}, w[4]);
    default: unknown(at);
  }
}
}  // namespace

Module decode(const std::vector<uint32_t>& spirv) { return Decoder(spirv).run(); }

}  // namespace tessera::judge
