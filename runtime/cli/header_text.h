// What the headers of a bundle in C++ and in C have in common: names, comments and literals. Internal to
// bundle_header.cpp and bundle_c_header.cpp.
#pragma once
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/program/program.h"

namespace tessera::cli {

/// `name` as an identifier that is not in `used`, and from then on is.
std::string fresh(std::string_view name, std::set<std::string>& used);
std::string string_literal(std::string_view s);
/// What goes into a comment: nothing that could end it.
std::string commented(std::string s);
/// "f32[n, 128]"
std::string array_text(const ProgramArg& a);
/// Sizes that no input's shape shows alone, in order of appearance: the call has to give them.
std::vector<std::string> given_sizes(const Program& p);
/// Bytes as the elements of an array of 64-bit numbers, little-endian, the last filled up with zeros.
std::string words(const std::string& bytes);

}  // namespace tessera::cli
