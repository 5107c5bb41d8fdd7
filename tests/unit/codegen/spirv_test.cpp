// Emission of memory, control flow, barriers and subgroup ops: valid modules, the same words every time, the right
// answers on a device, and the errors where a target lacks something.
#include <algorithm>
#include <optional>

#include "codegen/spirv/builder/module.h"
#include "engine/base/error.h"
#include "tests/support/judge/judge.h"
#include "tests/unit/codegen/spirv_support.h"

namespace spirv_test {
using namespace tessera;
using namespace tessera::test;

namespace {

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const CompileError& e) {
    return e.what();
  }
  return "no error";
}

template <class T>
std::vector<T> counting(int n, T start = 0) {
  std::vector<T> v;
  for (int i = 0; i < n; ++i) v.push_back(static_cast<T>(start + static_cast<T>(i)));
  return v;
}

/// Every optional float feature off: conversions through integer code.
Target plain_floats(Target t) {
  t.float16 = t.int16 = t.int8 = t.rte16 = t.rte32 = t.rte64 = t.preserve16 = t.preserve32 = t.preserve64 = false;
  return t;
}

}  // namespace

TEST_CASE("spirv: one element per invocation, workgroup index folded over y and z") {
  LaneKernel t(8);
  const Value x = t.arg(DType::f32), y = t.arg(DType::f32), i = t.global_index();
  t.store(y, i, t.op(Opcode::add, {t.load(x, i), t.load(x, i)}));
  t.finish();
  const auto words = emit_valid(t.k, lavapipe_target());
  CHECK(words == spirv::emit(t.k, lavapipe_target(), false));
  CHECK(emit_valid(t.k, lavapipe_target(), true) != words);
  if (!device()) return;
  for (bool table : {false, true}) {
    auto in = bytes_of(counting<float>(8 * 2 * 3 * 2)), out = in;
    device()->run(emit_valid(t.k, device()->target(), table),
                  {.buffers = {&in, &out}, .workgroups = {2, 3, 2}, .indirect_table = table});
    const auto got = values_of<float>(out);
    for (size_t j = 0; j < got.size(); ++j) CHECK(got[j] == 2 * static_cast<float>(j));
  }
  quiet();
}

TEST_CASE("spirv: loads and stores of every dtype keep bits, through views, shared memory and scratch") {
  for (int d = 0; d < 4 * kNumDTypes; ++d) {
    const auto dt = static_cast<DType>(d % kNumDTypes);
    CAPTURE(name(dt));
    LaneKernel t(8);
    const Value x = t.arg(dt), y = t.arg(dt), lane = t.value(Opcode::local_index);
    t.k.lane.shared_bytes = 16 + 8 * ir::arena_stride(dt);
    t.k.lane.scratch_bytes = 256;
    const Value shared = t.alloc(Opcode::alloc_shared, dt, 8, 16), scratch = t.alloc(Opcode::alloc_scratch, dt, 8, 64);
    const Value eight = t.b.constant_int(DType::i64, 8), far = t.view(x, eight);
    const Value inside = t.op(Opcode::lt, {lane, t.i32c(100)});  // as at an array's edge
    const auto edge = t.b.if_else(
        inside, [&] { return std::vector<Value>{t.load(far, lane)}; },
        [&] { return std::vector<Value>{t.b.constant(dt, 0)}; });
    t.store(y, lane, edge.at(0));
    const Value back = t.op(Opcode::sub, {t.i32c(7), lane});
    t.store(shared, lane, t.load(x, lane));
    t.store(scratch, back, t.load(far, lane));
    t.barrier();
    const Value mid = t.view(y, eight), end = t.view(mid, eight);
    t.store(mid, lane, t.load(shared, back));
    t.store(end, lane, t.load(scratch, lane));
    t.finish();
    const Target base = device() ? device()->target() : lavapipe_target();
    Target of_words = base;
    of_words.int64 = false;
    if (d < 3 * kNumDTypes) of_words.storage8 = of_words.storage16 = false;  // else 64 bits only
    const auto words = emit_valid(t.k, d < kNumDTypes ? base : d < 2 * kNumDTypes ? plain_floats(base) : of_words);
    if (d >= 2 * kNumDTypes && d < 3 * kNumDTypes)
      for (size_t at = 5; at < words.size() && (words[at] & 0xffff) == spv::OpCapability; at += 2)
        for (const spv::Capability c :
             {spv::CapabilityInt64, spv::CapabilityStorageBuffer8BitAccess, spv::CapabilityStorageBuffer16BitAccess})
          CHECK(words[at + 1] != c);
    if (!device()) continue;
    const auto n = static_cast<size_t>(size_bytes(dt));
    std::vector<std::byte> in(16 * n), out(24 * n);
    uint32_t seed = 1;
    const auto next = [&] { return (seed = seed * 1664525 + 1013904223) >> 24; };
    for (std::byte& b : in)
      b = static_cast<std::byte>(dt == DType::boolean ? next() >> 7 : is_int4(dt) ? next() & 15 : next());
    if (dt == DType::f8e5m2)
      for (std::byte& b : in) b &= std::byte{0xfb};  // of its NaNs 0x7d is signaling
    // A signaling NaN and a subnormal travel from buffer to buffer; shared memory holds 16-bit floats as f32, where a
    // NaN may turn quiet.
    if (is_float(dt) && n == 2) {
      const uint16_t nan16 = dt == DType::f16 ? 0x7c01 : 0x7f81, small = 0x8001;
      for (size_t i = 0; i < 16; ++i) in[i * n + 1] &= std::byte{0xbf};
      std::memcpy(&in[8 * n], &nan16, 2);
      std::memcpy(&in[9 * n], &small, 2);
    }
    device()->run(words, {.buffers = {&in, &out}, .scratch_bytes = 256});
    for (size_t i = 0; i < 8; ++i) {
      CHECK(std::memcmp(&out[i * n], &in[(8 + i) * n], n) == 0);
      CHECK(std::memcmp(&out[(8 + i) * n], &in[(7 - i) * n], n) == 0);
      CHECK(std::memcmp(&out[(16 + i) * n], &in[(15 - i) * n], n) == 0);
    }
  }
  quiet();
}

