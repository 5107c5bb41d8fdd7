#include "tests/support/judge/module.h"

#include <spirv/unified1/GLSL.std.450.h>

#include "tests/support/judge/decoder.h"

namespace tessera::judge {

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
  const auto code = static_cast<uint32_t>(op(at));
  if (code == kMatrixLoad || code == kMatrixStore || code == kMatrixMultiplyAdd) return matrix(index, at, code);
  if (op(at) == spv::OpCompositeConstruct && type(w[1]).kind == Type::matrix) return matrix(index, at, kMatrixFill);
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
      stride = (shared && !x.stride) || x.kind == Type::vector ? width(t) / 8 : x.stride;
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
Module decode(const std::vector<uint32_t>& spirv, uint32_t subgroup_size) {
  return Decoder(spirv, subgroup_size).run();
}

}  // namespace tessera::judge
