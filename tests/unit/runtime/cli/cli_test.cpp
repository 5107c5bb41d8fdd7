#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/base/npy.h"
#include "runtime/cuda.h"
#include "tessera/version.h"
#include "tests/support/sanitizer.h"
#include "tests/unit/runtime/support.h"

#ifdef TESSERA_CLI

namespace cli_test {
using namespace tessera;
using namespace tessera::test;

namespace {

constexpr const char* kAdd = R"(tir 1
kernel @add
grid (cdiv(n, 32))
in f32[n] block (32) map (%0) {
  yield %0
}
in f32[n] block (32) map (%1) {
  yield %1
}
out f32[n] block (32) map (%2) {
  yield %2
}
body (%3: ref<vmem, f32[32]>, %4: ref<vmem, f32[32]>, %5: ref<vmem, f32[32]>) {
  %6 = load %3[0:32] : f32[32]
  %7 = load %4[0:32] : f32[32]
  %8 = add %6, %7 : f32[32]
  store %5[0:32], %8
}
)";

// A directory of its own per test, gone afterwards.
struct Scratch : TemporaryFolder {
  Scratch() : TemporaryFolder("cli") {
    write("add.tir", kAdd);
    write_npy(at("a.npy"), ramp(50));
    write_npy(at("b.npy"), ramp(50, 0.5f));
  }
};

struct Outcome {
  int code;
  std::string out, err;
};

// Runs in the scratch directory, so that messages hold no absolute paths.
Outcome tessera_cli(const Scratch& s, const std::string& arguments, const std::string& environment = "") {
  const int code = run_program(s.path, TESSERA_CLI, arguments, environment);
  return {code, s.read("out.txt"), s.read("err.txt")};
}

void check_sum(const Array& o) {
  REQUIRE(o.shape() == Shape{50});
  for (int64_t i = 0; i < 50; ++i) CHECK(o.at(i) == 2.0 * static_cast<double>(i) + 0.5);
}

}  // namespace

TEST_CASE("tessera run adds two files, on the device and in the interpreter") {
  const Scratch s;
  for (const char* how : {"", " --codegen general", " --device interpreter"}) {
    CAPTURE(how);
    const Outcome o = tessera_cli(s, std::string("run add.tir --in a.npy b.npy --out o.npy") + how, kValidate);
    CHECK(o.err == "");
    CHECK(o.out == "");
    REQUIRE(o.code == 0);
    check_sum(read_npy(s.at("o.npy")));
    std::filesystem::remove(s.at("o.npy"));
  }
  const std::string name = device().info().name.substr(0, 4);
  CHECK(tessera_cli(s, "run add.tir --in a.npy --in b.npy --out o.npy --device " + name).code == 0);
  check_sum(read_npy(s.at("o.npy")));
}

TEST_CASE("tessera run: numbers by value" * without_device) {
  const Scratch s;
  s.write("put.tir",
          "tir 1\nkernel @put\nin i8[] value\nout i8[] whole\nbody (%v, %o) {\n  %a = load %v[]\n  store %o[], "
          "%a\n}\n");
  const auto with = [&](const std::string& number) {
    return tessera_cli(s, "run put.tir --device interpreter --in " + number);
  };
  CHECK(with("12").out == "out_specs[0] = i8[] 12\n");
  for (const char* bad : {"300", "1.5", "twelve"}) {
    CHECK(with(bad).code == 2);
    CHECK(with(bad).err == "error: put: in_specs[0] is a number by value, but --in names " + std::string(bad) +
                               ", which is neither one of i8 nor a file\n");
  }
}

