#include "engine/graph/fuse.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/graph/dce.h"
#include "engine/graph/pointwise.h"
#include "engine/ir/builder.h"
#include "engine/ir/copy.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"

namespace tessera {
namespace {

using fusion::Fusion, fusion::Plain;
using ir::Op, ir::OpId, ir::Opcode, ir::Value;
using Step = Graph::Step;

constexpr size_t kOps = 128, kInputs = 24;  // of one kernel: compilers take time

/// One element of the result is computed from one element of each operand, or from none.
bool by_element(const ir::Kernel& k, const Plain& p) {
  return std::all_of(p.ops.begin(), p.ops.end(), [&](OpId o) {
    const Opcode c = k.op(o).code;
    return ir::is_elementwise(c) || ir::is_move(c) || ir::family(c) == ir::Family::source;
  });
}
bool computes(const ir::Kernel& k, const Plain& p) {
  return std::any_of(p.ops.begin(), p.ops.end(), [&](OpId o) { return ir::is_elementwise(k.op(o).code); });
}

/// Whether the consumer reads each element of those inputs no more than once, so that what makes them may stand in the
/// place of their loads.
bool reads_once(const ir::Kernel& k, const Plain& p, const std::set<size_t>& inputs, bool cheap, bool whole_line) {
  std::set<Value> from;
  for (const auto& [v, i] : p.loads)
    if (inputs.contains(i)) from.insert(v);
  // Asked for twice, and not for the same element: it would be computed twice, and four times after the next such step.
  const std::set<Value> first = from;
  std::map<Value, std::pair<int, bool>> asked;  // how often, and whether elsewhere; all of `first` is one array
  const auto ask = [&](Value v, bool elsewhere) {
    if (!from.contains(v)) return;
    auto& [times, other] = asked[first.contains(v) ? *first.begin() : v];
    ++times;
    other |= elsewhere;
  };
  int reductions = 0;
  for (OpId o : p.ops) {
    const Op& op = k.op(o);
    for (Value v : op.operands) ask(v, !ir::is_elementwise(op.code));
    if (std::none_of(op.operands.begin(), op.operands.end(), [&](Value v) { return from.contains(v); })) {
      if (whole_line && !ir::is_elementwise(op.code) && op.code != Opcode::broadcast && op.code != Opcode::constant)
        return false;
      continue;
    }
    if (whole_line && !ir::is_elementwise(op.code)) return false;
    if (ir::is_elementwise(op.code) || ir::is_move(op.code)) {
      const int64_t n = num_elements(k.type(op.operands[0]).shape);
      if (op.code == Opcode::broadcast && !cheap && n > 1 && num_elements(k.type(op.results[0]).shape) > n)
        return false;
      from.insert(op.results[0]);
    } else if (ir::is_reduce(op.code)) {
      if (++reductions > 1) return false;
    } else {
      return false;
    }
  }
  for (Value v : p.stored) ask(v, false);
  return std::none_of(asked.begin(), asked.end(), [](const auto& a) { return a.second.first > 1 && a.second.second; });
}

/// Two kernels on whole arrays as one, which has the consumer's outputs.
std::optional<Fusion> compose(const ir::Kernel& producer, const std::vector<size_t>& producer_arguments,
                              const ir::Kernel& consumer, const std::vector<size_t>& consumer_arguments, size_t value) {
  const auto p = fusion::plain(producer), c = fusion::plain(consumer);
  if (!p || !c || p->stored.size() != 1 || p->ops.size() + c->ops.size() > kOps) return {};
  std::set<size_t> at;
  for (size_t i = 0; i < consumer_arguments.size(); ++i)
    if (consumer_arguments[i] == value) at.insert(i);
  const bool light = by_element(producer, *p);
  if (!reads_once(consumer, *c, at, light && !computes(producer, *p), !light)) return {};

  ir::Kernel k;
  k.name = fusion::joined(producer.name, consumer.name);
  k.loc = consumer.loc;
  Fusion f;
  const auto input = [&](size_t v, const ir::BlockMapping& b) {
    const auto known = std::find(f.arguments.begin(), f.arguments.end(), v);
    if (known != f.arguments.end()) return static_cast<size_t>(known - f.arguments.begin());
    f.arguments.push_back(v);
    k.blocks.push_back(b);
    return f.arguments.size() - 1;
  };
  std::vector<size_t> producer_inputs, consumer_inputs;
  for (size_t i = 0; i < producer_arguments.size(); ++i)
    producer_inputs.push_back(input(producer_arguments[i], producer.blocks[i]));
  for (size_t i = 0; i < consumer_arguments.size(); ++i)
    consumer_inputs.push_back(at.contains(i) ? SIZE_MAX : input(consumer_arguments[i], consumer.blocks[i]));
  if (f.arguments.size() > kInputs) return {};
  k.num_inputs = static_cast<int>(f.arguments.size());
  k.blocks.insert(k.blocks.end(), consumer.blocks.begin() + consumer.num_inputs, consumer.blocks.end());
  std::vector<ir::Type> args;
  for (size_t i = 0; i < k.blocks.size(); ++i) {
    k.blocks[i].origin = k.usual_origin(static_cast<int>(i));
    args.push_back(k.block_ref_type(static_cast<int>(i)));
  }
  ir::Builder b(k);
  b.set_loc(k.loc);
  k.body = b.new_region(args);
  b.set_region(k.body);
  const auto whole = [](const ir::Type& t) {
    std::vector<ir::Index> index;
    for (int64_t n : t.shape) index.push_back(ir::Index::all(n));
    return index;
  };
  std::vector<Value> loaded;
  for (size_t i = 0; i < f.arguments.size(); ++i)
    loaded.push_back(b.one({.code = Opcode::load, .operands = {b.arg(k.body, i)}, .index = whole(args[i])}));
  ir::Copier first(producer, k), second(consumer, k);
  for (const auto& [v, i] : p->loads) first.map(v, loaded[producer_inputs[i]]);
  for (OpId o : p->ops) first.copy(o, k.body);
  const Value between = first(p->stored[0]);
  for (const auto& [v, i] : c->loads) second.map(v, at.contains(i) ? between : loaded[consumer_inputs[i]]);
  for (OpId o : c->ops) second.copy(o, k.body);
  for (size_t i = 0; i < c->stored.size(); ++i)
    b.append({.code = Opcode::store,
              .operands = {b.arg(k.body, f.arguments.size() + i), second(c->stored[i])},
              .index = whole(args[f.arguments.size() + i])});
  b.yield({});
  // An array read both where it is computed with and at other places has no layout that suits both, so that such a
  // kernel is split badly.
  for (Value v : loaded) {
    bool here = false, elsewhere = false;
    for (OpId o : k.region(k.body).ops) {
      const Op& op = k.op(o);
      if (std::find(op.operands.begin(), op.operands.end(), v) == op.operands.end()) continue;
      (ir::is_move(op.code) && op.code != Opcode::broadcast ? elsewhere : here) = true;
    }
    if (here && elsewhere) return {};
  }
  ir::verify(k, "fusing");
  f.kernel = std::move(k);
  return f;
}

class Fuser {
 public:
  explicit Fuser(const Graph& g) : g_(g) {
    g_.dropped += dead_code_elimination(g_, g_.body);  // an unused step would count as one that reads
    for (size_t i = 0; i < g_.kernels.size(); ++i) kernels_.emplace(text_of(g_.kernels[i]), i);
    count(g_.body, 1);
  }
  Fused run() {
    body(g_.body);
    drop_kernels();
    return {std::move(g_), steps_};
  }

