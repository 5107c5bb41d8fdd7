#include "engine/call/jit_graph.h"

#include <algorithm>
#include <set>

#include "engine/graph/pointwise.h"
#include "engine/graph/sizes.h"
#include "engine/ir/copy.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/ir/walk.h"

namespace tessera {
namespace {
using ir::Op, ir::OpId, ir::Opcode, ir::RegionId, ir::Type;
using Step = Graph::Step;
using Body = Graph::Body;

constexpr int64_t kSmall = 1024;          // elements of what a loop inside of one kernel may handle
constexpr int64_t kConstantBytes = 4096;  // larger ones are computed rather than kept

bool loops_or_branches(Opcode c) { return ir::is_loop(c) || ir::is_branch(c); }

class Lowering {
 public:
  Lowering(const ir::Kernel& k, const CallRecord& record, const DimValues& numbers)
      : k_(k), record_(record), numbers_(numbers) {}

  Graph run(const std::vector<Graph::Type>& inputs) {
    g_.name = k_.name;
    g_.loc = k_.loc;
    const std::vector<ir::Value>& args = k_.region(k_.body).args;
    for (size_t i = 0; i < args.size(); ++i) g_.body.inputs.push_back(define(args[i], inputs[i]));
    if (!numbers_.empty())
      ir::each_op(k_, k_.body, [&](OpId o) {
        const std::vector<ir::Value>& all = k_.op(o).operands;
        for (const ir::Value v : std::set<ir::Value>(all.begin(), all.end())) users_[v].push_back(o);
      });
    region(k_.body, g_.body);
    g_.body.steps.insert(g_.body.steps.begin(), std::make_move_iterator(first_.begin()),
                         std::make_move_iterator(first_.end()));
    return std::move(g_);
  }

 private:
  [[noreturn]] void fail(const Op& op, const std::string& what, const std::string& note) const {
    throw TraceError(k_.name + ": " + std::string(ir::name(op.code)) + ": " + what, op.loc, note);
  }
  size_t fresh(const Type& t) {
    g_.values.push_back({t.dtype, t.shape});
    return g_.values.size() - 1;
  }
  size_t define(ir::Value v) { return at_[v] = fresh(k_.type(v)); }
  size_t define(ir::Value v, const Graph::Type& t) {
    g_.values.push_back(t);
    return at_[v] = g_.values.size() - 1;
  }
  std::vector<Graph::Type> types(const std::vector<size_t>& values) const {
    std::vector<Graph::Type> t;
    for (const size_t v : values) t.push_back(g_.values[v]);
    return t;
  }
  bool is_record(OpId o) const { return record_.calls.contains(o.index) || record_.arrays.contains(o.index); }

  /// Ops that need nothing but constants: they are copied to wherever they are used.
  bool is_free(ir::Value v) const {
    const ir::ValueInfo& info = k_.value(v);
    if (!info.def || is_record(info.def)) return false;
    const Op& op = k_.op(info.def);
    if (ir::family(op.code) == ir::Family::source) return true;
    return op.code == Opcode::broadcast && is_free(op.operands[0]);
  }

  // -- arrays of run-time sizes

