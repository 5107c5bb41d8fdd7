// What a lane-level kernel is:
//   1. Level lane; every op is legal there; every value is a scalar or a rank-1 Ref (space global or shared).
//   2. The body has one global Ref of unknown length per input and output. Only outputs are stored to.
//   3. Refs come from the body's args, alloc_shared, alloc_scratch, report_memory and views of those: never from
//      carries, yields or selects.
//   4. load and store take one i32 integer index; a stored value, `other` and a loaded value have the Ref's dtype; a
//      mask is a bool. A slice for an index makes a vector access (vectorize.h): 4, 8 or 16 bytes of global memory, or
//      2 or 4 words of shared memory, aligned to them, without a mask.
//      Atomics take such an index too, and no mask; they update args and the report, those of 32-bit integers the
//      arenas, too.
//   5. An arena Ref has a static length, lies within LaneInfo's bytes, and is aligned to its elements' distance.
//   6. barrier stands only under workgroup-uniform control, subgroup ops under subgroup-uniform control at least
//      (uniformity.h).
//   7. Subgroup ops of a kernel that requires a subgroup size find full subgroups.
//   8. loops_cut, report and report_memory need a report (LaneInfo::report_bytes).
//   9. Of arrays of static size, every element that an access takes is proved to be there, by prover.h (verify_lane
//      alone asks for that).
//  10. extent reads an entry of LaneInfo::extents in its width; the arrays of LaneInfo have one length. Those of
//      steps_extent have one width.
//  11. A matrix (a value of rank 2) belongs to a full subgroup of a size that the kernel requires: it is made, carried
//      and used under subgroup-uniform control. Only accumulators are carried. Its loads and stores take words of
//      shared memory from a place that is the same for the subgroup.
//  12. tensor_load and tensor_wait stand under workgroup-uniform control and take what is the same for the workgroup. A
//      load is of an array of the body, as LaneInfo::tensors says, in rows of 128 bytes, to room in the arena.
#include "codegen/lane/verify.h"

#include <algorithm>

#include "codegen/lane/prover.h"
#include "codegen/lane/uniformity.h"

namespace tessera::lane {
namespace {
using ir::Kernel, ir::Op, ir::Opcode, ir::RegionId, ir::Type, ir::Value;
using U = Uniformity;

bool is_int_scalar(const Type& t, DType d) { return t.is_scalar() && t.dtype == d; }

class Verifier {
 public:
  explicit Verifier(const Kernel& k) : k_(k) {}

  std::vector<ir::Problem> run() {
    if (k_.level != ir::Level::lane) {
      kernel_problem("level is tile, but lane is wanted");
      return std::move(problems_);
    }
    if (k_.body.index >= k_.regions.size()) {
      kernel_problem("there is no body");
      return std::move(problems_);
    }
    if (!tables_hold()) return std::move(problems_);
    header();
    uniformity_ = analyze_uniformity(k_);
    for (const Value v : k_.region(k_.body).args) type(v, nullptr);
    region(k_.body);
    return std::move(problems_);
  }

 private:
  void kernel_problem(std::string what) { problems_.push_back({k_.name, std::move(what), k_.loc}); }
  void problem(const Op& op, std::string what) { problems_.push_back({op_text(k_, op), std::move(what), op.loc}); }

  // Every index into the tables is in range, so that the rest may follow them.
  bool tables_hold() {
    const size_t before = problems_.size();
    for (const Op& op : k_.ops) {
      for (const auto& list : {op.operands, op.results})
        for (const Value v : list)
          if (v.index >= k_.values.size())
            problems_.push_back({std::string(ir::name(op.code)), "names a value that does not exist", op.loc});
      for (const RegionId r : op.regions)
        if (r.index >= k_.regions.size())
          problems_.push_back({std::string(ir::name(op.code)), "names a region that does not exist", op.loc});
    }
    for (const ir::Region& r : k_.regions)
      for (const ir::OpId o : r.ops)
        if (o.index >= k_.ops.size()) kernel_problem("a region names an op that does not exist");
    return problems_.size() == before;
  }

