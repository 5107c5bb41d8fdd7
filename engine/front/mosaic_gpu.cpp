#include "engine/front/mosaic_gpu.h"

#include <algorithm>

#include "engine/front/ops.h"
#include "engine/front/trace.h"

namespace tessera::mosaic_gpu {
using ir::Attr;
using ir::Opcode;

namespace {
Shape shape_of(const std::variant<int64_t, Shape>& n) {
  return std::holds_alternative<Shape>(n) ? std::get<Shape>(n) : Shape{std::get<int64_t>(n)};
}
std::string space_name(MemorySpace s) { return s == MemorySpace::gmem ? "gmem" : std::string(ir::name(s)); }
std::string axes_of(const ir::Kernel& k) {
  std::string s;
  for (const ir::GridAxis& g : k.grid)
    if (!g.name.empty()) s += (s.empty() ? "" : ", ") + g.name;
  return s.empty() ? "no axis has a name" : "the axes are " + s;
}
std::optional<size_t> find_axis(const ir::Kernel& k, std::string_view name) {
  for (size_t i = 0; i < k.grid.size(); ++i)
    if (!name.empty() && k.grid[i].name == name) return i;
  return std::nullopt;
}
/// Cluster axes by their names, in ascending order.
template <class Fail>
std::vector<int64_t> cluster_axes(const ir::Kernel& k, const std::vector<std::string>& names, const Fail& fail) {
  std::vector<int64_t> axes;
  for (const std::string& name : names) {
    const auto at = find_axis(k, name);
    if (!at || k.grid[*at].role != ir::GridAxis::Role::cluster)
      fail("collective_axes: \"" + name + "\" is no axis of the cluster", axes_of(k));
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(*at)) != axes.end())
      fail("collective_axes: \"" + name + "\" is given twice", {});
    axes.push_back(static_cast<int64_t>(*at));
  }
  std::sort(axes.begin(), axes.end());
  return axes;
}
}  // namespace

ScratchType::ScratchType(ScratchShape s, Loc l) : shape_(std::move(s)), loc_(l) {}
ScratchType::ScratchType(const Barrier& b, Loc l)
    : shape_{shape_of(b.num_barriers), DType::i32, MemorySpace::barrier},
      arrivals_(b.num_arrivals),
      orders_tensor_core_(b.orders_tensor_core),
      loc_(l) {}
ScratchType::ScratchType(const ClusterBarrier& b, Loc l)
    : shape_{shape_of(b.num_barriers), DType::i32, MemorySpace::cluster_barrier},
      arrivals_(b.num_arrivals),
      axes_(b.collective_axes),
      orders_tensor_core_(b.orders_tensor_core),
      loc_(l) {}
ScratchType::ScratchType(ScratchShape s, std::vector<Transform> transforms, Loc loc)
    : shape_(std::move(s)), transforms_(std::move(transforms)), loc_(loc) {}

