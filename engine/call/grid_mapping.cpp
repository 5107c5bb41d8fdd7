// What holds of every GridMapping:
//   1. grid_names is empty or has one name per grid axis; grid_parallel has one entry per axis; static sizes are not
//      negative
//   2. vmapped_dims are axes of the grid, increasing
//   3. there are num_inputs + num_outputs block mappings and num_index_operands index operands
//   4. index_map_avals is i32[] per grid axis, then the Ref of each index operand
//   5. each block mapping but a whole one has one block dim per array dim, sizes positive (0 where the array has none),
//      squeezed sizes 1, and an index map that takes index_map_avals (those of index operands: the i32[] alone) and
//      yields one i32[] per block dim, two per bounded one
//   6. the alias of an output is one of the num_inputs inputs, counted from the first index operand; inputs have none
//   7. scratch_avals are Refs in any, vmem or smem, or semaphores of i32, with sizes not negative
#include "engine/call/grid_mapping.h"

#include <algorithm>
#include <ostream>

#include "engine/base/plural.h"
#include "engine/front/trace.h"
#include "engine/ir/copy.h"
#include "engine/ir/text.h"

namespace tessera {
using ir::BlockMapping;
using ir::Opcode;
using ir::Type;

namespace {

std::string axes(size_t n) { return std::to_string(n) + (n == 1 ? " axis" : " axes"); }

struct Bad {  // one broken invariant per call
  std::string text;
  void operator()(const std::string& what) { text += "\n  " + what; }
};
}  // namespace

int GridMapping::num_dynamic_grid_bounds() const {
  return static_cast<int>(std::count_if(grid.begin(), grid.end(), [](const Extent& e) { return !e.is_static(); }));
}
Shape GridMapping::static_grid() const {
  Shape s;
  for (const Extent& e : grid) {
    if (!e.is_static())
      throw SpecError(index_maps.name + ": the grid " + to_string(grid) + " has no static size: " + to_string(e) +
                          " arrives with the call",
                      index_maps.loc);
    s.push_back(*e.value());
  }
  return s;
}
namespace {
void append_shapes(std::vector<ShapeDtype>& s, const std::vector<BlockMapping>& b, int from, int to) {
  for (int i = from; i < to; ++i) s.push_back({b[static_cast<size_t>(i)].array_shape, b[static_cast<size_t>(i)].dtype});
}
/// The type of a Ref to a block.
Type ref_type(const BlockMapping& b, MemorySpace whole) {
  Type t = Type::ref(b.dtype, {}, b.is_whole() ? whole : b.space);
  if (b.is_whole())
    for (const Extent& e : b.array_shape) t.shape.push_back(e.value().value_or(-1));
  else
    for (const ir::BlockDim& d : b.block())
      if (d.seen()) t.shape.push_back(d.size());
  return t;
}
}  // namespace
std::vector<ShapeDtype> GridMapping::in_shapes() const {
  std::vector<ShapeDtype> s;
  append_shapes(s, index_operands, 0, num_index_operands);
  append_shapes(s, block_mappings, 0, num_inputs);
  return s;
}
std::vector<ShapeDtype> GridMapping::out_shapes() const {
  std::vector<ShapeDtype> s;
  append_shapes(s, block_mappings, num_inputs, num_inputs + num_outputs);
  return s;
}
std::vector<BlockMapping> GridMapping::block_mappings_output() const {
  return {block_mappings.begin() + num_inputs, block_mappings.end()};
}

GridMapping GridMapping::replace(FunctionRef<void(GridMapping&)> change) const {
  GridMapping m = *this;
  change(m);
  m.check_invariants();
  return m;
}

void GridMapping::check_invariants() const {
  Bad bad;
  const size_t rank = grid.size();
  if (!grid_names.empty() && grid_names.size() != rank)
    bad("the grid has " + axes(rank) + " but grid_names has " + std::to_string(grid_names.size()));
  if (grid_parallel.size() != rank)
    bad("the grid has " + axes(rank) + " but grid_parallel has " + std::to_string(grid_parallel.size()));
  for (size_t i = 0; i < rank; ++i)
    if (grid[i].is_static() && *grid[i].value() < 0)
      bad("grid[" + std::to_string(i) + "] is " + to_string(grid[i]) + ", which is negative");
  for (size_t i = 0; i < vmapped_dims.size(); ++i)
    if (vmapped_dims[i] < 0 || vmapped_dims[i] >= static_cast<int>(rank) ||
        (i && vmapped_dims[i] <= vmapped_dims[i - 1]))
      bad("vmapped_dims[" + std::to_string(i) + "] is " + std::to_string(vmapped_dims[i]) +
          ", which is no later axis of the grid");
  if (num_inputs < 0 || num_outputs < 0 || num_index_operands < 0 ||
      static_cast<int>(block_mappings.size()) != num_inputs + num_outputs)
    bad("there are " + plural(block_mappings.size(), "block mapping") + " but " + std::to_string(num_inputs) +
        " inputs and " + std::to_string(num_outputs) + " outputs");
  if (num_index_operands < 0 || static_cast<int>(index_operands.size()) != num_index_operands)
    bad("there are " + plural(index_operands.size(), "index operand") + " but num_index_operands is " +
        std::to_string(num_index_operands));
  const std::vector<Type> ids(rank, Type::array(DType::i32));
  std::vector<Type> wanted = ids;
  for (const BlockMapping& b : index_operands) wanted.push_back(ref_type(b, MemorySpace::smem));
  if (index_map_avals != wanted)
    bad("index_map_avals is not i32[] for each of " + std::to_string(rank) + " grid axes and a Ref for each of " +
        std::to_string(num_index_operands) + " index operands");
  const auto check = [&](const BlockMapping& b, const std::string& list, size_t i, const std::vector<Type>& avals) {
    const std::string place = list + "[" + std::to_string(i) + "] (" + b.origin + "): ";
    if (b.is_whole()) return;
    if (b.block().size() != b.array_shape.size())
      bad(place + plural(b.block().size(), "block dim") + " but the array " + to_string(b.array_shape) + " has " +
          std::to_string(b.array_shape.size()));
    size_t results = 0;
    for (size_t d = 0; d < b.block().size(); ++d) {
      results += b.block()[d].results();
      // what vmap makes of a whole array
      const bool none = d < b.array_shape.size() && b.block()[d].size() == 0 && b.array_shape[d] == Extent(0);
      if (b.block()[d].size() < 1 && !none)
        bad(place + "block dim " + std::to_string(d) + " has size " + std::to_string(b.block()[d].size()));
    }
    if (b.index_map().index >= index_maps.regions.size()) return bad(place + "there is no index map");
    const ir::Region& r = index_maps.region(b.index_map());
    bool takes = r.args.size() == avals.size();
    for (size_t a = 0; takes && a < r.args.size(); ++a) takes = index_maps.type(r.args[a]) == avals[a];
    if (!takes) bad(place + "the index map does not take index_map_avals");
    const bool ends = !r.ops.empty() && index_maps.op(r.ops.back()).code == Opcode::yield;
    if (!ends || index_maps.op(r.ops.back()).operands.size() != results)
      return bad(place + "the index map does not yield one index per block dim" +
                 (results == b.block().size() ? "" : ", and a size per bounded one"));
    for (ir::Value v : index_maps.op(r.ops.back()).operands)
      if (index_maps.type(v) != Type::array(DType::i32))
        bad(place + "the index map yields " + to_string(index_maps.type(v)) + ", not i32[]");
  };
  for (size_t i = 0; i < index_operands.size(); ++i) check(index_operands[i], "index_operands", i, ids);
  for (size_t i = 0; i < block_mappings.size(); ++i) check(block_mappings[i], "block_mappings", i, index_map_avals);
  for (size_t i = 0; i < block_mappings.size(); ++i)
    if (const int a = block_mappings[i].alias;
        a != -1 && (static_cast<int>(i) < num_inputs || a < num_index_operands || a >= num_index_operands + num_inputs))
      bad("block_mappings[" + std::to_string(i) + "] (" + block_mappings[i].origin + "): alias " + std::to_string(a) +
          " of " + std::to_string(num_inputs) + " inputs");
  for (size_t i = 0; i < scratch_avals.size(); ++i) {
    const Type& t = scratch_avals[i];
    if (!t.is_ref || !ir::is_for_scratch(t.space) || (ir::is_semaphore(t.space) && t.dtype != DType::i32) ||
        std::any_of(t.shape.begin(), t.shape.end(), [](int64_t d) { return d < 0; }))
      bad("scratch_avals[" + std::to_string(i) + "] is " + to_string(t) +
          ", no Ref in any, vmem, smem or a semaphore's space");
  }
  if (!bad.text.empty())
    throw InternalError(index_maps.name + ": the GridMapping breaks its invariants:" + bad.text, index_maps.loc);
}

ir::Kernel GridMapping::to_kernel(std::string name, Loc loc) const {
  ir::Kernel k;
  k.name = std::move(name);
  k.loc = loc;
  for (size_t i = 0; i < grid.size(); ++i) {
    const bool vmapped = std::find(vmapped_dims.begin(), vmapped_dims.end(), static_cast<int>(i)) != vmapped_dims.end();
    k.grid.push_back({grid[i], grid_names.empty() ? "" : grid_names[i], grid_parallel[i], vmapped});
  }
  k.blocks = index_operands;
  k.blocks.insert(k.blocks.end(), block_mappings.begin(), block_mappings.end());
  k.call.debug = debug;
  k.num_prefetch = num_index_operands;
  k.num_inputs = num_index_operands + num_inputs;
  k.scratch = scratch_avals;
  for (BlockMapping& b : k.blocks)
    if (!b.is_whole()) b.index_map() = ir::Copier(index_maps, k).copy(b.index_map());
  std::vector<Type> args;
  for (size_t i = 0; i < k.blocks.size(); ++i) args.push_back(k.block_ref_type(static_cast<int>(i)));
  args.insert(args.end(), scratch_avals.begin(), scratch_avals.end());
  k.body = ir::Builder(k).new_region(args);
  return k;
}

GridMapping grid_mapping(const ir::Kernel& k) {
  GridMapping m;
  bool named = false;
  for (size_t i = 0; i < k.grid.size(); ++i) {
    m.grid.push_back(k.grid[i].size);
    m.grid_names.push_back(k.grid[i].name);
    named |= !k.grid[i].name.empty();
    m.grid_parallel.push_back(k.grid[i].parallel);
    if (k.grid[i].vmapped) m.vmapped_dims.push_back(static_cast<int>(i));
  }
  if (!named) m.grid_names.clear();
  m.num_index_operands = k.num_prefetch;
  m.index_operands.assign(k.blocks.begin(), k.blocks.begin() + k.num_prefetch);
  m.block_mappings.assign(k.blocks.begin() + k.num_prefetch, k.blocks.end());
  m.index_map_avals.assign(k.grid.size(), Type::array(DType::i32));
  for (int i = 0; i < k.num_prefetch; ++i) m.index_map_avals.push_back(k.block_ref_type(i));
  m.scratch_avals = k.scratch;
  m.num_inputs = k.num_inputs - k.num_prefetch;
  m.num_outputs = k.num_outputs();
  m.debug = k.call.debug;
  m.index_maps.name = k.name;
  m.index_maps.loc = k.loc;
  m.index_maps.grid = k.grid;
  for (auto* list : {&m.index_operands, &m.block_mappings})
    for (BlockMapping& b : *list)
      if (!b.is_whole()) b.index_map() = ir::Copier(k, m.index_maps).copy(b.index_map());
  m.check_invariants();
  return m;
}

// -- from specs

std::string to_string(const std::vector<BlockDim>& block) {
  std::string s = "(";
  for (size_t i = 0; i < block.size(); ++i) {
    struct {
      std::string operator()(Blocked b) const { return std::to_string(b.size); }
      std::string operator()(Squeezed) const { return "squeezed"; }
      std::string operator()(const Element& e) const {
        const auto [low, high] = e.padding;
        return "Element(" + std::to_string(e.size) +
               (low || high ? ", padding=(" + std::to_string(low) + ", " + std::to_string(high) + ")" : "") + ")";
      }
      std::string operator()(BoundedSlice b) const { return "BoundedSlice(" + std::to_string(b.size) + ")"; }
      std::string operator()(const Halo& h) const {
        const auto [low, high] = h.around;
        return "Halo(" + std::to_string(h.size) + ", " +
               (low == high ? std::to_string(low) : "{" + std::to_string(low) + ", " + std::to_string(high) + "}") +
               ", Edge::" + std::string(ir::name(h.edge)) + ")";
      }
      std::string operator()(const Extent& e) const { return to_string(e); }
    } print;
    s += (i ? ", " : "") + std::visit(print, block[i].kind());
  }
  return s + (block.size() == 1 ? ",)" : ")");
}

namespace {
class Maker {
 public:
  explicit Maker(const GridMappingRequest& r) : r_(r) {}