TEST_CASE(
    "spirv: narrow elements that a device can store and not compute with are reached by words where addresses are "
    "pairs") {
  for (const DType dt : {DType::u16, DType::f16, DType::u8})
    for (const bool int64 : {false, true})
      for (const bool narrow : {false, true}) {
        CAPTURE(name(dt));
        CAPTURE(int64);
        CAPTURE(narrow);
        LaneKernel t(8);
        const Value x = t.arg(dt), y = t.arg(dt), lane = t.value(Opcode::local_index);
        t.store(y, lane, t.load(x, lane));
        t.finish();
        Target target = minimum_target();
        target.storage8 = target.storage16 = true;
        target.int64 = int64;
        target.int8 = target.int16 = narrow;
        const std::vector<uint32_t> words = emit_valid(t.k, target);
        bool as_stored = false;
        for (size_t at = 5; at < words.size() && (words[at] & 0xffff) == spv::OpCapability; at += 2)
          as_stored = as_stored || words[at + 1] == (dt == DType::u8 ? spv::CapabilityStorageBuffer8BitAccess
                                                                     : spv::CapabilityStorageBuffer16BitAccess);
        CHECK(as_stored == (int64 || narrow));
      }
}

// Guards and signed divisions cost: what ranges make needless is not emitted.
TEST_CASE("spirv: what a division takes, by what is known of its operands") {
  const auto count = [](const std::vector<uint32_t>& words, spv::Op op) {
    int n = 0;
    for (size_t at = 5; at < words.size(); at += words[at] >> spv::WordCountShift)
      n += (words[at] & spv::OpCodeMask) == static_cast<uint32_t>(op);
    return n;
  };
  struct {
    bool not_negative;
    std::optional<int64_t> divisor;
    bool is_unsigned;
    int guards;
  } const all[] = {
      {true, 3, true, 0},   {false, 3, false, 0},  {true, -3, false, 0},           {false, -3, false, 0},
      {true, -1, false, 0}, {false, -1, false, 1}, {true, std::nullopt, false, 1}, {false, std::nullopt, false, 1}};
  for (const auto& x : all)
    for (const Opcode op : {Opcode::div, Opcode::rem}) {
      CAPTURE(ir::name(op));
      CAPTURE(x.not_negative);
      CAPTURE(x.divisor.value_or(0));
      LaneKernel t(8);
      const Value in = t.arg(DType::i32), out = t.arg(DType::i32), lane = t.value(Opcode::local_index);
      const Value v = t.load(in, lane), a = x.not_negative ? t.op(Opcode::and_, {v, t.i32c(255)}, DType::i32) : v;
      t.store(out, lane, t.op(op, {a, x.divisor ? t.i32c(*x.divisor) : t.load(in, t.i32c(0))}, DType::i32));
      t.finish();
      const std::vector<uint32_t> words = emit_valid(t.k, lavapipe_target());
      CHECK(count(words, op == Opcode::div ? spv::OpUDiv : spv::OpUMod) == (x.is_unsigned ? 1 : 0));
      CHECK(count(words, spv::OpSDiv) == (x.is_unsigned ? 0 : 1));
      CHECK((count(words, spv::OpSelect) > 0) == (x.guards > 0));
    }
}

TEST_CASE("spirv: the rounding of a value that stays f32 is none that a driver may drop") {
  LaneKernel t(8);
  const Value x = t.arg(DType::f32), y = t.arg(DType::f32), i = t.global_index();
  t.store(y, i, t.op(Opcode::convert, {t.op(Opcode::convert, {t.load(x, i)}, DType::f16)}));
  t.finish();
  const auto words = emit_valid(t.k, lavapipe_target());
  std::vector<uint32_t> exact, rounded;  // ids; an instruction is its number of words and opcode, then what it takes
  for (size_t w = 5; w < words.size(); w += words[w] >> 16) {
    const auto op = static_cast<spv::Op>(words[w] & 0xffff);
    if (op == spv::OpDecorate && words[w + 2] == spv::DecorationNoContraction) exact.push_back(words[w + 1]);
    if (op == spv::OpFConvert) rounded.push_back(words[w + 2]);
  }
  REQUIRE(rounded.size() == 2);
  CHECK(exact == std::vector{rounded[0]});
}

TEST_CASE("spirv: masked loads and stores") {
  LaneKernel t(8);
  const Value x = t.arg(DType::i32), y = t.arg(DType::i32), i = t.value(Opcode::local_index);
  const Value inside = t.op(Opcode::lt, {i, t.i32c(5)});
  const Value v = t.load_masked(x, i, inside, t.i32c(-1));
  const Value odd = t.op(Opcode::eq, {t.op(Opcode::and_, {i, t.i32c(1)}), t.i32c(1)});
  t.store_masked(y, i, v, odd);
  t.finish();
  const auto words = emit_valid(t.k, lavapipe_target());
  if (!device()) return;
  auto in = bytes_of(counting<int32_t>(5, 10)), out = bytes_of(std::vector<int32_t>(8, 7));
  device()->run(words, {.buffers = {&in, &out}});
  CHECK(values_of<int32_t>(out) == std::vector<int32_t>{7, 11, 7, 13, 7, -1, 7, -1});
  quiet();
}

