// Values that are used at several positions: chains of 4 to 64 steps take code and work that are linear in the steps,
// counted in ops, on every kind of target; what they compute is the interpreter's; and `explain` says what is kept.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "codegen/compile.h"
#include "codegen/lane/interpreter.h"
#include "engine/front.h"
#include "engine/ir/reference.h"
#include "tests/support/sanitizer.h"

namespace keep_test {

namespace ts = tessera;
using namespace tessera;
using ts::all, ts::Ref, ts::Value;

namespace {

using Step = std::function<Value(Value y, int64_t i)>;
struct Chain {
  const char* name;
  Shape shape;
  Step step;
};

ir::Kernel kernel(const Chain& c, int64_t steps) {
  const ts::ShapeDtype type{std::vector<ts::Extent>(c.shape.begin(), c.shape.end()), ts::f32};
  return ts::pallas_call(
             [&](Ref x, Ref o) {
               Value y = x[all];
               for (int64_t i = 0; i < steps; ++i) y = c.step(y, i);
               o[all] = y;
             },
             {.out_shape = {type}, .name = c.name})
      .trace({type});
}

Value position(const Shape& s, int64_t axis = 0) { return ts::iota(ts::i32, s, axis); }
Value lower_half(const Shape& s, int64_t of) { return (position(s) & static_cast<int32_t>(of)) == 0; }
int64_t power(int64_t i, int64_t n) {  // 1, 2, 4, ... below n, again and again
  int64_t logs = 0;
  while ((int64_t{2} << logs) < n) ++logs;
  return int64_t{1} << (i % (logs + 1));
}

std::vector<Chain> chains() {
  const Shape line{256}, square{24, 24}, odd{7, 33};
  return {
      {"butterfly", line,
       [=](Value y, int64_t i) {
         const int64_t s = power(i, 256);
         return ts::where(lower_half(line, s), y + ts::roll(y, -s), ts::roll(y, s) - y);
       }},
      {"bitonic", line,
       [=](Value y, int64_t i) {  // the i-th pass of a sort: stretches of k, pairs that are j apart
         int64_t k = 2, j = 1;
         for (int64_t n = 0; n < i % 36; ++n) {
           if (j > 1) j /= 2;
           else j = k, k *= 2;
         }
         const Value other = ts::reshape(ts::rev(ts::reshape(y, {256 / (2 * j), 2, j}), {1}), {256});
         return ts::where(lower_half(line, k) == lower_half(line, j), ts::minimum(y, other), ts::maximum(y, other));
       }},
      {"scan", line,
       [=](Value y, int64_t i) {
         const int64_t s = power(i, 256);
         return y + ts::concatenate({ts::zeros({s}), ts::slice(y, {0}, {256 - s})});
       }},
      {"powers", line, [=](Value y, int64_t i) { return y * ts::roll(y, power(i, 256)); }},
      {"both_axes", odd, [=](Value y, int64_t i) { return y + ts::roll(y, 1 + i % 6, 0) * ts::roll(y, 1 + i, 1); }},
      {"transposed", square, [=](Value y, int64_t i) { return ts::roll(y, 1 + i % 23, i % 2) - ts::transpose(y); }},
      {"gathered", line,
       [=](Value y, int64_t i) {
         return ts::maximum(y, ts::take(y, (position(line) * 5 + static_cast<int32_t>(i)) % 256, 0) * 0.5f);
       }},
      {"halves", line,
       [=](Value y, int64_t) {  // even and odd elements, joined the other way round
         const Value even = ts::slice(y, {0}, {256}, {2}), odd_ones = ts::slice(y, {1}, {256}, {2});
         return ts::concatenate({even + odd_ones, even - odd_ones});
       }},
      {"rows", odd,
       [=](Value y, int64_t i) {  // a row and a column of it meet the whole
         return y * ts::slice(y, {i % 7, 0}, {i % 7 + 1, 33}) + ts::slice(y, {0, i % 33}, {7, i % 33 + 1});
       }},
      {"windows",
       {200},
       [=](Value y, int64_t i) {  // each step shorter, by subset sums
         const int64_t n = y.shape()[0], s = std::min<int64_t>(1 + i % 3, n - 1);
         const Value sum = ts::slice(y, {0}, {n - s}) + ts::slice(y, {s}, {n});
         return i % 4 == 3 ? ts::concatenate({sum, ts::zeros({200 - (n - s)})}) : sum;
       }},
  };
}

struct Size {
  int64_t emitted = 0;  // ops, in all attempts at lowering
  int64_t words = 0;
};
Size size(const ir::Kernel& k, const Target& t, ir::Kernel* lanes = nullptr, std::string* explain = nullptr) {
  Size s;
  CompileOptions o;
  o.dump = [&](std::string_view step, const ir::Kernel& now, bool) {
    if (step == "lower") s.emitted += static_cast<int64_t>(now.ops.size());
    if (lanes && now.level == ir::Level::lane) *lanes = now;
  };
  const Program p = compile(k, t, o);
  s.words = static_cast<int64_t>(p.spirv.size());
  if (explain) *explain = p.explain;
  return s;
}
std::vector<std::pair<const char*, Target>> targets() {
  return {{"minimum", minimum_target()}, {"lavapipe", lavapipe_target()}, {"gpu", gpu_target()}};
}

}  // namespace

TEST_CASE("values used at several positions: code and work are linear in the steps" *
          doctest::skip(tessera::test::kSanitized)) {
  for (const Chain& c : chains())
    for (const auto& [target, t] : targets()) {
      CAPTURE(std::string(c.name));
      const std::string name = target;
      CAPTURE(name);
      // short loops are written out, and less of them where that makes too much
      const bool cpu = t.kind == Target::Kind::cpu;
      for (int64_t steps = 4; steps <= 64; steps *= 2) {
        CAPTURE(steps);
        const Size s = size(kernel(c, steps), t);
        CHECK(s.emitted <= (cpu ? 1200 + 145 * steps : 100 + 60 * steps));
        // what nobody takes loads from inside, too
        CHECK(s.words <= (cpu ? 30000 + 300 * steps : 2000 + (t.skips_branches ? 600 : 620) * steps));
      }
    }
}

TEST_CASE("values used at several positions: what they are") {
  for (const Chain& c : chains())
    for (const int64_t steps : {4, 12}) {
      const ir::Kernel k = kernel(c, steps);
      Array x(c.shape, f32);
      for (int64_t i = 0; i < x.size(); ++i)
        x.set_element_bits(i, reference::from_double(f32, static_cast<double>(i * 37 % 11 - 5) / 8));
      const std::vector<Array> wanted = interpret(k, {x});
      for (const auto& [target, t] : targets()) {
        CAPTURE(std::string(c.name));
        const std::string name = target;
        CAPTURE(name);
        CAPTURE(steps);
        ir::Kernel lanes;
        size(k, t, &lanes);
        for (uint64_t seed = 0; seed < 2; ++seed) {
          const lane::RunResult r =
              lane::run(lanes, {x, Array(c.shape, f32)}, 1, {}, {.seed = seed, .subgroup_size = t.subgroup_size});
          CHECK(r.reports.empty());
          int64_t wrong = 0;
          for (int64_t i = 0; i < x.size(); ++i) wrong += r.outputs[0].element_bits(i) != wanted[0].element_bits(i);
          CHECK(wrong == 0);
        }
      }
    }
}

TEST_CASE("values used by many ops, at one position of each: code is linear as well") {
  // every step is stored: the first ones would be computed for each of the stores behind them
  const auto stores = [](int64_t steps) {
    const ts::ShapeDtype type{{300}, ts::f32}, all_types{{steps, 300}, ts::f32};
    return ts::pallas_call(
               [&](Ref x, Ref o) {
                 Value y = x[all];
                 for (int64_t i = 0; i < steps; ++i) {
                   y = ts::sqrt(y * y + static_cast<float>(i));
                   o[{static_cast<int32_t>(i), all}] = y;
                 }
               },
               {.out_shape = {all_types}, .name = "stores"})
        .trace({type});
  };
  const auto sums = [](int64_t steps) {  // in a loop, and of a row that is repeated
    const ts::ShapeDtype type{{40}, ts::f32}, result{{20, 40}, ts::f32};
    return ts::pallas_call(
               [&](Ref x, Ref o) {
                 Value row = x[all];
                 for (int64_t i = 0; i < steps; ++i) row = ts::exp(row * 0.5f) - 1.0f;
                 const Value y = ts::broadcast_to(row, {20, 40});
                 o[all] = ts::fori_loop(0, 5, y, [&](Value i, Value a) {
                   for (int64_t j = 0; j < steps; ++j)
                     a = ts::maximum(a, ts::roll(y, 1 + j % 39, 1) * ts::cast(i, ts::f32));
                   return a + ts::roll(y, 1, 0);
                 });
               },
               {.out_shape = {result}, .name = "sums"})
        .trace({type});
  };
  for (const auto& make : {std::function<ir::Kernel(int64_t)>(stores), std::function<ir::Kernel(int64_t)>(sums)})
    for (const auto& [target, t] : targets()) {
      const std::string name = target;
      CAPTURE(name);
      for (int64_t steps = 4; steps <= 64; steps *= 2) {
        CAPTURE(steps);
        const Size s = size(make(steps), t);
        CHECK(s.emitted <= (t.kind == Target::Kind::cpu ? 1200 + 110 * steps : 100 + 60 * steps));
      }
    }
}

TEST_CASE("values used at several positions: a part of a concatenate is computed where it is") {
  const ts::ShapeDtype type{{64}, ts::f32}, result{{256}, ts::f32};
  const ir::Kernel k = ts::pallas_call(
                           [&](Ref x, Ref o) {
                             std::vector<ts::Operand> parts;
                             for (int i = 0; i < 4; ++i)
                               parts.push_back(ts::sin(ts::exp(x[all] + static_cast<float>(i))) * ts::cos(x[all]));
                             o[all] = ts::roll(ts::concatenate(parts), 5);
                           },
                           {.out_shape = {result}, .name = "parts"})
                           .trace({type});
  ir::Kernel lanes;
  std::string explain;
  size(k, gpu_target(), &lanes, &explain);
  CHECK(explain.find("kept in the arena: f32[256], the result of concatenate") != std::string::npos);
}

TEST_CASE("values used at several positions: explain says what is kept, and why") {
  std::string explain;
  size(kernel(chains()[3], 40), gpu_target(), nullptr, &explain);
  CHECK(explain.find("  kept in the arena: f32[256], the result of mul at ") != std::string::npos);
  CHECK(explain.find(": computing it where it is used would repeat about 29 operations at 4 positions\n") !=
        std::string::npos);
  CHECK(explain.find(" more values are kept likewise\n") != std::string::npos);
  size(kernel(chains()[3], 1), gpu_target(), nullptr, &explain);
  CHECK(explain.find("kept") == std::string::npos);
  // Eight lines at most: eight values, or seven and how many more there are.
  const auto count = [&](const std::string& what) {
    size_t n = 0;
    for (size_t at = explain.find(what); at != std::string::npos; at = explain.find(what, at + 1)) ++n;
    return n;
  };
  std::vector<size_t> kept(64, 0);
  for (int64_t steps = 1; steps <= 40; ++steps) {
    CAPTURE(steps);
    size(kernel(chains()[3], steps), gpu_target(), nullptr, &explain);
    const size_t lines = count("  kept in "), at = explain.find(" more values are kept likewise");
    const size_t more = at == std::string::npos ? 0 : std::stoul(explain.substr(explain.rfind("and ", at) + 4));
    CHECK(lines + more < kept.size());
    ++kept[lines + more];
    CHECK((more == 0 ? lines <= 8 : lines == 7 && more >= 2));
  }
  CHECK(kept[7] > 0);
  CHECK(kept[8] > 0);
  CHECK(kept[9] > 0);
}

}  // namespace keep_test