  GridMapping run() {
    GridMapping m;
    bool named = false;
    for (size_t i = 0; i < r_.grid.size(); ++i) {
      const GridSize& g = r_.grid[i];
      m.grid.push_back(g.size());
      m.grid_names.push_back(g.name());
      named |= !g.name().empty();
      m.grid_parallel.push_back(i < r_.parallel.size() && r_.parallel[i]);
      m.index_maps.grid.push_back({g.size(), g.name(), m.grid_parallel.back(), false});
    }
    if (!named) m.grid_names.clear();
    m.index_map_avals.assign(m.grid.size(), Type::array(DType::i32));
    const auto prefetch = static_cast<size_t>(r_.num_scalar_prefetch);
    m.num_index_operands = r_.num_scalar_prefetch;
    m.num_inputs = static_cast<int>(r_.inputs.size()) - m.num_index_operands;
    m.num_outputs = static_cast<int>(r_.outputs.size());
    m.debug = r_.debug;
    m.index_maps.name = r_.name;
    m.index_maps.loc = r_.loc;
    for (const ScratchShape& s : r_.scratch) m.scratch_avals.push_back(Type::ref(s.dtype, s.shape, s.memory_space));
    for (size_t i = 0; i < prefetch; ++i) index_operand(m, "scalar_prefetch[" + std::to_string(i) + "]", r_.inputs[i]);
    for (size_t i = prefetch; i < r_.inputs.size(); ++i)
      block(m, "in_specs[" + std::to_string(i - prefetch) + "]", r_.inputs[i], r_.in_specs.at(i - prefetch));
    for (size_t i = 0; i < r_.outputs.size(); ++i)
      block(m, "out_specs[" + std::to_string(i) + "]", r_.outputs[i], r_.out_specs.at(i));
    for (const auto& [input, output] : r_.aliases) alias(m, input, output);
    m.check_invariants();
    return m;
  }

