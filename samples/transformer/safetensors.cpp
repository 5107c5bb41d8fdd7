#include "samples/transformer/safetensors.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <vector>

namespace transformer {
namespace {
using nlohmann::json;
using tessera::Array, tessera::DType, tessera::Shape;

constexpr uint64_t kMostHeader = 100'000'000;  // as the reference implementation has it
constexpr std::pair<const char*, DType> kDTypes[] = {
    {"BOOL", DType::boolean},   {"U8", DType::u8},   {"I8", DType::i8},   {"F8_E4M3", DType::f8e4m3fn},
    {"F8_E5M2", DType::f8e5m2}, {"U16", DType::u16}, {"I16", DType::i16}, {"F16", DType::f16},
    {"BF16", DType::bf16},      {"U32", DType::u32}, {"I32", DType::i32}, {"F32", DType::f32},
    {"U64", DType::u64},        {"I64", DType::i64}, {"F64", DType::f64}};

constexpr size_t kMostDepth = 8;  // it has three
constexpr size_t kMostDims = 32;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw std::runtime_error(path + ": " + what);
}

/// A part of the header in a message.
std::string shown(const json& j) {
  const std::string s = j.dump(-1, ' ', true, json::error_handler_t::replace);
  return s.size() > 200 ? s.substr(0, 200) + "..." : s;
}

// A JSON reader keeps one of two members with the same name; this one refuses them, and values in one another deeper
// than the format has them, on which others recurse.
struct Checker : json::json_sax_t {
  const std::string& path;
  std::vector<std::set<std::string>> names;  // of the values around, none for lists
  explicit Checker(const std::string& file) : path(file) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return deeper(); }
  bool start_array(std::size_t) override { return deeper(); }
  bool end_object() override { return names.pop_back(), true; }
  bool end_array() override { return names.pop_back(), true; }
  bool key(string_t& name) override {
    if (!names.back().insert(name).second) fail(path, "the header names \"" + name + "\" twice");
    return true;
  }
  // told when it is read
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }
  bool deeper() {
    if (names.size() == kMostDepth)
      fail(path, "the header nests values more than " + std::to_string(kMostDepth) + " deep");
    names.emplace_back();
    return true;
  }
};

json parse_header(std::string_view text, const std::string& path) {
  Checker checker(path);
  json::sax_parse(text, &checker);
  try {
    return json::parse(text);
  } catch (const json::parse_error& e) {
    fail(path, "the header is no JSON at its byte " + std::to_string(e.byte));
  }
}

uint64_t number(const json& j, const std::string& what) {
  if (!j.is_number_unsigned()) throw std::runtime_error(what);
  return j.get<uint64_t>();
}

/// The header's text, and the data behind it.
std::pair<std::string_view, std::string_view> split(std::string_view bytes, const std::string& path) {
  if (bytes.size() < 8)
    fail(path, "the file has " + std::to_string(bytes.size()) + " bytes, not even the 8 of the header's size");
  uint64_t size = 0;
  for (int i = 0; i < 8; ++i)
    size |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[static_cast<size_t>(i)])) << (8 * i);
  if (size > kMostHeader)
    fail(path, "the header is said to have " + std::to_string(size) + " bytes, more than the " +
                   std::to_string(kMostHeader) + " of the format");
  if (size > bytes.size() - 8)
    fail(path, "the header is said to have " + std::to_string(size) + " bytes, but " +
                   std::to_string(bytes.size() - 8) + " follow");
  return {bytes.substr(8, size), bytes.substr(8 + size)};
}