TEST_CASE("tessera run: the interpreter judges" * without_device) {
  const Scratch s;
  s.write("sum.tir",
          "tir 1\nkernel @sum\ngrid (i: 3 parallel)\nin f32[12] block (4) map (%0) { yield %0 }\nout f32[4] block (4) "
          "map (%1) {\n  %2 = constant 0 : i32[]\n"
          "  yield %2 }\nbody (%3: ref<vmem, f32[4]>, %4: ref<vmem, f32[4]>) {\n  %5 = load %3[0:4] : f32[4]\n  %6 = "
          "load %4[0:4] : f32[4]\n  %7 = add %5, %6 : f32[4]\n"
          "  store %4[0:4], %7\n}\n");
  write_npy(s.at("x.npy"), ramp(12));
  const std::string run = "run sum.tir --in x.npy --device interpreter";
  const Outcome race = tessera_cli(s, run + " --races");
  CHECK(race.code == 1);
  CHECK(race.err ==
        "error: sum: race on out_specs[0], element (0,): program (i = 1) loads what program (i = 0) stored\n  at "
        "sum.tir:10\n"
        "  note: that was at sum.tir:12; nothing orders programs that differ in axis i\n");
  const Outcome seeded = tessera_cli(s, run + " --seed 5 --uninitialised zero --out-of-bounds raise");
  CHECK(seeded.code == 0);
  CHECK(seeded.err == "seed: 5\n");
  CHECK(seeded.out == "out_specs[0] = f32[4] [12 15 18 21]\n");
  const Outcome wrong = tessera_cli(s, run + " --seed x");
  CHECK(wrong.code == 2);
  CHECK(wrong.err == "error: --seed x: expected a number or random\n");
  const Outcome device = tessera_cli(s, "run sum.tir --in x.npy --races", "TESSERA_DEVICE=0");
  CHECK(device.code == 2);
  CHECK(device.err ==
        "error: --races, --seed, --uninitialised and --out-of-bounds are the interpreter's\n  note: add --device "
        "interpreter\n");
}

#ifndef _WIN32
// Not under the address sanitizer: its shadow memory alone takes more address space than the limit here.
TEST_CASE("tessera run: a value too large for this machine" * without_device * doctest::skip(kSanitized)) {
  const Scratch s;
  s.write("big.tir", R"(tir 1
kernel @big
grid (1)
in f32[n] block (50) map (%0) { yield %0 }
out f32[n] block (50) map (%1) { yield %1 }
body (%2: ref<vmem, f32[50]>, %3: ref<vmem, f32[50]>) {
  %4 = load %2[0:50] : f32[50]
  %5 = broadcast %4 dims [2] : f32[32768, 1024, 50]
  %6 = reduce_max %5 axes [0, 1] : f32[50]
  store %3[0:50], %6
}
)");
  const int code = run_program(s.path, "sh",
                               "-c 'ulimit -v 3000000; exec " + std::string(TESSERA_CLI) +
                                   " run big.tir --in a.npy --out o.npy --device interpreter'");
  CHECK(
      s.read("err.txt") ==
      "error: big: this machine has no memory for the interpreter's values: broadcast gives f32[32768, 1024, 50], of "
      "6710886400 bytes\n  at big.tir:8\n  note: compute with smaller blocks, or in a loop over parts of the value\n");
  CHECK(code == 1);
}
#endif

TEST_CASE("tessera run without --out prints the outputs") {
  const Scratch s;
  write_npy(s.at("a.npy"), ramp(3));
  const Outcome o = tessera_cli(s, "run add.tir --in a.npy a.npy");
  CHECK(o.out == "out_specs[0] = f32[3] [0 2 4]\n");
  CHECK(o.code == 0);
}

TEST_CASE("tessera compile and run: --debug-info") {
  const Scratch s;
  const Outcome plain = tessera_cli(s, "compile add.tir --emit=spirv-bin -o plain.spv"),
                with = tessera_cli(s, "compile add.tir --emit=spirv-bin --debug-info -o with.spv");
  CHECK(with.err == "");
  CHECK(plain.code + with.code == 0);
  CHECK(s.read("plain.spv").find("NonSemantic.Shader.DebugInfo.100") == std::string::npos);
  CHECK(s.read("with.spv").find("NonSemantic.Shader.DebugInfo.100") != std::string::npos);
  CHECK(s.read("with.spv").find(kAdd) != std::string::npos);  // the whole text of the user's file
  const Outcome ran = tessera_cli(s, "run add.tir --in a.npy b.npy --out o.npy --debug-info", kValidate);
  CHECK(ran.err == "");
  CHECK(ran.code == 0);
  check_sum(read_npy(s.at("o.npy")));
}

