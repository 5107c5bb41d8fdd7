#include "engine/passes/passes.h"

#include <doctest/doctest.h>

#include <string>

#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "tests/unit/engine/passes/passes_support.h"

namespace passes_test {
using namespace tessera;
using namespace tessera::test;

TEST_CASE("cse: equal pure ops, where the first dominates") {
  CHECK(cse(R"(
  %a = load %n[0:8]
  %b = load %n[0:8]
  %c = add %a, %b
  %d = add %b, %a
  %e = add %c, %d
  %f = sub %a, %c
  %g = sub %c, %a
  store %m[0:8], %e
  store %m[0:8], %f
  store %m[0:8], %g
)") == R"(
  %5 = load %1[0:8] : i32[8]
  %6 = add %5, %5 : i32[8]
  %7 = add %6, %6 : i32[8]
  %8 = sub %5, %6 : i32[8]
  %9 = sub %6, %5 : i32[8]
  store %3[0:8], %7
  store %3[0:8], %8
  store %3[0:8], %9
)");
  CHECK(cse(R"(
  %p = constant true : bool[]
  %a = load %n[0]
  %r = if %p {
    %b = neg %a
    yield %b
  } else {
    %c = neg %a
    yield %c
  }
  %d = neg %a
  %e = add %d, %r
  store %m[0], %e
)") == R"(
  %5 = constant true : bool[]
  %6 = load %1[0] : i32[]
  %7 = if %5 {
    %8 = neg %6 : i32[]
    yield %8
  } else {
    %9 = neg %6 : i32[]
    yield %9
  }
  %10 = neg %6 : i32[]
  %11 = add %10, %7 : i32[]
  store %3[0], %11
)");
  // The same operands, but other attributes or another type.
  CHECK(cse(R"(
  %a = iota axis 0 : i32[2, 2]
  %b = iota axis 1 : i32[2, 2]
  %c = iota axis 0 : i32[2, 3]
  %d = iota axis 0 : i32[2, 2]
)") == R"(
  %5 = iota axis 0 : i32[2, 2]
  %6 = iota axis 1 : i32[2, 2]
  %7 = iota axis 0 : i32[2, 3]
)");
}

TEST_CASE("cse: loads are merged up to a store to the same memory, and a load finds what was stored") {
  CHECK(cse(R"(
  %a = load %s[0:8]
  store %o[0:8], %a
  %b = load %s[0:8]
  %c = neg %b
  %h = slice %c[0:4]
  store %s[0:4], %h
  %d = load %s[0:8]
  %e = load %s[0:4]
  %f = load %o[0:8]
  store %o[0:8], %d
  store %o[4:8], %e
  store %o[0:8], %f
)") == R"(
  %5 = load %4[0:8] : f32[8]
  store %2[0:8], %5
  %6 = neg %5 : f32[8]
  %7 = slice %6[0:4] : f32[4]
  store %4[0:4], %7
  %8 = load %4[0:8] : f32[8]
  store %2[0:8], %8
  store %2[4:8], %7
  store %2[0:8], %5
)");
  // Masked stores and other windows are not found; masked loads are equal only with equal masks.
  CHECK(cse(R"(
  %i = load %n[0]
  %a = load %x[0:8]
  %p = constant true : bool[8]
  store %s[0:8], %a mask %p
  %b = load %s[0:8]
  store %s[ds(%i, 8)], %b
  %c = load %s[ds(%i, 8)]
  %d = load %s[ds(%i, 8)] mask %p other %a
  %e = load %s[ds(%i, 8)] mask %p other %a
  %f = load %s[ds(%i, 8)] mask %p
  %g = load %s[0:8:1]
  store %o[0:8], %c
  store %o[0:8], %d
  store %o[0:8], %e
  store %o[0:8], %f
  store %o[0:8], %g
)") == R"(
  %5 = load %1[0] : i32[]
  %6 = load %0[0:8] : f32[8]
  %7 = constant true : bool[8]
  store %4[0:8], %6 mask %7
  %8 = load %4[0:8] : f32[8]
  store %4[ds(%5, 8)], %8
  %9 = load %4[ds(%5, 8)] mask %7 other %6 : f32[8]
  %10 = load %4[ds(%5, 8)] mask %7 : f32[8]
  %11 = load %4[0:8] : f32[8]
  store %2[0:8], %8
  store %2[0:8], %9
  store %2[0:8], %9
  store %2[0:8], %10
  store %2[0:8], %11
)");
  // A loop that stores: neither what was loaded before it, nor what an arm stored, is known inside or after.
  CHECK(cse(R"(
  %0 = constant 0 : i32[]
  %8 = constant 8 : i32[]
  %1 = constant 1 : i32[]
  %p = constant true : bool[]
  %x0 = load %x[0]
  %a = load %s[0]
  for %i = %0 to %8 step %1 {
    %b = load %s[0]
    %x1 = load %x[0]
    %c = add %b, %x1
    store %s[0], %c
  }
  %d = load %s[0]
  store %o[0], %d
  if %p {
    store %s[0], %a
    %e = load %s[0]
    store %o[1], %e
  } else {
    %f = load %s[0]
    store %o[2], %f
  }
  %g = load %s[0]
  store %o[3], %g
)") == R"(
  %5 = constant 0 : i32[]
  %6 = constant 8 : i32[]
  %7 = constant 1 : i32[]
  %8 = constant true : bool[]
  %9 = load %0[0] : f32[]
  %10 = load %4[0] : f32[]
  for %11 = %5 to %6 step %7 {
    %12 = load %4[0] : f32[]
    %13 = add %12, %9 : f32[]
    store %4[0], %13
  }
  %14 = load %4[0] : f32[]
  store %2[0], %14
  if %8 {
    store %4[0], %10
    store %2[1], %10
  } else {
    store %2[2], %14
  }
  %15 = load %4[0] : f32[]
  store %2[3], %15
)");
}

TEST_CASE("cse: at lane level a barrier makes written memory new, arenas are one memory each, views are their base") {
  CHECK(cse_lane(R"(
  %l = local_index
  %0 = constant 0 : i32[]
  %e = extent index 1 : i64[]
  %a = alloc_shared offset 0 : ref<shared, f32[64]>
  %b = alloc_shared offset 256 : ref<shared, f32[64]>
  %v = view %o, %e
  %x0 = load %x[%l]
  %a0 = load %a[%0]
  store %b[%l], %x0
  %a1 = load %a[%0]
  store %b[%l], %a1
  store %v[%l], %a0
  %o0 = load %o[%l]
  barrier
  %x1 = load %x[%l]
  %b1 = load %b[%l]
  %o1 = load %o[%l]
  store %o[%l], %x1
  store %o[%l], %b1
  store %o[%l], %o0
  store %o[%l], %o1
)") == R"(
  %2 = local_index : i32[]
  %3 = constant 0 : i32[]
  %4 = extent index 1 : i64[]
  %5 = alloc_shared offset 0 : ref<shared, f32[64]>
  %6 = alloc_shared offset 256 : ref<shared, f32[64]>
  %7 = view %1, %4 : ref<global, f32[?]>
  %8 = load %0[%2] : f32[]
  %9 = load %5[%3] : f32[]
  store %6[%2], %8
  %10 = load %5[%3] : f32[]
  store %6[%2], %10
  store %7[%2], %9
  %11 = load %1[%2] : f32[]
  barrier
  %12 = load %6[%2] : f32[]
  %13 = load %1[%2] : f32[]
  store %1[%2], %8
  store %1[%2], %12
  store %1[%2], %11
  store %1[%2], %13
)");
}

TEST_CASE("cse: a lane-level vector load has several results") {
  CHECK(cse_lane(R"(
  %l = local_index
  %a, %b = load %x[ds(%l, 2)]
  %c, %d = load %x[ds(%l, 2)]
  %e, %f, %g, %h = load %x[ds(%l, 4)]
  %i = add %c, %d
  %j = add %i, %h
  store %o[%l], %j
)") == R"(
  %2 = local_index : i32[]
  %3, %4 = load %0[ds(%2, 2)]
  %5, %6, %7, %8 = load %0[ds(%2, 4)]
  %9 = add %3, %4 : f32[]
  %10 = add %9, %8 : f32[]
  store %1[%2], %10
)");
}

TEST_CASE("licm: pure ops and unstored loads leave loops, through several at once") {
  CHECK(licm(R"(
  %0 = constant 0 : i32[]
  %8 = constant 8 : i32[]
  %1 = constant 1 : i32[]
  for %i = %0 to %8 step %1 {
    for %j = %0 to %8 step %1 {
      %a = load %x[0:8]
      %b = exp %a
      %c = load %s[0:8]
      %d = add %b, %c
      %k = add %i, %1
      %q = add %j, %1
      store %s[0:8], %d
      store %m[%k], %q
    }
  }
)") == R"(
  %5 = constant 0 : i32[]
  %6 = constant 8 : i32[]
  %7 = constant 1 : i32[]
  %8 = load %0[0:8] : f32[8]
  %9 = exp %8 : f32[8]
  for %10 = %5 to %6 step %7 {
    %11 = add %10, %7 : i32[]
    for %12 = %5 to %6 step %7 {
      %13 = load %4[0:8] : f32[8]
      %14 = add %9, %13 : f32[8]
      %15 = add %12, %7 : i32[]
      store %4[0:8], %14
      store %3[%11], %15
    }
  }
)");
  CHECK(licm(R"(
  %0 = constant 0 : i32[]
  %n0 = load %n[0]
  %r = while (%c = %0) {
    %b = neg %n0
    %f = lt %c, %b
    yield %f
  } do (%c) {
    %one = constant 1 : i32[]
    %d = add %c, %one
    yield %d
  }
  store %m[0], %r
)") == R"(
  %5 = constant 0 : i32[]
  %6 = load %1[0] : i32[]
  %7 = neg %6 : i32[]
  %8 = constant 1 : i32[]
  %9 = while (%10 = %5: i32[]) {
    %11 = lt %10, %7 : bool[]
    yield %11
  } do (%12: i32[]) {
    %13 = add %12, %8 : i32[]
    yield %13
  }
  store %3[0], %9
)");
  CHECK(licm_lane(R"(
  %0 = constant 0 : i32[]
  %n = extent index 0 : i32[]
  %1 = constant 1 : i32[]
  %l = local_index
  for %i = %0 to %n step %1 {
    %k = add %l, %n
    %a = load %x[%k]
    store %o[%i], %a
  }
)") == R"(
  %2 = constant 0 : i32[]
  %3 = extent index 0 : i32[]
  %4 = constant 1 : i32[]
  %5 = local_index : i32[]
  %6 = add %5, %3 : i32[]
  for %7 = %2 to %3 step %4 {
    %8 = load %0[%6] : f32[]
    store %1[%7], %8
  }
)");
}

TEST_CASE("dce: what a call reports to the host stays") {
  CHECK(fold_lane(R"(
  %p = loops_cut
  %q = loops_cut
  report %q mask 1
)") == R"(
  %2 = loops_cut : bool[]
  report %2 mask 1
)");
}

TEST_CASE("dce: unused ops, carries, results and empty control flow go; effects and while stay") {
  CHECK(dce(R"(
  %0 = constant 0 : i32[]
  %8 = constant 8 : i32[]
  %1 = constant 1 : i32[]
  %p = constant true : bool[]
  %unused = load %x[0:8]
  %a, %b, %c = for %i = %0 to %8 step %1 carry (%ca = %0, %cb = %0, %cc = %0) {
    %da = add %ca, %cb
    %db = add %cb, %1
    %dc = add %cc, %da
    yield %da, %db, %dc
  }
  store %m[0], %a
  for %i = %0 to %8 step %1 {
    %t = add %i, %i
  }
  if %p {
    %t = load %n[0]
  }
  %r, %s2 = if %p { yield %0, %8 } else { yield %8, %0 }
  store %m[1], %s2
  %w = while (%cw = %0) { yield %p } do (%cw) {
    %z = add %cw, %1
    yield %z
  }
  %old = swap %m[0], %0
  %gone = swap %m[1], %old
)") == R"(
  %5 = constant 0 : i32[]
  %6 = constant 8 : i32[]
  %7 = constant 1 : i32[]
  %8 = constant true : bool[]
  %9, %10 = for %11 = %5 to %6 step %7 carry (%12 = %5: i32[], %13 = %5: i32[]) {
    %14 = add %12, %13 : i32[]
    %15 = add %13, %7 : i32[]
    yield %14, %15
  }
  store %3[0], %9
  %16 = if %8 { yield %6 } else { yield %5 }
  store %3[1], %16
  while () { yield %8 } do () {}
  %17 = swap %3[0], %5 : i32[]
  store %3[1], %17
)");
}

TEST_CASE("passes: index maps are simplified too") {
  ir::Kernel k = ir::parse(R"(tir 1
kernel @k
grid (4, 8)
in f32[32, 64] block (8, 8) map (%i, %j) {
  %one = constant 1 : i32[]
  %a = mul %i, %one
  %n = num_programs axis 1
  %b = rem %j, %n
  yield %a, %b
}
out f32[32, 64] block (8, 8) map (%i, %j) { yield %i, %j }
body (%x, %o) {
  %a = load %x[0:8, 0:8]
  store %o[0:8, 0:8], %a
}
)");
  passes::optimize(k);
  CHECK(ir::print(k) == R"(tir 1
kernel @k
grid (4, 8)
in f32[32, 64] block (8, 8) map (%0, %1) {
  %2 = constant 8 : i32[]
  %3 = rem %1, %2 : i32[]
  yield %0, %3
}
out f32[32, 64] block (8, 8) map (%4, %5) { yield %4, %5 }
body (%6: ref<vmem, f32[8, 8]>, %7: ref<vmem, f32[8, 8]>) {
  %8 = load %6[0:8, 0:8] : f32[8, 8]
  store %7[0:8, 0:8], %8
}
)");
}

TEST_CASE("passes: optimize shows every pass in order and ends") {
  ir::Kernel k =
      ir::parse(kHead + "  %a = load %x[0:8]\n  %b = load %x[0:8]\n  %c = add %a, %b\n  store %o[0:8], %c\n}\n");
  std::string seen;
  passes::optimize(k, [&](const passes::Pass& p, const ir::Kernel&, bool changed) {
    seen += std::string(p.name) + (changed ? "! " : " ");
  });
  CHECK(seen == "fold count cse! licm dce fold count cse licm dce ");
}

}  // namespace passes_test