  /// What may be computed by blocks, if its operands can: fusion::by_blocks() refuses some.
  static bool pointwise(Opcode c) {
    return ir::is_elementwise(c) || c == Opcode::broadcast || c == Opcode::transpose || c == Opcode::reshape;
  }
  bool is_deferred(ir::Value v) const { return deferred_.contains(v) && !at_.contains(v); }
  bool sized(ir::Value v) const {
    const auto it = at_.find(v);
    return (is_deferred(v) && uses_sized(k_.value(v).def)) ||
           (it != at_.end() && !g_.values[it->second].extents.empty());
  }
  bool uses_sized(OpId o) const {
    if (numbers_.empty()) return false;
    std::set<ir::Value> made;
    std::vector<ir::Value> used;
    uses(o, made, used);
    return std::any_of(used.begin(), used.end(), [&](ir::Value v) { return sized(v); });
  }
  /// An op whose value one other such op of the region uses is computed where that is; so is a broadcast of something
  /// of a fixed size, for all its uses.
  bool defer(OpId o, RegionId r) {
    const Op& op = k_.op(o);
    if (numbers_.empty() || !pointwise(op.code) || is_record(o) || op.results.size() != 1) return false;
    const auto here = [&](OpId user) {
      const std::vector<OpId>& ops = k_.region(r).ops;
      return std::find(ops.begin(), ops.end(), user) != ops.end();
    };
    const auto it = users_.find(op.results[0]);
    if (it == users_.end()) return false;
    for (const OpId user : it->second)
      if (!pointwise(k_.op(user).code) || is_record(user)) return false;
    if (uses_sized(o) ? it->second.size() > 1 || !here(it->second[0]) : op.code != Opcode::broadcast) return false;
    return deferred_.insert(op.results[0]).second;
  }
  /// The values that the op needs, where deferred ops become a part of it: those in the order in which they run.
  void leaves(OpId o, std::vector<ir::Value>& used, std::vector<OpId>& parts) const {
    std::set<ir::Value> made;
    std::vector<ir::Value> mine;
    uses(o, made, mine);
    for (const ir::Value v : mine) {
      if (is_deferred(v)) leaves(k_.value(v).def, used, parts);
      else if (std::find(used.begin(), used.end(), v) == used.end()) used.push_back(v);
    }
    parts.push_back(o);
  }
  /// A call of the kernel by blocks. The values are `inputs`, which are in the graph.
  bool sized_step(const ir::Kernel& whole, const std::vector<ir::Value>& inputs, ir::Value result, Body& b) {
    std::vector<std::vector<Extent>> dims;
    for (const ir::Value v : inputs) dims.push_back(g_.values[at_.at(v)].dims());
    std::optional<fusion::Fusion> f = fusion::by_blocks(whole, dims);
    if (!f) return false;
    Step s{.what = Step::Call{}};
    for (const size_t i : f->arguments) s.arguments.push_back(at_.at(inputs[i]));
    const NamedExtents sizes = kernel_sizes(f->kernel, types(s.arguments));
    s.results = {define(result, argument_type(f->kernel, s.arguments.size(), sizes, numbers_))};
    s.what = Step::Call{.kernel = kernel(std::move(f->kernel))};
    b.steps.push_back(std::move(s));
    return true;
  }

  /// Everything that a region uses and does not make itself.
  void uses(OpId o, std::set<ir::Value>& made, std::vector<ir::Value>& used) const {
    ir::each_op_from(k_, o, [&](OpId id) {
      const Op& op = k_.op(id);
      for (ir::Value v : op.operands)
        if (!made.contains(v) && std::find(used.begin(), used.end(), v) == used.end()) used.push_back(v);
      for (RegionId r : op.regions) made.insert(k_.region(r).args.begin(), k_.region(r).args.end());
      made.insert(op.results.begin(), op.results.end());
    });
  }
  bool calls(const Op& op) const {
    return ir::any_op_inside(k_, op, [&](OpId o) { return is_record(o); });
  }
  bool is_large(ir::Value v) const { return !k_.type(v).is_ref && num_elements(k_.type(v).shape) > kSmall; }
  bool large(const Op& op) const {
    if (std::any_of(op.results.begin(), op.results.end(), [&](ir::Value v) { return is_large(v); })) return true;
    return ir::any_op_inside(k_, op, [&](OpId o) {
      const Op& inner = k_.op(o);
      const auto big = [&](ir::Value v) { return is_large(v); };
      return std::any_of(inner.operands.begin(), inner.operands.end(), big) ||
             std::any_of(inner.results.begin(), inner.results.end(), big);
    });
  }

  // -- kernels

  size_t kernel(ir::Kernel k) {
    k.put_values_in_memory();  // a graph's values are
    ir::verify(k, "jit");
    // a check says where it stands
    const auto [it, fresh] = kernels_.emplace(ir::print(k, !k.texts.empty()), g_.kernels.size());
    if (fresh) g_.kernels.push_back(std::move(k));
    return it->second;
  }
  static ir::BlockMapping whole(const std::string& origin, const Type& t, Loc loc) {
    ir::BlockMapping b;
    b.origin = origin;
    b.dtype = t.dtype;
    b.array_shape.assign(t.shape.begin(), t.shape.end());
    b.whole = true;
    b.loc = loc;
    return b;
  }
  void copy_free(ir::Copier& copier, ir::Value v, RegionId into) const {
    if (copier.knows(v)) return;
    for (ir::Value operand : k_.op(k_.value(v).def).operands) copy_free(copier, operand, into);
    copier.copy(k_.value(v).def, into);
  }

