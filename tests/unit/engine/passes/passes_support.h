// What the tests of passes share: the text of a kernel's body before and after a pass, which has to say truly whether
// it changed it. Not the passes on random kernels: see passes_random_test.cpp. Read next: passes_test.cpp.
#pragma once
#include <doctest/doctest.h>

#include <string>

#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/passes/passes.h"

namespace tessera::test {

inline const std::string kHead =
    "tir 1\nkernel @k\ngrid (4, n)\nin f32[8] whole\nin i32[8] whole\nout f32[8] whole\nout i32[8] whole\nscratch "
    "ref<vmem, f32[8]>\nbody (%x, %n, %o, %m, %s) {\n";
inline const std::string kLaneHead =
    "tir 1\nlane kernel @k\nworkgroup_size 64 subgroup_size 8 shared_bytes 1024\nnum_units n\nextents (n, n - 1: "
    "i64)\nin f32[8] whole\nout f32[8] whole\nbody (%x, %o) {\n";

/// The body's ops after the pass, whose return value must say whether the text changed.
inline std::string apply(bool (*pass)(ir::Kernel&), const std::string& head, const std::string& ops) {
  ir::Kernel k = ir::parse(head + ops + "}\n");
  ir::check(k);
  const std::string before = ir::print(k);
  const bool changed = pass(k);
  ir::verify(k, "the pass");
  const std::string after = ir::print(k);
  CHECK(changed == (before != after));
  CHECK_FALSE((pass(k) && ir::print(k) == after));
  const size_t begin = after.find("{\n", after.find("body")) + 2;
  return "\n" + after.substr(begin, after.size() - begin - 2);
}
inline bool fold_dce(ir::Kernel& k) {
  const std::string before = ir::print(k);
  const bool folded = passes::fold(k);
  CHECK(folded == (ir::print(k) != before));
  return passes::dce(k) || folded;
}
/// Tile-level ops after fold and dce. %0 %1 are the inputs f32[8] and i32[8], %2 %3 the outputs of the same types, %4
/// is scratch f32[8].
inline std::string fold(const std::string& ops) { return apply(fold_dce, kHead, ops); }
inline std::string fold_lane(const std::string& ops) { return apply(fold_dce, kLaneHead, ops); }
inline std::string cse(const std::string& ops) { return apply(passes::cse, kHead, ops); }
inline std::string cse_lane(const std::string& ops) { return apply(passes::cse, kLaneHead, ops); }
inline std::string licm(const std::string& ops) { return apply(passes::licm, kHead, ops); }
inline std::string licm_lane(const std::string& ops) { return apply(passes::licm, kLaneHead, ops); }
inline std::string dce(const std::string& ops) { return apply(passes::dce, kHead, ops); }

}  // namespace tessera::test
