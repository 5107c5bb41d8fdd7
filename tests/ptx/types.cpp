#include <array>

#include "tests/ptx/syntax.h"

namespace tessera::ptx {

namespace {

struct Row {
  const char* name;
  Type type;
  uint32_t width;
  bool is_float, is_signed;
};
constexpr Row kRows[] = {
    {"pred", Type::pred, 1, false, false},     {"b8", Type::b8, 8, false, false},
    {"b16", Type::b16, 16, false, false},      {"b32", Type::b32, 32, false, false},
    {"b64", Type::b64, 64, false, false},      {"b128", Type::b128, 128, false, false},
    {"u8", Type::u8, 8, false, false},         {"u16", Type::u16, 16, false, false},
    {"u32", Type::u32, 32, false, false},      {"u64", Type::u64, 64, false, false},
    {"s8", Type::s8, 8, false, true},          {"s16", Type::s16, 16, false, true},
    {"s32", Type::s32, 32, false, true},       {"s64", Type::s64, 64, false, true},
    {"f16", Type::f16, 16, true, false},       {"f16x2", Type::f16x2, 32, true, false},
    {"bf16", Type::bf16, 16, true, false},     {"bf16x2", Type::bf16x2, 32, true, false},
    {"tf32", Type::tf32, 32, true, false},     {"f32", Type::f32, 32, true, false},
    {"f64", Type::f64, 64, true, false},       {"e4m3", Type::e4m3, 8, true, false},
    {"e5m2", Type::e5m2, 8, true, false},      {"e4m3x2", Type::e4m3x2, 16, true, false},
    {"e5m2x2", Type::e5m2x2, 16, true, false}, {"s16x2", Type::s16x2, 32, false, true},
    {"u16x2", Type::u16x2, 32, false, false},  {"f32x2", Type::f32x2, 64, true, false},
    {"u4", Type::u4, 4, false, false},         {"s4", Type::s4, 4, false, true},
    {"b1", Type::b1, 1, false, false},
};
const Row* row(Type t) {
  for (const Row& r : kRows)
    if (r.type == t) return &r;
  return nullptr;
}

}  // namespace

Type type_of(const std::string& name) {
  for (const Row& r : kRows)
    if (name == r.name) return r.type;
  return Type::none;
}
uint32_t width_of(Type t) {
  const Row* r = row(t);
  return r ? r->width : 0;
}
bool is_float(Type t) {
  const Row* r = row(t);
  return r && r->is_float;
}
bool is_signed(Type t) {
  const Row* r = row(t);
  return r && r->is_signed;
}

}  // namespace tessera::ptx
