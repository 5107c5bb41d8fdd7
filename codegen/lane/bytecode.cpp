#include "codegen/lane/bytecode.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "codegen/lane/uniformity.h"
#include "codegen/lane/verify.h"

namespace tessera::lane {
namespace {
using ir::Kernel, ir::Op, ir::Opcode, ir::OpId, ir::RegionId, ir::Value;

// The instruction that does `op` on this dtype without reference::eval, if there is one.
Code fast_code(Opcode op, DType t, DType result) {
  struct Fast {
    Opcode op;
    DType operand;
    Code code;
  };
  constexpr Fast kFast[] = {
      {Opcode::add, DType::i32, Code::add_i32},       {Opcode::sub, DType::i32, Code::sub_i32},
      {Opcode::mul, DType::i32, Code::mul_i32},       {Opcode::eq, DType::i32, Code::eq_i32},
      {Opcode::ne, DType::i32, Code::ne_i32},         {Opcode::lt, DType::i32, Code::lt_i32},
      {Opcode::le, DType::i32, Code::le_i32},         {Opcode::gt, DType::i32, Code::gt_i32},
      {Opcode::ge, DType::i32, Code::ge_i32},         {Opcode::min, DType::i32, Code::min_i32},
      {Opcode::max, DType::i32, Code::max_i32},       {Opcode::add, DType::i64, Code::add_i64},
      {Opcode::mul, DType::i64, Code::mul_i64},       {Opcode::add, DType::f32, Code::add_f32},
      {Opcode::sub, DType::f32, Code::sub_f32},       {Opcode::mul, DType::f32, Code::mul_f32},
      {Opcode::and_, DType::boolean, Code::and_bool}, {Opcode::or_, DType::boolean, Code::or_bool},
      {Opcode::not_, DType::boolean, Code::not_bool},
  };
  if (op == Opcode::select) return Code::select;
  if (op == Opcode::convert && t == DType::i32 && result == DType::i64) return Code::i32_to_i64;
  for (const Fast& f : kFast)
    if (f.op == op && f.operand == t) return f.code;
  return Code::end;
}

class Flattener {
 public:
  Flattener(const Kernel& k, const std::vector<Bounds>& ranges, const std::vector<WatchedSum>& watched)
      : k_(k), ranges_(ranges), watched_(watched) {
    if (k.level != ir::Level::lane || k.body.index >= k.regions.size())
      throw InternalError(k.name + ": not a lane-level kernel", k.loc);
    regs_.assign(k.values.size(), kNone);
    places_.assign(k.values.size(), kNone);
    for (uint32_t i = 0; i < watched.size(); ++i) watched_before_[watched[i].before.index].push_back(i);
  }

  Bytecode run() {
    const auto& args = k_.region(k_.body).args;
    for (size_t i = 0; i < args.size(); ++i) {
      if (!k_.type(args[i]).is_ref)
        throw InternalError(k_.name + ": arg " + std::to_string(i) + " is not a Ref", k_.loc);
      const DType t = k_.type(args[i]).dtype;
      out_.places.push_back({Place::Arg{static_cast<uint32_t>(i)}, t, size_bytes(t)});
      places_[args[i].index] = static_cast<uint32_t>(i);
      regs_[args[i].index] = fresh(0);
    }
    out_.written.assign(args.size(), false);
    int64_t cell = 8;
    for (const Op& op : k_.ops)
      if (op.code == Opcode::alloc_scratch && !op.results.empty())
        cell = std::min(cell, size_bytes(k_.type(op.results[0]).dtype));
    out_.scratch_cell = cell;
    out_.watches.resize(watched_.size());
    region(k_.body);
    emit({.code = Code::end});
    return std::move(out_);
  }

 private:
  [[noreturn]] void malformed(const Op& op, const std::string& what) const {
    throw InternalError(k_.name + ": " + op_text(k_, op) + ": " + what, op.loc);
  }

