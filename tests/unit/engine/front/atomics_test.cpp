// Atomics: what each kind computes and returns, masks, text form, vmap, races, and exact errors.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "engine/front.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "tests/support/messages.h"

namespace atomics_test {

namespace ts = tessera;
using tessera::test::at, tessera::test::message;
using ts::all, ts::ds, ts::Ref, ts::Value;

namespace {
using Ints = std::vector<int32_t>;
ts::Array ints(ts::Shape shape, Ints v) { return {std::move(shape), std::move(v)}; }
Ints values(const ts::Array& a) {
  const auto s = a.data<int32_t>();
  return {s.begin(), s.end()};
}
/// The message of tracing a kernel over an input and an output of 4 elements of t.
template <class F> std::string traced(ts::DType t, F body) {
  return message([&] {
    ts::pallas_call([&](Ref x, Ref o) { body(x, o); }, {.out_shape = {{{4}, t}}, .name = "k"}).trace({{{{4}, t}}});
  });
}
using Update = Value (*)(const Ref&, ts::RefIndex, ts::Operand, ts::LoadParams);
/// o = x; old = update(o, values): o and old.
std::pair<Ints, Ints> run(Update update, Ints x, Ints v) {
  const int64_t n = static_cast<int64_t>(x.size());
  auto call = ts::pallas_call(
      [&](Ref a, Ref b, Ref o, Ref old) {
        o[all] = a[all];
        old[all] = update(o, all, Value(b[all]), {});
      },
      {.out_shape = {{{n}, ts::i32}, {{n}, ts::i32}}});
  const ts::Arrays r = ts::interpret(call, ints({n}, std::move(x)), ints({n}, std::move(v)));
  return {values(r[0]), values(r[1])};
}
}  // namespace

TEST_CASE("atomics: every kind combines with what is there and returns it") {
  const Ints x{5, -3, 7, 12}, v{1, -9, 100, 10};
  const auto expect = [&](Update f, Ints want) {
    const auto [now, old] = run(f, x, v);
    CHECK(now == want);
    CHECK(old == x);
  };
  expect(ts::atomic_add, {6, -12, 107, 22});
  expect(ts::atomic_max, {5, -3, 100, 12});
  expect(ts::atomic_min, {1, -9, 7, 10});
  expect(ts::atomic_and, {5 & 1, -3 & -9, 7 & 100, 12 & 10});
  expect(ts::atomic_or, {5 | 1, -3 | -9, 7 | 100, 12 | 10});
  expect(ts::atomic_xor, {5 ^ 1, -3 ^ -9, 7 ^ 100, 12 ^ 10});
  expect(ts::atomic_xchg, v);
}

TEST_CASE("atomics: compare and swap, by values: NaN equals nothing, 0 equals -0") {
  auto call = ts::pallas_call(
      [](Ref a, Ref b, Ref o, Ref old) {
        o[all] = a[all];
        old[all] = ts::atomic_cas(o, all, Value(b[all]), 9);
      },
      {.out_shape = {{{4}, ts::f32}, {{4}, ts::f32}}});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const ts::Arrays r = ts::interpret(call, ts::Array({4}, std::vector<float>{1, 2, nan, 0}),
                                     ts::Array({4}, std::vector<float>{1, 3, nan, -0.f}));
  const auto now = r[0].data<float>(), old = r[1].data<float>();
  CHECK(now[0] == 9);
  CHECK(now[1] == 2);
  CHECK(std::isnan(now[2]));
  CHECK(now[3] == 9);
  CHECK(old[0] == 1);
  CHECK(old[1] == 2);
}

// Programs of one grid axis count into one array, and take tickets: the results are those of the programs one after
// another. JAX's interpreter gives the same for the first two outputs.
TEST_CASE("atomics: programs in order") {
  auto call = ts::pallas_call(
      [](Ref x, Ref count, Ref most, Ref ticket, Ref total) {
        ts::when(ts::program_id(0) == 0, [&] { count[all] = 0, most[all] = -100, total[0] = 0; });
        ts::atomic_add(count, x[ts::program_id(0)], 1);
        ts::atomic_max(most, {ds(ts::program_id(0), 2)}, x[ts::program_id(0)]);
        ticket[ts::program_id(0)] = ts::atomic_add(total, 0, 3);
      },
      {.out_shape = {{{4}, ts::i32}, {{6}, ts::i32}, {{5}, ts::i32}},
       .grid = {5},
       .scratch_shapes = {ts::SMEM({1}, ts::i32)}});
  const ts::Arrays r = ts::interpret(call, ints({5}, {3, 1, 3, 3, 0}));
  CHECK(values(r[0]) == Ints{1, 1, 0, 3});
  CHECK(values(r[1]) == Ints{3, 3, 3, 3, 3, 0});
  CHECK(values(r[2]) == Ints{0, 3, 6, 9, 12});
}

TEST_CASE("atomics: under a mask nothing shifts, and other stands in for what is left out") {
  auto call = ts::pallas_call(
      [](Ref x, Ref o, Ref old) {
        o[all] = x[all];
        old[all] = ts::atomic_add(o, {ds(ts::program_id(0) + 2, 4)}, 10,
                                  {.mask = ts::iota(ts::i32, {4}, 0) != 1, .other = -1});
      },
      {.out_shape = {{{4}, ts::i32}, {{4}, ts::i32}}, .grid = {1}});
  const ts::Arrays r = ts::interpret(call, ints({4}, {1, 2, 3, 4}));
  CHECK(values(r[0]) == Ints{1, 2, 13, 4});
  CHECK(values(r[1]) == Ints{3, -1, -1, -1});
}

TEST_CASE("atomics: the text form") {
  const std::string text = R"(tir 1
kernel @k
grid (2)
in i32[] whole
out f32[8] whole
body (%0: ref<any, i32[]>, %1: ref<any, f32[8]>) {
  %2 = constant 1.5 : f32[2]
  %3 = load %0[] : i32[]
  %4 = atomic_rmw %1[ds(%3, 2)], %2 kind add unordered 1 : f32[2]
  %5 = atomic_rmw %1[ds(%3, 2)], %2 kind add : f32[2]
  %6 = constant true : bool[2]
  %7 = atomic_rmw %1[0:2], %2 mask %6 other %2 kind swap : f32[2]
  %8 = atomic_cas %1[0:3:2], %2 compare %4 mask %6 : f32[2]
}
)";
  const ts::ir::Kernel k = ts::ir::parse(text, "k.tir");
  ts::ir::check(k);
  CHECK(ts::ir::print(k) == text);
}