TEST_CASE("tessera compile emits every stage") {
  const Scratch s;
  const Outcome ir = tessera_cli(s, "compile add.tir --emit=ir");
  CHECK(ir.code == 0);
  CHECK(ir.out.find("kernel @add\n") != std::string::npos);
  CHECK(ir.out.find("grid (cdiv(n, 32))") != std::string::npos);
  for (const char* target : {"minimum", "lavapipe", "device"}) {
    CAPTURE(target);
    const std::string base = std::string("compile add.tir --target ") + target;
    const Outcome lane = tessera_cli(s, base + " --emit=lane");
    CHECK(lane.err == "");
    CHECK(lane.out.find("kernel @add") != std::string::npos);
    CHECK(lane.out.find("workgroup") != std::string::npos);
    const Outcome text = tessera_cli(s, base);
    CHECK(text.err == "");
#ifdef TESSERA_SPIRV_TOOLS
    CHECK(text.out.find("OpEntryPoint GLCompute") != std::string::npos);
#endif
    CHECK(tessera_cli(s, base + " --emit=spirv-bin -o add.spv").code == 0);
    const std::string words = s.read("add.spv");
    REQUIRE(words.size() > 20);
    CHECK(words.substr(0, 4) == "\x03\x02\x23\x07");
    CHECK(tessera_cli(s, base + " --emit=spirv-bin").out == words);
    CHECK(tessera_cli(s, base + " --codegen=general --emit=spirv-bin").code == 0);
  }
}

TEST_CASE("tessera compile --dump-ir shows every step, or one" * without_device) {
  const Scratch s;
  const Outcome every = tessera_cli(s, "compile add.tir --target minimum --emit=spirv-bin -o add.spv --dump-ir");
  CHECK(every.code == 0);
  CHECK(every.out == "");
  for (const char* step : {"// after tile/cse", "// after lower\n", "// after lane/dce"})
    CHECK(every.err.find(step) != std::string::npos);
  const Outcome one = tessera_cli(s, "compile --dump-ir=lower add.tir --target minimum -o add.txt");
  CHECK(one.code == 0);
  CHECK(one.err.find("// after lower\n") == 0);
  CHECK(one.err.find("// after", 1) == std::string::npos);
  const Outcome none = tessera_cli(s, "compile add.tir --target minimum --dump-ir=fuse");
  CHECK(none.code == 2);
  CHECK(none.err.find("error: --dump-ir=fuse: there is no such step; the steps are lane/bounds, lane/carry_stored, ") ==
        0);
}

TEST_CASE("tessera explain and devices") {
  const Scratch s;
  const Outcome e = tessera_cli(s, "explain add.tir --target lavapipe");
  CHECK(e.code == 0);
  CHECK(e.err == "");
  for (const char* word : {"add", "grid axis 0: parallel", "workgroup", "shared", "registers"}) {
    CAPTURE(word);
    CHECK(e.out.find(word) != std::string::npos);
  }
  const Outcome gpu = tessera_cli(s, "explain add.tir --target gpu");
  CHECK(gpu.code == 0);
  CHECK(gpu.out.find("schedule for gpu: ") != std::string::npos);
  const Outcome d = tessera_cli(s, "devices");
  CHECK(d.code == 0);
  CHECK(d.out.find(std::to_string(device().info().index) + ": " + device().info().name + "\n") != std::string::npos);
  CHECK(d.out.find("* ") != std::string::npos);
  const Outcome host = tessera_cli(s, "devices", "TESSERA_DEVICE=interpreter");
  CHECK(host.code == 0);
  CHECK(host.err == "");
  CHECK(host.out.find("* interpreter: calls run on the host, as TESSERA_DEVICE says\n  0: ") == 0);
  const Outcome other = tessera_cli(s, "devices", "TESSERA_DEVICE=abacus");
  CHECK(other.code == 1);
  CHECK(other.err.find("error: TESSERA_DEVICE=\"abacus\" is none of the Vulkan devices:\n  0: ") == 0);
}

