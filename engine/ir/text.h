// The text form (.tir): prints and parses Kernels of both levels; print(parse(text)) == print(kernel). First line: "tir 1".
// Grammar and one example per op: engine/README.md.
#pragma once
#include <string>
#include <string_view>

#include "engine/ir/kernel.h"

namespace tessera::ir {

inline constexpr int kTextVersion = 1;
/// With `locations`, every op carries its source line as a trailing `// file:line` comment, which parse() reads back into Op::loc.
std::string print(const Kernel& k, bool locations = false);
/// Parses one kernel. Throws TraceError "FILE:LINE:COLUMN: what" with the offending line and a caret under it. The result is verified by
/// the caller. Ops parsed without a location comment get Loc{file, line of the text}.
Kernel parse(std::string_view text, std::string_view file = "<text>");

}  // namespace tessera::ir