ir::Type ScratchType::type(const ir::Kernel& k, const std::string& place) const {
  const auto fail = [&](const std::string& what, const std::string& note) {
    throw SpecError(place + ": " + what, loc_, note);
  };
  const MemorySpace space = shape_.memory_space;
  if (std::any_of(shape_.shape.begin(), shape_.shape.end(), [](int64_t d) { return d < 0; }))
    fail("shape " + to_string(shape_.shape) + " has a negative size", {});
  if (!ir::within_limits(shape_.shape))
    fail("shape " + to_string(shape_.shape) + " is too large", "at most 32 dims and 2^40 elements are allowed");
  if (space == MemorySpace::vmem || space == MemorySpace::dma_semaphore || !ir::is_for_scratch(space))
    fail("memory space " + std::string(ir::name(space)) + " is not Mosaic GPU's",
         "SMEM, GMEM, ACC, Barrier, ClusterBarrier and SemaphoreType::REGULAR are");
  if (orders_tensor_core_)
    fail("orders_tensor_core orders tcgen05, which is Blackwell's", "Tessera has Hopper's wgmma");
  if (arrivals_ < 1) fail("num_arrivals is " + std::to_string(arrivals_) + ", and a phase needs at least 1", {});
  ir::ThreadTraits more{arrivals_, cluster_axes(k, axes_, fail), {}, 0};
  if (space == MemorySpace::cluster_barrier && more.axes.empty())
    fail("a ClusterBarrier needs collective_axes", "of cluster_names; a Barrier is of one program");
  for (const Transform& t : transforms_) {
    if (const auto* tiling = std::get_if<TilingTransform>(&t)) {
      const Shape &tile = tiling->tiling, &shape = shape_.shape;
      bool fits = more.tiling.empty() && !tile.empty() && tile.size() <= shape.size();
      for (size_t i = 0; fits && i < tile.size(); ++i)
        fits = tile[i] > 0 && shape[shape.size() - tile.size() + i] % tile[i] == 0;
      if (!fits)
        fail("tiles of " + to_string(tile) + " do not divide " + to_string(shape),
             "a tile has at most as many dims as the memory, and divides its last ones; there is one TilingTransform");
      more.tiling = tile;
    } else {
      more.swizzle = std::get<SwizzleTransform>(t).swizzle;
      if (more.swizzle != 16 && more.swizzle != 32 && more.swizzle != 64 && more.swizzle != 128)
        fail("a swizzle over " + std::to_string(more.swizzle) + " bytes", "16, 32, 64 and 128 are possible");
    }
  }
  if (more.swizzle > 16 && !more.tiling.empty() && more.tiling.back() * bits(shape_.dtype) != more.swizzle * 8)
    fail("tiles of " + to_string(more.tiling) + " have rows of " +
             std::to_string(more.tiling.back() * bits(shape_.dtype) / 8) + " bytes, but the swizzle is over " +
             std::to_string(more.swizzle),
         "the last dim of a tile fills the swizzle");
  ir::Type t = ir::Type::ref(shape_.dtype, shape_.shape, space);
  if (more != ir::ThreadTraits{}) t.traits = std::make_shared<const ir::ThreadTraits>(std::move(more));
  return t;
}

namespace {
Value on_axis(Opcode code, std::string_view name, std::string_view axis, Loc loc) {
  Emit e(name, loc);
  const ir::Kernel& k = e.trace().kernel();
  const auto at = find_axis(k, axis);
  if (!at) e.fail("there is no axis \"" + std::string(axis) + "\"", axes_of(k));
  ir::Op op{.code = code};
  op.set(Attr::axis, static_cast<int64_t>(*at));
  return e.wrap(e.builder().one(std::move(op)));
}
}  // namespace

Value axis_index(std::string_view axis, Loc loc) { return on_axis(Opcode::program_id, "axis_index", axis, loc); }
Value axis_size(std::string_view axis, Loc loc) { return on_axis(Opcode::num_programs, "axis_size", axis, loc); }
Value axis_index(const std::vector<std::string>& axes, Loc loc) {
  if (axes.empty()) Emit("axis_index", loc).fail("no axis is given");
  Value index = axis_index(axes[0], loc);
  for (size_t i = 1; i < axes.size(); ++i) {
    const Value rows = index * axis_size(axes[i], loc);
    index = rows + axis_index(axes[i], loc);
  }
  return index;
}
Value axis_size(const std::vector<std::string>& axes, Loc loc) {
  if (axes.empty()) Emit("axis_size", loc).fail("no axis is given");
  Value size = axis_size(axes[0], loc);
  for (size_t i = 1; i < axes.size(); ++i) size = size * axis_size(axes[i], loc);
  return size;
}

Value axis_index(std::initializer_list<const char*> axes, Loc loc) {
  return axis_index(std::vector<std::string>(axes.begin(), axes.end()), loc);
}
Value axis_size(std::initializer_list<const char*> axes, Loc loc) {
  return axis_size(std::vector<std::string>(axes.begin(), axes.end()), loc);
}

