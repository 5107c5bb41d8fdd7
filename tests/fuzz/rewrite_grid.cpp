// Rewritings of the grid: further axes, axes merged, split, reversed and swapped.
#include <algorithm>

#include "codegen/compile.h"
#include "engine/interpreter/interpreter.h"
#include "tests/fuzz/rewriter.h"

namespace tessera::fuzz {
using ir::Attr, ir::GridAxis, ir::Op, ir::Opcode, ir::RegionId, ir::Type, ir::Value;

namespace {
// From the new program ids the old ones.
using OldIds = std::function<std::vector<Value>(Spot&, const std::vector<Value>&)>;

bool has_code(const Rewriter& e, std::initializer_list<Opcode> codes) {
  for (const Spot& s : e.spots(true))
    for (const Opcode code : codes)
      if (e.k.op(e.k.region(s.region).ops[s.at]).code == code) return true;
  return false;
}

bool is_plain_grid(const Rewriter& e) {
  return std::all_of(e.k.grid.begin(), e.k.grid.end(),
                     [](const GridAxis& a) { return !a.vmapped && a.role == GridAxis::Role::grid; });
}

Value size_of(Rewriter& e, Spot& s, const Extent& size) {
  if (e.in_map(s.region)) return e.number(s, size.eval(e.c.dims));
  Op op{.code = Opcode::size};
  op.set(Attr::index, static_cast<int64_t>(e.k.sizes.size()));
  e.k.sizes.push_back(size);
  return e.one(s, std::move(op));
}

// Another grid, whose program ids say what the old ones are.
void regrid(Rewriter& e, const std::vector<GridAxis>& grid, const OldIds& old) {
  ir::Kernel& k = e.k;
  const std::vector<GridAxis> before = k.grid;
  if (e.random.chance(0.7)) e.prefetch();
  k.grid = grid;
  const size_t first = k.ops.size();
  for (ir::BlockMapping& b : k.blocks) {
    if (b.is_whole()) continue;
    std::vector<Value> args = k.region(b.index_map()).args, ids;
    for (size_t a = 0; a < grid.size(); ++a) {
      ids.push_back({static_cast<uint32_t>(k.values.size())});
      k.values.push_back({Type::array(DType::i32), {}, b.index_map(), 0});
    }
    std::vector<Value> now = ids;
    now.insert(now.end(), args.begin() + static_cast<std::ptrdiff_t>(before.size()), args.end());
    k.region(b.index_map()).args = now;
    e.renumber(b.index_map());
    Spot s{b.index_map(), 0};
    const std::vector<Value> olds = old(s, ids);
    for (size_t a = 0; a < before.size(); ++a) e.replace_uses(args[a], olds[a], first);
  }
  for (bool again = true; again;) {
    again = false;
    for (const Spot& at : e.spots(true)) {
      const ir::OpId id = k.region(at.region).ops[at.at];
      if (id.index >= first) continue;
      const Op op = k.op(id);
      if (op.code != Opcode::program_id && op.code != Opcode::num_programs) continue;
      const auto axis = static_cast<size_t>(op.attr(Attr::axis));
      e.erase(at);
      Spot s = at;
      Value v;
      if (op.code == Opcode::num_programs) {
        v = size_of(e, s, before[axis].size);
      } else {
        std::vector<Value> ids;
        for (size_t a = 0; a < grid.size(); ++a) {
          Op made{.code = Opcode::program_id};
          made.set(Attr::axis, static_cast<int64_t>(a));
          ids.push_back(e.one(s, std::move(made)));
        }
        v = old(s, ids)[axis];
      }
      e.replace_uses(op.results[0], v, k.ops.size());
      again = true;
      break;
    }
  }
}

int64_t axis_size(const Rewriter& e, size_t a) { return e.k.grid[a].size.eval(e.c.dims); }

std::vector<Value> without(std::vector<Value> ids, size_t at) {
  ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at));
  return ids;
}
}  // namespace