TEST_CASE("tessera run and explain of a graph of every size") {
  const Scratch s;
  s.write("graph.txt",
          "tessera graph 1\nin %0 f32[n]\nin %1 f32[n]\n%2 = call \"add.tir\"(%0, %1) : f32[n]\n%3 = "
          "call \"add.tir\"(%2, %1) : f32[n]\nout %3\n");
  s.write("add.tir",
          "tir 1\nkernel @add\ngrid (cdiv(k, 8))\nin f32[k] block (8) map (%i) { yield %i }\nin f32[k] block (8) map "
          "(%i) { yield %i }\nout f32[k] block (8) map (%i) { yield %i }\nbody (%x, %y, %o) {\n  %a = load %x[0:8]\n  "
          "%b = load %y[0:8]\n  %c = add %a, %b\n  store %o[0:8], %c\n}\n");
  for (const std::string how : {"", " --device interpreter"}) {
    CAPTURE(how);
    const Outcome o = tessera_cli(s, "run . --in a.npy b.npy --out o.npy" + how, kValidate);
    CHECK(o.code == 0);
    CHECK(o.err == "");
    const Array out = read_npy(s.at("o.npy"), DType::f32);
    for (int i = 0; i < 50; ++i) CHECK(out.at(i) == i + 2 * (i + 0.5));
  }
  CHECK(tessera_cli(s, "explain . --target lavapipe").err ==
        "error: the graph has the run-time size n: --dim n=100 explains it for one\n");
  CHECK(tessera_cli(s, "explain . --target lavapipe --dim n=50").out.find("  arguments: 400 bytes\n") !=
        std::string::npos);
  s.write("graph.txt", "tessera graph 1\nin %0 f32[n]\nin %1 f32[m]\n%2 = call \"add.tir\"(%0, %1) : f32[n]\nout %2\n");
  CHECK(
      tessera_cli(s, "run . --in a.npy b.npy").err ==
      "error: ./graph.txt:4: add: argument 1 is f32[m] but the kernel takes f32[k]: k is m and n\n  at ./add.tir:5\n  "
      "note: it has to fit for every value of the graph's sizes\n");
  s.write("graph.txt", "tessera graph 1\nin %0 f32[n * 2]\nout %0\n");
  CHECK(
      tessera_cli(s, "run . --in a.npy").err ==
      "error: ./graph.txt:3: the graph: the size n stands alone as no dim of an input\n  note: a size is taken from an "
      "input whose shape names it alone\n");
}

TEST_CASE("tessera run and explain of a graph") {
  const Scratch s;
  s.write("graph.txt",
          "tessera graph 1\nin %0 f32[50]\nin %1 f32[50]\n%2 = repeat 3 : f32[50] {\n  carry %3 f32[50] = %0\n  %4 = "
          "call \"add.tir\"(%3, %1) : f32[50]\n  out %4\n}\nout %2\n");
  for (const std::string how : {"", " --device interpreter"}) {
    CAPTURE(how);
    const Outcome o = tessera_cli(s, "run . --in a.npy b.npy --out o.npy" + how, kValidate);
    CHECK(o.code == 0);
    CHECK(o.err == "");
    const Array out = read_npy(s.at("o.npy"), DType::f32);
    for (int i = 0; i < 50; ++i) CHECK(out.at(i) == i + 3 * (i + 0.5));
  }
  const Outcome e = tessera_cli(s, "explain . --target lavapipe");
  CHECK(e.code == 0);
  CHECK(e.out ==
        "graph: 3 calls of 1 kernel, 0 copies; 0 dropped, since their results are unused\n"
        "waits for the device: none\n"
        "barriers: 2\n"
        "peak memory: 1208 bytes\n"
        "  arguments: 400 bytes\n"
        "  constants: 0 bytes\n"
        "  results: 200 bytes\n"
        "  intermediate values and scratch: 512 bytes (512 without sharing)\n"
        "  where the calls' arguments are: 96 bytes\n");
  CHECK(tessera_cli(s, "explain . --target lavapipe --dot g.dot --svg g.svg").code == 0);
  std::ifstream dot(s.at("g.dot")), svg(s.at("g.svg"));
  const std::string dot_text{std::istreambuf_iterator<char>(dot), {}},
      svg_text{std::istreambuf_iterator<char>(svg), {}};
  CHECK(dot_text.find("label=\"add\\nf32[50], 200 bytes\\nresult 0\"") != std::string::npos);
  CHECK(svg_text.find(">arena 0 to 200, commands 0 to 1</text>") != std::string::npos);
  CHECK(tessera_cli(s, "run . --in a.npy b.npy --out o.npy --trace t.json").code == 0);
  std::ifstream trace(s.at("t.json"));
  const std::string trace_text{std::istreambuf_iterator<char>(trace), {}};
  CHECK(trace_text.find("\"name\": \"add\"") != std::string::npos);
  CHECK(tessera_cli(s, "run . --in a.npy b.npy --device interpreter --trace t.json").err ==
        "error: --trace says when a device ran what, and the interpreter runs here\n");
  CHECK(tessera_cli(s, "run . --in a.npy b.npy --device interpreter --repeat 3").err ==
        "error: --repeat says when a device ran what, and the interpreter runs here\n");
  CHECK(tessera_cli(s, "explain add.tir --svg g.svg").err ==
        "error: --dot and --svg are of graphs, and add.tir is a kernel\n");
  CHECK(tessera_cli(s, "run . --in a.npy").err == "error: the graph takes 2 inputs but --in names 1\n");
  CHECK(tessera_cli(s, "run . --in a.npy b.npy --races").err ==
        "error: --races, --seed, --uninitialised, --out-of-bounds, --codegen and --dim are of kernels, and . is a "
        "graph\n");
}

