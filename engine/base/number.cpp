#include "engine/base/number.h"

#include "engine/base/convert_element.h"

namespace tessera::reference {

double to_double(DType t, uint64_t bits) {
  return with_dtype(t, [&](auto from) { return convert_element<DType::f64, from>(element_of<from>(bits)); });
}
uint64_t from_double(DType t, double x) {
  return with_dtype(t, [&](auto to) -> uint64_t { return bits_of_element<to>(convert_element<to, DType::f64>(x)); });
}

}  // namespace tessera::reference
