// What the tests of error messages share: the text of the error that something throws, and the parts of the texts
// expected.
#pragma once
#include <doctest/doctest.h>

#include <string>

#include "engine/base/error.h"

namespace tessera::test {

/// "\n  at FILE:line", of the file that asks.
inline std::string at(int line, const char* file = __builtin_FILE()) {
  return "\n  at " + std::string(file) + ":" + std::to_string(line);
}
inline std::string note(const std::string& text) { return "\n  note: " + text; }
/// A function rather than CHECK itself: compilers differ in the line they give to lambdas inside a macro of several
/// lines.
inline void expect(const std::string& got, const std::string& want) { CHECK(got == want); }
template <class F> std::string message(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace tessera::test
