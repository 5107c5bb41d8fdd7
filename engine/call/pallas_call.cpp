#include "engine/call/pallas_call.h"

#include <algorithm>
#include <iostream>
#include <mutex>
#include <set>
#include <sstream>

#include "engine/base/plural.h"
#include "engine/front/trace.h"
#include "engine/interpreter/strided.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"

namespace tessera {

struct PallasCall::State {
  Parts parts;
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<const ir::Kernel>> traces;  // by input shapes and dtypes
  std::set<std::pair<const ir::Kernel*, DimValues>> linted;
};

PallasCall::PallasCall(Parts parts) : state_(std::make_shared<State>()) { state_->parts = std::move(parts); }
const std::string& PallasCall::name() const { return state_->parts.name; }
Loc PallasCall::loc() const { return state_->parts.loc; }
const std::optional<InterpretOptions>& PallasCall::interpret_options() const { return state_->parts.interpret; }
const std::optional<std::vector<ShapeDtype>>& PallasCall::in_shape() const { return state_->parts.in_shape; }

namespace {

/// debug: in one piece, since several threads may trace.
void print_traced(const ir::Kernel& k) {
  std::ostringstream out;
  out << "The grid mapping for pallas_call " << k.description() << ":\n"
      << grid_mapping(k) << "The kernel for pallas_call " << k.description() << ":\n"
      << ir::print(k);
  std::cout << out.str() << std::flush;
}

std::string show(const ShapeDtype& s) { return std::string(name(s.dtype)) + to_string(s.shape); }

/// Arguments against in_shape: what is static must agree; run-time sizes are bound where the kernel runs.
void check_arguments(const PallasCall& call, const std::vector<ShapeDtype>& declared,
                     const std::vector<ShapeDtype>& given) {
  const auto fail = [&](const std::string& what) { throw SpecError(call.name() + ": " + what, call.loc()); };
  if (declared.size() != given.size())
    fail("called with " + plural(given.size(), "argument") + " but in_shape has " + std::to_string(declared.size()));
  for (size_t i = 0; i < given.size(); ++i) {
    const ShapeDtype &d = declared[i], &g = given[i];
    const std::string both =
        "argument " + std::to_string(i) + " is " + show(g) + " but in_shape[" + std::to_string(i) + "] is " + show(d);
    if (d.dtype != g.dtype || d.shape.size() != g.shape.size()) fail(both);
    for (size_t k = 0; k < d.shape.size(); ++k)
      if (d.shape[k].is_static() && g.shape[k].is_static() && d.shape[k] != g.shape[k]) fail(both);
  }
}
}  // namespace

namespace {
std::vector<ShapeDtype> shapes_of(const std::vector<Array>& arguments) {
  std::vector<ShapeDtype> shapes;
  for (const Array& a : arguments) shapes.push_back({{a.shape().begin(), a.shape().end()}, a.dtype()});
  return shapes;
}

Lint lint_of(const PallasCall::Parts& parts, bool debug) {
  if (parts.lint) return *parts.lint;
  return lint_of_environment().value_or(debug ? Lint::warn : Lint::off);
}
}  // namespace

const std::optional<Lint>& PallasCall::lint() const { return state_->parts.lint; }

void PallasCall::lint_interpreted(const ir::Kernel& kernel, const std::vector<Array>& arguments,
                                  const DimValues& sizes) const {
  const Lint what = lint_of(state_->parts, true);
  if (what == Lint::off) return;
  std::vector<std::pair<DType, Shape>> types;
  for (const Array& a : arguments) types.emplace_back(a.dtype(), a.shape());
  if (state_->parts.spreads) {
    const auto how = spreads(shapes_of(arguments));
    for (size_t i = 0; i < how.size(); ++i)
      if (how[i]) types[i].second = how[i]->shape;
  }
  DimValues dims = bind_dims(kernel, types, sizes);
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->linted.emplace(&kernel, dims).second) return;
  }
  check_lints(kernel, dims, what);
}

std::optional<DType> PallasCall::value_dtype(size_t argument) const {
  const auto& values = state_->parts.values;
  return argument < values.size() ? values[argument] : std::nullopt;
}

