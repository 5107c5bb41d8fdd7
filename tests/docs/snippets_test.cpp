// samples/pallas.md: every C++ block runs, on the interpreter and on a device, and gives what its Python neighbour
// gives under JAX. Without a Python that has JAX (TESSERA_PYTHON names one; else python3) that last part is skipped,
// and says so.
#include "tests/docs/snippets.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "engine/base/npy.h"
#include "runtime/device.h"
#include "tests/support/device.h"
#include "tests/support/process.h"

namespace snippets_test {
using namespace tessera;

namespace {
struct Environment {
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* was = std::getenv(name)) was_ = was, set_ = true;
    test::set_environment(name, value);
  }
  ~Environment() { test::set_environment(name_, set_ ? was_.c_str() : nullptr); }
  const char* name_;
  std::string was_;
  bool set_ = false;
};

std::map<std::string, Array> on_interpreter() {
  const Environment e("TESSERA_DEVICE", "interpreter");
  std::map<std::string, Array> out;
  for (const Snippet& s : snippets()) {
    CAPTURE(s.name);
    REQUIRE_NOTHROW(out[s.name] = s.run());
  }
  return out;
}

void compare(const std::string& name, const Array& got, const Array& wanted) {
  CAPTURE(name);
  REQUIRE(to_string(got.shape()) == to_string(wanted.shape()));
  CHECK(got.dtype() == wanted.dtype());
  double worst = 0;
  for (int64_t i = 0; i < got.size(); ++i)
    worst = std::max(worst, std::fabs(got.at(i) - wanted.at(i)) / (1 + std::fabs(wanted.at(i))));
  CHECK(worst < 1e-5);  // a few roundings of f32: exp, and sums in another order
}
}  // namespace

TEST_CASE("pallas.md: the C++ blocks run on the interpreter and on a device") {
  CHECK(snippets().size() >= 10);
  const std::map<std::string, Array> wanted = on_interpreter();
  if (!test::device_if_any()) return;
  for (const Snippet& s : snippets()) compare(s.name, s.run(), wanted.at(s.name));
}

TEST_CASE("pallas.md: the Python blocks give the same under JAX") {
  const char* named = std::getenv("TESSERA_PYTHON");
  const std::string python = named && *named ? named : "python3";
  if (std::system(("'" + python + "' -c 'import jax' > /dev/null 2>&1").c_str()) != 0) {
    MESSAGE("skipped: ", python, " has no JAX; TESSERA_PYTHON names one that has");
    return;
  }
  const test::TemporaryFolder folder("docs");
  REQUIRE(
      std::system(("'" + python + "' tests/docs/run_snippets.py '" TESSERA_SNIPPETS "' '" + folder.path.string() + "'")
                      .c_str()) == 0);
  for (const auto& [name, array] : on_interpreter()) compare(name, array, read_npy(folder.at(name + ".npy")));
}

}  // namespace snippets_test
