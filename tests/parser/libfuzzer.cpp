// The same attempts driven by libFuzzer, which follows coverage: built by the preset libfuzzer (clang only), run by
// .ci/run for a bounded time.
#ifdef TESSERA_LIBFUZZER
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/parser/attempt.h"
#include "tests/parser/mutate.h"

using namespace tessera;

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned int seed) {
  fuzz::Random random(seed);
  if (random.chance(0.1)) return LLVMFuzzerMutate(data, size, most);
  const std::string text(reinterpret_cast<const char*>(data), size);
  static std::string last = "tir 1\nkernel @k\nbody () {}\n";  // parts come from the input seen before
  std::string mutant = parser::mutate(text, {last, text}, random);
  if (random.chance(0.05)) last = text;
  if (mutant.size() > most) mutant.resize(most);
  std::memcpy(data, mutant.data(), mutant.size());
  return mutant.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const parser::Attempt a = parser::attempt({reinterpret_cast<const char*>(data), size}, 1);
  if (!a.bug) return 0;
  std::fprintf(stderr, "%s\nthe text:\n%.*s\n", a.bug->c_str(), static_cast<int>(size),
               reinterpret_cast<const char*>(data));
  std::abort();
}
#endif
