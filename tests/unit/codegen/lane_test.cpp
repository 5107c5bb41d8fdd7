// The lane-level verifier and interpreter, on lane kernels made by hand: right ones pass in every order, and each thing
// that can be wrong is reported.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "codegen/lane/interpreter.h"
#include "codegen/lane/uniformity.h"
#include "codegen/lane/verify.h"
#include "engine/ir/builder.h"
#include "engine/ir/reference.h"
#include "engine/ir/text.h"

namespace lane_test {
using namespace tessera;
using ir::Attr, ir::Builder, ir::Index, ir::Kernel, ir::Op, ir::Opcode, ir::Type, ir::Value;

namespace {

// A lane-level kernel under construction: f32 x in, f32 o out, unless said otherwise.
struct Lane {
  Kernel k;
  Builder b{k};
  std::vector<Value> args;

  explicit Lane(int32_t workgroup_size, int64_t units = 1, std::vector<DType> dtypes = {DType::f32, DType::f32},
                int inputs = 1) {
    k.name = "test";
    k.level = ir::Level::lane;
    k.num_inputs = inputs;
    k.lane.workgroup_size = workgroup_size;
    k.lane.num_units = units;
    std::vector<Type> types;
    for (size_t i = 0; i < dtypes.size(); ++i) {
      const bool out = static_cast<int>(i) >= inputs;
      ir::BlockMapping& m = k.blocks.emplace_back();
      m.origin = out ? "out_specs[" + std::to_string(static_cast<int>(i) - inputs) + "]"
                     : "in_specs[" + std::to_string(i) + "]";
      m.dtype = dtypes[i];
      types.push_back(Type::ref(dtypes[i], {-1}, ir::MemorySpace::global));
    }
    k.body = b.new_region(types);
    args = k.region(k.body).args;
    b.set_region(k.body);
  }
  Value source(Opcode c) { return b.one({.code = c}); }
  Value number(int64_t v, DType t = DType::i32) { return b.constant_int(t, v); }
  Value shared(int64_t offset, int64_t n, DType t = DType::f32) {
    k.lane.shared_bytes = std::max(k.lane.shared_bytes, offset + n * ir::arena_stride(t));
    Op op{.code = Opcode::alloc_shared};
    op.set(Attr::offset, offset);
    return b.one(std::move(op), Type::ref(t, {n}, ir::MemorySpace::shared));
  }
  Value scratch(int64_t offset, int64_t n, DType t = DType::f32) {
    k.lane.scratch_bytes = std::max(k.lane.scratch_bytes, offset + n * size_bytes(t));
    Op op{.code = Opcode::alloc_scratch};
    op.set(Attr::offset, offset);
    return b.one(std::move(op), Type::ref(t, {n}, ir::MemorySpace::global));
  }
  Value load(Value ref, Value index, Value mask = {}, Value other = {}) {
    Op op{.code = Opcode::load, .operands = {ref}};
    if (mask) op.operands.push_back(mask), op.set(Attr::mask, 1);
    if (other) op.operands.push_back(other), op.set(Attr::other, 1);
    op.index = {Index::at(Index::Dynamic{op.operands.size()})};
    op.operands.push_back(index);
    return b.one(std::move(op));
  }
  void store(Value ref, Value index, Value v, Value mask = {}) {
    Op op{.code = Opcode::store, .operands = {ref, v}};
    if (mask) op.operands.push_back(mask), op.set(Attr::mask, 1);
    op.index = {Index::at(Index::Dynamic{op.operands.size()})};
    op.operands.push_back(index);
    b.append(std::move(op));
  }
  void barrier() { b.append({.code = Opcode::barrier}); }
  Value add(Value x, Value y) { return b.elementwise(Opcode::add, {x, y}); }
  Value sub(Value x, Value y) { return b.elementwise(Opcode::sub, {x, y}); }
  Value mul(Value x, Value y) { return b.elementwise(Opcode::mul, {x, y}); }
  Value lt(Value x, Value y) { return b.elementwise(Opcode::lt, {x, y}); }
  Value eq(Value x, Value y) { return b.elementwise(Opcode::eq, {x, y}); }
  Value global_index() {
    return add(mul(source(Opcode::workgroup_index), number(k.lane.workgroup_size)), source(Opcode::local_index));
  }
  void loop(int64_t n, const std::function<void(Value)>& body) {
    b.for_loop(number(0), number(n), number(1), {}, [&](Value iv, const std::vector<Value>&) {
      body(iv);
      return std::vector<Value>{};
    });
  }
  Kernel& done() {
    b.set_region(k.body);
    b.yield({});
    return k;
  }
};

Array counting(int64_t n, DType t = DType::f32) {
  Array a({n}, t);
  for (int64_t i = 0; i < n; ++i) a.set_element_bits(i, reference::from_double(t, static_cast<double>(i)));
  return a;
}

std::vector<std::string> reports_of(const Kernel& k, const std::vector<Array>& arrays, int inputs = 1, int seeds = 3) {
  for (int seed = 0; seed < seeds; ++seed) {
    auto r = lane::run(k, arrays, inputs, {}, {.seed = static_cast<uint64_t>(seed)});
    if (!r.reports.empty()) return r.reports;
  }
  return {};
}
bool any_contains(const std::vector<std::string>& list, const std::string& what) {
  for (const std::string& s : list)
    if (s.find(what) != std::string::npos) return true;
  return false;
}
std::vector<std::string> messages(const Kernel& k) {
  std::vector<std::string> r;
  for (const ir::Problem& p : lane::find_lane_problems(k)) r.push_back(p.entity + ": " + p.message);
  return r;
}

// The kernel once for each of its barriers, with that one deleted.
std::vector<Kernel> without_each_barrier(const Kernel& k) {
  std::vector<Kernel> list;
  for (size_t r = 0; r < k.regions.size(); ++r)
    for (size_t i = 0; i < k.regions[r].ops.size(); ++i)
      if (k.op(k.regions[r].ops[i]).code == Opcode::barrier) {
        Kernel copy = k;
        copy.regions[r].ops.erase(copy.regions[r].ops.begin() + static_cast<std::ptrdiff_t>(i));
        list.push_back(copy);
      }
  return list;
}

// o[workgroup] = sum of the workgroup's 8 elements of x, by halves in shared memory.
Kernel tree_reduction(Value (Lane::*arena)(int64_t, int64_t, DType), int64_t units) {
  Lane l(8, units);
  const Value tid = l.source(Opcode::local_index), sums = (l.*arena)(0, 8, DType::f32);
  l.store(sums, tid, l.load(l.args[0], l.global_index()));
  l.loop(3, [&](Value i) {
    l.barrier();
    const Value half = l.b.elementwise(Opcode::shift_right_logical, {l.number(4), i});
    l.b.when(l.lt(tid, half), [&] { l.store(sums, tid, l.add(l.load(sums, tid), l.load(sums, l.add(tid, half)))); });
  });
  l.b.when(l.eq(tid, l.number(0)), [&] { l.store(l.args[1], l.source(Opcode::workgroup_index), l.load(sums, tid)); });
  Kernel k = l.done();
  k.lane.max_workgroups = units;  // no surplus: the body does not test workgroup_index
  return k;
}

// Each workgroup reverses blocks of 8 of x through shared memory, as many as there are; barriers before the reads and
// on the back edge.
Kernel reverse_blocks(int64_t blocks, int64_t workgroups) {
  Lane l(8, workgroups);
  l.k.lane.max_workgroups = workgroups;
  const Value tid = l.source(Opcode::local_index), buffer = l.shared(0, 8);
  l.b.for_loop(l.source(Opcode::workgroup_index), l.number(blocks), l.source(Opcode::num_workgroups), {},
               [&](Value block, const std::vector<Value>&) {
                 const Value place = l.add(l.mul(block, l.number(8)), tid);
                 l.store(buffer, tid, l.load(l.args[0], place));
                 l.barrier();
                 l.store(l.args[1], place, l.load(buffer, l.sub(l.number(7), tid)));
                 l.barrier();
                 return std::vector<Value>{};
               });
  return l.done();
}
}  // namespace

TEST_CASE("a tree reduction is right in every order, and without its barrier it is reported") {
  for (const auto arena : {&Lane::shared, &Lane::scratch}) {
    const Kernel k = tree_reduction(arena, 3);
    CHECK(lane::find_lane_problems(k).empty());
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const auto r = lane::run(k, {counting(24), Array({3}, DType::f32)}, 1, {}, {.seed = seed});
      CHECK(r.reports == std::vector<std::string>{});
      REQUIRE(r.outputs.size() == 1);
      CHECK(r.outputs[0].at(0) == 28);
      CHECK(r.outputs[0].at(1) == 92);
      CHECK(r.outputs[0].at(2) == 156);
    }
    const auto broken = without_each_barrier(k);
    CHECK(broken.size() == 1);
    for (const Kernel& b : broken)
      CHECK(any_contains(reports_of(b, {counting(24), Array({3}, DType::f32)}), "conflict without a barrier between"));
  }
}

