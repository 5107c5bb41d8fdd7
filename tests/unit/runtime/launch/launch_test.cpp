#include <algorithm>
#include <cstdlib>
#include <thread>

#include "codegen/compile.h"
#include "engine/ir/text.h"
#include "runtime/launch/arguments.h"
#include "tests/unit/runtime/support.h"

namespace launch_test {
using namespace tessera;
using namespace tessera::test;

TEST_CASE("launch adds arrays of any length") {
  for (int64_t n : {1, 63, 64, 65, 1000, 100000}) {
    CAPTURE(n);
    const DeviceArray a(device(), ramp(n)), b(device(), ramp(n, 0.5f));
    const DeviceArray o = launch(device(), add(), {a, b}).at(0);
    CHECK(o.shape() == Shape{n});
    CHECK(o.dtype() == f32);
    std::vector<float> want;
    for (int64_t i = 0; i < n; ++i) want.push_back(static_cast<float>(2 * i) + 0.5f);
    CHECK(floats(o) == want);
  }
  check_clean(device());
}

TEST_CASE("a call on zero-size arrays dispatches nothing") {
  const DeviceArray a(device(), ramp(0)), b(device(), ramp(0));
  const DeviceArray o = launch(device(), add(), {a, b}).at(0);
  CHECK(o.shape() == Shape{0});
  CHECK(o.nbytes() == 0);
  CHECK(floats(o).empty());
  CHECK(o.copy().shape() == Shape{0});
  check_clean(device());
}

TEST_CASE("the arena has room for the workgroups launched, which loop over the rest") {
  const DeviceArray a(device(), ramp(1000));
  std::vector<float> want;
  for (int i = 0; i < 1000; ++i) want.push_back(3.0f * static_cast<float>(i));
  CHECK(floats(launch(device(), scratch(), {a}).at(0)) == want);
  check_clean(device());
}

TEST_CASE("an argument block beyond the push constants goes into a table") {
  const DeviceArray a(device(), ramp(300)), b(device(), ramp(300, 1));
  std::vector<DeviceArray> outs;
  // each call in flight has its own
  for (int i = 0; i < 20; ++i) outs.push_back(launch(device(), table(), {a, b}).at(0));
  for (const DeviceArray& o : outs) {
    const std::vector<float> got = floats(o);
    CHECK(got.front() == 1);
    CHECK(got.back() == 599);
  }
  check_clean(device());
}

TEST_CASE("the subgroup size that a program requires is what it gets") {
  Program p = subgroup();
  const int32_t size = device().target().max_subgroup_size;
  if (!device().target().can_require_subgroup_size) return;
  p.required_subgroup_size = size;
  const DeviceArray o = launch(device(), p, {}, {{"n", 10}}).at(0);
  CHECK(floats(o) == std::vector<float>(10, static_cast<float>(size)));
  check_clean(device());
}

// The arrays themselves would take gigabytes.
TEST_CASE("sizes that bring what the code counts beyond 2^31 - 1 are refused" * without_device) {
  const auto said = [](const std::string& text, int64_t n) -> std::string {
    const Program p = compile(ir::parse("tir 1\nkernel @k\n" + text), Target::named("gpu"));
    try {
      extents_of(p, {{"n", n}}, "a device");
    } catch (const SpecError& e) {
      return std::string(e.what()).substr(0, std::string(e.what()).find('\n'));
    }
    return "";
  };
  constexpr int64_t most = INT32_MAX;
  // The code knows that there are at most 2,048 programs.
  const std::string parts = R"(grid (cdiv(n, 1048576))
out i32[cdiv(n, 1048576)] block (squeezed) map (%i) { yield %i }
body (%o) {
  %i = program_id axis 0
  %most = constant 2048 : i32[]
  %is = lt %i, %most
  %o1 = constant 1 : i32[]
  %o2 = constant 2 : i32[]
  %v = select %is, %o1, %o2
  store %o[], %v
}
)";
  CHECK(said(parts, most) == "");
  CHECK(said(parts, most + 1) == "k: n is 2147483648 but the kernel counts it in 32 bits");
  const auto last_of = [](const std::string& block) {
    return "grid (1)\nprefetch i32[1] whole\nin u8[n] block (" + block + ") map (%i, %s) {\n  %v = load %s[0]\n" +
           "  yield %v\n}\nout u8[1] whole\nbody (%s, %x, %o) {\n  %v = load %x[7]\n  store %o[0], %v\n}\n";
  };
  // Where the last block ends: its last elements stand for those behind the array.
  CHECK(said(last_of("halo(16, 1, 2, clamp)"), most - 15) == "");
  CHECK(said(last_of("halo(16, 1, 2, clamp)"), most - 14) ==
        "k: cdiv(n, 16) * 16 + 2 is 2147483650 but the kernel counts it in 32 bits");
  // The position of the last element in the padded array, which -1 may mean.
  CHECK(said(last_of("element(8, 3, 5)"), most - 3) == "");
  CHECK(said(last_of("element(8, 3, 5)"), most - 2) == "k: n + 3 is 2147483648 but the kernel counts it in 32 bits");
  CHECK(said(last_of("element(8, 0, 500)"), most) == "");
}

