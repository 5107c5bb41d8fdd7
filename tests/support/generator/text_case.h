// A case from a kernel's text whose answers are exact: for generators that write text.
#pragma once
#include <functional>
#include <string>

#include "tests/support/generator/generator.h"

namespace tessera::fuzz {

/// `number`: the next element of input i, in row-major order.
Case exact_case(const std::string& text, const std::string& file,
                const std::function<int64_t(int i, DType dtype)>& number);

}  // namespace tessera::fuzz
