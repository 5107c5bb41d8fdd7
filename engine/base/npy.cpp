#include "engine/base/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <fstream>
#include <vector>

namespace tessera {
namespace {
static_assert(std::endian::native == std::endian::little, "elements are written as they lie in memory");
constexpr std::string_view kMagic = "\x93NUMPY";
constexpr uint64_t kMaxHeader = uint64_t{1} << 20;

struct Header {
  DType dtype = DType::f32;
  bool swap = false;  // big-endian
  bool fortran = false;
  Shape shape;
  int64_t bytes = 0;  // of the elements
};

[[noreturn]] void fail(std::string_view name, const std::string& what, const std::string& note = {}) {
  throw SpecError(std::string(name) + ": " + what, {}, note);
}

uint64_t little(std::string_view bytes) {
  uint64_t v = 0;
  for (size_t i = 0; i < bytes.size(); ++i) v |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return v;
}

// The header is a Python dict literal with the keys descr, fortran_order and shape in any order.
struct HeaderParser {
  std::string_view text, name;
  size_t at = 0;

  [[noreturn]] void fail_at(const std::string& wanted) const {
    fail(name, "header: expected " + wanted + " at byte " + std::to_string(at) + " of " + quoted());
  }
  std::string quoted() const {
    const std::string_view used = text.substr(0, text.find_last_not_of(" \n") + 1);
    std::string s = "\"";
    for (char c : used.substr(0, 200)) s += c >= ' ' && c <= '~' ? c : '?';
    return s + (used.size() > 200 ? "...\"" : "\"");
  }
  void space() {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t')) ++at;
  }
  bool take(std::string_view token) {
    space();
    if (text.substr(at, token.size()) != token) return false;
    at += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail_at("'" + std::string(token) + "'");
  }
  std::string string() {
    space();
    if (at >= text.size() || (text[at] != '\'' && text[at] != '"')) fail_at("a string");
    const size_t end = text.find(text[at], at + 1);
    if (end == std::string_view::npos) fail_at("a string that ends");
    const std::string s(text.substr(at + 1, end - at - 1));
    at = end + 1;
    return s;
  }
  int64_t number() {
    space();
    int64_t v = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), v);
    if (error != std::errc{}) fail_at("a size of at most 63 bits");
    if (v < 0) fail_at("a size that is not negative");
    at = static_cast<size_t>(end - text.data());
    return v;
  }
  Shape tuple() {
    Shape s;
    expect("(");
    bool comma = true;
    while (!take(")")) {
      if (!comma) fail_at("',' or ')'");
      s.push_back(number());
      comma = take(",");
    }
    if (s.size() == 1 && !comma) fail_at("a tuple, not a number in parentheses,");
    return s;
  }
};

void parse_descr(const std::string& descr, std::string_view name, std::optional<DType> wanted, Header& h) {
  const std::string place = "dtype '" + descr + "'";
  const char order = descr.empty() ? ' ' : descr[0];
  const std::string type = descr.empty() ? "" : descr.substr(1);
  if (order != '<' && order != '>' && order != '|')
    fail(name, place + " has no byte order", "the first character is one of < > |");
  if (type == "V2") {
    if (order == '>') fail(name, place + ": raw bytes have no order");
    if (wanted && size_bytes(*wanted) != 2)
      fail(name, place + " holds two raw bytes per element but " + std::string(tessera::name(*wanted)) + " is wanted",
           "NumPy writes bfloat16 so");
    h.dtype = wanted.value_or(DType::bf16);
    return;
  }
  // NumPy writes ml_dtypes' float8_e4m3fn, int4 and uint4 as V1 and float8_e5m2 as f1; views of them as uint8 are u1.
  const bool small = wanted && (is_float8(*wanted) || is_int4(*wanted));
  if (type == "f1" && !wanted) {
    h.dtype = DType::f8e5m2;
    return;
  }
  if (small && (type == "V1" || type == "f1" || type == "u1")) {
    if (type == "f1" && *wanted != DType::f8e5m2)
      fail(name, place + " is float8_e5m2 but " + std::string(tessera::name(*wanted)) + " is wanted");
    h.dtype = *wanted;
    return;
  }
  if (type == "V1")
    fail(name,
         place + " holds one raw byte per element" +
             (wanted ? " but " + std::string(tessera::name(*wanted)) + " is wanted"
                     : ", and nothing says of which dtype"),
         "NumPy writes float8_e4m3fn, int4 and uint4 so; they are read where the kernel's operand is f8e4m3fn, f8e5m2, "
         "i4 or u4");
  struct Known {
    std::string_view code;
    DType dtype;
  };
  constexpr Known kKnown[] = {{"b1", DType::boolean}, {"i1", DType::i8},  {"i2", DType::i16}, {"i4", DType::i32},
                              {"i8", DType::i64},     {"u1", DType::u8},  {"u2", DType::u16}, {"u4", DType::u32},
                              {"u8", DType::u64},     {"f2", DType::f16}, {"f4", DType::f32}, {"f8", DType::f64}};
  for (const Known& k : kKnown)
    if (k.code == type) {
      h.dtype = k.dtype;
      if (order == '|' && size_bytes(k.dtype) > 1)
        fail(name, place + " has no byte order", "the first character is < or > for elements of several bytes");
      h.swap = order == '>' && size_bytes(k.dtype) > 1;
      return;
    }
  fail(name, place + " is not supported",
       "use bool, int4 to int64, uint4 to uint64, float8_e4m3fn, float8_e5m2, float16, bfloat16, float32 or float64");
}

