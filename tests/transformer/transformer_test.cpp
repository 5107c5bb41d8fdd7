// The transformer sample: its forward pass against the model in double precision, the program itself on both places,
// and files that do not fit.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>

#include "samples/transformer/weights.h"
#include "tests/samples/program.h"

namespace transformer_test {
using namespace transformer;
using tessera::Array;
using namespace tessera::test;

namespace {

const Config kSmall = {
    .vocabulary = 50, .dim = 24, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 6, .hidden = 40};

using Rows = std::vector<std::vector<double>>;

/// The model by its definition: logits of every token.
Rows reference(const Config& c, const std::vector<Array>& w, const std::vector<int32_t>& tokens) {
  size_t next = 0;
  const auto product = [&](const Rows& x, const Array& m) {
    Rows out;
    const auto n = static_cast<size_t>(m.shape()[1]);
    for (const auto& row : x) {
      out.emplace_back(n, 0);
      for (size_t j = 0; j < row.size(); ++j)
        for (size_t k = 0; k < n; ++k) out.back()[k] += row[j] * m.at(static_cast<int64_t>(j * n + k));
    }
    return out;
  };
  const auto norm = [&](Rows x, const Array& weight) {
    for (auto& row : x) {
      double squares = 0;
      for (const double e : row) squares += e * e;
      for (size_t i = 0; i < row.size(); ++i)
        row[i] *=
            weight.at(static_cast<int64_t>(i)) / std::sqrt(squares / static_cast<double>(row.size()) + c.norm_epsilon);
    }
    return x;
  };
  const auto d = static_cast<size_t>(c.head_dim);
  const auto rope = [&](Rows x) {
    for (size_t p = 0; p < x.size(); ++p)
      for (size_t h = 0; h < x[p].size(); h += d)
        for (size_t i = 0; i < d / 2; ++i) {
          const double angle =
              static_cast<double>(p) * std::pow(c.rope_base, -static_cast<double>(i) / static_cast<double>(d / 2));
          const double a = x[p][h + i], b = x[p][h + i + d / 2];
          x[p][h + i] = a * std::cos(angle) - b * std::sin(angle);
          x[p][h + i + d / 2] = b * std::cos(angle) + a * std::sin(angle);
        }
    return x;
  };
  const auto add = [](Rows x, const Rows& y) {
    for (size_t p = 0; p < x.size(); ++p)
      for (size_t i = 0; i < x[p].size(); ++i) x[p][i] += y[p][i];
    return x;
  };
  const Array& table = w[next++];
  Rows x;
  for (const int32_t t : tokens) {
    x.emplace_back();
    for (int64_t i = 0; i < c.dim; ++i) x.back().push_back(table.at(t * c.dim + i));
  }
  for (int64_t layer = 0; layer < c.layers; ++layer) {
    const Array* p = &w[next];
    next += 9;
    const Rows h = norm(x, p[0]), q = rope(product(h, p[1])), k = rope(product(h, p[2])), v = product(h, p[3]);
    Rows attended(x.size(), std::vector<double>(static_cast<size_t>(c.heads) * d, 0));
    for (size_t i = 0; i < x.size(); ++i)
      for (size_t head = 0; head < static_cast<size_t>(c.heads); ++head) {
        const size_t at = head * d, kv = head / static_cast<size_t>(c.heads / c.kv_heads) * d;
        std::vector<double> weights;
        double total = 0;
        for (size_t j = 0; j <= i; ++j) {
          double s = 0;
          for (size_t e = 0; e < d; ++e) s += q[i][at + e] * k[j][kv + e];
          total += weights.emplace_back(std::exp(s / std::sqrt(static_cast<double>(d))));
        }
        for (size_t j = 0; j <= i; ++j)
          for (size_t e = 0; e < d; ++e) attended[i][at + e] += weights[j] / total * v[j][kv + e];
      }
    x = add(x, product(attended, p[4]));
    const Rows m = norm(x, p[5]), up = product(m, p[7]);
    Rows gate = product(m, p[6]);
    for (size_t i = 0; i < gate.size(); ++i)
      for (size_t j = 0; j < gate[i].size(); ++j) gate[i][j] *= up[i][j] / (1 + std::exp(-gate[i][j]));
    x = add(x, product(gate, p[8]));
  }
  return product(norm(x, w[next]), w[next + 1]);
}

}  // namespace

TEST_CASE("the forward pass as a graph is the model") {
  const std::vector<int32_t> tokens = {3, 49, 0, 17, 3, 3, 20};
  const auto n = static_cast<int64_t>(tokens.size());
  const std::vector<Array> w = weights_of(made_up(kSmall, tessera::f32), kSmall);
  const Rows expected = reference(kSmall, w, tokens);
  std::vector<Array> arguments = {Array({1, n}, tokens), Array({1, n}, std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6}),
                                  Array({2, 1}, std::vector<int32_t>(2, static_cast<int32_t>(n))),
                                  Array({1}, std::vector<int32_t>{0})};
  arguments.insert(arguments.end(), w.begin(), w.end());
  for (int64_t i = 0; i < 2 * kSmall.layers; ++i)
    arguments.push_back(Array({1, n + 2, kSmall.kv_heads, kSmall.head_dim}, tessera::f32));
  const Array logits = tessera::interpret(graph(kSmall), arguments).at(0);
  REQUIRE(logits.shape() == tessera::Shape{1, n, kSmall.vocabulary});
  double worst = 0;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t t = 0; t < kSmall.vocabulary; ++t)
      worst = std::max(worst, std::fabs(logits.at(i * kSmall.vocabulary + t) -
                                        expected[static_cast<size_t>(i)][static_cast<size_t>(t)]));
  CHECK(worst < 1e-5);  // f32 sums of tens of numbers near 1
}