TEST_CASE("a loop over units needs both its barriers") {
  const Kernel k = reverse_blocks(5, 2);
  CHECK(lane::find_lane_problems(k).empty());
  for (uint64_t seed = 0; seed < 10; ++seed)
    for (int32_t most : {0, 1}) {
      const auto r =
          lane::run(k, {counting(40), Array({40}, DType::f32)}, 1, {}, {.seed = seed, .max_workgroups = most});
      CHECK(r.reports == std::vector<std::string>{});
      for (int64_t i = 0; i < 40; ++i) CHECK(r.outputs[0].at(i) == static_cast<double>(i / 8 * 8 + 7 - i % 8));
    }
  const auto broken = without_each_barrier(k);
  CHECK(broken.size() == 2);
  for (const Kernel& b : broken) CHECK(!reports_of(b, {counting(40), Array({40}, DType::f32)}).empty());
}

TEST_CASE("atomic updates of two kinds, and those whose order shows, need a barrier between") {
  const auto reports = [](const std::string& first, const std::string& between, const std::string& second) {
    const Kernel k = ir::parse(
        "tir 1\nlane kernel @test\nworkgroup_size 8 shared_bytes 0\nnum_units 1 exact\nin i32[8] whole\n"
        "out i32[8] whole\nbody (%x, %o) {\n%l = local_index\n%0 = constant 0 : i32[]\n%v = load %x[%l]\n"
        "barrier\n%a = atomic_rmw %o[%0], %v kind " +
        first + "\n" + between + "%b = atomic_rmw %o[%0], %v kind " + second + "\n}\n");
    return reports_of(k, {Array({8}, DType::i32), Array({8}, DType::i32)});
  };
  const std::string conflict = "conflict without a barrier between: element 0 of out_specs[0] is atomically updated by";
  CHECK(reports("add", "", "add").empty());
  CHECK(any_contains(reports("add", "", "max"), conflict));
  CHECK(reports("add", "barrier\n", "max").empty());
  CHECK(any_contains(reports("swap", "barrier\n", "add"), conflict));
}

