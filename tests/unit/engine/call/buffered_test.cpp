// buffered_pallas_call computes what pallas_call does, whichever axes are parallel and however many buffers there are,
// without races; and its errors.
#include <doctest/doctest.h>

#include "engine/front.h"
#include "tests/support/messages.h"

namespace buffered_test {

namespace ts = tessera;
using tessera::test::at, tessera::test::message, tessera::test::note;
using ts::all, ts::Ref, ts::Value;

namespace {
ts::Array numbers(ts::Shape shape, int step) {
  std::vector<float> v(static_cast<size_t>(ts::num_elements(shape)));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(static_cast<int>(i) * step % 17 - 8);
  return {std::move(shape), std::move(v)};
}
// Rows of x by data times y, in pieces of k, the sum in scratch: the grouped product of the reference's example, small.
const auto kernel = [](Ref rows, Ref a, Ref b, Ref o, Ref acc) {
  ts::when(ts::program_id(2) == 0, [&] { acc[all] = ts::zeros({4, 8}, ts::f32); });
  acc[all] += ts::dot(a[all], b[all]);
  ts::when(ts::program_id(2) == ts::num_programs(2) - 1,
           [&] { o[all] = acc[all] + ts::cast(rows[ts::program_id(0)] * 100 + ts::program_id(1), ts::f32); });
};
ts::GridSpec spec() {
  return {.num_scalar_prefetch = 1,
          .grid = {3, 2, 2},
          .in_specs = {{{4, 6}, [](Value i, Value, Value k, Ref rows) { return ts::Indices{rows[i], k}; }},
                       {{6, 8}, [](Value, Value j, Value k) { return ts::Indices{k, j}; }}},
          .out_specs = {{{4, 8}, [](Value i, Value j, Value) { return ts::Indices{i, j}; }}},
          .scratch_shapes = {ts::VMEM({4, 8}, ts::f32)}};
}
const ts::ShapeDtypes out{{{11, 13}, ts::f32}};  // the last blocks hang over
using Counts = std::optional<std::vector<int64_t>>;
}  // namespace

TEST_CASE("buffered: the same as pallas_call") {
  const ts::Array rows({3}, std::vector<int32_t>{2, 0, 2}), x = numbers({12, 12}, 5), y = numbers({12, 13}, 7);
  const ts::Array wanted = ts::interpret(ts::pallas_call(kernel, {.out_shape = out, .grid_spec = spec()}), rows, x, y);
  const std::vector<std::vector<std::string>> semantics{{},
                                                        {"parallel", "arbitrary", "arbitrary"},
                                                        {"parallel", "parallel", "arbitrary"},
                                                        {"arbitrary", "parallel", "arbitrary"}};
  for (const auto& s : semantics)
    for (const Counts& counts : {Counts{}, Counts{{1, 1}}, Counts{{2, 3}}, Counts{{4, 2}}}) {
      const auto call = ts::buffered_pallas_call(
          kernel, {.out_shape = out, .grid_spec = spec(), .compiler_params = ts::CompilerParams{s}}, counts);
      for (uint64_t seed = 0; seed < 3; ++seed) {
        const ts::Array got = ts::interpret(call, {.seed = seed, .races = true}, rows, x, y);
        REQUIRE(got.shape() == wanted.shape());
        int wrong = 0;
        for (int64_t i = 0; i < got.size(); ++i) wrong += got.element_bits(i) != wanted.element_bits(i);
        CHECK(wrong == 0);
      }
    }
}

TEST_CASE("buffered: exact errors") {
  const ts::PallasCallParams grouped{.out_shape = out, .grid_spec = spec(), .name = "grouped"};
  int line = __LINE__ + 1;
  std::string said = message([&] { ts::buffered_pallas_call(kernel, grouped, {{2, 3, 2}}); });
  CHECK(said == "grouped: buffered_pallas_call: input_buffer_count has 3 entries but in_specs has 2 BlockSpecs" +
                    at(line) + note("give one count per input; scalar-prefetch operands have none"));
  line = __LINE__ + 1;
  said = message([] { ts::buffered_pallas_call(kernel, {.out_shape = out, .grid_spec = spec()}, {{2, 0}}); });
  CHECK(said == "kernel: buffered_pallas_call: input_buffer_count[1] is 0" + at(line) +
                    note("a block needs one buffer at least"));
  line = __LINE__ + 1;
  said = message([] { ts::buffered_pallas_call([](Ref, Ref) {}, {.out_shape = out, .grid_spec = spec()}); });
  CHECK(said ==
        "kernel: buffered_pallas_call: the kernel takes 2 Refs but there are 1 scalar-prefetch operand, 2 inputs, 1 "
        "output and 1 scratch shape" +
            at(line));
}

}  // namespace buffered_test
