// Indices and views of Refs against answers of JAX on the CPU: tests/data/refs, written by make_ref_answers.py. Each is
// traced as a kernel over whole arrays and run by the interpreter, before and after the passes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>

#include "engine/base/npy.h"
#include "engine/front.h"
#include "engine/ir/text.h"
#include "engine/passes/passes.h"

namespace ref_test {
using namespace tessera;

namespace {
using Refs = std::vector<Ref>;
using Kernel = std::function<void(const Refs& in, const Refs& out)>;

std::vector<Array> stored(const std::string& name, const std::string& kind) {
  std::vector<Array> list;
  for (;;) {
    const std::string file = "tests/data/refs/" + name + "." + kind + std::to_string(list.size()) + ".npy";
    if (!std::filesystem::exists(file)) return list;
    list.push_back(read_npy(file));
  }
}
std::vector<ShapeDtype> shapes_of(const std::vector<Array>& arrays) {
  std::vector<ShapeDtype> r;
  for (const Array& a : arrays) r.push_back({{a.shape().begin(), a.shape().end()}, a.dtype()});
  return r;
}
template <class A> void compare(const std::string& name, const A& got, const std::vector<Array>& answers) {
  for (size_t o = 0; o < answers.size(); ++o) {
    CHECK(got[o].shape() == answers[o].shape());
    int64_t wrong = 0;
    for (int64_t i = 0; i < answers[o].size(); ++i) wrong += got[o].element_bits(i) != answers[o].element_bits(i);
    CHECK_MESSAGE(wrong == 0, name, " output ", o, ": ", wrong, " elements differ");
  }
}

/// Outputs that a load makes.
Kernel loads(std::function<std::vector<Value>(const Refs&)> read) {
  return [read](const Refs& in, const Refs& out) {
    const std::vector<Value> values = read(in);
    REQUIRE(values.size() == out.size());
    for (size_t i = 0; i < out.size(); ++i) out[i][all] = values[i];
  };
}

std::map<std::string, Kernel> kernels() {
  std::map<std::string, Kernel> k;
  using Vs = std::vector<Value>;
  k["gather"] = loads([](const Refs& r) { return Vs{r[0][r[1][all]], r[0][reshape(r[1][all], {3, 3})]}; });
  k["scatter"] = [](const Refs& in, const Refs& out) {
    out[0][all] = in[0][all];
    out[0][in[1][all]] = in[2][all];
  };
  k["swap"] = [](const Refs& in, const Refs& out) {
    out[0][all] = in[0][all];
    out[1][all] = swap(out[0], in[1][all], in[2][all]);
  };
  k["addupdate"] = [](const Refs& in, const Refs& out) {
    const Value i = in[0][all], v = in[1][all];
    out[0][all] = 0;
    addupdate(out[0], i, v);
    addupdate(out[0], ds(Value(in[0][4]), 3), in[1][range(0, 3)]);
    out[1][all] = 0;
    const Value rows = reshape(i, {3, 3}), rest = rows % 3;
    addupdate(out[1], {where(rest < 0, rest + 3, rest), range(1, 3)},
              broadcast_to(reshape(cast(v, i32), {3, 3, 1}), {3, 3, 2}));
  };
  using Atomic = Value (*)(const Ref&, RefIndex, Operand, LoadParams);
  const std::vector<Atomic> atomics{atomic_add, atomic_max, atomic_min};
  for (const char* name : {"atomics_apart", "atomics_in_turn"})
    k[name] = [=](const Refs& in, const Refs& out) {
      for (size_t n = 0; n < 3; ++n) {
        out[n][all] = in[0][all];
        out[3 + n][all] = atomics[n](out[n], in[1][all], Value(in[2][all]), {});
      }
    };
  k["atomics_planes"] = [=](const Refs& in, const Refs& out) {
    for (size_t n = 0; n < 3; ++n) {
      out[n][all] = in[0][all];
      out[3 + n][all] = atomics[n](out[n], {Value(in[1][all]), Value(in[2][all])}, Value(in[3][all]), {});
    }
  };
  k["gather_shapes"] = loads([](const Refs& r) {
    const Ref& x = r[0];
    const Value i = r[1][all], j = r[2][all];
    return Vs{x[i],
              x[{i, j}],
              x[{i, all, j}],
              x[{all, i, j}],
              x[{0, all, i}],
              x[{all, 0, i}],
              x[{0, range(0, 2), i, 1}],
              x[{ellipsis, j}],
              x[{all, i, all, 0}],
              x[{i, ellipsis, j}],
              x[{all, i, range(1, {}, 2), j}]};
  });
  k["scatter_shapes"] = [](const Refs& in, const Refs& out) {
    const Value i = in[0][all], j = in[1][all];
    for (const Ref& o : out) o[all] = 0;
    out[0][{i, all, j}] = in[2][all];
    out[1][{all, 0, i, range(1, 5, 2)}] = in[3][all];
    out[1][{1, range(1, 3), j, i}] = 1;
  };
  k["gather_starts"] = loads([](const Refs& r) {
    const Value i = r[2][all];
    Vs v;
    for (int n = 0; n < 5; ++n) v.push_back(r[0][{i, ds(Value(r[1][n]), 3)}]);
    for (int n = 0; n < 5; ++n) v.push_back(r[0][{i, r[1][n]}]);
    return v;
  });
  k["scatter_starts"] = [](const Refs& in, const Refs& out) {
    const Value i = in[1][all];
    for (int n = 0; n < 5; ++n) {
      const Ref& o = out[static_cast<size_t>(n)];
      o[all] = 0;
      o[{i, ds(Value(in[0][n]), 3)}] = in[2][all];
      o[{i, in[0][n]}] = in[2][{all, 0}];
    }
  };
  k["stepped_starts"] = loads([](const Refs& r) {
    Vs v;
    for (int n = 0; n < 5; ++n) v.push_back(r[0][{range(1, 3), ds(Value(r[1][n]), 3, 2)}]);
    for (int n = 0; n < 5; ++n) v.push_back(r[0][{ds(Value(r[1][n]), 2), range({}, {}, 3)}]);
    for (int n = 0; n < 5; ++n) v.push_back(r[0][{r[1][n], range({}, {}, 3)}]);
    return v;
  });
  k["stepped_stores"] = [](const Refs& in, const Refs& out) {
    for (int n = 0; n < 5; ++n) {
      const Ref& o = out[static_cast<size_t>(n)];
      o[all] = 0;
      o[{ds(Value(in[0][n]), 2), ds(Value(in[0][n]), 3, 2)}] = in[1][all];
    }
  };
  k["index_dtypes"] = loads([](const Refs& r) {
    Vs v;
    for (size_t n = 1; n < r.size(); ++n) v.push_back(r[0][r[n][all]]);
    return v;
  });
  k["masked_gather"] = loads([](const Refs& r) { return Vs{load(r[0], r[1][all], {.mask = r[2][all], .other = 9})}; });
  k["masked_scatter"] = [](const Refs& in, const Refs& out) {
    out[0][all] = in[0][all];
    const Value m = in[2][all];
    out[1][all] =
        where(m, swap(out[0], in[1][all], cast(iota(i32, {2, 3}, 0) * 3 + iota(i32, {2, 3}, 1), f32), {.mask = m}), -1);
  };

  k["views"] = loads([](const Refs& r) {
    const Ref& x = r[0];
    const Value s0 = r[1][0], s1 = r[1][1], s2 = r[1][2], i = r[2][all];
    const Range odd = range({}, {}, 2);
    return Vs{x.at(range(1, 5)).at({ds(s0, 2), odd})[all],
              x.at(range(1, 5)).at({ds(s1, 2), odd})[all],
              x.at(ds(s2, 4)).at(ds(s1, 2))[0],
              x.at(s1)[range(2, 5)],
              x.at({s2, range(2, 8)}).at(range(1, 5, 2))[ds(s0, 1)],
              x.at({range(2, 6), range(0, 6)}).at(i)[{all, range(1, 3)}],
              x.at(i)[range(1, 3)],
              x.at({i, ds(s0, 4)})[{range(0, 2), 1}],
              x.at({all, i}).at(range(1, 4))[{ellipsis, 2}],
              x.at(i)[{all, 0}],
              x.at(odd).at(range(1, {}))[{all, ds(s0, 3)}],
              x.at(range(2, 5))[i],
              x.at(range(2, 5))[{i, i}]};
  });
  k["reshaped"] = loads([](const Refs& r) {
    const Ref& x = r[0];
    const Value s0 = r[1][0], s2 = r[1][2], s3 = r[1][3], i = r[2][all];
    return Vs{x.reshape({48})[range(5, 20, 3)],
              x.reshape({3, 16})[{all, range(3, 9)}],
              x.reshape({12, 4})[{ds(s0, 3), 1}],
              x.reshape({2, 3, 2, 4})[1],
              x.reshape({48})[ds(s0, 10)],
              x.at(2).reshape({2, 4})[all],
              x.reshape({4, -1})[i],
              x.at({all, range(0, 4)}).reshape({24})[range({}, {}, 5)],
              x.at(ds(s2, 4)).reshape({2, 16})[1],
              x.reshape({48})[s2],
              x.reshape({1, 6, 1, 8})[{0, range(1, 3), 0}],
              x.reshape({2, 24})[{all, range(8, 16)}],
              x.reshape({48})[range(8, 32)],
              x.at({range(1, 5), range({}, {}, 2)}).reshape({2, 8})[all],
              x.reshape({6, 2, 4})[{all, s0, range(1, 3)}],
              x.reshape({16, 3})[ds(s2, 4)],
              x.reshape({6, 2, 2, 2})[{range(1, 4), all, 1}],
              x.at({all, 3}).reshape({2, 3})[1],
              x.reshape({24, 2}).reshape({4, 12}).at(range(1, 3)).reshape({24})[s2],
              x.reshape({48})[i],
              x.at(i).reshape({24})[range(4, 20)],
              x.reshape({3, 2, 8})[{all, s3, range({}, {}, 3)}]};
  });
  k["bitcast"] = loads([](const Refs& r) {
    const Ref &x = r[0], &y = r[1];
    const Value s0 = r[2][0], s1 = r[2][1], s2 = r[2][2], i = r[3][all];
    return Vs{x.bitcast(i32)[all],
              x.at(range(1, 3)).bitcast(u32)[{1, ds(s0, 2)}],
              x.bitcast(i16)[all],
              x.bitcast(i16)[3],
              x.bitcast(i16)[{ds(s2, 4), range(2, 5)}],
              x.bitcast(u8)[{range(1, {}, 4), range(0, 2)}],
              x.bitcast(i16)[i],
              y.bitcast(i32)[all],
              y.bitcast(i32)[{s1, range(1, 3)}],
              y.bitcast(f32).bitcast(i32)[range(1, {})],
              x.bitcast(i16).at(range(3, 9)).bitcast(i32)[{range(1, {}), range(0, 3)}],
              y.bitcast(u8)[s2],
              cast(x.bitcast(bf16).reshape({96})[range(10, 30, 7)], f32)};
  });
  k["transposed"] = loads([](const Refs& r) {
    const Ref& x = r[0];
    const Value i = r[2][all];
    return Vs{x.T()[range(1, 3)],
              x.T().reshape({48})[range(4, 9)],
              x.at(range(1, 5)).T()[{range(2, 4), range({}, {}, 2)}],
              x.reshape({2, 3, 8}).transpose({2, 0, 1})[3],
              x.reshape({2, 3, 8}).transpose({2, 0, 1})[i],
              x.T()[{i, range(1, 4)}],
              x.T()[{range(2, 5), i}],
              x.reshape({2, 3, 8}).transpose({1, 2, 0}).reshape({3, 16})[{all, range(2, 6)}]};
  });
  k["view_stores"] = [](const Refs& in, const Refs& out) {
    const auto take = [&](Shape s) { return reshape(in[0][range(0, num_elements(s))], s); };
    const Value s0 = in[1][0], s2 = in[1][2], i = in[2][all];
    for (const Ref& o : out) o[all] = 0;
    size_t n = 0;
    out[n++].at(range(1, 5)).at({range(1, 3), range({}, {}, 2)})[all] = take({2, 4});
    out[n++].at(range(1, 5))[ds(s2, 2)] = take({2, 8});
    out[n++].reshape({3, 16})[{all, range(3, 9)}] = take({3, 6});
    out[n++].reshape({48})[range(5, 20, 3)] = take({5});
    out[n++].reshape({48})[ds(s0, 10)] = take({10});
    out[n++].T()[range(1, 3)] = take({2, 6});
    out[n++].reshape({2, 3, 8}).transpose({2, 0, 1})[i] = take({3, 2, 3});
    out[n++].reshape({4, 12})[i] = take({3, 12});
    out[n++].bitcast(i16)[range(3, 6, 2)] = cast(take({2, 8}), i16);
    out[n++].at(range(1, 3)).bitcast(i16)[all] = cast(take({4, 8}), i16);
    out[n++].at({all, range(2, 4)}).at(i)[all] = take({3, 2});
    const Value outside = concatenate({i, full({2}, 8, i32)}, 0);  // 3, 0, 2, 8, 8
    out[n++].at(range(1, 5))[where(outside == 0, -1, where(outside == 3, 2, 7))] =
        concatenate({take({1, 8}), reshape(in[0][range(8, 16)], {1, 8}), take({3, 8})}, 0);
    const Value row = iota(i32, {4, 8}, 0);
    store(out[n++].at(range(1, 5)), ds(s0, 4), take({4, 8}), {.mask = row != 1});
    addupdate(out[n++].at(range(1, 5)), where(i == 2, 3, 1), take({3, 8}));
    const Value words = where(iota(i32, {4}, 0) == 0, 70000,
                              where(iota(i32, {4}, 0) == 1, -3, where(iota(i32, {4}, 0) == 2, 5, 1 << 30)));
    out[n++].bitcast(i32)[1] = words;
  };
  return k;
}
}  // namespace

TEST_CASE("refs: indices and views agree with JAX") {
  for (const auto& entry : kernels()) {
    const std::string& name = entry.first;
    const Kernel& kernel = entry.second;
    INFO(name);
    const std::vector<Array> inputs = stored(name, "in"), answers = stored(name, "out");
    REQUIRE(!answers.empty());
    const auto call =
        spec::make_pallas_call({static_cast<int>(inputs.size() + answers.size()),
                                [&](const Refs& refs) {
                                  kernel({refs.begin(), refs.begin() + static_cast<int64_t>(inputs.size())},
                                         {refs.begin() + static_cast<int64_t>(inputs.size()), refs.end()});
                                }},
                               {.out_shape = shapes_of(answers), .name = name}, Loc::here());
    compare(name, interpret(call, inputs), answers);
    ir::Kernel k = call.trace(shapes_of(inputs));
    const std::string text = ir::print(k);
    CHECK(ir::print(ir::parse(text)) == text);
    passes::optimize(k);
    compare(name + " optimized", interpret(k, inputs), answers);
  }
}

TEST_CASE("refs: every stored answer is compared") {
  const auto all_kernels = kernels();
  for (const auto& file : std::filesystem::directory_iterator("tests/data/refs")) {
    const std::string name = file.path().filename().string();
    CHECK_MESSAGE(all_kernels.contains(name.substr(0, name.find('.'))), name);
  }
}

namespace {
// A chain of views, and the number in the base that each element of the view has: what views must do, done on numbers.
class RandomViews {
 public:
  RandomViews(uint64_t seed, const Ref& base, const Ref& starts)
      : state_(seed * 0x9e3779b97f4a7c15u + 1), view_(base), starts_(starts), shape_(base.shape()) {
    numbers_.resize(static_cast<size_t>(num_elements(shape_)));
    for (size_t i = 0; i < numbers_.size(); ++i) numbers_[i] = static_cast<int32_t>(i);
  }
  int64_t in(int64_t low, int64_t high) {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return low + static_cast<int64_t>(state_ >> 11) % (high - low + 1);
  }
  void step(bool arrays) {
    const int64_t kind = in(0, 3);
    if (kind == 0) {
      RefIndex i = index(arrays);
      view_ = view_.at(i);
      apply();
    } else if (kind == 1) {
      shape_ = random_shape(num_elements(shape_));
      view_ = view_.reshape(shape_);
    } else if (kind == 2) {
      std::vector<int64_t> perm;
      for (size_t d = 0; d < shape_.size(); ++d)
        perm.insert(perm.begin() + in(0, static_cast<int64_t>(d)), static_cast<int64_t>(d));
      picks_.clear();
      Shape to;
      for (int64_t d : perm) to.push_back(shape_[static_cast<size_t>(d)]);
      std::vector<int32_t> moved;
      each(to, [&](const std::vector<int64_t>& at) {
        std::vector<int64_t> from(at.size());
        for (size_t d = 0; d < at.size(); ++d) from[static_cast<size_t>(perm[d])] = at[d];
        moved.push_back(number(from));
      });
      view_ = view_.transpose(perm);
      shape_ = to;
      numbers_ = moved;
    } else if (shape_.size() >= 2 && in(0, 1)) {
      view_ = view_.bitcast(view_.dtype() == i32 ? f32 : i32);
    }
  }
  /// A random index of the view; apply() makes it the view's own numbers.
  RefIndex index(bool arrays, bool masked = false) {
    picks_.clear();
    arrays_at_ = -1;
    result_.clear();
    std::vector<IndexItem> items;
    Shape common;
    bool has_array = false;
    for (size_t d = 0; d < shape_.size(); ++d) {
      const int64_t n = shape_[d], way = in(0, 9);
      std::vector<int64_t> pick;
      if (way < 3) {
        for (int64_t i = 0; i < n; ++i) pick.push_back(i);
        items.emplace_back(all);
        kinds_.resize(d + 1), kinds_[d] = 1;
      } else if (way < 5) {
        const int64_t at = in(-n, n - 1);
        pick = {at < 0 ? at + n : at};
        if (way == 3) {
          const auto [value, number] = start(masked ? 0 : -n, n - 1);  // under a mask nothing wraps
          pick = {number < 0 ? number + n : number};
          items.emplace_back(value);
        } else {
          items.emplace_back(at);
        }
        kinds_.resize(d + 1), kinds_[d] = 0;
      } else if (way == 9 && arrays) {
        const int64_t m = 3;
        for (int64_t i = 0; i < m; ++i) pick.push_back((i * 2 + 1) % n);
        items.emplace_back((iota(i32, {m}) * 2 + 1) % static_cast<int32_t>(n));
        has_array = true;
        kinds_.resize(d + 1), kinds_[d] = 2;
      } else {
        const int64_t step = in(0, 3) == 0 ? in(2, 3) : 1, size = in(1, (n - 1) / step + 1),
                      room = n - 1 - (size - 1) * step;
        int64_t first = in(0, room);
        if (way < 7) {
          const auto [value, number] = start(0, room);
          first = number;
          items.emplace_back(ds(value, size, step));
        } else {
          items.emplace_back(ds(first, size, step));
        }
        for (int64_t i = 0; i < size; ++i) pick.push_back(first + i * step);
        kinds_.resize(d + 1), kinds_[d] = 1;
      }
      picks_.push_back(pick);
    }
    kinds_.resize(shape_.size());
    // Where the arrays' one dim stands.
    int runs = 0;
    size_t slices = 0, place = 0;
    for (size_t d = 0; d < shape_.size(); ++d) {
      if (kinds_[d] != 1 && (d == 0 || kinds_[d - 1] == 1) && ++runs == 1) place = slices;
      slices += kinds_[d] == 1;
    }
    if (has_array) arrays_at_ = runs > 1 ? 0 : static_cast<int64_t>(place);
    for (size_t d = 0; d < shape_.size(); ++d)
      if (kinds_[d] == 1) result_.push_back(static_cast<int64_t>(picks_[d].size()));
    if (has_array) result_.insert(result_.begin() + arrays_at_, 3);
    return RefIndex(items);
  }
  std::vector<int32_t> chosen() {
    std::vector<int32_t> r;
    each(result_, [&](const std::vector<int64_t>& at) {
      std::vector<int64_t> from;
      size_t s = 0;
      for (size_t d = 0; d < shape_.size(); ++d) {
        if (kinds_[d] == 1) {
          if (arrays_at_ == static_cast<int64_t>(s)) ++s;
          from.push_back(picks_[d][static_cast<size_t>(at[s++])]);
        } else {
          from.push_back(picks_[d][kinds_[d] == 2 ? static_cast<size_t>(at[static_cast<size_t>(arrays_at_)]) : 0]);
        }
      }
      r.push_back(number(from));
    });
    return r;
  }
  void apply() {
    numbers_ = chosen();
    shape_ = result_;
  }
  const Ref& view() const { return view_; }
  const Shape& result() const { return result_; }