TEST_CASE("spirv: for, while, if and switch carry values") {
  LaneKernel t(8);
  const Value n = t.arg(DType::i32), y = t.arg(DType::i32), i = t.value(Opcode::local_index);
  const Value limit = t.load(n, i), zero = t.i32c(0), one = t.i32c(1),
              step = t.load(n, t.op(Opcode::add, {i, t.i32c(8)}));
  // Sum and count of 0, step, ... below limit; odd values count double.
  const auto sums = t.b.for_loop(zero, limit, step, {zero, zero}, [&](Value iv, const std::vector<Value>& c) {
    const Value odd = t.op(Opcode::eq, {t.op(Opcode::rem, {iv, t.i32c(2)}), one});
    const auto add = t.b.if_else(
        odd, [&] { return std::vector<Value>{t.op(Opcode::mul, {iv, t.i32c(2)})}; },
        [&] { return std::vector<Value>{iv}; });
    return std::vector<Value>{t.op(Opcode::add, {c[0], add[0]}), t.op(Opcode::add, {c[1], one})};
  });
  t.store(y, i, sums[0]);
  t.store(y, t.op(Opcode::add, {i, t.i32c(8)}), sums[1]);
  // Collatz steps of i + 1.
  const std::vector<Type> pair(2, Type::array(DType::i32));
  const ir::RegionId cond = t.b.new_region(pair), body = t.b.new_region(pair);
  t.b.set_region(cond);
  t.b.yield({t.op(Opcode::ne, {t.b.arg(cond, 0), t.i32c(1)})});
  t.b.set_region(body);
  const Value v = t.b.arg(body, 0);
  const Value even = t.op(Opcode::eq, {t.op(Opcode::and_, {v, t.i32c(1)}), t.i32c(0)});
  const Value triple = t.op(Opcode::add, {t.op(Opcode::mul, {v, t.i32c(3)}), t.i32c(1)});
  t.b.yield({t.op(Opcode::select, {even, t.op(Opcode::div, {v, t.i32c(2)}), triple}),
             t.op(Opcode::add, {t.b.arg(body, 1), t.i32c(1)})});
  t.b.set_region(t.k.body);
  const ir::OpId loop =
      t.b.append({.code = Opcode::while_, .operands = {t.op(Opcode::add, {i, one}), zero}, .regions = {cond, body}});
  t.store(y, t.op(Opcode::add, {i, t.i32c(16)}), t.k.op(loop).results[1]);
  // A switch clamps its selector: i - 2 over three regions.
  std::vector<ir::RegionId> regions;
  for (int64_t r = 0; r < 3; ++r) {
    regions.push_back(t.b.new_region({}));
    t.b.set_region(regions.back());
    t.b.yield({t.i32c(100 + r)});
  }
  t.b.set_region(t.k.body);
  const ir::OpId pick =
      t.b.append({.code = Opcode::switch_, .operands = {t.op(Opcode::sub, {i, t.i32c(2)})}, .regions = regions});
  t.store(y, t.op(Opcode::add, {i, t.i32c(24)}), t.k.op(pick).results[0]);
  t.finish();
  const auto words = emit_valid(t.k, lavapipe_target());
  if (!device()) return;
  const std::vector<int32_t> limits{0, 1, 5, 10, -3, 100, INT32_MAX, INT32_MAX},
      steps{1, 1, 2, 3, 1, 7, INT32_MAX - 5, 1 << 30};
  std::vector<int32_t> both = limits;
  both.insert(both.end(), steps.begin(), steps.end());
  auto in = bytes_of(both), out = bytes_of(std::vector<int32_t>(32, 0));
  device()->run(words, {.buffers = {&in, &out}});
  const auto got = values_of<int32_t>(out);
  for (size_t l = 0; l < 8; ++l) {
    uint32_t sum = 0;
    int32_t count = 0, collatz = 0;
    for (int64_t j = 0; j < limits[l]; j += steps[l], ++count) sum += static_cast<uint32_t>(j % 2 ? 2 * j : j);
    for (auto c = static_cast<int32_t>(l + 1); c != 1; ++collatz) c = c % 2 ? 3 * c + 1 : c / 2;
    CAPTURE(l);
    CHECK(got[l] == static_cast<int32_t>(sum));
    CHECK(got[8 + l] == count);
    CHECK(got[16 + l] == collatz);
    CHECK(got[24 + l] == 100 + std::clamp(static_cast<int>(l) - 2, 0, 2));
  }
  quiet();
}

