// The importer of Pallas kernels traced by JAX, against JAX's answers: tests/data/jax, written by make_jax_kernels.py.
// And what it says to text that is no such kernel.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "engine/base/npy.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/jax/import.h"
#include "engine/jax/primitives.h"
#include "tests/support/answers.h"

namespace jax_test {
using namespace tessera;
using namespace tessera::test;

namespace {
const std::string kFolder = "tests/data/jax/";

std::string text_of(const std::string& name) {
  std::ifstream in(kFolder + name + ".json");
  std::ostringstream s;
  s << in.rdbuf();
  return s.str();
}

/// How far from JAX's answers is allowed: of each element's own size, or of 1 where sums cancel. Everything else is
/// exact.
const std::map<std::string, double> kTolerance{
    {"floats", 4e-6},             // XLA's own transcendental functions are some units off
    {"keys", 1e-6},               // erf_inv
    {"library_attention", 2e-3},  // f16
    {"library_hopper_attention", 3e-3},
    {"library_layer_norm", 1e-6},
    {"library_rms_norm", 1e-6},
    {"library_softmax", 1e-6},
    {"masked_softmax", 1e-6},
};

void check(const std::string& name) {
  INFO(name);
  const std::string text = text_of(name);
  jax::ImportOptions options;
  int first = 0;
  const auto path = [&](const char* kind, int i) { return kFolder + name + "." + kind + std::to_string(i) + ".npy"; };
  for (; first < jax::num_dynamic_grid_bounds(text); ++first)
    options.grid_sizes.push_back(static_cast<int64_t>(read_npy(path("in", first)).at(0)));
  const ir::Kernel k = jax::import_kernel(text, options);
  ir::verify(k, "the test");
  CHECK(ir::print(ir::parse(ir::print(k))) == ir::print(k));
  std::vector<Array> inputs;
  for (int i = 0; i < k.num_inputs; ++i)
    inputs.push_back(read_npy(path("in", first + i), k.blocks[static_cast<size_t>(i)].dtype));
  const std::vector<Array> got = interpret(k, inputs);
  CHECK(std::filesystem::exists(path("out", static_cast<int>(got.size()) - 1)));
  const auto tolerance = kTolerance.find(name);
  for (size_t o = 0; o < got.size(); ++o) {
    const Array want = read_npy(path("out", static_cast<int>(o)), got[o].dtype());
    const DType t = want.dtype();
    REQUIRE(got[o].dtype() == t);
    REQUIRE(got[o].shape() == want.shape());
    for (int64_t i = 0; i < want.size(); ++i) {
      const uint64_t a = got[o].element_bits(i), b = want.element_bits(i);
      if (agrees(t, a, b, 0)) continue;
      const double x = got[o].at(i), y = want.at(i);
      if (tolerance != kTolerance.end() && is_float(t) &&
          std::fabs(x - y) <= tolerance->second * std::max(1.0, std::fabs(y)))
        continue;
      FAIL_CHECK(name, " output ", o, " element ", i, " is ", show(t, a), " but JAX has ", show(t, b));
    }
  }
}

std::string error_of(const std::string& text, const jax::ImportOptions& options = {}) {
  try {
    jax::import_kernel(text, options);
  } catch (const InternalError& e) {
    return std::string("InternalError: ") + e.what();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE_MESSAGE(at != std::string::npos, from);
  return text.replace(at, from.size(), to);
}
}  // namespace

TEST_CASE("kernels traced by JAX compute what JAX computes") {
  int n = 0;
  for (const auto& file : std::filesystem::directory_iterator(kFolder)) {
    if (file.path().extension() != ".json") continue;
    ++n;
    CHECK_NOTHROW(check(file.path().stem().string()));
  }
  CHECK(n >= 18);
}

TEST_CASE("an imported kernel keeps the names, the grid and the lines of Python") {
  const ir::Kernel k = jax::import_kernel(text_of("matmul"));
  CHECK(k.name == "kernel");
  REQUIRE(k.grid.size() == 3);
  CHECK(k.grid[0].parallel);
  CHECK(k.grid[1].parallel);
  CHECK_FALSE(k.grid[2].parallel);
  int with_line = 0;
  for (const ir::OpId id : k.region(k.body).ops)
    with_line += to_string(k.op(id).loc).starts_with("tests/data/make_jax_kernels.py:");
  CHECK(with_line == static_cast<int>(k.region(k.body).ops.size()));

  const ir::Kernel a = jax::import_kernel(text_of("add_blocks"));
  CHECK(a.call.metadata == std::map<std::string, std::string>{{"model", "small"}});
  REQUIRE(a.call.cost_estimate);
  CHECK(a.call.cost_estimate->bytes_accessed == Extent(228));

  // Names that are no words of the text form.
  const auto name = [&](const std::string& n) {
    return jax::import_kernel(replaced(text_of("matmul"), "\"name\": \"kernel\"", "\"name\": \"" + n + "\"")).name;
  };
  CHECK(name("<lambda>") == "lambda");
  CHECK(name("a.b c/d") == "a_b_c_d");
  CHECK(name("3x_") == "_3x_");
  CHECK(name("") == "kernel");
  CHECK(name("__main__") == "__main__");

  // Positions by an axis's name.
  const std::string by_number = text_of("prefetch");
  const std::string by_name =
      replaced(replaced(by_number, "\"grid\": [6]", "\"grid\": [6], \"grid_names\": [\"core\"]"),
               "{\"p\": \"program_id\"", "{\"p\": \"axis_index\"");
  const auto with_axis = [&](const std::string& axis) {
    return replaced(by_name, "\"params\": {\"axis\": 0}", "\"params\": {\"axis_name\": " + axis + "}");
  };
  CHECK(jax::import_kernel(with_axis("\"core\"")).grid[0].name == "core");
  CHECK(replaced(ir::print(jax::import_kernel(with_axis("[\"core\"]"))), "core: ", "") ==
        ir::print(jax::import_kernel(by_number)));
  CHECK(error_of(with_axis("\"x\""))
            .starts_with(
                "kernel: axis_index: the grid has no axis of the name \"x\"\n  at tests/data/make_jax_kernels.py:"));

  const ir::Kernel v = jax::import_kernel(text_of("vmapped"));
  REQUIRE(v.grid.size() == 3);
  CHECK(v.grid[0].vmapped);
  CHECK(v.grid[1].vmapped);
  CHECK_FALSE(v.grid[2].vmapped);
}

TEST_CASE("what is no kernel of JAX is refused in words") {
  const std::string good = text_of("add_blocks");
  CHECK(error_of("") == "jax module: no JSON from byte 1 on");
  CHECK(error_of("{\"tessera\": 1,}") == "jax module: no JSON from byte 15 on");
  CHECK(error_of("[]") == "jax module: is a list but should be an object");
  CHECK(error_of("{}") == "jax module: tessera is missing");
  CHECK(error_of(replaced(good, "\"tessera\": 1", "\"tessera\": 2")) ==
        "jax module: version 2 is not known, this Tessera reads version 1\n  note: use the Python package and the "
        "library of one version");
  CHECK(error_of(replaced(good, "\"grid\": [3]", "\"grid\": 3")) ==
        "jax module: grid is the number 3 but should be a list");
  CHECK(error_of(replaced(good, "\"grid\": [3]", "\"grid\": [3.5]")) ==
        "jax module: grid[0] is a fraction but should be an integer");
  CHECK(error_of(replaced(good, "\"grid\": [3]", "\"grid\": [-1]")) ==
        "jax module: grid[0] is the number -1, which is not between 0 and 2147483647");
  CHECK(error_of(replaced(good, "\"grid\": [3]", "\"grid\": [3, 3]")) ==
        "jax module: parallel has 1 entry but the grid has 2");
  CHECK(error_of(replaced(good, "\"grid\": [3]", "\"grid\": [null]"))
            .starts_with("kernel: the grid leaves 1 size open but 0 are given\n  at tests/data/make_jax_kernels.py:"));
  CHECK(error_of(good, {.grid_sizes = {4}})
            .starts_with("kernel: the grid leaves 0 sizes open but 1 is given\n  at tests/data/make_jax_kernels.py:"));
  CHECK(error_of(replaced(good, "\"body\"", "\"head\"")) == "jax module: body is missing");
  CHECK(error_of(replaced(good, "[\"f32\", [19]]", "[\"complex64\", [19]]")) ==
        "jax module: blocks[0].array[0] is the dtype complex64, which kernels cannot hold");
  CHECK(error_of(replaced(good, "[\"f32\", [19]]", "[\"f32\", [2147483647, 2147483647]]")) ==
        "jax module: blocks[0].array[1] is the shape (2147483647, 2147483647), which has too many elements");
  CHECK(error_of(replaced(good, "\"space\": \"vmem\"", "\"space\": \"semaphore\"")) ==
        "jax module: blocks[0].space is the memory space semaphore, which is not supported yet\n  note: any, vmem and "
        "smem are");
  CHECK(error_of(replaced(good, "\"in\": [0]", "\"in\": [9]")) ==
        "jax module: body.eqns[0].in[0] is the variable 9, but there are 3 so far");
  CHECK(error_of(replaced(good, "\"args\": [[\"i32\", []]]", "\"args\": []")) ==
        "jax module: blocks[0].map takes 0 arguments but is given 1");
  CHECK(error_of(replaced(good, "\"args\": [[\"i32\", []]]", "\"args\": [[\"f32\", []]]")) ==
        "jax module: blocks[0].map.args[0] is f32[] but is given i32[]");
  CHECK(error_of(std::string(600, '[')) == "jax module: nested 600 deep, but 512 levels are the most");
}

TEST_CASE("what cannot be imported is refused with the primitive and the line of Python") {
  const std::string good = text_of("add_blocks");
  const std::string line = std::to_string([&] {
    const ir::Kernel k = jax::import_kernel(good);
    for (const ir::OpId id : k.region(k.body).ops)
      if (k.op(id).code == ir::Opcode::load) return k.op(id).loc.line;
    return uint32_t{0};
  }());
  const std::string at = "\n  at tests/data/make_jax_kernels.py:" + line;
  const auto with = [&](const std::string& from, const std::string& to) { return error_of(replaced(good, from, to)); };
  CHECK(with("{\"p\": \"add\"", "{\"p\": \"all_reduce\"") ==
        "kernel: the primitive all_reduce of JAX cannot be imported" + at +
            "\n  note: write it with other operations, or leave such calls to JAX's interpreter: "
            "tessera.install(fallback=True)");
  CHECK(with("{\"p\": \"add\"", "{\"p\": \"neg\"") == "kernel: neg: has 2 operands but takes 1" + at);
  CHECK(with("{\"p\": \"add\"", "{\"p\": \"eq\"") == "kernel: eq: result 0 is bool[8] but JAX says f32[8]" + at);
  CHECK(with("\"in\": [3, 4]", "\"in\": [3, 0]") == "kernel: add: an operand is a Ref but should be a value" + at);
  CHECK(with("\"in\": [0], \"params\": {\"transforms\": []}",
             "\"in\": [{\"t\": \"f32\", \"v\": 0}], \"params\": {\"transforms\": []}") ==
        "kernel: get: operand 0 is a value but should be a Ref" + at);
  CHECK(with("\"transforms\": []", "\"transforms\": [{\"reshape\": [4, 2]}]") ==
        "kernel: get: result 0 is f32[4, 2] but JAX says f32[8]" + at);
  CHECK(with("\"transforms\": []", "\"transforms\": [{\"tiled\": [4, 2]}]") ==
        "jax module: body.eqns[0].params.transforms[0].transpose is missing");
  const std::string scopes = text_of("scopes");
  const auto said = [&](const std::string& from, const std::string& to) {
    const std::string e = error_of(replaced(scopes, from, to));
    return e.substr(0, e.find('\n'));
  };
  CHECK(said("\"decrement\": true", "\"decrement\": false") == "no error");
  CHECK(said("\"add\": false", "\"add\": true") ==
        "kernel: dma_start: copies that add to their target cannot be imported yet");
  CHECK(said("[[\"i32\", [2], \"dma_semaphore\"]]", "[[\"i32\", [2], \"barrier_semaphore\"]]") ==
        "jax module: scratch[0][2] is the memory space barrier_semaphore, which scratch cannot be in");
  CHECK(said("[[\"i32\", [2], \"dma_semaphore\"]]", "[[\"i32\", [2]]]") == "jax module: scratch[0] is no Ref");
  CHECK(with("{\"p\": \"add\"", "{\"p\": \"pure_callback\"") ==
        "kernel: pure_callback: kernels cannot call Python" + at +
            "\n  note: pl.debug_print prints from inside a kernel; or call Python outside of it");
  const std::string gathers = text_of("gathers");
  const std::string sizes = error_of(replaced(gathers, "\"slice_sizes\": [1, 4]", "\"slice_sizes\": [1, 5]"));
  CHECK(sizes.substr(0, sizes.find('\n')) ==
        "kernel: gather: a window of shape (1, 5) does not fit an operand of shape (6, 4)");
  const std::string map = error_of(replaced(gathers, "\"start_index_map\": [0]", "\"start_index_map\": [0, 1]"));
  CHECK(map.substr(0, map.find('\n')) ==
        "kernel: gather: indices of shape (3, 1) for dims (0, 1) and windows of shape (1, 4) do not fit an operand of "
        "shape (6, 4)");
  const auto index = [&](const std::string& item) {
    return with("\"transforms\": []", "\"transforms\": [{\"index\": [" + item + "], \"array\": []}]");
  };
  CHECK(index("{\"t\": \"i32\", \"v\": 8}") == "kernel: load: dim 0: index 8 is out of range for 8 elements" + at);
  CHECK(index("{\"start\": {\"t\": \"i32\", \"v\": 4}, \"size\": {\"t\": \"i32\", \"v\": 8}, \"stride\": 1}") ==
        "kernel: load: dim 0: ds of 8 elements from 4 is out of range for 8 elements" + at);
  CHECK(index("{\"start\": {\"t\": \"i32\", \"v\": 0}, \"size\": 0, \"stride\": 1}") ==
        "kernel: get: a slice's size is known only when the kernel runs" + at +
            "\n  note: give a static size and a mask");
}

TEST_CASE("engine/jax/primitives.md lists every primitive") {
  std::ifstream in("engine/jax/primitives.md");
  const std::string page((std::istreambuf_iterator<char>(in)), {});
  for (const auto* rows : {&jax::value_rows(), &jax::memory_rows(), &jax::control_rows(), &jax::thread_rows()})
    for (const jax::Row& r : *rows) {
      CHECK_MESSAGE(page.find("`" + std::string(r.name) + "`") != std::string::npos, r.name);
      CHECK(jax::find_row(r.name) == &r);  // no name twice
    }
}

// Modules with random damage: an import ends with a kernel or with an Error, never with a crash or an error of ours.
TEST_CASE("damaged modules are refused or imported") {
  std::mt19937 random(3);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  const bool thorough = std::getenv("TESSERA_TESTS_ALL") != nullptr;
  for (const std::string name : {"add_blocks", "matmul", "prefetch", "slices", "scans", "masked_softmax", "swaps",
                                 "vmapped", "scopes", "arrays", "library_rms_norm", "library_hopper_attention"}) {
    const std::string good = text_of(name);
    std::vector<size_t> numbers;
    for (size_t i = 1; i < good.size(); ++i)
      if (std::isdigit(static_cast<unsigned char>(good[i])) && !std::isdigit(static_cast<unsigned char>(good[i - 1])))
        numbers.push_back(i);
    for (int turn = 0; turn < (thorough ? 2000 : 40); ++turn) {
      std::string text = good;
      for (size_t damage = below(3) + 1; damage-- > 0;) {
        const size_t at = below(text.size());
        switch (below(6)) {
          case 0: text.erase(at, below(20)); break;
          case 1: text[at] = "0123456789[]{}\",:-.etfn"[below(23)]; break;
          case 2: text.insert(at, text.substr(below(text.size()), below(60))); break;
          default: {  // another number: what the JSON's own form does not catch
            const size_t number = numbers[below(numbers.size())];
            if (number >= text.size()) break;
            size_t end = number;
            while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
            static const char* kNumbers[] = {
                "0",  "1", "2", "3", "7", "-1", "null", "255", "2147483647", "2147483648", "18446744073709551615",
                "[]", "{}"};
            text.replace(number, end - number, kNumbers[below(std::size(kNumbers))]);
          }
        }
      }
      INFO(text);
      try {
        ir::verify(jax::import_kernel(text), "the test");
      } catch (const InternalError& e) {
        FAIL_CHECK(e.what());
      } catch (const Error&) {
      }
    }
  }
}

TEST_CASE("what the kernel stores to a prefetch operand is its own") {
  const auto stored = [](const std::string& which) {
    return replaced(text_of("prefetch"), "\"aliases\": []", "\"aliases\": [], \"stored\": " + which);
  };
  CHECK(error_of(stored("[3]")) == "jax module: stored[0] is the number 3, which is not between 0 and 2");
  const ir::Kernel k = jax::import_kernel(stored("[1]"));
  REQUIRE(k.scratch.size() == 1);
  CHECK(k.scratch[0].space == ir::MemorySpace::smem);
  CHECK(k.scratch[0].shape == Shape{2});
  std::vector<Array> inputs;
  for (int i = 0; i < k.num_inputs; ++i)
    inputs.push_back(read_npy(kFolder + "prefetch.in" + std::to_string(i) + ".npy", DType::i32));
  const Array got = interpret(k, inputs).at(0), want = interpret(jax::import_kernel(text_of("prefetch")), inputs).at(0);
  for (int64_t i = 0; i < want.size(); ++i) CHECK(got.at(i) == want.at(i));
}

}  // namespace jax_test
