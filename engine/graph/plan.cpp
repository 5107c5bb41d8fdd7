#include "engine/graph/plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "engine/base/function.h"
#include "engine/base/plural.h"
#include "engine/graph/dce.h"
#include "engine/graph/order.h"

namespace tessera {
namespace {

using Step = Graph::Step;
using Storage = GraphPlan::Storage;
using Place = GraphPlan::Place;
using Command = GraphPlan::Command;
using Node = GraphPlan::Node;
constexpr size_t kForever = std::numeric_limits<size_t>::max();
constexpr int64_t kGranule = 64;              // of the arena
constexpr int64_t kMuch = int64_t{16} << 20;  // bytes of an arena: below, it is not worth a barrier
// of a while that nothing bounds: a look at its state costs about as much as this many iterations of small kernels that
// do nothing
constexpr int64_t kIterations = 16;

int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
int64_t bytes(const Graph::Type& t) { return num_elements(t.shape) * size_bytes(t.dtype); }

// -- commands

class Planner {
 public:
  Planner(const Graph& g, const PlanOptions& options)
      : graph_(g), options_(options), places_(g.values.size()), wanted_(g.values.size()) {}

  GraphPlan run() {
    Graph::Body body = graph_.body;
    plan_.dropped = graph_.dropped + dead_code_elimination(graph_, body);
    for (size_t i = 0; i < body.inputs.size(); ++i)
      places_[body.inputs[i]] = fresh(bytes(graph_.values[body.inputs[i]]), Storage::Input{i}, body.inputs[i]);
    for (size_t i = 0; i < graph_.constants.size(); ++i) {
      const size_t v = graph_.constants[i].first;
      places_[v] = fresh(bytes(graph_.values[v]), Storage::Constant{i}, v);
    }
    for (const auto& [v, a] : graph_.constants) constant_.emplace(v, &a);
    nodes_ = &plan_.nodes;
    for (const size_t v : body.inputs) result_.emplace(places_[v].storage, v);
    const std::vector<Place> places = walk(body);
    for (size_t i = 0; i < places.size(); ++i) {
      Place p = places[i];
      Storage& s = plan_.storages[p.storage];
      const size_t v = body.outputs[i];
      const bool as_it_is = whole(p) && graph_.values[result_.emplace(p.storage, v).first->second] == graph_.values[v];
      if (as_it_is && s.arena()) {
        s.where = Storage::Output{num_outputs_++};
      } else if (!as_it_is || s.constant()) {  // a constant stays the graph's, whatever becomes of the result
        const Place own = fresh(p.bytes, Storage::Output{num_outputs_++}, v);
        copy(p, own);
        p = own;
      }
      use(p, kForever);
      plan_.outputs.push_back(p);
    }
    take_places();
    arrange();
    order();
    table();
    return std::move(plan_);
  }

 private:
  size_t now() const { return plan_.commands.size(); }
  bool whole(const Place& p) const { return p.offset == 0 && p.bytes == plan_.storages[p.storage].bytes; }
  template <class Where = Storage::Arena>
  Place fresh(int64_t n, Where where = {}, std::optional<size_t> value = {}) {
    plan_.storages.push_back({where, n, now(), now(), value});
    return {plan_.storages.size() - 1, 0, n};
  }
  /// Memory for what is copied there.
  Place fresh_like(const Place& from) {
    return fresh(from.bytes, Storage::Arena{}, whole(from) ? plan_.storages[from.storage].value : std::nullopt);
  }
  void use(const Place& p, size_t when) {
    Storage& s = plan_.storages[p.storage];
    s.last = std::max(s.last, when);
  }
  /// Where a result goes: to a place that is already given, or to memory of its own.
  Place result(size_t v) {
    if (const auto p = wanted_[v]) return *p;
    return fresh(bytes(graph_.values[v]), Storage::Arena{}, v);
  }

