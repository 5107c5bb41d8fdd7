// Makes a failing case small: keeps every change after which it is still a valid kernel that fails in the same stage.
#pragma once
#include <functional>

#include "tests/support/generator/generator.h"

namespace tessera::fuzz {

/// `fails` says whether a case fails as the first one did. Tries changes until none helps or `seconds` have passed.
Case shrink(const Case& c, const std::function<bool(const Case&)>& fails, double seconds);

}  // namespace tessera::fuzz