Array PallasCall::array(size_t i, const Scalar& number) const {
  const auto t = value_dtype(i);
  const std::string argument = name() + ": argument " + std::to_string(i);
  if (!t)
    throw SpecError(argument + " is a number, but the kernel takes an array there", loc(),
                    "give an array, or ts::by_value(dtype) in in_specs");
  if (!number.fits(*t)) throw SpecError(argument + ": " + number.misfit(*t), loc());
  return number.array(*t);
}

const ir::Kernel& PallasCall::trace(const std::vector<ShapeDtype>& given) const& {
  const auto& declared = state_->parts.in_shape;
  if (declared) check_arguments(*this, *declared, given);
  const std::vector<ShapeDtype>& inputs = declared ? *declared : given;
  std::string key;
  for (const ShapeDtype& s : inputs) key += show(s) + ";";
  {
    const std::lock_guard lock(state_->mutex);
    if (const auto it = state_->traces.find(key); it != state_->traces.end()) return *it->second;
  }
  // Traced outside the lock: a kernel may call others, or itself with other shapes.
  auto kernel = std::make_unique<const ir::Kernel>(state_->parts.trace(inputs));
  if (kernel->call.debug) print_traced(*kernel);
  if (has_all_sizes(*kernel, {})) check_lints(*kernel, {}, lint_of(state_->parts, kernel->call.debug));
  const std::lock_guard lock(state_->mutex);
  return *state_->traces.emplace(key, std::move(kernel)).first->second;
}

const ir::Kernel& PallasCall::trace() const& {
  return trace(state_->parts.in_shape.value_or(std::vector<ShapeDtype>{}));
}

ir::Kernel PallasCall::trace(const std::vector<ShapeDtype>& inputs) && {
  return static_cast<const PallasCall&>(*this).trace(inputs);
}
ir::Kernel PallasCall::trace() && { return static_cast<const PallasCall&>(*this).trace(); }
const ir::Kernel& PallasCall::trace_for(const std::vector<Array>& arguments) const& {
  return trace(shapes_of(arguments));
}

std::vector<std::optional<PallasCall::Spread>> PallasCall::spreads(const std::vector<ShapeDtype>& inputs) const {
  return state_->parts.spreads ? state_->parts.spreads(inputs) : std::vector<std::optional<Spread>>(inputs.size());
}

std::vector<Array> PallasCall::spread(const std::vector<Array>& arguments) const {
  if (!state_->parts.spreads) return arguments;
  const std::vector<std::optional<Spread>> how = spreads(shapes_of(arguments));
  std::vector<Array> result = arguments;
  for (size_t i = 0; i < how.size(); ++i) {
    if (!how[i]) continue;
    const Array& from = arguments[i];
    const interpreter::Strides dense = interpreter::dense_strides(from.shape());
    interpreter::Strides strides(how[i]->shape.size(), 0);
    for (size_t d = 0; d < dense.size(); ++d) strides[static_cast<size_t>(how[i]->dims[d])] = dense[d];
    Array to(how[i]->shape, from.dtype());
    const interpreter::Strides to_strides = interpreter::dense_strides(to.shape());
    if (to.size() > 0)
      interpreter::StridedCopy(to.shape().size(), to.shape().data(), to_strides.data(), strides.data(),
                               size_bytes(from.dtype()))
          .run(to.bytes(), from.bytes());
    result[i] = std::move(to);
  }
  return result;
}

namespace {
constexpr std::string_view kDynamic = "grid";  // then the axis: what dynamic grid sizes are called
}

DimValues PallasCall::dims(const ir::Kernel& kernel, const GridSizes& given) const {
  DimValues dims = given.named();
  if (given.sizes().empty()) return dims;  // a missing one is noticed where the kernel runs
  std::vector<std::string> names;
  std::vector<Extent> grid;
  for (const ir::GridAxis& axis : kernel.grid) {
    grid.push_back(axis.size);
    if (const auto n = axis.size.as_name(); n && n->starts_with(kDynamic)) names.push_back(*n);
  }
  if (names.size() != given.sizes().size())
    throw SpecError(name() + ": the call gives " + plural(given.sizes().size(), "grid size") + " but the grid " +
                        to_string(grid) + " has " + std::to_string(names.size()) +
                        (names.size() == 1 ? " dynamic axis" : " dynamic axes"),
                    loc(), "ts::GridSizes has one size per ts::dynamic_grid_dim of the grid");
  for (size_t i = 0; i < names.size(); ++i) dims[names[i]] = given.sizes()[i];
  return dims;
}