TEST_CASE("spirv: long loops of few operations are unrolled on a CPU, where the driver counts iterations") {
  LaneKernel t(8);
  const Value y = t.arg(DType::i32), i = t.value(Opcode::local_index);
  t.k.lane.extents = {Extent::named("n")};
  t.k.lane.extent_is_64 = {false};
  const Value n = t.extent(0, false);
  const auto sum = t.b.for_loop(t.i32c(0), n, t.i32c(1), {t.i32c(0)}, [&](Value iv, const std::vector<Value>& c) {
    return std::vector<Value>{t.op(Opcode::add, {c[0], t.op(Opcode::xor_, {iv, i})})};
  });
  t.store(y, i, sum[0]);
  t.finish();
  const auto words = emit_valid(t.k, device() ? device()->target() : lavapipe_target());
  if (!device()) return;
  auto out = bytes_of(std::vector<int32_t>(8, 0));
  const int32_t count = 300007;
  device()->run(words, {.buffers = {&out}, .extents = bytes_of(std::vector<int32_t>{count})});
  for (int32_t l = 0; l < 8; ++l) {
    uint32_t want = 0;
    for (int32_t j = 0; j < count; ++j) want += static_cast<uint32_t>(j ^ l);
    CHECK(values_of<int32_t>(out)[static_cast<size_t>(l)] == static_cast<int32_t>(want));
  }
  quiet();
}

TEST_CASE("spirv: loops that unroll to a whole number of copies, to a rest, and to nothing") {
  struct Bounds {
    int32_t lower, upper, step;
  };
  for (const Bounds& bounds : std::vector<Bounds>{{0, 64, 1},
                                                  {0, 67, 1},
                                                  {3, 4, 1},
                                                  {5, 5, 1},
                                                  {-9, 40, 7},
                                                  {0, INT32_MAX, 1 << 26},
                                                  {INT32_MAX - 40, INT32_MAX, 3}}) {
    const int32_t lower = bounds.lower, upper = bounds.upper, step = bounds.step;
    for (bool known : {true, false}) {
      LaneKernel t(8);
      t.k.lane.extents = {Extent::named("n")};
      t.k.lane.extent_is_64 = {false};
      const Value y = t.arg(DType::i32), i = t.value(Opcode::local_index),
                  limit = known ? t.i32c(upper) : t.extent(0, false);
      const auto out = t.b.for_loop(
          t.i32c(lower), limit, t.i32c(step), {t.i32c(0), t.i32c(0)}, [&](Value iv, const std::vector<Value>& c) {
            return std::vector<Value>{t.op(Opcode::add, {t.op(Opcode::mul, {c[0], t.i32c(31)}), iv}),
                                      t.op(Opcode::add, {c[1], t.i32c(1)})};
          });
      t.store(y, i, out[0]);
      t.store(y, t.op(Opcode::add, {i, t.i32c(8)}), out[1]);
      t.finish();
      const auto words = emit_valid(t.k, lavapipe_target());
      if (!device()) continue;
      auto got = bytes_of(std::vector<int32_t>(16, 0));
      device()->run(words, {.buffers = {&got}, .extents = bytes_of(std::vector<int32_t>{upper})});
      uint32_t hash = 0;
      int32_t count = 0;
      for (int64_t iv = lower; iv < upper; iv += step, ++count) hash = hash * 31 + static_cast<uint32_t>(iv);
      CAPTURE(lower);
      CAPTURE(known);
      CHECK(values_of<int32_t>(got)[3] == static_cast<int32_t>(hash));
      CHECK(values_of<int32_t>(got)[11] == count);
    }
  }
  quiet();
}

TEST_CASE("spirv: copies of a loop's body load and store at places of their own") {
  // u8[i] = x[i] + x[view i][1] + carried, straight or in branches, for bodies that become 1 to 16 copies; f8 NaNs keep
  // their bits through all.
  for (const int filler : {0, 4, 20, 60, 200})
    for (const bool branches : {false, true})
      for (const int32_t count : {0, 1, 2, 15, 16, 17, 40}) {
        CAPTURE(filler);
        CAPTURE(branches);
        CAPTURE(count);
        LaneKernel t(4);
        t.k.lane.extents = {Extent::named("n")};
        t.k.lane.extent_is_64 = {false};
        const Value x = t.arg(DType::u8), nans = t.arg(DType::f8e5m2), y = t.arg(DType::u8),
                    copy = t.arg(DType::f8e5m2), lane = t.value(Opcode::local_index);
        const auto out = t.b.for_loop(
            t.i32c(0), t.extent(0, false), t.i32c(1), {t.i32c(0), t.b.constant(DType::u8, 7)},
            [&](Value iv, const std::vector<Value>& c) {
              // a value of the body, re-emitted in each copy
              const Value at = t.op(Opcode::add, {t.op(Opcode::mul, {iv, t.i32c(4)}), lane});
              Value v = t.op(Opcode::add, {t.load(x, at), t.load(t.view(x, t.op(Opcode::convert, {at}, DType::i64)),
                                                                 t.op(Opcode::add, {lane, t.i32c(1)}))});
              v = t.op(Opcode::add, {v, t.load(x, c[0])});
              for (int i = 0; i < filler; ++i)
                v = t.op(Opcode::xor_,
                         {t.op(Opcode::add, {v, c[1]}), t.b.constant(DType::u8, static_cast<uint64_t>(i))});
              const auto bits = [&] { return std::vector<Value>{t.load(nans, at)}; };
              const Value odd = t.op(Opcode::eq, {t.op(Opcode::and_, {iv, t.i32c(1)}), t.i32c(1)});
              const auto nan =
                  branches ? t.b.if_else(
                                 odd, bits,
                                 [&] { return std::vector<Value>{t.load(nans, t.op(Opcode::add, {at, t.i32c(4)}))}; })
                           : bits();
              if (branches) t.b.when(odd, [&] { t.store(y, at, v); });
              else t.store(y, at, v);
              t.store(copy, at, nan[0]);
              return std::vector<Value>{t.op(Opcode::add, {c[0], t.i32c(2)}), v};
            });
        t.store(y, t.op(Opcode::add, {lane, t.i32c(160)}), out[1]);
        t.finish();
        const auto words = emit_valid(t.k, device() ? device()->target() : lavapipe_target());
        if (!device()) continue;
        std::vector<uint8_t> source(256), want(164, 0xee), raw(256), copied(164, 0xee);
        for (size_t i = 0; i < source.size(); ++i)
          source[i] = static_cast<uint8_t>(i * 37 + 11), raw[i] = static_cast<uint8_t>(i * 3 + 1);
        for (size_t l = 0; l < 4; ++l) {
          uint8_t carried = 7;
          for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
            auto v = static_cast<uint8_t>(source[4 * i + l] + source[4 * i + 2 * l + 1] + source[2 * i]);
            for (int f = 0; f < filler; ++f) v = static_cast<uint8_t>((v + carried) ^ f);
            if (!branches || i % 2) want[4 * i + l] = v;
            copied[4 * i + l] = raw[4 * i + l + (branches && i % 2 == 0 ? 4 : 0)];
            carried = v;
          }
          want[160 + l] = carried;
        }
        auto in = bytes_of(source), patterns = bytes_of(raw), got = bytes_of(std::vector<uint8_t>(164, 0xee)),
             same = got;
        device()->run(words,
                      {.buffers = {&in, &patterns, &got, &same}, .extents = bytes_of(std::vector<int32_t>{count})});
        CHECK(values_of<uint8_t>(got) == want);
        CHECK(values_of<uint8_t>(same) == copied);
      }
  quiet();
}