 private:
  struct Place {
    const std::string& kernel;
    const std::string& origin;
    Loc loc;
    [[noreturn]] void fail(const std::string& what, const std::string& note = {}) const {
      throw SpecError(kernel + ": " + origin + ": " + what, loc, note);
    }
  };

  void alias(GridMapping& m, int input, int output) {
    const auto fail = [&](const std::string& what, const std::string& note = {}) {
      throw SpecError(r_.name + ": input_output_aliases: " + what, r_.loc, note);
    };
    const auto show = [](const ShapeDtype& s) { return std::string(name(s.dtype)) + to_string(s.shape); };
    const std::string place = "input " + std::to_string(input);
    if (input < 0 || input >= static_cast<int>(r_.inputs.size()))
      fail(place + " does not exist: the call has " + plural(r_.inputs.size(), "argument"));
    if (input < r_.num_scalar_prefetch)
      fail(place + " is a scalar-prefetch operand, which is only read",
           "inputs are counted from the first scalar-prefetch operand");
    const ShapeDtype &from = r_.inputs[static_cast<size_t>(input)], &to = r_.outputs[static_cast<size_t>(output)];
    if (from.dtype != to.dtype || from.shape != to.shape)
      fail(place + " is " + show(from) + " but output " + std::to_string(output) + " is " + show(to),
           "an output has the shape and dtype of the input that it is aliased to");
    const BlockMapping& b = m.block_mappings[static_cast<size_t>(input - m.num_index_operands)];
    if (b.is_by_value())
      fail(place + " is " + b.origin + ", which is passed by value and has no memory", "leave the alias out");
    if (!b.is_whole() &&
        std::any_of(b.block().begin(), b.block().end(), [](const ir::BlockDim& d) { return d.halo(); }))
      fail(place + " is " + b.origin + ", whose halo reads what other programs may have stored already",
           "leave the alias out");
    m.block_mappings[static_cast<size_t>(m.num_inputs + output)].alias = input;
  }

