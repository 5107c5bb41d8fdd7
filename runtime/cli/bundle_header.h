// The headers of a bundle. In C++: a struct per kernel whose call takes and returns named, typed arrays and numbers,
// and one per graph, which records it. In C: structs of the same names, and functions that get and launch a kernel, or
// prepare and record a graph. Read next: bundle.cpp.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "codegen/program/bundle.h"

namespace tessera::cli {

struct HeaderOptions {
  std::string name_space;
  std::string bundle;              // the bundle's file name, for comments and messages
  std::vector<std::string> files;  // of what it was made
  std::string embedded;            // the bundle's bytes, if they go into the header
};
std::string bundle_header(const BundleFile& bundle, const HeaderOptions& options);
/// For runtime/c/tessera.h; what it declares begins with the namespace and _.
std::string bundle_c_header(const BundleFile& bundle, const HeaderOptions& options);
/// `name` as a name in C++: other characters become "_", and keywords get one at the end.
std::string identifier(std::string_view name);

}  // namespace tessera::cli