namespace {
/// An op on places, which are checked where it is inferred.
struct ThreadOp {
  Emit e;
  std::string_view name;
  Loc loc;
  ir::Op op;
  std::vector<PlaceParts> places = {};

  ThreadOp(Opcode code, std::string_view op_name, Loc l) : e(op_name, l), name(op_name), loc(l), op{.code = code} {
    if (!e.trace().kernel().has_threads())
      e.fail("stands in a kernel that is not one of mosaic_gpu", "mosaic_gpu::kernel makes one");
  }
  const Shape& add(const Place& p, const char* role, std::initializer_list<MemorySpace> spaces, bool writes) {
    const MemorySpace space = p.ref().memory_space();
    if (std::find(spaces.begin(), spaces.end(), space) == spaces.end())
      e.fail(std::string("the ") + role + " is in " + space_name(space) + ", not in " + space_name(*spaces.begin()));
    // Windows of gmem may hang over it; those of a view are inside, since at() has moved them there.
    const bool hangs = space == MemorySpace::any && !is_view(p.ref());
    places.push_back(place_parts(name, p, loc, hangs, writes));
    return places.back().shape;
  }
  void barrier(const Place& p, bool cluster) {
    if (!ir::is_barrier(p.ref().memory_space()))
      e.fail("the barrier is a Ref in " + std::string(ir::name(p.ref().memory_space())), "Barrier{} makes one");
    if (!cluster && p.ref().memory_space() == MemorySpace::cluster_barrier)
      e.fail("copies arrive at the barriers of their program, not at a ClusterBarrier", "Barrier{} makes one");
    Place one = p;
    // A Barrier without num_barriers is an array of one.
    if (const Shape& shape = p.ref().shape(); p.index().items().empty() && shape == Shape{1}) one = Place(p.ref(), 0);
    places.push_back(place_parts(name, one, loc, false, false));
    if (!places.back().shape.empty())
      e.fail("takes one barrier but the place has " + to_string(places.back().shape), "index one of them: b[i]");
  }
  void end() {
    for (const PlaceParts& p : places) op.operands.push_back(p.ref);
    for (const PlaceParts& p : places) index(p);
    e.builder().set_loc(loc);
    e.builder().append(std::move(op));
  }
  void index(const PlaceParts& p) {
    for (ir::Index i : p.index) {
      i.shift(static_cast<ptrdiff_t>(op.operands.size()));
      op.index.push_back(i);
    }
    op.operands.insert(op.operands.end(), p.starts.begin(), p.starts.end());
  }
};

void plain(Opcode code, std::string_view name, Loc loc) { ThreadOp(code, name, loc).end(); }
void counted(Opcode code, std::string_view name, int64_t n, bool read_only, Loc loc) {
  ThreadOp o(code, name, loc);
  if (n < 0) o.e.fail("n is " + std::to_string(n) + ", which is negative");
  o.op.set(Attr::count, n);
  if (read_only) o.op.set(Attr::read_only, 1);
  o.end();
}
void same_contents(ThreadOp& o) {
  const PlaceParts &from = o.places[0], &to = o.places[1];
  if (from.shape != to.shape)
    o.e.fail("the source is " + to_string(from.shape) + " but the target is " + to_string(to.shape),
             "a copy does not change shapes: index both alike");
  if (from.dtype != to.dtype)
    o.e.fail("the source holds " + std::string(tessera::name(from.dtype)) + " but the target " +
                 std::string(tessera::name(to.dtype)),
             "a copy does not convert: load, cast() and store");
}
}  // namespace

void barrier_arrive(Place barrier, Loc loc) {
  ThreadOp o(Opcode::barrier_arrive, "barrier_arrive", loc);
  o.barrier(barrier, true);
  o.end();
}
void barrier_wait(Place barrier, Loc loc) {
  ThreadOp o(Opcode::barrier_wait, "barrier_wait", loc);
  o.barrier(barrier, true);
  o.end();
}

