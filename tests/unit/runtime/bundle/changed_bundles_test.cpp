// Bundles of which any number was changed, under a checksum that is right: what is still read is prepared, recorded,
// given other sizes and, where its kernels' code is the old one, run. All that fails says so; nothing crashes, waits
// forever or leaves what is its own. tests/changed_programs has changed Programs on the judge; record_graph_test.cpp
// graphs of which one field was changed on purpose.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <set>

#include "codegen/program/program_file.h"
#include "engine/front.h"
#include "runtime/loaded_graph.h"
#include "runtime/record.h"
#include "runtime/record_graph.h"
#include "tests/unit/runtime/bundled_graph.h"
#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace changed_bundles_test {
using namespace tessera;
using namespace tessera::test;

namespace {
/// A graph that decides on the device, takes a number, has a constant and kernels with scratch, checks and aliases; a
/// kernel of any size, with a number by value and a loop that CPU drivers get in pieces.
BundleFile file_of(const Target& target) {
  const auto checked = pallas_call(
      [](Ref x, Ref o) {
        check(max(x[all]) < 1000, "too much");
        o[all] = x[all] - 1;
      },
      {.out_shape = {{{8}, f32}}, .name = "checked"});
  const auto next = pallas_call([](Ref, Ref o) { o[all] = o[all] + 1; },
                                {.out_shape = {{{8}, f32}}, .input_output_aliases = {{0, 0}}, .name = "next"});
  const auto f = jit(
      [&](Tensor x, Tensor n) {
        const Value y = x * 2;
        return std::tuple{fori_loop(0, minimum(n, 2), y, [&](Value, Value v) { return Value(next(v)); }),
                          switch_(n, [&] { return Value(checked(next(x))); }, [&] { return x; })};
      },
      {.name = "graph"});
  BundleFile file = bundle_file(target, f.trace({{{8}, f32}, {{}, i32}}));
  const BlockSpec rows{{4}, [](Value i) { return Indices{i}; }};
  const auto sized = pallas_call(
      [](Ref x, Ref by, Ref o, Ref acc) {
        when(program_id(0) == 0, [&] { acc[all] = zeros({4}, f32); });
        acc[all] +=
            fori_loop(0, 3, x[all] * broadcast_to(by[all], {4}), [](Value i, Value v) { return v + cast(i, f32); });
        o[all] = acc[all];
      },
      {.out_shape = {{{dim("n")}, f32}},
       .grid = {cdiv(dim("n"), 4)},
       .in_specs = {rows, by_value(f32)},
       .out_specs = {rows},
       .scratch_shapes = {VMEM({4}, f32)},
       .name = "sized",
       .in_shape = {{{dim("n")}, f32}, {{}, f32}}});
  const BundleSource source{sized.trace(), {"x", "by", "o"}};
  file.kernels = make_bundle(std::span(&source, 1), std::vector{minimum_target(), target}).file.kernels;
  return file;
}

/// Where code lies, which is trusted.
std::vector<std::pair<size_t, size_t>> code_in(const BundleFile& file, const std::string& bytes) {
  std::vector<std::pair<size_t, size_t>> code;
  const auto add = [&](const std::vector<BundleKernel>& kernels) {
    for (const BundleKernel& k : kernels)
      for (const BundleVariant& v : k.variants) {
        const std::optional<Program> p = program_from_bytes(v.program);
        const std::string words(reinterpret_cast<const char*>(p->spirv.data()), p->spirv.size() * 4);
        for (size_t at = bytes.find(words); at != std::string::npos; at = bytes.find(words, at + words.size()))
          code.emplace_back(at, at + words.size());
      }
  };
  add(file.kernels);
  for (const BundleGraph& g : file.graphs) add(g.kernels);
  return code;
}
}  // namespace