TEST_CASE("a report names the ops, the invocations, the workgroup and the element") {
  Lane l(2);
  l.k.lane.max_workgroups = 1;
  l.b.set_loc({"kernel.cpp", 7});
  const Value tid = l.source(Opcode::local_index), loaded = l.load(l.args[0], tid), three = l.number(3);
  l.store(l.args[1], three, loaded);
  const auto reports = reports_of(l.done(), {counting(4), Array({4}, DType::f32)}, 1, 1);
  REQUIRE(reports.size() == 1);
  const std::string op = "`store %1, %3[%4]` (kernel.cpp:7)";
  const std::string a =
      "test: conflict without a barrier between: element 3 of out_specs[0] is written by invocation 1 of workgroup 0 "
      "in " +
      op + " and written by invocation 0 of workgroup 0 in " + op;
  const std::string b =
      "test: conflict without a barrier between: element 3 of out_specs[0] is written by invocation 0 of workgroup 0 "
      "in " +
      op + " and written by invocation 1 of workgroup 0 in " + op;
  CAPTURE(reports[0]);
  CHECK((reports[0] == a || reports[0] == b));
}

TEST_CASE("two invocations that write the same value to one place conflict; one that writes twice does not") {
  Lane same(4);
  same.store(same.args[1], same.number(0), same.b.constant_float(DType::f32, 1));
  CHECK(any_contains(reports_of(same.done(), {counting(4), Array({1}, DType::f32)}), "written by"));
  Lane twice(4);
  twice.k.lane.max_workgroups = 1;
  const Value tid = twice.source(Opcode::local_index);
  twice.store(twice.args[1], tid, twice.b.constant_float(DType::f32, 1));
  twice.store(twice.args[1], tid, twice.add(twice.load(twice.args[1], tid), twice.load(twice.args[0], tid)));
  const auto r = lane::run(twice.done(), {counting(4), Array({4}, DType::f32)}, 1, {}, {});
  CHECK(r.reports.empty());
  CHECK(r.outputs[0].at(3) == 4);
}

TEST_CASE("conflicts between workgroups are reported whatever barriers there are") {
  Lane l(1, 3);
  l.k.lane.max_workgroups = 3;
  const Value g = l.source(Opcode::workgroup_index);
  l.barrier();
  l.store(l.args[1], g, l.load(l.args[1], l.number(0)));
  CHECK(any_contains(reports_of(l.done(), {counting(4), Array({3}, DType::f32)}),
                     "conflict between workgroups: element 0 of out_specs[0]"));
}

TEST_CASE("aliasing of dtypes in the arena is by bytes") {
  // 0: two f32 at bytes 0..7; an f64 over them. The second invocation's f32 and the first's f64 meet.
  Lane l(2, 1, {DType::f32, DType::f32});
  l.k.lane.max_workgroups = 1;
  const Value tid = l.source(Opcode::local_index), narrow = l.shared(0, 2), wide = l.shared(0, 1, DType::f64);
  l.b.when(l.eq(tid, l.number(0)), [&] { l.store(wide, l.number(0), l.b.constant_float(DType::f64, 2)); });
  l.b.when(l.eq(tid, l.number(1)), [&] { l.store(narrow, l.number(1), l.b.constant_float(DType::f32, 2)); });
  CHECK(
      any_contains(reports_of(l.done(), {counting(4), Array({2}, DType::f32)}), "shared memory at byte 0 is written"));
}

TEST_CASE("uninitialised arena memory is reported when it reaches a result, a condition or an index, and not before") {
  const auto kernel = [](const std::function<void(Lane&, Value garbage, Value index)>& use) {
    Lane l(4);
    l.k.lane.max_workgroups = 1;
    const Value tid = l.source(Opcode::local_index);
    const Value words = l.shared(0, 4), counts = l.shared(16, 4, DType::i32);
    use(l, l.load(words, tid), l.load(counts, tid));
    return l.done();
  };
  const auto reports = [&](const std::function<void(Lane&, Value, Value)>& use) {
    return reports_of(kernel(use), {counting(4), Array({4}, DType::f32)});
  };
  const auto tid = [](Lane& l) { return l.source(Opcode::local_index); };
  CHECK(any_contains(reports([&](Lane& l, Value g, Value) { l.store(l.args[1], tid(l), l.add(g, g)); }),
                     "is the stored value of"));
  CHECK(
      any_contains(reports([&](Lane& l, Value, Value i) { l.store(l.args[1], i, l.b.constant_float(DType::f32, 1)); }),
                   "is the index of"));
  CHECK(any_contains(reports([&](Lane& l, Value g, Value) {
                       l.b.when(l.lt(g, g), [&] { l.store(l.args[1], tid(l), l.load(l.args[0], tid(l))); });
                     }),
                     "is the condition of"));
  CHECK(any_contains(reports([&](Lane& l, Value, Value i) {
                       l.b.for_loop(l.number(0), i, l.number(1), {},
                                    [&](Value, const std::vector<Value>&) { return std::vector<Value>{}; });
                     }),
                     "is a bound of"));
  // Dropped, chosen against, or masked away: garbage that nobody sees.
  CHECK(reports([&](Lane& l, Value g, Value) {
          const Value chosen =
              l.b.elementwise(Opcode::select, {l.lt(tid(l), l.number(9)), l.load(l.args[0], tid(l)), g});
          l.store(l.args[1], tid(l), chosen);
        }).empty());
  CHECK(reports([&](Lane& l, Value g, Value) { l.store(l.args[1], tid(l), g, l.lt(tid(l), l.number(0))); }).empty());
  CHECK(reports([&](Lane& l, Value g, Value) {
          const Value copy = l.shared(32, 4);
          l.store(copy, tid(l), g);
        }).empty());
  // ... but a copy of garbage in the arena is garbage.
  CHECK(any_contains(reports([&](Lane& l, Value g, Value) {
                       const Value copy = l.shared(32, 4);
                       l.store(copy, tid(l), g);
                       l.store(l.args[1], tid(l), l.load(copy, tid(l)));
                     }),
                     "is the stored value of"));
  // A known false decides a conjunction.
  CHECK(reports([&](Lane& l, Value g, Value) {
          const Value no = l.lt(tid(l), l.number(0));
          l.b.when(l.b.elementwise(Opcode::and_, {no, l.lt(g, g)}), [&] { l.store(l.args[1], tid(l), g); });
        }).empty());
}

