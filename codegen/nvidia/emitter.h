// What the walk over a lane-level kernel leaves to PTX. Private to codegen/nvidia; emit.h is the entry point.
// emit.cpp: the module's frame, parameters, special registers. memory.cpp, atomics.cpp, group.cpp: by the op.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "codegen/expand/walk.h"
#include "codegen/nvidia/function.h"

namespace tessera::nvidia {

/// What the walk writes.
struct Code {
  Code(const Target& t, bool relaxed) : f_(t, relaxed) {}
  Function f_;
};

class Emitter final : private Code, public Walk {
 public:
  Emitter(const ir::Kernel& k, const Target& t, bool relaxed, bool lines)
      : Code(t, relaxed), Walk(k, t, f_, "nvidia"), lines_(lines) {}
  std::string run();

 private:
  // emit.cpp
  void arguments();
  void emit(const ir::Op& op) override;
  V launch_value(const ir::Op& op) override;
  V special(const char* name);
  std::string frame(const std::string& body) const;
  bool half_arithmetic() const override { return false; }
  bool emit_half(const ir::Op&) override { return false; }
  V loops_cut() override;
  void emit_switch(const ir::Op& op) override;
  bool large_arena() const;  ///< beyond what a static array may have

  // memory.cpp
  Register load(const ir::Op& op, const Ref& r) override;
  void store(const ir::Op& op, const Ref& r, V value, V raw) override;
  std::vector<V> load_words(const ir::Op& op, const Ref& r, size_t words) override;
  void store_words(const ir::Op& op, const Ref& r, const std::vector<V>& words) override;
  V byte_offset(V index, const Bounds& known, int64_t size) override;
  std::string shared_address(const ir::Op& op, const Ref& r);
  std::string at(V address) { return "[" + f_.in_register(address) + "]"; }
  void emit_report_memory(const ir::Op& op) override;
  void emit_report(const ir::Op& op) override;

  // atomics.cpp
  void emit_atomic(const ir::Op& op) override;
  V atomic(const std::string& code, Reg r, const std::string& place, const std::vector<V>& values, bool used);
  bool adds_floats(const ir::Op& op, DType t) const;
  AtomicWord atomic_word(V address, Reg r, bool used) override;
  Register load_part(const ir::Op& op, const Ref& r);
  void store_part(const ir::Op& op, const Ref& r, V raw);

  // group.cpp
  void emit_barrier(bool of_subgroup) override;
  void emit_reduce(const ir::Op& op) override;
  V shuffle(const ir::Op& op, V v, V lane) override;
  V shuffle_xor(const ir::Op& op, V v, uint32_t mask) override;
  V exchange(const std::string& mode, V v, V lane);

  const bool lines_;
  std::vector<V> extents_;
  V report_, num_workgroups_, local_index_, subgroup_id_, lane_id_, arena_;
  std::map<std::string, int> files_;  // of lines
  int64_t argument_bytes_ = 0;
};

}  // namespace tessera::nvidia
