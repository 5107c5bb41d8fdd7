// Halo dims: the interpreter against an array that is walked step by step, at every edge, for small and awkward sizes
// and every dtype; beside other kinds of dims; text and exact errors.
#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

#include "engine/call/vmap.h"
#include "engine/front.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "tests/support/messages.h"

namespace halo_test {

namespace ts = tessera;
using tessera::test::at, tessera::test::expect, tessera::test::message, tessera::test::note;
using ts::all, ts::Edge, ts::Halo, ts::Ref, ts::Value;

namespace {
using Ints = std::vector<int32_t>;
constexpr Edge kEdges[] = {Edge::clamp, Edge::zero, Edge::reflect, Edge::symmetric, Edge::wrap};

ts::Array ints(ts::Shape shape, Ints v) { return {std::move(shape), std::move(v)}; }
Ints values(const ts::Array& a) {
  const auto s = a.data<int32_t>();
  return {s.begin(), s.end()};
}

/// The element at `position`, found by going there from element 0 one step after another; -1: a zero.
int64_t walk(Edge edge, int64_t position, int64_t n) {
  if (n == 0) return -1;
  int64_t here = 0, step = position < 0 ? -1 : 1;
  for (int64_t i = 0; i < std::abs(position); ++i) {
    const int64_t next = here + step;
    if (next >= 0 && next < n) {
      here = next;
      continue;
    }
    switch (edge) {
      case Edge::clamp: return here;
      case Edge::zero: return -1;
      case Edge::wrap: here = next < 0 ? n - 1 : 0; break;
      case Edge::symmetric: step = -step; break;
      case Edge::reflect:
        step = -step;
        if (n > 1) here += step;
        break;
    }
  }
  return here;
}

/// Each program's block of an array of n elements, as rows.
ts::PallasCall rows(ts::DType t, int64_t programs, const Halo& h) {
  const int64_t seen = h.size + h.around.first + h.around.second;
  return ts::pallas_call([](Ref x, Ref o) { o[all] = x[all]; },
                         {.out_shape = {{{programs, seen}, t}},
                          .grid = programs,
                          .in_specs = {{{h}, [](Value i) { return i; }}},
                          .out_specs = {{{ts::squeezed, seen}, [](Value i) { return ts::Indices{i, 0}; }}},
                          .name = "rows"});
}

/// Every problem that the verifier has with a text.
std::string problems(const std::string& text) {
  std::string s;
  for (const ts::ir::Problem& p : ts::ir::find_problems(ts::ir::parse(text))) s += p.entity + ": " + p.message + "\n";
  return s;
}
}  // namespace

TEST_CASE("halo blocks: every edge, size and dtype is what a walk along the array finds") {
  const ts::DType dtypes[] = {ts::i32, ts::boolean, ts::i4,  ts::u4,  ts::i8,  ts::u16,
                              ts::f16, ts::bf16,    ts::f32, ts::i64, ts::f64, ts::u8};
  size_t turn = 0;
  for (const Edge edge : kEdges)
    for (const int64_t n : {0, 1, 2, 3, 5, 16, 33, 35, 49})
      for (const int64_t block : {1, 2, 5, 16})
        for (const std::pair<int64_t, int64_t>& around :
             {std::pair<int64_t, int64_t>{0, 0}, {1, 1}, {2, 0}, {0, 3}, {7, 2}, {40, 61}}) {
          const int64_t low = around.first, high = around.second;
          const ts::DType t = dtypes[turn++ % std::size(dtypes)];
          ts::Array x({n}, t);
          for (int64_t i = 0; i < n; ++i)
            x.set_element_bits(i, t == ts::boolean
                                      ? static_cast<uint64_t>(i * 5 % 3 == 1)
                                      : static_cast<uint64_t>(i + 1) & ((uint64_t{1} << ts::bits(t) / 2) - 1));
          const int64_t programs = std::max<int64_t>(ts::cdiv(n, block), 1) + 1, seen = block + low + high;
          const ts::Array o = ts::interpret(rows(t, programs, {block, {low, high}, edge}), x);
          int64_t wrong = 0;
          for (int64_t i = 0; i < programs; ++i) {
            // Programs beyond the last block have that one.
            const int64_t first = std::min(i, std::max<int64_t>(ts::cdiv(n, block), 1) - 1) * block - low;
            for (int64_t p = 0; p < seen; ++p) {
              const int64_t from = walk(edge, first + p, n);
              wrong += o.element_bits(i * seen + p) != (from < 0 ? 0 : x.element_bits(from));
            }
          }
          INFO(ts::ir::name(edge), " ", n, " in blocks of ", block, " with ", low, " and ", high);
          CHECK(wrong == 0);
        }
}

TEST_CASE("halo blocks: what numpy.pad makes of 1 2 3") {
  const auto padded = [](Edge e) { return values(ts::interpret(rows(ts::i32, 1, {3, 4, e}), ints({3}, {1, 2, 3}))); };
  CHECK(padded(Edge::clamp) == Ints{1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3});
  CHECK(padded(Edge::zero) == Ints{0, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0});
  CHECK(padded(Edge::reflect) == Ints{1, 2, 3, 2, 1, 2, 3, 2, 1, 2, 3});
  CHECK(padded(Edge::symmetric) == Ints{3, 3, 2, 1, 1, 2, 3, 3, 2, 1, 1});
  CHECK(padded(Edge::wrap) == Ints{3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1});
}

TEST_CASE("halo blocks: a filter of 3 x 3 taps over sizes that are no multiples of its tiles, without a mask") {
  const auto box = [](ts::Extent h, ts::Extent w) {
    const ts::BlockSpec around{{Halo(16, 1, Edge::clamp), Halo(16, 1, Edge::clamp)},
                               [](Value i, Value j) { return ts::Indices{i, j}; }};
    const ts::BlockSpec tile{{16, 16}, [](Value i, Value j) { return ts::Indices{i, j}; }};
    return ts::pallas_call(
        [](Ref x, Ref o) {
          Value sum = ts::zeros({16, 16}, ts::i32);
          for (int64_t a = 0; a < 3; ++a)
            for (int64_t b = 0; b < 3; ++b) sum = sum + x[{ts::ds(a, 16), ts::ds(b, 16)}];
          o[all] = sum;
        },
        {.out_shape = {{{h, w}, ts::i32}},
         .grid = {ts::cdiv(h, ts::Extent(16)), ts::cdiv(w, ts::Extent(16))},
         .in_specs = {around},
         .out_specs = {tile},
         .name = "box",
         .in_shape = {{{h, w}, ts::i32}}});
  };
  const auto any = box(ts::dim("h"), ts::dim("w"));
  for (const int64_t n : {1, 16, 33, 35, 49}) {
    const int64_t h = n, w = n + 2;
    ts::Array x({h, w}, ts::i32);
    for (int64_t i = 0; i < h * w; ++i) x.set_element_bits(i, static_cast<uint64_t>(i * i % 91));
    Ints want;
    for (int64_t i = 0; i < h; ++i)
      for (int64_t j = 0; j < w; ++j) {
        int32_t sum = 0;
        for (int64_t a = -1; a <= 1; ++a)
          for (int64_t b = -1; b <= 1; ++b)
            sum += static_cast<int32_t>(
                x.element_bits(std::clamp<int64_t>(i + a, 0, h - 1) * w + std::clamp<int64_t>(j + b, 0, w - 1)));
        want.push_back(sum);
      }
    CHECK(values(ts::interpret(box(h, w), x)) == want);
    CHECK(values(ts::interpret(any, x)) == want);
  }
}

TEST_CASE("halo blocks beside other dims, under vmap and with what a mask leaves out") {
  const auto call = ts::pallas_call(
      [](Ref x, Ref o) {
        const Value outside = ts::iota(ts::i32, {5}, 0) == 0;
        o[all] = ts::load(x, {all}, {.mask = !outside, .other = ts::zeros({5}, ts::i32) - 7});
      },
      {.out_shape = {{{2, 5}, ts::i32}},
       .grid = 2,
       .in_specs = {{{ts::squeezed, Halo(3, 1, Edge::zero)}, [](Value i) { return ts::Indices{1, i}; }}},
       .out_specs = {{{ts::squeezed, 5}, [](Value i) { return ts::Indices{i, 0}; }}},
       .name = "row"});
  const ts::Array x = ints({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(values(ts::interpret(call, x)) == Ints{-7, 5, 6, 7, 8, -7, 8, 0, 0, 0});
  const ts::Array y = ints({2, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 9, 10, 11, 12});
  CHECK(values(ts::interpret(ts::vmap(call), y)) ==
        Ints{-7, 5, 6, 7, 8, -7, 8, 0, 0, 0, -7, 9, 10, 11, 12, -7, 12, 0, 0, 0});
}

TEST_CASE("halo blocks: text") {
  const auto call = rows(ts::i32, 2, {3, {1, 2}, Edge::symmetric});
  const std::string text = ts::ir::print(call.trace({{{5}, ts::i32}}));
  CHECK(text.find("in i32[5] block (halo(3, 1, 2, symmetric)) map") != std::string::npos);
  CHECK(ts::ir::print(ts::ir::parse(text)) == text);
  std::ostringstream out;
  out << call.grid_mapping({{{5}, ts::i32}});
  CHECK(out.str().find("in_specs[0]: i32(5,) in blocks (halo(3, 1, 2, symmetric),)") != std::string::npos);
  const auto parse = [](const std::string& dim) {
    return message([&] { ts::ir::parse("tir 1\nkernel @k\nin i32[4] block (" + dim + ")\nbody (%x) {\n}\n"); });
  };
  CHECK(parse("halo(3, 1, 2)").find("expected ',' but found ')'") != std::string::npos);
  CHECK(parse("halo(3, 1, 2, mirror)").find("'clamp', 'zero', 'reflect', 'symmetric' or 'wrap'") != std::string::npos);
  CHECK(parse("hal(3)").find("a block size, 'squeezed', 'element', 'bounded' or 'halo'") != std::string::npos);
  CHECK(parse("halo(3, -1, 2, wrap)").find("the elements before the block") != std::string::npos);
}

TEST_CASE("halo blocks: errors") {
  const int line = __LINE__ + 2;
  const auto with = [](ts::BlockShape in, ts::BlockShape out) {
    const ts::BlockSpec spec{in}, to{out};
    return message([&] {
      ts::pallas_call([](Ref x, Ref o) { o[0] = x[0]; },
                      {.out_shape = {{{8}, ts::i32}}, .in_specs = {spec}, .out_specs = {to}, .name = "copy"})
          .trace({{{8}, ts::i32}});
    });
  };
  const std::string in = "copy: in_specs[0]: block shape ", out = "copy: out_specs[0]: block shape ";
  expect(with({Halo(4, 1, Edge::clamp)}, {4}), "no error");
  expect(with({Halo(0, 1, Edge::clamp)}, {4}),
         in + "(Halo(0, 1, Edge::clamp),): size 0 of dim 0 is not positive" + at(line));
  expect(with({Halo(4, {1, -2}, Edge::wrap)}, {4}),
         in + "(Halo(4, {1, -2}, Edge::wrap),): halo (1, -2) of dim 0 is negative" + at(line) +
             note("a halo counts the elements before and behind the block"));
  expect(with({Halo(4, {1 << 30, (1 << 30) + 1}, Edge::wrap)}, {4}),
         in +
             "(Halo(4, {1073741824, 1073741825}, Edge::wrap),): halo (1073741824, 1073741825) of dim 0 is more than "
             "1073741824" +
             at(line) + note("a halo counts the elements before and behind the block"));
  expect(with({4}, {Halo(4, 1, Edge::zero)}),
         out + "(Halo(4, 1, Edge::zero),): dim 0 has a halo, which is for inputs" + at(line) +
             note("what a program stores is its own: give the output blocks of 4"));
}

TEST_CASE("halo blocks: errors of aliases and stores") {
  const auto spec = ts::BlockSpec{{Halo(4, 1, Edge::clamp)}, [](Value i) { return i; }};
  int line = __LINE__ + 1;
  const auto aliased = ts::pallas_call([](Ref, Ref) {}, {.out_shape = {{{8}, ts::i32}},
                                                         .grid = 2,
                                                         .in_specs = {spec},
                                                         .out_specs = {{{4}, [](Value i) { return i; }}},
                                                         .input_output_aliases = {{0, 0}},
                                                         .name = "copy"});
  expect(message([&] { aliased.trace({{{8}, ts::i32}}); }),
         "copy: input_output_aliases: input 0 is in_specs[0], whose halo reads what other programs may have stored "
         "already" +
             at(line) + note("leave the alias out"));
  line = __LINE__ + 1;
  const auto stores = [](Ref x, Ref) { x[0] = 1; };
  expect(message([&] {
           ts::pallas_call(stores, {.out_shape = {{{8}, ts::i32}}, .grid = 2, .in_specs = {spec}, .name = "copy"})
               .trace({{{8}, ts::i32}});
         }),
         "copy: store: in_specs[0] has a halo and is only read" + at(line) + note("store to an output or to scratch"));
  const std::string map = " map (%i) {\n  yield %i\n}\n";
  expect(problems("tir 1\nkernel @k\ngrid (2)\nin i32[8] block (halo(4, 1, 1, clamp))" + map +
                  "in i32[8] block (halo(0, 1, 1, clamp))" + map + "out i32[8] block (halo(4, 0, 0, zero))" + map +
                  "out i32[8] alias 0 block (4)" + map +
                  "body (%x, %y, %o, %p) {\n  %v = load %y[0:2]\n  store %y[0:2], %v\n}\n"),
         "in_specs[1]: block dim 0 has size 0, not at least 1\n"
         "out_specs[0]: has a halo dim, which is for inputs\n"
         "out_specs[1]: is aliased to in_specs[0], whose halo reads what other programs may have stored\n"
         "store %5: stores to in_specs[1]: a block with a halo is only read\n");
}

}  // namespace halo_test
