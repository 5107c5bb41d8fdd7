#define DOCTEST_CONFIG_IMPLEMENT
#include "tests/unit/main.h"

#include <doctest/doctest.h>

int main(int argc, char** argv) {
  const int status = doctest::Context(argc, argv).run();
  for (const auto& f : tessera::test::at_end()) f();
  return status;
}
