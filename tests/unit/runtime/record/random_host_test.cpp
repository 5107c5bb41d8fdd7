// Programs of strangers, at random: kernels and graphs of every way to run them, on the same arrays, in streams that
// are recorded side by side and submitted late, in any order or never, between launches and calls of graphs; with sizes
// that change, numbers by value, arrays that are donated, freed or given back between a recording and its submission,
// times, and mistakes that must change nothing. What the interpreter makes of the calls, in the order of their
// submission, is what the arrays must hold.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <utility>

#include "engine/front.h"
#include "engine/graph/sizes.h"
#include "engine/interpreter/interpreter.h"
#include "runtime/call/call.h"
#include "runtime/call/graph.h"
#include "runtime/launch/bound.h"
#include "runtime/loaded_graph.h"
#include "runtime/record.h"
#include "runtime/record_graph.h"
#include "tests/support/mixed_jit.h"
#include "tests/unit/runtime/bundled_graph.h"
#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace random_host_test {
using namespace tessera;
using namespace tessera::test;

namespace {

using Type = std::pair<DType, Shape>;
constexpr int64_t kMostN = 21;

/// Kernels of arrays of any size up to kMostN, and of a number: in place, onto another, through an input that they
/// store to; each program's result rests on those before it in some.
ir::Kernel sized_kernel(std::mt19937_64& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const DType t = std::vector{f32, i32, i8, u16, f16, i64, boolean, u8}[below(8)];
  const auto block = static_cast<int64_t>(1 + below(9));
  const size_t kind = below(6);
  const auto n = dim("n");
  const BlockSpec rows{{block}, [](Value i) { return Indices{i}; }};
  const auto changed = [](const Value& v) {
    return v.dtype() == boolean ? !v : is_float(v.dtype()) ? clamp(-4, v + 1, 4) : v + v;
  };
  PallasCallParams p{.out_shape = {{{n}, t}}, .grid = {cdiv(n, block)}, .in_specs = {rows}, .out_specs = {rows}};
  p.in_shape = {{{n}, t}};
  std::function<void(const std::vector<Ref>&)> body;
  if (kind == 0) {
    p.name = "in_place", p.input_output_aliases = {{0, 0}};
    body = [=](const std::vector<Ref>& r) { r[1][all] = changed(r[1][all]); };
  } else if (kind == 1) {
    p.name = "onto";
    p.in_specs = {rows, rows}, p.in_shape = {{{n}, t}, {{n}, t}}, p.input_output_aliases = {{1, 0}};
    body = [=](const std::vector<Ref>& r) { r[2][all] = where(r[0][all] == r[2][all], r[2][all], changed(r[0][all])); };
  } else if (kind == 2) {
    p.name = "through";  // stores to its input
    body = [=](const std::vector<Ref>& r) {
      r[0][all] = changed(r[0][all]);
      r[1][all] = changed(r[0][all]);
    };
  } else if (kind == 3) {
    p.name = "number";
    p.in_specs = {rows, by_value(t)}, p.in_shape = {{{n}, t}, {{}, t}};
    body = [=](const std::vector<Ref>& r) {
      r[2][all] = where(r[0][all] == broadcast_to(r[1][all], {block}), r[0][all], broadcast_to(r[1][all], {block}));
    };
  } else if (kind == 4) {
    p.name = "checked";
    body = [=](const std::vector<Ref>& r) {
      tessera::check(reduce_and(cast(r[0][all], i32) < 4), "four");
      r[1][all] = changed(r[0][all]);
    };
  } else {
    p.name = "carried";  // from program to program
    p.scratch_shapes = {VMEM({block}, t)};
    body = [=](const std::vector<Ref>& r) {
      when(program_id(0) == 0, [&] { r[2][all] = zeros({block}, t); });
      r[2][all] = where(r[0][all] == r[2][all], changed(r[0][all]), r[0][all]);
      r[1][all] = r[2][all];
    };
  }
  const int refs = kind == 0 || kind == 2 || kind == 4 ? 2 : 3;
  return spec::make_pallas_call({refs, body}, p, Loc::here()).trace();  // of in_shape
}

/// A function of arrays of any size: kernels in place and of two arrays, in a loop and in branches.
Graph sized_graph(std::mt19937_64& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const DType t = std::vector{f32, i32, u16, i64}[below(4)];
  const auto block = static_cast<int64_t>(1 + below(9));
  const Extent n = dim("n");
  const BlockSpec rows{{block}, [](Value i) { return Indices{i}; }};
  PallasCallParams one{.out_shape = {{{n}, t}}, .grid = {cdiv(n, block)}, .in_specs = {rows}, .out_specs = {rows}};
  one.in_shape = {{{n}, t}};
  PallasCallParams two = one;
  one.name = "more";
  if (below(2)) one.input_output_aliases = {{0, 0}};
  two.name = "larger";
  two.in_specs = {rows, rows}, two.in_shape = {{{n}, t}, {{n}, t}};
  const auto more = pallas_call([](Ref x, Ref o) { o[all] = x[all] + 1; }, one);
  const auto larger = pallas_call([](Ref x, Ref y, Ref o) { o[all] = maximum(x[all], y[all]); }, two);
  const size_t kind = below(3);
  const auto f = jit(
      [=](Tensor x, Tensor y, Tensor turns) {
        const Value a = larger(x, y), b = more(a);
        if (kind == 0) return std::tuple{a, b};
        const Value c = fori_loop(0, minimum(turns, 3), b, [&](Value, Value v) { return Value(more(v)); });
        if (kind == 1) return std::tuple{c, x};
        return std::tuple{switch_(turns, [&] { return c; }, [&] { return Value(larger(b, y)); }), Value(more(c))};
      },
      {.name = "sized"});
  return f.trace({{{n}, t}, {{n}, t}, {{}, i32}});
}

bool stores_to_input(const ir::Kernel& k, size_t i) {
  return static_cast<int>(i) < k.num_inputs && k.is_stored(static_cast<int>(i)) &&
         k.aliased_output(static_cast<int>(i)) < 0;
}

class Stranger {
 public:
  Stranger(uint64_t seed, VulkanHost& host, const Device& d, bool logged)
      : random_(seed), host_(host), d_(d), logged_(logged) {
    frames_in_flight_ = static_cast<int>(1 + below(3));
    uint64_t s = seed * 1000;
    MixedFunction m(s);
    while (m.uses(f64) && !d.target().float64) m = MixedFunction(++s);
    add_graph(mixed_jit(s).trace(m.arguments()));
    add_kernels(graphs_[0].graph);
    add_graph(sized_graph(random_));
    for (size_t i = 0; i < 3; ++i) {
      const size_t timed = below(2) * (1 + below(3));
      streams_.push_back(
          {CommandStream(d_, {.timed_calls = static_cast<int>(timed), .frames_in_flight = frames_in_flight_}), timed});
    }
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      step();
    }
    for (Stream& s : streams_) {
      if (s.open) finish(s);
      if (s.recorded) submit(s);
    }
    for (size_t i = 0; i < handles_.size(); ++i) compare(i);
  }

