// The primitives of plgpu.kernel, whose programs have several threads: memory, barriers and copies that they share, and
// wgmma. Each is the function of engine/front/mosaic_gpu.h with its name.
#include "engine/front/trace.h"
#include "engine/jax/primitives.h"

namespace tessera::jax {
namespace mg = mosaic_gpu;

namespace {
int64_t known_number(const Equation& e, size_t i) {
  if (i < e.size() && e.in[i].number) return *e.in[i].number;
  e.fail("operand " + std::to_string(i) + " is no integer that is known when the kernel is traced");
}
std::vector<std::string> strings(const Node& n) {
  std::vector<std::string> all;
  for (const Node& s : n.items()) all.push_back(s.string());
  return all;
}
bool is_true(const Equation& e, const char* key) {
  const auto n = e.params.find(key);
  return n && n->boolean();
}

Values barrier_arrival(Equation& e) { return mg::barrier_arrive(place_of(e, 0, "barrier"), e.loc), Values{}; }
Values barrier_end(Equation& e) { return mg::barrier_wait(place_of(e, 0, "barrier"), e.loc), Values{}; }
Values to_smem(Equation& e) {
  const Place source = place_of(e, 0, "source"), target = place_of(e, 1, "target"), barrier = place_of(e, 2, "barrier");
  mg::copy_gmem_to_smem(source, target, barrier, {.collective_axes = strings(e.params.at("collective_axes"))}, e.loc);
  return {};
}
/// JAX says of integers whether they have a sign: smin, umax.
std::string reduction(const Equation& e, const std::string& name, DType t) {
  const bool is_signed = name == "smin" || name == "smax", is_unsigned = name == "umin" || name == "umax";
  if (!is_signed && !is_unsigned) return name;
  if (is_signed ? !is_signed_int(t) : !is_unsigned_int(t))
    e.fail("the reduction " + name + " of " + std::string(tessera::name(t)));
  return name.substr(1);
}
Values to_gmem(Equation& e) {
  mg::CopyToGmem how{.commit_group = e.params.at("commit_group").boolean()};
  if (const auto p = e.params.find("predicate")) how.predicate = e.operand(*p);
  const Place source = place_of(e, 0, "source"), target = place_of(e, 1, "target");
  if (const auto by = e.params.find("reduction_op"))
    how.reduction_op = reduction(e, by->string(), source.ref().dtype());
  mg::copy_smem_to_gmem(source, target, how, e.loc);
  return {};
}
mg::Factor factor(const Equation& e, size_t i, const char* transforms, const char* transposed) {
  if (std::holds_alternative<Value>(e.in[i].is)) return e.value(i);
  mg::Factor f(place_of(e, i, transforms));
  f.transposed = is_true(e, transposed);
  return f;
}
Values product(Equation& e) {
  const Place accumulator = place_of(e, 0, "accumulator");
  const mg::Factor a = factor(e, 1, "a", "a_transposed"), b = factor(e, 2, "b", "b_transposed");
  mg::wgmma(accumulator, a, b, e.loc);
  return {};
}
Values accumulator(Equation& e) {
  const auto n = e.params.find("wait_n");
  return {mg::wgmma_accumulator_load(e.ref(0), n ? n->integer() : 0, e.loc)};
}
Values set_accumulator(Equation& e) {
  store(e.ref(0), RefIndex(all, e.loc), e.x(1));
  return e.num_out() == 0 ? Values{} : Values{e.value(1)};  // a result that nothing reads
}
Values registers(Equation& e) {
  return mg::set_max_registers(known_number(e, 0), e.params.at("action").string(), e.loc), Values{};
}

/// A kernel's jaxpr in the pipeline that its call becomes.
Values called(Equation& e) {
  const Node places = e.params.at("transforms"), ids = e.params.at("program_ids");
  Entries arguments;
  if (places.size() != e.size()) places.fail("are not as many as the operands");
  for (size_t i = 0; i < e.size(); ++i) arguments.push_back({part_of(e, i, places.at(i))});
  std::vector<Value> positions;
  int64_t axis = 0;  // of the grid: those that the pipeline does not step through
  for (const Node& n : ids.items())
    positions.push_back(n.is_null() ? program_id(axis++, e.loc) : value_of(e.entry(n), e));
  std::swap(e.import.program_ids, positions);
  run(e.import, e.params.at("jaxpr"), arguments, e.loc);
  std::swap(e.import.program_ids, positions);
  return {};
}

/// The shape of memory whose elements JAX keeps in tiles: the last dims are those of a tile, and before them how many.
Shape untiled(const Node& n, const Shape& kept, const Shape& tile) {
  const size_t rank = tile.size();
  if (kept.size() < 2 * rank) n.fail("has tiles of " + to_string(tile) + " in memory of " + to_string(kept));
  Shape shape(kept.begin(), kept.end() - static_cast<std::ptrdiff_t>(rank));
  for (size_t i = 0; i < rank; ++i) shape[shape.size() - rank + i] *= tile[i];
  return shape;
}
}  // namespace

mg::ScratchType thread_scratch(const Node& type, const std::optional<Node>& more, Loc loc) {
  const TypeForm t = type_form(type);
  const std::string space = t.space.value_or("");
  if (space == "barrier" || space == "cluster_barrier") {
    if (!more) type.fail("is a barrier without its arrivals");
    const int64_t arrivals = more->at("num_arrivals").integer(1);
    const bool tensor_core = more->at("orders_tensor_core").boolean();
    if (space == "barrier") return {mg::Barrier{arrivals, t.shape, tensor_core}, loc};
    return {mg::ClusterBarrier{strings(more->at("collective_axes")), t.shape, arrivals, tensor_core}, loc};
  }
  if (space == "accumulator") return mg::ACC(t.shape, t.dtype, loc);
  if (space == "any") return mg::GMEM(t.shape, t.dtype, loc);
  if (space != "vmem") return {scratch_shape(type), loc};
  Shape shape = t.shape;
  std::vector<mg::Transform> transforms;
  if (more)
    for (const Node& n : more->at("transforms").items()) {
      if (const auto tile = n.find("untile")) {
        shape = untiled(type, shape, tile->shape());
        transforms.emplace_back(mg::TilingTransform{tile->shape()});
      } else {
        transforms.emplace_back(mg::SwizzleTransform{n.at("unswizzle").integer()});
      }
    }
  return mg::SMEM(shape, t.dtype, std::move(transforms), loc);
}

Values scoped_by_threads(Equation& e) {
  const Node body = e.params.at("jaxpr");
  const auto inside = [&](const std::vector<Ref>& refs) {
    Entries arguments = e.in;
    for (const Ref& r : refs) arguments.push_back({r});
    control::Operands out;
    for (const Entry& x : run(e.import, body, arguments, e.loc)) out.emplace_back(value_of(x, e), e.loc);
    return out;
  };
  if (const auto own = e.import.scratch.find(e.node.path()); own != e.import.scratch.end()) {
    Values results;
    for (const Operand& o : inside(own->second)) results.push_back(*o.value());
    return results;
  }
  const std::vector<Node> args = body.at("args").items();
  const auto more = e.params.find("types");
  std::vector<mg::ScratchType> types;
  for (size_t i = e.size(); i < args.size(); ++i)
    types.push_back(thread_scratch(args[i], more ? std::optional(more->at(i - e.size())) : std::nullopt, e.loc));
  const auto axes = e.params.find("collective_axes");
  return mg::scoped::run(types, types.size(), {axes ? strings(*axes) : std::vector<std::string>{}}, inside, e.loc);
}

const std::vector<Row>& thread_rows() {
  static const std::vector<Row> rows{
      {"barrier_arrive", 1, barrier_arrival},
      {"barrier_wait", 1, barrier_end},
      {"commit_group", 0, [](Equation& e) { return mg::commit_smem_to_gmem_group(e.loc), Values{}; }},
      {"commit_smem", 0, [](Equation& e) { return mg::commit_smem(e.loc), Values{}; }},
      {"copy_gmem_to_smem", 3, to_smem},
      {"copy_smem_to_gmem", 2, to_gmem},
      {"jaxpr_call", -1, called},
      {"set_max_registers", 1, registers},
      {"wait_smem_to_gmem", 1,
       [](Equation& e) {
         return mg::wait_smem_to_gmem(known_number(e, 0), is_true(e, "wait_read_only"), e.loc), Values{};
       }},
      {"wgmma_accumulator_deref", 1, accumulator},
      {"wgmma_accumulator_store", 2, set_accumulator},
      {"wgmma_ref", 3, product},
      {"wgmma_wait", 1, [](Equation& e) { return mg::wgmma_wait(known_number(e, 0), e.loc), Values{}; }},
  };
  return rows;
}

}  // namespace tessera::jax
