// Messages from inside a kernel:
//   ts::debug_print("x = {} of {n:d}", x, ts::named("n", n));  ts::check(cond, "x is {}", x);
// Formats are Python's: {} counts up, {0} selects an argument, {name} needs ts::named, {:.3f} formats a scalar, {{ is a
// brace. Arrays appear as NumPy writes them. The text goes to InterpretOptions::print, DeviceOptions::print, else
// stdout.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "engine/front/value.h"

namespace tessera {

/// An argument that the format calls by its name.
struct Named {
  std::string name;
  Operand value;
};
inline Named named(std::string name, Operand value) { return {std::move(name), std::move(value)}; }

namespace debug {
struct Format {
  std::string text;
  Loc loc;
  // NOLINT: implicit on purpose, as all here
  Format(const char* t, Loc l = Loc::here()) : text(t), loc(l) {}
  Format(std::string t, Loc l = Loc::here()) : text(std::move(t)), loc(l) {}  // NOLINT
};
struct Argument {
  std::string name;
  Operand value;
  Argument(Named n) : name(std::move(n.name)), value(std::move(n.value)) {}  // NOLINT
  Argument(const Value& v) : value(v, Loc{}) {}                              // NOLINT
  Argument(RefItem&& read) : value(std::move(read), Loc{}) {}                // NOLINT
  template <class T>
    requires std::is_arithmetic_v<T>
  Argument(T number) : value(number, Loc{}) {}  // NOLINT
};
void print(const Format& format, std::vector<Argument> arguments);
void check(const Operand& condition, const Format& format, std::vector<Argument> arguments);
template <class... A> std::vector<Argument> list(A&&... arguments) {
  std::vector<Argument> all;
  (all.emplace_back(std::forward<A>(arguments)), ...);
  return all;
}
}  // namespace debug

/// Prints a line when a program comes here; the lines of one program in order, programs in the order of the grid.
/// Arguments are Values of any shape, x[...] and numbers. Throws TraceError for a format that does not fit them.
template <class... A> void debug_print(const debug::Format& format, A&&... arguments) {
  debug::print(format, debug::list(std::forward<A>(arguments)...));
}
/// The call fails with a KernelError that names line, program and message if, in some program that comes here, the
/// condition (all of its elements) does not hold. The kernel goes on, and only the first failure is told: the caller
/// gets it where results are waited for.
template <class... A> void check(const Operand& condition, const debug::Format& format, A&&... arguments) {
  debug::check(condition, format, debug::list(std::forward<A>(arguments)...));
}

}  // namespace tessera