TEST_CASE("atomics: CompilerParams::allow_float_atomics marks the sums of floats") {
  const auto text = [](bool allowed) {
    return ts::ir::print(ts::pallas_call(
                             [](Ref o, Ref n) {
                               ts::atomic_add(o, 0, 1);
                               ts::atomic_max(o, 0, 1);
                               ts::atomic_add(n, 0, 1);
                             },
                             {.out_shape = {{{4}, ts::f32}, {{4}, ts::i32}},
                              .compiler_params = ts::CompilerParams{.allow_float_atomics = allowed}})
                             .trace({}));
  };
  CHECK(text(false).find("unordered") == std::string::npos);
  const std::string t = text(true);
  CHECK(t.find("kind add unordered 1") != std::string::npos);
  CHECK(t.find("unordered") == t.rfind("unordered"));
}

TEST_CASE("atomics: vmap gives each element of the batch its own array") {
  auto count = ts::pallas_call(
      [](Ref x, Ref o) {
        ts::when(ts::program_id(0) == 0, [&] { o[all] = 0; });
        ts::atomic_add(o, x[ts::program_id(0)], 1);
      },
      {.out_shape = {{{3}, ts::i32}}, .grid = {4}});
  const ts::Array r = ts::interpret(ts::vmap(count, {0}), ints({2, 4}, {0, 1, 1, 2, 2, 2, 2, 0}));
  CHECK(values(r) == Ints{1, 2, 1, 1, 0, 3});
}

