// Random kernels mean the same before and after every pass, by the interpreter, bit for bit (any NaN equals any NaN).
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>

#include "engine/interpreter/interpreter.h"
#include "engine/ir/builder.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/passes/passes.h"

namespace passes_random_test {
using namespace tessera;
using ir::Attr, ir::Builder, ir::Index, ir::Kernel, ir::Op, ir::Opcode, ir::Type, ir::Value;

namespace {

constexpr int64_t kSize = 8;

class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed), b_(k_), memory_(seed % 2) {}

  Kernel run() {
    k_.name = "random";
    k_.grid = {{3, "", false, false}, {2, "", false, false}};
    std::vector<Type> args;
    for (DType t : {f32, i32, f32, i32}) {
      ir::BlockMapping m;
      m.dtype = t;
      m.array_shape = {kSize};
      m.what = ir::BlockMapping::Whole{};
      m.origin = "block " + std::to_string(args.size());
      k_.blocks.push_back(m);
      args.push_back(Type::ref(t, {kSize}, ir::MemorySpace::any));
    }
    k_.num_inputs = 2;
    for (DType t : {f32, i32}) k_.scratch.push_back(Type::ref(t, {kSize}, ir::MemorySpace::vmem));
    args.insert(args.end(), k_.scratch.begin(), k_.scratch.end());
    k_.body = b_.new_region(args);
    b_.set_region(k_.body);
    refs_ = k_.region(k_.body).args;
    ops(30);
    digest();
    b_.yield({});
    return std::move(k_);
  }

 private:
  std::mt19937 random_;
  Kernel k_;
  Builder b_;
  std::vector<Value> refs_;
  std::vector<Value> pool_;  // visible values
  bool memory_;              // mostly accesses to a few places
  int depth_ = 0;

  size_t pick(size_t n) { return random_() % n; }
  Value constant(DType t, Shape shape) {
    if (t == boolean) return b_.constant(t, pick(2), shape);
    constexpr int64_t kInts[] = {0, 1, -1, 2, 3, 4, 8, 16, 5, INT32_MIN, INT32_MAX, 31, 32};
    constexpr double kFloats[] = {0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 1e30, -7.25};
    return is_float(t) ? b_.constant_float(t, kFloats[pick(std::size(kFloats))], shape)
                       : b_.constant_int(t, kInts[pick(std::size(kInts))], shape);
  }
  Value any(const Type& t) {
    std::vector<Value> fitting;
    for (Value v : pool_)
      if (k_.type(v) == t) fitting.push_back(v);
    if (fitting.empty() || pick(4) == 0) return constant(t.dtype, t.shape);
    return fitting[pick(fitting.size())];
  }
  Value array(DType t) { return any(Type::array(t, {kSize})); }
  Value scalar(DType t) { return any(Type::array(t)); }
  void keep(Value v) { pool_.push_back(v); }

  /// Everything reaches output 3: a hash of all visible values (NaNs as 0) and of what output and scratch held.
  void digest() {
    for (size_t ref : {size_t{3}, size_t{4}, size_t{5}})
      keep(b_.one({.code = Opcode::load, .operands = {refs_[ref]}, .index = {Index::all(kSize)}}));
    Value hash = b_.constant_int(i32, 17, {kSize});
    const Value factor = b_.constant_int(i32, 31, {kSize});
    for (Value v : pool_) {
      if (k_.type(v).shape.empty()) v = b_.broadcast(v, {kSize}, {});
      if (k_.type(v).shape != Shape{kSize}) continue;
      if (k_.type(v).dtype == f32)
        v = b_.elementwise(Opcode::select,
                           {b_.elementwise(Opcode::eq, {v, v}), b_.elementwise(Opcode::bitcast, {v}, i32),
                            b_.constant_int(i32, 0, {kSize})});
      hash = b_.elementwise(Opcode::add, {b_.elementwise(Opcode::mul, {hash, factor}), b_.convert(v, i32)});
    }
    b_.append({.code = Opcode::store, .operands = {refs_[3], hash}, .index = {Index::all(kSize)}});
  }

