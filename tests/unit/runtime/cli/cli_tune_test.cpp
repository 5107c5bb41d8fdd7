// The command tessera tune, and tessera bundle --tuning.
#include <sstream>

#include "codegen/program/bundle.h"
#include "engine/ir/text.h"
#include "runtime/call/tuning.h"
#include "tests/unit/runtime/support.h"

#ifdef TESSERA_CLI

namespace cli_tune_test {
using namespace tessera;
using namespace tessera::test;

namespace {
std::string twice(const std::string& name, const std::string& n, const std::string& dtype = "f32") {
  return "tir 1\nkernel @" + name + "\nin " + dtype + "[" + n + "] whole\nout " + dtype + "[" + n +
         "] whole\nbody (%x, %o) {\n  %a = load %x[0:" + n + "]\n  %b = add %a, %a\n  store %o[0:" + n + "], %b\n}\n";
}

struct Folder : TemporaryFolder {
  Folder() : TemporaryFolder("cli_tune") {}
  int code = 0;
  std::string out, err;
  void tessera(const std::string& arguments, const std::string& environment = "") {
    code = run_program(path, TESSERA_CLI, arguments, environment);
    out = read("out.txt"), err = read("err.txt");
  }
};
}  // namespace

TEST_CASE("tessera tune measures kernels and writes a file, which keeps what it has of others") {
  Folder f;
  f.write("a.tir", twice("first", "100000"));
  std::filesystem::create_directory(f.path / "more");
  f.write("more/b.tir", twice("second", "70000", "i8"));
  f.tessera("tune a.tir more --seconds 0.05");
  CHECK(f.code == 0);
  CHECK(f.err == "");
  std::istringstream lines(f.out);
  std::string line;
  for (const char* begin : {"[1/2] first: ", "[2/2] second: ", "tessera.tuning: "}) {
    REQUIRE(std::getline(lines, line));
    CAPTURE(line);
    CHECK(line.starts_with(begin));
    CHECK((line.find(" schedules") != std::string::npos ||
           line.find("TESSERA_TUNING=tessera.tuning") != std::string::npos));
  }
  const Tuning once = read_tuning(f.at("tessera.tuning"));
  CHECK(once.devices.size() == 1);
  CHECK(once.of(find_device()));

  // Of another device: it stays, and so does another kernel of this one.
  Tuning more = once;
  DeviceInfo other;
  other.name = "A GPU", other.driver = "its driver";
  more.at(other)["0"] = {"k", {.work = 1}, 2, 1};
  more.at(find_device())["1"] = {"other", {.work = 1}, 2, 1};
  write_tuning(f.at("tessera.tuning"), more);
  f.tessera("tune a.tir --seconds 0.05");
  CHECK(f.code == 0);
  const Tuning again = read_tuning(f.at("tessera.tuning"));
  CHECK(again.devices.size() == 2);
  CHECK(again.of(find_device())->count("1") == 1);
}

TEST_CASE("tessera tune: what it refuses") {
  Folder f;
  f.write("a.tir", twice("first", "100"));
  f.write("n.tir",
          "tir 1\nkernel @sized\ngrid (cdiv(n, 8))\nin f32[n] block (8) map (%i) { yield %i }\nout f32[n] block "
          "(8) map (%i) { yield %i }\nbody (%x, %o) {\n  %a = load %x[0:8]\n  store %o[0:8], %a\n}\n");
  const auto fails = [&](const std::string& arguments, int code, const std::string& err,
                         const std::string& environment = "") {
    CAPTURE(arguments);
    f.tessera(arguments, environment);
    CHECK(f.code == code);
    CHECK(f.err == "error: " + err + "\n");
  };
  fails("tune a.tir --device interpreter", 2, "tessera tune times Vulkan's devices, and interpreter is none");
  fails("tune a.tir", 2, "tessera tune times Vulkan's devices, and cuda:0 is none", "TESSERA_DEVICE=cuda:0");
  fails("tune a.tir n.tir --in x.npy", 2, "--in gives the inputs of one kernel, but there are 2");
  fails("tune a.tir --in x.npy y.npy", 2, "first takes 1 input but --in names 2");
  std::filesystem::create_directory(f.path / "empty");
  std::filesystem::create_directory(f.path / "more");
  fails("tune empty", 2, "empty: the folder has no .tir files");
  f.write("notes.txt", "do not lose me\n");
  fails("tune a.tir -o notes.txt", 2,
        "notes.txt: is no tuning file: its first line is not \"tessera tuning 1\"\n  note: it is not overwritten: name "
        "another file with -o");
  CHECK(f.read("notes.txt") == "do not lose me\n");
  f.tessera("tune n.tir --seconds 0.01");
  CHECK(f.code == 1);
  CHECK(f.err.find("n") != std::string::npos);
  f.write("more/1.tir", twice("first", "100"));
  f.write("more/2.tir", "kernel");
  fails("tune more --seconds 0.01", 1,
        "more/2.tir:1:1: expected 'tir 1' on the first line but found 'kernel'\n  kernel\n  ^");
  CHECK(f.out == "");  // nothing was measured
  f.tessera("tune n.tir --dim n=1000 --seconds 0.01");
  CHECK(f.code == 0);
  // One of another build begins anew.
  f.write("old.tuning", "tessera tuning 1\nbuild\tanother\nend\t0\n");
  f.tessera("tune a.tir --seconds 0.01 -o old.tuning");
  CHECK(f.code == 0);
  CHECK(f.err == "note: old.tuning: is damaged, or was changed after it was written; it is written anew\n");
}

TEST_CASE("tessera bundle --tuning: the target device gets what was measured") {
  Folder f;
  f.write("a.tir", twice("first", "65536"));
  f.tessera("bundle -q a.tir -o k.tsb --tuning t.tuning");
  CHECK(f.code == 2);
  CHECK(f.err ==
        "error: --tuning t.tuning: tunes the target device, which is not among minimum,lavapipe,gpu\n  note: add it: "
        "--targets minimum,lavapipe,gpu,device\n");
  f.tessera("bundle -q a.tir -o k.tsb --targets minimum,device --tuning t.tuning");
  CHECK(f.code == 0);
  CHECK(f.err == "note: --tuning: left out: t.tuning: no such file\n");
  const std::string untuned = f.read("k.tsb");
  Tuning t;
  write_tuning(f.at("t.tuning"), t);
  f.tessera("bundle -q a.tir -o k.tsb --targets minimum,device --tuning t.tuning");
  const DeviceInfo device = find_device();
  CHECK(f.err ==
        "note: --tuning t.tuning: has nothing for " + device.name + " with the driver " + device.driver + "\n");
  CHECK(f.read("k.tsb") == untuned);
  t.at(device)[tuning_digest(ir::parse(f.read("a.tir"), "a.tir"))] = {"first", {.work = -1}, 2, 1};
  write_tuning(f.at("t.tuning"), t);
  f.tessera("bundle -q a.tir -o k.tsb --targets minimum,device --tuning t.tuning");
  CHECK(f.err == "");
  CHECK(f.read("k.tsb") != untuned);
}

}  // namespace cli_tune_test

#endif