  void header() {
    const ir::LaneInfo& lane = k_.lane;
    if (lane.workgroup_size < 1)
      kernel_problem("workgroup_size is " + std::to_string(lane.workgroup_size) + ", but at least 1 is wanted");
    if (lane.subgroup_size < 0)
      kernel_problem("subgroup_size is " + std::to_string(lane.subgroup_size) + ", but at least 0 is wanted");
    if (lane.shared_bytes < 0 || lane.scratch_bytes < 0)
      kernel_problem("shared_bytes " + std::to_string(lane.shared_bytes) + " and scratch_bytes " +
                     std::to_string(lane.scratch_bytes) + " must not be negative");
    if (lane.extents.size() != lane.extent_is_64.size())
      kernel_problem(std::to_string(lane.extents.size()) + " extents, but " + std::to_string(lane.extent_is_64.size()) +
                     " widths");
    if (const auto n = static_cast<int64_t>(std::min(lane.extents.size(), lane.extent_is_64.size())),
        at = int64_t{lane.steps_extent};
        at < -1 || (at >= 0 && (at + 2 > n || lane.extent_is_64[static_cast<size_t>(at)] !=
                                                  lane.extent_is_64[static_cast<size_t>(at) + 1])))
      kernel_problem("steps_extent is " + std::to_string(at) + ", but two extents of one width, of the " +
                     std::to_string(n) + ", are wanted");
    const auto& args = k_.region(k_.body).args;
    if (args.size() != k_.blocks.size())
      kernel_problem("the body has " + std::to_string(args.size()) + " args, but there are " +
                     std::to_string(k_.blocks.size()) + " inputs and outputs");
    for (size_t i = 0; i < args.size(); ++i) {
      const Type& t = k_.type(args[i]);
      if (!t.is_ref || t.space != ir::MemorySpace::global || t.shape != Shape{-1})
        kernel_problem("arg " + std::to_string(i) + " is " + to_string(t) +
                       ", but a global Ref of unknown length is wanted");
      else if (i < k_.blocks.size() && k_.blocks[i].dtype != t.dtype)
        kernel_problem("arg " + std::to_string(i) + " is " + to_string(t) + ", but " + k_.blocks[i].origin +
                       " has dtype " + std::string(name(k_.blocks[i].dtype)));
    }
  }

  void type(Value v, const Op* op) {
    const Type& t = k_.type(v);
    std::string what;
    const bool matrix = !t.is_ref && t.shape.size() == 2 && t.shape[0] > 0 && t.shape[1] > 0;
    if (!t.is_ref && !t.shape.empty() && !matrix)
      what = "has type " + to_string(t) + ", but lane-level values are scalars";
    else if (t.is_ref && t.shape.size() != 1) what = "has type " + to_string(t) + ", but lane-level Refs have rank 1";
    else if (t.is_ref && t.space != ir::MemorySpace::global && t.space != ir::MemorySpace::shared)
      what = "has type " + to_string(t) + ", but lane-level Refs are global or shared";
    if (what.empty()) return;
    const std::string v_text = "%" + std::to_string(v.index);
    op ? problem(*op, v_text + " " + what) : kernel_problem(v_text + " " + what);
  }

  void region(RegionId r) {
    const auto& ops = k_.region(r).ops;
    if (ops.empty() || k_.op(ops.back()).code != Opcode::yield)
      kernel_problem("region " + std::to_string(r.index) + " does not end with a yield");
    for (const ir::OpId id : ops) op(k_.op(id), r);
  }

