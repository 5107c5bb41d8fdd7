// Products and scans by the number and the sizes of their dims, on targets of any subgroup: what the lanes compute is
// the interpreter's. And what the code does not look at: offsets of 64 bits where 32 do, arrays that may be empty.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "codegen/compile.h"
#include "codegen/lane/interpreter.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/reference.h"
#include "engine/ir/text.h"
#include "tests/support/sanitizer.h"

namespace dims_test {
using namespace tessera;

namespace {

std::vector<Target> targets() {
  std::vector<Target> all;
  for (const int32_t lanes : {1, 2, 4, 8, 16}) {
    Target cpu = lavapipe_target();
    cpu.subgroup_size = cpu.min_subgroup_size = cpu.max_subgroup_size = lanes;
    all.push_back(cpu);
  }
  Target gpu = minimum_target();
  gpu.max_workgroup_size = 256;
  gpu.shared_bytes = 32 << 10;
  gpu.compute_units = 24;
  all.push_back(gpu);
  return all;
}

ir::Kernel lanes_of(const ir::Kernel& k, const Target& t, bool general = false) {
  ir::Kernel lanes;
  CompileOptions o;
  o.general = general;
  o.dump = [&](std::string_view, const ir::Kernel& now, bool) { lanes = now; };
  compile(k, t, o);
  return lanes;
}

/// On inputs of small whole numbers.
void agrees(const std::string& text) {
  static size_t cases = 0;
  if (!test::sampled(cases++)) return;
  CAPTURE(text);
  const ir::Kernel k = ir::parse(text, "k.tir");
  std::vector<Array> arrays;
  for (int i = 0; i < k.num_inputs; ++i) {
    arrays.emplace_back(bind_shape(k, i, {}), k.blocks[static_cast<size_t>(i)].dtype);
    for (int64_t e = 0; e < arrays.back().size(); ++e)
      arrays.back().set_element_bits(
          e, reference::from_double(arrays.back().dtype(), static_cast<double>((e * 7 + e / 5 + i) % 13)));
  }
  const std::vector<Array> wanted = interpret(k, arrays);
  for (const Array& w : wanted) arrays.emplace_back(w.shape(), w.dtype());
  for (const Target& t : targets())
    for (const bool general : {false, true}) {
      if (general && t.subgroup_size != 8) continue;
      CAPTURE(t.subgroup_size);
      CAPTURE(general);
      lane::RunOptions run;
      run.subgroup_size = std::max(t.subgroup_size, 1);
      const lane::RunResult r = lane::run(lanes_of(k, t, general), arrays, k.num_inputs, {}, run);
      REQUIRE(r.outputs.size() == wanted.size());
      for (const std::string& s : r.reports) FAIL_CHECK(s);
      for (size_t n = 0; n < wanted.size(); ++n)
        for (int64_t e = 0; e < wanted[n].size(); ++e)
          if (wanted[n].element_bits(e) != r.outputs[n].element_bits(e)) {
            FAIL_CHECK("element " << e << " is 0x" << std::hex << r.outputs[n].element_bits(e) << ", not 0x"
                                  << wanted[n].element_bits(e));
            break;
          }
    }
}

std::string list(const std::vector<int64_t>& v) {
  std::string s;
  for (const int64_t x : v) s += (s.empty() ? "" : ", ") + std::to_string(x);
  return "[" + s + "]";
}
std::string all_of(const std::vector<int64_t>& shape) {
  std::string s;
  for (const int64_t n : shape) s += (s.empty() ? "0:" : ", 0:") + std::to_string(n);
  return "[" + s + "]";
}

/// The dims of each operand: batch dims first, or last, those that are summed before the others or behind them.
std::string product(const std::vector<int64_t>& batch, const std::vector<int64_t>& rows,
                    const std::vector<int64_t>& cols, const std::vector<int64_t>& depth, bool turned) {
  const auto operand = [&](const std::vector<int64_t>& own, std::vector<int64_t>& shape, std::vector<int64_t>& b,
                           std::vector<int64_t>& c, bool own_first) {
    const auto add = [&](const std::vector<int64_t>& dims, std::vector<int64_t>* at) {
      for (const int64_t n : dims) {
        if (at) at->push_back(static_cast<int64_t>(shape.size()));
        shape.push_back(n);
      }
    };
    if (!turned) add(batch, &b);
    if (own_first) add(own, nullptr);
    add(depth, &c);
    if (!own_first) add(own, nullptr);
    if (turned) add(batch, &b);
  };
  std::vector<int64_t> l, r, lb, rb, lc, rc, out = batch;
  operand(rows, l, lb, lc, !turned);
  operand(cols, r, rb, rc, turned);
  out.insert(out.end(), rows.begin(), rows.end());
  out.insert(out.end(), cols.begin(), cols.end());
  const std::string scalar = out.empty() ? "[]" : all_of(out);
  return "tir 1\nkernel @product\nin i32" + list(l) + " whole\nin i32" + list(r) + " whole\nout i32" + list(out) +
         " whole\nbody (%x, %y, %o) {\n  %a = load %x" + all_of(l) + "\n  %b = load %y" + all_of(r) +
         "\n  %c = dot %a, %b lhs_contract " + list(lc) + " rhs_contract " + list(rc) + " lhs_batch " + list(lb) +
         " rhs_batch " + list(rb) + " : i32" + list(out) + "\n  store %o" + scalar + ", %c\n}\n";
}

}  // namespace

TEST_CASE("dims: products with any number of dims of each kind") {
  const std::vector<std::vector<int64_t>> some{{}, {5}, {3, 4}};
  for (const auto& batch : {some[0], std::vector<int64_t>{2}, std::vector<int64_t>{2, 3}})
    for (const auto& rows : some)
      for (const auto& cols : some)
        for (const auto& depth : {std::vector<int64_t>{7}, std::vector<int64_t>{2, 6}})
          for (const bool turned : {false, true}) agrees(product(batch, rows, cols, depth, turned));
}

TEST_CASE("dims: products of every number of rows and columns around the subgroup's") {
  for (const int64_t rows : {1, 2, 5})
    for (const int64_t cols : {1, 2, 4, 7, 8, 9, 16, 17})
      for (const int64_t depth : {1, 8, 19}) agrees(product({}, {rows}, {cols}, {depth}, false));
}

TEST_CASE("dims: scans of every number of lines and elements around the subgroup's") {
  for (const int64_t lines : {1, 2, 3, 9})
    for (const int64_t n : {1, 2, 3, 8, 9, 33})
      for (const char* op : {"cumsum", "cummax reverse 1"}) {
        const std::string code = std::string(op).substr(0, 6), shape = std::to_string(lines) + ", " + std::to_string(n),
                          all = "[0:" + std::to_string(lines) + ", 0:" + std::to_string(n) + "]";
        agrees("tir 1\nkernel @scan\nin i32[" + shape + "] whole\nout i32[" + shape +
               "] whole\nbody (%x, %o) {\n  %a = load %x" + all + "\n  %b = " + code + " %a axis 1" +
               std::string(op).substr(6) + "\n  store %o" + all + ", %b\n}\n");
      }
}

TEST_CASE("dims: reductions over any axes") {
  const std::vector<std::vector<int64_t>> shapes{{1},    {9},     {40},    {1, 9},    {9, 1},
                                                 {3, 5}, {17, 8}, {2, 70}, {2, 3, 4}, {3, 1, 9}};
  for (const auto& shape : shapes)
    for (size_t axes = 1; axes < size_t{1} << shape.size(); ++axes)
      for (const std::string op : {"reduce_sum", "reduce_max", "reduce_min", "argmax", "argmin"}) {
        std::vector<int64_t> over, left;
        for (size_t d = 0; d < shape.size(); ++d)
          ((axes >> d & 1) ? over : left).push_back((axes >> d & 1) ? static_cast<int64_t>(d) : shape[d]);
        const bool position = op[0] == 'a';
        if (position && over.size() != 1) continue;
        agrees("tir 1\nkernel @reduction\nin i32" + list(shape) + " whole\nout i32" + list(left) +
               " whole\nbody (%x, %o) {\n  %a = load %x" + all_of(shape) + "\n  %b = " + op + " %a " +
               (position ? "axis " + std::to_string(over[0]) : "axes " + list(over)) +
               (position ? " : i32" + list(left) : "") + "\n  store %o" + (left.empty() ? "[]" : all_of(left)) +
               ", %b\n}\n");
      }
}

// Of a block of 8: each form of an index, at both ends and beyond.
TEST_CASE("dims: accesses by every form of an index, masked and not") {
  for (const std::string index :
       {"0:4", "4:8", "0:8:2", "1:8:3", "ds(%s, 4)", "ds(%s, 3, 2)", "ds(%n, 4)", "ds(%n, 3, 3)", "%v", "%w", "%u"})
    for (const bool masked : {false, true})
      for (const bool stores : {false, true}) {
        const bool array = index[0] == '%',
                   three = index.find(":3") != std::string::npos || index.find(", 3") != std::string::npos;
        if (stores && array && index != "%u") continue;  // positions that meet: which one stays is another test's
        const std::string n = three ? "3" : "4", t = " : i32[" + n + "]\n", all = "[0:" + n + "]";
        agrees("tir 1\nkernel @access\ngrid (2)\nin i32[16] block (8) map (%i) { yield %i }\nin i32[2] whole\nin i32[" +
               n + "] whole\nout i32[2, " + n + "] block (squeezed, " + n +
               ") map (%i) {\n  %0 = constant 0 : i32[]\n  yield %i, %0\n}\n"
               "out i32[2, 8] block (squeezed, 8) map (%i) {\n  %0 = constant 0 : i32[]\n  yield %i, %0\n}\nbody (%x, "
               "%y, %p, %o, %q) {\n  %i = program_id axis 0\n  %5 = constant 5 : i32[]\n  %t = load %y[%i]\n  %s = rem "
               "%t, %5\n"
               "  %k = constant 9 : i32[]\n  %n = sub %s, %k\n  %8 = constant 8" +
               t + "  %r = load %p" + all + "\n  %v = rem %r, %8\n  %w = sub %v, %8\n  %h = iota axis 0" + t +
               "  %7 = constant 7" + t + "  %u = sub %7, %h\n  %2 = constant 2" + t +
               "  %e = rem %r, %2\n  %1 = constant 1" + t + "  %m = eq %e, %1\n  %z = constant -7" + t +
               "  %f = constant 3 : i32[8]\n  store %q[0:8], %f\n" +
               (stores ? "  store %q[" + index + "], %r" + (masked ? " mask %m" : "") + "\n  store %o" + all + ", %r\n"
                       : "  %a = load %x[" + index + "]" + (masked ? " mask %m other %z" : "") + "\n  store %o" + all +
                             ", %a\n") +
               "}\n");
      }
}

TEST_CASE("dims: arrays beside integers and slices in one index, masked and not") {
  struct Form {
    std::string index, shape;
  };
  for (const Form& f : {Form{"%n, %u", "4"}, Form{"%s, %u", "4"}, Form{"%u, %n", "4"}, Form{"%n, %w", "4"},
                        Form{"%u, ds(%n, 3)", "4, 3"}, Form{"ds(%n, 3), %u", "3, 4"}, Form{"ds(%s, 3, 2), %u", "3, 4"},
                        Form{"2, %u", "4"}, Form{"%u, 1:7:2", "4, 3"}})
    for (const bool masked : {false, true})
      for (const bool stores : {false, true}) {
        if (stores && f.index.find("%w") != std::string::npos) continue;
        const std::string all = f.shape == "4"      ? "[0:4]"
                                : f.shape == "4, 3" ? "[0:4, 0:3]"
                                                    : "[0:3, 0:4]",
                          t = " : i32[" + f.shape + "]\n", four = " : i32[4]\n";
        agrees("tir 1\nkernel @access\nin i32[8, 8] whole\nin i32[2] whole\nin i32[" + f.shape + "] whole\nout i32[" +
               f.shape + "] whole\nout i32[8, 8] whole\nbody (%x, %y, %p, %o, %q) {\n  %5 = constant 5 : i32[]\n" +
               "  %t = load %y[1]\n  %s = rem %t, %5\n  %k = constant 9 : i32[]\n  %n = sub %s, %k\n" +
               "  %h = iota axis 0" + four + "  %7 = constant 7" + four + "  %u = sub %7, %h\n  %8 = constant 8" +
               four + "  %w = sub %h, %8\n  %r = load %p" + all + "\n  %2 = constant 2" + t + "  %e = rem %r, %2\n" +
               "  %1 = constant 1" + t + "  %m = eq %e, %1\n  %z = constant -7" + t +
               "  %f = constant 3 : i32[8, 8]\n  store %q[0:8, 0:8], %f\n" +
               (stores
                    ? "  store %q[" + f.index + "], %r" + (masked ? " mask %m" : "") + "\n  store %o" + all + ", %r\n"
                    : "  %a = load %x[" + f.index + "]" + (masked ? " mask %m other %z" : "") + "\n  store %o" + all +
                          ", %a\n") +
               "}\n");
      }
}

// The product of a block's first position and the stride below it: 32 bits where the array and what pads it end below
// 2^31 elements.
TEST_CASE("dims: a block's offset is formed in 64 bits only where the padded array needs that") {
  constexpr int64_t kStride = int64_t{1} << 21;  // 1,023 of them are below 2^31, 1,024 are not
  const auto wide = [&](int64_t extent, int64_t low, int64_t high) {
    const std::string block = "element(8, " + std::to_string(low) + ", " + std::to_string(high) + "), 4";
    const ir::Kernel k = ir::parse("tir 1\nkernel @offset\ngrid (7)\nprefetch i32[7] whole\nin i8[" +
                                       std::to_string(extent) + ", " + std::to_string(kStride) + "] block (" + block +
                                       ") map (%i, %s: ref<smem, i32[7]>) {\n  %0 = constant 0 : i32[]\n  %j = load "
                                       "%s[%i]\n  yield %j, %0\n}\nout i8[7, 8, 4] block (squeezed, 8, 4) map (%i, %s: "
                                       "ref<smem, i32[7]>) {\n  %0 = constant 0 : i32[]\n  yield %i, %0, %0\n}\n"
                                       "body (%s, %x, %o) {\n  %a = load %x[0:8, 0:4]\n  store %o[0:8, 0:4], %a\n}\n",
                                   "k.tir");
    ir::Kernel lowered;
    CompileOptions o;
    o.dump = [&](std::string_view step, const ir::Kernel& now, bool) {
      if (step == "lower") lowered = now;
    };
    compile(k, lavapipe_target(), o);
    int n = 0;
    for (const ir::Op& op : lowered.ops)
      if (op.code == ir::Opcode::mul && lowered.type(op.results[0]).dtype == DType::i64)
        for (const ir::Value v : op.operands) n += ir::constant_int(lowered, v) == kStride;
    return n;
  };
  struct {
    int64_t extent, low, high;
    bool wide;
  } const all[] = {{1000, 0, 0, false},  {1023, 0, 0, false},   {1024, 0, 0, true},  {1000, 0, 23, false},
                   {1000, 0, 24, true},  {1000, 23, 0, false},  {1000, 24, 0, true}, {1000, 12, 11, false},
                   {1000, 12, 12, true}, {1000, 11, 12, false}, {1010, 7, 6, false}, {1010, 7, 7, true}};
  const int at_rest = wide(100, 0, 0);
  for (const auto& x : all) {
    CAPTURE(x.extent);
    CAPTURE(x.low);
    CAPTURE(x.high);
    CHECK((wide(x.extent, x.low, x.high) > at_rest) == x.wide);
  }
}

}  // namespace dims_test
