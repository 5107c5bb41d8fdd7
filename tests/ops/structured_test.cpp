// Every structured op that makes values from values, on every dtype it takes, for the shapes that go wrong: compiled
// and run on a device, compared with the interpreter (whose answers answers_test.cpp compares with JAX's). Two kernels
// per dtype and shape: what moves and compares elements gets NaNs, infinities, subnormals and extremes; sums and
// products get numbers that add up exactly in any order.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>
#include <string>

#include "engine/interpreter/interpreter.h"
#include "engine/ir/reference.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "runtime/call/call.h"
#include "tests/support/answers.h"
#include "tests/support/device.h"

namespace structured_test {
using namespace tessera;

namespace {
const std::vector<Shape> kShapes{{}, {1}, {7}, {8, 128}, {3, 5, 33}, {1000}};

std::string list(const std::vector<int64_t>& v) {
  std::string s;
  for (const int64_t n : v) s += (s.empty() ? "" : ", ") + std::to_string(n);
  return s;
}
std::string type(DType t, const Shape& s) { return std::string(name(t)) + "[" + list(s) + "]"; }
std::string whole(const Shape& s) {
  std::string out;
  for (const int64_t n : s) out += (out.empty() ? "0:" : ", 0:") + std::to_string(n);
  return "[" + out + "]";
}

std::vector<std::string> moves_and_comparisons(DType t, const Shape& s) {
  const auto r = static_cast<int64_t>(s.size());
  std::vector<int64_t> axes, reversed, start, dims;
  Shape twice{2};
  for (int64_t a = 0; a < r; ++a) {
    axes.push_back(a), reversed.push_back(r - 1 - a), dims.push_back(a + 1);
    twice.push_back(s[static_cast<size_t>(a)]);
  }
  std::string slices;
  for (const int64_t n : s)
    slices += (slices.empty() ? "" : ", ") + std::to_string(n / 3) + ":" + std::to_string(n) + (n > 4 ? ":2" : "");
  std::vector<std::string> ops{
      "broadcast %x dims [" + list(dims) + "] : " + type(t, twice),
      "reshape %x : " + type(t, {num_elements(s), 1}),
      "transpose %x perm [" + list(reversed) + "]",
      "slice %x[" + slices + "]",
      "rev %x axes [" + list(axes) + "]",
  };
  if (t != DType::boolean && r > 0) ops.push_back("iota axis " + std::to_string(r - 1) + " : " + type(t, s));
  for (int64_t a = 0; a < r; ++a) {
    const std::string axis = std::to_string(a);
    ops.push_back("concatenate %x, %y axis " + axis);
    if (t == DType::boolean) continue;
    for (const char* op : {"reduce_max", "reduce_min"}) ops.push_back(std::string(op) + " %x axes [" + axis + "]");
    Shape rest = s;
    rest.erase(rest.begin() + a);
    for (const char* op : {"argmax", "argmin"})
      ops.push_back(std::string(op) + " %x axis " + axis + " : " + type(DType::i32, rest));
    for (const char* op : {"cummax", "cummin"})
      ops.push_back(std::string(op) + " %x axis " + axis + (a % 2 ? " reverse 1" : ""));
  }
  if (!is_float(t))
    for (const char* op : {"reduce_and", "reduce_or"}) {
      ops.push_back(std::string(op) + " %x axes [" + list(axes) + "]");
      if (r > 1) ops.push_back(std::string(op) + " %x axes [" + std::to_string(r - 1) + "]");
    }
  return ops;
}

std::vector<std::string> sums_and_products(DType t, const Shape& s) {
  if (t == DType::boolean) return {};
  const auto r = static_cast<int64_t>(s.size());
  std::vector<int64_t> axes;
  for (int64_t a = 0; a < r; ++a) axes.push_back(a);
  std::vector<std::string> ops{"reduce_sum %x axes [" + list(axes) + "]", "reduce_prod %y axes [" + list(axes) + "]"};
  for (int64_t a = 0; a < r; ++a) {
    const std::string axis = std::to_string(a);
    if (r > 1) ops.push_back("reduce_sum %x axes [" + axis + "]");
    ops.push_back("cumsum %x axis " + axis + (a % 2 ? "" : " reverse 1"));
    ops.push_back("cumprod %y axis " + axis);
  }
  if (r > 0) {
    const std::string last = std::to_string(r - 1);
    const Shape result = r == 1 ? Shape{} : r == 2 ? Shape{s[0], s[0]} : Shape{s[0], s[1], s[1]};
    ops.push_back("dot %x, %y lhs_contract [" + last + "] rhs_contract [" + last + "] lhs_batch [" +
                  (r == 3 ? "0" : "") + "] rhs_batch [" + (r == 3 ? "0" : "") +
                  "] : " + type(is_narrow_float(t) ? DType::f32 : t, result));
  }
  return ops;
}

/// Each of `ops` on %x and %y, stored in an output of its own.
ir::Kernel kernel_of(const std::vector<std::string>& ops, DType t, const Shape& s) {
  std::string head = "tir 1\nkernel @structured\nin " + type(t, s) + " whole\nin " + type(t, s) + " whole\n";
  std::string args = "body (%x_ref, %y_ref",
              lines = "  %x = load %x_ref" + whole(s) + "\n  %y = load %y_ref" + whole(s) + "\n";
  for (size_t i = 0; i < ops.size(); ++i) lines += "  %r" + std::to_string(i) + " = " + ops[i] + "\n";
  const ir::Kernel values = ir::parse(head + args + ") {\n" + lines + "}\n", "values");
  size_t i = 0;
  for (const ir::OpId id : values.region(values.body).ops) {
    const ir::Op& o = values.op(id);
    if (o.results.empty() || o.code == ir::Opcode::load) continue;
    const ir::Type& result = values.type(o.results[0]);
    head += "out " + type(result.dtype, result.shape) + " whole\n";
    args += ", %o" + std::to_string(i);
    lines += "  store %o" + std::to_string(i) + whole(result.shape) + ", %r" + std::to_string(i) + "\n";
    ++i;
  }
  ir::Kernel k = ir::parse(head + args + ") {\n" + lines + "}\n", "structured");
  ir::verify(k, "building");
  return k;
}

uint64_t special(DType t, int64_t i) {
  if (t == DType::boolean) return static_cast<uint64_t>(i % 3 == 0);
  if (!is_float(t)) {
    const uint64_t top = uint64_t{1} << (bits(t) - 1), all = top - 1 + top,
                   v[] = {0, 1, all, top, top - 1, 5, all - 6, 64, 100};
    return v[static_cast<size_t>(i) % std::size(v)] & all;
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const FloatFormat f = float_format(t);
  const double least = std::ldexp(1.0, f.least_exponent - f.mantissa),
               most = f.has_infinity ? kInfinity : reference::to_double(t, f.greatest);
  const double v[] = {1,     -1, 0, -0.0, 2.5, most, -7, -most, least, -least, t == DType::f8e4m3fn ? 240.0 : 1000.0,
                      0.125, -3, 3};
  // NaNs are rare, or each running maximum would be nothing else.
  return i % 101 == 50 ? reference::from_double(t, std::nan(""))
                       : reference::from_double(t, v[static_cast<size_t>(i * 5) % std::size(v)]);
}
/// x: small whole numbers that change sign; y: ones, now and then -1 or 2.
uint64_t exact(DType t, int64_t i, bool factor) {
  const bool is_signed = is_float(t) || is_signed_int(t);
  const double v = factor      ? (i % 97 == 13              ? 2
                                  : is_signed && i % 7 == 3 ? -1
                                                            : 1)
                   : is_signed ? static_cast<double>(i * 7 % 5 - 2)
                               : static_cast<double>(i * 7 % 5 % 2);
  return t == DType::boolean ? static_cast<uint64_t>(v != 0) : reference::from_double(t, v);
}

void run(const Device& device, const std::vector<std::string>& ops, DType t, const Shape& s, bool sums,
         std::set<ir::Opcode>& seen) {
  if (ops.empty()) return;
  CAPTURE(name(t));
  CAPTURE(to_string(s));
  const ir::Kernel k = kernel_of(ops, t, s);
  for (const ir::Op& o : k.ops) seen.insert(o.code);
  std::vector<Array> inputs(2, Array(s, t));
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t i = 0; i < inputs[0].size(); ++i)
      inputs[static_cast<size_t>(n)].set_element_bits(i, sums ? exact(t, i, n == 1) : special(t, i + 11 * n));
  Target target = device.target();
  // as in elementwise_test.cpp: unrolled code takes LLVM minutes
  if (num_elements(s) > 8) target.kind = Target::Kind::gpu;
  CompileOptions options;
  options.strict = true;  // bit for bit
  const CompiledKernel compiled(device, std::make_shared<const Program>(compile(k, target, options)));
  const std::vector<Array> wanted = interpret(k, inputs), got = compiled.run(inputs);
  // A device may take subnormals for zeros, so the place of an extreme value may be another zero's.
  std::vector<Array> flushed = inputs;
  for (Array& a : flushed)
    for (int64_t i = 0; i < a.size(); ++i)
      if (t == DType::f32 || t == DType::bf16) a.set_element_bits(i, test::flushed(t, a.element_bits(i)));
  const std::vector<Array> of_flushed = interpret(k, flushed);
  for (size_t o = 0; o < ops.size(); ++o) {
    int failures = 0;
    bool as_flushed = ops[o].starts_with("argm");
    for (int64_t i = 0; i < got[o].size() && as_flushed; ++i)
      as_flushed = got[o].element_bits(i) == of_flushed[o].element_bits(i);
    if (as_flushed) continue;
    for (int64_t i = 0; i < got[o].size() && failures < 3; ++i) {
      const uint64_t a = got[o].element_bits(i), b = wanted[o].element_bits(i);
      if (test::agrees(got[o].dtype(), a, b, 0)) continue;
      ++failures;
      FAIL_CHECK(ops[o], ": element ", i, " is ", test::show(got[o].dtype(), a), ", but the interpreter has ",
                 test::show(got[o].dtype(), b));
    }
  }
}
}  // namespace

TEST_CASE("ops: every structured row on every dtype and shape agrees with the interpreter") {
  const std::optional<Device> device = test::device_if_any();
  if (!device) return;
  std::set<ir::Opcode> seen;
  for (int d = 0; d < kNumDTypes; ++d)
    for (size_t i = 0; i < kShapes.size(); ++i) {
      // every shape on every other dtype: drivers take long
      if ((i + static_cast<size_t>(d)) % 2 && !std::getenv("TESSERA_TESTS_ALL")) continue;
      const auto t = static_cast<DType>(d);
      const Shape& s = kShapes[i];
      run(*device, moves_and_comparisons(t, s), t, s, false, seen);
      run(*device, sums_and_products(t, s), t, s, true, seen);
    }
  for (int i = 0; i < ir::kNumOpcodes; ++i)
    if (const auto op = static_cast<ir::Opcode>(i); ir::is_move(op) || ir::is_reduce(op) || ir::is_argreduce(op) ||
                                                    ir::is_scan(op) || op == ir::Opcode::iota || op == ir::Opcode::dot)
      CHECK_MESSAGE(seen.contains(op), ir::name(op));
}

}  // namespace structured_test