  void op(const Op& o, RegionId r) {
    const bool lane = ir::info(o.code).lane;
    if (!lane) problem(o, "is not a lane-level op");
    for (const Value v : o.results) type(v, &o);
    for (const Value v : o.operands) {
      if (!k_.type(v).is_ref) continue;
      const bool takes_ref = ir::accesses_ref(o.code) || o.code == Opcode::view || ir::is_matrix_access(o.code) ||
                             o.code == Opcode::tensor_load;
      if (!takes_ref)
        problem(o, "operand %" + std::to_string(v.index) + " is a Ref: only memory ops and view take one");
      else if (!root_of(k_, v))
        problem(o, "%" + std::to_string(v.index) +
                       " does not come from an arg, alloc_shared or alloc_scratch by views alone");
    }
    const U control = uniformity_.control[r.index];
    if ((o.code == Opcode::barrier || ir::is_program_op(o.code)) && control != U::workgroup)
      problem(o, "stands under " + std::string(name(control)) +
                     " control, but a barrier needs every enclosing condition and loop bound workgroup-uniform");
    if (ir::is_subgroup_op(o.code)) {
      if (control == U::varying)
        problem(o,
                "stands under varying control, but a subgroup op needs every enclosing condition and loop bound "
                "subgroup-uniform");
      if (k_.lane.subgroup_size > 0 && k_.lane.workgroup_size % k_.lane.subgroup_size != 0)
        problem(o, "needs full subgroups, but workgroup_size " + std::to_string(k_.lane.workgroup_size) +
                       " is no multiple of subgroup_size " + std::to_string(k_.lane.subgroup_size));
    }
    if (lane && ir::accesses_ref(o.code)) memory(o);
    if (o.code == Opcode::extent) extent(o);
    if (ir::makes_ref(o.code)) ref(o);
    if (ir::family(o.code) == ir::Family::report) report(o);
    if (ir::is_tensor_op(o.code)) tensor(o, control);
    if (ir::is_group(o.code)) group(o);
    matrices(o, r);
    for (const RegionId inner : o.regions) {
      for (const Value v : k_.region(inner).args) type(v, &o);
      region(inner);
    }
  }

  void memory(const Op& o) {
    const auto expect = [&](size_t position, const Type& wanted, const char* what) {
      if (position >= o.operands.size()) return problem(o, std::string("has no ") + what);
      const Type& t = k_.type(o.operands[position]);
      if (!(t == wanted))
        problem(o, std::string(what) + " is " + to_string(t) + ", but " + to_string(wanted) + " is wanted");
    };
    if (o.operands.empty() || !k_.type(o.operands[0]).is_ref) return problem(o, "operand 0 is not a Ref");
    Type element = Type::array(k_.type(o.operands[0]).dtype);
    if (ir::is_atomic(o.code) && o.attr_or(ir::Attr::bits, 0) && o.operands.size() > 1)
      element = Type::array(k_.type(o.operands[1]).dtype);
    if (o.code != Opcode::load) expect(1, element, o.code == Opcode::store ? "the stored value" : "the value");
    if (o.code == Opcode::atomic_cas) expect(2, element, "what the element is compared with");
    if (ir::is_atomic(o.code) && o.has_mask()) problem(o, "an atomic takes no mask");
    const bool vector = ir::is_vector_access(o);
    if (o.code == Opcode::load && (o.results.size() != (vector ? static_cast<size_t>(o.index[0].slice()->size) : 1) ||
                                   !(k_.type(o.results[0]) == element)))
      problem(o, "the result is not " + to_string(element));
    if (vector) vector_access(o, element);
    if (o.has_mask()) expect(static_cast<size_t>(o.mask_position()), Type::array(DType::boolean), "the mask");
    if (o.has_other()) expect(static_cast<size_t>(o.other_position()), element, "other");
    if (o.index.size() != 1 || (!vector && !o.index[0].is_integer())) return problem(o, "wants one integer index");
    if (!o.index[0].is_static()) expect(*o.index[0].operand(), Type::array(DType::i32), "the index");
    else if (const int64_t at = o.index[0].constant(); at < 0)
      problem(o, "index " + std::to_string(at) + " is negative");
    if (o.code == Opcode::load) return;
    const Value root = root_of(k_, o.operands[0]);
    if (ir::is_atomic(o.code) && root && k_.def(root) && k_.def(root)->code != Opcode::report_memory &&
        !(o.code == Opcode::atomic_rmw && is_int(element.dtype) && size_bytes(element.dtype) == 4))
      problem(o, "an atomic of anything but 32-bit integers updates args and the report only");
    if (root && !k_.def(root) && static_cast<int>(k_.value(root).number) < k_.num_prefetch)
      problem(o, "stores to a scalar-prefetch operand");
  }