/// Where a tensor lies in the data.
struct Range {
  uint64_t begin, end;
  std::string name;
  DType dtype;
  Shape shape;
};
/// `here` names the tensor. `bytes`: of all the data.
Range read_entry(const json& entry, const std::string& name, const std::string& here, size_t bytes) {
  if (!entry.is_object()) fail(here, "is no JSON object");
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!entry.contains(key)) fail(here, std::string("has no \"") + key + "\"");
  const json &type = entry["dtype"], &dims = entry["shape"], &offsets = entry["data_offsets"];
  const auto* const row = std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](const auto& t) {
    return type.is_string() && type.get<std::string>() == t.first;
  });
  if (row == std::end(kDTypes)) fail(here, "the dtype " + shown(type) + " is none of the format's");
  if (!dims.is_array()) fail(here, "the shape " + shown(dims) + " is no list");
  if (dims.size() > kMostDims)
    fail(here,
         "has " + std::to_string(dims.size()) + " dims, and at most " + std::to_string(kMostDims) + " are possible");
  Shape shape;
  uint64_t wanted = static_cast<uint64_t>(tessera::size_bytes(row->second));
  for (const json& d : dims) {
    const uint64_t n = number(d, here + ": the shape " + shown(dims) + " holds something else than sizes");
    if (n > uint64_t{1} << 48 || (n > 0 && wanted > (uint64_t{1} << 48) / n))
      fail(here, "the shape " + shown(dims) + " has more bytes than any file");
    wanted *= n;
    shape.push_back(static_cast<int64_t>(n));
  }
  const std::string bad_offsets = here + ": the data_offsets " + shown(offsets) + " are not two places in the data";
  if (!offsets.is_array() || offsets.size() != 2) throw std::runtime_error(bad_offsets);
  const uint64_t begin = number(offsets[0], bad_offsets), end = number(offsets[1], bad_offsets);
  if (begin > end) throw std::runtime_error(bad_offsets);
  if (end > bytes)
    fail(here, "ends at byte " + std::to_string(end) + " of the data, which has " + std::to_string(bytes));
  if (end - begin != wanted)
    fail(here, "has " + std::to_string(end - begin) + " bytes, but " + type.get<std::string>() + " of shape " +
                   shown(dims) + " takes " + std::to_string(wanted));
  return {begin, end, name, row->second, std::move(shape)};
}

/// Sorts the tensors by place, and sees that every byte of the data belongs to one of them.
void check_cover(std::vector<Range>& ranges, size_t bytes, const std::string& path) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  uint64_t at = 0;
  for (const Range& r : ranges) {
    if (r.begin != at)
      fail(path + ": tensor \"" + r.name + "\"", "begins at byte " + std::to_string(r.begin) +
                                                     " of the data, but the one before it ends at " +
                                                     std::to_string(at));
    at = r.end;
  }
  if (at != bytes)
    fail(path, "the tensors end at byte " + std::to_string(at) + " of the data, which has " + std::to_string(bytes));
}

}  // namespace

SafeTensors parse_safetensors(std::string_view bytes, const std::string& path) {
  const auto [text, data] = split(bytes, path);
  const json header = parse_header(text, path);
  if (!header.is_object()) fail(path, "the header is no JSON object");
  SafeTensors file;
  std::vector<Range> ranges;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) fail(path, "__metadata__ is no JSON object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) fail(path, "\"" + key + "\" of __metadata__ is no string");
        file.metadata[key] = value.get<std::string>();
      }
      continue;
    }
    ranges.push_back(read_entry(entry, name, path + ": tensor \"" + name + "\"", data.size()));
  }
  check_cover(ranges, data.size(), path);  // before there is memory for any
  for (const Range& r : ranges) {
    Array array(r.shape, r.dtype);
    if (r.end > r.begin) std::memcpy(array.bytes(), data.data() + r.begin, r.end - r.begin);
    if (r.dtype == DType::boolean)
      for (int64_t i = 0; i < array.size(); ++i)
        if (static_cast<uint8_t>(data[r.begin + static_cast<uint64_t>(i)]) > 1)
          fail(path + ": tensor \"" + r.name + "\"", "element " + std::to_string(i) + " is neither true nor false");
    file.tensors.emplace(r.name, std::move(array));
  }
  return file;
}

SafeTensors read_safetensors(const std::string& path) {
  return parse_safetensors(tessera::InputFile(path).rest(UINT64_MAX), path);
}

std::string format_safetensors(const SafeTensors& file) {
  std::vector<const std::pair<const std::string, Array>*> order;
  for (const auto& t : file.tensors) order.push_back(&t);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return tessera::size_bytes(a->second.dtype()) > tessera::size_bytes(b->second.dtype());
  });
  json header = json::object();
  if (!file.metadata.empty()) header["__metadata__"] = file.metadata;
  int64_t at = 0;
  for (const auto* t : order) {
    const auto* const row = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                         [&](const auto& d) { return d.second == t->second.dtype(); });
    if (row == std::end(kDTypes))
      throw tessera::SpecError("tensor \"" + t->first + "\": .safetensors files have no " +
                               std::string(tessera::name(t->second.dtype())));
    header[t->first] = {
        {"dtype", row->first}, {"shape", t->second.shape()}, {"data_offsets", {at, at + t->second.nbytes()}}};
    at += t->second.nbytes();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i) & 255);
  bytes += text;
  for (const auto* t : order)
    bytes.append(reinterpret_cast<const char*>(t->second.bytes()), static_cast<size_t>(t->second.nbytes()));
  return bytes;
}

void write_safetensors(const std::string& path, const SafeTensors& file) {
  const std::string bytes = format_safetensors(file);
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) fail(path, "cannot be written");
}

}  // namespace transformer
