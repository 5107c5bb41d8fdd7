// Lowering: walks a tile-level kernel and emits lane-level IR by a Schedule.
//
// Every tile value has a home. *Lazy* values (element-wise ops, broadcasts, transposes, slices, loads of memory that
// nobody writes, ...) are index functions: element(v, coords) emits what computes one element, wherever it is asked
// for; those that plan/keep.h chooses are evaluated once instead. *Scalars* live in one lane value, equal in all
// invocations of the group. Results of reductions, products, scans and control flow, and loads of memory that is
// written, are evaluated where they stand: into *registers*, spread over invocations by the schedule's layout, or into
// the *arena*. In the general form everything but scalars, constants and iotas lives in the arena.
//
// A *nest* is the loop over the elements of one root (a store, a reduction's result, ...): by layout, which tags each
// coordinate with its axis and register so that register homes can be read, or flat, dealing elements to invocations in
// turn. Read next: element.cpp (index functions), nest.cpp (loops), program.cpp (grid to workgroups), memory.cpp
// (Refs), control.cpp, reduce.cpp, dot.cpp.
#pragma once
#include <functional>
#include <set>
#include <unordered_map>
#include <utility>

#include "codegen/lower/arena.h"
#include "codegen/lower/lane_builder.h"
#include "codegen/plan/plan.h"

namespace tessera::lowering {

/// One coordinate of an element. With an axis it is this thread's element number `reg` along that axis.
struct Coord {
  Value v;
  int axis = kNoAxis;
  int reg = 0;
};
using Coords = std::vector<Coord>;
using Values = std::vector<Value>;

enum class Kind : uint8_t { lazy, scalar, registers, arena };

/// A piece of the arena holding (this unit's part of) a tile value.
struct Slot {
  int64_t offset = -1, bytes = 0;
  Value ref;
  DType dtype = DType::f32;
  Shape shape;            // extents held: the tile of a split axis, else all
  std::vector<int> axes;  // per dim, for the base of a split axis
  MemoryRange range;
};

struct Home {
  Kind kind = Kind::lazy;
  Value scalar;
  Values regs;
  Slot slot;
};

/// A body Ref inside the current program.
struct RefState {
  Value ref;  // lane-level Ref at the block's first element
  DType dtype = DType::f32;
  Shape shape;                     // what the kernel sees
  std::vector<int64_t> stride;     // per visible dim, elements; -1: run-time, see wide_stride
  std::vector<Value> wide_stride;  // i64, where stride is -1
  std::vector<Value> limit;        // per visible dim: elements inside the array (i32), or none where all are
  // per visible dim: positions before the array's first element (i32), or none where there are none; then may_be_empty
  std::vector<Value> below;
  std::vector<Value> origin;  // per visible dim: where in the array the block begins (i32), or none at 0
  // per visible dim: the array's size (i32), or none where all of the block is proved to lie in the array
  std::vector<Value> extent;
  std::vector<int64_t> limit_divisor;  // a power of two, at most 4, that divides the limit
  Value inside;                        // bool: squeezed dims' positions exist (arrays that may be empty); none: always
  bool dead = false;                   // the array is empty: no access may reach memory
  bool may_be_empty = false;           // element 0 may not exist: masked accesses need a branch
  bool narrow = true;                  // every element offset fits 31 bits
  MemoryRange range;
  bool tracked = false;  // written by the kernel: accesses need ordering
  bool owned = false;    // ... but each element is stored by one invocation only
  Values regs;           // Residency::registers: the current contents
  Slot slot;             // Residency::arena
};

class Lowering {
 public:
  Lowering(const ir::Kernel& k, const Target& target, Plan& plan, ir::Kernel& out);
  void run();
  int64_t arena_bytes() const { return arena_.peak(); }
  int misfits() const { return misfits_; }  ///< values that demote_misfits() sent to the arena
  void explain_kept(std::vector<std::string>& notes) const;
  ///< per block, for explain: whether it is loaded ahead
  const std::vector<std::string>& ahead_notes() const { return ahead_notes_; }

