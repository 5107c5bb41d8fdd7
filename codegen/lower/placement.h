// Placement: where each tile value lives, and how long. place() decides before anything is emitted; values with storage
// of their own get and free it as their ops are emitted.
#pragma once
#include <set>
#include <unordered_map>

#include "codegen/lower/part.h"
#include "engine/base/function.h"
#include "engine/ir/walk.h"

namespace tessera::lowering {

class Placement : public Part {
 public:
  explicit Placement(Emission& e);
  void place();           ///< kinds, with what is loaded a step early
  void plan_lifetimes();  ///< of values in the arena
  int spills() const { return spills_; }
  void explain_kept(std::vector<std::string>& remarks) const;

  Kind kind(Value v) const { return kinds_[v.index]; }
  bool used(Value v) const { return used_[v.index]; }  ///< some op has it as an operand
  const std::vector<bool>& used() const { return used_; }
  Place& of(Value v) { return places_[v.index]; }
  Place make(Value v);
  Slot make_slot(Value v);  ///< of one that lives in the arena
  /// Makes the place of a kept index function, and fills it.
  void materialize(Value v);
  /// Evaluates v into a place of the same kind (registers are replaced, a slot is overwritten); as matrices, if `as`
  /// asks for them.
  void evaluate_into(Value v, Place& to, const MatrixForm* as = nullptr);
  /// Makes v's place, orders it after `reads`, and hands emit the function that takes each of its elements.
  void set_result(Value v, const std::vector<MemoryRange>& reads,
                  FunctionRef<void(FunctionRef<void(const NestPoint&, Value)>)> emit);
  /// The same for a sum that stays matrices: hands emit what takes them.
  void set_sums(Value v, const std::vector<MemoryRange>& reads, FunctionRef<void(Values&)> emit);
  void free_dead_after(ir::OpId id);
  /// The store that a running sum in strips hands its elements to, strip by strip, where the sum stands; else none.
  const ir::Op* streams_to(Value v) const { return streams_[v.index] ? &k_.op(streams_[v.index]) : nullptr; }
  /// The store that takes a product's elements where the product stands, and nothing else; else none. It is done then.
  const ir::Op* stream_product(ir::OpId dot);
  bool stored_early(ir::OpId store) const { return early_.count(store.index) > 0; }
  /// For loads of the next step: a lazy load gets registers, and is lazy again where they were spilled.
  void put_in_registers(Value v) { kinds_[v.index] = Kind::registers; }
  void take_back_spill(Value v);

  /// What a loop or a branch hands on, as lane values: places, and the Refs in registers that it writes.
  Values pack_carried(const std::vector<Place>& places, const std::vector<int>& residents) const;
  void unpack_carried(const Values& v, std::vector<Place>& places, const std::vector<int>& residents);
  std::vector<int> written_residents(const std::vector<ir::RegionId>& regions) const;

  /// What computing `roots` reads of the arena.
  std::vector<MemoryRange> arena_reads(const std::vector<Value>& roots);
  /// Whether computing `root` reads registers. Single elements do not count: every invocation holds them, so any
  /// position may read them.
  bool reads_registers(Value root);
  bool registers_along(Value root, int axis);
  /// The values that computing `roots` reads, down to those with a place: the lazy ones behind them are computed where
  /// they are used. Refs left out.
  std::set<uint32_t> computed_for(const std::vector<Value>& roots) const;

 private:
  /// Walks lazy values down to what they read.
  void smem_reads(const std::vector<Value>& roots, std::vector<MemoryRange>& reads);
  template <class F> void each_placed(Value root, std::set<uint32_t>& seen, const F& f) const {
    ir::walk_back(k_, root, seen, [&](Value v, std::vector<Value>& next) {
      const ir::Op* o = k_.def(v);
      if (kinds_[v.index] != Kind::lazy) f(v);
      else if (o) next.insert(next.end(), o->operands.begin(), o->operands.end());
      return true;
    });
  }
  bool has_axes(Value v) const;
  void stream_scans(ir::RegionId r);
  ir::OpId streamed_store(ir::RegionId r, size_t scan) const;
  bool used_only_by(Value v, ir::RegionId r, ir::OpId store) const;
  std::vector<Value> carried_together() const;
  void spill();
  bool spill_in(ir::RegionId region);
  bool spill_for(const ir::Op& op);
  bool to_arena(Value root);

  std::vector<Place> places_;  // per value
  std::vector<Kind> kinds_;    // per value, decided before emission
  std::vector<bool> used_;
  std::vector<ir::OpId> streams_;    // per value
  std::set<uint32_t> early_;         // stores
  std::vector<Value> next_carried_;  // per value, while spill() runs: the next one that is carried together with it
  int spills_ = 0;                   // values that spill() sent to the arena
  std::unordered_map<uint32_t, std::vector<Value>> dies_after_;  // op index -> arena values whose last use it is
};

}  // namespace tessera::lowering