  /// A call of a kernel on whole arrays that computes `outputs`, by the op or, without one, by what needs only
  /// constants.
  void step(const std::string& name, std::optional<OpId> o, const std::vector<ir::Value>& outputs, Body& b,
            std::vector<Step>* first = nullptr) {
    std::vector<ir::Value> used, inputs, frees;
    std::vector<OpId> parts;
    if (o) leaves(*o, used, parts);
    else used = outputs;
    for (ir::Value v : used) (is_free(v) ? frees : inputs).push_back(v);
    const Loc loc = k_.op(o ? *o : k_.value(outputs[0]).def).loc;
    ir::Kernel k;
    k.name = name;
    for (size_t i = parts.size(); i-- > 1;)
      if (const Opcode c = k_.op(parts[i - 1]).code; c != Opcode::broadcast)
        k.name = fusion::joined(std::string(ir::name(c)), k.name);
    k.loc = loc;
    std::vector<Type> args;
    Step s{.what = Step::Call{}};
    for (ir::Value v : inputs) {
      k.blocks.push_back(whole("in_specs[" + std::to_string(s.arguments.size()) + "]", k_.type(v), loc));
      s.arguments.push_back(at_.at(v));
    }
    k.num_inputs = static_cast<int>(inputs.size());
    for (size_t i = 0; i < outputs.size(); ++i)
      k.blocks.push_back(whole("out_specs[" + std::to_string(i) + "]", k_.type(outputs[i]), loc));
    for (size_t i = 0; i < k.blocks.size(); ++i) args.push_back(k.block_ref_type(static_cast<int>(i)));
    ir::Builder builder(k);
    builder.set_loc(loc);
    k.body = builder.new_region(args);
    builder.set_region(k.body);
    ir::Copier copier(k_, k);
    const auto index = [&](const Type& t) {
      std::vector<ir::Index> all;
      for (int64_t n : t.shape) all.push_back(ir::Index::all(n));
      return all;
    };
    for (size_t i = 0; i < inputs.size(); ++i)
      copier.map(inputs[i],
                 builder.one({.code = Opcode::load, .operands = {builder.arg(k.body, i)}, .index = index(args[i])}));
    for (ir::Value v : frees) copy_free(copier, v, k.body);
    for (const OpId part : parts) copier.copy(part, k.body);
    if (o) texts(k);
    for (size_t i = 0; i < outputs.size(); ++i)
      builder.append({.code = Opcode::store,
                      .operands = {builder.arg(k.body, inputs.size() + i), copier(outputs[i])},
                      .index = index(args[inputs.size() + i])});
    builder.yield({});
    const auto of_any_size = std::find_if(inputs.begin(), inputs.end(), [&](ir::Value v) { return sized(v); });
    if (of_any_size != inputs.end()) {
      if (outputs.size() == 1 && sized_step(k, inputs, outputs[0], b)) return;
      if (std::any_of(parts.begin(), parts.end() - 1, [&](OpId part) { return uses_sized(part); }))
        return step_alone(parts, b);
      fail(k_.op(*o), "an operand is " + to_string(g_.values[at_.at(*of_any_size)]) + ", with a size of run time",
           "outside of kernels, such values go through element-wise ops, broadcasts and transposes alone: write it as "
           "a pallas_call, or inside of one");
    }
    s.what = Step::Call{.kernel = kernel(std::move(k))};
    for (ir::Value v : outputs) s.results.push_back(define(v));
    (first ? *first : b.steps).push_back(std::move(s));
  }
  /// Ops that are no one kernel, a kernel each.
  void step_alone(const std::vector<OpId>& parts, Body& b) {
    for (const OpId o : parts)
      if (k_.op(o).code != Opcode::broadcast || uses_sized(o))
        for (const ir::Value v : k_.op(o).results) deferred_.erase(v);
    for (const OpId o : parts)
      if (!is_deferred(k_.op(o).results[0])) step(std::string(ir::name(k_.op(o).code)), o, k_.op(o).results, b);
  }
  /// Texts of debug_print and check, which the ops name by position.
  void texts(ir::Kernel& k) const {
    for (Op& op : k.ops) {
      if (!op.has(ir::Attr::text)) continue;
      const std::string& text = k_.texts.at(static_cast<size_t>(op.attr(ir::Attr::text)));
      const auto known = std::find(k.texts.begin(), k.texts.end(), text);
      op.set(ir::Attr::text, known - k.texts.begin());
      if (known == k.texts.end()) k.texts.push_back(text);
    }
  }
  /// The value's position in the graph; what needs only constants becomes one now.
  size_t value(ir::Value v) {
    if (const auto it = at_.find(v); it != at_.end()) return it->second;
    const Op& op = k_.op(k_.value(v).def);
    const Type& t = k_.type(v);
    if (op.code == Opcode::constant && num_elements(t.shape) * size_bytes(t.dtype) <= kConstantBytes) {
      Array a(t.shape, t.dtype);
      for (int64_t i = 0; i < a.size(); ++i) a.set_element_bits(i, static_cast<uint64_t>(op.attr(ir::Attr::bits)));
      g_.constants.emplace_back(define(v), std::move(a));
    } else {
      step(std::string(ir::name(op.code)), std::nullopt, {v}, g_.body, &first_);  // once, whichever body asks first
    }
    return at_.at(v);
  }
  std::vector<size_t> values(const std::vector<ir::Value>& list, size_t from = 0) {
    std::vector<size_t> v;
    for (size_t i = from; i < list.size(); ++i) v.push_back(value(list[i]));
    return v;
  }