  void emit(Command c) {
    if (const Command::Call* call = c.call()) {
      for (const Place& p : call->arguments) use(p, now());
      for (const auto& [name, p] : call->sizes) use(p, now());
    } else if (const Command::Copy* copied = c.copy()) {
      use(copied->from, now());
      use(copied->to, now());
    }
    if (const Command::SetGate* set = c.set_gate()) {
      if (set->decides) use(*set->decides, now());
      if (c.guard) use(plan_.gates[c.guard->gate].state, now());
      use(plan_.gates[set->gate].state, now());
      use(plan_.gates[set->gate].groups, now());
    } else if (guard_) {
      c.guard = guard_;
      std::vector<GraphPlan::Gate::Member>& members = plan_.gates[guard_->gate].members;
      c.guard->slot = members.size();
      members.push_back({now(), guard_->body});
      use(plan_.gates[guard_->gate].groups, now());
    }
    const bool alone = c.sized();
    const Node::Commands* last = nodes_->empty() ? nullptr : nodes_->back().commands();
    if (alone || !last || last->end != now() || alone_ == now())
      nodes_->push_back({.what = Node::Commands{now()}, .begin = now()});
    ++nodes_->back().commands()->end;
    plan_.commands.push_back(std::move(c));
    if (alone) alone_ = now();
  }
  void copy(const Place& from, const Place& to) {
    if (from == to || from.bytes == 0) return;
    emit({Command::Copy{from, to}});
  }

  std::vector<Place> walk(const Graph::Body& b) {
    for (const Step& s : b.steps) std::visit([&](const auto& what) { step(s, what); }, s.what);
    return given(b.outputs);
  }
  std::vector<Place> given(const std::vector<size_t>& values) const {
    std::vector<Place> p;
    for (size_t v : values) p.push_back(places_[v]);
    return p;
  }
  /// Commands, roughly, that a body becomes.
  int64_t length(const Graph::Body& b) const {
    int64_t n = 0;
    for (const Step& s : b.steps) {
      n += std::min(length(s), options_.unrolled + 1);
      if (n > options_.unrolled) return n;
    }
    return n;
  }
  int64_t length(const Step& s) const {
    int64_t all = s.call() ? 1 : 0, times = 1;
    for (const Graph::Body* inner : s.bodies()) all += length(*inner);
    if (const auto* counted = std::get_if<Step::CountedLoop>(&s.what)) times = counted->count;
    else if (const Step::While* loop = s.while_loop()) times = loop->at_most.value_or(1);
    return std::min(std::max<int64_t>(all, 1), options_.unrolled + 1) * times;
  }

  // -- what a value decides

  struct Reason {
    std::string why;
    Loc loc;
    explicit operator bool() const { return !why.empty(); }
  };
  /// Why the commands of a step cannot all be recorded in advance, guarded by a gate. `again`: they are run more than
  /// once in a replay, where a report has room for one.
  Reason unguarded(const Step& s, bool again) const {
    if (!options_.gates) return {"that is how the plan is asked for", s.loc};
    if (Reason r = std::visit([&](const auto& what) { return unguarded(s, what, again); }, s.what)) return r;
    return unguarded_bodies(s, again || s.while_loop());
  }
  Reason unguarded(const Step& s, const Step::Call& c, bool again) const {
    const ir::Kernel& k = graph_.kernels[c.kernel];
    for (const auto& [name, v] : c.sizes)
      if (!constant_.contains(v)) return {"a value is the size of a grid of " + k.name, k.loc};
    if (options_.whole && !options_.whole(described(s, c)))
      return {k.name + " is estimated to take longer than the watchdog allows, so it is cut", k.loc};
    if (again && !k.texts.empty()) return {k.name + " prints or checks in a loop that a value ends", k.loc};
    return {};
  }
  Reason unguarded(const Step& s, const Step::CountedLoop& loop, bool) const {
    if (length(s) > options_.unrolled) return too_long(s, plural(static_cast<size_t>(loop.count), "iteration"));
    for (const std::vector<size_t>* values : {&loop.body.inputs, &loop.body.outputs})
      for (size_t i = s.num_carries(); i < values->size(); ++i)
        if (const int64_t n = bytes(graph_.values[(*values)[i]]); n % options_.alignment) return unaligned(s, n);
    return {};
  }
  Reason unguarded(const Step& s, const Step::While& loop, bool) const {
    if (!loop.at_most) return {"nothing bounds how often a while loop iterates", s.loc};
    if (length(s) > options_.unrolled)
      return too_long(s, "at most " + plural(static_cast<size_t>(*loop.at_most), "iteration"));
    return {};
  }
  Reason unguarded(const Step&, const Step::Switch&, bool) const { return {}; }
  Reason unguarded_bodies(const Step& step, bool again) const {
    for (const Graph::Body* b : step.bodies())
      for (const Step& s : b->steps)
        if (Reason r = unguarded(s, again)) return r;
    return {};
  }
  Reason too_long(const Step& s, const std::string& iterations) const {
    return {"a loop of " + iterations + " becomes more than " + std::to_string(options_.unrolled) + " commands", s.loc};
  }
  Reason unaligned(const Step& s, int64_t n) const {
    return {"a loop works on rows of " + plural(static_cast<size_t>(n), "byte") + ", which lie at no multiples of " +
                std::to_string(options_.alignment),
            s.loc};
  }

