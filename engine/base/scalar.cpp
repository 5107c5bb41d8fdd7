#include "engine/base/scalar.h"

#include <bit>
#include <utility>

#include "engine/base/array.h"
#include "engine/base/number.h"

namespace tessera {
namespace {

/// The least and the greatest integer of dtype t.
std::pair<int64_t, uint64_t> limits(DType t) {
  const int n = bits(t);
  const uint64_t all = n == 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
  if (!is_signed_int(t)) return {0, all};
  return {-static_cast<int64_t>(all >> 1) - 1, all >> 1};
}

std::string number(double x) {
  std::string s = std::to_string(x);
  while (s.back() == '0' && s[s.size() - 2] != '.') s.pop_back();
  return s;
}

}  // namespace

Scalar Scalar::of(const Array& array) {
  if (!array.shape().empty())
    throw SpecError("an array of shape " + to_string(array.shape()) + " is no number", {},
                    "an argument by value takes a number or an array of rank 0");
  return {array.dtype(), array.element_bits(0)};
}

DType Scalar::dtype() const {
  if (const auto* e = std::get_if<Element>(&number_)) return e->dtype;
  if (std::holds_alternative<bool>(number_)) return DType::boolean;
  return std::holds_alternative<double>(number_) ? DType::f32 : DType::i32;
}

Array Scalar::array(DType t) const {
  Array a({}, t);
  a.set_element_bits(0, bits(t));
  return a;
}

bool Scalar::fits(DType t) const {
  if (const auto* e = std::get_if<Element>(&number_)) return e->dtype == t;
  if (std::holds_alternative<bool>(number_)) return t == DType::boolean;
  if (std::holds_alternative<double>(number_)) return is_float(t);
  if (is_float(t)) return true;
  if (!is_int(t)) return false;
  const auto [least, greatest] = limits(t);
  if (const auto* i = std::get_if<int64_t>(&number_))
    return *i >= least && (*i < 0 || static_cast<uint64_t>(*i) <= greatest);
  return std::get<uint64_t>(number_) <= greatest;
}

uint64_t Scalar::bits(DType t) const {
  if (const auto* e = std::get_if<Element>(&number_)) return e->bits;
  if (const auto* b = std::get_if<bool>(&number_)) return *b ? 1 : 0;
  if (const auto* x = std::get_if<double>(&number_)) return reference::from_double(t, *x);
  const auto* i = std::get_if<int64_t>(&number_);
  const uint64_t n = i ? static_cast<uint64_t>(*i) : std::get<uint64_t>(number_);
  if (t == DType::f32) return std::bit_cast<uint32_t>(i ? static_cast<float>(*i) : static_cast<float>(n));
  if (is_float(t)) return reference::from_double(t, i ? static_cast<double>(*i) : static_cast<double>(n));
  return tessera::bits(t) == 64 ? n : n & ((uint64_t{1} << tessera::bits(t)) - 1);
}

std::string Scalar::misfit(DType t) const {
  const std::string kind(name(t));
  if (const auto* e = std::get_if<Element>(&number_))
    return "the number is " + std::string(name(e->dtype)) + " but the argument is " + kind;
  if (const auto* b = std::get_if<bool>(&number_))
    return std::string("the number is ") + (*b ? "true" : "false") + " but the argument is " + kind;
  if (const auto* x = std::get_if<double>(&number_))
    return "the number is " + number(*x) + " but the argument is " + kind;
  const auto* i = std::get_if<int64_t>(&number_);
  const std::string n = i ? std::to_string(*i) : std::to_string(std::get<uint64_t>(number_));
  if (!is_int(t)) return "the number is " + n + " but the argument is " + kind;
  const auto [least, greatest] = limits(t);
  return "the number is " + n + " but " + kind + " holds " + std::to_string(least) + " to " + std::to_string(greatest);
}

}  // namespace tessera
