// What is known of operands and sizes leaves out of the code, and what it must not: each guard of a division, a shift,
// a loop and an array's address is there exactly where some value needs it, and the judge finds nothing undefined at
// the ends of the ranges.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>

#include "codegen/lane/loops.h"
#include "tests/support/elementwise.h"
#include "tests/support/judge/judge.h"
#include "tests/unit/codegen/spirv_support.h"

namespace spirv_ranges_test {
using namespace tessera;
using namespace tessera::test;

namespace {

int count(const std::vector<uint32_t>& words, spv::Op op) {
  int n = 0;
  for (size_t at = 5; at < words.size(); at += words[at] >> spv::WordCountShift)
    n += (words[at] & spv::OpCodeMask) == static_cast<uint32_t>(op);
  return n;
}

struct Ends {
  int64_t lo, hi;
};

uint64_t pattern(DType t, int64_t v) {
  return static_cast<uint64_t>(v) & (bits(t) == 64 ? ~uint64_t{0} : (uint64_t{1} << bits(t)) - 1);
}

/// The ends of a range, what lies beside them, and beside 0.
std::vector<int64_t> values_in(const Ends& r) {
  std::set<int64_t> v;
  for (const int64_t at : {r.lo, r.hi, int64_t{0}})
    for (const int64_t by : {-2, -1, 0, 1, 2})
      if (!(at < 0 && by < 0 && at < INT64_MIN + 2) && !(at > 0 && by > 0 && at > INT64_MAX - 2) && at + by >= r.lo &&
          at + by <= r.hi)
        v.insert(at + by);
  return {v.begin(), v.end()};
}

/// o[i] = op(x[i], y[i]), the operands clamped to ranges.
std::vector<uint32_t> module_of(LaneKernel& t, Opcode op, DType type, const Ends& a, const Ends& b,
                                const Target& target) {
  const Value x = t.arg(type), y = t.arg(type), out = t.arg(type), i = t.global_index();
  const auto within = [&](Value v, const Ends& r) {
    return t.op(Opcode::clamp, {t.b.constant(type, pattern(type, r.lo)), v, t.b.constant(type, pattern(type, r.hi))},
                type);
  };
  t.store(out, i, t.op(op, {within(t.load(x, i), a), within(t.load(y, i), b)}, type));
  t.finish();
  return emit_valid(t.k, target);
}

void judged(const std::vector<uint32_t>& words, Opcode op, DType type, const Ends& a, const Ends& b) {
  std::vector<std::array<uint64_t, 2>> pairs;
  for (const int64_t x : values_in(a))
    for (const int64_t y : values_in(b)) pairs.push_back({pattern(type, x), pattern(type, y)});
  while (pairs.size() % 8) pairs.push_back(pairs[0]);
  const auto n = static_cast<int64_t>(pairs.size());
  Array x({n}, type), y({n}, type), o({n}, type);
  for (int64_t i = 0; i < n; ++i)
    x.set_element_bits(i, pairs[static_cast<size_t>(i)][0]), y.set_element_bits(i, pairs[static_cast<size_t>(i)][1]);
  Program p;
  p.name = "k";
  p.args = {
      {"x", type, {n}, false, true, false}, {"y", type, {n}, false, true, false}, {"o", type, {n}, true, false, true}};
  p.spirv = words;
  p.workgroup_size = 8;
  p.num_units = n / 8;
  const judge::Result r = judge::run(p, {x, y, o}, {});
  for (const std::string& s : r.reports) FAIL_CHECK(s);
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t want = reference::eval(op, type, type, pairs[static_cast<size_t>(i)].data());
    if (r.outputs.at(0).element_bits(i) != want) {
      FAIL_CHECK("of 0x" << std::hex << pairs[static_cast<size_t>(i)][0] << " and 0x"
                         << pairs[static_cast<size_t>(i)][1] << ": 0x" << r.outputs[0].element_bits(i) << ", not 0x"
                         << want);
      return;
    }
  }
}

}  // namespace