// The n-th of the lines of `text` that begin with `name`, with '#' for each number.
static std::string times_of(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  std::string line, out;
  while (std::getline(lines, line)) {
    if (!line.starts_with(name)) continue;
    for (const char c : line)
      if (!std::isdigit(static_cast<unsigned char>(c)) && c != '.') out += c;
      else if (!out.ends_with('#')) out += '#';
    out += '\n';
  }
  for (const char* unit : {"us", "ms"})
    for (size_t at; (at = out.find(std::string("# ") + unit)) != std::string::npos;) out.replace(at + 2, 2, "s");
  return out;
}

TEST_CASE("tessera run times kernels and graphs by the device's clock") {
  const Scratch s;
  const Outcome one = tessera_cli(s, "run add.tir --in a.npy b.npy --out o.npy --trace t.json --repeat 5", kValidate);
  CHECK(one.err == "");
  CHECK(one.code == 0);
  CHECK(times_of(one.out, "add") == "add: median # s of # calls, # s to # s\n");
  const Array out = read_npy(s.at("o.npy"), DType::f32);
  for (int i = 0; i < 50; ++i) CHECK(out.at(i) == 2 * i + 0.5);
  std::ifstream trace(s.at("t.json"));
  const std::string text{std::istreambuf_iterator<char>(trace), {}};
  CHECK(text.find("\"name\": \"add\"") != std::string::npos);
  CHECK(tessera_cli(s, "run add.tir --in a.npy b.npy --repeat 0").err.find("--repeat: Value 0 not in range") !=
        std::string::npos);
  CHECK(tessera_cli(s, "run add.tir --in a.npy b.npy --device interpreter --trace t.json").err ==
        "error: --trace says when a device ran what, and the interpreter runs here\n");
  CHECK(tessera_cli(s, "run add.tir --in a.npy b.npy --codegen general --repeat 2").err ==
        "error: --trace and --repeat time what a graph would run, and --codegen general is of kernels alone\n");
}

TEST_CASE("tessera --version and --help" * without_device) {
  const Scratch s;
  const Outcome version = tessera_cli(s, "--version");
  CHECK(version.out == "tessera " TESSERA_VERSION "\n");
  CHECK(version.code == 0);
  for (const char* command : {"", "devices", "run", "compile", "explain"}) {
    const Outcome help = tessera_cli(s, std::string(command) + " --help");
    CHECK(help.code == 0);
    CHECK(help.err == "");
    CHECK(help.out.find("Usage: tessera") != std::string::npos);
  }
}

