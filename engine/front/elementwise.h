// Recording elementwise ops with promotion and broadcasting. Internal to engine/front; the public functions are in
// value.h and ops.h.
#pragma once
#include <optional>
#include <string_view>

#include "engine/front/value.h"

namespace tessera {

/// Both sides promoted and broadcast; `name` is the op's name in errors, `for_bool` the op that stands for it on bools.
Value binary(ir::Opcode code, const Operand& a, const Operand& b, std::string_view name,
             std::optional<ir::Opcode> for_bool = std::nullopt);
Value unary(ir::Opcode code, const Operand& a, std::string_view name);
/// As unary, integers and bools converted to f32 first.
Value unary_float(ir::Opcode code, const Operand& a, std::string_view name);

}  // namespace tessera
