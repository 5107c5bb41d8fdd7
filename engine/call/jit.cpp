#include "engine/call/jit.h"

#include <algorithm>
#include <mutex>

#include "engine/base/plural.h"
#include "engine/call/jit_graph.h"
#include "engine/front/ops.h"
#include "engine/front/trace.h"
#include "engine/graph/sizes.h"
#include "engine/graph/write.h"
#include "engine/interpreter/interpreter.h"

namespace tessera {
namespace {

/// An op that stands for something of the record, with such results.
ir::OpId stand_in(Emit& e, std::vector<ir::Value> operands, const std::vector<ir::Type>& results) {
  ir::Kernel& k = e.trace().kernel();
  const ir::OpId id{static_cast<uint32_t>(k.ops.size())};
  ir::Op op{.code = ir::Opcode::semaphore_read, .operands = std::move(operands), .loc = e.loc()};
  for (const ir::Type& t : results) {
    op.results.push_back({static_cast<uint32_t>(k.values.size())});
    k.values.push_back({t, id, {}, static_cast<uint32_t>(op.results.size() - 1)});
  }
  k.ops.push_back(std::move(op));
  k.region(e.builder().region()).ops.push_back(id);
  return id;
}

std::vector<Extent> extents(const Shape& s) { return {s.begin(), s.end()}; }
}  // namespace

// -- what stands in a jit

Results::operator Value() const {
  if (values_.size() != 1)
    throw TraceError(name_ + ": the call has " + std::to_string(values_.size()) + " outputs, not one", {},
                     "take them by index");
  return values_[0];
}
const Value& Results::operator[](size_t i) const {
  if (i >= values_.size())
    throw TraceError(name_ + ": output " + std::to_string(i) + " of a call that has " + std::to_string(values_.size()));
  return values_[i];
}
Operand::Operand(const Results& one, Loc l) : value_(static_cast<Value>(one)), loc_(l) {}

Results PallasCall::in_graph(const std::vector<Operand>& arguments, const GridSizes& grid, Loc loc) const {
  Emit e(name(), loc);
  Trace& t = e.trace();
  if (!t.calls()) e.fail("a pallas_call is called inside of a kernel", "call it inside of jit, or with arrays");
  std::vector<Value> values;
  std::vector<ShapeDtype> types;
  for (const Operand& o : arguments) {
    const auto by_value = value_dtype(values.size());
    values.push_back(e.wrap(o.number() && by_value ? e.as(o, *by_value) : e.as_is(o)));
    types.push_back({extents(values.back().shape()), values.back().dtype()});
  }
  auto kernel = std::make_shared<const ir::Kernel>(trace(types));
  const auto how = spreads(types);
  CallRecord::Call call{kernel, {}};
  std::vector<ir::Value> operands;
  std::vector<std::pair<DType, Shape>> shapes;
  for (size_t i = 0; i < values.size(); ++i) {
    Value v = values[i];
    if (how[i]) {
      Shape with_ones(how[i]->shape.size(), 1);
      std::vector<int64_t> order(how[i]->dims.size());
      for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int64_t>(d);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return how[i]->dims[static_cast<size_t>(a)] < how[i]->dims[static_cast<size_t>(b)];
      });
      for (size_t d = 0; d < order.size(); ++d) with_ones[static_cast<size_t>(how[i]->dims[d])] = v.shape()[d];
      v = broadcast_to(reshape(transpose(v, order), with_ones), how[i]->shape);
    }
    operands.push_back(e.use(v));
    shapes.emplace_back(v.dtype(), v.shape());
  }
  const DimValues given = dims(*kernel, grid);
  for (const auto& [size, n] : given) call.sizes.emplace_back(size, e.builder().constant_int(DType::i64, n));
  const DimValues complete = bind_dims(*kernel, shapes, given);
  std::vector<ir::Type> results;
  for (int i = kernel->num_inputs; i < static_cast<int>(kernel->blocks.size()); ++i)
    results.push_back(ir::Type::array(kernel->blocks[static_cast<size_t>(i)].dtype, bind_shape(*kernel, i, complete)));
  const ir::OpId id = stand_in(e, std::move(operands), results);
  t.calls()->calls.emplace(id.index, std::move(call));
  std::vector<Value> made;
  for (ir::Value r : t.kernel().op(id).results) made.push_back(t.wrap(r));
  return {std::move(made), name()};
}

Value asarray(const Array& a, Loc loc) {
  if (!Trace::innermost())
    throw TraceError("asarray: no function under jit is being traced", loc, "call it inside the function given to jit");
  Emit e("asarray", loc);
  if (!e.trace().calls())
    e.fail("an array of the host is used inside of a kernel", "give it to the kernel as an argument");
  const ir::OpId id = stand_in(e, {}, {ir::Type::array(a.dtype(), a.shape())});
  e.trace().calls()->arrays.emplace(id.index, a);
  return e.wrap(e.trace().kernel().op(id).results[0]);
}

namespace jit_ {
Value argument(const std::string& name, const Operand& o) {
  Emit e(name, o);
  return e.wrap(e.as_is(o));
}
void check_arity(const Jit& f, int arity, size_t given) {
  if (arity >= 0 && static_cast<size_t>(arity) != given)
    throw SpecError(
        f.name() + ": called with " + plural(given, "argument") + " but the function takes " + std::to_string(arity),
        f.loc());
}
}  // namespace jit_