TEST_CASE("bundles of which any number was changed are refused, or do what they say") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    const BundleFile file = file_of(d.target());
    const std::string bytes = kernels_to_bytes(file);
    const std::vector<std::pair<size_t, size_t>> code = code_in(file, bytes);
    std::set<std::string> known;  // programs
    for (const BundleKernel& k : file.graphs[0].kernels)
      for (const BundleVariant& v : k.variants) known.insert(v.program);
    const DeviceArray x(d, ramp(8));
    CommandStream stream(d);
    const VkCommandBuffer c = host->commands();
    uint64_t frame = 0;
    const auto in_stream = [&](const auto& record, bool runs) {
      host->begin(c);
      stream.begin(c, ++frame);
      try {
        record();
      } catch (...) {
        stream.end();
        host->vkEndCommandBuffer(c);
        throw;
      }
      stream.end();
      if (runs) host->run(c);
      else host->vkEndCommandBuffer(c);
    };
    const uint64_t most = std::getenv("TESSERA_TESTS_ALL") ? 20000 : 800;
    int64_t read = 0, refused = 0, recorded = 0, ran = 0;
    for (uint64_t seed = 0; seed < most; ++seed) {
      CAPTURE(seed);
      std::mt19937_64 random(seed);
      const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
      std::string changed = bytes;
      for (size_t n = 1 + below(2); n > 0; --n) {
        size_t at = below(bytes.size());
        for (const auto& [begin, end] : code)
          if (at >= begin && at < end) at = begin - 1 - below(std::min<size_t>(begin, 400));
        const int64_t values[] = {0,         1,         2,
                                  3,         -1,        7,
                                  8,         127,       128,
                                  255,       INT32_MAX, int64_t{INT32_MAX} + 1,
                                  INT64_MAX, INT64_MIN, int64_t{1} << 40};
        const int64_t v = below(2) ? values[below(std::size(values))]
                                   : static_cast<unsigned char>(bytes[at]) + static_cast<int64_t>(below(3)) - 1;
        const size_t sizes[] = {1, 1, 1, 4, 8}, size = std::min(sizes[below(5)], bytes.size() - at);
        std::memcpy(changed.data() + at, &v, size);
      }
      bool same = true;
      for (const auto& [begin, end] : code)
        same = same && changed.compare(begin, end - begin, bytes, begin, end - begin) == 0;
      if (!same) continue;
      std::optional<BundleFile> f = kernels_from_bytes(changed);
      if (!f) continue;
      ++read;
      const auto attempt = [&](const auto& what) {
        try {
          what();
        } catch (const Error& e) {
          CHECK(std::strlen(e.what()) > 0);
          ++refused;
        }
      };
      attempt([&] {
        const std::string whole = bundle_to_bytes(*f);
        const Bundle b(std::as_bytes(std::span(whole)), "changed.tsb");
        for (const std::string& name : b.kernels())
          attempt([&] {
            (void)b.explain(d, name);
            (void)b.arguments(name);
            PreparedKernel k =
                b.kernel(d, name).prepare({.frames_in_flight = 2, .calls_per_frame = 2, .dims = {{"n", 10}}});
            for (const int64_t n : {10, 3, 0, 9})
              attempt([&] {
                k.resize({{"n", n}});
                std::vector<DeviceArray> arrays;
                for (size_t i = 0; i < k.program().args.size(); ++i) {
                  if (k.program().args[i].by_value) arrays.emplace_back(Scalar(k.dtype(i), 3));
                  else arrays.emplace_back(d, k.shape(i), k.dtype(i));
                }
                in_stream([&] { stream.record(k, std::vector<Argument>(arrays.begin(), arrays.end())); }, false);
                ++recorded;
              });
          });
        for (const std::string& name : b.graphs())
          attempt([&] {
            const GraphCode g = b.graph(d, name);
            DimValues sizes;
            for (const std::string& size : size_names(*g.graph)) sizes[size] = 8;
            const LoadedGraph loaded(d, g, {.dims = sizes});
            PreparedGraph prepared(d, g, {.dims = sizes});
            bool trusted = true;
            for (const auto& p : g.programs) trusted = trusted && known.count(program_to_bytes(*p)) != 0;
            if (!trusted) return;
            const auto run = [&] {
              const auto shape = [&](const GraphProgram::Type& t) {
                Shape s;
                for (const Extent& e : t.second) s.push_back(e.eval(sizes));
                return s;
              };
              std::vector<DeviceArray> in, out;
              for (const GraphProgram::Type& type : g.graph->inputs) {
                const DType t = type.first;
                const Shape s = shape(type);
                in.push_back(s.empty()                   ? DeviceArray(d, Array(s, t))
                             : s == Shape{8} && t == f32 ? x
                                                         : DeviceArray(d, s, t));
              }
              for (const GraphProgram::Type& type : g.graph->outputs) out.emplace_back(d, shape(type), type.first);
              loaded.run_into(in, out);
              in_stream([&] { prepared.record(stream, in, out); }, true);
              ++ran;
              attempt([&] {
                for (const DeviceArray& a : out) a.download();
              });
              attempt([&] { d.wait(); });
            };
            run();
            for (auto& [size, n] : sizes) n = 5, prepared.resize({{size, n}});
            if (!sizes.empty()) run();
          });
      });
    }
    MESSAGE(read << " of " << most << " were read, " << refused << " errors, " << recorded << " calls recorded, " << ran
                 << " graphs run");
    CHECK(read > 20);
    CHECK(refused > 20);
    CHECK(recorded > 20);
    CHECK(ran > 20);
  }
  check_silent(std::move(host));
}

}  // namespace changed_bundles_test
