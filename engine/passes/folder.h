// Folder: the state of one run of fold(). fold.cpp walks the regions and rewrites control flow and shape ops;
// identities.cpp rewrites the elementwise ops. Values that fold() makes are folded at once, so that one walk does
// nearly everything.
#pragma once
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "engine/passes/ranges.h"
#include "engine/passes/replacements.h"

namespace tessera::passes {

class Folder {
 public:
  explicit Folder(ir::Kernel& k) : k_(k), replaced_(k), ranges_(k) {}
  bool run();

 private:
  ir::Kernel& k_;
  Replacements replaced_;
  Ranges ranges_;
  std::vector<ir::OpId>* out_ = nullptr;  // ops of the region being rewritten
  std::vector<ir::OpId> constants_;       // all constants of the top region: they go to its front
  std::map<std::tuple<DType, uint64_t, Shape>, ir::Value> constant_values_;
  std::unordered_map<uint32_t, ir::OpId> loop_of_body_;  // the for op around a body region that is being walked
  bool changed_ = false;
  int depth_ = 0;  // of simplify()
  int region_depth_ = 0;

  // fold.cpp
  void top_region(ir::RegionId r);
  void region(ir::RegionId r);
  void ops(const std::vector<ir::OpId>& list);
  void op(ir::OpId id);
  void constant_op(ir::OpId id);
  bool control_flow(ir::OpId id);
  void drop_invariant_carries(ir::Op& op);
  bool resets_first_iteration(ir::Value choice, ir::Value first, ir::Value otherwise) const;
  void static_starts(ir::Op& op);
  void drop_mask(ir::Op& op);
  void splice(ir::RegionId r, const std::vector<ir::Value>& results);
  /// The value that op's single result, of type t, equals; nothing if it stays. May change op into something equal.
  std::optional<ir::Value> simplify(ir::Op& op, const ir::Type& t);
  std::optional<ir::Value> shape_op(ir::Op& op, const ir::Type& t);
  void join_moves(ir::Op& op);

  ir::Value make(ir::Op op, const ir::Type& t);
  ir::Value make(ir::Opcode c, std::vector<ir::Value> operands, const ir::Type& t, Loc loc) {
    return make(ir::Op{.code = c, .operands = std::move(operands), .loc = loc}, t);
  }
  ir::Value constant(const ir::Type& t, uint64_t bits, Loc loc);
  std::optional<uint64_t> bits_of(ir::Value v) const { return ir::constant_bits(k_, v); }
  bool is(ir::Value v, uint64_t bits) const { return bits_of(v) == bits; }

  // identities.cpp
  std::optional<ir::Value> elementwise(ir::Op& op, const ir::Type& t);
  std::optional<ir::Value> constant_operands(const ir::Op& op, const ir::Type& t);
  std::optional<ir::Value> integers(ir::Op& op, const ir::Type& t);
  std::optional<ir::Value> division(ir::Op& op, const ir::Type& t);
  std::optional<ir::Value> floats(const ir::Op& op);
  std::optional<ir::Value> comparison(const ir::Op& op, const ir::Type& t);
  std::optional<ir::Value> conversion(const ir::Op& op, const ir::Type& t);
  std::optional<ir::Value> lower_half(ir::Value v, int low);
  std::optional<ir::Value> upper_half(const ir::Op& op, const ir::Type& t);
  std::optional<ir::Value> into_arms(const ir::Op& op, const ir::Type& t);
  std::optional<ir::Value> selection(const ir::Op& op, const ir::Type& t);
};

}  // namespace tessera::passes