  void index_operand(GridMapping& m, const std::string& origin, const ShapeDtype& array) {
    for (const Extent& e : array.shape)
      if (!e.is_static())
        Place{r_.name, origin, r_.loc}.fail("a scalar-prefetch operand needs static extents, but the array is " +
                                            to_string(array.shape));
    BlockMapping b;
    b.origin = origin;
    b.dtype = array.dtype;
    b.array_shape = array.shape;
    b.what = BlockMapping::Whole{};
    b.space = MemorySpace::smem;
    b.loc = r_.loc;
    m.index_map_avals.push_back(ref_type(b, MemorySpace::smem));
    m.index_operands.push_back(std::move(b));
  }

  void block(GridMapping& m, const std::string& origin, const ShapeDtype& array, const BlockSpec& spec) {
    const Place place{r_.name, origin, spec.loc ? spec.loc : r_.loc};
    BlockMapping b;
    b.origin = origin;
    b.dtype = array.dtype;
    b.array_shape = array.shape;
    b.space = spec.memory_space;
    b.loc = place.loc;
    if (!ir::is_for_scratch(spec.memory_space) || ir::is_semaphore(spec.memory_space))
      place.fail("memory space " + std::string(name(spec.memory_space)) + " is not one that a kernel can ask for",
                 "any, vmem and smem are");
    if (spec.value) return by_value(m, place, std::move(b), array, *spec.value);
    if (spec.pipeline_mode) b.buffering = buffering(place, *spec.pipeline_mode, origin.starts_with("out_specs"));
    const auto& dims = spec.block_shape.dims();
    const bool empty =
        std::any_of(array.shape.begin(), array.shape.end(), [](const Extent& e) { return e == Extent(0); });
    // A block dim of size 0 has no block index: where the block is the whole of an array without elements, no index map
    // is needed.
    if (spec.whole || (!dims && !spec.index_map.given() && (spec.memory_space == MemorySpace::any || empty))) {
      b.what = BlockMapping::Whole{};
      b.space = MemorySpace::any;
    } else {
      if (dims) {
        if (dims->size() != array.shape.size())
          place.fail("block shape " + to_string(*dims) + " has " + plural(dims->size(), "dim") + " but the array " +
                         to_string(array.shape) + " has " + std::to_string(array.shape.size()),
                     "give one block size per array dim, or ts::squeezed for a dim that the kernel should not see");
        for (size_t d = 0; d < dims->size(); ++d) b.block().push_back(block_dim(place, *dims, d));
      } else {
        for (const Extent& e : array.shape) {
          if (!e.is_static())
            place.fail("without a block shape the block is the whole array, but the array " + to_string(array.shape) +
                           " has run-time sizes",
                       "give a static block shape");
          if (*e.value() == 0)
            place.fail("a block of the whole array " + to_string(array.shape) + " has no elements to index",
                       "leave the index map out");
          b.block().push_back({ir::BlockDim::Blocked{*e.value()}});
        }
      }
      b.index_map() = index_map(m, place, b, spec, dims ? to_string(*dims) : to_string(array.shape));
    }
    m.block_mappings.push_back(std::move(b));
  }