// An axis of size 1 anywhere.
bool rewrite_axis(Rewriter& e) {
  if (!is_plain_grid(e)) return false;
  std::vector<GridAxis> grid = e.k.grid;
  const size_t at = e.random.below(grid.size() + 1);
  const Extent one = e.random.chance(0.5) ? Extent(1) : e.dynamic(1);
  grid.insert(grid.begin() + static_cast<std::ptrdiff_t>(at),
              GridAxis{.size = one, .name = {}, .parallel = e.random.chance(0.5)});
  regrid(e, grid, [&](Spot&, const std::vector<Value>& ids) { return without(ids, at); });
  return true;
}

// An axis of size 2, each of whose programs has arrays of its own: all arrays that have blocks get a dim. Outside of
// the others, or parallel, for scratch goes from program to program. Whole arrays are shared, and only read.
bool rewrite_two_calls(Rewriter& e) {
  ir::Kernel& k = e.k;
  if (!is_plain_grid(e) || has_code(e, {Opcode::debug_print, Opcode::check})) return false;
  for (size_t i = 0; i < k.blocks.size(); ++i) {
    const auto n = static_cast<int>(i);
    if (k.blocks[i].is_whole() && (k.is_output(n) || k.is_stored(n) || k.aliased_output(n) >= 0)) return false;
    for (const Type& t : k.scratch)
      if (ir::is_semaphore(t.space)) return false;
    // addresses of many arrays of atomics are fine, of index maps that read what is stored not
    if (n < k.num_prefetch && !k.blocks[i].is_whole()) return false;
  }
  std::vector<GridAxis> grid = k.grid;
  const size_t axes = grid.size();
  const bool keeps = k.scratch.size() > static_cast<size_t>(k.num_private_scratch);
  const size_t at = keeps ? 0 : e.random.below(axes + 1);
  const Extent two = e.random.chance(0.5) ? Extent(2) : e.dynamic(2);
  grid.insert(grid.begin() + static_cast<std::ptrdiff_t>(at),
              GridAxis{.size = two, .name = {}, .parallel = e.random.chance(0.4)});
  regrid(e, grid, [&](Spot&, const std::vector<Value>& ids) { return without(ids, at); });
  std::vector<std::pair<size_t, size_t>> dims;  // of each output the dim
  for (size_t i = 0; i < k.blocks.size(); ++i) {
    ir::BlockMapping& b = k.blocks[i];
    if (b.is_whole()) continue;
    const bool in = i < static_cast<size_t>(k.num_inputs),
               shared = b.alias >= 0 || k.aliased_output(static_cast<int>(i)) >= 0;
    const size_t d = shared ? 0 : e.random.below(b.block().size() + 1);
    const auto dim = static_cast<std::ptrdiff_t>(d);
    Op& yield = k.op(k.region(b.index_map()).ops.back());
    const size_t result = k.map_result(static_cast<int>(i), d);
    yield.operands.insert(yield.operands.begin() + static_cast<std::ptrdiff_t>(result),
                          k.region(b.index_map()).args[at]);
    b.block().insert(b.block().begin() + dim, ir::BlockDim{ir::BlockDim::Squeezed{}});
    b.array_shape.insert(b.array_shape.begin() + dim, shared ? Extent(2) : two);
    if (in) {
      const Array old = e.c.inputs[i];
      Shape shape = old.shape();
      int64_t inner = 1;
      for (size_t x = d; x < shape.size(); ++x) inner *= shape[x];
      shape.insert(shape.begin() + dim, 2);
      Array both(shape, old.dtype());
      for (int64_t n = 0; n < both.size(); ++n)
        both.set_element_bits(n, old.element_bits(n / (2 * inner) * inner + n % inner));
      e.c.inputs[i] = both;
    } else {
      dims.emplace_back(i - static_cast<size_t>(k.num_inputs), d);
    }
  }
  const auto half = static_cast<int64_t>(e.random.below(2));  // the one that is compared
  e.undo.emplace_back([dims, half](std::vector<Array>& outputs) {
    for (const auto& [o, d] : dims) {
      const Array both = outputs[o];
      Shape shape = both.shape();
      int64_t inner = 1;
      for (size_t x = d + 1; x < shape.size(); ++x) inner *= shape[x];
      shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(d));
      Array one(shape, both.dtype());
      for (int64_t n = 0; n < one.size(); ++n)
        one.set_element_bits(n, both.element_bits((n / inner * 2 + half) * inner + n % inner));
      outputs[o] = one;
    }
  });
  return true;
}