  size_t new_gate(int32_t bodies) {
    plan_.gates.push_back({.state = fresh(4), .groups = fresh(0), .bodies = bodies});
    return plan_.gates.size() - 1;
  }
  void set_gate(size_t gate, std::optional<Place> decides, std::optional<GraphPlan::Guard> guard) {
    emit({Command::SetGate{gate, decides}, guard});
  }
  /// All members are known. Few sizes mean few kernels that set them.
  void close_gate(size_t gate) {
    GraphPlan::Gate& g = plan_.gates[gate];
    int64_t slots = 16;
    while (slots < 3 * static_cast<int64_t>(g.members.size())) slots *= 4;
    g.groups.bytes = plan_.storages[g.groups.storage].bytes = 4 * slots;
  }
  /// A body whose commands run where the gate's state is it.
  std::vector<Place> guarded(size_t gate, int32_t body, FunctionRef<std::vector<Place>()> walk_it) {
    const auto around = std::exchange(guard_, GraphPlan::Guard{.gate = gate, .body = body});
    std::vector<Place> outs = walk_it();
    guard_ = around;
    return outs;
  }

  /// The call, as far as the graph alone tells.
  Command::Call described(const Step& s, const Step::Call& call) const {
    Command::Call c{.kernel = call.kernel, .values = s.arguments};
    for (const size_t v : s.arguments) c.inputs.emplace_back(graph_.values[v].dtype, graph_.values[v].shape);
    for (const auto& [name, v] : call.sizes)
      if (const auto it = constant_.find(v); it != constant_.end()) c.dims[name] = grid_size(scalar(*it->second));
    return c;
  }
  void step(const Step& s, const Step::Call& call) {
    const ir::Kernel& k = graph_.kernels[call.kernel];
    Command::Call c = described(s, call);
    for (size_t i = 0; i < s.arguments.size(); ++i) {
      Place p = places_[s.arguments[i]];
      const int input = static_cast<int>(i);
      if (k.is_stored(input) && k.aliased_output(input) < 0) {  // it changes what it is given
        const Place own = fresh_like(p);
        copy(p, own);
        p = own;
      }
      c.arguments.push_back(p);
    }
    for (const auto& [name, v] : call.sizes) {
      if (c.dims.contains(name)) continue;
      const Storage& from = plan_.storages[places_[v].storage];
      if (const auto* known = from.constant()) c.dims[name] = grid_size(scalar(graph_.constants[known->index].second));
      else c.sizes.emplace_back(name, places_[v]);
    }
    std::vector<Place> results;
    for (size_t i = 0; i < s.results.size(); ++i) {
      results.push_back(result(s.results[i]));
      const int alias = k.blocks[s.arguments.size() + i].alias;
      if (alias >= 0) copy(c.arguments[static_cast<size_t>(alias)], results.back());
    }
    c.arguments.insert(c.arguments.end(), results.begin(), results.end());
    if (const int64_t n = options_.scratch ? options_.scratch(c) : 0) c.scratch = fresh(n);
    emit({std::move(c)});
    for (size_t i = 0; i < s.results.size(); ++i) places_[s.results[i]] = results[i];
  }