TEST_CASE("spirv: an index that wraps on the way to an element is still the element's") {
  for (const DType dt : {DType::u8, DType::u32}) {
    LaneKernel t(8);
    const Value x = t.arg(dt), start = t.arg(DType::i32), y = t.arg(dt), lane = t.value(Opcode::local_index);
    const int64_t most = (int64_t{1} << 31) / size_bytes(dt) - 1;  // the last offset below 2^31 bytes
    const Value far = t.view(x, t.b.constant_int(DType::i64, 7 - most));
    // for u8 from numbers just above the least i32, which wrap, to most
    const Value at = t.op(Opcode::add, {t.load(start, lane), t.i32c(-5)});
    t.store(y, lane, t.load(far, at));
    t.finish();
    const auto words = emit_valid(t.k, device() ? device()->target() : lavapipe_target());
    if (!device()) continue;
    std::vector<int32_t> starts;
    for (int i = 0; i < 8; ++i) starts.push_back(static_cast<int32_t>(static_cast<uint32_t>(most - i + 5)));
    Elements in(dt, 8), out(dt, 8);
    for (int i = 0; i < 8; ++i) in.set(i, static_cast<uint64_t>(10 + i));
    auto where = bytes_of(starts);
    device()->run(words, {.buffers = {&in.bytes, &where, &out.bytes}});
    for (int i = 0; i < 8; ++i) CHECK(out.get(i) == static_cast<uint64_t>(17 - i));
  }
  quiet();
}

TEST_CASE("spirv: constants of an index, one behind the other, that wrap on the way to an element") {
  constexpr int64_t kHalf = int64_t{1} << 30, kMost = INT32_MAX;
  const std::vector<std::vector<int64_t>> sums{{-5},
                                               {5, 6},
                                               {5, -6},
                                               {kHalf - 1, kHalf - 1},
                                               {1 - kHalf, 1 - kHalf},
                                               {-kHalf, -kHalf},
                                               {1 - kHalf, kHalf - 1},
                                               {-kMost, -kMost},
                                               {-kMost - 1, -1},
                                               {kMost, kMost, 2},
                                               {1 - kHalf, 1 - kHalf, 1 - kHalf},
                                               {kHalf - 1, kHalf - 1, kHalf - 1, kHalf - 1, 4}};
  for (const DType dt : {DType::u8, DType::u16, DType::u32, DType::u64})
    for (const std::vector<int64_t>& constants : sums)
      for (const bool last : {false, true}) {
        CAPTURE(name(dt));
        CAPTURE(constants.size());
        CAPTURE(constants[0]);
        CAPTURE(last);
        LaneKernel t(8);
        const Value x = t.arg(dt), start = t.arg(DType::i32), y = t.arg(dt), lane = t.value(Opcode::local_index);
        // Elements from 0 on, or the last ones below 2^31 bytes.
        const int64_t first = last ? (int64_t{1} << 31) / size_bytes(dt) - 8 : 0;
        const Value there = last ? t.view(x, t.b.constant_int(DType::i64, -first)) : x;
        Value at = t.load(start, lane);
        int64_t sum = 0;
        for (const int64_t c : constants) at = t.op(Opcode::add, {at, t.i32c(c)}), sum += c;
        t.store(y, lane, t.load(there, at));
        Program p;
        p.name = "test";
        p.workgroup_size = 8;
        p.num_units = 1;
        p.args = {{"x", dt, {8}, false, true, false},
                  {"start", DType::i32, {8}, false, true, false},
                  {"y", dt, {8}, true, false, true}};
        p.spirv = emit_valid(t.finish(), lavapipe_target());
        std::vector<Array> arrays{Array({8}, dt), Array({8}, DType::i32), Array({8}, dt)};
        for (int64_t i = 0; i < 8; ++i) {
          arrays[0].set_element_bits(i, static_cast<uint64_t>(10 + i));
          arrays[1].set_element_bits(i, static_cast<uint32_t>(first + 7 - i - sum));
        }
        const judge::Result r = judge::run(p, arrays, {});
        for (const std::string& report : r.reports) FAIL_CHECK(report);
        for (int64_t i = 0; i < 8; ++i) CHECK(r.outputs.at(0).element_bits(i) == static_cast<uint64_t>(17 - i));
      }
}

