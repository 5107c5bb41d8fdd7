// The StableHLO module around a kernel: a function main whose one custom call is the kernel. Bools are i32 and arrays
// without dims have one in the call. The body's text goes in as base64, without a serialization format: such a body is
// MLIR's text.
#include "codegen/tpu/emitter.h"
#include "codegen/tpu/mosaic.h"
#include "engine/base/call_info.h"

namespace tessera::tpu {
namespace {
std::string base64(const std::string& bytes) {
  static const char* const kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string s;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t word = 0;
    for (size_t j = 0; j < 3; ++j) word = word << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0U);
    for (size_t j = 0; j < 4; ++j) s += i + j > bytes.size() ? '=' : kDigits[word >> (18 - 6 * j) & 63];
  }
  return s;
}

// A string of MLIR.
std::string quoted(const std::string& text) {
  std::string s = "\"";
  for (const char c : text) s += c == '"' ? "\\22" : c == '\\' ? "\\5C" : c == '\n' ? "\\0A" : std::string(1, c);
  return s + "\"";
}

std::string tensor(DType t, const Shape& shape) {
  std::string s = "tensor<";
  for (const int64_t n : shape) s += std::to_string(n) + "x";
  const std::string element = element_type(t);
  return s + (is_unsigned_int(t) ? "u" : "") + element + ">";
}

std::string layouts(const std::vector<Shape>& shapes) {
  std::string s;
  for (const Shape& shape : shapes) {
    std::vector<int64_t> order;
    for (size_t d = shape.size(); d-- > 0;) order.push_back(static_cast<int64_t>(d));
    s += (s.empty() ? "" : ", ") + ("dense<" + list(order)) + "> : tensor<" + std::to_string(order.size()) + "xindex>";
  }
  return "[" + s + "]";
}

struct Array {
  DType dtype;
  Shape shape, in_call;
};
Array array_of(const ir::BlockMapping& b) {
  Array a{b.dtype, {}, {}};
  for (const Extent& e : b.array_shape) a.shape.push_back(*e.value());
  a.in_call = a.shape.empty() ? Shape{1} : a.shape;
  return a;
}

// Lines that bring `name` from one dtype and shape to another, and its name then.
std::string adapt(std::string& lines, const std::string& name, DType from, const Shape& from_shape, DType to,
                  const Shape& to_shape) {
  std::string now = name;
  if (from != to) {
    lines += "    " + now + "_c = stablehlo.convert " + now + " : (" + tensor(from, from_shape) + ") -> " +
             tensor(to, from_shape) + "\n";
    now += "_c";
  }
  if (from_shape != to_shape) {
    lines += "    " + now + "_r = stablehlo.reshape " + now + " : (" + tensor(to, from_shape) + ") -> " +
             tensor(to, to_shape) + "\n";
    now += "_r";
  }
  return now;
}

std::string config(const ir::Kernel& k, const std::string& body) {
  std::string s = "{\"custom_call_config\": {\"body\": \"" + base64(body) + "\"";
  if (k.call.cost_estimate) {
    const CostEstimate& c = *k.call.cost_estimate;
    s += ", \"cost_estimate\": {\"bytes_accessed\": " + to_string(c.bytes_accessed) +
         ", \"flops\": " + to_string(c.flops) +
         ", \"remote_bytes_transferred\": " + to_string(c.remote_bytes_transferred) +
         ", \"transcendentals\": " + to_string(c.transcendentals) + "}";
  }
  s += ", \"needs_layout_passes\": true}";
  if (const ir::CompilerParam* p = k.call.compiler_param("mosaic_tpu", "vmem_limit_bytes"))
    s += ", \"scoped_memory_configs\": [{\"memory_space\": 1, \"offset\": 0, \"size\": " + p->value + "}]";
  return s + "}";
}
}  // namespace

std::string stable_hlo(const ir::Kernel& k, const std::string& body) {
  std::string parameters, lines, operands, operand_types, results, result_types, returned, aliases;
  std::vector<Shape> in_shapes, out_shapes;
  const auto comma = [](const std::string& s) { return s.empty() ? "" : ", "; };
  for (int i = 0; i < k.num_inputs; ++i) {
    const Array a = array_of(k.blocks[static_cast<size_t>(i)]);
    const std::string name = "%arg" + std::to_string(i);
    parameters += comma(parameters) + name + ": " + tensor(a.dtype, a.shape);
    operands += comma(operands) + adapt(lines, name, a.dtype, a.shape, stored(a.dtype), a.in_call);
    operand_types += comma(operand_types) + tensor(stored(a.dtype), a.in_call);
    in_shapes.push_back(a.in_call);
  }
  std::string after;
  const int n = k.num_outputs();
  for (int i = 0; i < n; ++i) {
    const ir::BlockMapping& b = k.blocks[static_cast<size_t>(k.num_inputs + i)];
    const Array a = array_of(b);
    const std::string made = n == 1 ? "%result" : "%result#" + std::to_string(i);
    result_types += comma(result_types) + tensor(stored(a.dtype), a.in_call);
    results += comma(results) + tensor(a.dtype, a.shape);
    out_shapes.push_back(a.in_call);
    std::string name = made;
    if (a.dtype != stored(a.dtype) || a.shape != a.in_call) {
      name = "%out" + std::to_string(i);
      Shape shape = a.in_call;
      std::string from = made;
      if (a.shape != a.in_call) {
        after += "    " + name + "_r = stablehlo.reshape " + from + " : (" + tensor(stored(a.dtype), shape) + ") -> " +
                 tensor(stored(a.dtype), a.shape) + "\n";
        from = name + "_r", shape = a.shape;
      }
      if (a.dtype != stored(a.dtype))
        after += "    " + name + " = stablehlo.convert " + from + " : (" + tensor(stored(a.dtype), shape) + ") -> " +
                 tensor(a.dtype, shape) + "\n";
      else name = from;
    }
    returned += comma(returned) + name;
    if (b.alias >= 0)
      aliases +=
          comma(aliases) +
          ("#stablehlo.output_operand_alias<output_tuple_indices = [" + (n == 1 ? std::string() : std::to_string(i))) +
          "], operand_index = " + std::to_string(b.alias) + ", operand_tuple_indices = []>";
  }
  const ir::CompilerParam* effects = k.call.compiler_param("mosaic_tpu", "has_side_effects");
  const bool has_effects = effects && (effects->value == "true" || effects->value == "True" || effects->value == "1");
  return "module {\n  func.func public @main(" + parameters + ") -> (" + results + ") {\n" + lines + "    %result" +
         (n > 1 ? ":" + std::to_string(n) : "") + " = stablehlo.custom_call @tpu_custom_call(" + operands +
         ") {backend_config = " + quoted(config(k, body)) + (has_effects ? ", has_side_effect = true" : "") +
         ", kernel_name = " + quoted(k.name) +
         ", mhlo.frontend_attributes = {kernel_metadata = " + quoted(ir::to_json(k.call.metadata)) +
         "}, operand_layouts = " + layouts(in_shapes) +
         (aliases.empty() ? "" : ", output_operand_aliases = [" + aliases + "]") +
         ", result_layouts = " + layouts(out_shapes) + "} : (" + operand_types + ") -> " +
         (n == 1 ? result_types : "(" + result_types + ")") + "\n" + after + "    return " + returned + " : " +
         results + "\n  }\n}\n";
}

}  // namespace tessera::tpu
