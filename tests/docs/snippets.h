// The C++ blocks of samples/pallas.md, as the build takes them out of the page: one function each.
#pragma once
#include <string>
#include <vector>

#include "engine/base/array.h"

struct Snippet {
  std::string name;  // the anchor of its heading
  tessera::Array (*run)();
};
const std::vector<Snippet>& snippets();
