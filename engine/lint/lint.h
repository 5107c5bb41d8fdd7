// Lints: legal kernels that hardly mean what they say, found without running them (README.md lists them). Only what is
// certain for the given sizes is reported. Read next: coverage.cpp, unspecified.cpp.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/extent.h"
#include "engine/base/function.h"
#include "engine/ir/kernel.h"

namespace tessera {

/// What becomes of a lint: nothing looks for any; a line of text; an error.
enum class Lint : uint8_t { off, warn, error };
std::optional<Lint> lint_from_name(std::string_view name);  ///< "off", "warn", "error"
/// What TESSERA_LINT says; nothing if it is not set. SpecError if it is none of the three.
std::optional<Lint> lint_of_environment();

/// The lints of a tile-level kernel, each as the text of an error. `dims` has a value for every run-time size.
std::vector<std::string> lints(const ir::Kernel& k, const DimValues& dims);
/// Every size that the kernel names is in `dims`.
bool has_all_sizes(const ir::Kernel& k, const DimValues& dims);

/// Looks for lints if `what` is not off. warn: calls warn(text) for each; without a callback they go to stderr, once
/// per text and process. error: throws a KernelError with all of them.
void check_lints(const ir::Kernel& k, const DimValues& dims, Lint what,
                 const Function<void(const std::string&)>& warn = {});

}  // namespace tessera
