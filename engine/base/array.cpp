#include "engine/base/array.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <new>
#include <ostream>

#include "engine/base/number.h"

namespace tessera {
namespace {
// Bytes of a dense array; SpecError where a dim is negative or the product does not fit, even if another dim is 0.
int64_t checked_bytes(const Shape& shape, DType dtype) {
  int64_t n = size_bytes(dtype);
  for (int64_t d : shape) {
    if (d < 0) throw SpecError("Array: shape " + to_string(shape) + " has a negative size");
    if (d > 0 && __builtin_mul_overflow(n, d, &n))
      throw SpecError("Array: shape " + to_string(shape) + " of " + std::string(name(dtype)) + " exceeds 64-bit sizes");
  }
  return num_elements(shape) * size_bytes(dtype);
}

std::string element_text(const Array& a, int64_t i) {
  const DType t = a.dtype();
  const uint64_t b = a.element_bits(i);
  if (t == DType::boolean) return b ? "true" : "false";
  if (is_unsigned_int(t)) return std::to_string(b);
  if (is_signed_int(t)) {
    const int unused = 64 - bits(t);
    return std::to_string(static_cast<int64_t>(b << unused) >> unused);
  }
  const double x = reference::to_double(t, b);
  if (std::isnan(x)) return "nan";
  std::array<char, 40> text;
  const int digits = is_float8(t) || t == DType::bf16 ? 3 : t == DType::f16 ? 4 : 6;
  std::snprintf(text.data(), text.size(), "%.*g", digits, x);
  return text.data();
}

void print(std::ostream& out, const Array& a, size_t dim, int64_t offset, bool abbreviate) {
  const Shape& shape = a.shape();
  if (dim == shape.size()) {
    out << element_text(a, offset);
    return;
  }
  const int64_t n = shape[dim];
  int64_t stride = 1;
  for (size_t d = dim + 1; d < shape.size(); ++d) stride *= shape[d];
  out << '[';
  for (int64_t i = 0; i < n; ++i) {
    if (i) out << ' ';
    if (abbreviate && n > 6 && i == 3) {
      out << "... ";
      i = n - 3;
    }
    print(out, a, dim + 1, offset + i * stride, abbreviate);
  }
  out << ']';
}
}  // namespace

Array::Array(Shape shape, DType dtype) : shape_(std::move(shape)), dtype_(dtype) {
  const int64_t n = checked_bytes(shape_, dtype);
  try {
    // no machine's address space; some allocators abort instead of throwing
    if (n > int64_t{1} << 47) throw std::bad_alloc();
    data_ = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(n));
  } catch (const std::bad_alloc&) {
    throw Error("Array: no memory for " + std::to_string(n) + " bytes (" + std::string(name(dtype)) + " " +
                to_string(shape_) + ")");
  }
}

void Array::gone() const {
  throw SpecError("Array: this " + std::string(name(dtype_)) + to_string(shape_) +
                      " has been donated: its memory belongs to the result of the call that it was given to",
                  {}, "keep a copy where it is needed later, or call without donate()");
}

Array donate(Array& x) {
  x.bytes();  // its own
  Array given = x;
  given.donated_ = true;
  x.data_.reset();
  x.donated_ = false;
  return given;
}

Array Array::take() const {
  Array a = *this;
  a.donated_ = false;
  a.data_ = std::make_shared<std::vector<std::byte>>(std::move(*data_));
  data_->clear();
  return a;
}

std::byte* Array::bytes() {
  storage();
  if (data_.use_count() != 1) data_ = std::make_shared<std::vector<std::byte>>(*data_);
  return data_->data();
}

void Array::check(DType wanted) const {
  if (wanted != dtype_)
    throw SpecError("Array: data<" + std::string(name(wanted)) + ">() of an array of " + std::string(name(dtype_)));
}

uint64_t Array::element_bits(int64_t i) const {
  const auto n = static_cast<size_t>(size_bytes(dtype_));
  const std::byte* p = bytes() + static_cast<size_t>(i) * n;
  uint64_t b = 0;
  for (size_t k = 0; k < n; ++k) b |= static_cast<uint64_t>(p[k]) << (8 * k);
  return is_int4(dtype_) ? b & 15 : b;
}

void Array::set_element_bits(int64_t i, uint64_t b) {
  if (is_int4(dtype_)) b &= 15;
  const auto n = static_cast<size_t>(size_bytes(dtype_));
  std::byte* p = bytes() + static_cast<size_t>(i) * n;
  for (size_t k = 0; k < n; ++k) p[k] = static_cast<std::byte>(b >> (8 * k) & 0xff);
}

double Array::at(int64_t i) const { return reference::to_double(dtype_, element_bits(i)); }

std::ostream& operator<<(std::ostream& out, const Array& a) {
  out << name(a.dtype()) << '[';
  for (size_t d = 0; d < a.shape().size(); ++d) out << (d ? ", " : "") << a.shape()[d];
  out << "] ";
  if (a.size() == 0) return out << "[]";
  print(out, a, 0, 0, a.size() > 60);
  return out;
}

}  // namespace tessera