Header parse_header(std::string_view text, std::string_view name, std::optional<DType> wanted, uint64_t data_bytes) {
  HeaderParser p{text, name};
  Header h;
  bool descr = false, order = false, shape = false;
  p.expect("{");
  while (!p.take("}")) {
    const std::string key = p.string();
    p.expect(":");
    if (key == "descr" && !descr) {
      descr = true;
      p.space();
      if (p.at < text.size() && text[p.at] == '[') fail(name, "structured dtypes are not supported");
      parse_descr(p.string(), name, wanted, h);
    } else if (key == "fortran_order" && !order) {
      order = true;
      if (p.take("True")) h.fortran = true;
      else if (!p.take("False")) p.fail_at("True or False");
    } else if (key == "shape" && !shape) {
      shape = true;
      h.shape = p.tuple();
    } else fail(name, "header: unexpected or repeated key '" + key + "'");
    if (!p.take(",")) {
      p.expect("}");
      break;
    }
  }
  p.space();
  if (p.at != text.size()) p.fail_at("the end");
  if (!descr || !order || !shape)
    fail(name, "header lacks the key '" + std::string(!descr ? "descr" : !order ? "fortran_order" : "shape") + "'");

  int64_t bytes = size_bytes(h.dtype);  // with empty dims counted as 1, so that no product of dims overflows either
  for (int64_t d : h.shape)
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(d, 1), &bytes))
      fail(name, "shape " + to_string(h.shape) + " exceeds 64-bit sizes");
  h.bytes = num_elements(h.shape) * size_bytes(h.dtype);
  const auto need = static_cast<uint64_t>(h.bytes);
  const std::string described = std::string(tessera::name(h.dtype)) + " " + to_string(h.shape);
  if (data_bytes < need)
    fail(name, "truncated: " + described + " needs " + std::to_string(need) + " bytes after the header but " +
                   std::to_string(data_bytes) + " are there");
  if (data_bytes > need)
    fail(name, std::to_string(data_bytes - need) + " bytes too many: " + described + " needs " + std::to_string(need) +
                   " after the header");
  return h;
}

// Elements as they lie in the file, to this machine's order and row-major.
Array finish(const Header& h, Array raw) {
  const auto size = static_cast<size_t>(size_bytes(h.dtype));
  std::byte* p = raw.bytes();
  if (h.swap)
    for (int64_t i = 0; i < h.bytes; i += static_cast<int64_t>(size)) std::reverse(p + i, p + i + size);
  if (h.dtype == DType::boolean)
    for (int64_t i = 0; i < h.bytes; ++i) p[i] = p[i] == std::byte{0} ? std::byte{0} : std::byte{1};
  if (is_int4(h.dtype))
    for (int64_t i = 0; i < h.bytes; ++i) p[i] &= std::byte{15};
  if (!h.fortran || h.shape.size() < 2 || h.bytes == 0) return raw;
  Array out(h.shape, h.dtype);
  std::byte* q = out.bytes();
  std::vector<int64_t> at(h.shape.size(), 0);
  // at: the row-major position i; its place in the file counts the first dim fastest
  for (int64_t i = 0; i < out.size(); ++i) {
    int64_t from = 0;
    for (size_t d = h.shape.size(); d-- > 0;) from = from * h.shape[d] + at[d];
    std::copy_n(p + from * static_cast<int64_t>(size), size, q + i * static_cast<int64_t>(size));
    for (size_t d = h.shape.size(); d-- > 0;) {
      if (++at[d] < h.shape[d]) break;
      at[d] = 0;
    }
  }
  return out;
}