  uint32_t fresh(uint64_t initial = 0) {
    out_.registers.push_back(initial);
    return static_cast<uint32_t>(out_.registers.size() - 1);
  }
  // One register; of a matrix, as many as each invocation's part of it takes.
  uint32_t count(Value v) const {
    const ir::Type& t = k_.type(v);
    if (t.is_ref || t.shape.size() != 2) return 1;
    return static_cast<uint32_t>(cdiv(num_elements(t.shape), std::max<int64_t>(k_.lane.subgroup_size, 1)));
  }
  uint32_t def(Value v) {
    if (v.index >= regs_.size()) throw InternalError(k_.name + ": a value that does not exist", k_.loc);
    if (regs_[v.index] != kNone) return regs_[v.index];
    regs_[v.index] = fresh();
    for (uint32_t i = 1; i < count(v); ++i) fresh();
    return regs_[v.index];
  }
  uint32_t use(const Op& op, size_t position) {
    if (position >= op.operands.size()) malformed(op, "too few operands");
    return use(op, op.operands[position]);
  }
  uint32_t use(const Op& op, Value v) {
    if (v.index >= regs_.size() || regs_[v.index] == kNone)
      malformed(op, "uses %" + std::to_string(v.index) + " before it is defined");
    return regs_[v.index];
  }
  uint32_t emit(Instr i) {
    out_.code.push_back(i);
    return static_cast<uint32_t>(out_.code.size() - 1);
  }
  uint32_t here() const { return static_cast<uint32_t>(out_.code.size()); }
  uint32_t sync() {
    out_.syncs.push_back({counters_});
    return static_cast<uint32_t>(out_.syncs.size() - 1);
  }

  // A value that has just been made, if its range says more than its dtype.
  void claim(Value v) {
    if (v.index >= ranges_.size() || !ranges_[v.index]) return;
    const DType t = k_.type(v).dtype;
    if (is_float(t) || k_.type(v).is_ref || ranges_[v.index] == values_of(t)) return;
    const Instr i{.code = Code::within, .a = def(v), .aux = static_cast<uint32_t>(out_.claims.size())};
    if (const Op* made = k_.def(v); made && made->code == Opcode::constant) out_.once.push_back(i);
    else emit(i);
    out_.claims.push_back({v, *ranges_[v.index], 64 - (t == DType::boolean ? 1 : bits(t)), is_signed_int(t)});
  }

  void move_all(const Op& op, const std::vector<uint32_t>& to, const std::vector<uint32_t>& from) {
    if (to.size() != from.size())
      malformed(op, std::to_string(from.size()) + " values for " + std::to_string(to.size()) + " places");
    bool overlap = false;
    for (size_t i = 0; i < to.size(); ++i)
      for (size_t j = i + 1; j < from.size(); ++j) overlap |= to[i] == from[j];
    if (!overlap) {
      for (size_t i = 0; i < to.size(); ++i)
        if (to[i] != from[i]) emit({.code = Code::move, .dst = to[i], .a = from[i]});
      return;
    }
    auto& list = out_.moves.emplace_back();
    for (size_t i = 0; i < to.size(); ++i) list.emplace_back(to[i], from[i]);
    emit({.code = Code::moves, .aux = static_cast<uint32_t>(out_.moves.size() - 1)});
  }
  std::vector<uint32_t> defs(const std::vector<Value>& values, size_t skip = 0) {
    std::vector<uint32_t> r;
    for (size_t i = skip; i < values.size(); ++i) {
      const uint32_t first = def(values[i]);
      for (uint32_t j = 0; j < count(values[i]); ++j) r.push_back(first + j);
    }
    return r;
  }
  std::vector<uint32_t> uses(const Op& op, const std::vector<Value>& values, size_t skip = 0) {
    std::vector<uint32_t> r;
    for (size_t i = skip; i < values.size(); ++i) {
      if (values[i].index < k_.values.size() && k_.type(values[i]).is_ref) malformed(op, "carries a Ref");
      const uint32_t first = use(op, values[i]);
      for (uint32_t j = 0; j < count(values[i]); ++j) r.push_back(first + j);
    }
    return r;
  }

