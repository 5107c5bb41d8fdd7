// Which products codegen/plan/matrices.h gives to a target's matrix instructions, and why it gives others to none.
#include "codegen/plan/matrices.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "codegen/compile.h"
#include "codegen/lane/interpreter.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "engine/ir/walk.h"

namespace matrices_test {
using namespace tessera;
using lowering::MatrixProduct;

namespace {
// The shape, or the reason for none.
std::string planned(const Target& t, int subgroup, const MatrixProduct& p) {
  std::string why;
  const auto shape = lowering::matrices_for(t, subgroup, p, why);
  CHECK(shape.has_value() == why.empty());
  return shape ? to_string(*shape) : why;
}
}  // namespace

TEST_CASE("matrices: products that fill a matrix of the device, in subgroups of one size") {
  const MatrixProduct large{DType::f16, DType::f16, DType::f32, 32, 32, 32};
  const std::string yes = "16x16x16 f16 f16 f32";
  CHECK(planned(gpu_matrix_target(), 32, large) == yes);
  for (const auto& [rows, cols, depth, fills] : std::vector<std::tuple<int64_t, int64_t, int64_t, bool>>{
           {9, 16, 16, true}, {8, 16, 16, false}, {9, 15, 16, false}, {9, 16, 15, false}}) {
    MatrixProduct p = large;
    p.rows = rows, p.cols = cols, p.depth = depth;
    CHECK(planned(gpu_matrix_target(), 32, p) == (fills ? yes : "the largest product does not fill one of " + yes));
  }
  MatrixProduct floats = large;
  floats.a = floats.b = DType::f32;
  CHECK(planned(gpu_matrix_target(), 32, floats) == "the device has none of f32 and f32 with sums of f32");
  MatrixProduct mixed = large;
  mixed.b = DType::bf16;
  CHECK(planned(gpu_matrix_target(), 32, mixed) == "the device has none of f16 and bf16 with sums of f32");

  const std::string sizes = "subgroups of one size cannot be relied on";
  CHECK(planned(gpu_matrix_target(), 16, large) == sizes);
  for (const auto& without :
       {+[](Target& t) { t.subgroup_shuffle = false; }, +[](Target& t) { t.can_require_subgroup_size = false; },
        +[](Target& t) { t.max_loop_iterations = 100; }}) {
    Target t = gpu_matrix_target();
    without(t);
    CHECK(planned(t, 32, large) == sizes);
  }
  // 16 rows are more than a subgroup of 8.
  Target narrow = gpu_matrix_target();
  narrow.subgroup_size = 8;
  CHECK(planned(narrow, 8, large) == "the lanes of a subgroup do not hold the rows of one");
}

TEST_CASE("matrices: how a subgroup holds the rows of one") {
  const auto lanes = [](int m, int n, int subgroup) {
    const auto l = lowering::matrix_lanes({m, n, 16, DType::f16, DType::f16, DType::f32}, subgroup);
    return l ? std::pair(l->down, l->across) : std::pair(0, 0);
  };
  CHECK(lanes(16, 16, 32) == std::pair(16, 2));
  CHECK(lanes(32, 8, 32) == std::pair(32, 1));
  CHECK(lanes(8, 4, 32) == std::pair(8, 4));
  CHECK(lanes(8, 2, 32) == std::pair(0, 0));  // four beside each other for two columns
  CHECK(lanes(64, 16, 32) == std::pair(0, 0));
  CHECK(lanes(16, 16, 24) == std::pair(0, 0));  // 16 and a half
}

TEST_CASE("matrices: the largest shape, of those one that sums in the dtype that is wanted") {
  Target t = gpu_target();
  const auto add = [&](int m, int n, int k, DType a, DType sum) { t.matrices.push_back({m, n, k, a, a, sum}); };
  add(8, 8, 16, DType::i8, DType::i32), add(16, 16, 32, DType::i8, DType::u32), add(16, 16, 32, DType::i8, DType::i32);
  add(8, 8, 8, DType::f16, DType::f16), add(12, 16, 16, DType::f16, DType::f16), add(4, 4, 4, DType::f16, DType::f16);
  const auto shape = [&](DType a, DType sum) {
    const auto s = lowering::matrix_shape(t, a, a, sum);
    return s ? to_string(*s) : "none";
  };
  CHECK(shape(DType::i8, DType::i32) == "16x16x32 i8 i8 i32");
  CHECK(shape(DType::i8, DType::u32) == "16x16x32 i8 i8 u32");
  CHECK(shape(DType::f16, DType::f16) == "8x8x8 f16 f16 f16");  // 12 is no power of two
  CHECK(shape(DType::f16, DType::f32) == "none");
  t.int8 = false;
  CHECK(shape(DType::i8, DType::i32) == "none");
  t.float16 = false;
  CHECK(shape(DType::f16, DType::f16) == "none");
}

// A row of each tile has room for 16 bytes more than what is contracted. The right factor's may take two fifths of the
// shared memory, both three quarters, and a row of them 256 bytes.
TEST_CASE("matrices: all that is contracted at once, where the tiles leave room for other workgroups") {
  // The largest of each column keeps all rows in one workgroup, that of each row all columns.
  const auto at_once = [](int64_t rows, int64_t cols, int64_t depth, int64_t shared_bytes) {
    const std::string m = std::to_string(rows), n = std::to_string(cols), k = std::to_string(depth);
    const bool tall = rows > cols;
    const std::string text =
        "tir 1\nkernel @k\nin f16[" + m + ", " + k + "] whole\nin f16[" + k + ", " + n + "] whole\nout f32[" +
        (tall ? n : m) + "] whole\nbody (%x, %y, %o) {\n  %a = load %x[0:" + m + ", 0:" + k +
        "]\n  %b = load %y[0:" + k + ", 0:" + n + "]\n  %c = dot %a, %b " +
        "lhs_contract [1] rhs_contract [0] lhs_batch [] rhs_batch [] : f32[" + m + ", " + n +
        "]\n  %m = reduce_max %c axes [" + (tall ? "0" : "1") + "]\n  store %o[0:" + (tall ? n : m) + "], %m\n}\n";
    Target t = gpu_matrix_target();
    t.shared_bytes = shared_bytes;
    const int64_t bytes = compile(ir::parse(text, "k.tir"), t).shared_bytes;
    CHECK(bytes <= shared_bytes);
    return bytes >= (rows + cols) * (2 * depth + 16);
  };
  // 160 rows of 272 bytes, or of 144, are three quarters.
  CHECK(!at_once(128, 32, 128, 58026));
  CHECK(at_once(128, 32, 128, 58027));
  CHECK(!at_once(128, 32, 64, 30719));
  CHECK(at_once(128, 32, 64, 30720));
  // 128 rows of the right one are two fifths, beside whatever left one.
  for (const int64_t rows : {32, 64}) {
    CHECK(!at_once(rows, 128, 128, 87039));
    CHECK(at_once(rows, 128, 128, 87040));
  }
  for (const int64_t shared_bytes : {48 << 10, 64 << 10, 128 << 10}) CHECK(!at_once(128, 32, 144, shared_bytes));
}

namespace {
/// [37, 76] times [76, 45], or times [45, 76] turned, plus what the sums start from if `start` is set.
std::string product(const std::string& a, const std::string& b, bool turned, bool start) {
  const std::string shape = turned ? "[45, 76]" : "[76, 45]", slice = turned ? "[0:45, 0:76]" : "[0:76, 0:45]";
  return "tir 1\nkernel @k\nin " + a + "[37, 76] whole\nin " + b + shape +
         " whole\nin i32[37, 45] whole\nout i32[37, 45] whole\nbody (%0, %1, %2, %3) {\n  %a = load %0[0:37, 0:76]\n"
         "  %b = load %1" +
         slice + "\n  %c = load %2[0:37, 0:45]\n  %d = dot %a, %b" + (start ? ", %c" : "") +
         " lhs_contract [1] rhs_contract [" + (turned ? "1" : "0") +
         "] lhs_batch [] rhs_batch [] : i32[37, 45]\n  store %3[0:37, 0:45], %d\n}\n";
}
}  // namespace

// Devices that multiply signed bytes by unsigned ones alone make products of signed bytes, too (Qualcomm's).
TEST_CASE("matrices: packed products on devices that have instructions for some signs") {
  for (const int has : {0, 1, 2, 4, 7})
    for (const int signs : {0, 3})
      for (int form = 0; form < 4; ++form) {
        Target t = gpu_target();
        t.dot4_signed = has & 1, t.dot4_mixed = has & 2, t.dot4_unsigned = has & 4;
        const bool a = signs & 1, b = signs & 2;
        const ir::Kernel k = ir::parse(product(a ? "i8" : "u8", b ? "i8" : "u8", form & 1, form & 2), "k.tir");
        CAPTURE(has);
        CAPTURE(signs);
        CAPTURE(form);
        ir::Kernel lanes;
        CompileOptions options;
        options.dump = [&](std::string_view, const ir::Kernel& now, bool) {
          if (now.level == ir::Level::lane) lanes = now;
        };
        compile(k, t, options);
        const bool packed =
            ir::any_op(lanes, lanes.body, [&](ir::OpId id) { return lanes.op(id).code == ir::Opcode::dot4; });
        CHECK(packed == (a && b ? t.dot4_signed || t.dot4_mixed : a || b ? t.dot4_mixed : t.dot4_unsigned));
        std::vector<Array> in{Array({37, 76}, a ? DType::i8 : DType::u8),
                              Array(form & 1 ? Shape{45, 76} : Shape{76, 45}, b ? DType::i8 : DType::u8),
                              Array({37, 45}, DType::i32)};
        uint64_t bits = 12345;
        for (Array& x : in)
          for (int64_t i = 0; i < x.size(); ++i) {
            bits = bits * 6364136223846793005u + 1442695040888963407u;
            x.set_element_bits(i, bits >> 33 & (x.dtype() == DType::i32 ? 0xffffffff : 0xff));
          }
        const Array wanted = interpret(k, in)[0];
        lane::RunOptions run;
        run.subgroup_size = t.subgroup_size;
        std::vector<Array> all = in;
        all.emplace_back(Shape{37, 45}, DType::i32);
        const lane::RunResult r = lane::run(lanes, all, k.num_inputs, {}, run);
        for (const std::string& s : r.reports) FAIL_CHECK(s);
        int64_t wrong = 0;
        for (int64_t i = 0; i < wanted.size(); ++i) wrong += r.outputs[0].element_bits(i) != wanted.element_bits(i);
        CHECK(wrong == 0);
      }
}

}  // namespace matrices_test