  void step(const Step& s, const Step::Switch& branching) {
    const Place index = places_[s.arguments[0]];
    use(index, now());
    std::vector<Place> results;
    for (size_t v : s.results) results.push_back(result(v));
    const Reason why = unguarded(s, false);
    if (!why) {
      const size_t gate = new_gate(static_cast<int32_t>(branching.branches.size()));
      set_gate(gate, index, guard_);
      for (size_t b = 0; b < branching.branches.size(); ++b)
        guarded(gate, static_cast<int32_t>(b), [&] {
          const std::vector<Place> outs = walk(branching.branches[b]);
          for (size_t i = 0; i < outs.size(); ++i) copy(outs[i], results[i]);
          return outs;
        });
      close_gate(gate);
      for (size_t i = 0; i < s.results.size(); ++i) places_[s.results[i]] = results[i];
      return;
    }
    const size_t start = now();
    Node::Switch choice{.decides = index};
    for (const Graph::Body& b : branching.branches) {
      choice.branches.emplace_back();
      std::vector<Node>* const around = std::exchange(nodes_, &choice.branches.back());
      const std::vector<Place> outs = walk(b);
      for (size_t i = 0; i < outs.size(); ++i) copy(outs[i], results[i]);
      nodes_ = around;
    }
    nodes_->push_back({.what = std::move(choice), .begin = start, .why = why.why, .loc = why.loc});
    for (size_t i = 0; i < s.results.size(); ++i) places_[s.results[i]] = results[i];
  }

  static Place row_of(const Place& array, int64_t count, int64_t i) {
    return {array.storage, array.offset + i * (array.bytes / count), array.bytes / count};
  }
  bool aligned(const Place& p) const { return p.offset % options_.alignment == 0 && p.bytes % options_.alignment == 0; }

  void step(const Step& s, const Step::CountedLoop& loop) {
    if (loop.count * std::max<int64_t>(length(loop.body), 1) <= options_.unrolled) unroll(s, loop);
    else counted_loop(s, loop);
  }
  void unroll(const Step& s, const Step::CountedLoop& loop) {
    const Graph::Body& b = loop.body;
    std::vector<Place> carries = given(s.arguments), stacks;
    const std::vector<Place> sliced(carries.begin() + static_cast<std::ptrdiff_t>(s.num_carries()), carries.end());
    carries.resize(s.num_carries());
    for (size_t i = s.num_carries(); i < s.results.size(); ++i) stacks.push_back(result(s.results[i]));
    for (int64_t i = 0; i < loop.count; ++i) {
      for (size_t k = 0; k < carries.size(); ++k) places_[b.inputs[k]] = carries[k];
      for (size_t k = 0; k < sliced.size(); ++k) {
        Place p = row_of(sliced[k], loop.count, loop.row(i));
        if (!aligned(p)) {
          const Place own = fresh(p.bytes);
          copy(p, own);
          p = own;
        }
        places_[b.inputs[s.num_carries() + k]] = p;
      }
      for (size_t k = 0; k < stacks.size(); ++k)
        if (const Place p = row_of(stacks[k], loop.count, loop.row(i)); aligned(p))
          wanted_[b.outputs[s.num_carries() + k]] = p;
      std::vector<Place> outs = walk(b);
      for (size_t k = 0; k < stacks.size(); ++k) {
        wanted_[b.outputs[s.num_carries() + k]].reset();
        copy(outs[s.num_carries() + k], row_of(stacks[k], loop.count, loop.row(i)));
      }
      outs.resize(s.num_carries());
      carries = std::move(outs);
    }
    carries.insert(carries.end(), stacks.begin(), stacks.end());
    for (size_t i = 0; i < s.results.size(); ++i) places_[s.results[i]] = carries[i];
  }