  // -- steps

  void region(RegionId r, Body& b) {
    for (OpId o : k_.region(r).ops) {
      const Op& op = k_.op(o);
      if (const auto c = record_.calls.find(o.index); c != record_.calls.end()) call(op, c->second, b);
      else if (const auto a = record_.arrays.find(o.index); a != record_.arrays.end())
        g_.constants.emplace_back(define(op.results[0]), a->second);
      else if (op.code == Opcode::yield) b.outputs = values(op.operands);
      else if (!op.regions.empty() && calls(op) && !loops_or_branches(op.code))
        fail(op, "a pallas_call is called inside of it",
             "in jit, kernels are called in loops and branches, and not where memory is scoped");
      else if (loops_or_branches(op.code) && (calls(op) || large(op) || uses_sized(o))) control(op, b);
      else if (defer(o, r)) continue;
      else if (op.results.empty() ||
               std::any_of(op.results.begin(), op.results.end(), [&](ir::Value v) { return !is_free(v); }))
        step(std::string(ir::name(op.code)), o, op.results, b);
    }
  }
  void call(const Op& op, const CallRecord::Call& c, Body& b) {
    std::vector<size_t> arguments = values(op.operands);
    Step::Call one;
    for (const auto& [name, v] : c.sizes) one.sizes.emplace_back(name, value(v));
    one.kernel = kernel(*c.kernel);
    const std::vector<Graph::Type> given = types(arguments);
    Step s{.what = std::move(one), .arguments = std::move(arguments)};
    if (any_sized(given)) {
      const NamedExtents sizes = kernel_sizes(*c.kernel, given);
      for (size_t i = 0; i < op.results.size(); ++i)
        s.results.push_back(define(op.results[i], argument_type(*c.kernel, given.size() + i, sizes, numbers_)));
    } else {
      for (ir::Value v : op.results) s.results.push_back(define(v));
    }
    b.steps.push_back(std::move(s));
  }

  /// The second operand of a scalar_step: none, a constant, or a value.
  struct Constant {
    int64_t value;
  };
  using Second = std::variant<std::monostate, Constant, size_t>;
  /// A kernel of one or two scalars that is no op of the trace.
  size_t scalar_step(Opcode code, size_t x, const Second& second, DType result, Loc loc, Body& b) {
    ir::Kernel k;
    k.name = std::string(ir::name(code));
    k.loc = loc;
    std::vector<size_t> arguments{x};
    if (const auto y = std::get_if<size_t>(&second)) arguments.push_back(*y);
    std::vector<Type> args;
    for (size_t v : arguments)
      k.blocks.push_back(
          whole("in_specs[" + std::to_string(k.blocks.size()) + "]", Type::array(g_.values[v].dtype), loc));
    k.num_inputs = static_cast<int>(arguments.size());
    k.blocks.push_back(whole("out_specs[0]", Type::array(result), loc));
    for (size_t i = 0; i < k.blocks.size(); ++i) args.push_back(k.block_ref_type(static_cast<int>(i)));
    ir::Builder builder(k);
    builder.set_loc(loc);
    k.body = builder.new_region(args);
    builder.set_region(k.body);
    std::vector<ir::Value> operands;
    for (size_t i = 0; i < arguments.size(); ++i)
      operands.push_back(builder.one({.code = Opcode::load, .operands = {builder.arg(k.body, i)}}));
    if (const auto c = std::get_if<Constant>(&second))
      operands.push_back(builder.constant_int(g_.values[x].dtype, c->value));
    builder.append({.code = Opcode::store,
                    .operands = {builder.arg(k.body, arguments.size()), builder.elementwise(code, operands, result)}});
    builder.yield({});
    Step s{.what = Step::Call{.kernel = kernel(std::move(k))}, .arguments = arguments};
    s.results = {fresh(Type::array(result))};
    b.steps.push_back(s);
    return s.results[0];
  }