  static void by_value(GridMapping& m, const Place& place, BlockMapping b, const ShapeDtype& array, DType dtype) {
    if (place.origin.starts_with("out_specs"))
      place.fail("by_value is for inputs, but this is an output", "give the output a BlockSpec");
    if (!array.shape.empty() || array.dtype != dtype)
      place.fail("by_value of " + std::string(name(dtype)) + " takes " + std::string(name(dtype)) +
                     "() but the argument is " + std::string(name(array.dtype)) + to_string(array.shape),
                 "give a number, or for an array a BlockSpec");
    b.what = BlockMapping::ByValue{};
    b.space = MemorySpace::smem;
    m.block_mappings.push_back(std::move(b));
  }

  static ir::Buffering buffering(const Place& place, const Buffered& mode, bool output) {
    if (mode.count < 1)
      place.fail("pipeline_mode has a buffer count of " + std::to_string(mode.count),
                 "give at least 1, or leave pipeline_mode out");
    if (mode.use_lookahead && output)
      place.fail("pipeline_mode: an output cannot look ahead", "use_lookahead is for inputs");
    ir::Buffering b{mode.count, mode.use_lookahead, ir::Buffering::Revisit::unsaid};
    if (mode.revisit)
      b.revisit = *mode.revisit == RevisitMode::any ? ir::Buffering::Revisit::any : ir::Buffering::Revisit::immediate;
    return b;
  }