TEST_CASE("accesses out of bounds are reported and never happen") {
  Lane l(4);
  l.k.lane.max_workgroups = 1;
  const Value tid = l.source(Opcode::local_index), words = l.shared(0, 4), slice = l.scratch(0, 2, DType::i8);
  l.store(l.args[1], l.add(tid, l.number(1)), l.load(l.args[0], tid));
  l.store(words, l.sub(tid, l.number(1)), l.load(l.args[0], tid));
  l.store(slice, tid, l.b.constant_int(DType::i8, 1));
  const Value far = l.b.one({.code = Opcode::view, .operands = {l.args[0], l.number(int64_t{1} << 60, DType::i64)}});
  l.load(far, tid);
  const auto reports = reports_of(l.done(), {counting(4), Array({4}, DType::f32)});
  CHECK(any_contains(reports, "out of bounds: element 4 of out_specs[0], which has 4"));
  CHECK(any_contains(reports, "out of bounds: element -1 of f32 shared memory at byte 0, which has 4"));
  CHECK(any_contains(reports, "of i8 scratch at byte 0, which has 2"));
  CHECK(any_contains(reports, "of in_specs[0], which has 4"));
  CHECK(reports.size() == 4);
}

TEST_CASE("views move element 0, masks guard, other stands in") {
  Lane l(8);
  l.k.lane.max_workgroups = 1;
  const Value tid = l.source(Opcode::local_index);
  const Value back = l.b.one({.code = Opcode::view, .operands = {l.args[0], l.number(-3, DType::i64)}});
  const Value inside = l.b.elementwise(Opcode::ge, {tid, l.number(3)});
  l.store(l.args[1], tid, l.load(back, tid, inside, l.b.constant_float(DType::f32, 100)));
  const auto r = lane::run(l.done(), {counting(5), Array({8}, DType::f32)}, 1, {}, {});
  CHECK(r.reports.empty());
  for (int64_t i = 0; i < 8; ++i) CHECK(r.outputs[0].at(i) == (i < 3 ? 100 : static_cast<double>(i - 3)));
}

TEST_CASE("divergence at barriers and subgroup ops is reported") {
  Lane branch(4);
  branch.b.when(branch.lt(branch.source(Opcode::local_index), branch.number(2)), [&] { branch.barrier(); });
  CHECK(
      any_contains(reports_of(branch.done(), {counting(4), Array({4}, DType::f32)}), "but invocation 2 has finished"));
  CHECK(any_contains(
      messages(branch.k),
      "stands under varying control, but a barrier needs every enclosing condition and loop bound workgroup-uniform"));

  Lane two(4);
  two.b.if_else(
      two.lt(two.source(Opcode::local_index), two.number(2)),
      [&] {
        two.barrier();
        return std::vector<Value>{};
      },
      [&] {
        two.barrier();
        return std::vector<Value>{};
      });
  CHECK(any_contains(reports_of(two.done(), {counting(4), Array({4}, DType::f32)}), "divergence in workgroup"));

  // Both reach the same barrier, but in different iterations.
  Lane rounds(2);
  const Value tid = rounds.source(Opcode::local_index);
  rounds.loop(2, [&](Value i) { rounds.b.when(rounds.eq(i, tid), [&] { rounds.barrier(); }); });
  const auto reports = reports_of(rounds.done(), {counting(4), Array({4}, DType::f32)});
  CHECK(any_contains(reports, "in iteration 0, but invocation 1 waits at"));
  CHECK(any_contains(reports, "in iteration 1"));

  Lane sub(8);
  sub.k.lane.subgroup_size = 4;
  Op reduce{.code = Opcode::subgroup_reduce, .operands = {sub.number(1)}};
  reduce.set(Attr::kind, static_cast<int64_t>(Opcode::add));
  sub.b.when(sub.lt(sub.source(Opcode::local_index), sub.number(6)), [&] { sub.b.append(reduce); });
  CHECK(any_contains(reports_of(sub.done(), {counting(4), Array({4}, DType::f32)}), "invocation 4 waits at `"));
  CHECK(any_contains(messages(sub.k), "stands under varying control, but a subgroup op needs"));
}

