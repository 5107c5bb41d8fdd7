#include "codegen/spirv/emit.h"

#include <algorithm>

#include "codegen/spirv/emitter.h"
#include "engine/base/error.h"
#include "engine/ir/walk.h"

namespace tessera::spirv {

using ir::Opcode;

std::vector<uint32_t> emit(const ir::Kernel& lane_kernel, const Target& target, bool indirect_table,
                           const SourceReader* source, bool relaxed) {
  if (lane_kernel.level != ir::Level::lane)
    throw InternalError(lane_kernel.name + ": spirv::emit needs a lane-level kernel", lane_kernel.loc);
  return Emitter(lane_kernel, target, indirect_table, source, relaxed).run();
}

void Emitter::need(const ir::Op& op, bool has, DType t, const char* feature) const {
  if (!has)
    fail(op,
         "dtype " + std::string(tessera::name(t)) + " needs " + feature + ", which " + target_.name + " does not have");
}

void Emitter::collect() {
  ir::each_op(k_, k_.body, [&](ir::OpId id) {
    const ir::Op& op = k_.op(id);
    used_.insert(op.code);
    if ((op.code == Opcode::load || op.code == Opcode::store) && target_.shared_vectors &&
        k_.type(op.operands[0]).space == ir::MemorySpace::shared)
      if (const ir::Index::Slice* slice = op.index.at(0).slice()) shared_views_[static_cast<uint32_t>(slice->size)] = 0;
    check_dtypes(op);
  });
}

void Emitter::check_dtypes(const ir::Op& op) {
  if (op.code == Opcode::constant) return;  // made and moved by passes: what uses it has the user's line
  for (ir::Value v : op.operands) check_dtype(op, k_.type(v).dtype);
  for (ir::Value v : op.results) check_dtype(op, k_.type(v).dtype);
}

void Emitter::check_dtype(const ir::Op& op, DType t) {
  if (t != DType::f64) return;
  need(op, target_.float64, t, "shaderFloat64");
  uses_f64_ = true;
}

V Emitter::built_in(spv::BuiltIn b, const char* name) {
  const Id var = m_.variable(spv::StorageClassInput, f_.type(Reg::u32));
  m_.name(var, name);
  m_.decorate(var, spv::DecorationBuiltIn, {static_cast<uint32_t>(b)});
  return {&f_, m_.op(spv::OpLoad, f_.type(Reg::u32), {var}), Reg::u32};
}

void Emitter::built_ins() {
  const auto vector = [&](spv::BuiltIn b, const char* name) {
    const Id type = m_.type_vector(f_.type(Reg::u32), 3), var = m_.variable(spv::StorageClassInput, type);
    m_.name(var, name);
    m_.decorate(var, spv::DecorationBuiltIn, {static_cast<uint32_t>(b)});
    return m_.op(spv::OpLoad, type, {var});
  };
  const auto component = [&](Id v, uint32_t i) {
    return V{&f_, m_.op(spv::OpCompositeExtract, f_.type(Reg::u32), {v, i}), Reg::u32};
  };
  const bool index = uses(Opcode::workgroup_index) || uses(Opcode::alloc_scratch),
             number = uses(Opcode::num_workgroups);
  if (index && !number && k_.lane.exact) {  // not folded: the others are 0
    workgroup_index_ = component(vector(spv::BuiltInWorkgroupId, "workgroup_id"), 0);
  } else if (index || number) {
    const Id n = vector(spv::BuiltInNumWorkgroups, "num_workgroups");
    const V nx = component(n, 0), ny = component(n, 1);
    if (number) {
      const V nz = component(n, 2);
      num_workgroups_ = nx * ny * nz;
    }
    if (index) {
      const Id id = vector(spv::BuiltInWorkgroupId, "workgroup_id");
      const V x = component(id, 0), y = component(id, 1);
      workgroup_index_ = (component(id, 2) * ny + y) * nx + x;
    }
  }
  const bool shuffles = uses(Opcode::subgroup_reduce) || uses(Opcode::subgroup_scan) ||
                        uses(Opcode::subgroup_shuffle) || uses(Opcode::subgroup_shuffle_xor);
  // With full subgroups the order of lanes is the subgroups'; LocalInvocationIndex need not agree with it.
  uses_subgroups_ = k_.lane.subgroup_size > 0 || shuffles || uses(Opcode::subgroup_id) || uses(Opcode::lane_id);
  if (uses_subgroups_) m_.capability(spv::CapabilityGroupNonUniform);
  if (uses(Opcode::subgroup_id) || (uses_subgroups_ && uses(Opcode::local_index)))
    subgroup_id_ = built_in(spv::BuiltInSubgroupId, "subgroup_id");
  if (uses(Opcode::lane_id) || (uses_subgroups_ && uses(Opcode::local_index)))
    lane_id_ = built_in(spv::BuiltInSubgroupLocalInvocationId, "lane_id");
  if (uses_subgroups_ && k_.lane.subgroup_size == 0 && (uses(Opcode::local_index) || uses(Opcode::subgroup_reduce)))
    subgroup_size_ = built_in(spv::BuiltInSubgroupSize, "subgroup_size");
  else subgroup_size_ = f_.make(Reg::u32, k_.lane.subgroup_size);
  if (uses(Opcode::local_index))
    local_index_ = uses_subgroups_ ? subgroup_id_ * subgroup_size_ + lane_id_
                                   : built_in(spv::BuiltInLocalInvocationIndex, "local_index");
}

/// Addresses and extents, in the layout that Program documents.
void Emitter::arguments() {
  const std::vector<ir::Value>& args = k_.region(k_.body).args;
  const Id u64 = f_.type(Reg::u64), u32 = f_.type(Reg::u32);
  std::vector<std::pair<Id, uint32_t>> members;
  uint32_t offset = 0;
  const auto add = [&](Id type, uint32_t size) {
    members.push_back({type, offset});
    offset += size;
    return static_cast<uint32_t>(members.size() - 1);
  };
  for (size_t i = 0; i < args.size(); ++i) add(u64, 8);
  const uint32_t scratch = k_.lane.scratch_bytes > 0 ? add(u64, 8) : 0;
  const uint32_t report = k_.lane.report_bytes > 0 ? add(u64, 8) : 0;
  std::vector<uint32_t> place(k_.lane.extents.size());
  for (bool wide : {true, false})
    for (size_t i = 0; i < place.size(); ++i)
      if (k_.lane.extent_is_64.at(i) == wide) place[i] = add(wide ? u64 : u32, wide ? 8 : 4);
  if (!indirect_ && offset > static_cast<uint32_t>(target_.push_constant_bytes))
    throw CompileError(k_.name + ": push constants: needs " + std::to_string(offset) + " bytes, " + target_.name +
                           " has " + std::to_string(target_.push_constant_bytes),
                       k_.loc);
  if (members.empty()) return;

  const Id block = m_.type_block(members);
  m_.name(block, "Arguments");
  for (uint32_t i = 0; i < args.size(); ++i)
    m_.name_member(block, i, i < k_.blocks.size() ? k_.blocks[i].origin : "argument " + std::to_string(i));
  if (k_.lane.scratch_bytes > 0) m_.name_member(block, scratch, "scratch");
  if (k_.lane.report_bytes > 0) m_.name_member(block, report, "report");
  for (size_t i = 0; i < place.size(); ++i) m_.name_member(block, place[i], "extent " + std::to_string(i));
  const auto push_class = spv::StorageClassPushConstant, buffer_class = spv::StorageClassPhysicalStorageBuffer;
  Id from = 0;
  if (indirect_) {
    const Id push = m_.variable(push_class, m_.type_block({{u64, 0}}));
    m_.name(push, "table_address");
    const Id first = f_.make(Reg::u32, 0).id;
    const Id at = m_.op(spv::OpAccessChain, m_.type_pointer(push_class, u64), {push, first});
    const Id address = m_.op(spv::OpLoad, u64, {at});
    from = pointer({&f_, address, Reg::u64}, block);
  } else {
    from = m_.variable(push_class, block);
    m_.name(from, "arguments");
  }
  const auto read = [&](uint32_t member, Reg reg) {
    const Id type = f_.type(reg), which = f_.make(Reg::u32, member).id;
    const Id at =
        m_.op(spv::OpAccessChain, m_.type_pointer(indirect_ ? buffer_class : push_class, type), {from, which});
    Words w{at};
    if (indirect_) w.insert(w.end(), {spv::MemoryAccessAlignedMask, width(reg) / 8});
    return V{&f_, m_.op(spv::OpLoad, type, w), reg};
  };
  for (uint32_t i = 0; i < args.size(); ++i) {
    refs_[args[i].index] = argument_ref(args[i], read(i, Reg::u64));
    if (i < k_.blocks.size()) m_.name(refs_[args[i].index]->base.id, k_.blocks[i].origin);
  }
  const auto named = [&](V v, const char* name) {
    m_.name(v.id, name);
    return v;
  };
  if (k_.lane.scratch_bytes > 0) scratch_ = named(read(scratch, Reg::u64), "scratch");
  if (k_.lane.report_bytes > 0) report_ = named(read(report, Reg::u64), "report");
  if (!target_.skips_branches) bases_of_empty_arrays();
  for (size_t i = 0; i < place.size(); ++i)
    extents_.push_back(read(place[i], k_.lane.extent_is_64[i] ? Reg::u64 : Reg::u32));
}

// An array without elements has the address 0. Where no invocation takes a branch, its loads take an element of another
// array, the arena or the report instead.
void Emitter::bases_of_empty_arrays() {
  const std::vector<ir::Value>& args = k_.region(k_.body).args;
  std::vector<V> some, perhaps;  // addresses of what is there, and of what has elements or not
  std::vector<Ref*> empty;
  for (size_t i = 0; i < args.size() && i < k_.blocks.size(); ++i) {
    Ref& r = *refs_[args[i].index];
    if (r.by_value) continue;
    const auto& dims = k_.blocks[i].array_shape;
    const bool dead = std::any_of(dims.begin(), dims.end(), [](const Extent& e) { return e.value() == 0; });
    const bool fixed = std::all_of(dims.begin(), dims.end(), [](const Extent& e) { return e.is_static(); });
    if (dead) continue;  // nothing accesses it
    (fixed ? some : perhaps).push_back(r.base);
    if (!fixed) empty.push_back(&r);
  }
  if (empty.empty()) return;
  if (k_.lane.scratch_bytes > 0) some.push_back(scratch_);
  if (k_.lane.report_bytes > 0) some.push_back(report_);
  V other = some.empty() ? perhaps[0] : some[0];
  for (size_t i = 1; some.empty() && i < perhaps.size(); ++i) other = select(eq(other, 0), perhaps[i], other);
  if (some.empty() && perhaps.size() == 1) return;
  for (Ref* r : empty) r->base = select(eq(r->base, 0), other, r->base);
}

void Emitter::float_controls() {
  const auto mode = [&](bool has, spv::Capability c, spv::ExecutionMode e, uint32_t bits) {
    if (!has) return;
    m_.capability(c);
    m_.execution_mode(e, {bits});
  };
  // Rounding is set for every width that has it: some devices take all widths alike or none.
  const auto rte = [&](bool has, uint32_t bits) {
    mode(has, spv::CapabilityRoundingModeRTE, spv::ExecutionModeRoundingModeRTE, bits);
  };
  const auto preserve = [&](bool has, uint32_t bits) {
    mode(has, spv::CapabilitySignedZeroInfNanPreserve, spv::ExecutionModeSignedZeroInfNanPreserve, bits);
  };
  rte(target_.rte16, 16);
  rte(target_.rte32, 32);
  rte(target_.rte64, 64);
  preserve(native_f16(target_), 16);
  preserve(target_.preserve32, 32);
  preserve(uses_f64_ && target_.preserve64, 64);
}

// An array of words; where neighbours are accessed together, blocks that lie in one place, with arrays of words and of
// vectors.
void Emitter::shared_memory() {
  const auto array = [&](Id element, uint32_t words) {
    return m_.type_array(element, static_cast<uint32_t>((k_.lane.shared_bytes + 4 * words - 1) / (4 * words)));
  };
  const auto named = [&](Id type, const std::string& name) {
    const Id variable = m_.variable(spv::StorageClassWorkgroup, type);
    m_.name(variable, name);
    return variable;
  };
  const Id word = f_.type(Reg::u32);
  if (shared_views_.empty()) {
    arena_ = named(array(word, 1), "arena");
    return;
  }
  m_.extension("SPV_KHR_workgroup_memory_explicit_layout");
  m_.capability(spv::CapabilityWorkgroupMemoryExplicitLayoutKHR);
  const auto block = [&](Id element, uint32_t words, const std::string& name) {
    const Id elements = array(element, words);
    m_.decorate(elements, spv::DecorationArrayStride, {4 * words});
    const Id variable = named(m_.type_block({{elements, 0}}), name);
    m_.decorate(variable, spv::DecorationAliased);
    return variable;
  };
  arena_ = block(word, 1, "arena");
  for (auto& [words, view] : shared_views_)
    view = block(m_.type_vector(word, words), words, "arena" + std::to_string(words));
}

Emitter::Here::Here(Emitter& emitter, const ir::Op& op) : e(emitter), before(emitter.here_) {
  if (op.code == Opcode::constant) return;
  e.here_ = op.loc;
  e.locate();
}

void Emitter::locate() {
  if (debug_) return debug_->locate(f_.block, here_);
  if (!here_ || (line_block_ == f_.block && line_.file == here_.file && line_.line == here_.line)) return;
  m_.op(spv::OpLine, {m_.string(here_.file), here_.line, 0});
  line_ = here_;
  line_block_ = f_.block;
}

void Emitter::emit(const ir::Op& op) {
  const Here here(*this, op);
  Walk::emit(op);
}

V Emitter::launch_value(const ir::Op& op) {
  switch (ir::Launch(op.code)) {
    case ir::Launch::workgroup_index: return workgroup_index_;
    case ir::Launch::num_workgroups: return num_workgroups_;
    case ir::Launch::local_index: return local_index_;
    case ir::Launch::subgroup_id: return subgroup_id_;
    case ir::Launch::lane_id: return lane_id_;
    case ir::Launch::thread_index: fail(op, "programs are single workgroups");
    case ir::Launch::extent: return extents_.at(static_cast<size_t>(op.attr(ir::Attr::index)));
  }
  return {};
}

Words Emitter::run() {
  check_limits();
  collect();
  m_.capability(spv::CapabilityShader);
  m_.capability(spv::CapabilityPhysicalStorageBufferAddresses);
  m_.capability(spv::CapabilityVulkanMemoryModel);
  if (!f_.emulates_int64()) m_.capability(spv::CapabilityInt64);
  if (uses_f64_) m_.capability(spv::CapabilityFloat64);

  const Id main = m_.fresh(), nothing = m_.type_void();
  m_.entry_point(main, "main");
  m_.name(main, k_.name);
  m_.execution_mode(spv::ExecutionModeLocalSize, {static_cast<uint32_t>(k_.lane.workgroup_size), 1, 1});
  float_controls();
  if (source_) {
    debug_.emplace(m_, *source_, k_.name, k_.loc);
    f_.on_block = [this] { locate(); };
  }
  m_.op_as(spv::OpFunction, nothing, main, {spv::FunctionControlMaskNone, m_.type_function(nothing)});
  f_.begin(m_.fresh());
  if (debug_) {
    debug_->define(main);
    locate();
  }
  built_ins();
  arguments();
  if (k_.lane.shared_bytes > 0) shared_memory();
  region(k_.body);
  m_.op(spv::OpReturn, {});
  m_.op(spv::OpFunctionEnd, {});
  return m_.words();
}

}  // namespace tessera::spirv
