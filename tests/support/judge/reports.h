// What the judge has found wrong: each pair of instructions once, no more than so many.
#pragma once
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/judge/module.h"

namespace tessera::judge {

/// An invocation of the call, at work.
struct Who {
  uint32_t group = 0, invocation = 0;
  // that end with the barriers of its workgroup; no two of one kind are alike
  uint32_t buffer_epoch = 0, shared_epoch = 0;
  uint32_t id = 0;                       // of the whole dispatch
  uint32_t subgroup = 0, own_epoch = 0;  // of the workgroup; counts the subgroup's own barriers
};

// clang-format off
enum class Kind : uint8_t { module, bounds, may, alignment, conflict, group_conflict, is_private, poison, undefined,
  divergence, steps, loops, reached, padding };
// clang-format on

class Reports {
 public:
  Reports(const Module& m, std::string kernel, size_t most) : module_(m), kernel_(std::move(kernel)), most_(most) {}
  /// `make` gives the text, if it is new. `a` and `b`: instructions.
  template <class F>
  void add(Kind kind, uint32_t a, uint32_t b, F&& make) {
    if (all.size() < most_ && seen_.insert({kind, a, b}).second) all.push_back(kernel_ + ": " + make());
  }
  std::string at(uint32_t instruction) const { return module_.text(instruction); }
  static std::string who(const Who& w) {
    return "invocation " + std::to_string(w.invocation) + " of workgroup " + std::to_string(w.group);
  }
  std::vector<std::string> all;

 private:
  const Module& module_;
  std::string kernel_;
  size_t most_;
  std::set<std::tuple<Kind, uint32_t, uint32_t>> seen_;
};

}  // namespace tessera::judge
