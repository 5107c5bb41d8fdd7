// What the threads of a cluster know of each other, and the races that follow from it. Every thread counts its own
// steps; what it knows of another one (an agent: a thread, or the copies and products that run beside the threads) is
// the last step of that one which is sure to have happened. Barriers pass this knowledge on. Two accesses of an
// element, one of which writes, are a race if the second one's thread does not know of the first. Read next: threads.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/interpreter/races.h"
#include "engine/ir/kernel.h"

namespace tessera::interpreter {

/// By agent: how far it is known.
using Clock = std::vector<uint32_t>;
inline void join(Clock& to, const Clock& from) {
  if (to.size() < from.size()) to.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i)
    if (to[i] < from[i]) to[i] = from[i];
}

/// What a thread knows: of all accesses, and of those stores to smem that copies and products see (commit_smem); and
/// by cluster of the accesses of others, which semaphores tell.
struct Knowledge {
  Clock all, committed;
  std::map<uint64_t, Clock> others;
  void join_with(const Knowledge& from) {
    join(all, from.all);
    join(committed, from.committed);
    join_others(from);
  }
  void join_others(const Knowledge& from) {
    for (const auto& [cluster, clock] : from.others) join(others[cluster], clock);
  }
};

class ThreadRaces {
 public:
  explicit ThreadRaces(const ir::Kernel& k) : k_(k) {}

  struct Access {
    const ir::Op* op = nullptr;
    size_t ref = 0;
    Touching how = Touching::load;
    uint32_t agent = 0, clock = 0;  // who does it, in which of its steps
    bool beside = false;            // a copy or product that runs beside the threads
    bool in_smem = false;
    const Knowledge* knows = nullptr;  // of the thread that does or begins it
    const int64_t* program = nullptr;  // of that thread, the thread axis with it
  };
  /// A new cluster begins; memory of its own is forgotten by forget().
  void begin(uint64_t cluster) { cluster_ = cluster; }
  void forget(const std::byte* first, size_t elements, size_t bytes_of_one);
  uint64_t cluster() const { return cluster_; }
  /// Throws KernelError if that is a race.
  void access(const Access& a, const std::byte* element, const int64_t* position, size_t rank);

 private:
  struct Touch {
    uint64_t cluster = 0;  // from 1; 0: there is none
    uint32_t agent = 0, clock = 0;
    bool beside = false;
    const ir::Op* op = nullptr;
    std::vector<int64_t> program;
  };
  struct Element {
    Touch writer;
    std::vector<Touch> readers, atomics;
  };
  bool ordered(const Touch& t, const Access& a) const;
  void keep(std::vector<Touch>& list, const Access& a) const;
  [[noreturn]] void report(const Access& a, const Touch& other, Touching other_how, const int64_t* position,
                           size_t rank) const;

  const ir::Kernel& k_;
  uint64_t cluster_ = 0;
  std::unordered_map<const std::byte*, Element> elements_;
};

}  // namespace tessera::interpreter
