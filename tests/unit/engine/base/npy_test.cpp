// .npy files: what NumPy writes is read right, and what is broken is refused in these words.
#include "engine/base/npy.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <string>

namespace npy_test {
using namespace tessera;
namespace {
// A version 1 file with this header text and these element bytes.
std::string file(const std::string& header, const std::string& data, char version = 1) {
  std::string s = std::string("\x93NUMPY") + version + '\0';
  const size_t digits = version == 1 ? 2 : 4;
  for (size_t i = 0; i < digits; ++i) s += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return s + header + data;
}
std::string dict(const std::string& descr, const std::string& shape, const char* fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }      \n";
}
template <class T> std::string raw(const std::vector<T>& v) {
  return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)};
}
Array parse(const std::string& bytes, std::optional<DType> wanted = std::nullopt) {
  return parse_npy(bytes, "x.npy", wanted);
}
}  // namespace

TEST_CASE("npy: every dtype survives writing and reading") {
  const std::string path = (std::filesystem::temp_directory_path() / "tessera_npy_test.npy").string();
  for (int i = 0; i < kNumDTypes; ++i)
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 3}, Shape{0, 4}, Shape{1, 1, 2}}) {
      Array a(shape, static_cast<DType>(i));
      for (int64_t e = 0; e < a.size(); ++e)
        a.set_element_bits(
            e, a.dtype() == boolean ? static_cast<uint64_t>(e & 1) : 0x1122334455667788u + static_cast<uint64_t>(e));
      const std::string bytes = format_npy(a);
      CHECK((bytes.size() - static_cast<size_t>(a.nbytes())) % 64 == 0);
      write_npy(path, a);
      const bool named = is_float8(a.dtype()) || is_int4(a.dtype());  // what the file does not say
      for (const Array& b :
           {parse(bytes, named ? std::optional(a.dtype()) : std::nullopt), read_npy(path, a.dtype())}) {
        CHECK(b.dtype() == a.dtype());
        CHECK(b.shape() == a.shape());
        CHECK(std::equal(a.bytes(), a.bytes() + a.nbytes(), b.bytes()));
      }
    }
  std::filesystem::remove(path);
  CHECK_THROWS_WITH_AS(read_npy(path), (path + ": no such file").c_str(), SpecError);
  const std::string folder = std::filesystem::temp_directory_path().string();
  CHECK_THROWS_WITH_AS(read_npy(folder), (folder + ": not a regular file").c_str(), SpecError);
  CHECK_THROWS_WITH_AS(write_npy(path + "/none/x.npy", Array()), (path + "/none/x.npy: cannot be created").c_str(),
                       Error);
}

TEST_CASE("npy: the bytes that NumPy writes") {
  const Array bf(Shape{3}, std::vector<bfloat16_t>{bfloat16_t(0), bfloat16_t(1), bfloat16_t(2)});
  std::string expected("\x93NUMPY\x01\x00v\x00{'descr': '<V2', 'fortran_order': False, 'shape': (3,), }", 67);
  expected.resize(127, ' ');
  expected += std::string("\n\x00\x00\x80?\x00@", 7);
  CHECK(format_npy(bf) == expected);
  CHECK(parse(expected).dtype() == bf16);
  CHECK(parse(expected, u16).element_bits(1) == 0x3f80);
}

TEST_CASE("npy: 8-bit floats and 4-bit integers are raw bytes") {
  for (const DType t : {f8e4m3fn, i4, u4}) {  // as NumPy writes ml_dtypes' own
    const Array a = parse(file(dict("<V1", "(3,)"), "\x01\x0f\x08"), t);
    CHECK(a.dtype() == t);
    CHECK(a.element_bits(1) == 15);
    CHECK(format_npy(a).substr(11, 14) == "'descr': '|V1'");
  }
  CHECK(parse(file(dict("<f1", "(1,)"), "\x3c")).dtype() == f8e5m2);
  CHECK(parse(file(dict("<f1", "(1,)"), "\x3c"), f8e5m2).at(0) == 1);
  CHECK(parse(file(dict("|u1", "(2,)"), "\x38\x7f"), f8e4m3fn).at(0) == 1);
  CHECK(parse(file(dict("|u1", "(1,)"), "\xf9"), i4).at(0) == -7);
  CHECK(parse(file(dict("|u1", "(1,)"), "\xf9"), i4).bytes()[0] == std::byte{9});
  const auto refuses = [](const std::string& descr, const std::string& message, std::optional<DType> wanted) {
    CHECK_THROWS_WITH_AS(parse(file(dict(descr, "(1,)"), "a"), wanted), message.c_str(), SpecError);
  };
  const std::string note =
      "\n  note: NumPy writes float8_e4m3fn, int4 and uint4 so; they are read where the kernel's operand is f8e4m3fn, "
      "f8e5m2, i4 or u4";
  refuses("<V1", "x.npy: dtype '<V1' holds one raw byte per element, and nothing says of which dtype" + note,
          std::nullopt);
  refuses("|V1", "x.npy: dtype '|V1' holds one raw byte per element but f32 is wanted" + note, f32);
  refuses("<f1", "x.npy: dtype '<f1' is float8_e5m2 but f8e4m3fn is wanted", f8e4m3fn);
}