 private:
  struct Handle {
    DeviceArray array;
    size_t memory;
    bool gone = false;
  };
  using Contents = std::optional<Array>;  // none: unspecified
  using Work = std::function<void()>;     // on memories_
  /// What a download says of memory: whether a call that has failed, or may have, is in what it was computed from.
  enum class Wrong : uint8_t { no, yes, perhaps };
  struct Kernel {
    ir::Kernel ir;
    CompiledKernel compiled;
    std::unique_ptr<PreparedKernel> prepared;
    int calls_per_frame;
    bool sized;
    int64_t n = kMostN;
    std::map<uint64_t, int> used = {};
    uint64_t newest = 0;
  };
  struct Stream {
    CommandStream stream;
    size_t timed;
    VkCommandBuffer commands = VK_NULL_HANDLE;
    uint64_t frame = 0;
    bool open = false, recorded = false;  // and not submitted
    std::vector<Work> work = {};
    std::vector<std::string> names = {};  // of calls of the frame
    bool timing = false;                  // all of the frame's command buffers have been submitted
    uint64_t timed_frame = UINT64_MAX;
  };

  size_t below(size_t n) { return static_cast<size_t>(random_() % n); }

  /// Of every size, or fixed.
  struct AnyGraph {
    Graph graph;
    bool sized;
    int64_t n = kMostN;  // of calls that are recorded
    std::optional<CompiledGraph> compiled = {};
    std::optional<PreparedGraph> prepared = {};
    std::optional<LoadedGraph> loaded = {};
    std::map<uint64_t, int> used = {};
    uint64_t newest = 0;
    std::vector<Type> types(const std::vector<size_t>& values, int64_t size) const {
      std::vector<Type> all;
      for (const size_t v : values) {
        all.emplace_back(graph.values[v].dtype, Shape());
        for (const Extent& e : graph.values[v].dims()) all.back().second.push_back(e.eval({{"n", size}}));
      }
      return all;
    }
  };
  void add_graph(Graph given) {
    graphs_.push_back({std::move(given), false});
    AnyGraph& g = graphs_.back();
    g.sized = !size_names(g.graph).empty();
    if (!g.sized) g.compiled.emplace(load(d_, g.graph, {.frames_in_flight = static_cast<int>(1 + below(2))}));
    try {
      const Bundle b = bundled(d_, g.graph);
      PrepareGraphOptions o{.frames_in_flight = frames_in_flight_, .calls_per_frame = 2};
      if (g.sized) o.dims = {{"n", kMostN}};
      if (below(2)) g.prepared.emplace(d_, g.graph, o);
      else g.prepared.emplace(d_, b.graph(d_, g.graph.name), o);
      g.loaded.emplace(d_, b.graph(d_, g.graph.name), LoadGraphOptions{.dims = o.dims});
    } catch (const CompileError&) {  // nothing bounds a loop
    }
  }
  void add_kernels(const Graph& graph) {
    for (const ir::Kernel& k : graph.kernels) {
      bool fixed = true;
      for (const auto& b : k.blocks)
        for (const Extent& e : b.array_shape) fixed = fixed && e.value();
      if (fixed && kernels_.size() < 6) add_kernel(k, false);
    }
    for (size_t i = 0; i < 3; ++i) add_kernel(sized_kernel(random_), true);
  }
  void add_kernel(const ir::Kernel& k, bool sized) {
    const int calls = static_cast<int>(1 + below(3));
    CompiledKernel compiled = load(d_, k);
    PrepareOptions o{.frames_in_flight = frames_in_flight_, .calls_per_frame = calls};
    if (sized) o.dims = {{"n", kMostN}};
    auto prepared = std::make_unique<PreparedKernel>(compiled.prepare(o));
    kernels_.push_back({k, std::move(compiled), std::move(prepared), calls, sized});
  }

