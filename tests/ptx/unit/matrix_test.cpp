// Products of matrices in registers: the fragments of every shape are made by the manual's formulas, element by
// element.
#include <doctest/doctest.h>

#include <cstring>

#include "tests/ptx/emulator.h"
#include "tests/ptx/numbers.h"
#include "tests/ptx/unit/assembled.h"

namespace matrix_test {
using namespace tessera::ptx;

namespace {

struct Place {
  uint32_t row, column;
};
/// Where element i of a fragment is, for group = lane / 4 and in = lane % 4.
using At = Place (*)(uint32_t i, uint32_t group, uint32_t in);

struct Case {
  const char* shape;
  const char* into;
  const char* a;
  const char* b;
  uint32_t m, n, k;
  At at_a, at_b, at_c;
};

Place a_half16(uint32_t i, uint32_t g, uint32_t t) {
  return {i < 2 || (i >= 4 && i < 6) ? g : g + 8, t * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
}
Place b_half16(uint32_t i, uint32_t g, uint32_t t) { return {t * 2 + (i & 1) + (i >= 2 ? 8 : 0), g}; }
Place a_half8(uint32_t i, uint32_t g, uint32_t t) { return {i < 2 ? g : g + 8, t * 2 + (i & 1)}; }
Place b_half8(uint32_t i, uint32_t g, uint32_t t) { return {t * 2 + i, g}; }
Place a_word4(uint32_t i, uint32_t g, uint32_t t) { return {i == 0 ? g : g + 8, t}; }
Place b_word4(uint32_t, uint32_t g, uint32_t t) { return {t, g}; }
Place a_word8(uint32_t i, uint32_t g, uint32_t t) { return {i == 0 || i == 2 ? g : g + 8, i < 2 ? t : t + 4}; }
Place b_word8(uint32_t i, uint32_t g, uint32_t t) { return {i == 0 ? t : t + 4, g}; }
Place a_byte16(uint32_t i, uint32_t g, uint32_t t) { return {i < 4 ? g : g + 8, t * 4 + (i & 3)}; }
Place b_byte16(uint32_t i, uint32_t g, uint32_t t) { return {t * 4 + i, g}; }
Place a_byte32(uint32_t i, uint32_t g, uint32_t t) {
  return {i < 4 || (i >= 8 && i < 12) ? g : g + 8, t * 4 + (i & 3) + (i < 8 ? 0 : 16)};
}
Place b_byte32(uint32_t i, uint32_t g, uint32_t t) { return {t * 4 + (i & 3) + (i < 4 ? 0 : 16), g}; }
Place a_row8(uint32_t i, uint32_t g, uint32_t t) { return {g, t * 4 + i}; }
Place a_double4(uint32_t, uint32_t g, uint32_t t) { return {g, t}; }
Place a_double16(uint32_t i, uint32_t g, uint32_t t) { return {i % 2 == 0 ? g : g + 8, i / 2 * 4 + t}; }
Place b_double16(uint32_t i, uint32_t g, uint32_t t) { return {i * 4 + t, g}; }
Place c_16(uint32_t i, uint32_t g, uint32_t t) { return {i < 2 ? g : g + 8, t * 2 + (i & 1)}; }
Place c_8(uint32_t i, uint32_t g, uint32_t t) { return {g, t * 2 + i}; }

const Case kCases[] = {{"m16n8k16", "f32", "f16", "f16", 16, 8, 16, a_half16, b_half16, c_16},
                       {"m16n8k16", "f16", "f16", "f16", 16, 8, 16, a_half16, b_half16, c_16},
                       {"m16n8k8", "f32", "f16", "f16", 16, 8, 8, a_half8, b_half8, c_16},
                       {"m16n8k8", "f16", "f16", "f16", 16, 8, 8, a_half8, b_half8, c_16},
                       {"m16n8k16", "f32", "bf16", "bf16", 16, 8, 16, a_half16, b_half16, c_16},
                       {"m16n8k8", "f32", "bf16", "bf16", 16, 8, 8, a_half8, b_half8, c_16},
                       {"m16n8k4", "f32", "tf32", "tf32", 16, 8, 4, a_word4, b_word4, c_16},
                       {"m16n8k8", "f32", "tf32", "tf32", 16, 8, 8, a_word8, b_word8, c_16},
                       {"m16n8k32", "f32", "e4m3", "e5m2", 16, 8, 32, a_byte32, b_byte32, c_16},
                       {"m16n8k32", "f32", "e5m2", "e5m2", 16, 8, 32, a_byte32, b_byte32, c_16},
                       {"m16n8k16", "s32", "s8", "u8", 16, 8, 16, a_byte16, b_byte16, c_16},
                       {"m16n8k32", "s32", "s8", "s8", 16, 8, 32, a_byte32, b_byte32, c_16},
                       {"m8n8k16", "s32", "u8", "s8", 8, 8, 16, a_row8, b_byte16, c_8},
                       {"m8n8k4", "f64", "f64", "f64", 8, 8, 4, a_double4, b_word4, c_8},
                       {"m16n8k4", "f64", "f64", "f64", 16, 8, 4, a_word4, b_word4, c_16},
                       {"m16n8k8", "f64", "f64", "f64", 16, 8, 8, a_word8, b_word8, c_16},
                       {"m16n8k16", "f64", "f64", "f64", 16, 8, 16, a_double16, b_double16, c_16}};

/// A matrix as fragments: words, lane by lane.
std::vector<uint32_t> fragments(const std::vector<int>& x, uint32_t columns, Type t, uint32_t elements, At at) {
  const uint32_t w = width_of(t);
  std::vector<uint32_t> words(32 * elements * w / 32);
  auto* bytes = reinterpret_cast<uint8_t*>(words.data());
  for (uint32_t lane = 0; lane < 32; ++lane)
    for (uint32_t i = 0; i < elements; ++i) {
      const Place p = at(i, lane / 4, lane % 4);
      const int v = x[p.row * columns + p.column];
      const uint64_t bits = t == Type::tf32 ? narrow(Type::f32, v, Round::even)
                            : is_float(t)   ? narrow(t, v, Round::even)
                                            : static_cast<uint64_t>(static_cast<int64_t>(v));
      std::memcpy(bytes + (lane * elements + i) * w / 8, &bits, w / 8);
    }
  return words;
}

std::string list(const std::string& name, uint32_t n) {
  std::string s = "{";
  for (uint32_t k = 0; k < n; ++k) s += (k ? ", %" : "%") + name + std::to_string(k);
  return s + "}";
}

std::string kernel(const Case& c, uint32_t na, uint32_t nb, uint32_t nc, bool wide) {
  const std::string bits = wide ? "64" : "32";
  std::string s =
      ".version 8.4\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, "
      ".param .u64 d)\n{\n.reg .b64 %q<8>; .reg .b32 %r<4>;\n.reg .b" +
      bits + " %a<16>; .reg .b" + bits + " %b<16>; .reg .b" + bits + " %c<16>; .reg .b" + bits +
      " %d<16>;\nmov.u32 %r0, %tid.x;\n";
  const auto loads = [&](const std::string& name, uint32_t n) {
    s += "ld.param.u64 %q0, [" + name + "]; mul.wide.u32 %q1, %r0, " + std::to_string(n * (wide ? 8 : 4)) +
         "; add.u64 %q0, %q0, %q1;\n";
    for (uint32_t k = 0; k < n; ++k)
      s += "ld.global.b" + bits + " %" + name + std::to_string(k) + ", [%q0+" + std::to_string(k * (wide ? 8 : 4)) +
           "];\n";
  };
  loads("a", na), loads("b", nb), loads("c", nc);
  const auto all = [&](const std::string& name, uint32_t n) { return n == 1 ? "{%" + name + "0}" : list(name, n); };
  s += std::string("mma.sync.aligned.") + c.shape + ".row.col." + c.into + "." + c.a + "." + c.b + "." + c.into + " " +
       all("d", nc) + ", " + all("a", na) + ", " + all("b", nb) + ", " + all("c", nc) + ";\n";
  s += "ld.param.u64 %q0, [d]; mul.wide.u32 %q1, %r0, " + std::to_string(nc * (wide ? 8 : 4)) +
       "; add.u64 %q0, %q0, %q1;\n";
  for (uint32_t k = 0; k < nc; ++k)
    s += "st.global.b" + bits + " [%q0+" + std::to_string(k * (wide ? 8 : 4)) + "], %d" + std::to_string(k) + ";\n";
  return s + "ret;\n}\n";
}

std::span<std::byte> bytes(std::vector<uint32_t>& v) { return std::as_writable_bytes(std::span(v)); }

}  // namespace

TEST_CASE("mma.sync: every shape, by the manual's fragments") {
  std::string everything;
  for (const Case& c : kCases) {
    const Type a_type = type_of(c.a), b_type = type_of(c.b), into = type_of(c.into);
    CAPTURE(std::string(c.shape) + " " + c.into + " " + c.a);
    Random r{c.k};
    const auto matrix = [&](uint32_t n, bool sign) {
      std::vector<int> x(n);
      for (int& v : x) v = static_cast<int>(r.below(5)) - (sign ? 2 : 0);
      return x;
    };
    const std::vector<int> a = matrix(c.m * c.k, c.a[0] != 'u'), b = matrix(c.k * c.n, c.b[0] != 'u'),
                           sums = matrix(c.m * c.n, true);
    std::vector<int> want = sums;
    for (uint32_t i = 0; i < c.m; ++i)
      for (uint32_t j = 0; j < c.n; ++j)
        for (uint32_t k = 0; k < c.k; ++k) want[i * c.n + j] += a[i * c.k + k] * b[k * c.n + j];
    std::vector<uint32_t> fa = fragments(a, c.k, a_type, c.m * c.k / 32, c.at_a),
                          fb = fragments(b, c.n, b_type, c.k * c.n / 32, c.at_b);
    std::vector<uint32_t> fc = fragments(sums, c.n, into, c.m * c.n / 32, c.at_c), fd(fc.size());
    const std::vector<uint32_t> expected = fragments(want, c.n, into, c.m * c.n / 32, c.at_c);
    const bool wide = into == Type::f64;
    const auto registers = [&](const std::vector<uint32_t>& f) {
      return static_cast<uint32_t>(f.size() / 32 / (wide ? 2 : 1));
    };
    const std::string text = kernel(c, registers(fa), registers(fb), registers(fc), wide);
    Launch l;
    l.block[0] = 32;
    l.buffer({.name = "a", .bytes = bytes(fa)})
        .buffer({.name = "b", .bytes = bytes(fb)})
        .buffer({.name = "c", .bytes = bytes(fc)});
    l.buffer({.name = "d", .bytes = bytes(fd), .initialised = false});
    for (l.seed = 0; l.seed < 3; ++l.seed) {
      const Result result = run(parse(text), l);
      CHECK_MESSAGE(result.ok(), result.text);
      CHECK(fd == expected);
    }
    CHECK(assembled(text, "sm_90"));
  }
}

TEST_CASE("ldmatrix feeds mma.sync; a swapped fragment is seen") {
  // a[16][16] by rows; b[8][16] by columns of the product, or b[16][8] transposed on the way
  const std::string text = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
  .reg .b64 %q<8>; .reg .b32 %r<16>; .reg .b32 %a<4>; .reg .b32 %b<2>; .reg .f32 %d<4>;
  .shared .align 16 .b8 s[1024];
  mov.u32 %r0, %tid.x;
  ld.param.u64 %q0, [in];
  mul.wide.u32 %q1, %r0, 32;
  add.u64 %q0, %q0, %q1;
  mov.u32 %r1, s;
  shl.b32 %r2, %r0, 5;
  add.u32 %r2, %r1, %r2;
  ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%q0];
  st.shared.v4.u32 [%r2], {%r4, %r5, %r6, %r7};
  ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%q0+16];
  st.shared.v4.u32 [%r2+16], {%r4, %r5, %r6, %r7};
  bar.warp.sync 0xffffffff;
  // lane l has row l % 16, and columns 0 or 8: rows of 32 bytes
  and.b32 %r3, %r0, 15;
  shl.b32 %r3, %r3, 5;
  and.b32 %r4, %r0, 16;
  add.u32 %r3, %r3, %r4;
  add.u32 %r3, %r3, %r1;
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%a0, %a1, %a2, %a3}, [%r3];
  and.b32 %r3, %r0, 7;
  shl.b32 %r3, %r3, 5;
  and.b32 %r4, %r0, 8;
  shl.b32 %r4, %r4, 1;
  add.u32 %r3, %r3, %r4;
  add.u32 %r3, %r3, %r1;
  ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%b0, %b1}, [%r3+512];
  mov.f32 %d0, 0f00000000; mov.f32 %d1, 0f00000000; mov.f32 %d2, 0f00000000; mov.f32 %d3, 0f00000000;
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%d0, %d1, %d2, %d3}, {%a0, %a1, %a2, %a3}, {%b0, %b1}, {%d0, %d1, %d2, %d3};
  ld.param.u64 %q2, [out];
  shr.u32 %r5, %r0, 2;
  shl.b32 %r5, %r5, 5;
  and.b32 %r6, %r0, 3;
  shl.b32 %r6, %r6, 3;
  add.u32 %r5, %r5, %r6;
  cvt.u64.u32 %q3, %r5;
  add.u64 %q2, %q2, %q3;
  st.global.v2.f32 [%q2], {%d0, %d1};
  st.global.v2.f32 [%q2+256], {%d2, %d3};
  ret;
})";
  CHECK(assembled(text, "sm_80"));
  std::vector<uint16_t> in(512);
  Random r{4};
  std::vector<int> a(256), b(128);
  for (uint32_t k = 0; k < 256; ++k)
    a[k] = static_cast<int>(r.below(9)) - 4, in[k] = static_cast<uint16_t>(narrow(Type::f16, a[k], Round::even));
  for (uint32_t k = 0; k < 128; ++k)
    b[k] = static_cast<int>(r.below(9)) - 4, in[256 + k] = static_cast<uint16_t>(narrow(Type::f16, b[k], Round::even));
  const auto right = [&](const std::string& t) {
    std::vector<float> out(128);
    Launch l;
    l.block[0] = 32;
    l.buffer({.name = "in", .bytes = std::as_writable_bytes(std::span(in))})
        .buffer({.name = "out", .bytes = std::as_writable_bytes(std::span(out)), .initialised = false});
    const Result result = run(parse(t), l);
    CHECK_MESSAGE(result.ok(), result.text);
    bool same = true;
    for (uint32_t i = 0; i < 16; ++i)
      for (uint32_t j = 0; j < 8; ++j) {
        int sum = 0;
        for (uint32_t k = 0; k < 16; ++k) sum += a[i * 16 + k] * b[j * 16 + k];
        same = same && out[i * 8 + j] == static_cast<float>(sum);
      }
    return same;
  };
  CHECK(right(text));
  const auto changed = [&](const std::string& what, const std::string& into) {
    std::string t = text;
    return t.replace(t.find(what), what.size(), into);
  };
  CHECK_FALSE(right(changed("{%a0, %a1, %a2, %a3}, {%b0, %b1}", "{%a0, %a2, %a1, %a3}, {%b0, %b1}")));
  CHECK_FALSE(right(changed("{%a0, %a1, %a2, %a3}, {%b0, %b1}", "{%a0, %a1, %a2, %a3}, {%b1, %b0}")));
  CHECK_FALSE(right(changed("x2.shared", "x2.trans.shared")));
  CHECK_FALSE(right(changed("{%d2, %d3};\n  ret", "{%d3, %d2};\n  ret")));
  // What stops it.
  const auto fault = [&](const std::string& t) {
    std::vector<float> out(128);
    Launch l;
    l.block[0] = 32;
    l.buffer({.name = "in", .bytes = std::as_writable_bytes(std::span(in))})
        .buffer({.name = "out", .bytes = std::as_writable_bytes(std::span(out)), .initialised = false});
    return run(parse(t), l).fault;
  };
  CHECK(fault(text) == Fault::none);
  CHECK(fault(changed("[%r3];", "[%r3+8];")) == Fault::alignment);
  CHECK(fault(changed("[%r3];", "[%r3+1024];")) == Fault::bounds);
  CHECK(fault(changed("  bar.warp.sync 0xffffffff;\n", "")) == Fault::race);
  CHECK(fault(changed("  st.shared.v4.u32 [%r2+16], {%r4, %r5, %r6, %r7};\n", "")) == Fault::poison);
  const std::string half = "setp.lt.u32 %half, %r0, 16;\n  @%half ";
  for (const char* code : {"ldmatrix.sync.aligned.m8n8.x4", "mma.sync"}) {
    std::string t = changed(code, half + code);
    t.insert(t.find("  .reg .b64"), "  .reg .pred %half;\n");
    const Fault f = fault(t);
    CHECK((f == Fault::divergence || f == Fault::deadlock));
  }
  // By columns: a row of memory is a column of a.
  for (uint32_t i = 0; i < 16; ++i)
    for (uint32_t k = 0; k < 16; ++k)
      in[k * 16 + i] = static_cast<uint16_t>(narrow(Type::f16, a[i * 16 + k], Round::even));
  std::string turned = changed("ldmatrix.sync.aligned.m8n8.x4.shared", "ldmatrix.sync.aligned.m8n8.x4.trans.shared");
  const std::string by_rows = "and.b32 %r3, %r0, 15;\n  shl.b32 %r3, %r3, 5;\n  and.b32 %r4, %r0, 16;\n",
                    by_columns =
                        "and.b32 %r3, %r0, 7;\n  and.b32 %r4, %r0, 16;\n  shr.b32 %r4, %r4, 1;\n  add.u32 %r3, %r3, "
                        "%r4;\n  shl.b32 %r3, %r3, 5;\n  and.b32 %r4, %r0, 8;\n  shl.b32 %r4, %r4, 1;\n";
  turned.replace(turned.find(by_rows), by_rows.size(), by_columns);
  CHECK(right(turned));
  CHECK_FALSE(right(text));
}

}  // namespace matrix_test