  void control(const Op& op, Body& b) {
    if (op.code == Opcode::for_) for_loop(op, b);
    else if (op.code == Opcode::while_) while_loop(op, b);
    else switch_(op, b);
  }
  /// The body's steps; its arguments from `from` on are the inputs, of these types.
  Body body(RegionId r, size_t from, const std::vector<Graph::Type>& inputs) {
    Body b;
    const std::vector<ir::Value> args = k_.region(r).args;
    for (size_t i = from; i < args.size(); ++i) b.inputs.push_back(define(args[i], inputs[i - from]));
    region(r, b);
    return b;
  }
  /// What one pass of a body leaves is, for every size, what the next one takes, or another branch leaves.
  void agree(const Op& op, const std::vector<size_t>& one, const std::vector<size_t>& other) const {
    for (size_t i = 0; i < one.size(); ++i)
      if (const Graph::Type &a = g_.values[one[i]], &c = g_.values[other[i]]; a != c)
        fail(op, "value " + std::to_string(i) + " is " + to_string(a) + " and " + to_string(c),
             "they have to be of one shape for every value of the sizes");
  }
  /// The results are as these values.
  void finish(Step s, const Op& op, Body& b, const std::vector<size_t>& like) {
    s.loc = op.loc;
    const std::vector<Graph::Type> of = types(like);
    for (size_t i = 0; i < op.results.size(); ++i) s.results.push_back(define(op.results[i], of[i]));
    b.steps.push_back(std::move(s));
  }

  /// What a scalar integer is at most, where it is the smaller of something and a constant.
  std::optional<int64_t> at_most(ir::Value v) const {
    if (const auto c = ir::constant_int(k_, v)) return c;
    if (!k_.value(v).def) return {};
    const Op& op = k_.op(k_.value(v).def);
    if (op.code != Opcode::min || is_record(k_.value(v).def)) return {};
    const auto a = at_most(op.operands[0]), b = at_most(op.operands[1]);
    return a && b ? std::min(*a, *b) : a ? a : b;
  }
  /// Of i = first, first + step, ... below end.
  static int64_t iterations(int64_t first, int64_t end, int64_t step) {
    return end > first ? (end - first + step - 1) / step : 0;
  }

  /// How often a while's body can run, where its test says so: i < n (with others, by and), where i starts from a
  /// constant and every iteration adds one to it, and n is at most a constant.
  std::optional<int64_t> most_iterations(const Op& op) const {
    const ir::Region &test = k_.region(op.regions[0]), &body = k_.region(op.regions[1]);
    std::vector<ir::Value> all{k_.op(test.ops.back()).operands[0]};
    std::optional<int64_t> most;
    for (size_t at = 0; at < all.size(); ++at) {
      if (!k_.value(all[at]).def || is_record(k_.value(all[at]).def)) continue;
      const Op& c = k_.op(k_.value(all[at]).def);
      if (c.code == Opcode::and_) all.insert(all.end(), c.operands.begin(), c.operands.end());
      const bool below = c.code == Opcode::lt || c.code == Opcode::le,
                 above = c.code == Opcode::gt || c.code == Opcode::ge;
      if (!below && !above) continue;
      const ir::Value i = c.operands[above], n = c.operands[below];
      const size_t carry = static_cast<size_t>(std::find(test.args.begin(), test.args.end(), i) - test.args.begin());
      if (carry == test.args.size() || k_.type(i).dtype != DType::i32 || !k_.type(i).shape.empty()) continue;
      const auto first = ir::constant_int(k_, op.operands[carry]), last = at_most(n);
      const ir::Value next = k_.op(body.ops.back()).operands[carry];
      if (!first || !last || !k_.value(next).def || is_record(k_.value(next).def)) continue;
      const Op& sum = k_.op(k_.value(next).def);
      if (sum.code != Opcode::add || (sum.operands[0] != body.args[carry] && sum.operands[1] != body.args[carry]))
        continue;
      const auto step = ir::constant_int(k_, sum.operands[sum.operands[0] == body.args[carry] ? 1 : 0]);
      const int64_t end = *last + (c.code == Opcode::le || c.code == Opcode::ge);
      if (!step || *step < 1 || end - 1 + *step > INT32_MAX) continue;  // it may wrap before it gets there
      const int64_t now = iterations(*first, end, *step);
      most = most ? std::min(*most, now) : now;
    }
    return most;
  }

