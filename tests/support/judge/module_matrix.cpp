// Instructions on matrices of subgroups.
#include "tests/support/judge/decoder.h"

namespace tessera::judge {

MatrixOp::Part Decoder::matrix_part(Id type_id, uint32_t of_slot) const {
  const Type &t = type(type_id), &e = type(t.element);
  return {of_slot,
          t.members.at(0),
          t.members.at(1),
          e.width,
          e.kind == Type::floating,
          e.kind == Type::integer && e.members.at(0) == 1,
          e.kind == Type::floating && !e.members.empty() ? e.members.at(0) : kNone};
}

void Decoder::matrix(uint32_t index, size_t at, uint32_t code) {
  const uint32_t* w = &w_[at];
  m_.waits = true;
  const auto part = [&](Id value, uint32_t use) {
    const Id t = ids_.at(value).type;
    if (type(t).kind != Type::matrix || type(t).members.at(2) != use) unknown(at);
    return matrix_part(t, slot(value));
  };
  MatrixOp op;
  const auto memory = [&](Id pointer, size_t layout_at) {
    const Type& p = type_of(pointer);
    if (p.storage != spv::StorageClassWorkgroup || length(at) != layout_at + 3) unknown(at);
    op.pointer = slot(pointer), op.unit = width(p.element) / 8 * components(p.element);
    op.by_columns = constant(w[layout_at]) == 1;
    op.stride = slot(w[layout_at + 1]);
    if (w[layout_at + 2] != spv::MemoryAccessNonPrivatePointerMask) unknown(at);
  };
  if (code == kMatrixStore) {
    memory(w[1], 3);
    op.a = part(w[2], 2);
  } else {
    if (code == kMatrixLoad) {
      memory(w[3], 4);
    } else if (code == kMatrixMultiplyAdd) {
      op.a = part(w[3], 0), op.b = part(w[4], 1), op.c = part(w[5], 2);
      const uint32_t signs = length(at) > 6 ? w[6] : 0;
      if (signs & 16) unknown(at);
      op.a.is_signed = signs & 1, op.b.is_signed = signs & 2, op.c.is_signed = signs & 4;
    } else {
      op.a.slot = slot(w[3]);
    }
    op.result = matrix_part(w[1], make_slots(w[2], components(w[1])));
  }
  const uint32_t around = loops_around(blocks_[index]);
  Instr& i = add(Code::subgroup, at);
  i.aux = code, i.b = around, i.c = static_cast<uint32_t>(m_.matrices.size()), i.flags = kNonPrivate;
  m_.matrices.push_back(op);
}

}  // namespace tessera::judge
