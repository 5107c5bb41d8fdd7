#include <doctest/doctest.h>

#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"

namespace masked_access_test {
using namespace tessera;

// Masks that leave nothing out are done as one copy, unless the window leaves the array.
TEST_CASE("masked loads and stores, wherever the window lies and whatever the mask leaves out") {
  const ir::Kernel k = ir::parse(R"(tir 1
kernel @window
grid ()
in i32[1] whole
in bool[3, 2] whole
in i32[5, 4] whole
out i32[3, 2] whole
out i32[5, 4] whole
body (%at, %mask, %x, %o, %p) {
  %start = load %at[0]
  %m = load %mask[0:3, 0:2]
  %none = constant -1 : i32
  %other = broadcast %none dims [] : i32[3, 2]
  %v = load %x[ds(%start, 3), 1:5:2] mask %m other %other
  store %o[0:3, 0:2], %v
  %zero = constant 0 : i32
  %zeros = broadcast %zero dims [] : i32[5, 4]
  store %p[0:5, 0:4], %zeros
  store %p[ds(%start, 3), 1:5:2], %v mask %m
  yield
}
)");
  std::vector<int32_t> numbers;
  for (int i = 0; i < 20; ++i) numbers.push_back(i + 1);
  for (int start = -2; start <= 4; ++start)
    for (int bits : {63, 0, 62, 31, 21}) {
      CAPTURE(start);
      CAPTURE(bits);
      Array mask({3, 2}, DType::boolean);
      for (int i = 0; i < 6; ++i) mask.set_element_bits(i, static_cast<uint64_t>(bits >> i & 1));
      const std::vector<Array> out =
          interpret(k, {Array({1}, std::vector<int32_t>{start}), mask, Array({5, 4}, numbers)});
      std::vector<int32_t> stored(20, 0);
      for (int i = 0; i < 6; ++i) {
        const int row = start + i / 2, place = row * 4 + 1 + i % 2 * 2;
        const bool inside = (bits >> i & 1) && row >= 0 && row < 5;
        CHECK(out[0].at(i) == (inside ? place + 1 : -1));
        if (inside) stored[static_cast<size_t>(place)] = place + 1;
      }
      for (int i = 0; i < 20; ++i) CHECK(out[1].at(i) == stored[static_cast<size_t>(i)]);
    }
}

// An array without elements has no address: the sanitizers look for one that is formed of it.
TEST_CASE("windows of arrays without columns move nothing") {
  const ir::Kernel k = ir::parse(R"(tir 1
kernel @nothing
grid ()
in f32[3, 0] whole
in bool[0] whole
out f32[4, 0] whole
body (%x, %m, %o) {
  %a = load %x[1, 0:0] : f32[0]
  store %o[2, 0:0], %a
  %mask = load %m[0:0] : bool[0]
  %b = load %x[2, 0:0] mask %mask : f32[0]
  %c = add %a, %b
  store %o[3, 0:0], %c mask %mask
  %d = swap %o[1, 0:0], %c : f32[0]
}
)");
  const std::vector<Array> out = interpret(k, {Array({3, 0}, DType::f32), Array({0}, DType::boolean)});
  CHECK(out[0].shape() == Shape{4, 0});
}

}  // namespace masked_access_test