  void for_loop(const Op& op, Body& b) {
    const RegionId r = op.regions[0];
    const ir::Value i = k_.region(r).args[0];
    const auto constant = [&](size_t at) { return ir::constant_int(k_, op.operands[at]); };
    const auto lower = constant(0), upper = constant(1), step = constant(2);
    bool used = false;
    for (OpId o : k_.region(r).ops) {
      std::set<ir::Value> made;
      std::vector<ir::Value> list;
      uses(o, made, list);
      used |= std::find(list.begin(), list.end(), i) != list.end();
    }
    const bool counted = lower && upper && step;
    const bool carries_i = used || !counted;
    std::vector<size_t> arguments, results;
    if (carries_i) arguments.push_back(value(op.operands[0]));
    const std::vector<size_t> carried = values(op.operands, 3);
    arguments.insert(arguments.end(), carried.begin(), carried.end());
    Second end;
    if (!counted) end = value(op.operands[1]);
    Body inner = body(r, carries_i ? 0 : 1, types(arguments));
    agree(op, carried, inner.outputs);
    if (carries_i)
      inner.outputs.insert(inner.outputs.begin(), scalar_step(Opcode::add, inner.inputs[0], Constant{step.value_or(1)},
                                                              DType::i32, op.loc, inner));
    if (carries_i) results.push_back(fresh(Type::array(DType::i32)));
    const auto add = [&](auto loop) {
      loop.body = std::move(inner);
      finish({.what = std::move(loop), .arguments = std::move(arguments), .results = std::move(results)}, op, b,
             carried);
    };
    if (counted) return add(Step::CountedLoop{.count = iterations(*lower, *upper, *step)});
    Step::While loop;
    if (const auto most = at_most(op.operands[1]); most && lower && step && *step > 0 && *most - 1 + *step <= INT32_MAX)
      loop.at_most = iterations(*lower, *most, *step);
    loop.test.outputs = {scalar_step(Opcode::lt, inner.inputs[0], end, DType::boolean, op.loc, loop.test)};
    add(std::move(loop));
  }
  void while_loop(const Op& op, Body& b) {
    std::vector<size_t> arguments = values(op.operands);
    Body inner;
    const auto test_args = k_.region(op.regions[0]).args, body_args = k_.region(op.regions[1]).args;
    for (size_t i = 0; i < body_args.size(); ++i)
      inner.inputs.push_back(at_[test_args[i]] = define(body_args[i], Graph::Type(g_.values[arguments[i]])));
    Body test;
    region(op.regions[0], test);
    region(op.regions[1], inner);
    agree(op, arguments, inner.outputs);
    const std::vector<size_t> like = arguments;
    finish({.what = Step::While{std::move(inner), std::move(test), most_iterations(op)},
            .arguments = std::move(arguments)},
           op, b, like);
  }
  void switch_(const Op& op, Body& b) {
    const size_t selector = value(op.operands[0]);
    const bool is_if = op.code == Opcode::if_;
    const size_t index = is_if ? scalar_step(Opcode::convert, selector, {}, DType::i32, op.loc, b) : selector;
    std::vector<RegionId> regions = op.regions;
    if (is_if) std::reverse(regions.begin(), regions.end());  // false is 0
    Step::Switch choice;
    for (RegionId r : regions) choice.branches.push_back(body(r, 0, {}));
    for (const Body& branch : choice.branches) agree(op, choice.branches[0].outputs, branch.outputs);
    const std::vector<size_t> like = choice.branches[0].outputs;
    finish({.what = std::move(choice), .arguments = {index}}, op, b, like);
  }

  const ir::Kernel& k_;
  const CallRecord& record_;
  const DimValues& numbers_;
  Graph g_;
  std::map<ir::Value, size_t> at_;
  std::map<std::string, size_t> kernels_;  // by text
  std::vector<Step> first_;                // before all others
  // of graphs with run-time sizes
  std::map<ir::Value, std::vector<OpId>> users_;
  std::set<ir::Value> deferred_;  // computed where they are used, unless they are in the graph
};

}  // namespace

Graph graph_of(const ir::Kernel& traced, const CallRecord& record, const std::vector<Graph::Type>& inputs,
               const DimValues& numbers) {
  return Lowering(traced, record, numbers).run(inputs);
}

}  // namespace tessera