 private:
  // program.cpp: grid to workgroups
  void setup_kernel();
  void plan_homes();
  void demote_misfits();
  void plan_lifetimes();
  void emit_units();
  void emit_sequential(size_t depth);
  void enter_refs(size_t depth);
  void leave_refs(size_t depth);
  void enter_window(int i);
  Value extent_value(const Extent& e, DType t);
  Value within_i32(const Extent& e, const ir::BlockDim& dim, Value minus);
  Value pushed_extent(const Extent& e, DType t);  // one more, whatever there is
  Value grid_size(size_t a) { return extent_value(k_.grid[a].size, DType::i32); }
  void index_map(int i, Values& starts);

  // element.cpp: index functions
  Value element(Value v, const Coords& c);
  Value gathered(const ir::Op& o, const Coords& c);
  Value compute_element(Value v, const ir::Op& op, const Coords& c);
  Coord sliced(const ir::Op& slice, size_t d, Coord c);
  Value scalar(Value v);
  void scalar_op(ir::OpId id);
  Value linear(const Coords& c, const Shape& shape);
  Coords unravel(Value e, const Shape& shape);
  Coord at(int64_t i) { return {b_.i32(i)}; }

  // nest.cpp
  struct NestPoint {
    Coords c;
    Value valid;            // none: always
    std::vector<int> regs;  // register per dim
  };
  bool layout_fits(const std::vector<int>& axes) const;
  /// Calls body once per element of the shape that this invocation owns. needs_layout: register homes will be read.
  /// `redundant`, if given, receives the condition that this thread is the one that stores where several hold the same
  /// element (none: always).
  void nest(const Shape& shape, const std::vector<int>& axes, bool needs_layout, bool effects,
            const std::function<void(const NestPoint&)>& body);
  void layout_nest(const Shape& shape, const std::vector<int>& axes, bool effects,
                   const std::function<void(const NestPoint&)>& body, bool rolled = false);
  void flat_nest(const Shape& shape, const std::vector<int>& axes, const std::function<void(const NestPoint&)>& body);
  /// A sequential loop from 0 to n, unrolled when short; no barriers inside unless it is uniform.
  void counted(int64_t n, const std::function<void(Value)>& body);
  Values counted(int64_t n, const Values& init, const std::function<Values(Value, const Values&)>& body);
  Value thread_coord(const AxisPlan& p);
  Value thread_start(const AxisPlan& p);  ///< of the invocation's first register, along the tile
  Value tile_base(int axis);
  Value first_thread(int used_bits);
  /// Coordinate of register r of strip `strip` along an axis of extent n, clamped into range; `valid` receives the test
  /// if one is needed.
  Coord axis_coord(int axis, int64_t n, Value strip, int r, Value& valid);
  Coord axis_coord(const AxisPlan& p, int axis, int64_t n, Value strip, int r, Value& valid);

