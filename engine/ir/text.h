// The text form (.tir): prints and parses Kernels of both levels; print(parse(text)) == print(kernel). First line: "tir
// 1". Grammar and one example per op: engine/language.md.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::ir {

inline constexpr int kTextVersion = 1;
/// With `locations`, every op carries its source line as a trailing `// file:line` comment, which parse() reads back
/// into Op::loc. `body_names`: what the body's arguments are called, in order, instead of by number: identifiers, no
/// two the same.
std::string print(const Kernel& k, bool locations = false, const std::vector<std::string>& body_names = {});
/// Parses one kernel. Throws TraceError "FILE:LINE:COLUMN: what" with the offending line and a caret under it. The
/// result is verified by the caller. Ops parsed without a location comment get Loc{file, line of the text}.
Kernel parse(std::string_view text, std::string_view file = "<text>");

/// The number that print() gives each value (position: Value::index), or UINT32_MAX for a value that is not reachable
/// from the kernel.
std::vector<uint32_t> numbering(const Kernel& k);
/// An element as the text form writes it: "1.5", "-0.0", "nan", "true"; "0x7fc00001" for a NaN with other bits than the
/// usual ones.
std::string literal(DType t, uint64_t bits);
/// The inverse: decimal numbers round to nearest, hexadecimal ones are bits. Nothing if `text` is not a literal of that
/// dtype.
std::optional<uint64_t> parse_literal(DType t, std::string_view text);

/// What a kernel's text calls the arguments of its body, which the Kernel does not keep: "x", "0". Of text that parses.
std::vector<std::string> body_names(std::string_view text);

}  // namespace tessera::ir