void copy_gmem_to_smem(Place source, Place target, Place barrier, CopyToSmem params, Loc loc) {
  ThreadOp o(Opcode::copy_gmem_to_smem, "copy_gmem_to_smem", loc);
  if (params.partitioned_axis)
    throw CompileError("copy_gmem_to_smem: partitioned copies feed products of two blocks, which are Blackwell's", loc,
                       "without partitioned_axis every program gets all elements");
  o.add(source, "source", {MemorySpace::any}, false);
  o.add(target, "target", {MemorySpace::smem}, true);
  same_contents(o);
  o.barrier(barrier, false);
  if (!params.collective_axes.empty())
    o.op.set(Attr::axes, cluster_axes(o.e.trace().kernel(), params.collective_axes,
                                      [&](const std::string& what, const std::string& note) { o.e.fail(what, note); }));
  o.end();
}

void copy_smem_to_gmem(Place source, Place target, CopyToGmem params, Loc loc) {
  const auto begin = [&] {
    ThreadOp o(Opcode::copy_smem_to_gmem, "copy_smem_to_gmem", loc);
    o.add(source, "source", {MemorySpace::smem}, false);
    o.add(target, "target", {MemorySpace::any}, true);
    same_contents(o);
    if (params.reduction_op) {
      const std::string& by = *params.reduction_op;
      const auto kind = ir::opcode_from_name(by);
      if (!kind || !ir::combiner(*kind) || !ir::combiner(*kind)->atomic)
        o.e.fail("there is no reduction_op \"" + by + "\"", "add, max, min, and, or and xor are possible");
      o.op.set(Attr::kind, static_cast<int64_t>(*kind));
    }
    o.end();
  };
  if (params.predicate.absent()) begin();
  else when(params.predicate, begin, loc);
  if (params.commit_group) commit_smem_to_gmem_group(loc);
}

void commit_smem(Loc loc) { plain(Opcode::commit_smem, "commit_smem", loc); }
void commit_smem_to_gmem_group(Loc loc) { plain(Opcode::commit_smem_to_gmem_group, "commit_smem_to_gmem_group", loc); }
void wait_smem_to_gmem(int64_t n, bool wait_read_only, Loc loc) {
  counted(Opcode::wait_smem_to_gmem, "wait_smem_to_gmem", n, wait_read_only, loc);
}

Factor transpose_ref(Place ref, const std::vector<int64_t>& perm, Loc loc) {
  if (perm != std::vector<int64_t>{1, 0})
    Emit("transpose_ref", loc).fail("perm is " + to_string(Shape(perm.begin(), perm.end())) + ", not (1, 0)");
  Factor f(std::move(ref));
  f.transposed = true;
  return f;
}