TEST_CASE("spirv: extents in the push constants, i64 first") {
  LaneKernel t(8);
  const Value y = t.arg(DType::i64), i = t.value(Opcode::local_index);
  t.k.lane.extents = {Extent(1), Extent(2), Extent(3)};
  t.k.lane.extent_is_64 = {false, true, false};
  const Value product = t.op(Opcode::mul, {t.extent(1, true), t.b.convert(t.extent(2, false), DType::i64)});
  t.store(y, i, t.op(Opcode::add, {t.b.convert(t.extent(0, false), DType::i64), product}));
  t.finish();
  const auto words = emit_valid(t.k, lavapipe_target());
  if (!device()) return;
  auto out = bytes_of(std::vector<int64_t>(8, 0)), extents = bytes_of(std::vector<int64_t>{int64_t{1} << 40});
  const auto narrow = bytes_of(std::vector<int32_t>{-5, 3});
  extents.insert(extents.end(), narrow.begin(), narrow.end());
  device()->run(words, {.buffers = {&out}, .extents = extents});
  CHECK(values_of<int64_t>(out) == std::vector<int64_t>(8, (int64_t{3} << 40) - 5));
  quiet();
}

TEST_CASE("spirv: barriers order shared memory between subgroups, in a loop") {
  LaneKernel t(32);
  const Value y = t.arg(DType::i32), i = t.value(Opcode::local_index);
  t.k.lane.shared_bytes = 128;
  const Value s = t.alloc(Opcode::alloc_shared, DType::i32, 32, 0);
  t.store(s, i, i);
  t.barrier();
  // Rotate by one, 33 times.
  t.b.for_loop(t.i32c(0), t.i32c(33), t.i32c(1), {}, [&](Value, const std::vector<Value>&) {
    const Value v = t.load(s, t.op(Opcode::rem, {t.op(Opcode::add, {i, t.i32c(1)}), t.i32c(32)}));
    t.barrier();
    t.store(s, i, v);
    t.barrier();
    return std::vector<Value>{};
  });
  t.store(y, i, t.load(s, i));
  t.finish();
  const auto words = emit_valid(t.k, lavapipe_target());
  if (!device()) return;
  auto out = bytes_of(std::vector<int32_t>(32, -1));
  device()->run(words, {.buffers = {&out}});
  for (int32_t l = 0; l < 32; ++l) CHECK(values_of<int32_t>(out)[static_cast<size_t>(l)] == (l + 1) % 32);
  quiet();
}

TEST_CASE("spirv: subgroup reductions and shuffles of every dtype") {
  struct Variant {
    const char* what;
    bool arithmetic;
    Target::Kind kind;
  };
  for (const Variant& variant : {Variant{"cpu", true, Target::Kind::cpu}, Variant{"gpu", true, Target::Kind::gpu},
                                 Variant{"shuffles only", false, Target::Kind::gpu}}) {
    for (int d = 0; d < kNumDTypes; ++d) {
      const auto dt = static_cast<DType>(d);
      CAPTURE(name(dt));
      CAPTURE(variant.what);
      Target target = device() ? device()->target() : lavapipe_target();
      const int size = target.subgroup_size;
      target.subgroup_arithmetic = variant.arithmetic;
      target.kind = variant.kind;
      LaneKernel t(2 * size);
      t.k.lane.subgroup_size = size;
      const Value x = t.arg(dt), y = t.arg(dt), i = t.value(Opcode::local_index), v = t.load(x, i);
      std::vector<Opcode> kinds;
      if (dt != DType::boolean) kinds = {Opcode::add, Opcode::mul, Opcode::max, Opcode::min};
      if (!is_float(dt)) kinds.insert(kinds.end(), {Opcode::and_, Opcode::or_, Opcode::xor_});
      int64_t row = 0;
      const auto put = [&](Value r) { t.store(y, t.op(Opcode::add, {i, t.i32c(2 * size * row++)}), r); };
      for (Opcode kind : kinds) put(t.reduce(kind, v));
      put(t.shuffle_xor(v, 1));
      const Value mirror = t.op(Opcode::sub, {t.i32c(size - 1), t.value(Opcode::lane_id)});
      put(t.b.one({.code = Opcode::subgroup_shuffle, .operands = {v, mirror}}));
      t.finish();
      const auto words = emit_valid(t.k, target);
      if (!device()) continue;
      const int64_t count = 2 * size;
      Elements in(dt, count), out(dt, row * count);
      for (int64_t j = 0; j < count; ++j)
        in.set(j, reference::from_double(dt, dt == DType::boolean ? double(j % 3 == 0) : double(j % 3 + 1)));
      device()->run(words, {.buffers = {&in.bytes, &out.bytes}, .subgroup_size = static_cast<uint32_t>(size)});
      const auto rows = static_cast<int64_t>(kinds.size());
      for (int64_t j = 0; j < count; ++j) {
        const int64_t first = j / size * size;
        for (int64_t r = 0; r < rows; ++r) {
          const Opcode kind = kinds[static_cast<size_t>(r)];
          const DType inner = is_narrow_float(dt) ? f32 : dt;  // rounds once
          const auto widened = [&](int64_t l) {
            const uint64_t b = in.get(l);
            return reference::eval(Opcode::convert, dt, inner, &b);
          };
          uint64_t want = widened(first);
          for (int64_t l = 1; l < size; ++l) {
            const uint64_t pair[] = {want, widened(first + l)};
            want = reference::eval(kind, inner, inner, pair);
          }
          want = reference::eval(Opcode::convert, inner, dt, &want);
          CAPTURE(ir::name(kind));
          CHECK(out.get(r * count + j) == want);
        }
        CHECK(out.get(rows * count + j) == in.get(j ^ 1));
        CHECK(out.get((rows + 1) * count + j) == in.get(first + size - 1 - (j - first)));
      }
    }
  }
  quiet();
}

