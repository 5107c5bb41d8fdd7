// Whether the programs of a cluster do things to gmem in an order that their cluster_barriers give. Read next:
// thread_checks.h.
#pragma once
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::lowering {

class ClusterOrder {
 public:
  explicit ClusterOrder(const ir::Kernel& k);

  /// Two ops that touch elements of blocks[number], one of which writes, where an arrival at a cluster_barrier may
  /// stand behind the first and a wait before the second, in another program that may touch the same elements. None if
  /// no such ops are there. Input and output in one memory have the output's number.
  std::optional<std::pair<const ir::Op*, const ir::Op*>> needed(size_t number);

 private:
  struct Access {
    const ir::Op* op;
    ir::CopyPlace place;
    bool writes;
    bool commutes;  // with others of its kind
  };
  struct Place {
    size_t at = 0;                     // in the order of the text
    std::vector<const ir::Op*> loops;  // around it
  };
  /// sum of axes[a] * program_id(a), and rest
  struct Form {
    std::vector<int64_t> axes;
    int64_t rest = 0;
  };
  struct Along {  // what accesses take along a dim: offset(program) + [first, end)
    Form form;
    int64_t first = 0, end = 0;
  };
  void walk(ir::RegionId r, std::vector<const ir::Op*>& loops);
  bool may_follow(const ir::Op* first, const ir::Op* second) const;
  bool ordered(const Access& a, const Access& b) const;
  size_t memory_of(ir::Value ref) const;
  std::optional<Form> form(ir::Value v);
  std::optional<Form> form_of(const ir::Op& op);
  std::optional<Along> along(const Access& a, size_t d);
  bool stays_inside(const Along& x, int64_t extent) const;
  bool apart(const std::vector<Access>& list);

  const ir::Kernel& k_;
  std::map<const ir::Op*, Place> places_;
  std::vector<const ir::Op*> arrivals_, waits_;  // at cluster_barriers
  std::vector<std::vector<Access>> accesses_;    // by block
  std::map<uint32_t, std::optional<Form>> forms_;
};

}  // namespace tessera::lowering