  // ---- arrays
  Array some(const Type& t) {
    Array a(t.second, t.first);
    for (int64_t i = 0; i < a.size(); ++i) {
      const int v = static_cast<int>(below(9)) - 4;
      a.set_element_bits(i, t.first == boolean  ? static_cast<uint64_t>(v > 0)
                            : t.first == f64    ? std::bit_cast<uint64_t>(static_cast<double>(v))
                            : t.first == f32    ? std::bit_cast<uint32_t>(static_cast<float>(v))
                            : is_float(t.first) ? to_narrow_bits(t.first, v)
                                                : static_cast<uint64_t>(v) & (~uint64_t{0} >> (64 - bits(t.first))));
    }
    return a;
  }
  size_t add(DeviceArray a, size_t memory) {
    handles_.push_back({std::move(a), memory});
    return handles_.size() - 1;
  }
  size_t new_memory(Contents c) {
    memories_.push_back(std::move(c));
    wrong_.push_back(Wrong::no);
    return memories_.size() - 1;
  }
  size_t fresh(const Type& t, bool filled) {
    const Array a = some(t);
    if (a.nbytes() > 0 && a.nbytes() % 4 == 0 && below(4) == 0) {  // the host's memory
      const uint64_t offset = 64 * below(3);
      const VulkanHost::Buffer b = host_.buffer(static_cast<uint64_t>(a.nbytes()) + offset + below(9));
      DeviceArray x = import_buffer(d_, host_.range(b, offset), t.second, t.first);
      if (filled) x.write(a);
      return add(std::move(x), new_memory(filled ? Contents(a) : std::nullopt));
    }
    return filled ? add(DeviceArray(d_, a), new_memory(a)) : add(DeviceArray(d_, t.second, t.first), new_memory({}));
  }
  std::vector<size_t> alive(const Type& t) {
    std::vector<size_t> fit;
    for (size_t i = 0; i < handles_.size(); ++i)
      if (const Handle& h = handles_[i]; !h.gone && h.array.dtype() == t.first && h.array.shape() == t.second)
        fit.push_back(i);
    return fit;
  }
  size_t input(const Type& t) {
    const std::vector<size_t> fit = alive(t);
    return fit.empty() || (fit.size() < 5 && below(4) == 0) ? fresh(t, true) : fit[below(fit.size())];
  }
  /// An array whose memory is none of these.
  size_t output(const Type& t, const std::vector<size_t>& taken) {
    std::vector<size_t> fit = alive(t);
    std::erase_if(fit, [&](size_t i) {
      return std::any_of(taken.begin(), taken.end(),
                         [&](size_t k) { return k != kNumber && handles_[k].memory == handles_[i].memory; });
    });
    return fit.empty() || (fit.size() < 5 && below(6) == 0) ? fresh(t, below(2) == 1) : fit[below(fit.size())];
  }
  void find_gone() {
    for (Handle& h : handles_) h.gone = !h.array.valid();
  }
  static bool equal(const Array& a, const Array& b) {
    for (int64_t i = 0; i < a.size(); ++i)
      if (a.at(i) != b.at(i) && !(std::isnan(a.at(i)) && std::isnan(b.at(i)))) return false;
    return a.shape() == b.shape() && a.dtype() == b.dtype();
  }
  void compare(size_t i) {
    const Handle& h = handles_[i];
    if (h.gone) {
      CHECK_THROWS_AS(h.array.download(), SpecError);
      return;
    }
    if (wrong_[h.memory] == Wrong::yes && h.array.nbytes() > 0) {
      CHECK_THROWS_AS(h.array.download(), KernelError);
      return;
    }
    Array got;
    try {
      got = h.array.download();
    } catch (const KernelError&) {
      if (wrong_[h.memory] == Wrong::no) throw;
      return;
    }
    const Contents& want = memories_[h.memory];
    if (want && !equal(got, *want)) {
      CHECK_MESSAGE(false, last_ << ": array " << i << " is " << got << " and not " << *want);
      throw std::runtime_error("what follows rests on it");
    }
  }