TEST_CASE("spirv ranges: a division's guards are there where the ranges have what they guard against") {
  for (const DType type : {DType::i8, DType::i16, DType::i32, DType::i64, DType::u8, DType::u32}) {
    const bool is_signed = is_signed_int(type);
    const int64_t least = is_signed ? -(int64_t{1} << (std::min(bits(type), 63) - 1)) * (bits(type) == 64 ? 2 : 1) : 0,
                  most = is_signed ? -(least + 1) : (int64_t{1} << bits(type)) - 1;
    std::vector<Ends> divided{{0, most}, {0, 100}, {5, 9}},
        by{{0, 0}, {0, 1}, {0, 7}, {1, 1}, {1, 7}, {2, 9}, {1, most}, {0, most}};
    if (is_signed) {
      for (const Ends& e : {Ends{least, most}, Ends{least + 1, most}, Ends{least, 0}, Ends{-1, 100}, Ends{-50, -3}})
        divided.push_back(e);
      for (const Ends& e : {Ends{-4, 0}, Ends{-4, -1}, Ends{-4, -2}, Ends{-1, -1}, Ends{-1, 0}, Ends{-1, 3},
                            Ends{least, most}, Ends{least, -1}, Ends{least, -2}})
        by.push_back(e);
    }
    for (const Opcode op : {Opcode::div, Opcode::rem})
      for (const Ends& a : divided)
        for (const Ends& b : by) {
          CAPTURE(ir::name(op));
          CAPTURE(name(type));
          CAPTURE(a.lo);
          CAPTURE(a.hi);
          CAPTURE(b.lo);
          CAPTURE(b.hi);
          LaneKernel plain(8), t(8);
          const auto without = module_of(plain, Opcode::add, type, a, b, lavapipe_target()),
                     words = module_of(t, op, type, a, b, lavapipe_target());
          const bool zero = b.lo <= 0 && b.hi >= 0,
                     overflow = bits(type) >= 32 && is_signed && a.lo == least && b.lo <= -1 && b.hi >= -1;
          const bool unsigned_division = !is_signed || (a.lo >= 0 && b.lo > 0);
          CHECK(count(words, spv::OpSDiv) == (unsigned_division ? 0 : 1));
          CHECK(count(words, op == Opcode::div ? spv::OpUDiv : spv::OpUMod) == (unsigned_division ? 1 : 0));
          CHECK(count(words, spv::OpSelect) - count(without, spv::OpSelect) == (zero ? 2 : overflow ? 1 : 0));
          judged(words, op, type, a, b);
        }
  }
}

TEST_CASE("spirv ranges: a shift's guards are there where the amount may be the width or more") {
  for (const DType type : {DType::i8, DType::u8, DType::i16, DType::i32, DType::u32, DType::i64}) {
    const int64_t w = bits(type);
    for (const Opcode op : {Opcode::shift_left, Opcode::shift_right_logical, Opcode::shift_right_arithmetic})
      for (const Ends& b : {Ends{0, w - 1}, Ends{0, w}, Ends{1, w - 1}, Ends{w - 1, w - 1}, Ends{w, w}, Ends{0, 0},
                            Ends{-1, w - 1}, Ends{3, w + 1}}) {
        if (b.lo < 0 && is_unsigned_int(type)) continue;
        CAPTURE(ir::name(op));
        CAPTURE(name(type));
        CAPTURE(b.lo);
        CAPTURE(b.hi);
        const int64_t most =
            is_signed_int(type) ? static_cast<int64_t>((uint64_t{1} << (w - 1)) - 1) : (int64_t{1} << w) - 1;
        const Ends a{is_signed_int(type) ? -most - 1 : 0, most};
        LaneKernel plain(8), t(8);
        const auto without = module_of(plain, Opcode::xor_, type, a, b, lavapipe_target()),
                   words = module_of(t, op, type, a, b, lavapipe_target());
        CHECK(count(words, spv::OpSelect) - count(without, spv::OpSelect) == (b.lo < 0 || b.hi >= w ? 1 : 0));
        judged(words, op, type, a, b);
      }
  }
}