TEST_CASE("subgroup ops work on each subgroup") {
  Lane l(8, 1, {DType::i32, DType::i32, DType::i32, DType::i32, DType::i32});
  l.k.lane.max_workgroups = 1;
  l.k.lane.subgroup_size = 4;
  const Value tid = l.source(Opcode::local_index), lane_id = l.source(Opcode::lane_id), v = l.load(l.args[0], tid);
  Op reduce{.code = Opcode::subgroup_reduce, .operands = {v}};
  reduce.set(Attr::kind, static_cast<int64_t>(Opcode::add));
  Op swap{.code = Opcode::subgroup_shuffle_xor, .operands = {v}};
  swap.set(Attr::mask, 1);
  // Under control that is uniform in each subgroup.
  l.b.when(l.lt(l.source(Opcode::subgroup_id), l.number(1)), [&] { l.store(l.args[1], tid, l.b.one(reduce)); });
  l.store(l.args[2], tid, l.b.one(swap));
  l.store(l.args[3], tid, l.b.one({.code = Opcode::subgroup_shuffle, .operands = {v, l.sub(l.number(3), lane_id)}}));
  Op scan{.code = Opcode::subgroup_scan, .operands = {v}};
  scan.set(Attr::kind, static_cast<int64_t>(Opcode::max));
  l.store(l.args[4], tid, l.b.one(scan));
  CHECK(lane::find_lane_problems(l.done()).empty());
  const Array none({8}, DType::i32);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const auto r = lane::run(l.k, {counting(8, DType::i32), none, none, none, none}, 1, {}, {.seed = seed});
    CHECK(r.reports.empty());
    for (int64_t i = 0; i < 8; ++i) {
      CHECK(r.outputs[3].at(i) == (i % 4 == 0 ? INT32_MIN : static_cast<double>(i - 1)));
      CHECK(r.outputs[0].at(i) == (i < 4 ? 6 : 0));
      CHECK(r.outputs[1].at(i) == static_cast<double>(i ^ 1));
      CHECK(r.outputs[2].at(i) == static_cast<double>(i / 4 * 4 + 3 - i % 4));
    }
  }
}

TEST_CASE("a barrier of each subgroup orders what its own invocations do, and nothing else") {
  // Each takes what another one stored: of its subgroup, or of the other one.
  const auto exchange = [](Opcode barrier, int64_t from) {
    Lane l(8);
    l.k.lane.max_workgroups = 1;
    l.k.lane.subgroup_size = 4;
    const Value tid = l.source(Opcode::local_index), words = l.shared(0, 8);
    const Value mask = l.number(from), other = l.b.elementwise(Opcode::xor_, {tid, mask});
    l.store(words, tid, l.load(l.args[0], tid));
    l.b.append({.code = barrier});
    const Value x = l.load(words, other);
    l.b.append({.code = barrier});
    l.store(words, tid, x);
    l.b.append({.code = barrier});
    l.store(l.args[1], tid, l.load(words, tid));
    return l.done();
  };
  const auto arrays = [] { return std::vector{counting(8), Array({8}, DType::f32)}; };
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const auto r = lane::run(exchange(Opcode::subgroup_barrier, 3), arrays(), 1, {}, {.seed = seed});
    CHECK(r.reports == std::vector<std::string>{});
    for (int64_t i = 0; i < 8; ++i) CHECK(r.outputs[0].at(i) == static_cast<double>(i ^ 3));
  }
  CHECK(reports_of(exchange(Opcode::barrier, 4), arrays()).empty());
  CHECK(
      any_contains(reports_of(exchange(Opcode::subgroup_barrier, 4), arrays()), "conflict without a barrier between"));
}

TEST_CASE("a barrier of each subgroup orders no accesses to arrays") {
  const auto exchange = [](Opcode barrier) {
    Lane l(8);
    l.k.lane.max_workgroups = 1;
    l.k.lane.subgroup_size = 4;
    const Value tid = l.source(Opcode::local_index), mask = l.number(3);
    l.store(l.args[1], tid, l.load(l.args[0], tid));
    l.b.append({.code = barrier});
    const Value x = l.load(l.args[1], l.b.elementwise(Opcode::xor_, {tid, mask}));
    l.b.append({.code = Opcode::barrier});
    l.store(l.args[1], tid, x);
    return l.done();
  };
  const std::vector<Array> arrays{counting(8), Array({8}, DType::f32)};
  CHECK(reports_of(exchange(Opcode::barrier), arrays).empty());
  CHECK(any_contains(reports_of(exchange(Opcode::subgroup_barrier), arrays), "conflict without a barrier between"));
}