  // ---- calls
  static constexpr size_t kNumber = SIZE_MAX;
  struct Call {
    const Kernel* kernel;
    std::vector<size_t> arguments;  // handles, inputs then outputs
    std::vector<std::optional<Array>> numbers;
    std::vector<size_t> memories;
    std::vector<bool> donated;
    std::vector<DeviceArray> given;
  };
  Type type_of(const Kernel& k, size_t i, int64_t n) {
    Shape s;
    for (const Extent& e : k.ir.blocks[i].array_shape) s.push_back(e.value() ? *e.value() : n);
    return {k.ir.blocks[i].dtype, s};
  }
  void put(Call& c, size_t handle, bool donated) {
    c.arguments.push_back(handle);
    c.numbers.emplace_back();
    c.memories.push_back(handles_[handle].memory);
    c.donated.push_back(donated);
    c.given.push_back(donated ? donate(handles_[handle].array) : handles_[handle].array);
  }
  void put_number(Call& c, const Array& a) {
    c.arguments.push_back(kNumber);
    c.numbers.emplace_back(a);
    c.memories.push_back(kNumber);
    c.donated.push_back(false);
    c.given.push_back(DeviceArray(Scalar(a.dtype(), a.element_bits(0))));
  }
  void put_inputs(Call& c, int64_t n) {
    const auto inputs = static_cast<size_t>(c.kernel->ir.num_inputs);
    for (size_t i = 0; i < inputs; ++i) {
      const Type t = type_of(*c.kernel, i, n);
      if (c.kernel->ir.blocks[i].is_by_value()) put_number(c, some(t));
      else put(c, input(t), false);
    }
  }
  bool once(const Call& c, size_t i) { return std::count(c.memories.begin(), c.memories.end(), c.memories[i]) == 1; }
  Work work_of(const Call& c) {
    return [this, k = &c.kernel->ir, memories = c.memories, numbers = c.numbers, donated = c.donated] {
      const auto inputs = static_cast<size_t>(k->num_inputs);
      std::vector<Array> in;
      bool known = true;
      for (size_t i = 0; i < inputs; ++i) {
        const Contents& x = numbers[i] ? numbers[i] : memories_[memories[i]];
        known = known && x;
        if (x) in.push_back(*x);
      }
      std::vector<Array> out;
      try {
        if (known) out = interpret(*k, in);
      } catch (const KernelError&) {
        known = false;
      }
      for (size_t i = 0; i < inputs; ++i)
        if (donated[i] && stores_to_input(*k, i)) memories_[memories[i]].reset();
      for (size_t i = inputs; i < memories.size(); ++i)
        memories_[memories[i]] = known ? Contents(out[i - inputs]) : std::nullopt;
    };
  }