TEST_CASE("workgroups are folded into three dimensions" * without_device) {
  using Groups = std::array<uint32_t, 3>;
  CHECK(fold_workgroups(1, {65535, 65535, 65535}) == Groups{1, 1, 1});
  CHECK(fold_workgroups(65535, {65535, 65535, 65535}) == Groups{65535, 1, 1});
  CHECK(fold_workgroups(65536, {65535, 65535, 65535}) == Groups{32768, 2, 1});
  for (int64_t count : {1ll, 7ll, 8ll, 9ll, 63ll, 64ll, 65ll, 100ll, 511ll, 512ll}) {
    CAPTURE(count);
    const Groups g = fold_workgroups(count, {8, 8, 8});
    CHECK(int64_t{g[0]} * g[1] * g[2] >= count);
    CHECK(int64_t{g[0]} * g[1] * (g[2] - 1) < count);
    CHECK(std::max({g[0], g[1], g[2]}) <= 8);
  }
  const Groups g = fold_workgroups(2147483647, {65535, 65535, 65535});
  CHECK(uint64_t{g[0]} * g[1] * g[2] >= 2147483647u);
  CHECK(uint64_t{g[0]} * g[1] * g[2] < 2147483647u + 65535u);
}

TEST_CASE("more workgroups than one dimension holds") {
  const int64_t n = 64 * 70000 + 3;
  const DeviceArray o = launch(device(), scale(), {DeviceArray(device(), ramp(n))}).at(0);
  const std::vector<float> got = floats(o);
  CHECK(got[0] == 1);
  CHECK(got[64 * 65535 + 1] == 2.0f * (64 * 65535 + 1) + 1);
  CHECK(got.back() == 2.0f * static_cast<float>(n - 1) + 1);
  check_clean(device());
}

TEST_CASE("many calls in flight, each reading what the one before wrote") {
  DeviceArray x(device(), ramp(1000));
  for (int i = 0; i < 10; ++i) x = launch(device(), scale(), {x}).at(0);
  CHECK(floats(x) == scaled_ramp(1000, 10));
  check_clean(device());
}

TEST_CASE("pipelines are shared by code, not by name") {
  Program renamed = scale();
  renamed.name = "another";
  const DeviceArray a(device(), ramp(4));
  CHECK(floats(launch(device(), renamed, {a}).at(0)) == scaled_ramp(4));
  prepare(device(), renamed);
  CHECK(floats(launch(device(), scale(), {a}).at(0)) == scaled_ramp(4));
  check_clean(device());
}