TEST_CASE("extents come from the call, surplus workgroups are run, and carries may swap") {
  Lane l(4, 0);
  l.k.lane.num_units = cdiv(dim("n"), Extent(4));
  l.k.lane.extents = {dim("n")};
  l.k.lane.extent_is_64 = {false};
  Op extent{.code = Opcode::extent};
  extent.set(Attr::index, 0);
  const Value n = l.b.one(extent, Type::array(DType::i32)), i = l.global_index();
  l.b.when(l.lt(i, n), [&] {
    // (a, b) -> (b, a) three times
    const auto swapped =
        l.b.for_loop(l.number(0), l.number(3), l.number(1), {l.load(l.args[0], i), l.b.constant_float(DType::f32, 7)},
                     [&](Value, const std::vector<Value>& c) { return std::vector<Value>{c[1], c[0]}; });
    l.store(l.args[1], i, l.add(l.mul(swapped[1], l.b.constant_float(DType::f32, 10)), swapped[0]));
  });
  CHECK(lane::find_lane_problems(l.done()).empty());
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const auto r = lane::run(l.k, {counting(9), Array({9}, DType::f32)}, 1, {{"n", 9}}, {.seed = seed});
    CHECK(r.reports.empty());
    for (int64_t e = 0; e < 9; ++e) CHECK(r.outputs[0].at(e) == static_cast<double>(e * 10 + 7));
  }
  CHECK(lane::run(l.k, {counting(0), Array({0}, DType::f32)}, 1, {{"n", 0}}, {}).reports.empty());
  CHECK_THROWS_AS(lane::run(l.k, {counting(9)}, 1, {{"n", 9}}, {}), SpecError);
  CHECK_THROWS_AS(lane::run(l.k, {counting(9), Array({9}, DType::i32)}, 1, {{"n", 9}}, {}), SpecError);
}

TEST_CASE("a loop that does not end is reported") {
  Lane l(1);
  l.k.lane.max_workgroups = 1;
  const ir::RegionId cond = l.b.new_region({}), body = l.b.new_region({});
  l.b.set_region(cond);
  l.b.yield({l.b.constant(DType::boolean, 1)});
  l.b.set_region(body);
  l.b.yield({});
  l.b.set_region(l.k.body);
  l.b.append({.code = Opcode::while_, .regions = {cond, body}});
  const auto r = lane::run(l.done(), {counting(1), Array({1}, DType::f32)}, 1, {}, {.max_steps = 1000});
  CHECK(any_contains(r.reports, "still running after 1000 steps"));
  CHECK(r.out_of_steps);
}

TEST_CASE("the shortcuts of the machine agree with the reference") {
  const auto check = [](Opcode op, DType t, DType result) {
    Lane l(1, 1, {t, t, result}, 2);
    l.k.lane.max_workgroups = 1;
    l.loop(64, [&](Value i) {
      std::vector<Value> in{l.load(l.args[0], i), l.load(l.args[1], i)};
      in.resize(static_cast<size_t>(ir::info(op).arity));
      l.store(l.args[2], i, l.b.elementwise(op, in, result));
    });
    Array x({64}, t), y({64}, t);
    uint64_t state = 1;
    for (int64_t i = 0; i < 64; ++i)
      for (Array* a : {&x, &y}) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint64_t random_bits = state >> (64 - bits(t));
        a->set_element_bits(i, i % 4 == 0 ? reference::from_double(t, static_cast<double>(i % 3)) : random_bits);
      }
    const auto r = lane::run(l.done(), {x, y, Array({64}, result)}, 2, {}, {});
    CHECK(r.reports.empty());
    for (int64_t i = 0; i < 64; ++i) {
      const uint64_t in[2] = {x.element_bits(i), y.element_bits(i)};
      const uint64_t wanted = reference::eval(op, t, result, in), got = r.outputs[0].element_bits(i);
      CAPTURE(ir::name(op));
      if (is_float(result) && std::isnan(reference::to_double(result, wanted)))
        CHECK(std::isnan(reference::to_double(result, got)));
      else CHECK(got == wanted);
    }
  };
  for (const Opcode op : {Opcode::add, Opcode::sub, Opcode::mul, Opcode::min, Opcode::max})
    check(op, DType::i32, DType::i32);
  for (const Opcode op : {Opcode::eq, Opcode::ne, Opcode::lt, Opcode::le, Opcode::gt, Opcode::ge})
    check(op, DType::i32, DType::boolean);
  for (const Opcode op : {Opcode::add, Opcode::mul}) check(op, DType::i64, DType::i64);
  for (const Opcode op : {Opcode::add, Opcode::sub, Opcode::mul}) check(op, DType::f32, DType::f32);
  for (const Opcode op : {Opcode::and_, Opcode::or_, Opcode::not_}) check(op, DType::boolean, DType::boolean);
  check(Opcode::convert, DType::i32, DType::i64);
}

