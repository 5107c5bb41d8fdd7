// The text of debug_print and check: a format with placeholders as in Python's str.format, and arrays as NumPy 2 writes
// them (eight digits after the point, lines of 75 characters, "..." above 1000 elements). The interpreter and the
// runtime both use it, so they cannot disagree.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/array.h"
#include "engine/base/error.h"
#include "engine/base/function.h"

namespace tessera {

/// A piece of a format: text, then the argument that follows it (none: -1) and how it is written ("" or e.g. ".3f", for
/// scalars only).
struct FormatPiece {
  std::string text;
  std::string field;  // what stands before the colon: "", a position or a name; has_field says whether there is a
                      // placeholder at all
  std::string spec;
  bool has_field = false;
};
/// Cuts a format. On a mistake `problem` says what is wrong.
std::vector<FormatPiece> cut_format(std::string_view format, std::string& problem);
/// The argument of every placeholder, in order: "" counts up, a position says which, anything else is looked up in
/// `names`.
std::vector<int> placeholders(const std::vector<FormatPiece>& pieces, const std::vector<std::string>& names,
                              std::string& problem);
/// What is wrong with a format for these arguments, whose placeholders have no names; "" if nothing is: each argument
/// is used, a scalar where its placeholder says how it is written.
std::string format_problem(std::string_view format, const std::vector<std::pair<DType, Shape>>& arguments);
/// Whether `spec` can write a scalar of dtype t: [[fill]align][sign][0][width][.precision]type with type d, b, o, x, X,
/// e, E, f, g, G or %.
bool good_spec(std::string_view spec, DType t);

/// The format with its placeholders filled in. It has none but "{}" and "{0}", each with a good spec for its argument.
std::string format_text(std::string_view format, const std::vector<Array>& arguments);
/// str(numpy.asarray(a)).
std::string to_text(const Array& a);

/// "(i = 2, 0)": a program of the grid, axes that have a name with it.
std::string program_text(const std::vector<std::string>& axis_names, const int64_t* program);
/// What a call fails with whose check did, in that program.
KernelError check_failed(const std::string& kernel, const std::string& program, const std::string& text, Loc loc);

/// Takes a line that a kernel printed, without the line's end.
using PrintCallback = Function<void(const std::string& line)>;
/// To `print`, or if there is none to stdout, with the line's end.
void print_line(const PrintCallback& print, const std::string& line);

}  // namespace tessera