TEST_CASE("spirv: scans of subgroups") {
  for (const DType dt : {DType::f32, DType::i32, DType::u32, DType::f16, DType::i8}) {
    CAPTURE(name(dt));
    Target target = device() ? device()->target() : lavapipe_target();
    const int size = target.subgroup_size;
    LaneKernel t(2 * size);
    t.k.lane.subgroup_size = size;
    const Value x = t.arg(dt), y = t.arg(dt), i = t.value(Opcode::local_index), v = t.load(x, i);
    std::vector<Opcode> kinds = {Opcode::add, Opcode::mul};
    if (!is_float(dt)) kinds.insert(kinds.end(), {Opcode::max, Opcode::min, Opcode::and_, Opcode::or_, Opcode::xor_});
    int64_t row = 0;
    for (const Opcode kind : kinds)
      t.store(y, t.op(Opcode::add, {i, t.i32c(2 * size * row++)}), t.reduce(kind, v, Opcode::subgroup_scan));
    t.finish();
    const auto words = emit_valid(t.k, target);
    if (!device()) continue;
    const int64_t count = 2 * size;
    Elements in(dt, count), out(dt, row * count);
    for (int64_t j = 0; j < count; ++j) in.set(j, reference::from_double(dt, double(j % 3 + 1)));
    device()->run(words, {.buffers = {&in.bytes, &out.bytes}, .subgroup_size = static_cast<uint32_t>(size)});
    for (int64_t r = 0; r < row; ++r) {
      const Opcode kind = kinds[static_cast<size_t>(r)];
      CAPTURE(ir::name(kind));
      uint64_t want = 0;
      for (int64_t j = 0; j < count; ++j) {
        if (j % size == 0) want = reference::identity(kind, dt);
        CHECK(out.get(r * count + j) == want);
        const uint64_t pair[] = {want, in.get(j)};
        want = reference::eval(kind, dt, dt, pair);
      }
    }
  }
  quiet();
}

TEST_CASE("spirv: packed products of every pair of signs, by the device's instructions and without them") {
  constexpr uint32_t kWords[] = {0, 0x01020304, 0x80808080, 0xff7f80fe, 0x7f7f7f7f, 0xffffffff, 0xdeadbeef, 0x10f0e25a};
  for (const bool has : {true, false})
    for (const DType element : {DType::i8, DType::u8})
      for (const DType other : {DType::i32, DType::u32}) {
        CAPTURE(has);
        Target target = device() ? device()->target() : lavapipe_target();
        target.integer_dot = target.integer_dot && has;
        LaneKernel t(8);
        const Value x = t.arg(element), y = t.arg(other), z = t.arg(DType::u32), o = t.arg(DType::u32),
                    i = t.value(Opcode::local_index), first = t.op(Opcode::mul, {i, t.i32c(4)});
        std::vector<Value> four;
        for (int64_t j = 0; j < 4; ++j) {
          const Value at = t.op(Opcode::add, {first, t.i32c(j)});
          four.push_back(t.load(x, at));
        }
        const Value word = t.b.one({.code = Opcode::pack4, .operands = four}), with = t.load(y, i), to = t.load(z, i);
        t.store(o, i, t.b.one({.code = Opcode::dot4, .operands = {word, with, to}}));
        t.finish();
        const auto words = emit_valid(t.k, target);
        if (!device()) continue;
        Elements a(element, 32), b(other, 8), c(DType::u32, 8), out(DType::u32, 8);
        for (int64_t j = 0; j < 32; ++j) a.set(j, kWords[j / 4] >> (8 * (j % 4)) & 0xff);
        for (int64_t j = 0; j < 8; ++j) b.set(j, kWords[7 - j]), c.set(j, kWords[j] * 3);
        device()->run(words, {.buffers = {&a.bytes, &b.bytes, &c.bytes, &out.bytes}});
        for (int64_t j = 0; j < 8; ++j)
          CHECK(out.get(j) ==
                reference::dot4(kWords[j], element == DType::i8, kWords[7 - j], other == DType::i32, kWords[j] * 3));
      }
  quiet();
}

TEST_CASE("spirv: a reduction where the subgroup's size is known on the device only") {
  LaneKernel t(64);
  const Value x = t.arg(DType::f32), y = t.arg(DType::f32), i = t.value(Opcode::local_index), v = t.load(x, i);
  t.store(y, i, t.reduce(Opcode::max, v));
  t.store(y, t.op(Opcode::add, {i, t.i32c(64)}), t.reduce(Opcode::add, v));
  t.finish();
  Target target = device() ? device()->target() : lavapipe_target();
  const auto size = static_cast<size_t>(target.subgroup_size);
  target.max_subgroup_size = 64;
  const auto words = emit_valid(t.k, target);
  if (!device()) return;
  auto in = bytes_of(counting<float>(64)), out = bytes_of(std::vector<float>(128, 0));
  device()->run(words, {.buffers = {&in, &out}});
  const auto got = values_of<float>(out);
  for (size_t l = 0; l < 64; ++l) {
    const size_t first = l / size * size;
    CHECK(got[l] == static_cast<float>(first + size - 1));
    CHECK(got[64 + l] == static_cast<float>(size * first + size * (size - 1) / 2));
  }
  quiet();
}

