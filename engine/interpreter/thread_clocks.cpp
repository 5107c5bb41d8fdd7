#include "engine/interpreter/thread_clocks.h"

#include <algorithm>

namespace tessera::interpreter {

void ThreadRaces::forget(const std::byte* first, size_t elements, size_t bytes_of_one) {
  if (elements <= elements_.size()) {
    for (size_t i = 0; i < elements; ++i) elements_.erase(first + i * bytes_of_one);
    return;
  }
  const std::byte* end = first + elements * bytes_of_one;
  for (auto it = elements_.begin(); it != elements_.end();)
    it = it->first >= first && it->first < end ? elements_.erase(it) : std::next(it);
}

bool ThreadRaces::ordered(const Touch& t, const Access& a) const {
  if (t.cluster == 0) return true;
  const auto other = a.knows->others.find(t.cluster);
  if (t.cluster != cluster_ && other == a.knows->others.end()) return false;
  const Clock& known = t.cluster == cluster_ ? a.knows->all : other->second;
  return t.agent < known.size() && known[t.agent] >= t.clock;
}

void ThreadRaces::keep(std::vector<Touch>& list, const Access& a) const {
  const Touch touch{cluster_, a.agent, a.clock,
                    a.beside, a.op,    std::vector<int64_t>(a.program, a.program + k_.grid.size())};
  for (Touch& t : list)
    if (t.cluster == cluster_ && t.agent == a.agent) {
      t = touch;
      return;
    }
  list.push_back(touch);
}

void ThreadRaces::access(const Access& a, const std::byte* element, const int64_t* position, size_t rank) {
  Element& e = elements_[element];
  if (!ordered(e.writer, a)) report(a, e.writer, Touching::store, position, rank);
  // Copies and products see what a thread has stored to smem only once it is committed.
  if (a.beside && a.how == Touching::load && a.in_smem && e.writer.cluster == cluster_ && !e.writer.beside &&
      !(e.writer.agent < a.knows->committed.size() && a.knows->committed[e.writer.agent] >= e.writer.clock))
    throw KernelError(k_.name + ": " + std::string(ir::name(a.op->code)) + " by thread " + program_text(k_, a.program) +
                          " reads " + ref_text(k_, a.ref) + ", element " + to_string(Shape(position, position + rank)) +
                          ", whose store by thread " + program_text(k_, e.writer.program.data()) + " is not committed",
                      a.op->loc,
                      (e.writer.op->loc ? "that was at " + to_string(e.writer.op->loc) + "; " : std::string()) +
                          "commit_smem() between a store to smem and a copy or wgmma that reads it");
  if (a.how != Touching::load)
    for (const Touch& t : e.readers)
      if (!ordered(t, a)) report(a, t, Touching::load, position, rank);
  if (a.how != Touching::atomic)
    for (const Touch& t : e.atomics)
      if (!ordered(t, a)) report(a, t, Touching::atomic, position, rank);
  switch (a.how) {
    case Touching::load: return keep(e.readers, a);
    case Touching::atomic: return keep(e.atomics, a);
    case Touching::store:
      e.readers.clear();
      e.atomics.clear();
      e.writer = {cluster_, a.agent, a.clock,
                  a.beside, a.op,    std::vector<int64_t>(a.program, a.program + k_.grid.size())};
  }
}

void ThreadRaces::report(const Access& a, const Touch& other, Touching other_how, const int64_t* position,
                         size_t rank) const {
  const auto verb = [](Touching how, bool beside, bool past) -> std::string {
    switch (how) {
      case Touching::load:
        return beside ? (past ? " had begun to read" : " begins to read") : past ? " loaded" : " loads";
      case Touching::store:
        return beside ? (past ? " had begun to write" : " begins to write") : past ? " stored" : " stores";
      case Touching::atomic: return past ? " atomically updated" : " atomically updates";
    }
    return "";
  };
  const bool same = other.cluster == cluster_ && std::equal(other.program.begin(), other.program.end(), a.program);
  const bool together = other.cluster == cluster_;
  throw KernelError(
      k_.name + ": race on " + ref_text(k_, a.ref) + ", element " + to_string(Shape(position, position + rank)) +
          ": thread " + program_text(k_, a.program) + verb(a.how, a.beside, false) + " what " +
          (same ? "it" : "thread " + program_text(k_, other.program.data())) + verb(other_how, other.beside, true),
      a.op->loc,
      (other.op->loc ? "that was at " + to_string(other.op->loc) + " (" + std::string(ir::name(other.op->code)) + "); "
                     : std::string()) +
          (other.beside ? "no wait in between tells that it has ended"
           : together   ? "no barrier in between orders the two threads"
                        : "nothing orders threads of different clusters"));
}

}  // namespace tessera::interpreter