TEST_CASE("values are held to the ranges that are claimed of them") {
  const auto reports = [](DType t, uint64_t bits, Interval range) {
    Lane l(1, 1, {t, t});
    l.k.lane.max_workgroups = 1;
    const Value v = l.load(l.args[0], l.number(0));
    l.store(l.args[1], l.number(0), v);
    std::vector<Bounds> ranges(l.done().values.size());
    ranges[v.index] = range;
    Array x({1}, t);
    x.set_element_bits(0, bits);
    return lane::run(l.k, {x, Array({1}, t)}, 1, {}, {.ranges = ranges}).reports;
  };
  CHECK(reports(DType::i32, 0xfffffffb, {-5, 3}).empty());
  CHECK(any_contains(reports(DType::i32, 0xfffffffa, {-5, 3}),
                     "of load: i32[], is [-5, 3] but it is -6 in invocation 0 of workgroup 0"));
  CHECK(any_contains(reports(DType::i32, 4, {-5, 3}), "is [-5, 3] but it is 4"));
  CHECK(reports(DType::i8, 0xff, {-1, 0}).empty());
  CHECK(any_contains(reports(DType::u8, 0xff, {0, 254}), "is [0, 254] but it is 255"));
  CHECK(any_contains(reports(DType::i4, 0x8, {-7, 7}), "is [-7, 7] but it is -8"));
  CHECK(
      any_contains(reports(DType::i64, uint64_t{1} << 63, {-INT64_MAX, INT64_MAX}), "but it is -9223372036854775808"));
  CHECK(any_contains(reports(DType::u64, uint64_t{1} << 63, {0, INT64_MAX}), "is [0, 9223372036854775807] but it is"));
  CHECK(any_contains(reports(DType::boolean, 1, {0, 0}), "is [0, 0] but it is 1"));

  // Counters and constants too; what is garbage has no value.
  Lane l(1);
  l.k.lane.max_workgroups = 1;
  const Value three = l.number(3), garbage = l.load(l.shared(0, 1, DType::i32), l.number(0));
  Value counter;
  l.loop(4, [&](Value i) { l.store(l.args[1], counter = i, l.load(l.args[0], i)); });
  std::vector<Bounds> ranges(l.done().values.size());
  ranges[three.index] = Interval{0, 2}, ranges[counter.index] = Interval{0, 2}, ranges[garbage.index] = Interval{5, 4};
  const auto r = lane::run(l.k, {counting(4), Array({4}, DType::f32)}, 1, {}, {.ranges = ranges});
  REQUIRE(r.reports.size() == 2);
  CHECK(any_contains(r.reports, "of constant: i32[], is [0, 2] but it is 3"));
  CHECK(any_contains(r.reports, "an argument: i32[], is [0, 2] but it is 3"));
}

TEST_CASE("sums are watched at every evaluation, and where a mask says so") {
  for (const auto& [dtype, bits, wanted] : {std::tuple{DType::i32, 0xfffffffbull, int64_t{-5}},
                                            {DType::u32, 0xfffffffbull, 0xfffffffb},
                                            {DType::i8, 0x80ull, -128},
                                            {DType::u8, 0xffull, 255},
                                            {DType::i4, 0x8ull, -8},
                                            {DType::u4, 0xfull, 15},
                                            {DType::i64, 1ull << 63, INT64_MIN},
                                            {DType::boolean, 1ull, 1}}) {
    const DType t = dtype;
    CAPTURE(name(t));
    Lane l(1, 1, {t, t});
    l.k.lane.max_workgroups = 1;
    const Value v = l.load(l.args[0], l.number(0));
    l.store(l.args[1], l.number(0), v);
    Array x({1}, t);
    x.set_element_bits(0, bits);
    const ir::OpId last = l.done().region(l.k.body).ops.back();
    const auto seen = lane::run(l.k, {x, Array({1}, t)}, 1, {}, {.watched = {{last, {{3, v}}}}}).seen;
    REQUIRE(seen.size() == 1);
    CHECK(seen[0].times == 1);
    CHECK((seen[0].least.value == __int128{3} * wanted && seen[0].greatest.value == __int128{3} * wanted));
  }

  // Four invocations, of which each makes three iterations.
  Lane l(4);
  l.k.lane.max_workgroups = 1;
  const Value tid = l.source(Opcode::local_index), two = l.number(2),
              garbage = l.load(l.shared(0, 1, DType::i32), l.number(0));
  Value counter, less;
  ir::OpId inside;
  l.loop(3, [&](Value i) {
    counter = i;
    less = l.lt(tid, two);
    l.store(l.args[1], tid, l.load(l.args[0], tid));
    inside = l.k.region(l.b.region()).ops.back();
  });
  const auto seen = lane::run(l.done(), {counting(4), Array({4}, DType::f32)}, 1, {},
                              {.watched = {{inside, {{10, counter}, {-1, tid}}},
                                           {inside, {{1, tid}}, less},
                                           {inside, {{1, garbage}}},
                                           {l.k.region(l.k.body).ops.back(), {{1, tid}}},
                                           {{0}, {}}}})
                        .seen;
  REQUIRE(seen.size() == 5);
  CHECK(seen[0].times == 12);
  CHECK((seen[0].least.value == -3 && seen[0].least.invocation == 3));
  CHECK((seen[0].greatest.value == 20 && seen[0].greatest.invocation == 0));
  CHECK(seen[1].times == 6);
  CHECK((seen[1].least.value == 0 && seen[1].greatest.value == 1));
  CHECK(seen[2].times == 0);  // what is uninitialised has no value
  CHECK(seen[3].times == 4);
  CHECK(seen[4].times == 4);
}

TEST_CASE("invocations begin the same copies of boxes") {
  for (const bool same : {true, false}) {
    Lane l(32);
    l.k.lane.subgroup_size = 32;
    l.k.lane.max_workgroups = 1;
    l.k.blocks[0].array_shape = {16, 32};
    l.k.lane.tensors = {{.array = 0, .box = {8, 32}}};
    l.k.lane.barriers = {1};
    l.k.lane.program_bytes = 1024;
    const Value box = l.shared(0, 8 * 32, DType::u32), none = l.number(0), local = l.source(Opcode::local_index);
    // Either is 3 in invocation 0; that the first is in each no analysis knows.
    const Value row = l.add(same ? l.mul(local, none) : local, l.number(3));
    Op copy{.code = Opcode::tensor_load, .operands = {l.args[0], box, none, none, row, none}};
    copy.set(Attr::index, 0);
    copy.set(Attr::count, 1);
    l.b.append(std::move(copy));
    l.b.append({.code = Opcode::tensor_wait, .operands = {none}});
    const Value word = l.load(box, local);
    l.store(l.args[1], local, l.b.elementwise(Opcode::bitcast, {word}, DType::f32));
    const Kernel& k = l.done();
    CHECK(messages(k) == std::vector<std::string>{});
    Array x({16, 32}, DType::f32);
    for (int64_t i = 0; i < 512; ++i) x.set_element_bits(i, reference::from_double(DType::f32, static_cast<double>(i)));
    const std::vector<Array> arrays = {x, Array({32}, DType::f32)};
    if (same) {
      const auto r = lane::run(k, arrays, 1, {}, {});
      const std::string first = r.reports.empty() ? "" : r.reports[0];
      CAPTURE(first);
      CHECK(r.reports.empty());
      CHECK(r.outputs.at(0).at(0) == 3 * 32);
    } else {
      CHECK(any_contains(reports_of(k, arrays), "invocations 0 and 1 begin other copies, before `tensor_wait"));
    }
  }
}

