// What generated kernels contain once the passes have dropped what is not used: every op of the table with every dtype
// it takes, and the shapes that lowering treats differently. Whatever is never seen here is never tested by the fuzzer.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/generator/generator.h"

namespace tessera::fuzz {

class Coverage {
 public:
  void add(const Case& c);
  /// Which steps of the compiler change it, for a GPU.
  void add_steps(const Case& c);
  /// Cases per feature, then ops and dtypes that no case has.
  std::string text() const;
  /// Names of tile-level ops that no case has.
  std::vector<std::string> never() const;

 private:
  void see(const std::string& feature) { now_.insert(feature); }
  void see_op(const ir::Kernel& k, const ir::Op& op, int depth);
  void see_region(const ir::Kernel& k, ir::RegionId r, int depth);

  int64_t cases_ = 0, ops_seen_ = 0;
  std::set<std::string> now_;                            // of the current case
  std::map<std::string, int64_t> features_;              // cases that have it
  std::map<std::string, std::map<DType, int64_t>> ops_;  // uses
};

}  // namespace tessera::fuzz
