// Uses Tessera::engine alone: traces a kernel and interprets it. With --version, prints the version of the headers.
#include <iostream>
#include <string_view>
#include <tessera/tessera.hpp>

namespace ts = tessera;
using ts::Ref, ts::all;

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--version") {
    std::cout << TESSERA_VERSION << "\n";
    return 0;
  }
  auto scale =
      ts::pallas_call([](Ref x, Ref o) { o[all] = 3 * x[all] - 1; }, {.out_shape = {{{4}, ts::i32}}, .name = "scale"});
  const ts::Array z = ts::interpret(scale, ts::Array({4}, std::vector<int32_t>{0, 1, 2, -3}));
  const int32_t expected[] = {-1, 2, 5, -10};
  for (int64_t i = 0; i < 4; ++i)
    if (z.data<int32_t>()[static_cast<size_t>(i)] != expected[i]) return 1;
  return 0;
}