  static ir::BlockDim block_dim(const Place& place, const std::vector<BlockDim>& dims, size_t d) {
    const std::string where = "block shape " + to_string(dims) + ": ";
    const auto positive = [&](int64_t size) {
      if (size < 1)
        place.fail(where + "size " + std::to_string(size) + " of dim " + std::to_string(d) + " is not positive");
      return size;
    };
    const auto check_around = [&](const std::string& what, int64_t low, int64_t high, const char* note) {
      constexpr int64_t kMost = int64_t{1} << 30;  // positions are i32
      if (low < 0 || high < 0 || low > kMost || high > kMost)
        place.fail(where + what + " (" + std::to_string(low) + ", " + std::to_string(high) + ") of dim " +
                       std::to_string(d) + (low < 0 || high < 0 ? " is negative" : " is more than 1073741824"),
                   note);
    };
    const BlockDim::Kind& kind = dims[d].kind();
    if (const auto* b = std::get_if<Blocked>(&kind)) return {ir::BlockDim::Blocked{positive(b->size)}};
    if (std::holds_alternative<Squeezed>(kind)) return {ir::BlockDim::Squeezed{}};
    if (const auto* e = std::get_if<Element>(&kind)) {
      const auto [low, high] = e->padding;
      check_around("padding", low, high, "padding counts the elements before and behind the array");
      return {ir::BlockDim::Element{positive(e->size), low, high}};
    }
    if (const auto* h = std::get_if<Halo>(&kind)) {
      const auto [low, high] = h->around;
      check_around("halo", low, high, "a halo counts the elements before and behind the block");
      if (place.origin.starts_with("out_specs"))
        place.fail(where + "dim " + std::to_string(d) + " has a halo, which is for inputs",
                   "what a program stores is its own: give the output blocks of " + std::to_string(h->size));
      return {ir::BlockDim::Halo{positive(h->size), low, high, h->edge}};
    }
    if (const auto* s = std::get_if<BoundedSlice>(&kind)) return {ir::BlockDim::BoundedSlice{positive(s->size)}};
    const Extent& e = std::get<Extent>(kind);
    if (!e.is_static())
      place.fail(where + "size " + to_string(e) + " of dim " + std::to_string(d) + " is known at run time only",
                 "blocks have static sizes; arrays and the grid may have run-time ones");
    return {ir::BlockDim::Blocked{positive(*e.value())}};
  }