TEST_CASE("npy: versions, orders and byte orders") {
  const std::string header = dict("<i4", "(2, 3)"), data = raw<int32_t>({1, 2, 3, 4, 5, 6});
  for (char version : {1, 2, 3}) CHECK(parse(file(header, data, version)).at(5) == 6);
  const Array t = parse(file(dict("<i4", "(2, 3)", "True"), data));  // the file holds columns: (1, 2), (3, 4), (5, 6)
  CHECK(t.data<int32_t>()[0] == 1);
  CHECK(t.data<int32_t>()[1] == 3);
  CHECK(t.data<int32_t>()[2] == 5);
  CHECK(t.data<int32_t>()[3] == 2);
  CHECK(t.data<int32_t>()[5] == 6);
  const Array c = parse(file(dict("<i4", "(2, 1, 3)", "True"), data));
  CHECK(c.data<int32_t>()[1] == 3);
  const Array big = parse(file(dict(">i2", "(2,)"), std::string("\x01\x02\xff\xfe", 4)));
  CHECK(big.data<int16_t>()[0] == 0x0102);
  CHECK(big.data<int16_t>()[1] == -2);
  CHECK(parse(file(dict(">f8", "()"), std::string("\x3f\xf0\0\0\0\0\0\0", 8))).at(0) == 1.0);
  CHECK(parse(file(dict("|b1", "(2,)"), std::string("\x02\x00", 2))).element_bits(0) == 1);
  CHECK(parse(file("{\"shape\": (2,), \"descr\": \"|u1\", \"fortran_order\": False}", "ab")).at(1) == 'b');
}

TEST_CASE("npy: broken files are refused") {
  const auto refuses = [](const std::string& bytes, const std::string& message,
                          std::optional<DType> wanted = std::nullopt) {
    CHECK_THROWS_WITH_AS(parse(bytes, wanted), message.c_str(), SpecError);
  };
  const std::string good = file(dict("<f4", "(2,)"), raw<float>({1, 2}));
  refuses("", "x.npy: truncated: 0 bytes are no .npy file");
  refuses(good.substr(0, 9), "x.npy: truncated: 9 bytes are no .npy file");
  refuses("PK\x03\x04 a zip archive", "x.npy: not a .npy file");
  refuses(good.substr(0, 40), "x.npy: truncated: the header has 64 bytes but 30 are there");
  refuses(good.substr(0, good.size() - 1), "x.npy: truncated: f32 (2,) needs 8 bytes after the header but 7 are there");
  refuses(good + "xy", "x.npy: 2 bytes too many: f32 (2,) needs 8 after the header");
  refuses(file(dict("<f4", "(1000000000000,)"), "abcd"),
          "x.npy: truncated: f32 (1000000000000,) needs 4000000000000 bytes after the header but 4 are there");
  refuses(file(dict("<f4", "(4611686018427387904, 4611686018427387904)"), ""),
          "x.npy: shape (4611686018427387904, 4611686018427387904) exceeds 64-bit sizes");
  refuses(file(dict("<f4", "(0, 4611686018427387904, 4611686018427387904)"), ""),
          "x.npy: shape (0, 4611686018427387904, 4611686018427387904) exceeds 64-bit sizes");
  refuses(file(dict("<f4", "(99999999999999999999,)"), ""),
          "x.npy: header: expected a size of at most 63 bits at byte 51 of \"{'descr': '<f4', 'fortran_order': False, "
          "'shape': (99999999999999999999,), }\"");
  refuses(file(dict("<f4", "(-1,)"), ""),
          "x.npy: header: expected a size that is not negative at byte 51 of \"{'descr': '<f4', 'fortran_order': "
          "False, 'shape': (-1,), }\"");
  refuses(file(dict("<f4", "(2)"), raw<float>({1, 2})),
          "x.npy: header: expected a tuple, not a number in parentheses, at byte 53 of \"{'descr': '<f4', "
          "'fortran_order': False, 'shape': (2), }\"");
  refuses(file(dict("<f4", "(2,)", "Maybe"), raw<float>({1, 2})),
          "x.npy: header: expected True or False at byte 34 of \"{'descr': '<f4', 'fortran_order': Maybe, 'shape': "
          "(2,), }\"");
  refuses(file("{'descr': '<f4', 'shape': (2,)}", raw<float>({1, 2})), "x.npy: header lacks the key 'fortran_order'");
  refuses(file("{'descr': '<f4', 'descr': '<i4'}", ""), "x.npy: header: unexpected or repeated key 'descr'");
  refuses(file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", ""),
          "x.npy: structured dtypes are not supported");
  refuses(file(dict("<c8", "(1,)"), raw<float>({1, 2})),
          "x.npy: dtype '<c8' is not supported\n  note: use bool, int4 to int64, uint4 to uint64, float8_e4m3fn, "
          "float8_e5m2, float16, bfloat16, float32 or float64");
  refuses(file(dict("f4", "(2,)"), raw<float>({1, 2})),
          "x.npy: dtype 'f4' has no byte order\n  note: the first character is one of < > |");
  refuses(file(dict("<V2", "(1,)"), "ab"),
          "x.npy: dtype '<V2' holds two raw bytes per element but f32 is wanted\n  note: NumPy writes bfloat16 so",
          f32);
  refuses(file("not a dict", ""), "x.npy: header: expected '{' at byte 0 of \"not a dict\"");
  refuses(file("{'descr", ""), "x.npy: header: expected a string that ends at byte 1 of \"{'descr\"");
  refuses(std::string("\x93NUMPY\x07\x00\x00\x00", 10),
          "x.npy: version 7.0 of the format is not supported\n  note: 1.0, 2.0 and 3.0 are");
}

