// The host's memory while kernels are recorded: none is asked for. This file replaces operator new for the whole
// executable, with one that counts.
#include <cstdlib>
#include <mutex>
#include <new>

#include "engine/front.h"
#include "runtime/record.h"
#include "runtime/record_graph.h"
#include "runtime/submit/context.h"
#include "tests/unit/runtime/support.h"

namespace {
thread_local uint64_t asked = 0;
void* take(std::size_t n) noexcept {
  ++asked;
  return std::malloc(n ? n : 1);
}
void* take_or_throw(std::size_t n) {
  if (void* p = take(n)) return p;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t n) { return take_or_throw(n); }
void* operator new[](std::size_t n) { return take_or_throw(n); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return take(n); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return take(n); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }

namespace record_memory_test {
using namespace tessera;
using namespace tessera::test;

TEST_CASE("recording asks for no memory of the host's") {
  const Device d;  // without the validation layers, which ask for much
  const DeviceArray x(d, ramp(200)), y(d, {200}, f32), z(d, {200}, f32);
  Program stores = scale();
  stores.args[0].written = true;
  const auto prepared = [&](Program p) {
    return PreparedKernel(d, std::move(p), {.frames_in_flight = 2, .calls_per_frame = 1, .dims = {{"n", 200}}});
  };
  const auto twice =
      pallas_call([](Ref a, Ref o) { o[all] = a[all] * 2; }, {.out_shape = {{{200}, f32}}, .name = "twice"});
  const auto onto = pallas_call([](Ref, Ref o) { o[all] = o[all] + 1; },
                                {.out_shape = {{{200}, f32}}, .input_output_aliases = {{0, 0}}, .name = "onto"});
  const auto f = jit([&](Tensor a, Tensor b) { return std::tuple{Value(onto(onto(twice(a)))), b}; });
  PreparedGraph graph(d, f.trace({{{200}, f32}, {{200}, f32}}), {.frames_in_flight = 2});
  const DeviceArray u(d, {200}, f32), v(d, {200}, f32);
  PreparedKernel arenas = prepared(scratch()), tables = prepared(table()), copies = prepared(stores);
  CommandStream stream(d, {.timed_calls = 4});
  vulkan::Context& context = *d.context();
  for (uint64_t frame = 0; frame < 4; ++frame) {
    VkCommandBuffer c;
    {
      const std::lock_guard lock(context.mutex());
      c = context.recorder().begin_replayable();
    }
    const uint64_t before = asked;
    stream.begin(c, frame);
    stream.record(arenas, {x, y});
    stream.record(tables, {x, y, z});
    stream.record(copies, {z, y});
    graph.record(stream, {x, y}, {u, v});
    stream.end();
    const uint64_t more = asked - before;  // before doctest asks for some
    CHECK((frame == 0 || more == 0));
    const std::lock_guard lock(context.mutex());
    context.recorder().end_replayable(c);
    context.recorder().retire(c);
  }
}

TEST_CASE("another number, and another size, ask for no memory of the host's") {
  const Device d;
  PreparedKernel kernel = blend(d).prepare({.frames_in_flight = 2, .dims = {{"n", 200}}});
  const DeviceArray large(d, ramp(200)), small(d, ramp(30)), y(d, {200}, f32), z(d, {30}, f32);
  const auto twice =
      pallas_call([](Ref a, Ref s, Ref o) { o[all] = a[all] * s[all]; },
                  {.out_shape = {{{200}, f32}}, .in_specs = {no_block_spec, by_value(f32)}, .name = "twice"});
  PreparedGraph graph(d,
                      jit([&](Tensor a, Tensor s) { return twice(twice(a, s), s); }).trace({{{200}, f32}, {{}, f32}}),
                      {.frames_in_flight = 2});
  const BlockSpec rows{{16}, [](Value i) { return i; }};
  const auto half = pallas_call([](Ref a, Ref o) { o[all] = a[all] / 2; }, {.out_shape = {{{dim("n")}, f32}},
                                                                            .grid = {cdiv(dim("n"), 16)},
                                                                            .in_specs = rows,
                                                                            .out_specs = rows,
                                                                            .name = "half",
                                                                            .in_shape = {{{dim("n")}, f32}}});
  const auto f = jit([&](Tensor a) { return std::tuple{Value(half(half(a))), a}; });
  PreparedGraph sized(d, f.trace({{{dim("n")}, f32}}), {.frames_in_flight = 2, .dims = {{"n", 200}}});
  const DeviceArray also_large(d, {200}, f32), also_small(d, {30}, f32);
  CommandStream stream(d);
  vulkan::Context& context = *d.context();
  for (uint64_t frame = 0; frame < 8; ++frame) {
    VkCommandBuffer c;
    {
      const std::lock_guard lock(context.mutex());
      c = context.recorder().begin_replayable();
    }
    const bool less = frame % 2 != 0;
    const uint64_t before = asked;
    stream.begin(c, frame);
    kernel.resize({{"n", less ? 30 : 200}});
    stream.record(kernel, {less ? small : large, static_cast<float>(frame), static_cast<int>(frame), less ? z : y});
    const DeviceArray inputs[] = {large, static_cast<float>(frame)}, outputs[] = {y};
    graph.record(stream, inputs, outputs);
    sized.resize({{"n", less ? 30 : 200}});
    sized.record(stream, {less ? small : large}, {less ? z : y, less ? also_small : also_large});
    stream.end();
    const uint64_t more = asked - before;
    CHECK((frame < 2 || more == 0));
    const std::lock_guard lock(context.mutex());
    context.recorder().end_replayable(c);
    context.recorder().retire(c);
  }
}

}  // namespace record_memory_test