// The parts before the header's text: its offset and length.
struct Frame {
  size_t offset;
  uint64_t length;
};
Frame parse_frame(std::string_view start, uint64_t file_size, std::string_view name) {
  if (start.substr(0, kMagic.size()) != kMagic.substr(0, std::min(kMagic.size(), start.size())))
    fail(name, "not a .npy file");
  if (start.size() < 8) fail(name, "truncated: " + std::to_string(file_size) + " bytes are no .npy file");
  const int major = static_cast<unsigned char>(start[6]), minor = static_cast<unsigned char>(start[7]);
  if (major < 1 || major > 3 || minor != 0)
    fail(name, "version " + std::to_string(major) + "." + std::to_string(minor) + " of the format is not supported",
         "1.0, 2.0 and 3.0 are");
  const size_t digits = major == 1 ? 2 : 4;
  if (start.size() < 8 + digits) fail(name, "truncated: " + std::to_string(file_size) + " bytes are no .npy file");
  const Frame f{8 + digits, little(start.substr(8, digits))};
  if (f.length > file_size - f.offset)
    fail(name, "truncated: the header has " + std::to_string(f.length) + " bytes but " +
                   std::to_string(file_size - f.offset) + " are there");
  if (f.length > kMaxHeader)
    fail(name, "the header has " + std::to_string(f.length) + " bytes, more than an array's can need");
  return f;
}
}  // namespace

Array parse_npy(std::string_view bytes, std::string_view name, std::optional<DType> wanted) {
  const Frame f = parse_frame(bytes.substr(0, 12), bytes.size(), name);
  const std::string_view data = bytes.substr(f.offset + f.length);
  const Header h = parse_header(bytes.substr(f.offset, f.length), name, wanted, data.size());
  Array raw(h.shape, h.dtype);
  if (!data.empty()) std::copy_n(reinterpret_cast<const std::byte*>(data.data()), data.size(), raw.bytes());
  return finish(h, std::move(raw));
}

NpyFile::NpyFile(const std::string& path, std::optional<DType> wanted, InputFile::Links links) : file_(path, links) {
  const uint64_t size = file_.bytes();
  std::string start(static_cast<size_t>(std::min<uint64_t>(size, 12)), '\0');
  file_.read(start.data(), start.size());
  const Frame f = parse_frame(start, size, path);
  std::string text = start.substr(f.offset, static_cast<size_t>(f.length));
  const size_t known = text.size();  // two bytes of it, in version 1
  text.resize(static_cast<size_t>(f.length));
  file_.read(text.data() + known, f.length - known);
  const Header h = parse_header(text, path, wanted, size - f.offset - f.length);
  dtype_ = h.dtype, shape_ = h.shape, swap_ = h.swap, fortran_ = h.fortran;
}

Array NpyFile::read() {
  Array raw(shape_, dtype_);
  const Header h{dtype_, swap_, fortran_, shape_, raw.nbytes()};
  file_.read(raw.bytes(), static_cast<uint64_t>(h.bytes));
  return finish(h, std::move(raw));
}

Array read_npy(const std::string& path, std::optional<DType> wanted) { return NpyFile(path, wanted).read(); }

std::string npy_header(const Array& a) {
  constexpr std::string_view kDescr[kNumDTypes] = {"|b1", "|V1", "|i1", "<i2", "<i4", "<i8", "|V1", "|u1", "<u2",
                                                   "<u4", "<u8", "|V1", "|V1", "<f2", "<V2", "<f4", "<f8"};
  std::string text = "{'descr': '" + std::string(kDescr[static_cast<int>(a.dtype())]) +
                     "', 'fortran_order': False, 'shape': " + to_string(a.shape()) + ", }";
  const bool long_header = text.size() + 64 > 65535;
  const size_t digits = long_header ? 4 : 2;
  while ((8 + digits + text.size() + 1) % 64 != 0) text += ' ';  // elements begin at a multiple of 64 bytes
  text += '\n';
  std::string s(kMagic);
  s += long_header ? '\x02' : '\x01';
  s += '\x00';
  for (size_t i = 0; i < digits; ++i) s += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return s + text;
}

std::string format_npy(const Array& a) {
  std::string s = npy_header(a);
  s.append(reinterpret_cast<const char*>(a.bytes()), static_cast<size_t>(a.nbytes()));
  return s;
}

void write_npy(const std::string& path, const Array& a) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (!out) throw Error(path + ": cannot be created");
  const std::string header = npy_header(a);
  out.write(header.data(), static_cast<std::streamsize>(header.size()));
  if (a.nbytes()) out.write(reinterpret_cast<const char*>(a.bytes()), a.nbytes());
  out.close();
  if (!out) throw Error(path + ": cannot be written");
}

}  // namespace tessera