TEST_CASE("atomics: races") {
  const auto kernel = [](const std::string& second) {
    return ts::ir::parse(R"(tir 1
kernel @r
grid (4 parallel)
out i32[4] whole
out i32[4] whole
body (%o, %p) {
  %i = program_id axis 0
  %one = constant 1 : i32[]
  %a = atomic_rmw %o[0], %one kind add
  )" + second + "\n}\n",
                         "r.tir");
  };
  const auto race = [&](const std::string& second) {
    return message([&] { ts::interpret(kernel(second), {}, {.races = true}); });
  };
  CHECK(race("%b = atomic_cas %o[0], %one compare %a") == "no error");
  CHECK(race("store %p[%i], %a") == "no error");
  CHECK(race("%b = load %o[0]") ==
        "r: race on out_specs[0], element (0,): program (1) atomically updates what program (0) loaded\n  at r.tir:9\n"
        "  note: that was at r.tir:10; nothing orders programs that differ in axis 0");
  CHECK(race("store %o[%i], %one") ==
        "r: race on out_specs[0], element (0,): program (1) atomically updates what program (0) stored\n  at r.tir:9\n"
        "  note: that was at r.tir:10; nothing orders programs that differ in axis 0");
  CHECK(race("%j = sub %one, %i\n  store %o[%j], %one") ==
        "r: race on out_specs[0], element (0,): program (1) stores what program (0) atomically updated\n  at r.tir:11\n"
        "  note: that was at r.tir:9; nothing orders programs that differ in axis 0");
}

// x = ids; old = update(x at i).
TEST_CASE(
    "atomics: values that an index array brings to one element all count, in order, and each finds what the one before "
    "has left") {
  const auto run = [](auto body, Ints i, ts::Shape to = {5}) {
    auto call = ts::pallas_call(
        [&](Ref x, Ref at, Ref o, Ref old) {
          o[all] = x[all];
          old[all] = body(o, Value(at[all]));
        },
        {.out_shape = {{{6}, ts::i32}, {{to.begin(), to.end()}, ts::i32}}});
    const ts::Arrays r = ts::interpret(call, ints({6}, {10, 20, 30, 40, 50, 60}), ints(to, i));
    return std::pair(values(r[0]), values(r[1]));
  };
  const auto expect = [](const std::pair<Ints, Ints>& got, Ints now, Ints old) {
    CHECK(got.first == now);
    CHECK(got.second == old);
  };
  const auto steps = [] { return ts::iota(ts::i32, {5}, 0) + 1; };
  expect(run([&](Ref o, Value i) { return ts::atomic_add(o, i, steps()); }, {2, 2, -4, 0, 2}), {14, 20, 41, 40, 50, 60},
         {30, 31, 33, 10, 36});
  expect(run([&](Ref o, Value i) { return ts::atomic_xchg(o, i, steps()); }, {1, 1, 5, 1, 5}), {10, 4, 30, 40, 50, 5},
         {20, 1, 60, 2, 3});
  expect(run([&](Ref o, Value i) { return ts::atomic_cas(o, i, 30, steps()); }, {2, 2, 3, 2, 0}),
         {10, 20, 1, 40, 50, 60}, {30, 1, 40, 1, 10});
  // What is outside is left alone and finds what the nearest element held before.
  expect(run([&](Ref o, Value i) { return ts::atomic_add(o, i, 1); }, {5, 6, -7, 0, 100}), {11, 20, 30, 40, 50, 61},
         {60, 60, 10, 10, 60});
  expect(run([&](Ref o, Value i) { return ts::atomic_max(o, i, 45, {.mask = steps() != 2, .other = -1}); },
             {3, 3, 3, 6, -6}),
         {45, 20, 30, 45, 50, 60}, {40, -1, 45, -1, 10});
  expect(run([&](Ref o, Value i) { return ts::atomic_add(o.reshape({2, 3}).T(), {i, ts::abs(i) % 2}, 1); },
             {0, 1, 0, 1, 0}),
         {13, 20, 30, 40, 52, 60}, {10, 50, 11, 51, 12});
  // Beyond the view is outside, whatever the Ref has there.
  expect(run([&](Ref o, Value i) { return ts::atomic_add(o.at(ts::range(1, 4)), i, 1); }, {0, 3, -3, -4, 2}),
         {10, 22, 30, 41, 50, 60}, {20, 40, 21, 20, 40});
  expect(run([&](Ref o, Value i) { return ts::atomic_add(o, {i}, 1); }, {1, 1, 1, 1}, {2, 2}), {10, 24, 30, 40, 50, 60},
         {20, 21, 22, 23});
  // A window whose start is data and whose step is not 1 has positions of their own, too.
  expect(run([&](Ref o, Value i) { return ts::atomic_add(o, ds(ts::sum(i, {.axis = 0}), 3, 2), 1); }, {1, 1, 1}, {3}),
         {10, 20, 30, 41, 50, 61}, {40, 60, 60});
}