  // memory.cpp
  bool written(int ref) const { return written_[static_cast<size_t>(ref)]; }
  Value load_element(const ir::Op& op, const Coords& c, Value valid = {});
  void store_element(const ir::Op& op, const Coords& c, Value v, Value predicate);
  struct Address {
    Value wide, narrow, valid;
  };
  /// Where the access's element c lies. `clamp`: what hangs over the edge is an element inside rather than invalid.
  /// `reads`: positions that are outside one by one are the nearest rather than invalid.
  Address address(const RefState& r, const ir::Op& op, const Coords& c, bool clamp = false, bool reads = false);
  void keep_inside(const RefState& r, size_t d, Value p, Value& valid);
  Value position(const ir::Op& op, const ir::AccessDims& form, size_t d, int64_t n, const Coords& c, bool reads,
                 Value& valid);
  Value clamp_along(Value e, Value n, int64_t divisor, int axis, int reg);
  Value load_at(const RefState& r, const Address& a, Value mask, Value other);
  void store_at(const RefState& r, const Address& a, Value v, Value predicate, bool adds = false);
  ///< by an access: what it stores, its mask, other and index arrays
  std::vector<Value> values_read(const ir::Op& op) const;
  void store_op(const ir::Op& op);
  /// Calls body for every element of an access of which some may meet in memory: those one after another in the value's
  /// order, by one invocation.
  void in_order(const ir::Op& op, const std::function<void(const Coords&, Value predicate)>& body);
  void memory_op(ir::OpId id);
  void load_op(ir::OpId id);
  // atomics.cpp
  void atomic_op(ir::OpId id);
  Value atomic_element(const ir::Op& op, const Coords& c, Value predicate, const std::function<Value()>& instead);
  Value nearest_element(const ir::Op& op, const Coords& c, Value predicate);
  void print_op(const ir::Op& op);  // print.cpp
  void print_record(const ir::Op& op, size_t first);
  Slot new_slot(DType t, const Shape& shape, const std::vector<int>& axes);
  Slot temp_slot(DType t, int64_t elements);
  void free_slot(Slot& s);
  Value slot_index(const Slot& s, const Coords& c);
  Value slot_load(const Slot& s, const Coords& c) { return b_.load(s.ref, slot_index(s, c)); }
  void slot_store(const Slot& s, const Coords& c, Value v) { b_.store(s.ref, slot_index(s, c), v); }
  void order(const std::vector<MemoryRange>& reads, const std::vector<MemoryRange>& writes);
  void loop_barrier();
  Value broadcast_from_first(DType t, const std::function<Value()>& compute);

  // control.cpp
  void region(ir::RegionId r);
  void op(ir::OpId id);
  void control_op(ir::OpId id);
  void for_op(ir::OpId id);
  void while_op(ir::OpId id);
  void branch_op(ir::OpId id);
  void materialize(Value v);
  void evaluate_into(Value v, Home& to);
  Home new_home(Value v);
  void copy_slot(const Slot& from, const Slot& to);
  std::vector<int> written_residents(const std::vector<ir::RegionId>& regions) const;
  Values gather(const std::vector<Home>& homes, const std::vector<int>& residents) const;
  void scatter(const Values& v, std::vector<Home>& homes, const std::vector<int>& residents);
  void free_dead_after(ir::OpId id);
  std::vector<MemoryRange> arena_reads(const std::vector<Value>& roots);
  bool reads_registers(Value v);
  bool has_axes(Value v) const;

  // reduce.cpp, dot.cpp
  void reduce_op(ir::OpId id);
  void arg_reduce_op(ir::OpId id);
  void scan_op(ir::OpId id);
  // rearrange.cpp
  void scatter_op(ir::OpId id);
  void sort_op(ir::OpId id);
  void dot_op(ir::OpId id);
  /// One reduction: `step` takes one element's lane values into the accumulator, `merge` joins two accumulators,
  /// `neutral` is an element that changes nothing.
  struct Accumulator {
    Values identity, neutral;
    std::function<Values(const Values& acc, const Values& x)> step, merge;
  };
  /// Reduces over the dims marked in `reduced`; element(c) gives one element's lane values; sink gets, per kept element
  /// that this thread holds, the result (in every thread that holds it). to_registers: the result lives in registers,
  /// so its layout decides who holds what.
  void reduction(const Shape& shape, const std::vector<int>& axes, const std::vector<bool>& reduced, bool needs_layout,
                 bool to_registers, const Accumulator& acc, const std::function<Values(const Coords&)>& element,
                 const std::function<void(const NestPoint&, const Values&)>& sink);
  Values across_threads(Values v, int bits, const Accumulator& acc);
  DType accumulate_type(DType t) const { return is_narrow_float(t) ? DType::f32 : t; }
  /// Makes v's home, orders it after `reads`, and hands emit the function that takes each of its elements.
  void set_result(Value v, const std::vector<MemoryRange>& reads,
                  const std::function<void(const std::function<void(const NestPoint&, Value)>&)>& emit);
  void touched(const std::vector<MemoryRange>& reads, const Home& h);
  bool uniform_scalar(Value v);
  Value condition(Value v);  ///< the scalar v, the same in every invocation of the group by construction
  /// The values that computing `roots` reads, down to those with a home: the lazy ones behind them are computed where
  /// they are used. Refs left out.
  std::set<uint32_t> computed_for(std::vector<Value> roots) const;
  bool registers_along(Value v, int axis);
  struct DotShape;
  DotShape dot_shape(const ir::Op& o) const;
  bool wide_dot(const DotShape& d) const;        ///< it has the form that the schedule planned for wide ones
  bool reads_in_place(const ir::Op& dot) const;  ///< its operands, wherever their layout puts them
  ///< elements of an operand's chunk that each invocation fetches
  int64_t staged_share(const DotShape& d, int operand) const;
  using Sink = std::function<void(const NestPoint&, Value)>;
  void dot_shuffle(const DotShape& d, const Sink& sink);
  void dot_staged(ir::OpId id, const DotShape& d, const Sink& sink);
  void dot_reduce(const DotShape& d, bool to_registers, const Sink& sink);
  Value multiply_add(Value a, Value b, Value c);

