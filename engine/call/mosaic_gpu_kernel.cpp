#include "engine/call/mosaic_gpu_kernel.h"

#include <algorithm>
#include <cctype>

#include "engine/base/plural.h"
#include "engine/front/trace.h"
#include "engine/ir/verify.h"

namespace tessera::mosaic_gpu::kernels {
namespace {
constexpr int64_t kMostPrograms = 16;  // of a cluster
constexpr int64_t kMostThreads = 8;    // 1024 invocations, 128 in a warpgroup

struct Checked {
  spec::KernelFunction body;
  std::string name;
  Loc loc;
  std::vector<ShapeDtype> outputs;
  std::vector<ScratchType> scratch;
  std::vector<ir::GridAxis> grid;  // with the cluster's axes and the threads
  ir::CallInfo call;
};

class Checks {
 public:
  Checks(spec::KernelFunction body, const KernelParams& params, Loc loc) : p_(params) {
    c_.body = std::move(body);
    c_.name = p_.kernel_name.value_or("kernel");
    c_.loc = loc;
    c_.call.debug = p_.debug;
    name();
    types();
    axes();
    threads();
    names();
    compiler_params();
  }
  Checked take() { return std::move(c_); }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& note = {}) const {
    throw SpecError(c_.name + ": " + what, c_.loc, note);
  }
  void name() {
    const std::string& n = c_.name;
    if (!n.empty() && !std::isdigit(static_cast<unsigned char>(n[0])) &&
        std::all_of(n.begin(), n.end(), [](unsigned char ch) { return ch < 128 && (std::isalnum(ch) || ch == '_'); }))
      return;
    const std::string given = std::exchange(c_.name, "kernel");
    fail("kernel_name \"" + given + "\" is not a word of letters, digits and _ that starts with no digit");
  }
  void types() {
    if (p_.out_shape.list() && p_.out_type.list())
      fail("out_type and out_shape are given", "out_shape is the old name of out_type: give one of them");
    if (!p_.scratch_shapes.empty() && !p_.scratch_types.empty())
      fail("scratch_types and scratch_shapes are given",
           "scratch_shapes is the old name of scratch_types: give one of them");
    const ShapeDtypes& outputs = p_.out_type.list() ? p_.out_type : p_.out_shape;
    if (outputs.list()) c_.outputs = *outputs.list();
    c_.scratch = p_.scratch_types.empty() ? p_.scratch_shapes : p_.scratch_types;
    for (size_t i = 0; i < c_.outputs.size(); ++i)
      for (const Extent& e : c_.outputs[i].shape) {
        const std::string place = "out_type[" + std::to_string(i) + "]: shape " + to_string(c_.outputs[i].shape);
        if (!e.is_static()) fail(place + " has a run-time size, and kernels of mosaic_gpu take whole arrays");
        if (*e.value() < 0) fail(place + " has a negative size");
      }
  }
  void axes() {
    const std::vector<GridSize>& grid = p_.grid.axes();
    if (grid.size() != p_.grid_names.size())
      fail("the grid has " + plural(grid.size(), "axis", "axes") + " but grid_names has " +
               std::to_string(p_.grid_names.size()),
           "a name per axis: axis_index() takes it");
    for (size_t i = 0; i < grid.size(); ++i) {
      const std::string axis = "grid: axis " + std::to_string(i) + " (" + p_.grid_names[i] + ") ";
      if (grid[i].not_an_integer() || grid[i].dynamic() || !grid[i].size().is_static())
        fail(axis + "has no size that is known here", "sizes of the grid are integers");
      if (*grid[i].size().value() < 0) fail(axis + "has the negative size " + to_string(grid[i].size()));
      c_.grid.push_back({grid[i].size(), p_.grid_names[i], true});
    }
    if (p_.cluster.size() != p_.cluster_names.size())
      fail("the cluster has " + plural(p_.cluster.size(), "axis", "axes") + " but cluster_names has " +
               std::to_string(p_.cluster_names.size()),
           "a name per axis: axis_index() takes it");
    if (p_.cluster.size() > 3)
      fail("the cluster has " + std::to_string(p_.cluster.size()) + " axes", "a cluster has at most 3");
    int64_t programs = 1;
    for (size_t i = 0; i < p_.cluster.size(); ++i) {
      if (p_.cluster[i] < 1)
        fail("cluster: axis " + std::to_string(i) + " (" + p_.cluster_names[i] + ") has size " +
             std::to_string(p_.cluster[i]) + ", not at least 1");
      programs *= std::min(p_.cluster[i], kMostPrograms + 1);
      if (programs > kMostPrograms)
        fail("the cluster " + to_string(Shape(p_.cluster)) + " has more than " + std::to_string(kMostPrograms) +
                 " programs",
             "a cluster has at most so many on sm_90a");
      c_.grid.push_back({Extent(p_.cluster[i]), p_.cluster_names[i]});
      c_.grid.back().role = ir::GridAxis::Role::cluster;
    }
  }
  void threads() {
    if (p_.num_threads.has_value() != p_.thread_name.has_value())
      fail(std::string(p_.num_threads ? "num_threads is given but no thread_name"
                                      : "thread_name is given but no num_threads"),
           "give both or neither");
    const int64_t n = p_.num_threads.value_or(1);
    if (n < 1 || n > kMostThreads)
      fail("num_threads is " + std::to_string(n) + ", not from 1 to " + std::to_string(kMostThreads),
           "a thread is a warpgroup of 128 invocations, of which a program has at most 1024");
    c_.grid.push_back({Extent(n), p_.thread_name.value_or("")});
    c_.grid.back().role = ir::GridAxis::Role::thread;
    for (size_t i = 0; i < c_.scratch.size(); ++i)
      if (n > 1 && c_.scratch[i].space() == MemorySpace::accumulator)
        throw SpecError(c_.name + ": scratch_types[" + std::to_string(i) + "] is an accumulator, but the " +
                            std::to_string(n) + " threads share scratch_types",
                        c_.scratch[i].loc(),
                        "a thread that computes makes its own: mosaic_gpu::run_scoped(..., {ACC(...)})");
  }
  void names() const {
    for (size_t i = 0; i < c_.grid.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (!c_.grid[i].name.empty() && c_.grid[i].name == c_.grid[j].name)
          fail("two axes are called \"" + c_.grid[i].name + "\"",
               "grid_names, cluster_names and thread_name differ, so that axis_index() finds one axis");
  }
  void compiler_params() {
    if (!p_.compiler_params) return;
    for (const std::string& s : p_.compiler_params->dimension_semantics)
      if (s == "sequential")
        fail(
            "compiler_params: dimension_semantics has \"sequential\", but the programs of mosaic_gpu::kernel run at "
            "once",
            "loop inside the body: nd_loop, fori_loop");
    try {
      c_.call.compiler_params = spec::read(*p_.compiler_params, p_.grid.axes().size()).others;
    } catch (const spec::CompilerParamsProblem& problem) {
      fail("compiler_params: " + problem.what, problem.note);
    }
  }

  const KernelParams& p_;
  Checked c_;
};

ir::Kernel trace(const Checked& c, const std::vector<ShapeDtype>& inputs) {
  const size_t refs = inputs.size() + c.outputs.size() + c.scratch.size();
  if (static_cast<size_t>(c.body.arity) != refs)
    throw SpecError(c.name + ": the body takes " + plural(static_cast<size_t>(c.body.arity), "Ref") +
                        " but there are " + plural(inputs.size(), "input") + ", " + plural(c.outputs.size(), "output") +
                        " and " + plural(c.scratch.size(), "scratch type"),
                    c.loc, "a body takes one Ref per input, then per output, then per scratch type");
  ir::Kernel k;
  k.name = c.name;
  k.loc = c.loc;
  k.grid = c.grid;
  k.call = c.call;
  k.num_inputs = static_cast<int>(inputs.size());
  for (const auto* list : {&inputs, &c.outputs})
    for (const ShapeDtype& s : *list) {
      ir::BlockMapping b;
      b.dtype = s.dtype;
      b.array_shape = s.shape;
      b.what = ir::BlockMapping::Whole{};
      b.loc = c.loc;
      k.blocks.push_back(std::move(b));
      k.blocks.back().origin = k.usual_origin(static_cast<int>(k.blocks.size()) - 1);
    }
  for (size_t i = 0; i < c.scratch.size(); ++i)
    k.scratch.push_back(c.scratch[i].type(k, c.name + ": scratch_types[" + std::to_string(i) + "]"));
  ir::Builder b(k);
  std::vector<ir::Type> args;
  for (int i = 0; i < static_cast<int>(k.blocks.size()); ++i) args.push_back(k.block_ref_type(i));
  args.insert(args.end(), k.scratch.begin(), k.scratch.end());
  k.body = b.new_region(args);
  {
    Trace t(k);
    const Trace::Region body(t, k.body);
    std::vector<Ref> arguments;
    for (size_t i = 0; i < refs; ++i) arguments.push_back(t.ref_argument(k.body, i));
    c.body.call(arguments);
    t.builder().set_loc(c.loc);
    t.builder().yield({});
  }
  ir::verify(k, "tracing");
  return k;
}
}  // namespace

PallasCall make(spec::KernelFunction body, KernelParams params, Loc loc) {
  auto checked = std::make_shared<const Checked>(Checks(std::move(body), params, loc).take());
  PallasCall::Parts parts;
  parts.name = checked->name;
  parts.loc = loc;
  parts.interpret = params.interpret.options();
  parts.trace = [checked](const std::vector<ShapeDtype>& inputs) { return trace(*checked, inputs); };
  return PallasCall(std::move(parts));
}

}  // namespace tessera::mosaic_gpu::kernels
