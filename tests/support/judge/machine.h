// Runs a decoded Module: workgroups of invocations, in random order between barriers. Private to the judge; judge.cpp
// binds a Program to it.
#pragma once
#include <unordered_map>

#include "tests/support/judge/arithmetic.h"
#include "tests/support/judge/memory.h"

namespace tessera::judge {

struct Dispatch {
  uint32_t base[3] = {0, 0, 0}, groups[3] = {1, 1, 1};
  uint32_t subgroup_size = 4;
  std::vector<std::byte> push;
  int64_t max_steps = 0;
  bool inexact = false;  // Options::inexact
};

class Machine {
 public:
  Machine(const Module& m, Memory& memory, Reports& reports, Random& random, Dispatch d);
  void run();

  int64_t steps = 0, most_iterations = 0;
  bool stopped = false;  // out of steps

 private:
  enum class State : uint8_t { ready, waiting, finished };
  struct Invocation {
    Slot* slots = nullptr;
    uint32_t pc = 0, index = 0, local_index = 0, subgroup = 0, lane = 0;
    uint32_t meets = kNone;  // the code where the sides of a branch meet that poison decided
    State state = State::ready;
    bool gave_way = false;       // to others, before the atomic that comes
    uint32_t* rounds = nullptr;  // by loop
  };
  struct Passed {
    uint32_t loop, rounds;
  };
  struct Group {
    Who who;
    uint32_t id[3] = {};
    std::vector<Invocation> invocations;
    std::vector<Slot> slots;
    std::vector<uint32_t> rounds;
    // by subgroup: each time a loop was passed, its rounds in the slowest invocation
    std::vector<std::unordered_map<uint64_t, Passed>> passed;
    Object shared;
    std::vector<uint32_t> own_epochs;  // by subgroup: its own barriers so far
    bool active = false;
  };

  void begin(Group& g, uint32_t number);
  void round(Group& g);
  void finish(Group& g);
  void advance(Group& g, Invocation& v);
  bool take(Group& g, Invocation& v, uint32_t edge, uint32_t& pc);
  void poisoned_branch(Invocation& v, const Instr& i, uint32_t merge);

  bool same_place(const Invocation& a, const Invocation& b) const;
  const std::vector<uint32_t>& around(const Instr& i) const {
    return m_.loops_around[i.code == Code::barrier ? i.aux : i.b];
  }
  bool of_subgroup(const Instr& i) const;  ///< a barrier of each subgroup, of which the workgroup has several
  bool release_subgroups(Group& g);
  void subgroup_op(Group& g, size_t first, size_t n, uint32_t at);
  void matrix_op(Group& g, size_t first, size_t n, uint32_t at);
  bool release_barrier(Group& g);

  void load(Group& g, Invocation& v, uint32_t at);
  void store(Group& g, Invocation& v, uint32_t at);
  void atomic(Group& g, Invocation& v, uint32_t at);
  Slot input(const Group& g, const Invocation& v, uint32_t built_in, uint32_t component) const;
  void undefined(const Group& g, const Invocation& v, uint32_t at);
  void poisoned(const Group& g, const Invocation& v, uint32_t at, const char* use);
  Who who(const Group& g, const Invocation& v) const;

  const Module& m_;
  Memory& memory_;
  Reports& reports_;
  Random& random_;
  Dispatch dispatch_;
  Arithmetic arithmetic_;
  uint32_t size_ = 1, epoch_ = 0;
  std::vector<Group> groups_;  // at work at once
  std::vector<Slot> temporary_;
};

}  // namespace tessera::judge