// -- the function

struct Jit::State {
  Function f;
  std::string name;
  Loc loc;
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<const Graph>> traces;  // by shapes and dtypes
  std::map<std::pair<const Graph*, std::string>, std::shared_ptr<void>> compiled;
};

Jit::Jit(Function f, JitParams params, Loc loc) : state_(std::make_shared<State>()) {
  state_->f = std::move(f);
  state_->name = params.name.value_or("jit");
  state_->loc = loc;
}
const std::string& Jit::name() const { return state_->name; }
Loc Jit::loc() const { return state_->loc; }

namespace {
/// Traced for arguments whose run-time sizes have numbers that stand for them.
Graph traced_graph(const Jit& jit, const Jit::Function& f, const std::vector<Graph::Type>& arguments,
                   const DimValues& numbers) {
  ir::Kernel k;
  k.name = jit.name();
  k.loc = jit.loc();
  std::vector<ir::Type> types;
  for (const Graph::Type& t : arguments) types.push_back(ir::Type::array(t.dtype, t.shape));
  k.body = ir::Builder(k).new_region(types);
  CallRecord record;
  {
    Trace t(k, &record);
    const Trace::Region body(t, k.body);
    std::vector<Value> values;
    for (size_t i = 0; i < types.size(); ++i) values.push_back(t.argument(k.body, i));
    const std::vector<Operand> results = f.call(values);
    Emit e("what it returns", jit.loc());
    std::vector<ir::Value> outputs;
    for (const Operand& o : results) outputs.push_back(e.as_is(o));
    t.builder().set_loc(jit.loc());
    t.builder().yield(std::move(outputs));
  }
  return graph_of(k, record, arguments, numbers);
}

/// With run-time sizes: traced with two numbers for each of them, on which nothing may depend.
Graph sized_graph(const Jit& jit, const Jit::Function& f, const std::vector<ShapeDtype>& arguments,
                  const std::vector<std::string>& names) {
  std::optional<Graph> one;
  std::string numbers_text;
  for (const bool other : {false, true}) {
    DimValues numbers;
    for (size_t i = 0; i < names.size(); ++i) numbers[names[i]] = stands_for(i, other);
    std::string text;
    for (const auto& [name, n] : numbers) text += (text.empty() ? "" : ", ") + name + " = " + std::to_string(n);
    std::vector<Graph::Type> types;
    for (const ShapeDtype& a : arguments) types.push_back(type_at(a.dtype, a.shape, numbers));
    Graph g;
    try {
      g = traced_graph(jit, f, types, numbers);
      check_sizes(g);
    } catch (const SpecError& e) {
      throw SpecError(std::string(e.what()) + "\n  note: traced with " + text + " in place of every size");
    } catch (const TraceError& e) {
      throw TraceError(std::string(e.what()) + "\n  note: traced with " + text + " in place of every size");
    }
    if (!one) {
      one = std::move(g);
      numbers_text = text;
    } else if (graph_text(*one) != graph_text(g)) {
      throw TraceError(
          jit.name() + ": its graph for " + numbers_text + " is not the one for " + text, jit.loc(),
          "shape() has numbers that stand for run-time sizes: let kernels take these as ts::dim(\"" + names[0] + "\")");
    }
  }
  return std::move(*one);
}
}  // namespace

const Graph& Jit::trace(const std::vector<ShapeDtype>& arguments) const {
  jit_::check_arity(*this, state_->f.arity, arguments.size());
  std::string key;
  std::vector<std::string> names;
  for (const ShapeDtype& a : arguments) {
    key += type_text(a.dtype, a.shape) + ";";
    for (const Extent& e : a.shape) e.collect_names(names);
  }
  {
    const std::lock_guard lock(state_->mutex);
    if (const auto it = state_->traces.find(key); it != state_->traces.end()) return *it->second;
  }
  // Traced outside the lock: a function may call others, or itself with other shapes.
  const auto traced = [&] {
    if (!names.empty()) return sized_graph(*this, state_->f, arguments, names);
    std::vector<Graph::Type> types;
    for (const ShapeDtype& a : arguments) types.push_back(type_at(a.dtype, a.shape, {}));
    return traced_graph(*this, state_->f, types, {});
  };
  auto graph = std::make_unique<const Graph>(traced());
  const std::lock_guard lock(state_->mutex);
  return *state_->traces.emplace(key, std::move(graph)).first->second;
}

std::shared_ptr<void> Jit::compiled(const Graph& traced, const std::string& key,
                                    FunctionRef<std::shared_ptr<void>()> make) const {
  {
    const std::lock_guard lock(state_->mutex);
    if (const auto it = state_->compiled.find({&traced, key}); it != state_->compiled.end()) return it->second;
  }
  std::shared_ptr<void> made = make();
  const std::lock_guard lock(state_->mutex);
  return state_->compiled.emplace(std::pair{&traced, key}, std::move(made)).first->second;
}

std::vector<ShapeDtype> types_of(const std::vector<Array>& arrays) {
  std::vector<ShapeDtype> types;
  for (const Array& a : arrays) types.push_back({extents(a.shape()), a.dtype()});
  return types;
}
std::vector<Array> interpret(const Jit& f, const std::vector<Array>& arguments) {
  return interpret(f.trace(types_of(arguments)), arguments);
}

}  // namespace tessera