 private:
  template <class F> static void each(const Shape& s, F f) {
    std::vector<int64_t> at(s.size(), 0);
    if (num_elements(s) == 0) return;
    for (;;) {
      f(at);
      size_t d = s.size();
      while (d > 0 && ++at[d - 1] == s[d - 1]) at[--d] = 0;
      if (d == 0) return;
    }
  }
  int32_t number(const std::vector<int64_t>& at) const {
    int64_t i = 0;
    for (size_t d = 0; d < at.size(); ++d) i = i * shape_[d] + at[d];
    return numbers_[static_cast<size_t>(i)];
  }
  std::pair<Value, int64_t> start(int64_t low, int64_t high) {
    const int64_t n = in(low, high);
    return {Value(starts_[n + 100]), n};  // starts[i] is i - 100
  }
  Shape random_shape(int64_t n) {
    Shape s;
    for (int64_t left = n; left > 1;) {
      std::vector<int64_t> divisors;
      for (int64_t d = 2; d <= left; ++d)
        if (left % d == 0) divisors.push_back(d);
      const int64_t d = divisors[static_cast<size_t>(in(0, static_cast<int64_t>(divisors.size()) - 1))];
      s.push_back(d);
      left /= d;
      if (in(0, 5) == 0) s.push_back(1);
    }
    return s;
  }