TEST_CASE("threads share a device") {
  const DeviceArray a(device(), ramp(500));
  std::vector<std::thread> threads;
  std::vector<int> right(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        DeviceArray x = a;
        for (int k = 0; k < 3; ++k) x = launch(device(), scale(), {x}).at(0);
        right[t] += floats(x) == scaled_ramp(500, 3);
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(right == std::vector<int>(4, 5));
  check_clean(device());
}

TEST_CASE("arguments that do not fit") {
  const Device& d = device();
  const DeviceArray a(d, ramp(8)), b(d, ramp(9)), i(d, Array({8}, i32)), m(d, Array({2, 4}, f32));
  auto text = [&](const Program& p, const std::vector<DeviceArray>& in, const DimValues& dims = {}) {
    return error_of<SpecError>([&] { launch(d, p, in, dims); });
  };
  CHECK(text(add(), {a}) == "add: takes 2 arguments but 1 was given");
  CHECK(text(add(), {a, a, a}) == "add: takes 2 arguments but 3 were given");
  CHECK(text(add(), {a, i}) == "add: argument 1: dtype is i32 but the kernel takes f32");
  CHECK(text(add(), {m, a}) == "add: argument 0: shape (2, 4) has 2 dims but the kernel takes (n,) with 1");
  CHECK(text(add(), {a, b}) ==
        "add: argument 1: shape (9,) has n = 9 but argument 0 has n = 8\n  note: the kernel takes (n,) here; equal "
        "names are equal sizes");
  CHECK(text(add(), {a, a}, {{"n", 7}}) ==
        "add: argument 0: shape (8,) has n = 8 but the call gives n = 7\n  note: the kernel takes (n,) here; equal "
        "names are equal sizes");
  CHECK(text(add(), {a, a}, {{"m", 7}}) ==
        "add: a size \"m\" was given but the kernel has none of that name\n  note: its sizes are n");
  CHECK(text(add(), {a, DeviceArray()}) ==
        "add: argument 1: this DeviceArray holds no array: it was never given one, or has been moved from");
  CHECK(text(subgroup(), {}) ==
        "subgroup: out_specs[0]: no value for the size \"n\" in n\n  note: a size is taken from an argument whose "
        "shape names it "
        "alone, or given with the call");

  Program fixed = add();
  fixed.args[1].shape = {dim("n") * 2};
  fixed.args[1].loc = {"add.cpp", 3};
  CHECK(text(fixed, {a, b}) ==
        "add: argument 1: shape is (9,) but the kernel takes (n * 2,), which is (16,) for n = 8\n  at add.cpp:3");

  Program negative = add();
  negative.args[2].shape = {dim("n") - 9};
  CHECK(text(negative, {a, a}) ==
        "add: out_specs[0]: array shape (n - 9,) is (-1,) for n = 8\n  note: sizes must not be negative");

  Program grid = add();
  grid.grid = {dim("n") - 9};
  CHECK(text(grid, {a, a}) == "add: grid axis 0 is -1, from n - 9 for n = 8\n  note: grid sizes must not be negative");

  Program wide = subgroup();
  wide.args.clear();
  CHECK(text(wide, {}, {{"n", int64_t{1} << 40}}) ==
        "subgroup: the grid takes 17179869184 workgroups but a call has at most 2147483647");
  Program narrow = subgroup();
  narrow.args.clear();
  narrow.num_units = 1;
  CHECK(text(narrow, {}, {{"n", int64_t{1} << 31}}) == "subgroup: n is 2147483648 but the kernel counts it in 32 bits");

  DeviceOptions plain;
  const Device other(plain);
  CHECK(text(add(), {a, DeviceArray(other, ramp(8))}) ==
        "add: argument 1: the array is on another Device than the call");
  check_clean(d);
}

TEST_CASE("programs beyond the device's limits") {
  const Device& d = device();
  const Target& t = d.target();
  const std::string device_name = t.name;
  auto text = [&](const Program& p) { return error_of<CompileError>([&] { prepare(d, p); }); };

  Program shared = add();
  shared.shared_bytes = t.shared_bytes + 1;
  CHECK(text(shared) == "add: needs " + std::to_string(t.shared_bytes + 1) + " bytes of shared memory but " +
                            device_name + " has " + std::to_string(t.shared_bytes));

  Program push = add();
  const auto addresses = static_cast<size_t>(t.push_constant_bytes / 8 + 1);
  while (push.args.size() < addresses) push.args.push_back(push.args.back());
  CHECK(text(push) == "add: needs " + std::to_string(8 * addresses + 4) + " bytes of push constants but " +
                          device_name + " has " + std::to_string(t.push_constant_bytes));

  Program big = add();
  big.workgroup_size = t.max_workgroup_size * 2;
  big.loc = {"add.cpp", 7};
  CHECK(text(big) == "add: needs " + std::to_string(t.max_workgroup_size * 2) + " invocations per workgroup but " +
                         device_name + " has " + std::to_string(t.max_workgroup_size) + "\n  at add.cpp:7");

  if (t.can_require_subgroup_size) {
    Program subgroups = add();
    subgroups.required_subgroup_size = t.max_subgroup_size * 2;
    CHECK(text(subgroups) == "add: needs subgroups of " + std::to_string(t.max_subgroup_size * 2) + " but " +
                                 device_name + " has " + std::to_string(t.min_subgroup_size) + " to " +
                                 std::to_string(t.max_subgroup_size));
  }
  check_clean(d);
}

}  // namespace launch_test
