// debug_print and check: a record in the call's report (PrintReport in program/program.h). One invocation takes the
// room by an atomic addition, so parallel programs stay parallel; the host sorts the records. One invocation's records
// lie in the order in which it made them.
#include <algorithm>

#include "codegen/lower/emission.h"
#include "codegen/program/program.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Opcode;

namespace {
int64_t words_of(DType t) { return size_bytes(t) == 8 ? 2 : 1; }
}  // namespace

void PrintEmitter::emit(const ir::Op& o) {
  if (o.code == Opcode::debug_print) return record(o, 0);
  const Value holds = control_.condition(o.operands[0]);
  const PendingAccesses before = arena_.pending();
  b_.when(b_.op(Opcode::not_, {holds}), [&] { record(o, 1); });
  arena_.pending().merge(before);
}

// The record's place in the report, or -1. What is used may pass the capacity only by what invocations at once ask for,
// so it cannot wrap.
Value PrintEmitter::take_room(Value memory, Value size, bool check) {
  const auto u32 = [&](uint64_t v) { return b_.constant(DType::u32, static_cast<uint32_t>(v)); };
  const auto add = [&](int64_t word, Value v) { return b_.atomic(Opcode::add, memory, b_.i32(word), v, {}); };
  return arena_.broadcast_from_first(DType::i32, [&] {
    const Value capacity = b_.load(memory, b_.i32(PrintReport::kCapacity)), used = add(PrintReport::kUsed, u32(0));
    const Value start = b_.if_else(
        b_.op(Opcode::le, {used, capacity}), [&] { return Values{add(PrintReport::kUsed, size)}; },
        [&] { return Values{b_.op(Opcode::add, {capacity, u32(1)})}; })[0];
    const Value enough = b_.op(Opcode::le, {size, b_.op(Opcode::sub, {capacity, start})});
    const Value fits = b_.both(b_.op(Opcode::le, {start, capacity}), enough);
    return b_.if_else(
        fits, [&] { return Values{b_.convert(b_.op(Opcode::add, {start, u32(PrintReport::kRecords)}), DType::i32)}; },
        [&] {
          // the first that does not fit
          b_.when(b_.op(Opcode::le, {start, capacity}), [&] { b_.store(memory, b_.i32(PrintReport::kEnd), start); });
          add(PrintReport::kDropped, u32(1));
          if (check) add(PrintReport::kDroppedChecks, u32(1));
          const Value low = add(PrintReport::kDroppedWords, size);
          b_.when(b_.op(Opcode::lt, {b_.op(Opcode::add, {low, size}), low}),
                  [&] { add(PrintReport::kDroppedWords + 1, u32(1)); });
          return Values{b_.i32(-1)};
        })[0];
  });
}

// An element, in its words.
void PrintEmitter::put(Value memory, Value at, Value v) {
  const DType t = b_.dtype(v);
  if (size_bytes(t) == 8) {
    const Value bits = t == DType::u64 ? v : b_.op(Opcode::bitcast, {v}, DType::u64);
    b_.store(memory, at, b_.convert(bits, DType::u32));
    const Value high = b_.convert(b_.op(Opcode::shift_right_logical, {bits, b_.constant(DType::u64, 32)}), DType::u32);
    b_.store(memory, b_.add(at, b_.i32(1)), high);
    return;
  }
  if (size_bytes(t) == 4) return b_.store(memory, at, t == DType::u32 ? v : b_.op(Opcode::bitcast, {v}, DType::u32));
  if (t == DType::boolean) return b_.store(memory, at, b_.convert(v, DType::u32));
  const DType word = unsigned_of(bits(t));  // of 4-bit integers those four bits
  b_.store(memory, at, b_.convert(t == word ? v : b_.op(Opcode::bitcast, {v}, word), DType::u32));
}

// How long the record is, what prints it, and the program's number.
void PrintEmitter::put_header(const ir::Op& o, Value memory, Value place, Value size) {
  b_.when(nests_.first_invocation(0), [&] {
    Value number = b_.i64(0);
    for (size_t a = 0; a < k_.grid.size(); ++a) {
      const Value id = b_.convert(pid_[a] ? pid_[a] : b_.i32(0), DType::i64);
      number = b_.add(b_.mul(number, extent_value(k_.grid[a].size, DType::i64)), id);
    }
    b_.store(memory, place, size);
    const Value format = b_.constant(DType::u32, static_cast<uint32_t>(o.attr_or(Attr::index, 0)));
    b_.store(memory, b_.add(place, b_.i32(1)), format);
    put(memory, b_.add(place, b_.i32(2)), number);
  });
}

void PrintEmitter::record(const ir::Op& o, size_t first) {
  out_.lane.report_bytes = std::max<int64_t>(out_.lane.report_bytes, 4 * PrintReport::kRecords);
  int64_t words = PrintReport::kHeader;
  for (size_t i = first; i < o.operands.size(); ++i)
    words += num_elements(shape(o.operands[i])) * words_of(k_.type(o.operands[i]).dtype);
  constexpr int64_t kMost = int64_t{1} << 28;
  if (words > kMost)
    throw CompileError(k_.name + ": " + std::string(ir::name(o.code)) + ": a line of " + std::to_string(4 * words) +
                           " bytes, but at most " + std::to_string(4 * kMost) + " are printed at once",
                       o.loc, "print a part of it");
  const Value memory = b_.raw().one({.code = Opcode::report_memory});
  const Value size = b_.constant(DType::u32, static_cast<uint32_t>(words));

  const Value place = take_room(memory, size, first != 0);
  // behind the barrier that handed out the place
  arena_.order(placement_.arena_reads({o.operands.begin() + static_cast<std::ptrdiff_t>(first), o.operands.end()}), {});
  const PendingAccesses before = arena_.pending();
  b_.when(b_.ge_zero(place), [&] {
    put_header(o, memory, place, size);
    int64_t offset = PrintReport::kHeader;
    for (size_t i = first; i < o.operands.size(); ++i) {
      const Value v = o.operands[i];
      const DType t = k_.type(v).dtype;
      const Value at = b_.add(place, b_.i32(offset));
      offset += num_elements(shape(v)) * words_of(t);
      if (shape(v).empty()) {
        b_.when(nests_.first_invocation(0), [&] { put(memory, at, elements_.scalar(v)); });
        continue;
      }
      nests_.each(shape(v), axes_.of(v), placement_.reads_registers(v), true, [&](const NestPoint& p) {
        const Value e = elements_.of(v, p.c);
        b_.when(p.valid, [&] {
          const Value each = b_.i32(words_of(t));
          put(memory, b_.add(at, b_.mul(linear(p.c, shape(v)), each)), e);
        });
      });
    }
  });
  arena_.pending().merge(before);
}

}  // namespace tessera::lowering
