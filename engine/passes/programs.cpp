#include "engine/passes/programs.h"

#include <algorithm>
#include <limits>

#include "engine/base/error.h"
#include "engine/ir/reference.h"

namespace tessera::passes {
namespace {
using ir::Op, ir::Opcode, ir::Value;

int64_t number(DType t, uint64_t bits) {
  const int width = tessera::bits(t);
  if (!is_signed_int(t) || width == 64) return static_cast<int64_t>(bits);
  const uint64_t sign = uint64_t{1} << (width - 1);
  return static_cast<int64_t>((bits ^ sign) - sign);
}
// Of an i32: positions in the grid and counters are.
uint64_t bits_of(int64_t n) { return static_cast<uint32_t>(n); }
}  // namespace

Programs::Programs(const ir::Kernel& k, std::vector<int64_t> grid)
    : k_(k), grid_(std::move(grid)), known_(k.values.size()) {
  if (grid_.size() != k.grid.size()) throw InternalError("programs: a size is missing");
  for (const int64_t n : grid_)
    count_ =
        n > 0 && count_ > std::numeric_limits<int64_t>::max() / n ? std::numeric_limits<int64_t>::max() : count_ * n;
  if (std::find(grid_.begin(), grid_.end(), 0) != grid_.end()) count_ = 0;
  move_to(std::vector<int64_t>(grid_.size(), 0));
}

void Programs::move_to(std::vector<int64_t> program) {
  at_ = std::move(program);
  ++epoch_;
  for (const ir::BlockMapping& b : k_.blocks)
    for (size_t a = 0; !b.is_whole() && a < at_.size(); ++a) set(k_.region(b.index_map()).args[a], at_[a]);
}

void Programs::set(Value v, std::optional<int64_t> n) {
  known_[v.index] = {epoch_, n ? std::optional(bits_of(*n)) : std::nullopt};
}

std::optional<int64_t> Programs::value(Value v) {
  const DType t = k_.type(v).dtype;
  if (is_float(t)) return {};
  // Operands first, without recursion: kernels may be long.
  std::vector<Value> open{v};
  while (!open.empty()) {
    const Value x = open.back();
    const size_t before = open.size();
    const Op* op = k_.def(x);
    if (known_[x.index].epoch != epoch_ && op && ir::is_elementwise(op->code) && k_.type(x).is_scalar())
      for (const Value o : op->operands)
        if (known_[o.index].epoch != epoch_) open.push_back(o);
    if (open.size() > before) continue;
    if (known_[x.index].epoch != epoch_) known_[x.index] = {epoch_, compute(x)};
    open.pop_back();
  }
  const auto bits = known_[v.index].bits;
  return bits ? std::optional(number(t, *bits)) : std::nullopt;
}

// Of operands that are known already.
std::optional<uint64_t> Programs::compute(Value v) const {
  const ir::Type& t = k_.type(v);
  const Op* op = k_.def(v);
  if (!op || !t.is_scalar()) return {};
  if (op->code == Opcode::size) {
    const auto i = static_cast<size_t>(op->attr(ir::Attr::index));
    const auto n = i < k_.sizes.size() ? k_.sizes[i].value() : std::nullopt;
    return n ? std::optional(bits_of(*n)) : std::nullopt;
  }
  if (ir::is_grid(op->code)) {
    int64_t axis = op->attr(ir::Attr::axis);
    for (size_t a = 0; a < at_.size(); ++a)
      if (!k_.grid[a].vmapped && axis-- == 0) return bits_of(op->code == Opcode::program_id ? at_[a] : grid_[a]);
    return {};
  }
  if (op->code == Opcode::constant) return static_cast<uint64_t>(op->attr(ir::Attr::bits));
  if (!ir::is_elementwise(op->code)) return {};
  std::vector<uint64_t> operands;
  for (const Value o : op->operands) {
    if (!known_[o.index].bits) return {};
    operands.push_back(*known_[o.index].bits);
  }
  const DType of = k_.type(op->operands[op->code == Opcode::select ? 1 : 0]).dtype;
  return reference::eval(op->code, of, t.dtype, operands.data());
}

std::optional<std::vector<int64_t>> Programs::map(const ir::BlockMapping& b) {
  std::vector<int64_t> results;
  if (b.is_whole()) return results;
  for (const Value v : k_.terminator(b.index_map()).operands) {
    const auto n = value(v);
    if (!n) return {};
    results.push_back(*n);
  }
  return results;
}

std::optional<size_t> Programs::taken(const Op& branch) {
  const auto c = value(branch.operands[0]);
  if (!c) return {};
  if (branch.code == Opcode::if_) return *c != 0 ? 0 : 1;
  return static_cast<size_t>(std::clamp<int64_t>(*c, 0, static_cast<int64_t>(branch.regions.size()) - 1));
}

std::optional<int64_t> Programs::iterations(const Op& loop) {
  const auto lower = value(loop.operands[0]), upper = value(loop.operands[1]), step = value(loop.operands[2]);
  if (!lower || !upper || !step || *step <= 0) return {};
  return *upper > *lower ? (*upper - *lower + *step - 1) / *step : 0;
}

Times Programs::times_of(const Op& op, size_t i, Times times) {
  const Times unknown{0, false};
  switch (ir::Control(op.code)) {
    case ir::Control::if_:
    case ir::Control::switch_: {
      const auto t = taken(op);
      return !t ? unknown : *t == i ? times : Times{0, true};
    }
    case ir::Control::for_: {
      const auto n = iterations(op);
      if (!n) return unknown;
      set(k_.region(op.regions[0]).args[0], *n == 1 ? value(op.operands[0]) : std::nullopt);
      if (*n > 0 && times.least > std::numeric_limits<int64_t>::max() / *n) return {times.least, false};
      return {times.least * *n, times.exact};
    }
    case ir::Control::while_: return i == 0 ? Times{times.least, false} : unknown;
    case ir::Control::run_scoped: return times;
  }
  throw InternalError("programs: an op with regions that is no control flow");
}

}  // namespace tessera::passes
