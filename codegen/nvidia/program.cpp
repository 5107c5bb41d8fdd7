// Programs of several workgroups (LaneInfo::threads): a CTA, whose workgroups are its warpgroups. Their memory in
// common begins the CTA's shared memory, with the mbarriers; behind it comes an arena for each of them. A workgroup
// knows which phase of a barrier it waits for: the barrier itself only tells the parity of the phase that has ended.
#include <bit>

#include "codegen/nvidia/emitter.h"
#include "engine/base/error.h"
#include "engine/ir/walk.h"

namespace tessera::nvidia {

using ir::Opcode;

namespace {
constexpr int64_t kBarrierBytes = 8;
constexpr uint32_t kPhasesInWord = 32;
}  // namespace

int64_t Emitter::shared_bytes() const { return k_.lane.program_bytes + k_.lane.threads * k_.lane.shared_bytes; }

/// Which thread of the program an invocation is in, where its arena is, and barriers that nobody has arrived at.
void Emitter::begin_program() {
  const auto size = static_cast<uint32_t>(k_.lane.workgroup_size);
  if (size % 32 != 0 || !std::has_single_bit(size))
    throw InternalError(k_.name + ": nvidia: workgroups of " + std::to_string(size) + " invocations in a program",
                        k_.loc);
  invocation_ = local_index_;
  thread_index_ = invocation_ >> std::countr_zero(size);
  local_index_ = invocation_ & (size - 1);
  workgroup_index_ = program_index_ * f_.make(Reg::u32, static_cast<uint32_t>(k_.lane.threads));
  workgroup_index_ = workgroup_index_ + thread_index_;
  barrier_ = thread_index_ + 1u;  // 0 is of the CTA
  if (shared_bytes() == 0) return;
  const V common = special("arena");
  program_ = to_uint(common, Reg::u64);
  const V offset = thread_index_ * f_.make(Reg::u32, static_cast<uint32_t>(k_.lane.shared_bytes));
  arena_ = common + (offset + static_cast<uint32_t>(k_.lane.program_bytes));
  barriers_ = common;
  const size_t n = k_.lane.barriers.size();
  if (n == 0) return;
  for (size_t i = 0; i < n; i += kPhasesInWord) {
    phases_.push_back(f_.fresh(Reg::u32));
    f_.move(phases_.back(), f_.make(Reg::u32, 0));
  }
  make_barriers(0, static_cast<int64_t>(n), false);
}

/// By one invocation. `again`: they are barriers already.
void Emitter::make_barriers(int64_t first, int64_t count, bool again) {
  f_.when(eq(invocation_, 0u), [&] {
    for (int64_t i = first; i < first + count; ++i) {
      const std::string place = "[" + f_.in_register(barriers_) + "+" + std::to_string(i * kBarrierBytes) + "]";
      if (again) f_.line("mbarrier.inval.shared.b64 " + place);
      f_.line("mbarrier.init.shared.b64 " + place + ", " + std::to_string(k_.lane.barriers[static_cast<size_t>(i)]));
    }
  });
}

void Emitter::meet() {
  f_.line("bar.sync 0");
  ++f_.block;
}

void Emitter::emit_program_op(const ir::Op& op) {
  if (op.code == Opcode::program_barrier) {
    const int64_t first = op.attr(ir::Attr::index), count = op.attr(ir::Attr::count);
    meet();
    if (count == 0) return;
    make_barriers(first, count, true);
    meet();
    for (size_t w = 0; w < phases_.size(); ++w) {
      uint32_t kept = UINT32_MAX;
      for (int64_t i = first; i < first + count; ++i)
        if (static_cast<size_t>(i) / kPhasesInWord == w) kept &= ~(uint32_t{1} << (i % kPhasesInWord));
      if (kept != UINT32_MAX) f_.move(phases_[w], phases_[w] & kept);
    }
    return;
  }
  const V number = get(op.operands.at(0));
  if (op.code == Opcode::mbarrier_arrive) return arrive(number);
  if (op.code == Opcode::mbarrier_wait) return wait(number);
  if (copied_.empty()) return;
  const V place = barriers_ + (number << 3);
  f_.line("cp.async.mbarrier.arrive.shared.b64 [" + f_.in_register(place) + "]");
}

/// Vector loads of an array that nothing writes, all of whose elements go to neighbours in the program's memory, late,
/// and nowhere else: the registers between them are left out.
void Emitter::find_copies() {
  std::vector<int> uses(k_.values.size(), 0);
  for (const ir::Op& op : k_.ops)
    for (const ir::Value v : op.operands) ++uses[v.index];
  ir::each_op(k_, k_.body, [&](ir::OpId id) {
    const ir::Op& store = k_.op(id);
    if (store.code != Opcode::store || !store.attr_or(ir::Attr::late, 0) || !ir::is_vector_access(store)) return;
    const ir::Op* to = k_.def(root(store.operands[0]));
    const ir::Op* load = k_.def(store.operands[1]);
    if (!to || to->code != Opcode::alloc_program || !load || load->code != Opcode::load || !ir::is_vector_access(*load))
      return;
    const ir::Value from = root(load->operands[0]);
    if (k_.def(from) || written_.count(from.index) || k_.type(from).dtype != k_.type(store.operands[0]).dtype ||
        load->results.size() != static_cast<size_t>(store.index[0].size))
      return;
    for (size_t i = 0; i < load->results.size(); ++i)
      if (store.operands[1 + i] != load->results[i] || uses[load->results[i].index] != 1) return;
    copied_.insert(load->results[0].index);
  });
}

bool Emitter::emit_copy(const ir::Op& op) {
  if (copied_.empty() || !ir::is_vector_access(op)) return false;
  const bool loads = op.code == Opcode::load;
  const uint32_t first = loads ? op.results[0].index : op.operands[1].index;
  if (copied_.count(first) == 0) return false;
  const Ref& r = ref(op.operands[0]);
  const std::string place = at(element_address(op, r));
  if (loads) {
    sources_[first] = place;
    return true;
  }
  const int64_t bytes = op.index[0].size * size_bytes(r.dtype);
  f_.line(std::string("cp.async.") + (bytes == 16 ? "cg" : "ca") + ".shared.global " + place + ", " +
          sources_.at(first) + ", " + std::to_string(bytes));
  return true;
}

/// For the whole workgroup, which a barrier of its own has brought together.
void Emitter::arrive(V number) {
  const V place = barriers_ + (number << 3);
  f_.when(eq(local_index_, 0u), [&] {
    f_.line("mbarrier.arrive.shared.b64 " + f_.operand(f_.fresh(Reg::u64)) + ", [" + f_.in_register(place) + "]");
  });
}

/// All invocations wait: each then sees what came before the arrivals. Behind it the warp goes on together.
void Emitter::wait(V number) {
  const V place = barriers_ + (number << 3), bit = number & (kPhasesInWord - 1), word = number >> 5;
  const auto one = [&](size_t w) {
    const V parity = (phases_[w] >> bit) & 1u;
    const std::string again = f_.label(), ready = f_.operand(f_.fresh(Reg::boolean));
    const bool hopper = std::stoi(target_.chip.substr(3)) >= 90;
    f_.place(again);
    f_.line(std::string("mbarrier.") + (hopper ? "try_wait" : "test_wait") + ".parity.shared.b64 " + ready + ", [" +
            f_.in_register(place) + "], " + f_.in_register(parity));
    f_.line("@!" + ready + " bra " + again);
    ++f_.block;
    f_.line("bar.warp.sync -1");
    f_.move(phases_[w], phases_[w] ^ (f_.make(Reg::u32, 1) << bit));
  };
  for (size_t w = 0; w < phases_.size(); ++w) {
    if (phases_.size() == 1) one(w);
    else f_.when(eq(word, static_cast<uint32_t>(w)), [&] { one(w); });
  }
}

}  // namespace tessera::nvidia