  ir::RegionId index_map(GridMapping& m, const Place& place, const BlockMapping& b, const BlockSpec& spec,
                         const std::string& block_text) {
    ir::Kernel& k = m.index_maps;
    Trace trace(k);
    const ir::RegionId r = trace.builder().new_region(m.index_map_avals);
    const Trace::Region scope(trace, r);
    const Trace::IndexMapPart part(trace, b.origin);
    trace.builder().set_loc(place.loc);
    std::vector<ir::Value> out;
    if (!spec.index_map.given()) {
      for (size_t d = 0; d < b.block().size(); ++d) {
        if (b.block()[d].is_bounded())
          place.fail("dim " + std::to_string(d) + " of the block shape " + block_text +
                         " is a BoundedSlice, but there is no index map",
                     "its index map returns ts::ds(start, size) there");
        out.push_back(trace.builder().constant_int(DType::i32, 0));
      }
    } else {
      if (spec.index_map.arity() != static_cast<int>(m.grid.size()))
        place.fail("the index map takes " + plural(static_cast<size_t>(spec.index_map.arity()), "program id") +
                       " but the grid " + to_string(m.grid) + " has " + axes(m.grid.size()),
                   "an index map takes one Value per grid axis");
      if (const int refs = spec.index_map.num_refs(); refs != 0 && refs != m.num_index_operands)
        place.fail("the index map takes " + plural(static_cast<size_t>(refs), "Ref") + " but num_scalar_prefetch is " +
                       std::to_string(m.num_index_operands),
                   "after its program ids an index map takes one Ref per scalar-prefetch operand, or none");
      std::vector<Value> ids;
      std::vector<Ref> refs;
      for (size_t i = 0; i < m.grid.size(); ++i) ids.push_back(trace.argument(r, i));
      for (size_t i = m.grid.size(); i < m.index_map_avals.size(); ++i) refs.push_back(trace.ref_argument(r, i));
      const Indices indices = spec.index_map(ids, refs);
      if (indices.values.size() != b.block().size())
        place.fail("the index map returns " + std::to_string(indices.values.size()) +
                       (indices.values.size() == 1 ? " index" : " indices") + " but the block shape " + block_text +
                       " has " + plural(b.block().size(), "dim"),
                   "return ts::Indices with one index per block dim, squeezed ones too");
      for (size_t d = 0; d < indices.values.size(); ++d) {
        const BlockIndex& x = indices.values[d];
        const Loc loc = x.start.loc() ? x.start.loc() : place.loc;
        const std::string result = "result " + std::to_string(d);
        const bool bounded = b.block()[d].is_bounded();
        if (bounded == x.size.absent())
          Place{place.kernel, place.origin, loc}.fail(
              "the index map's " + result + (bounded ? " is one index, but dim " : " is a slice, but dim ") +
                  std::to_string(d) + " of the block shape " + block_text +
                  (bounded ? " is a BoundedSlice" : " is none that is sliced"),
              bounded ? "return ts::ds(start, size) there" : "a slice is for a BoundedSlice dim");
        if (x.stepped)
          Place{place.kernel, place.origin, x.stepped}.fail("the index map's " + result + " is a slice with a step",
                                                            "a BoundedSlice takes adjacent elements");
        out.push_back(Emit(result, loc).index_scalar(x.start, bounded ? "the slice's start" : "the block index"));
        if (bounded) out.push_back(Emit(result, loc).index_scalar(x.size, "the slice's size"));
      }
    }
    trace.builder().set_loc(place.loc);
    trace.builder().yield(std::move(out));
    return r;
  }