  /// What a loop that is not unrolled carries, slices and stacks has one place for all iterations.
  struct LoopPlaces {
    std::vector<Place> results = {};  // the carries, then the stacked outputs
    size_t carries = 0;
    size_t storages = 0, start = 0;  // storages and commands before the first iteration
  };
  /// `slices`: of a counted loop, where each sliced array's row goes.
  LoopPlaces enter(const Step& s, const Graph::Body& b, std::vector<std::pair<Place, Place>>& slices) {
    LoopPlaces l{.carries = s.num_carries()};
    for (size_t i = 0; i < s.arguments.size(); ++i) {
      const Place from = places_[s.arguments[i]];
      const bool slice = i >= l.carries;
      const Place p = fresh(slice ? bytes(graph_.values[b.inputs[i]]) : from.bytes, Storage::Arena{}, b.inputs[i]);
      if (slice) {
        slices.emplace_back(from, p);
      } else {
        l.results.push_back(p);
        copy(from, p);
      }
      places_[b.inputs[i]] = p;
    }
    for (size_t i = l.carries; i < s.results.size(); ++i) l.results.push_back(result(s.results[i]));
    l.storages = plan_.storages.size();
    l.start = now();
    for (const auto& [array, p] : slices) use(array, l.start);
    return l;
  }
  /// An iteration. Returns the places of the rows that are stacked.
  std::vector<Place> iteration(const Graph::Body& b, const LoopPlaces& l) {
    std::vector<Place> outs = walk(b);
    // All carries change at once, and the rows are read after that.
    const auto is_carry = [&](const Place& p, size_t own) {
      for (size_t k = 0; k < l.carries; ++k)
        if (k != own && p.storage == l.results[k].storage) return true;
      return false;
    };
    for (size_t i = 0; i < outs.size(); ++i)
      if (is_carry(outs[i], i)) {
        const Place own = fresh_like(outs[i]);
        copy(outs[i], own);
        outs[i] = own;
      }
    for (size_t i = 0; i < l.carries; ++i) copy(outs[i], l.results[i]);
    return {outs.begin() + static_cast<std::ptrdiff_t>(l.carries), outs.end()};
  }
  /// What was there before the loop is there for every iteration, and nothing else takes the place of what the last one
  /// has left.
  void leave(const Step& s, const LoopPlaces& l) {
    for (const Place& p : l.results) use(p, now());
    for (size_t i = 0; i < l.storages; ++i)
      if (plan_.storages[i].last >= l.start) use({i, 0, 0}, now());
    for (size_t i = 0; i < s.results.size(); ++i) places_[s.results[i]] = l.results[i];
  }

  void counted_loop(const Step& s, const Step::CountedLoop& counted) {
    Node::CountedLoop loop{.count = counted.count, .reverse = counted.reverse};
    const LoopPlaces l = enter(s, counted.body, loop.slices);
    std::vector<Node>* const around = std::exchange(nodes_, &loop.body);
    const std::vector<Place> rows = iteration(counted.body, l);
    nodes_ = around;
    for (size_t i = 0; i < rows.size(); ++i) loop.stacks.emplace_back(rows[i], l.results[l.carries + i]);
    for (const auto& [row, array] : loop.stacks) use(row, now());
    for (const auto& [array, row] : loop.slices) use(row, now());
    leave(s, l);
    nodes_->push_back({.what = std::move(loop),
                       .begin = l.start,
                       .why = "a loop of " + std::to_string(counted.count) + " iterations becomes more than " +
                              std::to_string(options_.unrolled) + " commands",
                       .loc = s.loc});
  }

  void step(const Step& s, const Step::While& repeated) {
    Node::While loop{.at_most = repeated.at_most};
    const Reason whole = unguarded(s, true), one = unguarded_bodies(s, true);
    const int64_t each = std::max<int64_t>(length(repeated.body) + length(repeated.test), 1);
    loop.iterations = whole ? std::clamp<int64_t>(options_.unrolled / each, 1, kIterations) : *repeated.at_most;
    if (!one && options_.gates) {
      loop.gate = new_gate(1);
      set_gate(*loop.gate, {}, guard_);
    }
    std::vector<std::pair<Place, Place>> none;
    const LoopPlaces l = enter(s, repeated.body, none);
    const auto outside = guard_;
    if (loop.gate) guard_ = GraphPlan::Guard{.gate = *loop.gate};
    std::vector<Node>* const around = std::exchange(nodes_, &loop.test);
    loop.decides = walk(repeated.test)[0];
    if (loop.gate) set_gate(*loop.gate, loop.decides, guard_);
    else use(loop.decides, now());
    nodes_ = &loop.body;
    iteration(repeated.body, l);
    nodes_ = around;
    guard_ = outside;
    if (loop.gate) close_gate(*loop.gate);
    leave(s, l);
    nodes_->push_back({.what = std::move(loop), .begin = l.start, .why = whole.why, .loc = whole ? whole.loc : s.loc});
  }