  Op access(Opcode code, size_t ref) {
    Op op{.code = code, .operands = {refs_[ref]}};
    const DType t = k_.type(refs_[ref]).dtype;
    const bool whole = memory_ || pick(3) == 0;
    Index x = Index::all(kSize);
    Shape shape{kSize};
    if (!whole) {
      Index::Slice slice{0, 1 + static_cast<int64_t>(pick(4))};
      slice.step = 1 + static_cast<int64_t>(pick(2));
      slice.start = static_cast<int64_t>(pick(static_cast<size_t>(kSize - slice.span() + 1)));
      x = {slice};
      if (pick(4) == 0) x = Index::at(static_cast<int64_t>(pick(kSize)));
      shape = x.is_integer() ? Shape{} : Shape{slice.size};
    }
    const bool dynamic = !memory_ && pick(2), mask = pick(memory_ ? 8 : 4) == 0;
    if (code != Opcode::load) op.operands.push_back(any(Type::array(t, shape)));
    if (mask) {
      op.operands.push_back(any(Type::array(boolean, shape)));
      op.set(Attr::mask, 1);
      if (code != Opcode::store) {
        op.operands.push_back(any(Type::array(t, shape)));
        op.set(Attr::other, 1);
      }
    }
    if (dynamic) {
      x.start() = Index::Dynamic{op.operands.size()};
      op.operands.push_back(scalar(i32));
    }
    op.index = {x};
    return op;
  }

  std::vector<Value> region_ops(int n, const std::vector<Type>& yields) {
    const size_t visible = pool_.size();
    ++depth_;
    ops(n);
    std::vector<Value> values;
    for (const Type& t : yields) values.push_back(any(t));
    --depth_;
    pool_.resize(visible);
    return values;
  }
  std::vector<Type> some_types() {
    std::vector<Type> types;
    for (size_t n = pick(3); n > 0; --n)
      types.push_back(
          std::vector<Type>{Type::array(i32, {kSize}), Type::array(f32, {kSize}), Type::array(i32)}[pick(3)]);
    return types;
  }

  void ops(int n) {
    for (int i = 0; i < n; ++i) op();
  }
  void op() {
    // clang-format off
    constexpr Opcode kInt[] = {Opcode::add, Opcode::add, Opcode::sub, Opcode::mul, Opcode::mul, Opcode::div,
      Opcode::div, Opcode::rem, Opcode::rem, Opcode::max, Opcode::min, Opcode::and_, Opcode::or_, Opcode::xor_,
                               Opcode::shift_left, Opcode::shift_right_logical, Opcode::shift_right_arithmetic};
    // clang-format on
    constexpr Opcode kFloat[] = {Opcode::add, Opcode::sub, Opcode::mul, Opcode::div, Opcode::max, Opcode::min};
    constexpr Opcode kCompare[] = {Opcode::eq, Opcode::ne, Opcode::lt, Opcode::le, Opcode::gt, Opcode::ge};
    constexpr Opcode kBool[] = {Opcode::and_, Opcode::or_, Opcode::xor_, Opcode::eq, Opcode::ne};
    const Shape shape = pick(2) ? Shape{kSize} : Shape{};
    const auto in = [&](DType t) { return any(Type::array(t, shape)); };
    if (memory_ && pick(2)) {
      const size_t ref = 2 + 2 * pick(2);
      if (pick(2)) return keep(b_.one(access(Opcode::load, ref)));
      b_.append(access(Opcode::store, ref));
      return;
    }
    switch (pick(depth_ < 2 ? 20 : 16)) {
      case 0:
      case 1:
      case 2: return keep(b_.elementwise(kInt[pick(std::size(kInt))], {in(i32), in(i32)}));
      case 3: return keep(b_.elementwise(kFloat[pick(std::size(kFloat))], {in(f32), in(f32)}));
      case 4: {
        const DType t = pick(2) ? i32 : f32;
        return keep(b_.elementwise(kCompare[pick(std::size(kCompare))], {in(t), in(t)}));
      }
      case 5: {
        const DType t = pick(3) == 0 ? boolean : pick(2) ? i32 : f32;
        return keep(b_.elementwise(Opcode::select, {in(boolean), in(t), in(t)}));
      }
      case 6: return keep(b_.elementwise(kBool[pick(std::size(kBool))], {in(boolean), in(boolean)}));
      case 7: return keep(b_.elementwise(Opcode::not_, {in(pick(2) ? boolean : i32)}));
      case 8: return keep(b_.elementwise(Opcode::clamp, {in(i32), in(i32), in(i32)}));
      case 9: {
        constexpr DType kTypes[] = {boolean, i32, f32, i8, u8, i64};
        const Value v = b_.elementwise(Opcode::convert, {in(pick(2) ? i32 : boolean)}, kTypes[pick(std::size(kTypes))]);
        return keep(b_.elementwise(Opcode::convert, {v}, i32));
      }
      case 10: {
        Op o{.code = pick(2) ? Opcode::program_id : Opcode::num_programs};
        o.set(Attr::axis, static_cast<int64_t>(pick(2)));
        return keep(b_.one(o));
      }
      case 11: {
        Op o{.code = pick(2) ? Opcode::reduce_max : Opcode::reduce_sum, .operands = {array(i32)}};
        o.set(Attr::axes, std::vector<int64_t>{0});
        return keep(b_.one(o));
      }
      case 12: {
        if (pick(2)) return keep(b_.broadcast(scalar(pick(2) ? i32 : f32), {kSize}, {}));
        Op o{.code = Opcode::iota};
        o.set(Attr::axis, 0);
        return keep(b_.one(o, Type::array(i32, {kSize})));
      }
      case 13:
      case 14: return keep(b_.one(access(Opcode::load, pick(6))));
      case 15:
        if (pick(4) == 0) return keep(b_.one(access(Opcode::swap, 2 + pick(4))));
        b_.append(access(Opcode::store, 2 + pick(4)));
        return;
      case 16:
      case 17: return branch();
      default: return loop();
    }
  }
  void branch() {
    const std::vector<Type> types = some_types();
    const ir::RegionId outer = b_.region();
    Op o{.code = pick(2) ? Opcode::if_ : Opcode::switch_};
    o.operands.push_back(o.code == Opcode::if_ ? scalar(boolean) : scalar(i32));
    for (size_t n = o.code == Opcode::if_ ? 2 : 1 + pick(3); n > 0; --n) {
      o.regions.push_back(b_.new_region({}));
      b_.set_region(o.regions.back());
      b_.yield(region_ops(4, types));
    }
    b_.set_region(outer);
    for (Value v : std::vector<Value>(k_.op(b_.append(o)).results)) keep(v);
  }
  void loop() {
    const std::vector<Type> types = some_types();
    std::vector<Value> init;
    for (const Type& t : types) init.push_back(any(t));
    Value upper = b_.constant_int(i32, static_cast<int64_t>(pick(4)));
    if (pick(2)) upper = b_.elementwise(Opcode::rem, {scalar(i32), b_.constant_int(i32, 4)});
    const Value lower = b_.constant_int(i32, static_cast<int64_t>(pick(2))),
                step = b_.constant_int(i32, 1 + static_cast<int64_t>(pick(2)));
    const auto results = b_.for_loop(lower, upper, step, init, [&](Value iv, const std::vector<Value>& carries) {
      const size_t visible = pool_.size();
      keep(iv);
      for (Value v : carries) keep(v);
      std::vector<Value> next = region_ops(6, types);
      for (size_t i = 0; i < next.size(); ++i)
        if (pick(4) == 0) next[i] = carries[i];
      pool_.resize(visible);
      return next;
    });
    for (Value v : results) keep(v);
  }
};