TEST_CASE("spirv: what a target lacks is an error that names it") {
  const auto copy = [](LaneKernel& t, DType d) {
    const Value x = t.arg(d), i = t.value(Opcode::local_index);
    t.b.set_loc({"kernel.cpp", 12});
    t.store(x, i, t.load(x, i));
    t.finish();
  };
  const Target small = minimum_target();
  const auto error = [&](DType d, int32_t workgroup_size = 8, int64_t shared = 0) {
    LaneKernel t(workgroup_size);
    t.k.lane.shared_bytes = shared;
    copy(t, d);
    return error_of([&] { spirv::emit(t.k, small, false); });
  };
  for (int d = 0; d < kNumDTypes; ++d)
    if (const auto t = static_cast<DType>(d); t != DType::f64) CHECK(error(t) == "no error");
  CHECK(error(DType::f64) ==
        "test: load: dtype f64 needs shaderFloat64, which minimum does not have\n  at kernel.cpp:12");
  CHECK(error(DType::f32, 129) == "test: workgroup size: needs 129 invocations, minimum has 128");
  CHECK(error(DType::f32, 8, 16388) == "test: shared memory: needs 16388 bytes, minimum has 16384");
  // The driver's reductions are of what has an instruction, in 32 bits.
  const auto reduction = [&](DType d, Opcode kind, bool arithmetic, Opcode code = Opcode::subgroup_reduce) {
    LaneKernel t;
    const Value x = t.arg(d), i = t.value(Opcode::local_index);
    t.b.set_loc({"kernel.cpp", 13});
    t.store(x, i, t.reduce(kind, t.load(x, i), code));
    t.finish();
    Target target = small;
    target.subgroup_arithmetic = arithmetic;
    return error_of([&] { spirv::emit(t.k, target, false); });
  };
  CHECK(reduction(DType::f32, Opcode::max, false) ==
        "test: subgroup_reduce: max of f32 needs subgroup shuffles, which minimum does not have\n  at kernel.cpp:13");
  CHECK(reduction(DType::f32, Opcode::max, true) ==
        "test: subgroup_reduce: max of f32 needs subgroup shuffles, which minimum does not have\n  at kernel.cpp:13");
  CHECK(reduction(DType::i64, Opcode::add, true) ==
        "test: subgroup_reduce: add of i64 needs subgroup shuffles, which minimum does not have\n  at kernel.cpp:13");
  CHECK(reduction(DType::i32, Opcode::add, false) ==
        "test: subgroup_reduce: add of i32 needs subgroup shuffles, which minimum does not have\n  at kernel.cpp:13");
  CHECK(reduction(DType::i32, Opcode::add, true) == "no error");
  CHECK(reduction(DType::i32, Opcode::add, false, Opcode::subgroup_scan) ==
        "test: subgroup_scan: add of i32 needs subgroup scans, which minimum does not have\n  at kernel.cpp:13");
  CHECK(reduction(DType::i32, Opcode::add, true, Opcode::subgroup_scan) == "no error");
  LaneKernel t;
  for (int j = 0; j < 17; ++j) t.arg(DType::f32);
  t.finish();
  CHECK(error_of([&] { spirv::emit(t.k, small, false); }) == "test: push constants: needs 136 bytes, minimum has 128");
  emit_valid(t.k, small, true);
}

TEST_CASE("spirv: the user's lines and the kernel's name are in the module") {
  LaneKernel t;
  const Value x = t.arg(DType::f32), i = t.value(Opcode::local_index);
  t.b.set_loc({"some/kernel.cpp", 77});
  t.store(x, i, t.load(x, i));
  t.finish();
  const auto words = emit_valid(t.k, lavapipe_target());
#ifdef TESSERA_SPIRV_TOOLS
  const std::string text = spirv::disassemble(words);
  for (const char* wanted : {"OpEntryPoint GLCompute %test \"main\"", "OpString \"some/kernel.cpp\"", " 77 0",
                             "OpExecutionMode %test LocalSize 8 1 1"})
    CHECK_MESSAGE(text.find(wanted) != std::string::npos, wanted << " in\n" << text);
#endif
}

// What a driver keeps of zeros, infinities and NaN in one width says nothing of another.
TEST_CASE("spirv: constants that are 0 are added by the promise of their own width") {
  const auto words = [](DType t, bool narrow, bool wide) {
    LaneKernel l;
    const Value x = l.arg(t), i = l.value(Opcode::local_index), zero = l.b.constant_float(t, 0);
    const Value sum = l.b.elementwise(Opcode::add, {l.load(x, i), zero});
    l.store(x, i, sum);
    l.finish();
    Target target = gpu_target();
    target.preserve32 = narrow;
    target.preserve64 = wide;
    return emit_valid(l.k, target);
  };
  for (const bool mine : {true, false}) {
    CHECK(words(DType::f32, mine, true) == words(DType::f32, mine, false));
    CHECK(words(DType::f64, mine, true).size() < words(DType::f64, mine, false).size());
  }
}

}  // namespace spirv_test