  void watch(OpId before) {
    const auto it = watched_before_.find(before.index);
    if (it == watched_before_.end()) return;
    const Op& o = k_.op(before);
    for (const uint32_t i : it->second) {
      Watch& w = out_.watches[i];
      for (const auto& [factor, v] : watched_[i].sum) {
        const uint32_t reg = use(o, v);
        const DType t = k_.type(v).dtype;
        if (is_float(t) || k_.type(v).is_ref || !k_.type(v).shape.empty()) malformed(o, "a sum of no integers");
        w.terms.push_back({factor, reg, 64 - (t == DType::boolean ? 1 : bits(t)), is_signed_int(t)});
      }
      if (watched_[i].mask) w.mask = use(o, watched_[i].mask);
      emit({.code = Code::watch, .aux = i, .source = before.index});
    }
  }

  // Emits the region's ops; returns its yield.
  const Op& region(RegionId r) {
    if (r.index >= k_.regions.size() || k_.region(r).ops.empty())
      throw InternalError(k_.name + ": a region without a yield", k_.loc);
    const auto& ops = k_.region(r).ops;
    for (const OpId id : ops) {
      if (id.index >= k_.ops.size()) throw InternalError(k_.name + ": an op that does not exist", k_.loc);
      watch(id);
      if (id == ops.back()) continue;
      op(k_.op(id), id.index);
      for (const Value v : k_.op(id).results) claim(v);
    }
    const Op& last = k_.op(ops.back());
    if (last.code != Opcode::yield) malformed(last, "a region ends with it instead of a yield");
    return last;
  }

  void op(const Op& o, uint32_t source) {
    if (!ir::info(o.code).lane || o.code == Opcode::yield) malformed(o, "cannot run at lane level");
    if (ir::is_elementwise(o.code)) return elementwise(o, source);
    if (ir::is_control(o.code)) return control(o, source);
    if (ir::accesses_ref(o.code)) return memory(o, source);
    if (ir::is_program_op(o.code)) malformed(o, "is of programs of several workgroups, which do not run here");
    if (ir::is_barrier(o.code)) {
      const bool all = o.code == Opcode::barrier;
      if (!all) out_.subgroup_ops = true;
      emit({.code = all ? Code::barrier : Code::subgroup_barrier, .aux = sync(), .source = source});
      return;
    }
    if (ir::is_tensor_op(o.code)) return tensor(o, source);
    if (o.code == Opcode::async_wait) return;  // stores happen at once here
    if (ir::is_group(o.code)) return subgroup(o, source);
    if (ir::is_packed(o.code)) return packed(o, source);
    if (ir::is_matrix(o.code) || o.code == Opcode::pack) return matrix(o, source);
    if (o.code == Opcode::report) {
      emit({.code = Code::report,
            .a = use(o, 0),
            .aux = static_cast<uint32_t>(o.attr(ir::Attr::mask)),
            .source = source});
      return;
    }
    if (o.results.size() != 1) malformed(o, "cannot run at lane level");
    if (ir::is_launch(o.code)) return launch(o);
    if (ir::makes_ref(o.code)) return ref(o, source);
    // A constant, or loops_cut: no loop is cut here.
    out_.registers[def(o.results[0])] = o.code == Opcode::constant ? static_cast<uint64_t>(o.attr(ir::Attr::bits)) : 0;
  }

  void control(const Op& o, uint32_t source) {
    switch (ir::Control(o.code)) {
      case ir::Control::for_: return for_loop(o, source);
      case ir::Control::while_: return while_loop(o, source);
      case ir::Control::run_scoped: malformed(o, "cannot run at lane level");
      case ir::Control::if_: {
        if (o.regions.size() != 2) malformed(o, "wants two regions");
        const uint32_t branch = emit({.code = Code::branch_false, .a = use(o, 0), .source = source});
        const std::vector<uint32_t> then = uses(o, region(o.regions[0]).operands);
        move_all(o, defs(o.results), then);
        const uint32_t skip = emit({.code = Code::jump});
        out_.code[branch].aux = here();
        const std::vector<uint32_t> other = uses(o, region(o.regions[1]).operands);
        move_all(o, defs(o.results), other);
        out_.code[skip].aux = here();
        return;
      }
      case ir::Control::switch_: {
        if (o.regions.empty()) malformed(o, "has no regions");
        const uint32_t n = static_cast<uint32_t>(o.regions.size()), first = static_cast<uint32_t>(out_.targets.size());
        out_.targets.resize(first + n);
        emit({.code = Code::switch_, .a = use(o, 0), .d = n, .aux = first, .source = source});
        std::vector<uint32_t> skips;
        for (uint32_t i = 0; i < n; ++i) {
          out_.targets[first + i] = here();
          const std::vector<uint32_t> yielded = uses(o, region(o.regions[i]).operands);
          move_all(o, defs(o.results), yielded);
          skips.push_back(emit({.code = Code::jump}));
        }
        for (const uint32_t s : skips) out_.code[s].aux = here();
        return;
      }
    }
  }