  void vector_access(const Op& o, const Type& element) {
    const bool shared = k_.type(o.operands[0]).space == ir::MemorySpace::shared;
    const int64_t n = o.index[0].slice()->size,
                  distance = shared ? ir::arena_stride(element.dtype) : size_bytes(element.dtype), bytes = n * distance;
    if (n < 2 || (bytes != 4 && bytes != 8 && bytes != 16) || o.has_mask() || (shared && distance != 4))
      return problem(
          o, "a vector access takes 4, 8 or 16 bytes of global memory, or 2 or 4 words of shared memory, and no mask");
    if (o.code == Opcode::load) return;
    const size_t wanted = static_cast<size_t>(n) + (o.index[0].is_static() ? 1 : 2);
    if (o.operands.size() != wanted)
      return problem(o, "has " + std::to_string(o.operands.size()) + " operands, but a vector store of " +
                            std::to_string(n) + " elements has " + std::to_string(wanted));
    for (size_t i = 2; i <= static_cast<size_t>(n); ++i)
      if (const Type& t = k_.type(o.operands[i]); !(t == element))
        problem(o, "a stored value is " + to_string(t) + ", but " + to_string(element) + " is wanted");
  }

  void ref(const Op& o) {
    switch (ir::RefOp(o.code)) {
      case ir::RefOp::alloc_shared: return arena(o, k_.lane.shared_bytes, true);
      case ir::RefOp::alloc_scratch: return arena(o, k_.lane.scratch_bytes, false);
      case ir::RefOp::alloc_program: return arena(o, k_.lane.program_bytes, false);
      case ir::RefOp::report_memory: return report(o);
      case ir::RefOp::view:
        if (o.operands.size() != 2 || !is_int_scalar(k_.type(o.operands[1]), DType::i64))
          problem(o, "wants a Ref and an i64 offset");
    }
  }

  void report(const Op& o) {
    const int64_t bytes = 4 * std::max<int64_t>(static_cast<int64_t>(o.operands.size()), 1);
    if (k_.lane.report_bytes < bytes)
      problem(o, "needs a report of at least " + std::to_string(bytes) + " bytes, but report_bytes is " +
                     std::to_string(k_.lane.report_bytes));
  }

  void group(const Op& o) {
    switch (ir::Group(o.code)) {
      case ir::Group::barrier:
      case ir::Group::async_wait:
      case ir::Group::tensor_load:  // see tensor()
      case ir::Group::tensor_wait:
      case ir::Group::subgroup_shuffle_xor: break;
      case ir::Group::program_barrier: {
        const int64_t first = o.attr(ir::Attr::index), count = o.attr(ir::Attr::count);
        if (first < 0 || count < 0 || first + count > static_cast<int64_t>(k_.lane.barriers.size()))
          problem(o, "begins " + std::to_string(count) + " barriers anew from number " + std::to_string(first) +
                         " on, but there are " + std::to_string(k_.lane.barriers.size()));
        break;
      }
      case ir::Group::mbarrier_arrive:
      case ir::Group::mbarrier_copies:
      case ir::Group::mbarrier_wait:
        if (o.operands.size() != 1 || !is_int_scalar(k_.type(o.operands[0]), DType::i32))
          problem(o, "wants the number of a barrier, an i32");
        else if (const auto n = ir::constant_int(k_, o.operands[0]);
                 k_.lane.barriers.empty() || (n && (*n < 0 || *n >= static_cast<int64_t>(k_.lane.barriers.size()))))
          problem(o, "names a barrier, of which there are " + std::to_string(k_.lane.barriers.size()));
        break;
      case ir::Group::subgroup_barrier:
        if (k_.lane.subgroup_size <= 0) problem(o, "needs a required subgroup_size");
        break;
      case ir::Group::subgroup_reduce:
      case ir::Group::subgroup_scan:
        if (!o.has(ir::Attr::kind) || o.ints(ir::Attr::kind).size() != 1 || o.attr(ir::Attr::kind) < 0 ||
            o.attr(ir::Attr::kind) >= ir::kNumOpcodes ||
            !ir::info(static_cast<Opcode>(o.attr(ir::Attr::kind))).associative)
          problem(o, "kind is no associative elementwise op");
        break;
      case ir::Group::subgroup_shuffle:
        if (o.operands.size() != 2 || !is_int_scalar(k_.type(o.operands[1]), DType::i32))
          problem(o, "wants a value and an i32 lane");
    }
  }