  static Wrong worse(Wrong a, Wrong b) {
    return a == Wrong::yes || b == Wrong::yes ? Wrong::yes : a == Wrong::perhaps ? a : b;
  }
  /// A call's outputs have the errors of what it reads, as far as they are known when it is recorded.
  void pass_on(const Call& c, Wrong own) {
    const Program& p = c.kernel->compiled.program();
    const auto inputs = static_cast<size_t>(c.kernel->ir.num_inputs);
    for (size_t i = 0; i < inputs; ++i)
      if (c.memories[i] != kNumber && vulkan::depends_on(p, i) && num_elements(c.given[i].shape()) > 0)
        own = worse(own, wrong_[c.memories[i]]);
    for (size_t i = inputs; i < c.memories.size(); ++i) wrong_[c.memories[i]] = own;
  }
  Wrong pass_on(const std::vector<size_t>& from, const std::vector<size_t>& to) {
    Wrong w = Wrong::no;
    for (const size_t m : from)
      if (m != kNumber && wrong_[m] != Wrong::no) w = Wrong::perhaps;
    for (const size_t m : to) wrong_[m] = w;
    return w;
  }

  void record_kernel(Stream& s) {
    Kernel& k = kernels_[below(kernels_.size())];
    if (k.ir.name == "checked") return;  // what a recorded call says of itself is said late
    if (k.sized && below(3) == 0) {
      const int64_t n = below(6) == 0 ? 0 : static_cast<int64_t>(below(kMostN + 1));
      k.prepared->resize({{"n", k.n = n}});
      if (below(4) == 0) CHECK_THROWS_AS(k.prepared->resize({{"n", kMostN + 1}}), SpecError);
    }
    Call c{&k, {}, {}, {}, {}, {}};
    put_inputs(c, k.n);
    const auto inputs = static_cast<size_t>(k.ir.num_inputs);
    for (size_t i = inputs; i < k.ir.blocks.size(); ++i) {
      const int alias = k.ir.blocks[i].alias;
      if (alias >= 0 && below(2) && once(c, static_cast<size_t>(alias)))
        put(c, c.arguments[static_cast<size_t>(alias)], false);
      else put(c, output(type_of(k, i, k.n), c.arguments), false);
    }
    for (size_t i = 0; i < inputs; ++i)
      if (c.arguments[i] != kNumber && stores_to_input(k.ir, i) && once(c, i) && below(2)) {
        c.donated[i] = true;
        c.given[i] = donate(c.given[i]);
      }
    const bool fits = k.used[s.frame] < k.calls_per_frame && s.frame >= k.newest;
    std::vector<Argument> arguments(c.given.begin(), c.given.end());
    if (below(8) == 0) {  // a mistake
      std::vector<Argument> wrong = arguments;
      const DeviceArray other(d_, {3, 1, 2}, f32);
      wrong[below(wrong.size())] = other;
      CHECK_THROWS_AS(s.stream.record(*k.prepared, wrong), SpecError);
    }
    if (!fits) {
      CHECK_THROWS_AS(s.stream.record(*k.prepared, arguments), SpecError);
      return;
    }
    last_ += " " + k.ir.name;
    s.stream.record(*k.prepared, arguments);
    k.newest = s.frame;
    ++k.used[s.frame];
    s.names.push_back(k.ir.name);
    s.work.push_back(work_of(c));
    pass_on(c, Wrong::no);
  }