 private:
  void count(const Graph::Body& b, int n) {
    for (const Step& s : b.steps) {
      count(s, n);
      for (const Graph::Body* inner : s.bodies()) count(*inner, n);
    }
    for (size_t v : b.outputs) uses_[v] += n;
  }
  void count(const Step& s, int n) {
    for (size_t v : s.arguments) uses_[v] += n;
    if (const Step::Call* call = s.call())
      for (const auto& [name, v] : call->sizes) uses_[v] += n;
  }

  void body(Graph::Body& b) {
    for (Step& s : b.steps)
      for (Graph::Body* inner : s.bodies()) body(*inner);
    std::map<size_t, size_t> made_by;
    std::vector<bool> gone(b.steps.size());
    for (size_t c = 0; c < b.steps.size(); ++c) {
      while (b.steps[c].call() && into(b, c, made_by, gone)) ++steps_;
      for (size_t v : b.steps[c].results) made_by[v] = c;
    }
    std::vector<Step> kept;
    for (size_t i = 0; i < b.steps.size(); ++i)
      if (!gone[i]) kept.push_back(std::move(b.steps[i]));
    b.steps = std::move(kept);
  }

  /// One producer of the step's arguments becomes part of it.
  bool into(Graph::Body& b, size_t at, const std::map<size_t, size_t>& made_by, std::vector<bool>& gone) {
    Step& c = b.steps[at];
    if (!c.call()->sizes.empty()) return false;
    for (size_t value : c.arguments) {
      const auto found = made_by.find(value);
      if (found == made_by.end() || gone[found->second] ||
          uses_[value] != std::count(c.arguments.begin(), c.arguments.end(), value))
        continue;
      Step& p = b.steps[found->second];
      if (!p.call() || !p.call()->sizes.empty()) continue;
      const ir::Kernel &producer = g_.kernels[p.call()->kernel], &consumer = g_.kernels[c.call()->kernel];
      // A kernel that is debugged is not fused, so that it is shown as written; nor are two calls with parameters of
      // their own (engine/base/call_info.h), which would not hold for both parts.
      if (producer.call.debug || consumer.call.debug || producer.has_threads() || consumer.has_threads() ||
          (says_something(producer.call) && says_something(consumer.call)))
        continue;
      std::optional<Fusion> f;
      std::vector<size_t> results = c.results;
      if (p.results.size() == 1) {
        f = compose(producer, p.arguments, consumer, c.arguments, value);
        if (!f && light(producer) && !fusion::plain(consumer))
          f = fusion::into_loads(producer, p.arguments, consumer, c.arguments, value);
      }
      if (!f && light(consumer) && c.results.size() == 1 && !fusion::plain(producer) &&
          unseen(b, found->second, at, value)) {
        const auto output =
            static_cast<size_t>(std::find(p.results.begin(), p.results.end(), value) - p.results.begin());
        f = fusion::into_stores(producer, p.arguments, output, value, consumer, c.arguments);
        if (f) {
          results = p.results;
          results[output] = c.results[0];
        }
      }
      if (!f || f->arguments.size() > kInputs || f->kernel.ops.size() > 16 * kOps) continue;
      f->kernel.call = says_something(producer.call) ? producer.call : consumer.call;
      count(p, -1);
      count(c, -1);
      c.arguments = std::move(f->arguments);
      c.results = std::move(results);
      count(c, 1);
      const auto [it, fresh] = kernels_.emplace(text_of(f->kernel), g_.kernels.size());
      if (fresh) g_.kernels.push_back(std::move(f->kernel));
      c.call()->kernel = it->second;
      gone[found->second] = true;
      return true;
    }
    return false;
  }
  /// Kernels of one text are one; where it checks or prints, it says at which line.
  static std::string text_of(const ir::Kernel& k) { return ir::print(k, !k.texts.empty()); }
  static bool says_something(const ir::CallInfo& c) {
    return !c.metadata.empty() || c.cost_estimate || !c.compiler_params.empty();
  }
  static bool light(const ir::Kernel& k) {
    const auto p = fusion::plain(k);
    return p && by_element(k, *p);
  }
  /// Neither the second step nor one between needs another result of the first, which then runs when the second one
  /// did.
  bool unseen(const Graph::Body& b, size_t from, size_t to, size_t value) const {
    Step p = b.steps[from];
    if (p.results.size() == 1) return true;
    std::erase(p.results, value);
    if (uses(b.steps[to], p)) return false;
    const auto sees = [&](auto& self, const Graph::Body& inner) -> bool {
      return std::any_of(inner.steps.begin(), inner.steps.end(),
                         [&](const Step& s) {
                           const auto bodies = s.bodies();
                           return uses(s, p) || std::any_of(bodies.begin(), bodies.end(),
                                                            [&](const Graph::Body* x) { return self(self, *x); });
                         }) ||
             std::any_of(inner.outputs.begin(), inner.outputs.end(),
                         [&](size_t v) { return std::find(p.results.begin(), p.results.end(), v) != p.results.end(); });
    };
    for (size_t i = from + 1; i < to; ++i) {
      if (uses(b.steps[i], p)) return false;
      for (const Graph::Body* inner : b.steps[i].bodies())
        if (sees(sees, *inner)) return false;
    }
    return true;
  }
  static bool uses(const Step& s, const Step& p) {
    const auto is = [&](size_t v) { return std::find(p.results.begin(), p.results.end(), v) != p.results.end(); };
    if (std::any_of(s.arguments.begin(), s.arguments.end(), is)) return true;
    const Step::Call* c = s.call();
    return c && std::any_of(c->sizes.begin(), c->sizes.end(), [&](const auto& x) { return is(x.second); });
  }

  void drop_kernels() {
    std::vector<size_t> to(g_.kernels.size(), SIZE_MAX);
    std::vector<ir::Kernel> kept;
    const auto walk = [&](auto& self, Graph::Body& b) -> void {
      for (Step& s : b.steps) {
        if (Step::Call* c = s.call()) {
          if (to[c->kernel] == SIZE_MAX) {
            to[c->kernel] = kept.size();
            kept.push_back(std::move(g_.kernels[c->kernel]));
          }
          c->kernel = to[c->kernel];
        }
        for (Graph::Body* inner : s.bodies()) self(self, *inner);
      }
    };
    walk(walk, g_.body);
    g_.kernels = std::move(kept);
  }

  Graph g_;
  std::map<size_t, int64_t> uses_;
  std::map<std::string, size_t> kernels_;  // by text
  size_t steps_ = 0;
};

}  // namespace

Fused fuse(const Graph& graph) { return Fuser(graph).run(); }

}  // namespace tessera