  // What TensorBox and the op say of each other. A box's last dim is rows of 128 bytes, and a box begins where the
  // swizzle does.
  void tensor(const Op& o, U control) {
    constexpr int64_t kRow = 128;
    if (control != U::workgroup)
      problem(o, "stands under control that is not workgroup-uniform, but the workgroup does it together");
    const bool loads = o.code == Opcode::tensor_load;
    const Value barrier = o.operands.at(loads ? 3 : 0);
    if (const auto n = ir::constant_int(k_, barrier);
        k_.lane.barriers.empty() || (n && (*n < 0 || *n >= static_cast<int64_t>(k_.lane.barriers.size()))))
      problem(o, "names a barrier, of which there are " + std::to_string(k_.lane.barriers.size()));
    constexpr int64_t kBarrier = 8;
    if (const auto n = static_cast<int64_t>(k_.lane.barriers.size()); kBarrier * n > k_.lane.program_bytes)
      problem(
          o, "has " + std::to_string(n) + " barriers beside it in " + std::to_string(k_.lane.program_bytes) + " bytes");
    // Coordinates are scalars of the program: each invocation has the same, by whatever way (the interpreter compares).
    for (size_t i = 0; i < std::min<size_t>(o.operands.size(), 4); ++i)
      if (const Value v = o.operands[i]; !k_.type(v).is_ref && uniformity_.values[v.index] != U::workgroup)
        problem(o, "%" + std::to_string(v.index) + " is not the same for the workgroup");
    if (!loads) return;
    const auto at = static_cast<size_t>(o.attr(ir::Attr::index));
    if (at >= k_.lane.tensors.size())
      return problem(o, "names a tensor, of which there are " + std::to_string(k_.lane.tensors.size()));
    const ir::TensorBox& t = k_.lane.tensors[at];
    const auto& args = k_.region(k_.body).args;
    const auto array = static_cast<size_t>(t.array);
    if (array >= args.size() || args[array] != o.operands[0]) return problem(o, "has another array than its tensor");
    const Shape box(t.box.begin(), t.box.end());
    if (box.size() != o.operands.size() - 4 || box.size() != k_.blocks[array].array_shape.size() || box.empty() ||
        box.size() > 5 || box.back() * size_bytes(k_.blocks[array].dtype) != kRow)
      return problem(o, "has no box of rows of 128 bytes, with a coordinate for each dim of its array");
    const int64_t words = o.attr(ir::Attr::count) * num_elements(box) * size_bytes(k_.blocks[array].dtype) / 4;
    const Op* memory = k_.def(o.operands[1]);
    if (!memory || memory->code != Opcode::alloc_shared) return problem(o, "operand 1 is no shared memory");
    if (memory->attr(ir::Attr::offset) % 4 != 0 || k_.type(o.operands[1]).shape[0] < words)
      problem(o, "copies " + std::to_string(words) + " words to " + to_string(k_.type(o.operands[1])));
  }

  bool is_matrix(Value v) const { return !k_.type(v).is_ref && k_.type(v).shape.size() == 2; }
  // What it is in a product: fills, sums and what is carried are accumulators.
  ir::MatrixUse use(Value v) const {
    const Op* o = k_.def(v);
    return o && (o->code == Opcode::matrix_load || o->code == Opcode::matrix_of)
               ? static_cast<ir::MatrixUse>(o->attr_or(ir::Attr::kind, 2))
               : ir::MatrixUse::accumulator;
  }
  static bool is_sum(DType t) { return t == DType::f32 || t == DType::i32 || t == DType::u32; }

