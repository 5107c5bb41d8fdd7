#include "codegen/lane/join_branches.h"

#include <cstdint>

#include "engine/passes/memory.h"

namespace tessera::lowering {
namespace {
using ir::Opcode;
using ir::OpId;

// A branch moves down to the next one of its condition. Between them stand ops without effects only, and loads from
// memory that the kernel does not write.
class Joiner {
 public:
  explicit Joiner(ir::Kernel& k) : k_(k), memory_(k) {}
  bool run() {
    walk(k_.body);
    return changed_;
  }

 private:
  bool joinable(const ir::Op& o) const {
    return o.code == Opcode::if_ && o.results.empty() && o.regions.size() == 2 &&
           k_.region(o.regions[1]).ops.size() == 1;
  }
  bool stays(const ir::Op& o) const {
    if (!o.regions.empty()) return false;
    const ir::Effect effect = ir::info(o.code).effect;
    return effect == ir::Effect::pure || (o.code == Opcode::load && memory_.read_only(memory_.of(o.operands[0])));
  }

  void walk(ir::RegionId r) {
    const std::vector<OpId> ops = k_.region(r).ops;
    std::vector<OpId> out;
    constexpr size_t kNone = SIZE_MAX;
    size_t last = kNone;  // in `out`: a branch that may move down to here
    for (OpId id : ops) {
      const std::vector<ir::RegionId> inner = k_.op(id).regions;
      for (ir::RegionId x : inner) walk(x);
      if (joinable(k_.op(id))) {
        if (last != kNone && k_.op(out[last]).operands[0] == k_.op(id).operands[0]) {
          join(out[last], id);
          out.erase(out.begin() + static_cast<std::ptrdiff_t>(last));
        }
        last = out.size();
      } else if (!stays(k_.op(id))) {
        last = kNone;
      }
      out.push_back(id);
    }
    k_.region(r).ops = out;
  }

  void join(OpId from, OpId to) {
    std::vector<OpId> first = k_.region(k_.op(from).regions[0]).ops;
    std::vector<OpId>& second = k_.region(k_.op(to).regions[0]).ops;
    second.insert(second.begin(), first.begin(), first.end() - 1);
    changed_ = true;
  }

  ir::Kernel& k_;
  const passes::MemoryClasses memory_;
  bool changed_ = false;
};
}  // namespace

bool join_branches(ir::Kernel& k) { return Joiner(k).run(); }

}  // namespace tessera::lowering