TEST_CASE("what the command line refuses") {
  const Scratch s;
  auto fails = [&](const std::string& arguments, int code, const std::string& err,
                   const std::string& environment = "") {
    CAPTURE(arguments);
    const Outcome o = tessera_cli(s, arguments, environment);
    CHECK(o.code == code);
    CHECK(o.err == "error: " + err + "\n");
    CHECK(o.out == "");
  };
  const std::string note = "\n  note: tessera --help lists the commands, tessera COMMAND --help their options";
  fails("", 2, "no command is given; the commands are devices, ops, run, compile, explain, bundle, tune" + note);
  fails(
      "frobnicate add.tir", 2,
      "there is no command \"frobnicate\"; the commands are devices, ops, run, compile, explain, bundle, tune" + note);
  fails("--frobnicate", 2,
        "no command is given; the commands are devices, ops, run, compile, explain, bundle, tune" + note);
  fails("devices add.tir", 2, "The following argument was not expected: add.tir" + note);
  fails("run", 2, "FILE is required" + note);
  fails("compile add.tir --target=foo", 2,
        "--target: foo not in {device,gpu,gpu-matrix,minimum,lavapipe,nvidia:CHIP,tpu:CHIP}" + note);
  fails("compile add.tir --target=gpu --emit=ptx", 2, "--emit=ptx: is of targets like nvidia:sm_90a, and gpu is none");
  fails("compile add.tir --target=nvidia:sm_90a --emit=spirv", 2,
        "--emit=spirv: the code for nvidia:sm_90a is PTX: --emit=ptx");
  fails("compile add.tir --emit=asm", 2, "--emit: asm not in {ir,lane,spirv,spirv-bin,ptx,mosaic,stablehlo}" + note);
  fails("run add.tir --in a.npy", 2, "add takes 2 inputs but --in names 1");
  fails("run add.tir --in a.npy b.npy --out o.npy p.npy", 2, "add has 1 output but --out names 2");
  fails("run add.tir --in a.npy b.npy --dim n", 2, "--dim n: expected NAME=SIZE, as in --dim n=5");
  fails("run add.tir --in a.npy b.npy --dim n=5x", 2, "--dim n=5x: expected NAME=SIZE, as in --dim n=5");
  fails("run add.tir --in a.npy b.npy --dim n=5 --dim n=5", 2, "--dim n=5: the size is given twice");
  fails("run missing.tir", 1, "missing.tir: cannot be read");
  fails("compile . --emit=ir", 1, ".: cannot be read");
  fails("compile add.tir --target minimum -o missing/add.spv", 1, "missing/add.spv: cannot be written");

  write_npy(s.at("i.npy"), Array({50}, i32));
  const Outcome dtype = tessera_cli(s, "run add.tir --in a.npy i.npy");
  CHECK(dtype.code == 1);
  CHECK(dtype.err.find("i32") != std::string::npos);

  s.write("short.npy", s.read("a.npy").substr(0, 150));
  CHECK(tessera_cli(s, "run add.tir --in a.npy short.npy").code == 1);
  CHECK(tessera_cli(s, "run add.tir --in a.npy short.npy").err.find("error: short.npy: ") == 0);

  std::string broken = kAdd;
  broken.replace(broken.find("add %6"), 3, "bad");
  s.write("broken.tir", broken);
  fails("compile broken.tir", 1, "broken.tir:16:8: there is no op 'bad'\n    %8 = bad %6, %7 : f32[32]\n         ^");

  std::string wrong = kAdd;
  wrong.replace(wrong.find("yield %0"), 8, "yield %0, %0");
  wrong.replace(wrong.find("map (%2)"), 8, "map ()");
  wrong.replace(wrong.find("yield %2"), 8, "yield");
  s.write("wrong.tir", wrong);
  for (const char* command : {"compile wrong.tir", "explain wrong.tir", "run wrong.tir --in a.npy b.npy"})
    fails(command, 1,
          "add: 3 problems\n  in_specs[0]: index map: yields 2 indices but the block has 1 dim\n    at wrong.tir:5:3\n "
          "     yield %0, %0"
          "\n  out_specs[0]: index map: takes 0 program ids but the grid has 1 axis\n    at wrong.tir:10:1\n      out "
          "f32[n] block (32) map () {"
          "\n  out_specs[0]: index map: yields 0 indices but the block has 1 dim\n    at wrong.tir:11:3\n      yield");
  s.write("lane.tir", "tir 1\nlane kernel @k\nbody () {}\n");
  fails("compile lane.tir", 1,
        "lane.tir: is a lane-level kernel, which is what compilation makes\n  note: give the tile-level kernel");
  s.write("shapes.tir",
          "tir 1\nkernel @k\nin f32[8] whole\nout i32[8] whole\nbody (%x, %o) {\n  %v = load %x[0:8]\n  store %o[0:8], "
          "%v\n}\n");
  fails("explain shapes.tir", 1,
        "shapes.tir:7:3: store: the value must be i32[8] but is f32[8]\n    store %o[0:8], %v\n    ^");

  const std::string no_driver = "VK_DRIVER_FILES=/nonexistent VK_ICD_FILENAMES=/nonexistent";
  const std::string sentence =
      "there is no Vulkan driver on this machine: install the one for its GPU, or Mesa's for the CPU (Debian and "
      "Ubuntu: "
      "apt-get install mesa-vulkan-drivers), or set TESSERA_DEVICE=interpreter to run kernels on the host";
  if (list_cuda_devices().empty()) fails("devices", 1, sentence, no_driver);  // else it lists those
  fails("run add.tir --in a.npy b.npy", 1, sentence, no_driver);
  fails("explain add.tir", 1, sentence + "\n  note: --target minimum or --target lavapipe compile without a device",
        no_driver);
  for (const char* how : {" --device interpreter", ""}) {
    const Outcome interpreted = tessera_cli(s, std::string("run add.tir --in a.npy b.npy --out o.npy") + how,
                                            no_driver + (*how ? "" : " TESSERA_DEVICE=interpreter"));
    CHECK(interpreted.err == "");
    CHECK(interpreted.code == 0);
    check_sum(read_npy(s.at("o.npy")));
    std::filesystem::remove(s.at("o.npy"));
  }
}

}  // namespace cli_test
#endif
