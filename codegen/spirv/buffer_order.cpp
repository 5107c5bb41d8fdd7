#include "codegen/spirv/buffer_order.h"

#include <algorithm>
#include <vector>

#include "engine/passes/memory.h"

namespace tessera::spirv {
namespace {
using ir::Op, ir::OpId, ir::Opcode, ir::RegionId;

class BufferOrder {
 public:
  explicit BufferOrder(const ir::Kernel& k) : k_(k), memory_(k), uses_(memory_.count()) {}
  bool run() {
    const auto aliased = [](const ir::BlockMapping& b) { return b.alias >= 0; };
    if (std::any_of(k_.blocks.begin(), k_.blocks.end(), aliased)) return true;
    walk(k_.body);
    return wanted_;
  }

 private:
  enum class Kind : uint8_t { none, store, atomic };
  struct Use {
    Kind kind = Kind::none;
    int64_t interval = 0;  // barriers before it
  };

  void walk(RegionId r) {
    for (const OpId id : k_.region(r).ops) {
      const Op& op = k_.op(id);
      if (op.code == Opcode::barrier) ++barriers_;
      else if (!op.regions.empty()) inner(op);
      else if (ir::is_atomic(op.code)) use(op, Kind::atomic);
      else if (op.code == Opcode::store) use(op, Kind::store);
      else if (op.code == Opcode::load) read(op);
      else if (ir::accesses_ref(op.code) || op.code == Opcode::program_barrier) wanted_ = true;
    }
  }
  // What a loop stores before one of its barriers comes behind it, too.
  void inner(const Op& op) {
    const bool loops = ir::is_loop(op.code);
    const int64_t before = barriers_;
    loop_stores_.push_back(false);
    for (const RegionId r : op.regions) walk(r);
    const bool stores = loop_stores_.back();
    loop_stores_.pop_back();
    if (!loop_stores_.empty() && stores) loop_stores_.back() = true;
    wanted_ = wanted_ || (loops && stores && barriers_ != before);
  }
  bool in_buffer(const Op& op) const { return k_.type(op.operands[0]).space != ir::MemorySpace::shared; }
  void read(const Op& op) {
    const uint32_t c = memory_.of(op.operands[0]);
    wanted_ = wanted_ || (in_buffer(op) && !memory_.read_only(c));
  }
  void use(const Op& op, Kind kind) {
    if (!in_buffer(op)) return;
    Use& u = uses_[memory_.of(op.operands[0])];
    wanted_ = wanted_ || (u.kind != Kind::none && (u.kind != kind || u.interval != barriers_));
    u = {kind, barriers_};
    if (!loop_stores_.empty()) loop_stores_.back() = true;
  }

  const ir::Kernel& k_;
  const passes::MemoryClasses memory_;
  std::vector<Use> uses_;  // by class
  std::vector<bool> loop_stores_;
  int64_t barriers_ = 0;
  bool wanted_ = false;
};

}  // namespace

bool barriers_order_buffers(const ir::Kernel& k) { return BufferOrder(k).run(); }

}  // namespace tessera::spirv