TEST_CASE(
    "the program: both places give the same tokens, steps and whole agree, and the validation layers are silent") {
  const Scratch folder;
  write_safetensors(folder.path + "/small.safetensors", made_up(kSmall, tessera::f32));
  std::string first;
  for (const char* place : {"TESSERA_DEVICE=interpreter", "TESSERA_VALIDATION=1"}) {
    const Outcome o = run(folder, place, "transformer", "--file small.safetensors --prompt Hello --tokens 5");
    INFO(o.output);
    CHECK(o.code == 0);
    CHECK(o.output.find("transformer: 2 layers of 24, f32; \"Hello\" continues ") == 0);
    CHECK(o.output.find(": ok\n") != std::string::npos);
    const std::string text = o.output.substr(0, o.output.find('\n'));
    if (first.empty()) first = text;
    CHECK(text == first);
  }
}

TEST_CASE("the program: what does not fit") {
  const Scratch folder;
  const auto said = [&](const std::string& arguments) {
    const Outcome o = run(folder, "TESSERA_DEVICE=interpreter", "transformer", arguments);
    CHECK(o.code == 1);
    return o.output;
  };
  CHECK(said("--tokens 0") == "transformer: --tokens 0 is no number from 1 to 4096\n");
  CHECK(said("--tokens 3x") == "transformer: --tokens 3x is no number from 1 to 4096\n");
  CHECK(said("--dtype f64") == "transformer: --dtype f64 is not f32, f16 or bf16\n");
  CHECK(said("--what 1") == "transformer: --what: unknown option, or one without its value\n");
  CHECK(said("--file") == "transformer: --file: unknown option, or one without its value\n");
  CHECK(said("--prompt ''") == "transformer: --prompt is empty\n");
  CHECK(said("--file none") == "transformer: none: no such file\n");

  const SafeTensors good = made_up(kSmall, tessera::f32);
  const auto of = [&](const std::function<void(SafeTensors&)>& change) {
    SafeTensors bad = good;
    change(bad);
    write_safetensors(folder.path + "/m", bad);
    return said("--file m");
  };
  CHECK(of([](SafeTensors& f) { f.metadata.erase("heads"); }) ==
        "transformer: m: the metadata says nothing of heads\n");
  CHECK(of([](SafeTensors& f) { f.metadata["dim"] = "24x"; }) ==
        "transformer: m: the metadata's dim is \"24x\", which is no number from 0 to 1e9\n");
  CHECK(of([](SafeTensors& f) { f.metadata["layers"] = "-1"; }) ==
        "transformer: m: the metadata's layers is \"-1\", which is no number from 0 to 1e9\n");
  CHECK(of([](SafeTensors& f) { f.metadata["kv_heads"] = "3"; }) ==
        "transformer: m: the metadata's heads, 4, are no multiple of its kv_heads, 3\n");
  CHECK(of([](SafeTensors& f) { f.metadata["head_dim"] = "5"; }) ==
        "transformer: m: the metadata's head_dim, 5, is odd\n");
  CHECK(of([](SafeTensors& f) { f.tensors.erase("layers.1.wo"); }) ==
        "transformer: m: there is no tensor \"layers.1.wo\"\n");
  CHECK(of([](SafeTensors& f) { f.tensors["norm"] = Array({23}, tessera::f32); }) ==
        "transformer: m: tensor \"norm\" has shape (23,), not (24,)\n");
  CHECK(of([](SafeTensors& f) { f.tensors["norm"] = Array({24}, tessera::f16); }) ==
        "transformer: m: tensor \"norm\" is f16, but \"embedding\" f32\n");
}

}  // namespace transformer_test