  void matrices(const Op& o, RegionId r) {
    const auto any = [&](const std::vector<Value>& values) {
      return std::any_of(values.begin(), values.end(), [&](Value v) { return is_matrix(v); });
    };
    if (!ir::is_matrix(o.code)) {
      const bool carries = ir::is_control(o.code) || o.code == Opcode::yield;
      if (!any(o.operands) && !any(o.results)) return;
      if (!carries) return problem(o, "takes or makes a matrix, which only matrix ops, loops and branches do");
    } else if (k_.lane.subgroup_size <= 0) {
      problem(o, "needs a required subgroup_size");
    }
    if (uniformity_.control[r.index] == U::varying) problem(o, "has a matrix under varying control");
    for (const Value v : o.operands) {
      if (!is_matrix(v)) continue;
      if (uniformity_.values[v.index] == U::varying)
        problem(o, "%" + std::to_string(v.index) + " is not one matrix for the subgroup");
      const size_t at = static_cast<size_t>(std::find(o.operands.begin(), o.operands.end(), v) - o.operands.begin());
      const ir::MatrixUse wanted =
          o.code == Opcode::matrix_multiply_add && at < 2 ? static_cast<ir::MatrixUse>(at)
          : o.code != Opcode::warpgroup_multiply_add || at > static_cast<size_t>(o.attr(ir::Attr::count))
              ? ir::MatrixUse::accumulator
          : at == 0 ? ir::MatrixUse::right
                    : ir::MatrixUse::left;
      if (use(v) != wanted) problem(o, "operand " + std::to_string(at) + " was not made for this place");
      if (wanted == ir::MatrixUse::accumulator && !is_sum(k_.type(v).dtype))
        problem(o, "an accumulator is " + to_string(k_.type(v)) + ", but f32, i32 or u32 is wanted");
    }
    if (ir::is_matrix_access(o.code)) {
      const Value at = o.operands.back();
      const Value root = root_of(k_, o.operands.at(0));
      if (!root || !k_.def(root) || k_.def(root)->code != Opcode::alloc_shared)
        problem(o, "operand 0 is no shared memory");
      if (uniformity_.values[at.index] == U::varying || uniformity_.values[o.operands[0].index] == U::varying)
        problem(o, "the place is not the same for the subgroup");
    }
    if (o.code == Opcode::warpgroup_multiply_add) warpgroup(o, r);
    if ((o.code == Opcode::matrix_elements || o.code == Opcode::matrix_of) && k_.lane.subgroup_size != 32)
      problem(o, "needs subgroups of 32");
    if (o.code == Opcode::matrix_fill && uniformity_.values[o.operands.at(0).index] == U::varying)
      problem(o, "the element is not the same for the subgroup");
    if ((o.code == Opcode::matrix_load || o.code == Opcode::matrix_of) &&
        use(o.results.at(0)) == ir::MatrixUse::accumulator && !is_sum(k_.type(o.results[0]).dtype))
      problem(o, "an accumulator of f32, i32 or u32 is wanted");
  }

  bool in_pieces(Value v) const {
    const Op* o = k_.def(v);
    return o && o->code == Opcode::matrix_load && o->attr_or(ir::Attr::pieces, 0) != 0;
  }
  // Its factors in pieces are read when it is done: nothing may be stored since they were loaded.
  void warpgroup(const Op& o, RegionId r) {
    if (uniformity_.control[r.index] != U::workgroup)
      problem(o, "stands under control that is not workgroup-uniform, but four subgroups do it together");
    if (k_.lane.subgroup_size != 32 || k_.lane.workgroup_size % 128 != 0)
      problem(o, "needs subgroups of 32, and a workgroup of a multiple of 128");
    const bool whole = k_.type(o.operands.at(1)).shape[0] != k_.type(o.results.at(0)).shape[0];
    const auto& ops = k_.region(r).ops;
    const auto here = std::find_if(ops.begin(), ops.end(), [&](ir::OpId id) { return &k_.op(id) == &o; });
    for (size_t i = 0; i <= static_cast<size_t>(o.attr(ir::Attr::count)); ++i) {
      if (in_pieces(o.operands[i]) != (i == 0 || whole))
        problem(o, "operand " + std::to_string(i) + (i == 0 || whole ? " does not lie" : " lies") + " in pieces");
      if (!in_pieces(o.operands[i])) continue;
      bool loaded = false;
      for (auto before = here; before != ops.begin() && !loaded;) {
        const Op& p = k_.op(*--before);
        loaded = std::find(p.results.begin(), p.results.end(), o.operands[i]) != p.results.end();
        if (!loaded && (ir::is_barrier(p.code) || !p.regions.empty() || ir::writes_ref(p.code))) break;
      }
      if (!loaded) problem(o, "operand " + std::to_string(i) + " was loaded before a store, a barrier or a branch");
    }
  }