TEST_CASE("uniformity follows sources, memory and control") {
  Lane l(8);
  l.k.lane.subgroup_size = 4;
  using U = lane::Uniformity;
  const Value group = l.source(Opcode::workgroup_index), tid = l.source(Opcode::local_index),
              sub = l.source(Opcode::subgroup_id);
  const Value from_input = l.load(l.args[0], group), from_output = l.load(l.args[1], group),
              varying = l.load(l.args[0], tid);
  const Value words = l.shared(0, 8), from_shared = l.load(words, group);
  Op reduce{.code = Opcode::subgroup_reduce, .operands = {varying}};
  reduce.set(Attr::kind, static_cast<int64_t>(Opcode::max));
  const Value reduced = l.b.one(reduce);
  Value iv, carried_in;
  const auto loop = l.b.for_loop(l.number(0), l.add(sub, l.number(1)), l.number(1), {l.number(0)},
                                 [&](Value i, const std::vector<Value>& c) {
                                   iv = i, carried_in = c[0];
                                   return std::vector<Value>{l.add(c[0], l.number(1))};
                                 });
  const auto merged = l.b.if_else(
      l.lt(tid, l.number(3)), [&] { return std::vector<Value>{l.number(1)}; },
      [&] { return std::vector<Value>{l.number(2)}; });
  const auto late = l.b.for_loop(l.number(0), l.number(2), l.number(1), {l.number(0)},
                                 [&](Value, const std::vector<Value>&) { return std::vector<Value>{tid}; });
  l.store(l.args[1], tid, varying);
  const auto u = lane::analyze_uniformity(l.done());
  const auto of = [&](Value v) { return u.values[v.index]; };
  CHECK(of(group) == U::workgroup);
  CHECK(of(tid) == U::varying);
  CHECK(of(sub) == U::subgroup);
  CHECK(of(from_input) == U::workgroup);
  CHECK(of(from_output) == U::varying);
  CHECK(of(varying) == U::varying);
  CHECK(of(from_shared) == U::workgroup);
  CHECK(of(reduced) == U::subgroup);
  CHECK(of(iv) == U::subgroup);
  CHECK(of(carried_in) == U::workgroup);
  CHECK(of(loop[0]) == U::subgroup);
  CHECK(of(merged[0]) == U::varying);
  CHECK(of(late[0]) == U::varying);
}

TEST_CASE("the verifier says everything that is wrong at once") {
  Lane l(6);
  l.k.lane.subgroup_size = 4;
  l.k.num_prefetch = 1;
  const Value words = l.shared(4, 4);
  l.shared(4, 1, DType::i64);
  l.k.lane.shared_bytes = 16;
  const Value zero = l.number(0), loaded = l.load(words, zero);
  l.store(l.args[0], zero, loaded);
  Op extent{.code = Opcode::extent};
  extent.set(Attr::index, 2);
  l.b.one(extent, Type::array(DType::i32));
  Op reduce{.code = Opcode::subgroup_reduce, .operands = {l.number(1)}};
  reduce.set(Attr::kind, static_cast<int64_t>(Opcode::add));
  l.b.append(reduce);
  l.b.constant_int(DType::i32, 0, {2});
  Op iota{.code = Opcode::iota};
  iota.set(Attr::axis, 0);
  l.b.one(iota, Type::array(DType::i32, {3}));
  CHECK(messages(l.done()) ==
        std::vector<std::string>{
            "%2 = alloc_shared : ref<shared, f32[4]>: 4 elements of 4 bytes at offset 4 do not fit the 16 bytes of "
            "shared memory",
            "%3 = alloc_shared : ref<shared, i64[1]>: offset 4 is no multiple of the element distance 8",
            "store %0, %5[%4]: stores to a scalar-prefetch operand",
            "%6 = extent : i32[]: index 2 names none of the 0 extents",
            "%8 = subgroup_reduce %7 : i32[]: needs full subgroups, but workgroup_size 6 is no multiple of "
            "subgroup_size 4",
            "%9 = constant : i32[2]: %9 has type i32[2], but lane-level values are scalars",
            "%10 = iota : i32[3]: is not a lane-level op",
            "%10 = iota : i32[3]: %10 has type i32[3], but lane-level values are scalars"});
  CHECK_THROWS_WITH_AS(
      lane::verify_lane(Kernel{}, "a test"),
      "kernel: the lane-level kernel is not valid after a test\n  kernel: level is tile, but lane is wanted",
      InternalError);
}

}  // namespace lane_test
