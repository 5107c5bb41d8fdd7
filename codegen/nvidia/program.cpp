// Programs of several workgroups (LaneInfo::threads): a CTA, whose workgroups are its warpgroups. Their memory in
// common begins the CTA's shared memory, with the mbarriers; behind it comes an arena for each of them. A workgroup
// knows which phase of a barrier it waits for: the barrier itself only tells the parity of the phase that has ended.
#include "codegen/program/program.h"

#include <bit>

#include "codegen/nvidia/emitter.h"
#include "engine/base/error.h"

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
  if (!copies_to_program_) return;
  const V place = barriers_ + (number << 3);
  f_.line("cp.async.mbarrier.arrive.shared.b64 [" + f_.in_register(place) + "]");
}

// -- boxes of arrays (tensor_load), in programs of one workgroup

/// The barriers lie before the arena.
void Emitter::begin_tensors() {
  invocation_ = local_index_;
  barriers_ = arena_;
  arena_ = arena_ + static_cast<uint32_t>(k_.lane.program_bytes);
  const auto n = static_cast<int64_t>(k_.lane.barriers.size());
  for (int64_t i = 0; i < n; i += kPhasesInWord) {
    phases_.push_back(f_.fresh(Reg::u32));
    f_.move(phases_.back(), f_.make(Reg::u32, 0));
  }
  make_barriers(0, n, false);
  f_.line("fence.mbarrier_init.release.cluster");
  f_.line("fence.proxy.async.shared::cta");
  meet();
}

void Emitter::emit_tensor_op(const ir::Op& op) {
  if (op.code == Opcode::tensor_load) emit_tensor_load(op);
  else wait(get(op.operands.at(0)));
}

/// By one invocation. Coordinates stand innermost first.
void Emitter::emit_tensor_load(const ir::Op& op) {
  const auto index = op.attr(ir::Attr::index), count = op.attr(ir::Attr::count);
  const ir::TensorBox& tensor = k_.lane.tensors.at(static_cast<size_t>(index));
  int64_t bytes = size_bytes(k_.type(op.operands.at(0)).dtype);
  for (const int64_t n : tensor.box) bytes *= n;
  const V barrier = barriers_ + (get(op.operands.at(3)) << 3),
          words = get(op.operands.at(2)) + ref(op.operands.at(1)).base;
  const V to = arena_ + (words << 2);
  std::vector<V> first;
  for (size_t i = 4; i < op.operands.size(); ++i) first.push_back(get(op.operands[i]));
  f_.when(eq(invocation_, 0u), [&] {
    const std::string told = "[" + f_.in_register(barrier) + "]";
    f_.line("mbarrier.arrive.expect_tx.shared.b64 " + f_.operand(f_.fresh(Reg::u64)) + ", " + told + ", " +
            std::to_string(count * bytes));
    const V map = tensors_ + f_.make(Reg::u64, static_cast<uint64_t>(tensors_at_ + index * Program::kTensorBytes));
    for (int64_t n = 0; n < count; ++n) {
      const V place = n ? to + static_cast<uint32_t>(n * bytes) : to;
      std::string at;
      for (size_t i = first.size(); i-- > 0;) {
        const V x = n && i + 1 == first.size() ? first[i] + static_cast<uint32_t>(n * tensor.box.back()) : first[i];
        at += (at.empty() ? "" : ", ") + f_.in_register(x);
      }
      f_.line("cp.async.bulk.tensor." + std::to_string(first.size()) +
              "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [" + f_.in_register(place) + "], [" +
              f_.in_register(map) + ", {" + at + "}], " + told);
    }
  });
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