void wgmma(Place acc, Factor a, Factor b, Loc loc) {
  ThreadOp o(Opcode::wgmma, "wgmma", loc);
  if (!b.place) o.e.fail("the right operand is a value", "store it to smem; the left one may be a value");
  if (a.value) {
    o.places.push_back({o.e.use(*a.value), a.value->dtype(), {}, {}, a.value->shape()});
  } else {
    o.add(*a.place, "left operand", {MemorySpace::smem}, false);
  }
  o.add(*b.place, "right operand", {MemorySpace::smem}, false);
  o.add(acc, "accumulator", {MemorySpace::accumulator}, true);
  // wgmma reads smem by one swizzle per operand, of the tiles that hold it.
  const ir::Kernel& k = o.e.trace().kernel();
  for (size_t i = a.value ? 1 : 0; i < 2; ++i) {
    const ir::ThreadTraits& how = k.type(o.places[i].ref).thread_traits();
    if (!how.tiling.empty() && (how.tiling.size() != 2 || how.tiling[0] != 8))
      o.e.fail(std::string("the ") + (i ? "right" : "left") + " operand lies in tiles of " + to_string(how.tiling) +
                   ", and wgmma reads tiles of 8 rows",
               "TilingTransform{{8, swizzle / bytes of an element}}");
    if (how.tiling.empty() != (how.swizzle == 0))
      o.e.fail(std::string("the ") + (i ? "right" : "left") + " operand has " +
                   (how.tiling.empty() ? "a swizzle but no tiling" : "a tiling but no swizzle"),
               "give both, or neither: then the compiler chooses");
  }
  if (a.transposed || b.transposed) o.op.set(Attr::transposed, {a.transposed ? 1 : 0, b.transposed ? 1 : 0});
  o.end();
}
void wgmma_wait(int64_t n, Loc loc) { counted(Opcode::wgmma_wait, "wgmma_wait", n, false, loc); }
Value wgmma_accumulator_load(const Ref& acc, int64_t wait_n, Loc loc) {
  if (wait_n != 0)
    Emit("wgmma_accumulator_load", loc)
        .fail("wait_n is " + std::to_string(wait_n) + ", and what products under way will add is not known",
              "0 waits for all");
  return tessera::load(acc, RefIndex(all, loc));
}

void set_max_registers(int64_t n, std::string_view action, Loc loc) {
  ThreadOp o(Opcode::set_max_registers, "set_max_registers", loc);
  if (action != "increase" && action != "decrease")
    o.e.fail("action is \"" + std::string(action) + "\"", "\"increase\" or \"decrease\"");
  if (n < 24 || n > 256 || n % 8 != 0) o.e.fail("n is " + std::to_string(n) + ", not a multiple of 8 from 24 to 256");
  o.op.set(Attr::count, n);
  if (action == "decrease") o.op.set(Attr::decrease, 1);
  o.end();
}

control::Values scoped::run(const std::vector<ScratchType>& types, size_t refs, const RunScopedParams& params,
                            FunctionRef<control::Operands(const std::vector<Ref>&)> body, Loc loc) {
  Emit e("run_scoped", loc);
  const ir::Kernel& k = e.trace().kernel();
  if (!k.has_threads())
    e.fail("stands in a kernel that is not one of mosaic_gpu", "tessera::run_scoped is for the others");
  const int64_t threads = *k.grid.back().size.value();
  if (!params.collective_axes.empty() && (params.collective_axes.size() != 1 || k.grid.back().name.empty() ||
                                          params.collective_axes[0] != k.grid.back().name))
    e.fail("collective_axes may only be thread_name", axes_of(k));
  std::vector<ir::Type> list;
  for (size_t i = 0; i < types.size(); ++i) {
    const std::string place = "type " + std::to_string(i);
    list.push_back(types[i].type(k, k.name + ": run_scoped: " + place));
    const MemorySpace space = list.back().space;
    if (space == MemorySpace::accumulator && !params.collective_axes.empty())
      e.fail(place + " is an accumulator, which each thread has for itself", "leave collective_axes out");
    if (space != MemorySpace::accumulator && threads > 1 && params.collective_axes.empty())
      e.fail(place + " is " + ir::to_string(list.back()) + ", which the " + std::to_string(threads) +
                 " threads of a program would share",
             "collective_axes = {thread_name}, where all of them enter; or list it in scratch_types");
    if (space == MemorySpace::any || ir::is_semaphore(space))
      e.fail(place + " is " + ir::to_string(list.back()) + ", which all programs share", "list it in scratch_types");
  }
  return scope::run_types(list, refs, body, loc);
}

void refuse(std::string_view name, std::string_view why, Loc loc) {
  const Trace* t = Trace::innermost();
  throw CompileError((t ? t->prefix() : std::string()) + std::string(name) + ": " + std::string(why), loc);
}

}  // namespace tessera::mosaic_gpu
