#include "codegen/nvidia/emit.h"

#include "codegen/nvidia/emitter.h"
#include "codegen/program/program.h"
#include "engine/base/error.h"
#include "engine/base/function.h"
#include "engine/ir/walk.h"

namespace tessera::nvidia {

using ir::Opcode;

namespace {
constexpr int64_t kMostStatic = 48 << 10, kMostArguments = 4096;
constexpr const char* kVersionOfF8Matrices = "8.4";  // the first that has mma of 8-bit floats
}  // namespace

std::string emit(const ir::Kernel& lane_kernel, const Target& target, bool relaxed, bool lines, int64_t registers) {
  if (lane_kernel.level != ir::Level::lane)
    throw InternalError(lane_kernel.name + ": nvidia::emit needs a lane-level kernel", lane_kernel.loc);
  return Emitter(lane_kernel, target, relaxed, lines, registers).run();
}

bool Emitter::large_arena() const { return shared_bytes() > kMostStatic; }

V Emitter::special(const char* name) {
  const V v = f_.fresh(Reg::u32);
  f_.line("mov.u32 " + f_.operand(v) + ", " + name);
  return v;
}

/// Addresses and extents, in the layout that Program documents.
void Emitter::arguments() {
  const std::vector<ir::Value>& args = k_.region(k_.body).args;
  int64_t offset = 0;
  const auto read = [&](Reg r) {
    const V v = f_.fresh(r);
    f_.line(std::string("ld.param.") + bits_type(r) + " " + f_.operand(v) + ", [arguments+" + std::to_string(offset) +
            "]");
    offset += width(r) / 8;
    return v;
  };
  for (const ir::Value a : args) refs_[a.index] = argument_ref(a, read(Reg::u64));
  if (k_.lane.scratch_bytes > 0) scratch_ = read(Reg::u64);
  if (k_.lane.report_bytes > 0) report_ = read(Reg::u64);
  extents_.resize(k_.lane.extents.size());
  for (const bool wide : {true, false})
    for (size_t i = 0; i < extents_.size(); ++i)
      if (k_.lane.extent_is_64.at(i) == wide) extents_[i] = read(wide ? Reg::u64 : Reg::u32);
  if (const auto n = static_cast<int64_t>(k_.lane.tensors.size())) {
    tensors_at_ = cdiv(offset, Program::kTensorAlignment) * Program::kTensorAlignment;
    offset = tensors_at_ + n * Program::kTensorBytes;
    tensors_ = f_.fresh(Reg::u64);
    f_.line("mov.b64 " + f_.operand(tensors_) + ", arguments");
    f_.line("cvta.param.u64 " + f_.operand(tensors_) + ", " + f_.operand(tensors_));
  }
  argument_bytes_ = offset;
  if (offset > kMostArguments)
    throw CompileError(k_.name + ": arguments: need " + std::to_string(offset) + " bytes, " + target_.name + " has " +
                           std::to_string(kMostArguments),
                       k_.loc);
}

void Emitter::emit(const ir::Op& op) {
  if (left_out_.count(&op)) return;
  if (const auto it = copies_.find(&op); it != copies_.end()) return emit_copy(op, *it->second);
  if (lines_ && op.code != Opcode::constant && op.loc) {
    const int file = files_.emplace(op.loc.file, static_cast<int>(files_.size()) + 1).first->second;
    f_.line(".loc " + std::to_string(file) + " " + std::to_string(op.loc.line) + " 0");
  }
  if (!emit_transposed_pack(op)) Walk::emit(op);
}

V Emitter::launch_value(const ir::Op& op) {
  switch (ir::Launch(op.code)) {
    case ir::Launch::workgroup_index: return program_index_;
    case ir::Launch::num_workgroups: return num_workgroups_;
    case ir::Launch::local_index: return local_index_;
    case ir::Launch::subgroup_id: return subgroup_id_;
    case ir::Launch::lane_id: return lane_id_;
    case ir::Launch::thread_index: return thread_index_.id ? thread_index_ : f_.make(Reg::u32, 0);
    case ir::Launch::extent: return extents_.at(static_cast<size_t>(op.attr(ir::Attr::index)));
  }
  return {};
}

V Emitter::loops_cut() { return f_.boolean(false); }

void Emitter::emit_switch(const ir::Op& op) {
  const V selector = get(op.operands.at(0));
  const size_t n = op.regions.size();
  // Below 0 is region 0, anything else not listed is the last.
  const tessera::Function<std::vector<V>(size_t)> from = [&](size_t i) {
    if (i + 1 == n) return region(op.regions[i]);
    const V here = i == 0 ? sle(selector, 0) : eq(selector, static_cast<uint32_t>(i));
    return f_.if_else(here, [&] { return region(op.regions[i]); }, [&] { return from(i + 1); });
  };
  const std::vector<V> out = from(0);
  for (size_t i = 0; i < op.results.size(); ++i) set(op.results[i], out.at(i));
}

// Where what products sum goes on in the lanes, a workgroup waits for one thing after another, and others fill the
// time. Told how many there are to be, ptxas uses all the registers that this leaves: an H100 makes attention of 64
// columns a tenth to a quarter faster so. `registers_live_` is up to a third more than what ptxas needs. 0: as it
// likes.
int64_t Emitter::workgroups_at_once() const {
  constexpr int64_t kRegisters = 65536, kWorkgroups = 3;
  const int64_t room = kRegisters / kWorkgroups / (k_.lane.workgroup_size * k_.lane.threads);
  const bool fits = registers_live_ > room * 3 / 4 && registers_live_ <= room * 4 / 3;
  return by_warpgroups_ && goes_on_in_lanes_ && fits ? kWorkgroups : 0;
}

std::string Emitter::frame(const std::string& body) const {
  // Rows of tensors are swizzled by their addresses.
  const bool tensors = !k_.lane.tensors.empty();
  const std::string arena = std::string(".shared .align ") + (tensors ? "1024" : "16") + " .b8 arena[";
  const std::string version =
      multiplies_f8_ && target_.ptx_version < kVersionOfF8Matrices ? kVersionOfF8Matrices : target_.ptx_version;
  std::string s = "// " + k_.name + "\n.version " + version + "\n.target " + target_.chip + "\n.address_size 64\n\n";
  if (large_arena()) s += ".extern " + arena + "];\n\n";
  s += ".visible .entry main(";
  if (argument_bytes_)
    s += std::string("\n  .param .align ") + (tensors ? "64" : "8") + " .b8 arguments[" +
         std::to_string(argument_bytes_) + "]\n";
  s += ")\n.reqntid " + std::to_string(k_.lane.workgroup_size * k_.lane.threads) + ", 1, 1\n";
  if (const int64_t n = workgroups_at_once()) s += ".minnctapersm " + std::to_string(n) + "\n";
  s += "{\n";
  if (shared_bytes() > 0 && !large_arena()) s += "  " + arena + std::to_string(shared_bytes()) + "];\n";
  s += body + "  ret;\n}\n";
  for (const auto& [file, number] : files_) s += ".file " + std::to_string(number) + " \"" + file + "\"\n";
  return s;
}

std::string Emitter::run() {
  check_limits();
  program_index_ = workgroup_index_ = special("%ctaid.x");
  num_workgroups_ = special("%nctaid.x");
  local_index_ = special("%tid.x");
  if (k_.lane.threads > 1) begin_program();
  subgroup_id_ = local_index_ >> 5;
  lane_id_ = local_index_ & 31;
  arguments();
  if (k_.lane.shared_bytes > 0 && k_.lane.threads == 1) arena_ = special("arena");
  if (!k_.lane.tensors.empty()) begin_tensors();
  place_lanes();
  find_copies();
  uses_.resize(k_.values.size());
  ir::each_op(k_, k_.body, [&](ir::OpId id) {
    for (const ir::Value v : k_.op(id).operands) ++uses_[v.index];
    goes_on_in_lanes_ = goes_on_in_lanes_ || k_.op(id).code == Opcode::matrix_elements;
    by_warpgroups_ = by_warpgroups_ || k_.op(id).code == Opcode::warpgroup_multiply_add;
  });
  if (by_warpgroups_) zero_ = special("%ctaid.z");
  region(k_.body);
  return frame(f_.body());
}

}  // namespace tessera::nvidia
