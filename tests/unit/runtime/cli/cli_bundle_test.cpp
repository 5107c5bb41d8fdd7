// The command tessera bundle: what it writes, and what it says.
#include <filesystem>

#include "codegen/program/bundle.h"
#include "tests/unit/runtime/support.h"

#ifdef TESSERA_CLI

namespace cli_bundle_test {
using namespace tessera;
using namespace tessera::test;

namespace {

std::string add(const std::string& name, const std::string& dtype = "f32") {
  return "tir 1\nkernel @" + name + "\ngrid (cdiv(n, 32))\nin " + dtype + "[n] block (32) map (%0) { yield %0 }\nin " +
         dtype + "[n] block (32) map (%1) { yield %1 }\nout " + dtype +
         "[n] block (32) map (%2) { yield %2 }\nbody (%x, %class: ref<vmem, " + dtype +
         "[32]>, %3) {\n  %6 = load %x[0:32]\n  %7 = load %class[0:32]\n  %8 = add %6, %7\n  store %3[0:32], %8\n}\n";
}

struct Folder : TemporaryFolder {
  Folder() : TemporaryFolder("cli_bundle") {}
  /// Exit code and stderr.
  std::pair<int, std::string> bundle(const std::string& arguments) const {
    const int code = run_program(path, TESSERA_CLI, "bundle " + arguments);
    CHECK(read("out.txt") == "");
    return {code, read("err.txt")};
  }
};
using Outcome = std::pair<int, std::string>;

}  // namespace

TEST_CASE("tessera bundle writes a bundle and its header, the same each time" * without_device) {
  const Folder f;
  f.write("a.tir", add("add"));
  f.write("b.tir", add("add_wide", "i64"));
  CHECK(f.bundle("a.tir b.tir -o k.tsb --header my-kernels.hpp --threads 1") ==
        Outcome(0, "1 of 2: add\n2 of 2: add_wide\n"));
  CHECK(f.bundle("-q a.tir b.tir -o again.tsb --header again.hpp --namespace my_kernels") == Outcome(0, ""));
  const std::string bytes = f.read("k.tsb");
  CHECK(bytes == f.read("again.tsb"));
  const BundleFile b = bundle_from_bytes(bytes, "k.tsb");
  REQUIRE(b.kernels.size() == 2);
  CHECK(b.kernels[1].name == "add_wide");
  CHECK(b.kernels[1].arguments == std::vector<std::string>{"x", "class", "out0"});
  CHECK(b.kernels[1].variants[1].target == "lavapipe");
  const std::string header = f.read("my-kernels.hpp");
  for (const char* line :
       {"namespace my_kernels {", "/// add(f32[n], f32[n]) -> (f32[n]), from a.tir:2; for minimum, lavapipe, gpu.",
        "struct add {", "struct add_wide {", "    tessera::TypedArray<tessera::i64, 1> class_;  ///< i64[n]"})
    CHECK_MESSAGE(header.find(line) != std::string::npos, line);
  CHECK(header.find("kBundle[]") == std::string::npos);
  CHECK(f.bundle("a.tir -o k.tsb --header embedded.hpp --embed --targets minimum,gpu16,gpu64") == Outcome(0, ""));
  CHECK(f.read("embedded.hpp").find("kBundle[] = {\n    0xa41524553534554") != std::string::npos);  // "TESSERA\n"
  CHECK(bundle_from_bytes(f.read("k.tsb"), "k.tsb").kernels[0].variants[2].target == "gpu64");
}

TEST_CASE("tessera bundle: names that the header cannot have as they are" * without_device) {
  const Folder f;
  std::string text = add("linux");
  for (size_t at; (at = text.find("%x")) != std::string::npos;) text.replace(at, 2, "%errno");
  f.write("a.tir", text);
  f.write("b.tir", add("outputs"));
  CHECK(f.bundle("-q a.tir b.tir -o k.tsb --header k.hpp --namespace game::kernels --targets minimum") ==
        Outcome(0, ""));
  const std::string header = f.read("k.hpp");
  for (const char* line :
       {"namespace game::kernels {", "struct linux_ {", "    tessera::TypedArray<tessera::f32, 1> errno_;  ///< f32[n]",
        "bundle.kernel(device, \"linux\")", "struct outputs_ {"})
    CHECK_MESSAGE(header.find(line) != std::string::npos, line);
}

TEST_CASE("tessera bundle: the C header" * without_device) {
  const Folder f;
  f.write("a.tir", add("add"));
  f.write("b.tir",
          "tir 1\nkernel @restrict\ngrid (cdiv(n, 8))\nin f16[] value\nin i4[] value\nin bool[] value\nout f32[n] "
          "block (8) map (%i) { yield %i }\nbody (%by, %x, %inputs, %o) {\n  %a = load %by[]\n  %b = convert %a : "
          "f32[]\n  %c = broadcast %b dims [] : f32[8]\n  store %o[0:8], %c\n}\n");
  CHECK(f.bundle("-q a.tir b.tir -o k.tsb --c-header k.h --namespace game::kernels --targets minimum") ==
        Outcome(0, ""));
  const std::string header = f.read("k.h");
  for (const char* line :
       {"typedef struct game_kernels_add_inputs {\n  tessera_array* x;  ///< f32[n]\n  tessera_array* class_;  ///< "
        "f32[n]\n} game_kernels_add_inputs;",
        "  uint16_t by;  ///< f16[], by value, as its bits\n  int8_t x;  ///< i4[], by value\n  bool inputs;  ///< "
        "bool[], by value\n",
        "} game_kernels_restrict_sizes;", "tessera_kernel_get(bundle, device, \"restrict\", kernel)",
        "tessera_scalar_create(TESSERA_I4, &inputs->x, &in[1])"})
    CHECK_MESSAGE(header.find(line) != std::string::npos, line);
  CHECK(header.find("_bundle_words") == std::string::npos);
  CHECK(f.bundle("-q a.tir -o k.tsb --c-header embedded.h --embed --targets minimum") == Outcome(0, ""));
  CHECK(f.read("embedded.h").find("embedded_bundle_words[] = {\n    0xa41524553534554") != std::string::npos);
  CHECK(f.bundle("a.tir -o k.tsb --c-header ./k.tsb") ==
        Outcome(2, "error: --c-header ./k.tsb: is the bundle's file too\n  note: give the header a name of its own\n"));
  CHECK(f.bundle("a.tir -o k.tsb --header k.h --c-header ./k.h") ==
        Outcome(2, "error: --c-header ./k.h: is the C++ header too\n  note: give the header a name of its own\n"));
  CHECK(f.bundle("a.tir -o k.tsb --c-header a.tir") == Outcome(2,
                                                               "error: a.tir: is to be read and to be written\n  "
                                                               "note: give the bundle and the header names of their "
                                                               "own\n"));
}

TEST_CASE("tessera bundle: lists of kernels" * without_device) {
  const Folder f;
  std::filesystem::create_directory(f.path / "k");
  f.write("k/add.tir", add("add"));
  f.write("k/other.tir", add("other"));
  f.write("plain.tir", add("plain"));
  f.write("k.kernels", "tessera kernels 1\nsource src/k.cpp\nkernel k/add.tir\nkernel k/other.tir\n");
  CHECK(f.bundle("-q k.kernels plain.tir -o k.tsb --header k.hpp --targets minimum") == Outcome(0, ""));
  CHECK(bundle_from_bytes(f.read("k.tsb"), "k.tsb").kernels.size() == 3);
  CHECK(f.read("k.hpp").find("Of:\n//   src/k.cpp\n//   plain.tir\n") != std::string::npos);
  f.write("again.tir", add("other"));
  CHECK(f.bundle("k.kernels again.tir -o k.tsb") ==
        Outcome(1,
                "error: again.tir: the kernel is called other, as is that of src/k.cpp\n  at again.tir:2\n  note: "
                "kernels of a bundle are found by name: give one of them another name\n"));
  const std::string note = "\n  note: tessera_add_kernels writes this file: build the project again\n";
  f.write("bad.kernels", "tir 1\n");
  CHECK(f.bundle("bad.kernels -o k.tsb") ==
        Outcome(1, "error: bad.kernels: line 1: expected \"tessera kernels 1\", not \"tir 1\"" + note));
  f.write("bad.kernels", "tessera kernels 1\nkernel k/add.tir\n");
  CHECK(f.bundle("bad.kernels -o k.tsb") ==
        Outcome(1, "error: bad.kernels: line 2: expected \"source NAME\", not \"kernel k/add.tir\"" + note));
  f.write("bad.kernels", "tessera kernels 1\nsource k.cpp\n");
  CHECK(f.bundle("bad.kernels -o k.tsb") ==
        Outcome(
            1, "error: bad.kernels: line 3: expected \"kernel FILE.tir\" or \"graph FOLDER\", not the end of the file" +
                   note));
  f.write("bad.kernels", "tessera kernels 1\nsource k.cpp\nkernel none.tir\n");
  CHECK(f.bundle("bad.kernels -o k.tsb") == Outcome(1, "error: none.tir: cannot be read\n"));
}

TEST_CASE("tessera bundle: graphs" * without_device) {
  const Folder f;
  const auto graph = [&](const std::string& folder) {
    std::filesystem::create_directories(f.path / folder);
    f.write(folder + "/half.tir",
            "tir 1\nkernel @half\nin f32[64] whole\nout f32[64] whole\nbody (%x, %o) {\n  %a = load %x[0:64]\n  store "
            "%o[0:64], %a\n}\n");
    f.write(folder + "/graph.txt", "tessera graph 1\nin %0 f32[64]\n%1 = call \"half.tir\"(%0) : f32[64]\nout %1\n");
  };
  for (const char* folder : {"class", "a-b", "a_b", "k/class"}) graph(folder);
  CHECK(f.bundle("-q class a-b/ a_b -o k.tsb --header k.hpp --c-header k.h --targets minimum") == Outcome(0, ""));
  const BundleFile file = bundle_from_bytes(f.read("k.tsb"), "k.tsb");
  REQUIRE(file.graphs.size() == 3);
  CHECK(file.kernels.empty());
  CHECK(file.graphs[1].name == "a-b");
  CHECK(file.graphs[1].arguments == std::vector<std::string>{"in0", "out0"});
  for (const char* part : {"struct class_ {", "struct a_b {", "struct a_b_ {", "<tessera/vulkan.hpp>"})
    CHECK_MESSAGE(f.read("k.hpp").find(part) != std::string::npos, part);
  for (const char* part : {"k_class_prepare(", "k_a_b_prepare(", "k_a_b__record(", "<tessera/tessera_vulkan.h>"})
    CHECK_MESSAGE(f.read("k.h").find(part) != std::string::npos, part);
  f.write("k.kernels", "tessera kernels 1\nsource src/k.cpp\ngraph class\nnames x half\n");
  CHECK(f.bundle("k.kernels -q -o k.tsb --targets minimum") == Outcome(0, ""));
  CHECK(bundle_from_bytes(f.read("k.tsb"), "k.tsb").graphs[0].arguments == std::vector<std::string>{"x", "half"});
  f.write("bad.kernels", "tessera kernels 1\nsource src/k.cpp\ngraph class\nnames x y z\n");
  CHECK(f.bundle("bad.kernels -o k.tsb") ==
        Outcome(1,
                "error: src/k.cpp: class has 2 arguments, inputs and outputs, but 3 names are given\n  note: "
                "tessera_add_kernels writes them: build the project again\n"));
  CHECK(f.bundle("class k/class -o k.tsb") ==
        Outcome(1,
                "error: k/class: there is a graph called class already\n  note: graphs of a bundle are called as their "
                "folders: give one of them another name\n"));
  f.write("class.tir", add("class"));
  CHECK(f.bundle("class class.tir -o k.tsb") ==
        Outcome(1,
                "error: class: is the name of a kernel and of a graph\n  at class.tir:2\n  note: give one of them "
                "another name: a graph is called as its folder\n"));
  f.write("record.tir", add("record"));
  CHECK(f.bundle("-q record.tir -o k.tsb --header k.hpp --targets minimum") == Outcome(0, ""));
  CHECK(f.read("k.hpp").find("struct record {") != std::string::npos);
  CHECK(f.read("k.hpp").find("vulkan.hpp") == std::string::npos);
}

TEST_CASE("tessera bundle: mistakes, with file and line" * without_device) {
  const Folder f;
  f.write("a.tir", add("add"));
  f.write("b.tir", add("add"));
  f.write("wide.tir", add("wide", "f64"));
  f.write("bad.tir", "tir 1\nkernel @bad\nbody (%x) {\n  yeeld\n}\n");
  std::filesystem::create_directory(f.path / "graph");
  CHECK(f.bundle("a.tir b.tir -o k.tsb") ==
        Outcome(1,
                "error: b.tir: the kernel is called add, as is that of a.tir\n  at b.tir:2\n  note: kernels of a "
                "bundle are found by name: give one of them another name\n"));
  CHECK(f.bundle("none.tir -o k.tsb") == Outcome(1, "error: none.tir: cannot be read\n"));
  CHECK(
      f.bundle("graph -o k.tsb") ==
      Outcome(1,
              "error: graph: is a folder without a graph.txt\n  note: give its kernels (graph/*.tir), or a folder that "
              "tessera.export() or ts::write_graph() has written\n"));
  CHECK(f.bundle("bad.tir -o k.tsb").second.starts_with("error: bad.tir:3:"));
  CHECK(f.bundle("a.tir -o nowhere/k.tsb") == Outcome(1, "error: nowhere/k.tsb: cannot be written\n"));
  CHECK(f.bundle("a.tir -o k.tsb --embed") == Outcome(2,
                                                      "error: --embed: there is no header to embed the bundle in\n  "
                                                      "note: give --header FILE or --c-header FILE\n"));
  CHECK(f.bundle("a.tir -o k.tsb --targets minimum,tpu") ==
        Outcome(2,
                "error: --targets: there is no target \"tpu\"; the targets are minimum, lavapipe, gpu, gpu16, gpu64, "
                "gpu-matrix, device and nvidia:CHIP as in nvidia:sm_80\n"));
  CHECK(f.bundle("a.tir -o k.tsb --targets nvidia:sm_7")
            .second.starts_with("error: target nvidia:sm_7: no such chip\n  note: the chips are sm_80, "));
  CHECK(f.bundle("a.tir -o k.tsb --targets gpu,gpu") == Outcome(2, "error: --targets: gpu is there twice\n"));
  CHECK(f.bundle("a.tir -o k.tsb --targets ''").second ==
        "error: --targets: there is no target \"\"; the targets are minimum, lavapipe, gpu, gpu16, gpu64, "
        "gpu-matrix, device and nvidia:CHIP as in nvidia:sm_80\n");
  CHECK(f.bundle("a.tir -o k.tsb --header k.hpp --namespace 3x") ==
        Outcome(2, "error: --namespace 3x: is no name in C++\n"));
  CHECK(f.bundle("a.tir -o k.tsb --header k.hpp --namespace game::") ==
        Outcome(2, "error: --namespace game::: is no name in C++\n"));
  CHECK(f.bundle("a.tir -o k.tsb --header k.hpp --namespace tessera::mine") ==
        Outcome(2, "error: --namespace tessera::mine: is taken\n  note: give another name: --namespace NAME\n"));
  CHECK(f.bundle("a.tir -o k.tsb --header std.hpp") ==
        Outcome(2,
                "error: --header std.hpp: the namespace std: is taken\n  note: give another name: --namespace NAME\n"));
  CHECK(f.bundle("a.tir -o graph") == Outcome(1, "error: graph: cannot be written\n"));
#ifndef _WIN32
  CHECK(f.bundle("a.tir -o /dev/full") == Outcome(1, "error: /dev/full: cannot be written\n"));
  CHECK(f.bundle("a.tir -o /dev/null") == Outcome(0, ""));
  CHECK_FALSE(std::filesystem::is_regular_file("/dev/null"));
#endif
  CHECK(f.bundle("a.tir -o ./a.tir") == Outcome(2,
                                                "error: ./a.tir: is to be read and to be written\n  note: give the "
                                                "bundle and the header names of their own\n"));
  CHECK(f.bundle("a.tir -o k.tsb --header a.tir") == Outcome(2,
                                                             "error: a.tir: is to be read and to be written\n  note: "
                                                             "give the bundle and the header names of their own\n"));
  CHECK(f.bundle("a.tir -o k.tsb --header ./k.tsb") ==
        Outcome(2, "error: --header ./k.tsb: is the bundle's file too\n  note: give the header a name of its own\n"));
  CHECK(f.read("a.tir") == add("add"));
  f.write("made.tsb", "TESSERA\n");
  CHECK(f.bundle("made.tsb -o k.tsb") == Outcome(1,
                                                 "error: made.tsb: is a bundle, of kernels that are compiled already\n "
                                                 " note: give the .tir files that it was made of\n"));
  CHECK(f.bundle("a.tir").first == 2);
  const Outcome left_out = f.bundle("wide.tir -o k.tsb --targets minimum,gpu");
  CHECK(left_out.first == 0);
  CHECK(left_out.second.starts_with("note: left out: wide: "));
  CHECK(f.bundle("wide.tir -o k2.tsb --targets minimum").first == 1);
  CHECK(f.read("k2.tsb") == "");
}

}  // namespace cli_bundle_test
#endif  // TESSERA_CLI