  void launch(const Op& o) {
    const Value r = o.results[0];
    switch (ir::Launch(o.code)) {
      case ir::Launch::workgroup_index: out_.workgroup_index.push_back(def(r)); return;
      case ir::Launch::num_workgroups: out_.num_workgroups.push_back(def(r)); return;
      case ir::Launch::local_index: out_.local_index.push_back(def(r)); return;
      case ir::Launch::subgroup_id: out_.subgroup_id.push_back(def(r)); return;
      case ir::Launch::lane_id: out_.lane_id.push_back(def(r)); return;
      case ir::Launch::thread_index: malformed(o, "is of programs of several workgroups, which do not run here");
      case ir::Launch::extent: {
        const int64_t i = o.attr(ir::Attr::index);
        if (i < 0 || i >= static_cast<int64_t>(k_.lane.extents.size())) malformed(o, "names no extent");
        out_.extents.emplace_back(def(r), i);
      }
    }
  }

  void ref(const Op& o, uint32_t source) {
    const Value r = o.results[0];
    const DType t = k_.type(r).dtype;
    switch (ir::RefOp(o.code)) {
      case ir::RefOp::alloc_shared:
      case ir::RefOp::alloc_scratch: {
        const bool shared = o.code == Opcode::alloc_shared;
        const int64_t offset = o.attr(ir::Attr::offset), stride = shared ? ir::arena_stride(t) : size_bytes(t);
        const int64_t bytes = shared ? k_.lane.shared_bytes : k_.lane.scratch_bytes;
        if (k_.type(r).shape.size() != 1 || offset < 0 || offset % stride != 0) malformed(o, "offset or type is wrong");
        // Beyond the arena's end nothing may be touched, whatever the Ref says.
        const int64_t room = offset > bytes ? 0 : (bytes - offset) / stride;
        places_[r.index] = static_cast<uint32_t>(out_.places.size());
        const int64_t length = std::min(room, std::max<int64_t>(k_.type(r).shape[0], 0));
        out_.places.push_back({Place::Arena{shared, offset, length}, t, stride});
        def(r);
        return;
      }
      case ir::RefOp::alloc_program: malformed(o, "is of programs of several workgroups, which do not run here");
      case ir::RefOp::report_memory:
        places_[r.index] = static_cast<uint32_t>(out_.places.size());
        out_.places.push_back({Place::Report{}, t, size_bytes(t)});
        def(r);
        return;
      case ir::RefOp::view: {
        const uint32_t base = use(o, 0);
        places_[r.index] = places_[o.operands[0].index];
        if (places_[r.index] == kNone || o.operands.size() != 2 || k_.type(o.operands[1]).dtype != DType::i64)
          malformed(o, "wants a Ref and an i64 offset");
        emit({.code = Code::view, .dst = def(r), .a = base, .b = use(o, 1), .source = source});
      }
    }
  }