TEST_CASE("npy: extremes of order, rank and size") {
  // Columns of big-endian elements; one element, none, and none in any order.
  const Array both = parse(
      file(dict(">i4", "(2, 3)", "True"), std::string("\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\5\xff\xff\xff\xfa", 24)));
  for (int i = 0; i < 6; ++i) CHECK(both.data<int32_t>()[i] == std::array{1, 3, 5, 2, 4, -6}[static_cast<size_t>(i)]);
  CHECK(parse(file(dict("<i2", "()", "True"), raw<int16_t>({7}))).at(0) == 7);
  CHECK(parse(file(dict("<i2", "(0,)", "True"), "")).shape() == Shape{0});
  CHECK(parse(file(dict("<i2", "(3, 0, 5)", "True"), "")).shape() == Shape{3, 0, 5});
  const auto refuses = [](const std::string& bytes, const std::string& message) {
    CHECK_THROWS_WITH_AS(parse(bytes), message.c_str(), SpecError);
  };
  refuses(file(dict("<i2", "(3, 0, 9223372036854775807)"), ""),
          "x.npy: shape (3, 0, 9223372036854775807) exceeds 64-bit sizes");
  refuses(
      file(dict("<i1", "(9223372036854775807,)"), ""),
      "x.npy: truncated: i8 (9223372036854775807,) needs 9223372036854775807 bytes after the header but 0 are there");
  refuses(file(dict("<i1", "(9223372036854775808,)"), ""),
          "x.npy: header: expected a size of at most 63 bits at byte 51 of \"{'descr': '<i1', 'fortran_order': False, "
          "'shape': (9223372036854775808,), }\"");
  // More dims than anybody has, in a header that is long but there, and in one whose length is not.
  std::string ones = "(";
  for (int i = 0; i < 100'000; ++i) ones += "1,";
  for (const char* order : {"False", "True"}) {
    try {
      CHECK(parse(file(dict("<i1", ones + ")", order), "a", 2)).size() == 1);
    } catch (const SpecError& e) {
      CHECK(std::string(e.what()).size() < 500);
    }
  }
  std::string beyond = file(dict("<i1", "(1,)"), "a", 2);
  beyond[8] = beyond[9] = beyond[10] = beyond[11] = '\xff';
  CHECK_THROWS_AS(parse(beyond), SpecError);
}

TEST_CASE("npy: no cut and no changed byte of a file crashes the reader") {
  const std::string good = file(dict("<f4", "(2, 3)", "True"), raw<float>({1, 2, 3, 4, 5, 6}));
  int refused = 0;
  for (size_t n = 0; n < good.size(); ++n) CHECK_THROWS_AS(parse(good.substr(0, n)), SpecError);
  for (size_t i = 0; i < good.size() - 24; ++i)
    for (int b = 0; b < 256; ++b) {
      std::string bad = good;
      bad[i] = static_cast<char>(b);
      try {
        const Array a = parse(bad);  // a byte of the padding, or one that turns the shape into another of 24 bytes
        if (a.nbytes() != 24) FAIL_CHECK("byte ", i, " = ", b, " is misread");
      } catch (const SpecError&) {
        ++refused;
      }
    }
  CHECK(refused > 10000);
}

}  // namespace npy_test