TEST_CASE("atomics: a Ref's bits as another dtype, and a Ref of one element") {
  auto call = ts::pallas_call(
      [](Ref x, Ref o, Ref old, Ref one, Ref turns) {
        o[all] = x[all];
        old[all] = ts::atomic_max(o.bitcast(ts::i32), all, ts::bitcast(ts::full({4}, 2.5f), ts::i32));
        one[{}] = 3;
        turns[all] = ts::atomic_add(one.reshape({1}), ts::zeros({4}, ts::i32), ts::iota(ts::i32, {4}, 0),
                                    {.mask = ts::iota(ts::i32, {4}, 0) != 2, .other = -1});
        ts::addupdate(one.reshape({1, 1}), {ts::zeros({3}, ts::i32), 0}, ts::iota(ts::i32, {3}, 0) + 1);
        turns[0] = ts::atomic_xchg(one, {}, 100);
        ts::store(one.reshape({1}), ts::zeros({4}, ts::i32), ts::iota(ts::i32, {4}, 0) * 5,
                  {.mask = ts::iota(ts::i32, {4}, 0) < 3});
      },
      {.out_shape = {{{4}, ts::f32}, {{4}, ts::i32}, {{}, ts::i32}, {{4}, ts::i32}}});
  const ts::Arrays r = ts::interpret(call, ts::Array({4}, std::vector<float>{1, 3, 2.5f, 0}));
  CHECK(r[0].at(0) == 2.5);
  CHECK(r[0].at(1) == 3);
  CHECK(r[0].at(3) == 2.5);
  CHECK(values(r[1]) == Ints{0x3f800000, 0x40400000, 0x40200000, 0});
  CHECK(values(r[2]) == Ints{10});
  CHECK(values(r[3]) == Ints{13, 3, -1, 4});
}

TEST_CASE("atomics: index arrays under the interpreter's judgements") {
  const auto kernel = [](const std::string& body) {
    return ts::ir::parse(
        "tir 1\nkernel @r\ngrid (2 parallel)\nin i32[3] whole\nout i32[4] whole\nout i32[2, 3] whole\nbody (%x, %o, "
        "%p) {\n  %i = program_id axis 0\n  %at = load %x[0:3]\n  %v = constant 1 : i32[3]\n  " +
            body + "\n}\n",
        "r.tir");
  };
  const auto run = [&](const std::string& body, ts::InterpretOptions o) {
    return message([&] { ts::interpret(kernel(body), {ints({3}, {1, 1, 4})}, o); });
  };
  CHECK(run("%a = atomic_rmw %o[%at], %v kind add\n  store %p[%i, 0:3], %a", {.races = true}) == "no error");
  CHECK(run("%a = atomic_rmw %o[%at], %v kind add\n  %b = load %o[1]", {.races = true}) ==
        "r: race on out_specs[0], element (1,): program (1) atomically updates what program (0) loaded\n  at "
        "r.tir:11\n  note: that was at r.tir:12; nothing orders programs that differ in axis 0");
  CHECK(
      run("%a = atomic_rmw %o[%at], %v kind add\n  store %p[%i, 0:3], %a", {.out_of_bounds = ts::OutOfBounds::raise}) ==
      "r: atomic_rmw of out_specs[0] by program (0): element 4 along dim 0, which has 4\n  at r.tir:11\n  note: unless "
      "out-of-bounds accesses raise, the nearest element is taken");
}

