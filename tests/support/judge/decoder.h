// The decoder of a SPIR-V module: types, constants, blocks and loops; module.cpp and module_matrix.cpp have the
// instructions. Private to the judge.
#pragma once
#define SPV_ENABLE_UTILITY_CODE
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <spirv/unified1/spirv.hpp>

#include "engine/base/error.h"
#include "tests/support/judge/module.h"

namespace tessera::judge {
using Id = uint32_t;

struct Type {
  enum Kind : uint8_t { none, boolean, integer, floating, vector, array, structure, pointer, matrix } kind = none;
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
  Decoder(const std::vector<uint32_t>& spirv, uint32_t subgroup_size) : w_(spirv), subgroup_(subgroup_size) {
    m_.words = spirv;
  }

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
      case Type::matrix:
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
      case Type::matrix:
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
    if (static_cast<uint32_t>(op(at)) == kTypeMatrix) {
      if (constant(w[3]) != spv::ScopeSubgroup) unknown(at);
      const uint32_t rows = constant(w[4]), cols = constant(w[5]);
      return declare(
          {Type::matrix, 0, (rows * cols + subgroup_ - 1) / subgroup_, w[2], 0, {rows, cols, constant(w[6])}, {}});
    }
    switch (op(at)) {
      case spv::OpTypeVoid:
      case spv::OpTypeFunction: return declare({});
      case spv::OpTypeBool: return declare({Type::boolean, 1, 1, 0, 0, {}, {}});
      case spv::OpTypeInt: return declare({Type::integer, w[2], 1, 0, 0, {w[3]}, {}});
      case spv::OpTypeFloat: {
        if (length(at) > 3 && w[3] != kBfloat16 && w[3] != kFloat8E4M3 && w[3] != kFloat8E5M2) unknown(at);
        std::vector<uint32_t> encoding;
        if (length(at) > 3) encoding.push_back(w[3]);
        return declare({Type::floating, w[2], 1, 0, 0, std::move(encoding), {}});
      }
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
          shared_memory(at, pointee);
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
        if (w[2] == spv::DecorationAliased) aliased_.insert(w[1]);
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

  // One array of words; or blocks of an array each, of words or vectors of them, which all lie in one place.
  void shared_memory(size_t at, Id pointee) {
    const bool block = type(pointee).kind == Type::structure, aliased = block && aliased_.count(w_[at + 2]) != 0;
    if (m_.shared_bytes && !(aliased && shared_is_aliased_)) unknown(at);
    shared_is_aliased_ = aliased;
    if (block && (type(pointee).members.size() != 1 || type(pointee).offsets.at(0) != 0)) unknown(at);
    const Type& t = block ? type(type(pointee).members[0]) : type(pointee);
    if (t.kind != Type::array || width(t.element) != 32) unknown(at);
    const uint32_t bytes = 4 * components(t.element);
    if (block ? t.stride != bytes : bytes != 4) unknown(at);
    m_.shared_bytes = std::max<uint64_t>(m_.shared_bytes, uint64_t{t.count} * bytes);
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
      const auto code = static_cast<uint32_t>(op(at));
      if (code == kMatrixLoad || code == kMatrixMultiplyAdd) has_result = has_type = true;
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
  MatrixOp::Part matrix_part(Id type_id, uint32_t slot) const;
  void matrix(uint32_t index, size_t at, uint32_t code);
  void glsl(size_t at);

  const std::vector<uint32_t>& w_;
  const uint32_t subgroup_;
  Module m_;
  std::vector<Info> ids_;
  std::map<Id, Type> types_;
  std::map<Id, Known> known_;
  std::map<Id, uint32_t> built_ins_, strides_;
  std::map<std::pair<Id, uint32_t>, uint32_t> offsets_;
  std::set<Id> aliased_;
  bool shared_is_aliased_ = false;  // all variables of shared memory are
  std::map<Id, std::string> strings_;
  std::map<Id, size_t> labels_;
  std::vector<Block> blocks_;
  std::vector<std::pair<uint32_t, Id>> edges_;  // block, label
  std::vector<std::pair<size_t, Id>> merges_;   // branches whose block to meet in is not known yet
  Id glsl_ = 0;
};

}  // namespace tessera::judge
