// .safetensors files: what is written is read back; what is damaged is refused, with the place and both numbers.
#include "samples/transformer/safetensors.h"

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/samples/program.h"

namespace safetensors_test {
using namespace transformer;
using tessera::Array, tessera::DType;

namespace {

std::string with_size(const std::string& header, const std::string& data, uint64_t size) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(size >> (8 * i) & 255);
  return bytes + header + data;
}
std::string file_of(const std::string& header, const std::string& data = "") {
  return with_size(header, data, header.size());
}

std::string error(const std::string& bytes) {
  try {
    parse_safetensors(bytes, "m.st");
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "";
}
std::string with_tensor(const std::string& entry, const std::string& data = "12345678") {
  return error(file_of("{\"w\":" + entry + "}", data));
}

}  // namespace

TEST_CASE("safetensors: every dtype comes back, bits and all") {
  SafeTensors file;
  file.metadata = {{"heads", "8"}, {"note", "quotes \" and \xc3\xa4"}};
  for (const DType t : {tessera::boolean, tessera::u8, tessera::i8, tessera::f8e4m3fn, tessera::f8e5m2, tessera::u16,
                        tessera::i16, tessera::f16, tessera::bf16, tessera::u32, tessera::i32, tessera::f32,
                        tessera::u64, tessera::i64, tessera::f64}) {
    Array a({3, 5}, t);
    for (int64_t i = 0; i < a.size(); ++i)
      a.set_element_bits(
          i, t == tessera::boolean ? static_cast<uint64_t>(i % 2) : static_cast<uint64_t>(i) * 0x0123456789abcdef);
    file.tensors.emplace("of " + std::string(tessera::name(t)), a);
  }
  file.tensors.emplace("scalar", Array({}, std::vector<float>{1.5f}));
  file.tensors.emplace("empty", Array({4, 0}, tessera::f16));
  const std::string bytes = format_safetensors(file);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  CHECK(header % 8 == 0);
  const SafeTensors back = parse_safetensors(bytes, "m.st");
  CHECK(back.metadata == file.metadata);
  REQUIRE(back.tensors.size() == file.tensors.size());
  for (const auto& [name, a] : file.tensors) {
    const Array& b = back.tensors.at(name);
    CHECK(b.shape() == a.shape());
    CHECK(b.dtype() == a.dtype());
    CHECK(std::memcmp(b.bytes(), a.bytes(), static_cast<size_t>(a.nbytes())) == 0);
  }
  CHECK(parse_safetensors(format_safetensors({}), "m.st").tensors.empty());
  CHECK_THROWS_WITH(format_safetensors({{{"q", Array({2}, tessera::i4)}}, {}}),
                    "tensor \"q\": .safetensors files have no i4");
}

TEST_CASE("safetensors: a damaged header") {
  CHECK(error("1234567") == "m.st: the file has 7 bytes, not even the 8 of the header's size");
  CHECK(error(with_size("{}", "", 3)) == "m.st: the header is said to have 3 bytes, but 2 follow");
  CHECK(error(with_size("{}", "", ~uint64_t{0})) ==
        "m.st: the header is said to have 18446744073709551615 bytes, more than the 100000000 of the format");
  CHECK(error(file_of("{\"w\":")) == "m.st: the header is no JSON at its byte 6");
  CHECK(error(file_of("[1]")) == "m.st: the header is no JSON object");
  CHECK(error(file_of("")) == "m.st: the header is no JSON at its byte 1");
  CHECK(error(file_of("{\"__metadata__\":3}")) == "m.st: __metadata__ is no JSON object");
  CHECK(error(file_of("{\"__metadata__\":{\"a\":3}}")) == "m.st: \"a\" of __metadata__ is no string");
  CHECK(error(file_of("{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"w\":{\"dtype\":\"U8\","
                      "\"shape\":[1],\"data_offsets\":[1,2]}}",
                      "12")) == "m.st: the header names \"w\" twice");
  const std::string deep(1000000, '[');
  CHECK(error(file_of(deep)) == "m.st: the header nests values more than 8 deep");
  CHECK(error(file_of("{\"w\":{\"dtype\":" + deep)) == "m.st: the header nests values more than 8 deep");
  CHECK(error(file_of("{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"shape\":[2],\"data_offsets\":[0,2]}}", "12")) ==
        "m.st: the header names \"shape\" twice");
}

TEST_CASE("safetensors: damaged tensors") {
  const std::string here = "m.st: tensor \"w\": ";
  CHECK(with_tensor("7") == here + "is no JSON object");
  CHECK(with_tensor("{\"dtype\":\"F32\",\"shape\":[2]}") == here + "has no \"data_offsets\"");
  CHECK(with_tensor("{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}") ==
        here + "the dtype \"F33\" is none of the format's");
  CHECK(with_tensor("{\"dtype\":1,\"shape\":[2],\"data_offsets\":[0,8]}") ==
        here + "the dtype 1 is none of the format's");
  CHECK(with_tensor("{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}") == here + "the shape 2 is no list");
  CHECK(with_tensor("{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}") ==
        here + "the shape [-2] holds something else than sizes");
  CHECK(with_tensor("{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,8]}") ==
        here + "the shape [1.5] holds something else than sizes");
  CHECK(with_tensor("{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}") ==
        here + "the shape [4294967296,4294967296] has more bytes than any file");
  CHECK(with_tensor("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}") ==
        here + "the data_offsets [8,0] are not two places in the data");
  CHECK(with_tensor("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,\"8\"]}") ==
        here + "the data_offsets [0,\"8\"] are not two places in the data");
  CHECK(with_tensor("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":8}") ==
        here + "the data_offsets 8 are not two places in the data");
  CHECK(with_tensor("{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}") ==
        here + "ends at byte 12 of the data, which has 8");
  CHECK(with_tensor("{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}") ==
        here + "has 8 bytes, but F32 of shape [3] takes 12");
  CHECK(with_tensor("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}") ==
        here + "begins at byte 4 of the data, but the one before it ends at 0");
  CHECK(with_tensor("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}") ==
        "m.st: the tensors end at byte 4 of the data, which has 8");
  CHECK(with_tensor("{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[0,2]}", std::string("\1\2")) ==
        here + "element 1 is neither true nor false");
  CHECK(error(file_of("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\","
                      "\"shape\":[2],\"data_offsets\":[1,3]}}",
                      "123")) == "m.st: tensor \"b\": begins at byte 1 of the data, but the one before it ends at 2");
}

TEST_CASE("safetensors: what would take much is told before it is taken") {
  const std::string here = "m.st: tensor \"w\": ";
  std::string ones = "1";
  for (int i = 1; i < 100000; ++i) ones += ",1";
  CHECK(with_tensor("{\"dtype\":\"F32\",\"shape\":[" + ones + "],\"data_offsets\":[0,4]}") ==
        here + "has 100000 dims, and at most 32 are possible");
  CHECK(with_tensor("{\"dtype\":\"" + std::string(1000000, 'x') + "\",\"shape\":[2],\"data_offsets\":[0,8]}") ==
        here + "the dtype \"" + std::string(199, 'x') + "... is none of the format's");
  CHECK(with_tensor("{\"dtype\":\"F32\",\"shape\":[0,281474976710656],\"data_offsets\":[0,0]}") ==
        "m.st: the tensors end at byte 0 of the data, which has 8");
  CHECK(with_tensor("{\"dtype\":\"U8\",\"shape\":[18446744073709551615],\"data_offsets\":[0,8]}") ==
        here + "the shape [18446744073709551615] has more bytes than any file");
  CHECK(with_tensor("{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[18446744073709551608,18446744073709551615]}") ==
        here + "ends at byte 18446744073709551615 of the data, which has 8");
  // 100,000 tensors on the same MB, which together would be 100 GB.
  std::string header = "{";
  for (int i = 0; i < 100000; ++i)
    header += std::string(i ? "," : "") + "\"t" + std::to_string(i) +
              "\":{\"dtype\":\"U8\",\"shape\":[1000000],\"data_offsets\":[0,1000000]}";
  const std::string many = error(file_of(header + "}", std::string(1000000, 'x')));
  CHECK(many.find("begins at byte 0 of the data, but the one before it ends at 1000000") != std::string::npos);
}

TEST_CASE("safetensors: every truncation, and a byte changed anywhere, is an error or a file") {
  SafeTensors file;
  file.metadata = {{"a", "b"}};
  file.tensors.emplace("x", Array({2, 3}, tessera::f32));
  file.tensors.emplace("y", Array({5}, tessera::bf16));
  const std::string bytes = format_safetensors(file);
  for (size_t n = 0; n < bytes.size(); ++n) CHECK(!error(bytes.substr(0, n)).empty());
  uint32_t seed = 1;
  for (size_t i = 0; i < bytes.size(); ++i)
    for (int turn = 0; turn < 4; ++turn) {
      std::string changed = bytes;
      changed[i] = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
      const std::string e = error(changed);  // whatever else it throws fails the case
      CHECK((e.empty() || e.compare(0, 6, "m.st: ") == 0));
    }
}

TEST_CASE("safetensors: files") {
  const tessera::test::Scratch folder;
  const std::string& path = folder.path;
  CHECK_THROWS_WITH(read_safetensors(path + "/none"), (path + "/none: no such file").c_str());
  CHECK_THROWS_WITH(write_safetensors(path + "/no/file", {}), (path + "/no/file: cannot be written").c_str());
  SafeTensors file;
  file.tensors.emplace("x", Array({2}, std::vector<float>{1, 2}));
  write_safetensors(path + "/x", file);
  CHECK(read_safetensors(path + "/x").tensors.at("x").at(1) == 2);
}

}  // namespace safetensors_test