  /// A copy made for an output that is aliased to an input, or for an input that the kernel changes, takes the
  /// place of its source, if no command reads that after the call.
  void take_places() {
    std::vector<size_t> now_in(plan_.storages.size());
    std::iota(now_in.begin(), now_in.end(), size_t{0});
    const auto find = [&](size_t s) {
      while (now_in[s] != s) s = now_in[s];
      return s;
    };
    for (size_t t = 0; t < plan_.commands.size(); ++t) {
      const Command::Copy* const c = plan_.commands[t].copy();
      if (!c) continue;
      size_t call = t;  // the one that it is for
      while (call < plan_.commands.size() && plan_.commands[call].copy()) ++call;
      const size_t from = find(c->from.storage), to = find(c->to.storage);
      Storage &source = plan_.storages[from], &target = plan_.storages[to];
      const Storage::Input* const input = source.input();
      const bool donated = input && input->index < options_.donated.size() && options_.donated[input->index];
      if (call == plan_.commands.size() || from == to || !(source.arena() || donated) || target.input() ||
          target.constant())
        continue;
      if (!(c->from.offset == 0 && c->from.bytes == source.bytes && c->to.offset == 0 && c->to.bytes == target.bytes))
        continue;
      if (target.first > t || written_before(c->to, t) || source.last > call) continue;
      // The call sees the source as this one argument at most, and no other copy reads it.
      if (!plan_.commands[call].call()) continue;
      const Command::Call& user = *plan_.commands[call].call();
      const ir::Kernel& k = graph_.kernels[user.kernel];
      size_t seen = 0, allowed = 0;
      for (size_t i = 0; i < user.arguments.size(); ++i) {
        if (find(user.arguments[i].storage) != from) continue;
        ++seen;
        const int output = i < static_cast<size_t>(k.num_inputs) ? k.aliased_output(static_cast<int>(i)) : -1;
        if (output >= 0 && find(user.arguments[static_cast<size_t>(output)].storage) == to) ++allowed;
      }
      bool other = seen != allowed || std::none_of(user.arguments.begin(), user.arguments.end(),
                                                   [&](const Place& p) { return find(p.storage) == to; });
      for (size_t i = t + 1; i < call; ++i) {
        const Command::Copy& between = *plan_.commands[i].copy();
        other |= find(between.from.storage) == from || find(between.to.storage) == from;
      }
      for (const auto& [name, p] : user.sizes) other |= find(p.storage) == from;
      if (other || (donated && result_.contains(to) &&  // the result is given as the argument is
                    graph_.values[result_[to]] != graph_.values[result_[from]]))
        continue;
      if (donated) {  // whose memory it is
        source.last = std::max(source.last, target.last);
        now_in[to] = from;
        continue;
      }
      target.first = std::min(source.first, target.first);
      now_in[from] = to;
    }
    move_places([&](Place& p) { p.storage = find(p.storage); });
    for (size_t i = 0; i < now_in.size(); ++i)
      if (now_in[i] != i) plan_.storages[i].bytes = 0;  // it has another's memory
  }
  /// f changes every place of the plan.
  template <class F>
  void move_places(const F& f) {
    for (Command& c : plan_.commands) {
      if (auto* copied = std::get_if<Command::Copy>(&c.what)) {
        f(copied->from);
        f(copied->to);
      } else if (auto* set = std::get_if<Command::SetGate>(&c.what)) {
        if (set->decides) f(*set->decides);
      } else {
        for (Place& p : c.call()->arguments) f(p);
        for (auto& [name, p] : c.call()->sizes) f(p);
      }
    }
    for (Place& p : plan_.outputs) f(p);
    const auto move_nodes = [&](auto& self, std::vector<Node>& nodes) -> void {
      for (Node& n : nodes) {
        if (auto* loop = std::get_if<Node::CountedLoop>(&n.what)) {
          for (auto* list : {&loop->slices, &loop->stacks})
            for (auto& [a, b] : *list) {
              f(a);
              f(b);
            }
        } else if (auto* ends = std::get_if<Node::While>(&n.what)) {
          f(ends->decides);
        } else if (auto* choice = std::get_if<Node::Switch>(&n.what)) {
          f(choice->decides);
        }
        for_each_body(n, [&](std::vector<Node>& body) { self(self, body); });
      }
    };
    move_nodes(move_nodes, plan_.nodes);
  }
  bool written_before(const Place& p, size_t t) const {
    for (size_t i = plan_.storages[p.storage].first; i < t; ++i) {
      const Command& c = plan_.commands[i];
      if (c.copy() && c.copy()->to.storage == p.storage) return true;
      if (c.call() && std::any_of(c.call()->arguments.begin(), c.call()->arguments.end(),
                                  [&](const Place& a) { return a.storage == p.storage; }))
        return true;
    }
    return false;
  }