// The last workgroup's block may begin 8 n - 8 elements of 4 bytes behind the first one's: below 4 GiB up to 2^27.
TEST_CASE("spirv ranges: where a workgroup's block begins, by how many workgroups there are") {
  const auto module = [](int64_t units, bool exact) {
    LaneKernel t(8);
    t.k.lane.num_units = units;
    t.k.lane.exact = exact;
    const Value out = t.arg(DType::i32), lane = t.value(Opcode::local_index);
    const Value start = t.op(Opcode::mul, {t.value(Opcode::workgroup_index), t.i32c(8)}, DType::i32);
    t.store(t.view(out, t.op(Opcode::convert, {start}, DType::i64)), lane, lane);
    t.finish();
    return emit_valid(t.k, gpu_target());
  };
  struct Products {
    int all, folded, zero_extended;
  };
  const auto products = [&](int64_t units, bool exact) {
    const std::vector<uint32_t> words = module(units, exact);
    int built_ins = 0;
    for (size_t at = 5; at < words.size(); at += words[at] >> spv::WordCountShift)
      built_ins += (words[at] & spv::OpCodeMask) == spv::OpDecorate && words[at + 2] == spv::DecorationBuiltIn &&
                   words[at + 3] == spv::BuiltInNumWorkgroups;
    return Products{count(words, spv::OpIMul), built_ins, count(words, spv::OpUConvert)};
  };
  const auto check = [&](int64_t units, bool exact, const Products& expected) {
    CAPTURE(units);
    const Products found = products(units, exact);
    CHECK(found.all == expected.all);
    CHECK(found.folded == expected.folded);
    CHECK(found.zero_extended == expected.zero_extended);
  };
  check(1 << 27, true, {3, 0, 2});        // by 8, by 4, of the lane by 4
  check((1 << 27) + 1, true, {3, 0, 1});  // its last block begins 4 GiB behind the first one
  check(1 << 27, false, {5, 1, 1});       // two more, as the dispatch may be folded
}

