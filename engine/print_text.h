// The text of debug_print and check: a format with placeholders as Python's str.format has them, and arrays as NumPy 2 writes them (eight digits after
// the point, lines of 75 characters, "..." above 1000 elements). The interpreter and the runtime both print by this, so they cannot disagree.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "engine/array.h"

namespace tessera {

/// A piece of a format: text, then the argument that follows it (none: -1) and how it is written ("" or e.g. ".3f", for scalars only).
struct FormatPiece {
  std::string text;
  std::string field;  // what stands before the colon: "", a position or a name; has_field says whether there is a placeholder at all
  std::string spec;
  bool has_field = false;
};
/// Cuts a format. On a mistake `problem` says what is wrong.
std::vector<FormatPiece> cut_format(std::string_view format, std::string& problem);
/// The argument of every placeholder, in order: "" counts up, a position says which, anything else is looked up in `names`.
std::vector<int> placeholders(const std::vector<FormatPiece>& pieces, const std::vector<std::string>& names, std::string& problem);
/// Whether `spec` can write a scalar of dtype t: [[fill]align][sign][0][width][.precision]type with type d, b, o, x, X, e, E, f, g, G or %.
bool good_spec(std::string_view spec, DType t);

/// The format with its placeholders filled in. It has none but "{}" and "{0}", each with a good spec for its argument.
std::string format_text(std::string_view format, const std::vector<Array>& arguments);
/// str(numpy.asarray(a)).
std::string to_text(const Array& a);

}  // namespace tessera