  Work graph_work(const Graph& graph, std::vector<size_t> in, const std::vector<std::optional<Array>>& numbers,
                  std::vector<size_t> out) {
    return [this, &graph, in, numbers, out] {
      std::vector<Array> given;
      bool known = true;
      for (size_t i = 0; i < in.size(); ++i) {
        const Contents& x = numbers[i] ? numbers[i] : memories_[in[i]];
        known = known && x;
        if (x) given.push_back(*x);
      }
      std::vector<Array> made;
      if (known) made = interpret(graph, given);
      for (size_t i = 0; i < out.size(); ++i) memories_[out[i]] = known ? Contents(made[i]) : std::nullopt;
    };
  }
  struct GraphCall {
    std::vector<size_t> arguments, memories;
    std::vector<std::optional<Array>> numbers;
    std::vector<DeviceArray> in, out;
    std::vector<size_t> outputs, output_memories;
  };
  GraphCall graph_call(const AnyGraph& any, int64_t n) {
    GraphCall g;
    for (const Type& t : any.types(any.graph.body.inputs, n)) {
      if (t.second.empty() && below(2)) {
        const Array a = some(t);
        g.arguments.push_back(kNumber), g.memories.push_back(kNumber), g.numbers.emplace_back(a);
        g.in.push_back(DeviceArray(Scalar(a.dtype(), a.element_bits(0))));
        continue;
      }
      const size_t i = input(t);
      g.arguments.push_back(i), g.memories.push_back(handles_[i].memory), g.numbers.emplace_back();
      g.in.push_back(handles_[i].array);
    }
    std::vector<size_t> taken = g.arguments;
    for (const Type& t : any.types(any.graph.body.outputs, n)) {
      taken.push_back(output(t, taken));
      g.outputs.push_back(taken.back());
      g.output_memories.push_back(handles_[taken.back()].memory);
      g.out.push_back(handles_[taken.back()].array);
    }
    return g;
  }
  void record_graph(Stream& s) {
    AnyGraph& any = graphs_[below(2)];
    if (!any.prepared) return;
    if (any.sized && below(2)) {
      any.n = below(6) == 0 ? 0 : static_cast<int64_t>(below(kMostN + 1));
      any.prepared->resize({{"n", any.n}});
      if (below(4) == 0) CHECK_THROWS_AS(any.prepared->resize({{"n", kMostN + 1}}), SpecError);
    }
    const GraphCall g = graph_call(any, any.n);
    if (any.used[s.frame] >= 2 || s.frame < any.newest) {
      if (any.prepared->program().kernels.empty()) return;
      CHECK_THROWS_AS(any.prepared->record(s.stream, g.in, g.out), SpecError);
      return;
    }
    last_ += " graph";
    any.prepared->record(s.stream, g.in, g.out);
    ++any.used[s.frame];
    any.newest = s.frame;
    s.names.resize(std::max(s.names.size(), s.timed), "");  // as many as its kernels, which are not compared
    s.work.push_back(graph_work(any.graph, g.memories, g.numbers, g.output_memories));
    pass_on(g.memories, g.output_memories);
  }

  /// Nothing bounds a loop of the graph, and what memory happens to hold may be anything: how often it runs would
  /// depend on what the arrays before had there, and when the device was done with them.
  void specify(const GraphCall& g) {
    for (size_t i = 0; i < g.memories.size(); ++i) {
      const size_t m = g.memories[i];
      if (m == kNumber || memories_[m]) continue;
      DeviceArray& x = handles_[g.arguments[i]].array;
      const Array a = some({x.dtype(), x.shape()});
      x.write(a);
      memories_[m] = a;
      wrong_[m] = Wrong::no;
    }
  }

  void call_graph() {
    const AnyGraph& any = graphs_[below(2)];
    if (any.sized && !any.loaded) return;
    const GraphCall g = graph_call(any, any.sized ? static_cast<int64_t>(below(kMostN + 1)) : 0);
    const bool loaded = any.loaded && (any.sized || below(2)), into = below(2);
    if (!any.loaded) specify(g);
    last_ += loaded ? " loaded graph" : " compiled graph";
    std::vector<DeviceArray> out;
    try {
      if (loaded) out = into ? any.loaded->run_into(g.in, g.out) : (*any.loaded)(g.in);
      else out = into ? any.compiled->run_into(g.in, g.out) : (*any.compiled)(g.in);
    } catch (const KernelError&) {  // of what decides
      const bool wrong = std::any_of(g.memories.begin(), g.memories.end(),
                                     [&](size_t m) { return m != kNumber && wrong_[m] != Wrong::no; });
      CHECK(wrong);
      if (into)
        for (const size_t m : g.output_memories) memories_[m].reset();
      return;
    }
    // An output of a CompiledGraph that is an argument, or comes a second time, is that array itself.
    std::vector<size_t> memories;
    for (size_t i = 0; i < out.size(); ++i) {
      size_t memory = kNumber;
      for (size_t j = 0; j < g.in.size(); ++j)
        if (!g.numbers[j] && out[i].nbytes() > 0 && out[i].memory() == g.in[j].memory()) memory = g.memories[j];
      for (size_t j = 0; j < i; ++j)
        if (out[i].nbytes() > 0 && out[i].memory() == out[j].memory()) memory = memories[j];
      if (into && memory == kNumber && (out[i].nbytes() == 0 || out[i].memory() == g.out[i].memory()))
        memory = g.output_memories[i];
      if (memory == kNumber) memory = new_memory({});
      memories.push_back(memory);
      if (!into || memory != g.output_memories[i]) add(out[i], memory);
    }
    const std::vector<Wrong> before = wrong_;
    pass_on(g.memories, memories);
    for (const size_t m : g.memories)
      if (m != kNumber) wrong_[m] = before[m];
    graph_work(any.graph, g.memories, g.numbers, memories)();
  }