namespace spec {
namespace {
/// Everything but the inputs, checked.
struct Checked {
  KernelFunction kernel;
  GridMappingRequest request;  // without inputs and in_specs
  ir::CallInfo call;
  std::optional<std::vector<BlockSpec>> in_specs;
  bool allow_float_atomics;
};

std::string number(double d) {
  std::string s = std::to_string(d);
  s.erase(s.find_last_not_of('0') + 1);
  return s.back() == '.' ? s + "0" : s;
}

/// " and num_scalar_prefetch is 2", if it is not 0.
std::string after_prefetch(int n) { return n ? " and num_scalar_prefetch is " + std::to_string(n) : ""; }

bool negative(const Extent& e) { return e.is_static() && *e.value() < 0; }

// The checks that need no input, one after another: the first that fails is what the user reads.
class Checks {
 public:
  Checks(KernelFunction kernel, const PallasCallParams& params, Loc loc)
      : p_(params), c_{std::move(kernel), {}, {}, {}, false}, r_(c_.request) {
    r_.name = p_.name.value_or("kernel");
    r_.loc = loc;
    r_.debug = c_.call.debug = p_.debug;
    c_.call.metadata = p_.metadata;
    name();
    cost_estimate();
    backend();
    grid_spec();
    outputs();
    grid();
    compiler_params();
    out_specs();
    scratch();
    inputs();
  }
  Checked take() { return std::move(c_); }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& note = {}) const {
    throw SpecError(r_.name + ": " + what, r_.loc, note);
  }
  void name() {
    if (r_.name.empty() ||
        !std::all_of(r_.name.begin(), r_.name.end(),
                     [](unsigned char ch) { return ch < 128 && (std::isalnum(ch) || ch == '_'); }) ||
        std::isdigit(static_cast<unsigned char>(r_.name[0]))) {
      const std::string given = std::exchange(r_.name, "kernel");
      fail("name \"" + given + "\" is not a word of letters, digits and _ that starts with no digit");
    }
  }
  void cost_estimate() {
    if ((c_.call.cost_estimate = p_.cost_estimate)) {
      const auto check_cost = [&](const char* field, const Extent& e) {
        if (e.is_static() && *e.value() < 0) fail("cost_estimate: " + std::string(field) + " is " + to_string(e));
      };
      check_cost("flops", p_.cost_estimate->flops);
      check_cost("transcendentals", p_.cost_estimate->transcendentals);
      check_cost("bytes_accessed", p_.cost_estimate->bytes_accessed);
      check_cost("remote_bytes_transferred", p_.cost_estimate->remote_bytes_transferred);
    }
  }
  void backend() const {
    if (p_.backend == "mosaic_tpu" || p_.backend == "triton" || p_.backend == "mosaic_gpu")
      fail("backend \"" + *p_.backend + "\" is Pallas's, and not in this build",
           "\"vulkan\" and \"interpreter\" are; what is meant for \"" + *p_.backend +
               "\" can be given in compiler_params");
    if (p_.backend && *p_.backend != "vulkan" && *p_.backend != "interpreter")
      fail("backend \"" + *p_.backend + "\" is unknown", "\"vulkan\" and \"interpreter\" are known");
    if (p_.backend == "vulkan" && p_.interpret.options())
      fail("backend is \"vulkan\", and interpret is given too", "give one of them");
  }
  void grid_spec() {
    if (!p_.grid_spec) return;
    const bool twice =
        !p_.grid.axes().empty() || p_.in_specs.list() || p_.out_specs.list() || !p_.scratch_shapes.empty();
    if (twice)
      fail("grid_spec is given, and grid, in_specs, out_specs or scratch_shapes too",
           "give them in grid_spec or directly, not both");
    r_.num_scalar_prefetch = p_.grid_spec->num_scalar_prefetch;
    if (r_.num_scalar_prefetch < 0) fail("grid_spec: num_scalar_prefetch is " + std::to_string(r_.num_scalar_prefetch));
  }
  void outputs() {
    if (!p_.out_shape.list())
      fail("out_shape is missing", "give the shape and dtype of each output: .out_shape = {{{m, n}, ts::f32}}");
    r_.outputs = *p_.out_shape.list();
    r_.aliases = p_.input_output_aliases;
    std::map<int, int> aliased;  // outputs to inputs
    for (const auto& [input, output] : r_.aliases) {
      if (output < 0 || output >= static_cast<int>(r_.outputs.size()))
        fail("input_output_aliases: output " + std::to_string(output) + " does not exist: out_shape has " +
             plural(r_.outputs.size(), "output"));
      if (const auto [first, fresh] = aliased.emplace(output, input); !fresh)
        fail("input_output_aliases: output " + std::to_string(output) + " is aliased to input " +
             std::to_string(first->second) + " and to input " + std::to_string(input));
    }
  }
  void grid() {
    r_.grid = p_.grid_spec ? p_.grid_spec->grid.axes() : p_.grid.axes();
    for (size_t i = 0; i < r_.grid.size(); ++i) {
      const GridSize& g = r_.grid[i];
      const std::string axis = " of axis " + std::to_string(i);
      if (g.not_an_integer())
        fail("grid: size " + number(*g.not_an_integer()) + axis + " is not an integer", "cdiv(n, block) rounds up");
      if (g.size().is_static() && *g.size().value() < 0)
        fail("grid: size " + to_string(g.size()) + axis + " is negative");
      if (g.dynamic()) {
        const Extent size = dim(std::string(kDynamic) + std::to_string(i));
        r_.grid[i] = g.name().empty() ? GridSize(size) : GridSize(g.name().c_str(), size);
      }
    }
  }
  void compiler_params() {
    try {
      ReadCompilerParams params = read(p_.compiler_params, r_.grid.size());
      r_.parallel = std::move(params.parallel);
      c_.call.compiler_params = std::move(params.others);
      c_.allow_float_atomics = params.allow_float_atomics;
    } catch (const CompilerParamsProblem& problem) {
      fail("compiler_params: " + problem.what, problem.note);
    }
  }
  void out_specs() {
    for (size_t i = 0; i < r_.outputs.size(); ++i)
      if (std::any_of(r_.outputs[i].shape.begin(), r_.outputs[i].shape.end(), negative))
        fail("out_shape[" + std::to_string(i) + "]: shape " + to_string(r_.outputs[i].shape) + " has a negative size");
    const auto& specs = p_.grid_spec ? p_.grid_spec->out_specs.list() : p_.out_specs.list();
    if (specs && specs->size() != r_.outputs.size())
      fail("out_specs has " + plural(specs->size(), "BlockSpec") + " but out_shape has " +
           plural(r_.outputs.size(), "output"));
    r_.out_specs = specs ? *specs : std::vector<BlockSpec>(r_.outputs.size(), no_block_spec);
  }
  void scratch() {
    r_.scratch = p_.grid_spec ? p_.grid_spec->scratch_shapes : p_.scratch_shapes;
    for (size_t i = 0; i < r_.scratch.size(); ++i) {
      const ScratchShape& s = r_.scratch[i];
      if (std::any_of(s.shape.begin(), s.shape.end(), [](int64_t d) { return d < 0; }))
        fail("scratch_shapes[" + std::to_string(i) + "]: shape " + to_string(s.shape) + " has a negative size");
      if (!ir::is_for_scratch(s.memory_space) || ir::is_of_threads(s.memory_space))
        fail("scratch_shapes[" + std::to_string(i) + "]: memory space " + std::string(ir::name(s.memory_space)) +
                 " is not for scratch",
             "vmem, smem, any and semaphores are");
    }
  }
  void inputs() {
    c_.in_specs = p_.grid_spec ? p_.grid_spec->in_specs.list() : p_.in_specs.list();
    if (p_.in_shape.list()) {
      for (size_t i = 0; i < p_.in_shape.list()->size(); ++i)
        if (const auto& s = (*p_.in_shape.list())[i].shape; std::any_of(s.begin(), s.end(), negative))
          fail("in_shape[" + std::to_string(i) + "]: shape " + to_string(s) + " has a negative size");
    }
    if (p_.in_shape.list() && c_.in_specs &&
        c_.in_specs->size() + static_cast<size_t>(r_.num_scalar_prefetch) != p_.in_shape.list()->size())
      fail("in_specs has " + plural(c_.in_specs->size(), "BlockSpec") + after_prefetch(r_.num_scalar_prefetch) +
           " but in_shape has " + plural(p_.in_shape.list()->size(), "input"));
  }