bool equal(const Array& a, const Array& b) {
  for (int64_t i = 0; i < a.size(); ++i)
    if (a.element_bits(i) != b.element_bits(i) && !(a.at(i) != a.at(i) && b.at(i) != b.at(i))) return false;
  return true;
}

}  // namespace

TEST_CASE("passes: random kernels mean the same after every pass") {
  const std::vector<float> floats = {0.0f, -0.0f, 1.5f, -2.0f, 1e38f, -1e-3f, 7.0f, 0.25f};
  const std::vector<int32_t> ints = {0, 1, -1, 7, INT32_MIN, INT32_MAX, 3, -8};
  const std::vector<Array> inputs = {Array({kSize}, floats), Array({kSize}, ints)};
  size_t before_ops = 0, after_ops = 0;
  for (uint32_t seed = 1; seed <= 1500; ++seed) {
    Kernel k = Generator(seed).run();
    const std::string text = ir::print(k);
    const auto problems = ir::find_problems(k);
    REQUIRE_MESSAGE(problems.empty(), "seed ", seed, ": ",
                    problems.empty() ? "" : problems[0].entity + ": " + problems[0].message, "\n", text);
    const std::vector<Array> wanted = interpret(k, inputs);
    const size_t lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
    bool good = true;
    passes::optimize(k, [&](const passes::Pass& pass, const Kernel& now, bool changed) {
      if (!changed || !good) return;
      const std::vector<Array> got = interpret(now, inputs);
      for (size_t i = 0; i < got.size(); ++i) good &= equal(got[i], wanted[i]);
      CHECK_MESSAGE(good, "seed ", seed, ", pass ", pass.name, ":\n", text, "became\n", ir::print(now));
    });
    if (!good) break;
    const std::string after = ir::print(k);
    CHECK(ir::print(ir::parse(after)) == after);
    CHECK(ir::print(ir::parse(text)) == text);
    before_ops += lines;
    after_ops += static_cast<size_t>(std::count(after.begin(), after.end(), '\n'));
  }
  CHECK(after_ops * 10 < before_ops * 9);  // the passes do something
}

}  // namespace passes_random_test