  void launch_kernel() {
    Kernel& k = kernels_[below(kernels_.size())];
    Call c{&k, {}, {}, {}, {}, {}};
    const int64_t n = below(6) == 0 ? 0 : static_cast<int64_t>(below(kMostN + 1));
    put_inputs(c, n);
    const auto inputs = static_cast<size_t>(k.ir.num_inputs);
    for (size_t i = 0; i < inputs; ++i) {
      const bool taken = k.ir.aliased_output(static_cast<int>(i)) >= 0 || stores_to_input(k.ir, i);
      if (c.arguments[i] != kNumber && taken && once(c, i) && below(3) == 0) {
        c.donated[i] = true;
        c.given[i] = donate(c.given[i]);
      }
    }
    last_ += " " + k.ir.name;
    const std::vector<DeviceArray> in(c.given);
    const DimValues dims = k.sized ? DimValues{{"n", n}} : DimValues{};
    const bool into = below(2);
    std::vector<DeviceArray> given;
    for (size_t i = inputs; i < k.ir.blocks.size(); ++i) {
      const int alias = k.ir.blocks[i].alias;
      const bool takes = alias >= 0 && c.donated[static_cast<size_t>(alias)];
      if (takes || !into) {
        given.emplace_back();
        c.arguments.push_back(kNumber);
        c.memories.push_back(takes ? c.memories[static_cast<size_t>(alias)] : new_memory({}));
        continue;
      }
      put(c, output(type_of(k, i, n), c.arguments), false);
      given.push_back(c.given.back());
    }
    const std::vector<DeviceArray> out =
        into ? launch_into(d_, k.compiled.program(), in, given, dims) : launch(d_, k.compiled.program(), in, dims);
    for (size_t i = 0; i < inputs; ++i)
      if (c.donated[i]) find_gone();
    for (size_t i = inputs; i < k.ir.blocks.size(); ++i)
      if (c.arguments[i] == kNumber) add(out[i - inputs], c.memories[i]);
    Wrong own = Wrong::no;
    if (k.ir.name == "checked" && n > 0) {
      const Contents& x = memories_[c.memories[0]];
      own = x ? Wrong::no : Wrong::perhaps;
      for (int64_t i = 0; x && i < x->size(); ++i)
        if (std::trunc(x->at(i)) >= 4) own = Wrong::yes;
    }
    pass_on(c, own);
    work_of(c)();
  }

  // ---- streams
  void begin(Stream& s) {
    const uint64_t frame = frame_ += below(2) * (1 + below(2) * below(2));
    const auto limit = static_cast<uint64_t>(frames_in_flight_);
    bool waits = false;
    for (Stream& other : streams_) {
      if (other.frame + limit > frame) continue;
      if (other.open) finish(other);
      if (other.recorded) logged_ || below(5) ? submit(other) : drop(other);
      waits = true;
    }
    if (waits || below(4) == 0) wait();
    if (s.timed && s.timed_frame != frame) s.names.clear(), s.timing = true;
    s.timed_frame = frame;
    s.frame = frame;
    s.commands = host_.commands();
    host_.begin(s.commands);
    s.stream.begin(s.commands, frame);
    CHECK_THROWS_AS(s.stream.begin(s.commands, frame), SpecError);
    s.open = true;
    s.work.clear();
  }
  void wait() {
    host_.wait();
    if (logged_) d_.submit_nothing();  // the log knows of the host's waits by ours
  }
  void finish(Stream& s) {
    s.stream.end();
    s.open = false;
    s.recorded = true;
  }
  void submit(Stream& s) {
    last_ += " submit";
    host_.submit(s.commands);
    s.recorded = false;
    for (const Work& w : s.work) w();
    if (s.timed && s.timing && below(2)) {
      wait();
      const std::vector<TimedCommand> t = s.stream.trace(s.timed_frame);
      const bool graphs = std::count(s.names.begin(), s.names.end(), "") > 0;  // of any number of kernels
      CHECK((graphs ? t.size() <= s.timed : t.size() == std::min(s.timed, s.names.size())));
      for (size_t i = 0; i < std::min(t.size(), s.names.size()) && !s.names[i].empty(); ++i) {
        CHECK(t[i].name == s.names[i]);
        CHECK(t[i].begin <= t[i].end);
      }
    }
  }
  void drop(Stream& s) {
    s.recorded = false;
    s.timing = false;
  }