  const GridMappingRequest& r_;
};
}  // namespace

GridMapping make_grid_mapping(const GridMappingRequest& r) { return Maker(r).run(); }

// -- printing

namespace {
/// An index map's value as an expression: i0, i1, ... are the program ids, s0, s1, ... the scalar-prefetch Refs.
std::string expression(const ir::Kernel& k, ir::Value v) {
  if (const auto c = ir::constant_int(k, v)) return std::to_string(*c);
  const ir::Op* op = k.def(v);
  if (!op)
    return k.type(v).is_ref ? "s" + std::to_string(k.value(v).number - k.grid.size())
                            : "i" + std::to_string(k.value(v).number);
  if (op->code == Opcode::load && !op->has_mask()) {
    std::string s = expression(k, op->operands[0]) + "[";
    for (size_t d = 0; d < op->index.size(); ++d)
      s += (d ? ", " : "") + (op->index[d].is_static() ? std::to_string(op->index[d].constant())
                                                       : expression(k, op->operand_of(op->index[d])));
    return s + "]";
  }
  std::string s = std::string(ir::name(op->code)) + "(";
  if (op->has(ir::Attr::axis)) s += "axis " + std::to_string(op->attr(ir::Attr::axis));
  for (size_t i = 0; i < op->operands.size(); ++i) s += (i ? ", " : "") + expression(k, op->operands[i]);
  return s + ")";
}
}  // namespace

std::ostream& operator<<(std::ostream& out, const GridMapping& m) {
  out << "grid (";
  for (size_t i = 0; i < m.grid.size(); ++i) {
    out << (i ? ", " : "");
    if (!m.grid_names.empty() && !m.grid_names[i].empty()) out << m.grid_names[i] << ": ";
    out << to_string(m.grid[i]);
    if (m.grid_parallel[i]) out << " parallel";
    if (std::find(m.vmapped_dims.begin(), m.vmapped_dims.end(), static_cast<int>(i)) != m.vmapped_dims.end())
      out << " vmapped";
  }
  out << (m.grid.size() == 1 ? ",)\n" : ")\n");
  const auto print = [&](const BlockMapping& b, MemorySpace whole) {
    out << b.origin << ": " << name(b.dtype) << to_string(b.array_shape);
    if (b.alias >= 0) out << " alias " << b.alias;
    if (b.is_by_value()) {
      out << " by value\n";
      return;
    }
    if (b.is_whole()) {
      out << " whole, in " << name(whole) << "\n";
      return;
    }
    out << " in blocks (";
    for (size_t d = 0; d < b.block().size(); ++d) out << (d ? ", " : "") << to_string(b.block()[d]);
    out << (b.block().size() == 1 ? ",)" : ")") << ", in " << name(b.space);
    if (b.buffering.count) out << ", buffered " << b.buffering.count;
    out << ", index map (";
    const ir::Region& r = m.index_maps.region(b.index_map());
    for (size_t i = 0; i < r.args.size(); ++i) out << (i ? ", " : "") << expression(m.index_maps, r.args[i]);
    out << ") -> (";
    const auto& results = m.index_maps.op(r.ops.back()).operands;
    for (size_t i = 0; i < results.size(); ++i) out << (i ? ", " : "") << expression(m.index_maps, results[i]);
    out << ")\n";
  };
  for (const BlockMapping& b : m.index_operands) print(b, MemorySpace::smem);
  for (const BlockMapping& b : m.block_mappings) print(b, MemorySpace::any);
  for (size_t i = 0; i < m.scratch_avals.size(); ++i)
    out << "scratch[" << i << "]: " << to_string(m.scratch_avals[i]) << "\n";
  return out;
}

namespace ir {
std::ostream& operator<<(std::ostream& out, const Kernel& k) { return out << print(k); }
}  // namespace ir

}  // namespace tessera