// Rounds of a for whose end and step are data within ranges: counted, and hashed. A step below 1 counts as 1; a
// counter's last addition may pass INT32_MAX only where something else says whether an iteration is left.
TEST_CASE("spirv ranges: a loop's step and end") {
  struct Loop {
    Ends step;
    int64_t end, begin = INT32_MIN;
  };  // end: at most; begin: at least
  const Target gpu = minimum_target(), cpu = lavapipe_target();
  const auto module = [](LaneKernel& t, const Loop& l, const Target& target, int* copies) {
    const Value in = t.arg(DType::i32), out = t.arg(DType::i32), i = t.value(Opcode::local_index);
    const auto clamped = [&](int64_t at, int64_t lo, int64_t hi) {
      return t.op(Opcode::clamp, {t.i32c(lo), t.load(in, t.op(Opcode::add, {i, t.i32c(at)})), t.i32c(hi)}, DType::i32);
    };
    const Value lower = clamped(0, l.begin, INT32_MAX), upper = clamped(8, INT32_MIN, l.end),
                step = l.step.lo == l.step.hi ? t.i32c(l.step.lo) : clamped(16, l.step.lo, l.step.hi);
    const auto r = t.b.for_loop(lower, upper, step, {t.i32c(0), t.i32c(0)}, [&](Value iv, const std::vector<Value>& c) {
      return std::vector<Value>{t.op(Opcode::add, {t.op(Opcode::mul, {c[0], t.i32c(31)}), iv}),
                                t.op(Opcode::add, {c[1], t.i32c(1)})};
    });
    t.store(out, i, r[0]);
    t.store(out, t.op(Opcode::add, {i, t.i32c(8)}), r[1]);
    t.finish();
    for (const ir::Op& o : t.k.ops)
      if (o.code == Opcode::for_) *copies = lane::copies_per_iteration(t.k, o, target);
    return emit_valid(t.k, target);
  };
  const auto run = [](const std::vector<uint32_t>& words, const Loop& l) {
    Array in({24}, DType::i32), out({16}, DType::i32);
    std::vector<int64_t> lower, upper, step;
    for (int64_t i = 0; i < 8; ++i) {
      upper.push_back(i < 6 ? l.end - i / 2 : l.end - 100);
      step.push_back(
          std::array{l.step.hi, l.step.lo, l.step.hi, (l.step.lo + l.step.hi) / 2}[static_cast<size_t>(i % 4)]);
      lower.push_back(std::max<int64_t>(upper.back() - (i == 7   ? -1
                                                        : i == 5 ? 0
                                                                 : (9 + i) * std::max<int64_t>(step.back(), 1)),
                                        INT32_MIN));
      in.set_element_bits(i, pattern(DType::i32, lower.back())),
          in.set_element_bits(i + 8, pattern(DType::i32, upper.back())),
          in.set_element_bits(i + 16, pattern(DType::i32, step.back()));
    }
    Program p;
    p.name = "k";
    p.args = {{"x", DType::i32, {24}, false, true, false}, {"o", DType::i32, {16}, true, false, true}};
    p.spirv = words;
    p.workgroup_size = 8;
    p.num_units = 1;
    const judge::Result r = judge::run(p, {in, out}, {}, {.max_steps = 1 << 20, .loops = {}});
    CHECK_FALSE(r.unfinished);
    for (const std::string& s : r.reports) FAIL_CHECK(s);
    if (r.unfinished || !r.reports.empty()) return;
    for (size_t i = 0; i < 8; ++i) {
      uint32_t hash = 0;
      int32_t rounds = 0;
      for (int64_t v = lower[i]; v < upper[i]; v += std::max<int64_t>(step[i], 1), ++rounds)
        hash = hash * 31 + static_cast<uint32_t>(v);
      CHECK(static_cast<int32_t>(r.outputs.at(0).element_bits(static_cast<int64_t>(i))) == static_cast<int32_t>(hash));
      CHECK(static_cast<int32_t>(r.outputs.at(0).element_bits(static_cast<int64_t>(i) + 8)) == rounds);
    }
  };
  for (const Target& target : {gpu, cpu}) {
    CAPTURE(target.kind == Target::Kind::cpu);
    // The guard of a step: one select, where it may be below 1.
    int copies = 0, guarded = 0;
    {
      LaneKernel t(8);
      guarded = count(module(t, {{0, 4}, 1000}, target, &copies), spv::OpSelect);
    }
    for (const Ends& step :
         {Ends{1, 4}, Ends{2, 4}, Ends{-3, 4}, Ends{-3, 1}, Ends{0, 1}, Ends{-7, 0}, Ends{0, 4}, Ends{7, 1 << 20}}) {
      CAPTURE(step.lo);
      CAPTURE(step.hi);
      LaneKernel t(8);
      const auto words = module(t, {step, 1000}, target, &copies);
      CHECK(count(words, spv::OpSelect) == guarded - (step.lo >= 1 ? 1 : 0));
      run(words, {step, 1000});
    }
    // The counter beyond INT32_MAX: whether an iteration is left is carried, in each loop, exactly where copies * step
    // - 1 beyond the end is.
    for (const Ends& step :
         {Ends{1, 1}, Ends{3, 3}, Ends{1, 4}, Ends{0, 1}, Ends{-2, 3}, Ends{1, 1 << 20}, Ends{1 << 20, 1 << 20}}) {
      LaneKernel short_of_it(8);
      const int phis = count(module(short_of_it, {step, 1000, 0}, target, &copies), spv::OpPhi);
      CHECK((copies > 1) == (target.kind == Target::Kind::cpu && step.lo == step.hi));
      for (const int64_t by : {-1, 0, 1, 2}) {
        const int64_t last = INT32_MAX + int64_t{1} - copies * std::max<int64_t>(step.hi, 1), end = last + by;
        if (end > INT32_MAX) continue;
        CAPTURE(step.lo);
        CAPTURE(step.hi);
        CAPTURE(by);
        LaneKernel t(8);
        const auto words = module(t, {step, end, 0}, target, &copies);
        CHECK(count(words, spv::OpPhi) == phis + (by > 0 ? (copies > 1 ? 2 : 1) : 0));
        run(words, {step, end, 0});
      }
      // So it is where the ends are 2^31 or more apart.
      for (const int64_t by : {-1, 0}) {
        CAPTURE(by);
        LaneKernel t(8);
        const Loop l{step, 1000, 1000 - INT32_MAX + by};
        const auto words = module(t, l, target, &copies);
        CHECK(count(words, spv::OpPhi) == phis + (by < 0 ? (copies > 1 ? 2 : 1) : 0));
        run(words, l);
      }
    }
    for (const int64_t step : {1, 2, 3, 1000, INT32_MAX / 16, INT32_MAX / 16 + 1, INT32_MAX - 1, INT32_MAX})
      for (const int64_t least : {int64_t{1}, step}) {
        CAPTURE(step);
        LaneKernel t(8);
        const Loop l{{least, step}, INT32_MAX};
        run(module(t, l, target, &copies), l);
        CHECK((copies > 1) == (target.kind == Target::Kind::cpu && least == step && step <= INT32_MAX / 16));
      }
  }
}