  void step() {
    Stream& s = streams_[below(streams_.size())];
    switch (const size_t kind = below(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
      case 5:
        last_ = "stream";
        if (s.recorded) return submit(s);
        if (!s.open) return begin(s);
        return kind == 5 ? finish(s) : kind == 4 ? record_graph(s) : record_kernel(s);
      case 6: last_ = "call"; return call_graph();
      case 7:
      case 8:
      case 9: last_ = "launch"; return launch_kernel();
      case 10: {
        last_ = "write";
        const size_t i = handles_.empty() ? kNumber : below(handles_.size());
        if (i == kNumber || handles_[i].gone) return;
        const Type t{handles_[i].array.dtype(), handles_[i].array.shape()};
        if (below(2)) {
          const size_t from = input(t);
          handles_[i].array.write(handles_[from].array);
          memories_[handles_[i].memory] = Contents(memories_[handles_[from].memory]);
          wrong_[handles_[i].memory] = wrong_[handles_[from].memory];
          return;
        }
        const Array a = some(t);
        handles_[i].array.write(a);
        memories_[handles_[i].memory] = a;
        wrong_[handles_[i].memory] = Wrong::no;
        return;
      }
      case 11: {
        last_ = "free";
        if (handles_.empty()) return;
        Handle& h = handles_[below(handles_.size())];
        if (h.gone) return;
        if (below(2)) h.array.free();
        else {
          const Wrong w = wrong_[h.memory];
          h.array = h.array.copy();
          h.memory = new_memory(Contents(memories_[h.memory]));
          wrong_[h.memory] = w;
        }
        find_gone();
        return;
      }
      case 12:
        last_ = "wait";
        try {
          d_.wait();
        } catch (const KernelError&) {  // of what nobody has asked for
        }
        return;
      default:
        last_ = "compare";
        if (!handles_.empty()) compare(below(handles_.size()));
    }
  }

  std::mt19937_64 random_;
  VulkanHost& host_;
  const Device& d_;
  bool logged_;  // then every stream is submitted
  int frames_in_flight_ = 1;
  uint64_t frame_ = 0;
  std::deque<AnyGraph> graphs_;  // of fixed sizes, and of every one
  std::vector<Kernel> kernels_;
  std::vector<Handle> handles_;
  std::vector<Contents> memories_;
  std::vector<Wrong> wrong_;
  std::vector<Stream> streams_;
  std::string last_;
};

}  // namespace

TEST_CASE("strangers' programs, at random") {
  const uint64_t most = std::getenv("TESSERA_TESTS_ALL") ? 1000 : 16;
  for (uint64_t seed = 1; seed <= most; ++seed) {
    CAPTURE(seed);
    auto host = std::make_unique<VulkanHost>();
    {
      DeviceOptions o;
      o.log_commands = seed % 2 == 0;
      o.always_stage = seed % 3 == 0;
      o.watchdog_seconds = std::vector{0.5, 0.0, 1e-9, 1e-6}[seed % 4];
      const Device d = Device::import(host->imported(), o);
      try {
        Stranger(seed, *host, d, o.log_commands).run(120);
      } catch (const std::exception& e) {
        CHECK_MESSAGE(false, "threw: " << std::string(e.what()));
      }
      host->wait();
      d.submit_nothing();
      for (const std::string& r : find_unordered(d.command_log())) FAIL_CHECK(r);
    }
    check_silent(std::move(host));
  }
}

}  // namespace random_host_test
