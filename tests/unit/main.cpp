#define DOCTEST_CONFIG_IMPLEMENT
#include "tests/unit/main.h"

#include <doctest/doctest.h>

#include <cstdlib>

int main(int argc, char** argv) {
  // Many kernels of the tests are lints on purpose; tests of lints say so themselves.
  // No thread runs yet.
#ifdef _WIN32
  _putenv_s("TESSERA_LINT", "off");
#else
  setenv("TESSERA_LINT", "off", 0);  // NOLINT
#endif
  const int status = doctest::Context(argc, argv).run();
  for (const auto& f : tessera::test::at_end()) f();
  return status;
}