// An array that may be empty takes the address of something that is there: the first array that cannot be empty, the
// arena, the report, or one after another of those that may be empty as well.
TEST_CASE("spirv ranges: the address of an array that may be empty") {
  // '8': eight elements; 'n': as many as the call says; '0': none. What each of those that may be empty takes: the
  // argument's number, 's' scratch, 'r' the report, '+' a choice, '-' nothing.
  struct {
    const char* args;
    bool scratch, report;
    const char* takes;
  } const all[] = {
      {"n8", false, false, "1"}, {"8n", false, false, "0"},    {"0n8", false, false, "2"},  {"80n", false, false, "0"},
      {"n08", true, true, "2"},  {"n0n8", false, false, "33"}, {"88", false, false, ""},    {"08", false, false, ""},
      {"0n", false, false, "-"}, {"n", false, false, "-"},     {"n", true, false, "s"},     {"0n", false, true, "r"},
      {"0n", true, true, "s"},   {"nn", false, false, "++"},   {"n0n", false, false, "++"}, {"nn", false, true, "rr"}};
  for (const auto& x : all) {
    CAPTURE(std::string(x.args));
    CAPTURE(x.scratch);
    CAPTURE(x.report);
    LaneKernel t(8);
    for (const char c : std::string(x.args)) {
      t.arg(DType::i32);
      t.k.blocks.back().array_shape = {c == '0' ? Extent(0) : c == '8' ? Extent(8) : Extent::named("n")};
    }
    t.k.lane.scratch_bytes = x.scratch ? 64 : 0;
    t.k.lane.report_bytes = x.report ? 4 : 0;
    const Value i = t.value(Opcode::local_index);
    for (size_t a = 0; a < t.k.blocks.size(); ++a)
      if (x.args[a] != '0') t.store(t.k.region(t.k.body).args[a], i, i);
    t.finish();
    const auto words = emit_valid(t.k, lavapipe_target());
    // Loads of the push constants' members, and choices between such.
    std::map<uint32_t, uint64_t> constants;
    std::map<uint32_t, char> member, base;
    const auto names = std::string(x.args).size();
    std::string takes;
    std::set<uint32_t> wide;
    for (size_t at = 5; at < words.size(); at += words[at] >> spv::WordCountShift) {
      const uint32_t* w = &words[at];
      switch (w[0] & spv::OpCodeMask) {
        case spv::OpTypeInt:
          if (w[2] == 64) wide.insert(w[1]);
          break;
        case spv::OpConstant: constants[w[2]] = w[3]; break;
        case spv::OpAccessChain:
          if ((w[0] >> spv::WordCountShift) == 5 && constants.contains(w[4])) {
            const size_t m = constants[w[4]];
            member[w[2]] = m < names ? static_cast<char>('0' + m) : m == names && x.scratch ? 's' : 'r';
          }
          break;
        case spv::OpLoad:
          if (member.contains(w[3])) base[w[2]] = member[w[3]];
          break;
        case spv::OpSelect:
          if (!wide.contains(w[1])) break;
          if (!base.contains(w[5])) break;
          if (base[w[5]] < '0' + static_cast<char>(names) && x.args[base[w[5]] - '0'] == 'n' && base.contains(w[4]))
            takes += base[w[4]];
          base[w[2]] = '+';
          break;
        default: break;
      }
    }
    if (std::string(x.takes) == "-") CHECK(takes == "");
    else if (std::string(x.takes).find('+') == std::string::npos) CHECK(takes == x.takes);
    else CHECK(std::count(takes.begin(), takes.end(), '+') == static_cast<int>(std::string(x.takes).size()));
  }
}

}  // namespace spirv_ranges_test