  void elementwise(const Op& o, uint32_t source) {
    const int n = ir::info(o.code).arity;
    if (static_cast<int>(o.operands.size()) != n || o.results.size() != 1 || n < 1)
      malformed(o, "wrong number of operands");
    Instr i{.source = source};
    i.op = o.code;
    i.operand = k_.type(o.operands[o.code == Opcode::select ? 1 : 0]).dtype;
    i.result = k_.type(o.results[0]).dtype;
    for (const Value v : o.operands)
      if (k_.type(v).is_ref || !k_.type(v).shape.empty()) malformed(o, "operates on a Ref or an array");
    i.a = use(o, 0);
    if (n > 1) i.b = use(o, 1);
    if (n > 2) i.c = use(o, 2);
    i.code = fast_code(o.code, i.operand, i.result);
    if (i.code == Code::end) {
      i.code = n == 1 ? Code::eval1 : n == 2 ? Code::eval2 : Code::eval3;
      i.aux = static_cast<uint32_t>(out_.functions.size());
      out_.functions.push_back(reference::scalar_function(o.code, i.operand, i.result));
      if (!out_.functions.back()) malformed(o, "is not defined for its dtypes");
    }
    i.dst = def(o.results[0]);
    emit(i);
  }

  void packed(const Op& o, uint32_t source) {
    const bool packs = o.code == Opcode::pack4;
    if (o.operands.size() != (packs ? 4 : 3) || o.results.size() != 1) malformed(o, "wrong number of operands");
    for (const Value v : o.operands)
      if (k_.type(v).is_ref || !k_.type(v).shape.empty()) malformed(o, "operates on a Ref or an array");
    Instr i{.code = packs ? Code::pack : Code::dot4, .source = source};
    i.operand = k_.type(o.operands[0]).dtype;
    i.result = k_.type(o.operands[1]).dtype;
    i.a = use(o, 0);
    i.b = use(o, 1);
    i.c = use(o, 2);
    if (packs) i.d = use(o, 3);
    i.dst = def(o.results[0]);
    emit(i);
  }

  // A vector access is its elements' accesses, the first of which checks the alignment.
  void vector_access(const Op& o, uint32_t source) {
    const bool store = o.code == Opcode::store;
    const uint32_t place = places_[o.operands[0].index];
    const auto width = static_cast<size_t>(o.index[0].slice()->size);
    if (place == kNone || (store ? o.operands.size() < width + 1 : o.results.size() != width))
      malformed(o, "is no vector access");
    const uint32_t first =
        o.index[0].is_static() ? fresh(static_cast<uint32_t>(o.index[0].constant())) : use(o, *o.index[0].operand());
    for (size_t j = 0; j < width; ++j) {
      uint32_t at = first;
      if (j) {
        at = fresh(0);
        emit({.code = Code::add_i32,
              .op = Opcode::add,
              .operand = DType::i32,
              .result = DType::i32,
              .dst = at,
              .a = first,
              .b = fresh(static_cast<uint32_t>(j)),
              .source = source});
      }
      Instr i{.code = store ? Code::store : Code::load, .a = use(o, 0), .b = at, .aux = place, .source = source};
      if (store) i.d = use(o, 1 + j);
      else i.dst = def(o.results[j]);
      i.operand = i.result = out_.places[place].dtype;
      i.align = j ? 1 : static_cast<uint32_t>(width);
      emit(i);
    }
    if (store) written(place);
  }
  void written(uint32_t place) {
    if (const Place::Arg* arg = out_.places[place].arg()) out_.written[arg->number] = true;
  }

  void memory(const Op& o, uint32_t source) {
    if (ir::is_vector_access(o)) return vector_access(o, source);
    const bool store = o.code == Opcode::store, atomic = ir::is_atomic(o.code);
    Instr i{.code = store ? Code::store : atomic ? Code::atomic : Code::load, .source = source};
    i.a = use(o, 0);
    const uint32_t place = places_[o.operands[0].index];
    if (place == kNone) malformed(o, "operand 0 does not come from an arg or an arena by views");
    i.aux = place;
    i.operand = i.result = out_.places[place].dtype;
    if (o.index.size() != 1 || !o.index[0].is_integer()) malformed(o, "wants one integer index");
    if (o.index[0].is_static())
      i.b = fresh(static_cast<uint32_t>(std::clamp<int64_t>(o.index[0].constant(), INT32_MIN, INT32_MAX)));
    else i.b = use(o, *o.index[0].operand());
    if (o.has_mask()) i.c = use(o, static_cast<size_t>(o.mask_position()));
    if (atomic) {
      if (o.has_mask()) malformed(o, "takes no mask");
      i.op = o.code == Opcode::atomic_cas ? o.code : static_cast<Opcode>(o.attr(ir::Attr::kind));
      if (o.code == Opcode::atomic_cas) i.c = use(o, 2);
    }
    if (store || atomic) i.d = use(o, 1);
    if (atomic) i.operand = i.result = k_.type(o.operands[1]).dtype;  // attr bits: of the element's width
    if (!store) {
      if (o.has_other()) i.d = use(o, static_cast<size_t>(o.other_position()));
      if (o.results.size() != 1) malformed(o, "has no result");
      i.dst = def(o.results[0]);
    }
    if (store || atomic) written(place);
    emit(i);
  }