  /// Another order if that takes fewer barriers and little more memory: of all commands, else within windows of fewer
  /// and fewer.
  void order() {
    plan_.barriers = plan_.barriers_as_written = count_barriers(graph_, plan_);
    if (!options_.reorder || plan_.barriers == 0) return;
    const int64_t most = std::max(plan_.arena_bytes + plan_.arena_bytes / 4, kMuch);
    for (const size_t window : {kForever, size_t{256}, size_t{64}, size_t{16}}) {
      GraphPlan as_written = plan_;
      order_by_level(graph_, plan_, window);
      arrange();
      plan_.barriers = count_barriers(graph_, plan_);
      const bool fewer = plan_.barriers < as_written.barriers;
      if (fewer && plan_.arena_bytes <= most) return;
      plan_ = std::move(as_written);
      if (!fewer) return;
    }
  }

  void table() {
    if (!options_.table) return;
    for (const Command& c : plan_.commands) {
      if (c.call()) plan_.table_bytes += options_.table(*c.call());
      if (c.copy() && c.copy()->from != c.copy()->to) plan_.table_bytes += 16;  // from where and to where
      // where five arrays are; and one of them (runtime/call/gate.h)
      if (c.set_gate()) plan_.table_bytes += 48 + 3 * plan_.gates[c.set_gate()->gate].groups.bytes;
    }
  }

  /// What a command has read may be written by the next one only behind a barrier: memory of calls that overlap
  /// otherwise is not shared, unless that takes much.
  void arrange() {
    const std::vector<size_t> ends = overlapping();
    arrange([&](const Storage& s) { return s.last < ends.size() ? ends[s.last] : s.last; });
    const int64_t apart = plan_.arena_bytes;
    if (apart <= kMuch) return;
    arrange([](const Storage& s) { return s.last; });
    if (apart <= plan_.arena_bytes + plan_.arena_bytes / 4)
      arrange([&](const Storage& s) { return s.last < ends.size() ? ends[s.last] : s.last; });
  }
  /// For each command the last one that no barrier keeps behind it, if only what they compute does.
  std::vector<size_t> overlapping() const {
    BarrierRule rule(plan_, false);
    std::vector<size_t> ends(plan_.commands.size());
    size_t start = 0;
    for (size_t i = 0; i < plan_.commands.size(); ++i) {
      const Command& c = plan_.commands[i];
      if (c.sized()) rule.restart();
      if (rule.before(uses_of(graph_, plan_, c)) || c.sized()) start = i;
      for (size_t j = start; j <= i; ++j) ends[j] = i;
      if (i - start > 64) start = i;  // enough that overlaps
    }
    return ends;
  }
  /// Largest first, each at the lowest place that is free while it lives.
  template <class Last>
  void arrange(const Last& last) {
    plan_.arena_bytes = plan_.unshared_bytes = 0;
    std::vector<size_t> order;
    for (size_t i = 0; i < plan_.storages.size(); ++i)
      if (plan_.storages[i].arena() && plan_.storages[i].bytes > 0) order.push_back(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return plan_.storages[a].bytes > plan_.storages[b].bytes; });
    std::vector<std::pair<int64_t, size_t>> placed;  // by offset
    for (size_t i : order) {
      Storage& s = plan_.storages[i];
      int64_t offset = 0;
      const int64_t size = up(s.bytes, kGranule);
      for (const auto& [begin, j] : placed) {
        const Storage& o = plan_.storages[j];
        if (o.first > last(s) || s.first > last(o)) continue;
        if (begin >= offset + size) break;
        offset = std::max(offset, begin + up(o.bytes, kGranule));
      }
      placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                     [](int64_t at, const auto& p) { return at < p.first; }),
                    {offset, i});
      s.where = Storage::Arena{offset};
      plan_.arena_bytes = std::max(plan_.arena_bytes, offset + size);
      plan_.unshared_bytes += size;
    }
  }

  const Graph& graph_;
  const PlanOptions& options_;
  GraphPlan plan_;
  std::vector<Place> places_;                 // of each value, where the walk is
  std::vector<std::optional<Place>> wanted_;  // where a value's reader wants it
  std::vector<Node>* nodes_ = nullptr;        // that are being made
  std::optional<GraphPlan::Guard> guard_;     // of the commands that are being made
  std::map<size_t, const Array*> constant_;   // by value
  std::map<size_t, size_t> result_;           // by storage that an input or an output is: that value
  size_t num_outputs_ = 0;
  size_t alone_ = kForever;  // the command after one that stands alone
};

}  // namespace