  void arena(const Op& o, int64_t bytes, bool shared) {
    const Type& t = k_.type(o.results.at(0));
    const ir::MemorySpace space = shared ? ir::MemorySpace::shared : ir::MemorySpace::global;
    if (!t.is_ref || t.space != space || t.shape.size() != 1 || t.shape[0] < 0)
      return problem(
          o, "is " + to_string(t) + ", but a " + std::string(ir::name(space)) + " Ref of static length is wanted");
    if (!o.has(ir::Attr::offset)) return problem(o, "has no offset");
    const int64_t stride = shared ? ir::arena_stride(t.dtype) : size_bytes(t.dtype), offset = o.attr(ir::Attr::offset);
    if (offset < 0 || offset > bytes || t.shape[0] > (bytes - offset) / stride)
      problem(o, std::to_string(t.shape[0]) + " elements of " + std::to_string(stride) + " bytes at offset " +
                     std::to_string(offset) + " do not fit the " + std::to_string(bytes) + " bytes of " +
                     (shared ? "shared memory" : "scratch"));
    if (offset % stride != 0)
      problem(o,
              "offset " + std::to_string(offset) + " is no multiple of the element distance " + std::to_string(stride));
    // Slices of scratch lie one after another, one per workgroup.
    if (!shared && bytes % stride != 0)
      problem(o, "scratch_bytes " + std::to_string(bytes) + " is no multiple of the element size " +
                     std::to_string(stride));
  }

  void extent(const Op& o) {
    const ir::LaneInfo& lane = k_.lane;
    const int64_t i = o.attr_or(ir::Attr::index, -1);
    if (i < 0 || i >= static_cast<int64_t>(std::min(lane.extents.size(), lane.extent_is_64.size())))
      return problem(
          o, "index " + std::to_string(i) + " names none of the " + std::to_string(lane.extents.size()) + " extents");
    const Type wanted = Type::array(lane.extent_is_64[static_cast<size_t>(i)] ? DType::i64 : DType::i32);
    const Type& t = k_.type(o.results.at(0));
    if (!(t == wanted))
      problem(o, "is " + to_string(t) + ", but extent " + std::to_string(i) + " is " + to_string(wanted));
  }

  const Kernel& k_;
  UniformityInfo uniformity_;
  std::vector<ir::Problem> problems_;
};
}  // namespace

std::string op_text(const Kernel& k, const Op& op) {
  const auto list = [](const std::vector<Value>& values, size_t begin, size_t end) {
    std::string s;
    for (size_t i = begin; i < end && i < values.size(); ++i)
      s += (i > begin ? ", %" : "%") + std::to_string(values[i].index);
    return s;
  };
  std::string s = list(op.results, 0, op.results.size());
  if (!s.empty()) s += " = ";
  s += ir::name(op.code);
  size_t shown = op.operands.size();
  for (const ir::Index& i : op.index)
    if (!i.is_static()) shown = std::min(shown, *i.operand());
  if (shown) s += " " + list(op.operands, 0, shown);
  for (const ir::Index& i : op.index)
    s += "[" + (i.is_static() ? std::to_string(i.constant()) : list(op.operands, *i.operand(), *i.operand() + 1)) + "]";
  if (!op.results.empty() && op.results[0].index < k.values.size()) s += " : " + to_string(k.type(op.results[0]));
  return s;
}

std::vector<ir::Problem> find_lane_problems(const Kernel& k) { return Verifier(k).run(); }

void verify_lane(const Kernel& k, std::string_view when) {
  std::vector<ir::Problem> problems = find_lane_problems(k);
  if (problems.empty())
    for (const ir::OpId id : unproved_accesses(k))
      problems.push_back({op_text(k, k.op(id)), "is not proved to lie inside the array", k.op(id).loc});
  if (problems.empty()) return;
  std::string text = k.name + ": the lane-level kernel is not valid after " + std::string(when);
  for (const ir::Problem& p : problems)
    text += "\n  " + p.entity + ": " + p.message + (p.loc ? " (" + to_string(p.loc) + ")" : "");
  throw InternalError(text, k.loc);
}

}  // namespace tessera::lane
