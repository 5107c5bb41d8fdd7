// Programs out of files, with every byte and every number of their fields changed in turn and a checksum that would be
// right: what program_from_bytes() still takes goes through the judge and, where that has nothing to say against it, to
// the device. None crashes, hangs or reaches what is not its own. The code itself stays: it is trusted.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>

#include "codegen/compile.h"
#include "codegen/program/program_file.h"
#include "engine/ir/text.h"
#include "runtime/compiled_kernel.h"
#include "tests/support/device.h"
#include "tests/support/judge/judge.h"

namespace mutants_test {
using namespace tessera;

namespace {
const char* const kTexts[] = {
    // Blocks that hang over, run-time sizes.
    "tir 1\nkernel @rows\ngrid (cdiv(n, 4))\nin f32[n, 16] block (4, 16) map (%i) {\n  %z = constant 0 : i32[]\n  "
    "yield %i, %z\n}\nout f32[n] block (4) map (%i) { yield %i }\nbody (%x, %o) {\n"
    "  %a = load %x[0:4, 0:16]\n  %s = reduce_sum %a axes [1]\n  store %o[0:4], %s\n}\n",
    // A loop over data, a print, an aliased output.
    "tir 1\nkernel @sums\nprefetch i32[1] whole\nin i32[8] whole\nout i32[8] alias 1 whole\ntext \"{}\"\nbody (%n, %x, "
    "%o) {\n  %c = load %n[0]\n  %z = constant 0 : i32[]\n  %one = constant 1 : i32[]\n"
    "  %s = for %i = %z to %c step %one carry (%a = %z: i32[]) {\n    %v = load %x[%i]\n    %b = add %a, %v\n    yield "
    "%b\n  }\n  debug_print %s text 0\n  store %o[0], %s\n}\n",
    // An arena in memory, and so a loop over units.
    "tir 1\nkernel @sorted\ngrid (3)\nin u8[3, 9000] block (1, 9000) map (%i) {\n  %z = constant 0 : i32[]\n  yield "
    "%i, %z\n}\nout u8[3, 9000] block (1, 9000) map (%i) {\n  %z = constant 0 : i32[]\n  yield %i, %z\n}\n"
    "body (%x, %o) {\n  %a = load %x[0:1, 0:9000]\n  %b = rev %a axes [1]\n  %c = cumsum %b axis 1\n  store %o[0:1, "
    "0:9000], %c\n}\n"};

template <class T> std::string with(std::string b, size_t at, T v) {
  std::memcpy(b.data() + at, &v, std::min(sizeof v, b.size() - at));
  return b;
}

// Zeros of the shapes that the Program asks for; nothing if they are large.
std::optional<std::vector<Array>> arrays_of(const Program& p, const DimValues& dims, bool outputs) {
  std::vector<Array> arrays;
  for (const ProgramArg& a : p.args) {
    Shape shape;
    int64_t n = 1;
    for (const Extent& e : a.shape) {
      shape.push_back(e.eval(dims));
      if (shape.back() < 0 || shape.back() > 1 << 20 || (n *= std::max<int64_t>(shape.back(), 1)) > 1 << 20)
        return std::nullopt;
    }
    if (outputs || !a.is_output) arrays.emplace_back(shape, a.dtype);
  }
  return arrays;
}
}  // namespace

TEST_CASE("programs of which any byte was changed are refused, or run as safely as any") {
  const std::optional<Device> device = test::device_if_any();
  const DimValues dims{{"n", 10}};
  const bool all = std::getenv("TESSERA_TESTS_ALL") != nullptr;
  const int64_t most_runs = all ? 2000 : 20;
  for (const char* text : kTexts) {
    const ir::Kernel k = ir::parse(text, "k.tir");
    CAPTURE(k.name);
    const Program good = compile(k, device ? device->target() : lavapipe_target());
    const std::string bytes = program_to_bytes(good);
    const std::string code(reinterpret_cast<const char*>(good.spirv.data()), good.spirv.size() * 4);
    const size_t code_at = bytes.find(code);
    REQUIRE(code_at != std::string::npos);
    int64_t tried = 0, taken = 0, errors = 0, judged = 0, sound = 0, ran = 0;
    std::set<std::string> seen{bytes};
    const auto mutant = [&](const std::string& b) {
      if (!seen.insert(b).second) return;
      ++tried;
      const auto p = program_from_bytes(b);
      if (!p || p->spirv != good.spirv) return;
      ++taken;
      if (!all && taken % 64 != 0) return;
      try {
        const auto arrays = arrays_of(*p, dims, true), inputs = arrays_of(*p, dims, false);
        if (!arrays || p->scratch_bytes > 1 << 24 || p->num_units.eval(dims) > 4096) return;
        judge::Options o;
        o.subgroup_size = device ? device->target().subgroup_size : 8;
        o.max_steps = int64_t{1} << 22;
        ++judged;
        const judge::Result r = judge::run(*p, *arrays, dims, o);
        if (!r.reports.empty() || r.unfinished) return;
        if (++sound > most_runs || !device) return;
        ++ran;
        const auto start = std::chrono::steady_clock::now();
        (void)CompiledKernel(*device, std::make_shared<const Program>(*p)).run(*inputs, dims);
        CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
      } catch (const Error&) {
        ++errors;  // in words
      }
    };
    for (size_t at = 0; at < bytes.size(); ++at) {
      if (at >= code_at && at < code_at + code.size()) continue;
      for (const int v : {0, 1, 2, 127, 128, 255, static_cast<unsigned char>(bytes[at]) ^ 1,
                          static_cast<unsigned char>(bytes[at]) + 1})
        mutant(with(bytes, at, static_cast<char>(v)));
      for (const int64_t v : {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{INT32_MAX}, int64_t{INT32_MAX} + 1,
                              INT64_MAX, INT64_MIN, int64_t{1} << 40}) {
        if (at + 4 <= bytes.size()) mutant(with(bytes, at, static_cast<int32_t>(v)));
        if (at + 8 <= bytes.size()) mutant(with(bytes, at, v));
      }
    }
    MESSAGE(k.name << ": " << tried << " mutants, " << taken << " taken, " << judged << " judged, " << errors
                   << " errors, " << sound << " sound, " << ran << " run");
    CHECK(taken > 0);
    CHECK(judged > 0);
  }
  if (device) device->wait();
}

}  // namespace mutants_test
