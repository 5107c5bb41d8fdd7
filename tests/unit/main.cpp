#define DOCTEST_CONFIG_IMPLEMENT
#include "tests/unit/main.h"

#include <doctest/doctest.h>

namespace tessera::test {
void (*at_end)() = nullptr;
}

int main(int argc, char** argv) {
  const int status = doctest::Context(argc, argv).run();
  if (tessera::test::at_end) tessera::test::at_end();
  return status;
}
