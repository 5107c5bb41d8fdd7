#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "tests/unit/runtime/support.h"

namespace dump_test {
using namespace tessera;

namespace {

const char* kText = R"(tir 1
kernel @"twice, shifted"
grid ()
in f32[5] whole
out f32[5] whole
body (%0: ref<any, f32[5]>, %1: ref<any, f32[5]>) {
  %2 = load %0[0:5] : f32[5]
  %3 = add %2, %2 : f32[5]
  store %1[0:5], %3
}
)";

struct Environment {
  explicit Environment(const std::string& folder) { test::set_environment("TESSERA_DUMP", folder.c_str()); }
  ~Environment() { test::set_environment("TESSERA_DUMP", nullptr); }
};

}  // namespace

TEST_CASE("TESSERA_DUMP receives every kernel that is compiled, once") {
  const std::filesystem::path folder = test::temporary_path("dump");
  std::filesystem::create_directory(folder);
  const std::filesystem::path file = folder / "twice__shifted.tir";
  const ir::Kernel kernel = ir::parse(kText);
  Device own;
  {
    const Environment set(folder.string());
    load(own, kernel);
    CHECK(ir::print(ir::parse(test::contents(file))) == ir::print(kernel));
    std::filesystem::remove(file);
    load(own, kernel);  // kept in memory: nothing is compiled
    CHECK_FALSE(std::filesystem::exists(file));
  }
  load(Device(), kernel);  // unset: nothing is written
  CHECK_FALSE(std::filesystem::exists(file));
  std::filesystem::remove_all(folder);
}

TEST_CASE("TESSERA_DUMP names a folder that is not there") {
  const Environment set("no such folder");
  const ir::Kernel kernel = ir::parse(kText, "k.tir");
  CHECK(test::error_of<SpecError>([&] { load(Device(), kernel); }) ==
        "twice, shifted: TESSERA_DUMP: cannot write no such folder/twice__shifted.tir\n  at k.tir:2");
}

TEST_CASE("debug prints what is compiled, once") {
  ir::Kernel kernel = ir::parse(kText, "shifted.tir");
  kernel.call.debug = true;
  const Device own;
  load(own, ir::parse(kText, "shifted.tir"));  // without debug: another entry of the cache
  std::ostringstream text;
  std::streambuf* old = std::cout.rdbuf(text.rdbuf());
  load(own, kernel);
  load(own, kernel);
  std::cout.rdbuf(old);
  const std::string printed = text.str(), name = "twice, shifted for kernel function kernel at shifted.tir:2";
  CAPTURE(printed);
  const size_t lanes = printed.find("The lane-level kernel for pallas_call " + name + " on " + own.target().name +
                                    ":\ntir 1\nlane kernel @\"twice, shifted\"\n");
  const size_t spirv = printed.find("The SPIR-V for pallas_call " + name + ":\n");
  CHECK(lanes == 0);
  REQUIRE(spirv != std::string::npos);
  CHECK(printed.find("The SPIR-V", spirv + 1) == std::string::npos);
  CHECK(printed.size() > spirv + 200);
}

}  // namespace dump_test