// Two axes beside each other become one.
bool rewrite_merged_axes(Rewriter& e) {
  const size_t axes = e.k.grid.size();
  if (!is_plain_grid(e) || axes < 2) return false;
  const size_t at = e.random.below(axes - 1);
  std::vector<GridAxis> grid = e.k.grid;
  const Extent inner = grid[at + 1].size;
  if (inner.eval(e.c.dims) < 1) return false;
  grid[at] = {.size = Extent::make(Extent::Op::mul, grid[at].size, inner),
              .name = {},
              .parallel = grid[at].parallel && grid[at + 1].parallel};
  grid.erase(grid.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  regrid(e, grid, [&](Spot& s, const std::vector<Value>& ids) {
    std::vector<Value> old;
    for (size_t a = 0; a + 1 < axes; ++a) {
      if (a != at) {
        old.push_back(ids[a]);
        continue;
      }
      const Value n = inner.value() && e.random.chance(0.5) ? e.constant_i32(s, *inner.value()) : size_of(e, s, inner);
      old.push_back(e.elementwise(s, Opcode::div, {ids[a], n}));
      old.push_back(e.elementwise(s, Opcode::rem, {ids[a], n}));
    }
    return old;
  });
  return true;
}

// An axis of n * m programs becomes two, of n and m.
bool rewrite_split_axis(Rewriter& e) {
  const size_t axes = e.k.grid.size();
  if (!is_plain_grid(e) || axes == 0 || axes > 6) return false;
  const size_t at = e.random.below(axes);
  const int64_t n = axis_size(e, at);
  std::vector<int64_t> parts;
  for (int64_t p = 2; p < n; ++p)
    if (n % p == 0) parts.push_back(p);
  if (parts.empty()) return false;
  const int64_t part = e.random.pick(parts);
  std::vector<GridAxis> grid = e.k.grid;
  const bool known = e.random.chance(0.5);
  GridAxis inner = grid[at];
  inner.name.clear();
  inner.size = known ? Extent(part) : e.dynamic(part);
  grid[at].size = e.random.chance(0.5) ? Extent(n / part) : e.dynamic(n / part);
  grid.insert(grid.begin() + static_cast<std::ptrdiff_t>(at) + 1, inner);
  regrid(e, grid, [&](Spot& s, const std::vector<Value>& ids) {
    std::vector<Value> old;
    for (size_t a = 0; a < axes; ++a) {
      if (a != at) {
        old.push_back(ids[a + (a > at)]);
        continue;
      }
      const Value m = known ? e.constant_i32(s, part) : size_of(e, s, inner.size);
      const Value row = e.elementwise(s, Opcode::mul, {ids[a], m});
      old.push_back(e.elementwise(s, Opcode::add, {row, ids[a + 1]}));
    }
    return old;
  });
  return true;
}

// Axes along which programs may run in any order: one reversed, or two swapped.
bool rewrite_turned_axes(Rewriter& e) {
  const size_t axes = e.k.grid.size();
  if (!is_plain_grid(e) || axes == 0 || has_code(e, {Opcode::debug_print, Opcode::check})) return false;
  const std::vector<bool> parallel = parallel_axes(e.k);
  std::vector<size_t> free;
  for (size_t a = 0; a < axes; ++a)
    if (parallel[a]) free.push_back(a);
  if (free.empty()) return false;
  e.random.shuffle(free);
  std::vector<GridAxis> grid = e.k.grid;
  const size_t a = free[0];
  if (free.size() > 1 && e.random.chance(0.7)) {
    const size_t b = free[1];
    std::swap(grid[a], grid[b]);
    regrid(e, grid, [&](Spot&, std::vector<Value> ids) {
      std::swap(ids[a], ids[b]);
      return ids;
    });
    return true;
  }
  const Extent size = grid[a].size;
  regrid(e, grid, [&](Spot& s, std::vector<Value> ids) {
    const Value last = e.elementwise(s, Opcode::sub, {size_of(e, s, size), e.constant_i32(s, 1)});
    ids[a] = e.elementwise(s, Opcode::sub, {last, ids[a]});
    return ids;
  });
  return true;
}

}  // namespace tessera::fuzz