  // ahead.cpp: what the next step of the innermost sequential axis reads, loaded while this one computes
  struct Ahead {
    uint32_t op;    // a load, or a staged dot
    int operand;    // of the dot
    int64_t count;  // registers per invocation
    DType dtype;
    std::vector<int> refs;       // that move with the axis
    std::set<uint32_t> scalars;  // ops that say where, by number
    Values regs;                 // what this step finds, then what it leaves for the next
  };
  void choose_loads_ahead();
  void settle_ahead();
  void dot_ahead(ir::OpId id);
  bool readable_early(Value root, std::set<int>& refs, std::set<uint32_t>& scalars) const;
  bool moves(int ref) const { return s_.scope[static_cast<size_t>(ref)] > static_cast<int>(ahead_depth_); }
  Ahead* ahead_of(ir::OpId id, int operand);
  Value next_step();
  Value in_first_step();
  /// What f loads in another step of the axis.
  Values at_step(const Ahead& a, Value step, const std::function<Values()>& f);
  void load_ahead(Ahead& a, const ir::Op& o);

  Home& home(Value v) { return homes_[v.index]; }
  const Shape& shape(Value v) const { return k_.type(v).shape; }
  const AxisPlan& plan(int a) const { return s_.plans[static_cast<size_t>(a)]; }
  bool uniform_group() const { return s_.group > 1; }

  const ir::Kernel& k_;
  const Target& target_;
  const Axes& axes_;
  const Schedule& s_;
  const ParallelPlan& parallel_;
  ScalarAnalysis& scalars_;
  ir::Kernel& out_;
  LaneBuilder b_;

  std::vector<Home> homes_;  // per value
  std::vector<Kind> kinds_;  // per value, decided before emission
  int misfits_ = 0;
  std::vector<bool> written_, owned_;   // per body argument
  std::vector<bool> used_;              // per value: some op has it as an operand
  std::vector<RefState> refs_;          // per body argument
  std::map<size_t, RefState> windows_;  // the array windows behind private tiles
  Values pid_;                          // per grid axis, i32
  Values tile_base_;                    // per axis: first element of this unit's part, i32 (split axes only)
  Value thread_;                        // index in the group
  std::map<std::pair<std::string, DType>, Value> extents_;
  std::map<std::pair<int, int>, Value> thread_coords_;
  Value lane_;
  std::unordered_map<uint32_t, std::vector<Value>> dies_after_;  // op index -> arena values whose last use it is
  ArenaAllocator arena_;
  PendingAccesses pending_;
  uint64_t order_calls_ = 0;  // tells a loop that its body touched shared memory
  std::vector<Ahead> ahead_;
  // inputs whose blocks move with the innermost sequential axis and may be loaded ahead
  std::set<int> moving_;
  int ahead_axis_ = -1;            // that grid axis; -1: none
  size_t ahead_depth_ = 0;         // its place among the sequential ones
  uint32_t step_ = 0, steps_ = 0;  // numbers the steps for which elements are computed: 0 is the program's own
  std::vector<std::string> ahead_notes_;
};

}  // namespace tessera::lowering