  void subgroup(const Op& o, uint32_t source) {
    out_.subgroup_ops = true;
    if (o.results.size() != 1) malformed(o, "has no result");
    Instr i{.a = use(o, 0), .source = source};
    i.operand = i.result = k_.type(o.results[0]).dtype;
    if (o.code == Opcode::subgroup_reduce || o.code == Opcode::subgroup_scan) {
      i.code = o.code == Opcode::subgroup_scan ? Code::scan : Code::reduce;
      const int64_t kind = o.attr(ir::Attr::kind);
      if (kind < 0 || kind >= ir::kNumOpcodes || !ir::info(static_cast<Opcode>(kind)).associative)
        malformed(o, "kind is no associative elementwise op");
      i.op = static_cast<Opcode>(kind);
    } else if (o.code == Opcode::subgroup_shuffle) {
      i.code = Code::shuffle;
      i.b = use(o, 1);
    } else {
      i.code = Code::shuffle_xor;
      i.d = static_cast<uint32_t>(o.attr(ir::Attr::mask));
    }
    i.dst = def(o.results[0]);
    i.aux = sync();
    emit(i);
  }

  void matrix(const Op& o, uint32_t source) {
    Instr i{.source = source};
    if (o.code == Opcode::pack) {
      i.code = Code::pack;
      i.operand = k_.type(o.operands.at(0)).dtype;
      uint32_t* const places[] = {&i.a, &i.b, &i.c, &i.d};
      if (o.operands.size() > 4) malformed(o, "has too many operands");
      for (size_t n = 0; n < o.operands.size(); ++n) *places[n] = use(o, n);
      i.dst = def(o.results.at(0));
      emit(i);
      return;
    }
    if (k_.lane.subgroup_size <= 0) malformed(o, "needs a required subgroup_size");
    out_.subgroup_ops = true;
    if (o.code == Opcode::warpgroup_multiply_add) return warpgroup(o, source);
    if (o.code == Opcode::warpgroup_wait) return move_all(o, defs(o.results), uses(o, o.operands));
    const Value of = o.code == Opcode::matrix_store      ? o.operands.at(1)
                     : o.code == Opcode::matrix_elements ? o.operands.at(0)
                                                         : o.results.at(0);
    const ir::Type& t = k_.type(of);
    if (t.shape.size() != 2) malformed(o, "makes no matrix");
    MatrixOp m{.rows = t.shape[0], .cols = t.shape[1], .dtype = t.dtype};
    if (o.code == Opcode::matrix_fill) {
      i.code = Code::matrix_fill;
      i.a = use(o, 0);
    } else if (o.code == Opcode::matrix_elements) {
      i.code = Code::matrix_elements;
      i.a = use(o, 0);
      MatrixOp::Lanes lanes;
      for (const Value v : o.results) lanes.registers.push_back(def(v));
      m.what = std::move(lanes);
    } else if (o.code == Opcode::matrix_of) {
      i.code = Code::matrix_of;
      MatrixOp::Lanes lanes{.words = o.attr(ir::Attr::kind) == static_cast<int64_t>(ir::MatrixUse::left)};
      for (size_t n = 0; n < o.operands.size(); ++n) lanes.registers.push_back(use(o, n));
      m.what = std::move(lanes);
    } else if (o.code == Opcode::matrix_multiply) {
      i.code = Code::multiply;
      i.a = use(o, 0), i.b = use(o, 1);
    } else if (o.code == Opcode::matrix_multiply_add) {
      i.code = Code::multiply_add;
      const ir::Type &a = k_.type(o.operands.at(0)), &b = k_.type(o.operands.at(1));
      if (a.shape.size() != 2 || b.shape.size() != 2) malformed(o, "multiplies no matrices");
      m.what = MatrixOp::Product{.a = a.dtype, .b = b.dtype, .depth = a.shape[1], .right_cols = b.shape[1]};
      i.a = use(o, 0), i.b = use(o, 1), i.c = use(o, 2);
    } else {
      const bool store = o.code == Opcode::matrix_store;
      i.code = store ? Code::matrix_store : Code::matrix_load;
      i.a = use(o, 0);
      i.b = use(o, store ? 2 : 1);
      if (store) i.c = use(o, 1);
      const uint32_t place = places_[o.operands[0].index];
      if (place == kNone || !out_.places[place].is_shared()) malformed(o, "takes no shared memory");
      m.what = MatrixOp::Memory{.place = place,
                                .stride = o.attr(ir::Attr::stride),
                                .by_columns = o.attr_or(ir::Attr::reverse, 0) != 0,
                                .pieces = o.attr_or(ir::Attr::pieces, 0) == 1,
                                .swizzled = o.attr_or(ir::Attr::pieces, 0) == 2};
    }
    if (!o.results.empty() && i.code != Code::matrix_elements) i.dst = def(o.results[0]);
    i.d = static_cast<uint32_t>(out_.matrices.size());
    out_.matrices.push_back(std::move(m));
    i.aux = sync();
    emit(i);
  }

