// RefWindows: the body's Refs inside the current program: where their blocks begin (windows.cpp), and every access to
// an element of them (accesses.cpp).
#pragma once
#include <map>
#include <set>

#include "codegen/lower/part.h"
#include "engine/base/function.h"

namespace tessera::lowering {

/// A body Ref inside the current program.
struct RefState {
  // lane-level Ref at the block's first element; along halo dims at the array's, until inside_halo() moves it
  Value ref;
  DType dtype = DType::f32;
  Shape shape;                     // what the kernel sees
  std::vector<int64_t> stride;     // per visible dim, elements; -1: run-time, see wide_stride
  std::vector<Value> wide_stride;  // i64, where stride is -1
  std::vector<Value> limit;        // per visible dim: elements inside the array (i32), or none where all are
  // per visible dim: positions before the array's first element (i32), or none where there are none; then may_be_empty
  std::vector<Value> below;
  std::vector<Value> begins;  // per dim of the array: where in it the block begins (i32), or none at 0
  std::vector<Value> origin;  // per visible dim: where in the array the block begins (i32), or none at 0
  // per visible dim: the array's size (i32), or none where all of the block is proved to lie in the array
  std::vector<Value> extent;
  std::vector<const ir::BlockDim::Halo*> halo;  // per visible dim: what says how positions outside are read, or none
  Value halo_offset;                            // i64: from ref to the block's first element
  bool narrow_inside = true;                    // narrow, once ref is there
  std::vector<int64_t> limit_unit;              // elements of the widest load along the dim that divide the limit; or 1
  Value inside;               // bool: squeezed dims' positions exist (arrays that may be empty); none: always
  bool bounded = false;       // a dim's elements are counted by the index map
  bool dead = false;          // the array is empty: no access may reach memory
  bool may_be_empty = false;  // element 0 may not exist: masked accesses need a branch
  bool no_nearest = false;    // some position has no element along its dim to stand in for it
  bool narrow = true;         // every element offset fits 31 bits
  MemoryRange range;
  bool tracked = false;  // written by the kernel: accesses need ordering
  bool owned = false;    // ... but each element is stored by one invocation only
  Place place;           // where the current contents are: in the array, in registers, or in the arena
  Registers& registers() { return std::get<Registers>(place); }
  Slot& slot() { return std::get<Slot>(place); }
};

/// Where an access's element lies, in elements from its Ref.
struct Address {
  Value wide, narrow, valid;
  // bools of halo blocks; none: always. The array has elements, and the position's is not 0 for lying outside of it
  Value exists, there;
};

class RefWindows : public Part {
 public:
  explicit RefWindows(Emission& e);
  RefState& state(int ref) { return states_[static_cast<size_t>(ref)]; }
  int count() const { return static_cast<int>(states_.size()); }
  bool written(int ref) const { return written_[static_cast<size_t>(ref)]; }

  void enter(size_t depth);  ///< the Refs whose blocks are known inside so many sequential axes
  void leave(size_t depth);
  void enter_window(int ref);

  /// Where the access's element c lies. `clamp`: what hangs over the edge is an element inside rather than invalid.
  /// `reads`: positions that are outside one by one are the nearest rather than invalid.
  Address address(const RefState& r, const ir::Op& op, const Coords& c, bool clamp = false, bool reads = false);
  /// Where in the array, per dim, the element c of a load without a mask or index arrays lies, if nothing clamps it.
  Values array_position(const RefState& r, const ir::BlockMapping& m, const ir::Op& op, const Coords& c);
  Value load_element(const ir::Op& op, const Coords& c, Value valid = {});
  void load(ir::OpId id);
  void store(const ir::Op& op);
  void store_element(const ir::Op& op, const Coords& c, Value v, Value predicate);
  void order_store(const ir::Op& op);  ///< after what it reads, and after all that touches the same memory
  /// Behind a store that was done piece by piece: barriers in between have passed what order_store() has noted.
  void note_store(const ir::Op& o);
  /// Emits body. For GPUs it is emitted twice if that pays: without tests of elements, for workgroups whose blocks of
  /// these Refs and parts of these axes lie wholly inside their arrays, and with tests for the others. `size`: about
  /// how many ops the tested version has.
  static constexpr int64_t kMostTwice = 512;
  static bool written_once(int64_t size) { return size > kMostTwice; }
  Values inside_and_at_edge(const std::vector<int>& refs, const std::vector<int>& axes, int64_t size,
                            FunctionRef<Values(bool edge)> body);
  /// The Refs that computing `roots` reads where they are used.
  std::vector<int> refs_read(const std::vector<Value>& roots) const;
  /// by an access: what it stores, its mask, other and index arrays
  std::vector<Value> values_read(const ir::Op& op) const;
  /// Calls body for every element of an access of which some may have one place in memory: those one after another in
  /// the value's order, by one invocation.
  void in_order(const ir::Op& op, FunctionRef<void(const Coords&, Value predicate)> body);

 private:
  Value begin_along(const ir::Op& op, size_t d, int64_t n, int64_t span);
  bool keeps_in_common(size_t ref, const RefState& tile, Slot& slot);
  Value wholly_inside(const RefState& r);
  void find_owned();
  void find_widths();
  Value inside_limit(const RefState& r, size_t d, Value p, int64_t divisor, const Coord& c);
  Value within_i32(const Extent& e, const ir::BlockDim& dim, Value minus);
  void index_map(int i, Values& starts);
  bool runs_only_with_elements(const Extent& e) const;
  void refuse_beyond_i32(const Extent& e);
  void check_positions(const ir::BlockMapping& m, size_t d, const BlockStart& known, bool wraps);
  Value block_begin(const ir::BlockMapping& m, size_t d, const BlockStart& known, Value index);
  Value offset_along(const ir::BlockMapping& m, size_t d, const Extent& stride, Value s);
  void add_dim(RefState& r, int i, size_t d, const BlockStart& known, const Extent& stride, Value bound);
  void keep_inside(const RefState& r, size_t d, Value p, Value& valid);
  void keep_in_block(int64_t n, Value p, Value& valid);
  Value at_edge(const RefState& r, size_t d, Value p, Address& a);
  Value folded(const ir::BlockDim::Halo& halo, std::optional<int64_t> extent, Value at, Value end);
  Value at_mirrored_beginning(ir::Edge edge, Value at);
  Value folded_once(ir::Edge edge, Value at, Value end);
  Value folded_often(ir::Edge edge, Value at, Value end);
  void inside_halo(RefState& r);
  Value position(const ir::Op& op, const ir::AccessDims& form, size_t d, const Coords& c, bool reads, Value& valid);
  Value load_at(const RefState& r, const Address& a, Value mask, Value other);
  void store_at(const RefState& r, const Address& a, Value v, Value predicate, bool adds = false, bool late = false);

  std::vector<bool> written_, owned_;               // per body argument
  std::vector<RefState> states_;                    // per body argument
  std::vector<std::vector<std::set<int>>> widths_;  // per body argument and dim: how many elements loads have along it
  std::map<size_t, RefState> array_windows_;        // the array windows behind private tiles
};

}  // namespace tessera::lowering