  uint64_t state_;
  Ref view_, starts_;
  Shape shape_, result_;
  std::vector<int32_t> numbers_;
  std::vector<std::vector<int64_t>> picks_;
  std::vector<int> kinds_;  // per dim of an index: integer, slice, array
  int64_t arrays_at_ = -1;
};
}  // namespace

TEST_CASE("refs: random chains of views take the elements that they should") {
  std::vector<int32_t> ids(96), counts(200);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = static_cast<int32_t>(i) - 100;
  const Array x({4, 6, 4}, ids), starts({200}, counts);
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    std::vector<int32_t> wanted;
    bool writes = false, masked = false;
    // Loads of numbers, and a store of -1 - what is there: both must find the same elements.
    const auto call =
        spec::make_pallas_call({4,
                                [&](const Refs& r) {
                                  r[2][all] = r[0][all];
                                  r[3][all] = -7;
                                  RandomViews views(seed, r[2], r[1]);
                                  writes = views.in(0, 1) == 1;
                                  masked = views.in(0, 2) == 0;
                                  for (int64_t n = views.in(1, 4); n-- > 0;) views.step(!writes && views.in(0, 1) == 1);
                                  const RefIndex index = views.index(true, masked);
                                  wanted = views.chosen();
                                  Ref v = views.view().dtype() == i32 ? views.view() : views.view().bitcast(i32);
                                  const Shape s = views.result();
                                  const Value mask = full(s, true);
                                  const Value got = masked ? load(v, index, {.mask = mask}) : load(v, index);
                                  const int64_t n = num_elements(s);
                                  if (!writes) r[3][range(0, n)] = reshape(got, {n});
                                  else if (masked) store(v, index, -1 - got, {.mask = mask});
                                  else store(v, index, -1 - got);
                                }},
                               {.out_shape = {{{4, 6, 4}, i32}, {{4096}, i32}}, .name = "views"}, Loc::here());
    const Arrays out = interpret(call, std::vector<Array>{x, starts});
    std::vector<int32_t> left = ids;
    if (writes)
      for (int32_t i : wanted) left[static_cast<size_t>(i)] = -1 - i;
    int64_t wrong = 0;
    for (size_t i = 0; i < left.size(); ++i)
      wrong += static_cast<int32_t>(out[0].element_bits(static_cast<int64_t>(i))) != left[i];
    for (size_t i = 0; i < wanted.size() && !writes; ++i)
      wrong += static_cast<int32_t>(out[1].element_bits(static_cast<int64_t>(i))) != wanted[i];
    CHECK(wrong == 0);
  }
}