  // Each wait is a barrier, too.
  void tensor(const Op& o, uint32_t source) {
    if (o.code == Opcode::tensor_wait) {
      emit({.code = Code::barrier, .a = use(o, 0), .aux = sync(), .source = source});
      return;
    }
    const auto at = static_cast<size_t>(o.attr(ir::Attr::index));
    if (at >= k_.lane.tensors.size() || o.operands.size() < 5) malformed(o, "names no tensor");
    const ir::TensorBox& t = k_.lane.tensors[at];
    TensorOp x{.array = places_[o.operands[0].index],
               .to = places_[o.operands[1].index],
               .count = o.attr(ir::Attr::count),
               .box = Shape(t.box.begin(), t.box.end()),
               .at = {}};
    if (x.array == kNone || x.to == kNone || !out_.places[x.array].arg() || !out_.places[x.to].is_shared() ||
        x.box.size() != o.operands.size() - 4)
      malformed(o, "does not copy an array to shared memory");
    for (size_t i = 4; i < o.operands.size(); ++i) x.at.push_back(use(o, i));
    Instr i{.code = Code::tensor_load, .a = use(o, 1), .b = use(o, 2), .c = use(o, 3), .source = source};
    i.d = static_cast<uint32_t>(out_.tensors.size());
    out_.tensors.push_back(std::move(x));
    emit(i);
  }

  // Product by product, each sum from its own left matrices along k.
  void warpgroup(const Op& o, uint32_t source) {
    const auto lefts = static_cast<size_t>(o.attr(ir::Attr::count));
    const ir::Type &right = k_.type(o.operands.at(0)), &left = k_.type(o.operands.at(1));
    const size_t along = static_cast<size_t>(right.shape[0] / left.shape[1]), rows = lefts / along,
                 across = o.results.size() / rows;
    for (size_t r = 0; r < o.results.size(); ++r) {
      const ir::Type& sum = k_.type(o.results[r]);
      MatrixOp::Product product{
          .a = left.dtype, .b = right.dtype, .depth = left.shape[1], .right_cols = right.shape[1]};
      product.right_col = static_cast<int64_t>(r % across) * sum.shape[1];
      product.of_four = left.shape[0] != sum.shape[0];
      uint32_t from = use(o, 1 + lefts + r);
      for (size_t k = 0; k < along; ++k) {
        product.right_row = static_cast<int64_t>(k) * product.depth;
        Instr i{.code = Code::multiply_add, .source = source};
        i.a = use(o, 1 + r / across * along + k), i.b = use(o, 0), i.c = from;
        from = i.dst = def(o.results[r]);
        i.d = static_cast<uint32_t>(out_.matrices.size());
        out_.matrices.push_back({.rows = sum.shape[0], .cols = sum.shape[1], .dtype = sum.dtype, .what = product});
        i.aux = sync();
        emit(i);
      }
    }
  }