  const PallasCallParams& p_;
  Checked c_;
  GridMappingRequest& r_;
};

Checked check(KernelFunction kernel, const PallasCallParams& p, Loc loc) {
  return Checks(std::move(kernel), p, loc).take();
}

ir::Kernel trace(const Checked& c, const std::vector<ShapeDtype>& inputs) {
  GridMappingRequest r = c.request;
  r.inputs = inputs;
  const auto prefetch = static_cast<size_t>(r.num_scalar_prefetch);
  if (c.in_specs ? c.in_specs->size() + prefetch != inputs.size() : inputs.size() < prefetch)
    throw SpecError(r.name + ": called with " + plural(inputs.size(), "argument") + " but " +
                        (c.in_specs ? "in_specs has " + plural(c.in_specs->size(), "BlockSpec") +
                                          after_prefetch(r.num_scalar_prefetch)
                                    : "num_scalar_prefetch is " + std::to_string(prefetch)),
                    r.loc);
  r.in_specs = c.in_specs ? *c.in_specs : std::vector<BlockSpec>(inputs.size() - prefetch, no_block_spec);
  const size_t refs = inputs.size() + r.outputs.size() + r.scratch.size();
  if (static_cast<size_t>(c.kernel.arity) != refs)
    throw SpecError(r.name + ": the kernel takes " + plural(static_cast<size_t>(c.kernel.arity), "Ref") +
                        " but there are " + (prefetch ? plural(prefetch, "scalar-prefetch operand") + ", " : "") +
                        plural(inputs.size() - prefetch, "input") + ", " + plural(r.outputs.size(), "output") +
                        " and " + plural(r.scratch.size(), "scratch shape"),
                    r.loc,
                    std::string("a kernel takes one Ref per ") +
                        (prefetch ? "scalar-prefetch operand, then per " : "") +
                        "input, then per output, then per scratch shape");
  ir::Kernel k = make_grid_mapping(r).to_kernel(r.name, r.loc);
  k.call = c.call;
  {
    Trace t(k);
    const Trace::Region body(t, k.body);
    std::vector<Ref> arguments;
    for (size_t i = 0; i < refs; ++i) arguments.push_back(t.ref_argument(k.body, i));
    c.kernel.call(arguments);
    t.builder().set_loc(r.loc);
    t.builder().yield({});
  }
  if (c.allow_float_atomics)
    for (ir::Op& op : k.ops)
      if (op.code == ir::Opcode::atomic_rmw && op.attr(ir::Attr::kind) == static_cast<int64_t>(ir::Opcode::add) &&
          is_float(k.type(op.operands[1]).dtype))
        op.set(ir::Attr::unordered, 1);
  ir::verify(k, "tracing");
  return k;
}
}  // namespace

PallasCall make_pallas_call(KernelFunction kernel, PallasCallParams params, Loc loc) {
  auto checked = std::make_shared<const Checked>(check(std::move(kernel), params, loc));
  PallasCall::Parts parts;
  parts.name = checked->request.name;
  parts.loc = loc;
  parts.interpret = params.interpret.options();
  if (params.backend == "interpreter" && !parts.interpret) parts.interpret.emplace();
  parts.in_shape = params.in_shape.list();
  parts.lint = params.lint;
  if (checked->in_specs) {
    parts.values.resize(static_cast<size_t>(checked->request.num_scalar_prefetch));
    for (const BlockSpec& s : *checked->in_specs) parts.values.push_back(s.value);
  }
  parts.trace = [checked](const std::vector<ShapeDtype>& inputs) { return trace(*checked, inputs); };
  return PallasCall(std::move(parts));
}

}  // namespace spec
}  // namespace tessera