TEST_CASE("atomics: errors") {
  int line = 0;
  const auto expect = [&](const std::string& got, const std::string& what, const std::string& note = "") {
    CHECK(got == "k: atomic_" + what + at(line) + note);
  };
  expect(traced(ts::boolean,
                [&](Ref x, Ref o) {
                  line = __LINE__ + 1;
                  ts::atomic_add(o, all, Value(x[all]));
                }),
         "add: takes integers or floats but the Ref holds bool");
  expect(traced(ts::f32,
                [&](Ref x, Ref o) {
                  line = __LINE__ + 1;
                  ts::atomic_xor(o, all, Value(x[all]));
                }),
         "xor: takes integers or bool but the Ref holds f32");
  expect(traced(ts::f32,
                [&](Ref x, Ref o) {
                  line = __LINE__ + 1;
                  ts::atomic_max(o, all, ts::cast(x[all], ts::i32));
                }),
         "max: the value is i32 but the Ref holds f32", "\n  note: cast(value, f32) converts");
  expect(traced(ts::i32,
                [&](Ref x, Ref o) {
                  line = __LINE__ + 1;
                  ts::atomic_cas(o, all, ts::cast(x[all], ts::f32), 1);
                }),
         "cas: what the elements are compared with is f32 but the Ref holds i32");
  expect(traced(ts::i32,
                [&](Ref, Ref o) {
                  line = __LINE__ + 1;
                  ts::atomic_add(o, {ds(3, 2)}, 1);
                }),
         "add: dim 0: ds of 2 elements from 3 is out of range for 4 elements");
  expect(traced(ts::i32,
                [&](Ref, Ref o) {
                  line = __LINE__ + 1;
                  ts::atomic_add(o, all, 1, {.other = 3});
                }),
         "add: other is given without a mask");
  expect(traced(ts::i32,
                [&](Ref, Ref o) {
                  line = __LINE__ + 1;
                  ts::atomic_add(o, all, 1, {.mask = ts::iota(ts::i32, {3}, 0) > 1});
                }),
         "add: shape (3,) does not broadcast to (4,)", "\n  note: counted from the last dim, sizes must be equal or 1");
  expect(message([&] {
           ts::pallas_call(
               [&](Ref p, Ref) {
                 line = __LINE__ + 1;
                 ts::atomic_add(p, 0, 1);
               },
               {.out_shape = {{{4}, ts::i32}},
                .grid_spec = ts::PrefetchScalarGridSpec{.num_scalar_prefetch = 1},
                .name = "k"})
               .trace({{{{4}, ts::i32}}});
         }),
         "add: a scalar-prefetch operand is only read", "\n  note: keep what changes in scratch: SMEM({n}, ts::i32)");
  expect(traced(ts::i32,
                [&](Ref, Ref o) {
                  line = __LINE__ + 1;
                  ts::atomic_add(o.reshape({2, 2}).bitcast(ts::u8).bitcast(ts::u32), all, 1);
                }),
         "add: through a bitcast of u8 to u32, of another width, no element is one in memory",
         "\n  note: update the Ref itself, or a view of the same width");
  const auto parsed = [](const std::string& op) {
    return message([&] {
      ts::ir::parse(
          "tir 1\nkernel @k\nout f32[4] whole\nbody (%o) {\n  %v = constant 1.0 : f32[4]\n  %i = constant 1 : i32[4]\n "
          " " +
              op + "\n}\n",
          "k.tir");
    });
  };
  CHECK(parsed("%r = atomic_rmw %o[0:4], %v kind xor")
            .find("atomic_rmw: takes integers or bool but the operand is f32") != std::string::npos);
  CHECK(parsed("%r = atomic_rmw %o[0:4], %v kind mul")
            .find("atomic_rmw: kind mul is not one of add, max, min, and, or, xor and swap") != std::string::npos);
  CHECK(parsed("%r = atomic_rmw %o[0:4], %v").find("atomic_rmw: attribute kind is missing") != std::string::npos);
  CHECK(parsed("%r = atomic_rmw %o[0:4], %i kind add").find("atomic_rmw: the value must be f32[4] but is i32[4]") !=
        std::string::npos);
  CHECK(parsed("%r = atomic_cas %o[0:4], %v compare %i")
            .find("atomic_cas: what the elements are compared with must be f32[4] but is i32[4]") != std::string::npos);
  CHECK(parsed("%r = atomic_cas %o[0:4], %v").find("expected 'compare' but found ") != std::string::npos);
  CHECK(parsed("%c = convert %i : i16[4]\n  %r = atomic_rmw %o[0:4], %c kind add bits 1")
            .find("atomic_rmw: attribute bits takes elements for numbers of another dtype and of their width, not f32 "
                  "for i16") != std::string::npos);
  CHECK(parsed("%r = atomic_rmw %o[0:4], %i kind and bits 2").find("atomic_rmw: attribute bits is 2") !=
        std::string::npos);
  CHECK(parsed("%r = atomic_rmw %o[0:4], %i kind add bits 1\n  %s = atomic_cas %o[%i], %r compare %i bits 1") ==
        "no error");
  CHECK(parsed("%r = atomic_rmw %o[0:4], %v mask %v kind add")
            .find("atomic_rmw: the mask must be bool[4] but is f32[4]") != std::string::npos);
}

}  // namespace atomics_test