TEST_CASE("refs: atomics through random chains of views, one element after another") {
  std::vector<int32_t> ids(96), counts(200);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 7 % 31);
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = static_cast<int32_t>(i) - 100;
  const Array x({4, 6, 4}, ids), starts({200}, counts);
  const auto given = [](int32_t i) { return i * 5 % 13 - 6; };
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    std::vector<int32_t> wanted;
    bool masked = false;
    int64_t kind = 0;
    const auto call = spec::make_pallas_call(
        {4,
         [&](const Refs& r) {
           r[2][all] = r[0][all];
           r[3][all] = -7;
           RandomViews views(seed, r[2], r[1]);
           masked = views.in(0, 2) == 0;
           kind = views.in(0, 6);
           for (int64_t n = views.in(1, 4); n-- > 0;) views.step(views.in(0, 1) == 1);
           const RefIndex index = views.index(true, masked);
           wanted = views.chosen();
           const Ref v = views.view().dtype() == i32 ? views.view() : views.view().bitcast(i32);
           const Shape s = views.result();
           const int64_t n = num_elements(s);
           const Value number = reshape(iota(i32, {n}), s), w = number * 5 % 13 - 6;
           const LoadParams params = masked ? LoadParams{.mask = number % 3 != 1, .other = -5} : LoadParams{};
           Value old = number;
           switch (kind) {
             case 0: old = atomic_add(v, index, w, params); break;
             case 1: old = atomic_max(v, index, w, params); break;
             case 2: old = atomic_xor(v, index, w, params); break;
             case 3: old = atomic_xchg(v, index, w, params); break;
             case 4: old = atomic_cas(v, index, w + 9, w, params); break;
             case 5: addupdate(v, index, w, {.mask = params.mask}); break;
             default: store(v, index, w, {.mask = params.mask}); break;
           }
           r[3][range(0, n)] = reshape(old, {n});
         }},
        {.out_shape = {{{4, 6, 4}, i32}, {{4096}, i32}}, .name = "views"}, Loc::here());
    const Arrays out = interpret(call, std::vector<Array>{x, starts});
    std::vector<int32_t> left = ids;
    int64_t wrong = 0;
    for (size_t n = 0; n < wanted.size(); ++n) {
      int32_t& element = left[static_cast<size_t>(wanted[n])];
      const int32_t w = given(static_cast<int32_t>(n)), before = masked && n % 3 == 1 ? -5 : element;
      if (kind < 5) wrong += static_cast<int32_t>(out[1].element_bits(static_cast<int64_t>(n))) != before;
      if (masked && n % 3 == 1) continue;
      const int32_t now[] = {
          element + w, std::max(element, w), element ^ w, w, element == w + 9 ? w : element, element + w, w};
      element = now[kind];
    }
    for (size_t i = 0; i < left.size(); ++i)
      wrong += static_cast<int32_t>(out[0].element_bits(static_cast<int64_t>(i))) != left[i];
    CHECK(wrong == 0);
  }
}