  void for_loop(const Op& o, uint32_t source) {
    if (o.operands.size() < 3 || o.regions.size() != 1) malformed(o, "wants bounds, a step and one region");
    const std::vector<Value> args = k_.region(o.regions[0]).args;
    if (args.empty()) malformed(o, "its region has no induction variable");
    const uint32_t upper = use(o, 1), step = use(o, 2), counter = fresh(), iv = fresh();
    move_all(o, defs(args, 1), uses(o, o.operands, 3));
    def(args[0]);
    emit({.code = Code::for_begin, .dst = iv, .a = use(o, 0), .b = upper, .c = step, .d = counter, .source = source});
    const uint32_t head =
        emit({.code = Code::for_head, .dst = def(args[0]), .a = iv, .b = upper, .d = counter, .source = source});
    claim(args[0]);
    counters_.push_back(counter);
    const Op& last = region(o.regions[0]);
    counters_.pop_back();
    move_all(o, defs(args, 1), uses(o, last.operands));
    emit({.code = Code::for_next, .dst = iv, .c = step, .aux = head, .source = source});
    out_.code[head].aux = here();
    const std::vector<uint32_t> state = defs(args, 1);
    move_all(o, defs(o.results), state);
  }

  void while_loop(const Op& o, uint32_t source) {
    if (o.regions.size() != 2) malformed(o, "wants two regions");
    const std::vector<Value> before = k_.region(o.regions[0]).args, body = k_.region(o.regions[1]).args;
    const uint32_t counter = fresh();
    move_all(o, defs(before), uses(o, o.operands));
    emit({.code = Code::iteration, .d = kNone, .aux = counter, .source = source});
    const uint32_t head = emit({.code = Code::iteration, .d = 0, .aux = counter, .source = source});
    counters_.push_back(counter);
    const Op& cond = region(o.regions[0]);
    const uint32_t exit = emit({.code = Code::branch_false, .a = use(cond, 0), .source = source});
    const std::vector<uint32_t> state = defs(before);
    move_all(o, defs(body), state);
    const Op& last = region(o.regions[1]);
    counters_.pop_back();
    move_all(o, defs(before), uses(o, last.operands));
    emit({.code = Code::jump, .aux = head});
    out_.code[exit].aux = here();
    out_.code[head].d = here() - head;  // what an iteration costs, at most
    move_all(o, defs(o.results), state);
  }

  const Kernel& k_;
  const std::vector<Bounds>& ranges_;
  const std::vector<WatchedSum>& watched_;
  std::unordered_map<uint32_t, std::vector<uint32_t>> watched_before_;  // by op
  Bytecode out_;
  std::vector<uint32_t> regs_, places_, counters_;
};
}  // namespace

uint64_t MatrixOp::Product::add(DType t, uint64_t sum, uint64_t x, uint64_t y) const {
  const DType wide = is_float(t) ? DType::f32 : DType::i64;
  const uint64_t p = reference::eval(Opcode::convert, a, wide, &x), q = reference::eval(Opcode::convert, b, wide, &y);
  if (wide == DType::i64) return static_cast<uint32_t>(sum + p * q);
  const auto number = [](uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); };
  return std::bit_cast<uint32_t>(static_cast<float>(static_cast<double>(number(p)) * number(q) + number(sum)));
}

Bytecode flatten(const Kernel& k, const std::vector<Bounds>& ranges, const std::vector<WatchedSum>& watched) {
  return Flattener(k, ranges, watched).run();
}

}  // namespace tessera::lane
