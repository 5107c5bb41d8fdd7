// vmap of kernels that store to what they were given, against JAX's answers in tests/data/vmap (make_vmap_answers.py):
// aliased inputs batched along other axes or not at all, nested batches, atomics. What JAX does not answer is compared
// with one call per element of the batch.
#include <doctest/doctest.h>

#include <filesystem>
#include <map>

#include "engine/base/npy.h"
#include "engine/front.h"
#include "engine/ir/text.h"
#include "engine/passes/passes.h"
#include "tests/support/messages.h"

namespace vmap_memory_test {
using namespace tessera;

namespace {
constexpr auto none = std::nullopt;

std::vector<Array> stored(const std::string& name, const std::string& kind) {
  std::vector<Array> list;
  for (;;) {
    const std::string file = "tests/data/vmap/" + name + "." + kind + std::to_string(list.size()) + ".npy";
    if (!std::filesystem::exists(file)) return list;
    list.push_back(read_npy(file));
  }
}

PallasCall some() {
  const BlockSpec blocks{{2, 3}, [](Value i) { return Indices{2 - 2 * i, 0}; }};
  return pallas_call([](Ref x, Ref y, Ref o) { o[all] = x[all] + 10 * y[all]; },
                     {.out_shape = {{{8, 3}, i32}},
                      .grid = 2,
                      .in_specs = {blocks, {{1, 3}, [](Value i) { return Indices{i, 0}; }}},
                      .out_specs = blocks,
                      .input_output_aliases = {{0, 0}},
                      .name = "some"});
}
PallasCall two() {
  return pallas_call(
      [](Ref a, Ref b, Ref s, Ref o, Ref p) {
        o[all] = a[all] + s[all];
        p[all] = b[all] * s[all];
      },
      {.out_shape = {{{3}, f32}, {{2, 3}, f32}}, .input_output_aliases = {{0, 0}, {1, 1}}, .name = "two"});
}
PallasCall count() {
  const BlockSpec one{{1}, [](Value i) { return i; }};
  return pallas_call([](Ref x, Ref, Ref o, Ref old) { old[0] = atomic_add(o, x[0], 1); },
                     {.out_shape = {{{5}, i32}, {{7}, i32}},
                      .grid = 7,
                      .in_specs = {one, no_block_spec},
                      .out_specs = {no_block_spec, one},
                      .input_output_aliases = {{1, 0}},
                      .name = "count"});
}
PallasCall scatter() {
  return pallas_call([](Ref i, Ref v, Ref, Ref o, Ref old) { old[all] = atomic_max(o, i[all], Value(v[all])); },
                     {.out_shape = {{{6}, i32}, {{4}, i32}}, .input_output_aliases = {{2, 0}}, .name = "scatter"});
}

std::map<std::string, PallasCall> calls() {
  return {{"alias_unbatched", vmap(some(), {none, 0})},
          {"alias_out_axis", vmap(some(), {none, 1}, 2)},
          {"alias_moved", vmap(some(), {1, 0})},
          {"alias_moved_back", vmap(some(), {1, 0}, -1)},
          {"alias_only", vmap(some(), {1, none})},
          {"alias_nested", vmap(vmap(some(), {none, 1}), {0, 0})},
          {"alias_nested_unbatched", vmap(vmap(some(), {none, 1}, 1), {none, 0}, 2)},
          {"alias_nested_moved", vmap(vmap(some(), {2, 1}, 0), {1, 0}, 1)},
          {"alias_two", vmap(two(), {none, 2, 0}, {1, 0})},
          {"histogram", vmap(count())},
          {"histogram_unbatched", vmap(count(), {0, none})},
          {"histogram_of_one", vmap(count(), {none, 1})},
          {"scatter_batched", vmap(scatter(), {0, 0, 1})},
          {"scatter_unbatched", vmap(scatter(), {0, none, none})},
          {"scatter_one_index", vmap(scatter(), {none, 0, none}, {1, 0})}};
}

template <class A> void compare(const std::string& what, const A& got, const std::vector<Array>& answers) {
  for (size_t o = 0; o < answers.size(); ++o) {
    CHECK_MESSAGE(got[o].shape() == answers[o].shape(), what);
    int64_t wrong = 0;
    for (int64_t i = 0; got[o].shape() == answers[o].shape() && i < answers[o].size(); ++i)
      wrong += got[o].element_bits(i) != answers[o].element_bits(i);
    CHECK_MESSAGE(wrong == 0, what, " output ", o, ": ", wrong, " elements differ");
  }
}
std::vector<int32_t> values(const Array& a) {
  const auto s = a.data<int32_t>();
  return {s.begin(), s.end()};
}
using Ints = std::vector<int32_t>;
}  // namespace

TEST_CASE("vmap: what is written is batched as in JAX") {
  const auto all_calls = calls();
  for (const auto& entry : all_calls) {
    const std::string& name = entry.first;
    const PallasCall& call = entry.second;
    const std::vector<Array> inputs = stored(name, "in"), answers = stored(name, "out");
    REQUIRE_MESSAGE(!answers.empty(), name);
    const std::vector<Array> before = inputs;
    compare(name, interpret(call, inputs), answers);
    compare(name + ": the caller's arrays", inputs, before);
    ir::Kernel k = call.trace_for(inputs);
    passes::optimize(k);
    compare(name + ": optimized", interpret(k, call.spread(inputs)), answers);
  }
  for (const auto& file : std::filesystem::directory_iterator("tests/data/vmap")) {
    const std::string name = file.path().filename().string();
    CHECK_MESSAGE(all_calls.contains(name.substr(0, name.find('.'))), name);
  }
}

TEST_CASE("vmap: each element of the batch has its own copy of what the kernel stores to") {
  const auto call = pallas_call(
      [](Ref x, Ref y, Ref o) {
        o[all] = x[all] + y[all];
        x[all] += 1;
      },
      {.out_shape = {{{2}, i32}},
       .grid = 2,
       .in_specs = {no_block_spec, no_block_spec},
       .out_specs = no_block_spec,
       .name = "grows"});
  const Array x({2}, Ints{5, 7}), y({3, 2}, Ints{0, 10, 20, 30, 40, 50});
  CHECK(values(interpret(vmap(call, {none, 0}), x, y)) == Ints{6, 18, 26, 38, 46, 58});
  CHECK(values(interpret(vmap(call, {none, 0}, 1), x, y)) == Ints{6, 26, 46, 18, 38, 58});
  CHECK(values(x) == Ints{5, 7});
  // Twice, of which one batches it.
  const Array rows({2, 2}, Ints{5, 7, 100, 200});
  const auto nested = vmap(vmap(call, {none, 0}), {0, none});
  CHECK(values(interpret(nested, rows, y)) == Ints{6, 18, 26, 38, 46, 58, 101, 211, 121, 231, 141, 251});
  const auto spreads = nested.spreads({{{2, 2}, i32}, {{3, 2}, i32}});
  REQUIRE(spreads[0]);
  CHECK(spreads[0]->shape == Shape{2, 3, 2});
  CHECK(spreads[0]->dims == std::vector<int64_t>{0, 2});
  CHECK(!spreads[1]);
}

TEST_CASE("vmap: atomics at index arrays, in views and in scratch: each element of the batch counts for itself") {
  const auto call = pallas_call(
      [](Ref i, Ref o, Ref old, Ref bins) {
        when(program_id(0) == 0, [&] { bins[all] = 0; });
        old[all] = atomic_add(bins.reshape({3, 2}), {cast(i[all], i32) / 2, cast(i[all], i32) % 2}, 1);
        o[all] = bins[all];
      },
      {.out_shape = {{{6}, i32}, {{2, 4}, i32}},
       .grid = 2,
       .in_specs = {{{squeezed, 4}, [](Value p) { return Indices{p, 0}; }}},
       .out_specs = {no_block_spec, {{squeezed, 4}, [](Value p) { return Indices{p, 0}; }}},
       .scratch_shapes = {VMEM({6}, i32)},
       .name = "bins"});
  const Array i({2, 2, 4}, Ints{0, 5, 5, 3, 5, 0, 0, 0, 1, 1, 2, 1, 4, 4, 1, 4});
  const auto check = [](const Arrays& r) {
    CHECK(values(r[0]) == Ints{4, 0, 0, 1, 0, 3, 0, 4, 1, 0, 3, 0});
    CHECK(values(r[1]) == Ints{0, 0, 1, 0, 2, 1, 2, 3, 0, 1, 0, 2, 0, 1, 3, 2});
  };
  check(interpret(vmap(call), i));
  check(interpret(vmap(vmap(call), 1, 1), InterpretOptions{}, Array({2, 1, 2, 4}, values(i))));
}

// Random kernels over an aliased input, one that is stored to and one that is read, batched once or twice along random
// axes: against one call per element.
TEST_CASE("vmap: random axes of what is written, against one call per element of the batch") {
  uint64_t state = 88172645463325252u;
  const auto in = [&](int64_t low, int64_t high) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return low + static_cast<int64_t>(state >> 11) % (high - low + 1);
  };
  // The part of a at index i along an axis, or a itself.
  const auto part = [](const Array& a, std::optional<int64_t> axis, int64_t i) {
    if (!axis) return a;
    Shape shape = a.shape();
    const int64_t n = shape[static_cast<size_t>(*axis)];
    int64_t inner = 1;
    for (size_t d = static_cast<size_t>(*axis) + 1; d < shape.size(); ++d) inner *= shape[d];
    shape.erase(shape.begin() + *axis);
    Array out(shape, a.dtype());
    for (int64_t e = 0; e < out.size(); ++e)
      out.set_element_bits(e, a.element_bits((e / inner * n + i) * inner + e % inner));
    return out;
  };
  for (int round = 0; round < 150; ++round) {
    CAPTURE(round);
    const Shape base = in(0, 1) ? Shape{4} : Shape{2, 4};
    const bool aliased = in(0, 2) > 0;
    const size_t rank = base.size();
    const ShapeDtype type{{base.begin(), base.end()}, i32};
    std::map<int, int> aliases;
    if (aliased) aliases[0] = 1;
    const PallasCall one = pallas_call(
        [](Ref x, Ref s, Ref r, Ref o, Ref p) {
          o[all] = s[all] * 100 + r[all];
          s[all] += program_id(0) + 1;
          p[all] = x[all] + s[all];
        },
        {.out_shape = {type, type},
         .grid = 2,
         .in_specs = {no_block_spec, no_block_spec, no_block_spec},
         .out_specs = {no_block_spec, no_block_spec},
         .input_output_aliases = aliases,
         .name = "one"});
    std::vector<std::vector<std::optional<int64_t>>> in_axes;
    std::vector<std::vector<std::optional<int64_t>>> out_axes;
    std::vector<int64_t> sizes;
    std::vector<Shape> shapes(3, base);
    PallasCall batched = one;
    for (int64_t level = in(1, 2); level-- > 0;) {
      const int64_t n = in(1, 3);
      std::vector<std::optional<int64_t>> axes, outs;
      do {
        axes.clear();
        for (size_t i = 0; i < 3; ++i)
          axes.push_back(in(0, 2) ? std::optional(in(0, static_cast<int64_t>(shapes[i].size()))) : std::nullopt);
      } while (!axes[0] && !axes[1] && !axes[2]);
      for (int o = 0; o < 2; ++o) outs.push_back(in(0, static_cast<int64_t>(rank + sizes.size())));
      for (size_t i = 0; i < 3; ++i)
        if (axes[i]) shapes[i].insert(shapes[i].begin() + *axes[i], n);
      batched = vmap(batched, BatchAxes(axes), BatchAxes(outs));
      in_axes.insert(in_axes.begin(), axes);  // outermost first
      out_axes.insert(out_axes.begin(), outs);
      sizes.insert(sizes.begin(), n);
    }
    std::vector<Array> arguments;
    for (const Shape& s : shapes) {
      Array a(s, i32);
      for (int64_t i = 0; i < a.size(); ++i) a.set_element_bits(i, static_cast<uint32_t>(in(0, 9)));
      arguments.push_back(a);
    }
    const Arrays got = interpret(batched, arguments);
    for (int64_t i = 0; i < sizes[0]; ++i)
      for (int64_t j = 0; j < (sizes.size() > 1 ? sizes[1] : 1); ++j) {
        std::vector<Array> mine;
        for (size_t a = 0; a < 3; ++a) {
          Array x = part(arguments[a], in_axes[0][a], i);
          if (sizes.size() > 1) x = part(x, in_axes[1][a], j);
          mine.push_back(x);
        }
        const Arrays wanted = interpret(one, mine);
        for (size_t o = 0; o < 2; ++o) {
          Array x = part(got[o], out_axes[0][o], i);
          if (sizes.size() > 1) x = part(x, out_axes[1][o], j);
          CHECK(x.shape() == wanted[o].shape());
          CHECK(values(x) == values(wanted[o]));
        }
      }
  }
}

}  // namespace vmap_memory_test