TEST_CASE("refs: copies go through views that are slices") {
  std::vector<int32_t> ids(48);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  const auto call = pallas_call(
      [](Ref x, Ref o) {
        o[all] = -1;
        sync_copy(x.at(range(1, 5)).at({range(1, 3), ds(Value(x[{0, 2}]), 4)}), o.at(range(4, 6))[{all, range(0, 4)}]);
        sync_copy(x.reshape({48})[range(16, 24)], o.reshape({2, 24})[{0, range(8, 16)}]);
        sync_copy(x.at({range(5, 6), range(0, 3)}), o.at(range(0, 2))[{range(0, 1), range(1, 4)}]);
        sync_copy(x.reshape({48})[ds(Value(x[{1, 5}]), 1)], o.reshape({48})[ds(Value(x[{3, 7}]), 1)]);
      },
      {.out_shape = {{{6, 8}, i32}}, .name = "copies"});
  const Array out = interpret(call, Array({6, 8}, ids));
  std::vector<int32_t> wanted(48, -1);
  for (size_t r = 0; r < 2; ++r)
    for (size_t c = 0; c < 4; ++c) wanted[(4 + r) * 8 + c] = static_cast<int32_t>((2 + r) * 8 + 2 + c);
  for (size_t c = 0; c < 8; ++c) wanted[8 + c] = static_cast<int32_t>(16 + c);
  for (size_t c = 0; c < 3; ++c) wanted[1 + c] = static_cast<int32_t>(40 + c);
  wanted[31] = 13;
  for (size_t i = 0; i < wanted.size(); ++i)
    CHECK(static_cast<int32_t>(out.element_bits(static_cast<int64_t>(i))) == wanted[i]);

  const auto error = [](auto kernel) {
    try {
      pallas_call([=](Ref x, Ref o) { kernel(x, o); }, {.out_shape = {{{6, 8}, i32}}, .name = "k"})
          .trace({{{6, 8}, i32}});
    } catch (const TraceError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  int line = __LINE__ + 1;
  std::string said = error([](Ref x, Ref o) { sync_copy(x[{Value(x[{0, range(0, 6)}]), all}], o); });
  CHECK(said == "k: async_copy: an index array is for loads and stores\n  at " + std::string(__FILE__) + ":" +
                    std::to_string(line) + "\n  note: load by it, and store what came");
  line = __LINE__ + 1;
  said = error([](Ref x, Ref o) { sync_copy(x.reshape({8, 6}).T(), o); });
  CHECK(said == "k: async_copy: through this view of the Ref the index is not one slice per dim\n  at " +
                    std::string(__FILE__) + ":" + std::to_string(line) +
                    "\n  note: load through the view, and store what came");
}

TEST_CASE("refs: one position of an index array of two dims, by a number in a reshaped view") {
  const auto call = pallas_call(
      [](Ref at, Ref x, Ref o) {
        const Ref rows = x.at({Value(at[all]), all}).reshape({8, 3});
        for (int row = 0; row < 8; ++row) o[row] = rows[row];
      },
      {.out_shape = {{{8, 3}, i32}}, .name = "k"});
  const Array at({2, 4}, std::vector<int32_t>{5, 4, 3, 2, 1, 0, -1, 2});
  Array x({6, 3}, i32);
  for (int i = 0; i < 18; ++i) x.data<int32_t>()[static_cast<size_t>(i)] = i;
  const Array r = interpret(call, at, x);
  for (int64_t i = 0; i < 24; ++i) CHECK(r.at(i) == 3 * (static_cast<int>(at.at(i / 3) + 6) % 6) + i % 3);
}

TEST_CASE("unique_indices: a promise that the race detector holds the kernel to") {
  int line = 0;
  const auto call = pallas_call(
      [&](Ref at, Ref x, Ref o) {
        o[all] = 0;
        line = __LINE__ + 1;
        store(o, at[all], x[all], {.unique_indices = true});
      },
      {.out_shape = {{{5}, i32}}, .name = "k"});
  const Array x({3}, std::vector<int32_t>{1, 2, 3}), apart({3}, std::vector<int32_t>{4, 0, -2}),
      meeting({3}, std::vector<int32_t>{4, 0, -1});
  CHECK(ir::print(call.trace_for({apart, x})).find(" unordered 1\n") != std::string::npos);
  const Array good = interpret(call, {.races = true}, apart, x), last = interpret(call, meeting, x);
  CHECK(good.at(4) == 1);
  CHECK(good.at(0) == 2);
  CHECK(good.at(3) == 3);
  CHECK(last.at(4) == 3);
  std::string text;
  try {
    interpret(call, {.races = true}, meeting, x);
  } catch (const KernelError& e) {
    text = e.what();
  }
  CHECK(text ==
        "k: store: elements 0 and 2 of the value go to one element of out_specs[0], and the store leaves open which "
        "stays\n  at " +
            std::string(__FILE__) + ":" + std::to_string(line) + "\n  note: without unique_indices the last one stays");
}

}  // namespace ref_test