GraphPlan plan(const Graph& graph, const PlanOptions& options) { return Planner(graph, options).run(); }

int64_t GraphPlan::peak_bytes() const {
  return bytes<Storage::Input>() + bytes<Storage::Constant>() + bytes<Storage::Output>() +
         frames * (arena_bytes + table_bytes);
}

bool GraphPlan::recorded(const Node& n) const {
  if (n.commands()) return !commands[n.begin].sized();
  return n.loop() && n.loop()->recorded();
}
void GraphPlan::expand(const Node& n, std::vector<size_t>& sequence) const {
  if (const Node::Commands* c = n.commands())
    for (size_t i = n.begin; i < c->end; ++i) sequence.push_back(i);
  if (const Node::While* loop = n.loop()) expand_iterations(*loop, loop->iterations, sequence);
}
void GraphPlan::expand_iterations(const Node::While& loop, int64_t iterations, std::vector<size_t>& sequence) const {
  for (int64_t i = 0; i < iterations; ++i) {
    for (const Node& inner : loop.test) expand(inner, sequence);
    for (const Node& inner : loop.body) expand(inner, sequence);
  }
}

std::string explain(const Graph& g, const GraphPlan& p) {
  std::string text = "graph: ";
  size_t calls = 0, copies = 0;
  for (const Command& c : p.commands) {
    calls += c.call() != nullptr;
    copies += c.copy() != nullptr;
  }
  text += plural(calls, "call") + " of " + plural(g.kernels.size(), "kernel") + ", " + std::to_string(copies) +
          (copies == 1 ? " copy" : " copies") + "; " + std::to_string(p.dropped) +
          " dropped, since their results are unused\n";
  const auto decided = [&](const auto& self, const std::vector<Node>& nodes) -> size_t {
    size_t n = 0;
    for (const Node& node : nodes) {
      n += std::holds_alternative<Node::Switch>(node.what) || (node.loop() && !node.loop()->recorded());
      for_each_body(node, [&](const std::vector<Node>& body) { n += self(self, body); });
    }
    return n;
  };
  size_t waits = decided(decided, p.nodes);
  for (const Command& c : p.commands) waits += c.sized();
  text += "waits for the device: " +
          (waits ? "at " + plural(waits, "place") + ", where a value decides what is run" : std::string("none")) + "\n";
  if (!p.gates.empty()) text += "decided on the device: at " + plural(p.gates.size(), "place") + "\n";
  text += "barriers: " + std::to_string(p.barriers) +
          (p.barriers < p.barriers_as_written
               ? " (" + std::to_string(p.barriers_as_written) + " in the order of the program)"
               : "") +
          "\n";
  auto line = [&](const char* what, int64_t n) {
    text += std::string("  ") + what + ": " + std::to_string(n) + " bytes\n";
  };
  text += "peak memory: " + std::to_string(p.peak_bytes()) + " bytes" +
          (p.frames > 1 ? ", with " + std::to_string(p.frames) + " calls in flight" : "") + "\n";
  line("arguments", p.bytes<Storage::Input>());
  line("constants", p.bytes<Storage::Constant>());
  line("results", p.bytes<Storage::Output>());
  const std::string each = p.frames > 1 ? " each" : "";
  text += "  intermediate values and scratch: " + std::to_string(p.arena_bytes) + " bytes" + each + " (" +
          std::to_string(p.unshared_bytes) + " without sharing)\n";
  if (p.table_bytes > 0)
    text += "  where the calls' arguments are: " + std::to_string(p.table_bytes) + " bytes" + each + "\n";
  return text;
}

}  // namespace tessera
