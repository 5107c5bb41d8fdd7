// What the kernels contain: grids of rank 0 to 4; blocked and squeezed dims with overhang; block shapes that are not powers of two; index
// maps that are identities, permutations, constants, sums, halves, and beyond the array's edge (clamped); whole-array Refs; run-time
// extents and grid sizes; scratch that is a program's own, initialised once, or an accumulator along an axis; loads and stores by slices,
// steps, integers, program-dependent starts (in bounds or not) and masks; swaps; outputs that are read back; elementwise chains over all
// dtypes, data movement, reductions, scans, dots; for loops with carried tiles, while loops, if and switch.
#include "tests/fuzz/generator.h"

#include <algorithm>
#include <cmath>

#include "engine/reference.h"
#include "tests/fuzz/values.h"

namespace tessera::fuzz {
namespace {
using ir::Attr, ir::BlockDim, ir::BlockMapping, ir::Index, ir::MemorySpace, ir::Op, ir::Opcode, ir::RegionId, ir::Type, ir::Value;

// One dim of an index map, as a function of the program ids; emitted into the map's region and, for masks, into the body.
struct DimMap {
  enum class Kind { constant, axis, sum, half, reversed } kind = Kind::constant;
  int64_t number = 0;       // constant; reversed: the minuend
  int64_t a = 0, b = 0;     // axes
  int64_t count = 1;        // values 0 .. count - 1, for the array's size
};

struct RefInfo {
  Value ref;
  DType dtype = DType::f32;
  Shape shape;
  int block = -1;           // position in Kernel::blocks; -1: scratch
  Fact fact;                // of what it holds
  bool stateful = false;    // may be read: stores conform to `fact`
  bool readable = false;    // every element was written before
};

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed), values_(out_.kernel, random_, dtypes(random_)) {
    out_.kernel.name = "fuzz" + std::to_string(seed);
    big_ = random_.chance(0.12);
    values_.plain = random_.chance(0.55);
    values_.sizes.clear();
    for (int64_t n = random_.in(2, 3); n-- > 0;) values_.sizes.push_back(random_.chance(0.4) ? int64_t{1} << random_.in(1, big_ ? 6 : 5) : random_.in(2, big_ ? 70 : 24));
  }

  Case run() {
    ir::Kernel& k = out_.kernel;
    grid();
    arrays();
    values_.b.set_region(k.body);
    for (size_t axis = first_visible(); axis < k.grid.size(); ++axis)
      if (random_.chance(0.85)) pid(axis);
    if (random_.chance(0.2) && k.grid.size() > first_visible()) {
      const size_t axis = first_visible() + random_.below(k.grid.size() - first_visible());
      Op op{.code = Opcode::num_programs};
      op.set(Attr::axis, static_cast<int64_t>(axis - first_visible()));
      values_.pool.push_back(values_.note(values_.b.one(std::move(op)), {static_cast<double>(grid_[axis]), 0, true, false}));
    }
    initialise_scratch();
    if (accumulator_ >= 0) accumulate();
    for (int64_t n = random_.in(2, 10); n-- > 0;) statement(0);
    for (RefInfo& r : refs_)
      if (r.block >= k.num_inputs) final_store(r);
    values_.b.yield({});
    if (random_.chance(0.4)) declare_parallel();
    for (const RefInfo& r : refs_)
      if (r.block >= k.num_inputs) out_.tolerance.push_back(4 * r.fact.err);
    return std::move(out_);
  }

 private:
  static std::vector<DType> dtypes(Random& random) {
    if (random.chance(0.35)) return {DType::f32, DType::f32, DType::i32, DType::u32, DType::boolean};
    std::vector<DType> all;
    for (int t = 0; t < kNumDTypes; ++t) all.push_back(static_cast<DType>(t));
    std::vector<DType> some{DType::f32, DType::i32};
    for (int64_t n = random.in(1, 5); n-- > 0;) some.push_back(random.pick(all));
    return some;
  }

  // -- grid, arrays, Refs

  void grid() {
    ir::Kernel& k = out_.kernel;
    const int64_t rank = random_.chance(0.1) ? 0 : random_.chance(0.6) ? random_.in(1, 2) : random_.in(3, 4);
    vmapped_ = rank > 0 && random_.chance(0.08);
    int64_t programs = 1;
    for (int64_t i = 0; i < rank; ++i) {
      int64_t n = random_.chance(0.05) ? random_.in(1, 40) : random_.in(1, rank > 2 ? 3 : 6);
      if (programs * n > 64) n = 1;
      ir::GridAxis axis;
      axis.size = n;
      if (random_.chance(0.2)) {
        const int64_t block = random_.in(1, 7);
        axis.size = cdiv(named((n - 1) * block + random_.in(1, block)), Extent(block));
      }
      if (random_.chance(0.004)) n = 0, axis.size = 0;
      axis.vmapped = vmapped_ && i == 0;
      if (random_.chance(0.3)) axis.name = "axis" + std::to_string(i);
      programs *= n;
      grid_.push_back(n);
      k.grid.push_back(axis);
    }
    programs_ = programs;
  }

  Extent named(int64_t value) {
    for (const auto& [name, v] : out_.dims)
      if (v == value && random_.chance(0.7)) return Extent::named(name);
    const std::string name = "n" + std::to_string(out_.dims.size());
    out_.dims[name] = value;
    return Extent::named(name);
  }

  int64_t block_size() {
    if (values_.plain && random_.chance(0.9)) return random_.pick(values_.sizes);
    if (big_ && random_.chance(0.4)) return random_.in(1, 70);
    return random_.chance(0.15) ? random_.in(1, 40) : random_.chance(0.2) ? int64_t{1} << random_.in(0, 4) : random_.in(1, 9);
  }

  // The vmapped axis, if any, is the first: the kernel does not see it, and index maps use it alone, in array().
  size_t first_visible() const { return vmapped_ ? 1 : 0; }
  size_t visible_axis() { return first_visible() + random_.below(grid_.size() - first_visible()); }

  DimMap dim_map() {
    DimMap m;
    if (grid_.size() <= first_visible() || random_.chance(0.12)) {
      m.number = random_.in(0, 2);
      m.count = m.number + 1;
      return m;
    }
    m.a = static_cast<int64_t>(visible_axis());
    m.b = static_cast<int64_t>(visible_axis());
    const int64_t na = grid_[static_cast<size_t>(m.a)], nb = grid_[static_cast<size_t>(m.b)];
    m.kind = random_.chance(0.75) ? DimMap::Kind::axis : random_.pick(std::vector{DimMap::Kind::sum, DimMap::Kind::half, DimMap::Kind::reversed});
    switch (m.kind) {
      case DimMap::Kind::constant: break;
      case DimMap::Kind::axis: m.count = na; break;
      case DimMap::Kind::sum: m.count = na + nb - 1; break;
      case DimMap::Kind::half: m.count = (na + 1) / 2; break;
      case DimMap::Kind::reversed: m.number = na - 1, m.count = na; break;
    }
    return m;
  }

  Value emit(const DimMap& m, const std::vector<Value>& ids) {
    ir::Builder& b = values_.b;
    const auto number = [&](int64_t n) { return b.constant_int(DType::i32, n); };
    switch (m.kind) {
      case DimMap::Kind::constant: return number(m.number);
      case DimMap::Kind::axis: return ids[static_cast<size_t>(m.a)];
      case DimMap::Kind::sum: return b.elementwise(Opcode::add, {ids[static_cast<size_t>(m.a)], ids[static_cast<size_t>(m.b)]});
      case DimMap::Kind::half: return b.elementwise(Opcode::div, {ids[static_cast<size_t>(m.a)], number(2)});
      case DimMap::Kind::reversed: return b.elementwise(Opcode::sub, {number(m.number), ids[static_cast<size_t>(m.a)]});
    }
    return {};
  }

  void arrays() {
    ir::Kernel& k = out_.kernel;
    const int num_inputs = static_cast<int>(random_.in(random_.chance(0.05) ? 0 : 1, 3)), num_outputs = static_cast<int>(random_.chance(0.7) ? 1 : 2);
    k.num_inputs = num_inputs;
    for (int i = 0; i < num_inputs + num_outputs; ++i) array(i, i >= num_inputs);
    if (grid_.size() > first_visible() && random_.chance(0.25)) accumulator_ = static_cast<int>(visible_axis());
    const int64_t num_scratch = random_.chance(0.6) ? 0 : random_.in(1, 2);
    for (int64_t i = 0; i < num_scratch + (accumulator_ >= 0); ++i) {
      Shape shape;
      for (int64_t rank = random_.in(0, values_.plain ? 2 : 3), d = 0; d < rank; ++d) shape.push_back(values_.plain ? random_.pick(values_.sizes) : random_.in(1, 9));
      k.scratch.push_back(Type::ref(i == num_scratch ? DType::f32 : values_.some_dtype(), shape, random_.chance(0.15) && shape.empty() ? MemorySpace::smem : MemorySpace::vmem));
    }
    std::vector<Type> args;
    for (size_t i = 0; i < k.blocks.size(); ++i) args.push_back(k.block_ref_type(static_cast<int>(i)));
    args.insert(args.end(), k.scratch.begin(), k.scratch.end());
    k.body = values_.b.new_region(args);
    for (size_t i = 0; i < args.size(); ++i) {
      RefInfo r;
      r.ref = k.region(k.body).args[i];
      r.dtype = args[i].dtype, r.shape = args[i].shape;
      r.block = i < k.blocks.size() ? static_cast<int>(i) : -1;
      if (r.block >= 0 && r.block < num_inputs) {
        r.readable = true;
        r.fact = input_facts_[i];
      } else {
        r.stateful = r.block < 0 || random_.chance(0.4);
        // What it may hold: ints and bools anything, floats small whole numbers. Outputs that are never read hold what they get.
        r.fact = {r.stateful || !is_float(r.dtype) ? (is_float(r.dtype) ? 100.0 : std::max(exact_limit(r.dtype), 1.0)) : 0.0, 0, true, false};
      }
      refs_.push_back(r);
    }
  }

  void array(int i, bool output) {
    ir::Kernel& k = out_.kernel;
    BlockMapping m;
    m.origin = output ? "out_specs[" + std::to_string(i - k.num_inputs) + "]" : "in_specs[" + std::to_string(i) + "]";
    m.dtype = values_.some_dtype();
    const int64_t rank = random_.chance(0.08) ? 0 : random_.chance(0.75) ? random_.in(1, 2) : random_.in(3, 4);
    Shape shape;
    std::vector<DimMap> maps;
    if (random_.chance(0.15) && !(output && vmapped_)) {
      m.whole = true;
      m.space = MemorySpace::any;
      for (int64_t d = 0; d < rank; ++d) shape.push_back(random_.in(1, rank > 2 ? 6 : 14));
      m.array_shape.assign(shape.begin(), shape.end());
    } else {
      int64_t elements = 1;
      if (vmapped_ && (output || random_.chance(0.6))) {  // what vmap makes: a dim per element of the batch
        m.block.push_back({BlockDim::Kind::squeezed, 1});
        maps.push_back({DimMap::Kind::axis, 0, 0, 0, grid_[0]});
        shape.push_back(std::max<int64_t>(grid_[0], 1));
        m.array_shape.push_back(shape.back());
      }
      for (int64_t d = 0; d < rank; ++d) {
        DimMap map = dim_map();
        BlockDim block;
        if (random_.chance(0.2)) block = {BlockDim::Kind::squeezed, 1};
        else block.size = block_size();
        if (block.kind == BlockDim::Kind::blocked && elements * block.size > (big_ && programs_ < 20 ? 6000 : values_.plain ? 1100 : 700)) block.size = random_.in(1, 2);
        elements *= block.size;
        // Usually as many blocks as the map reaches, at times fewer (clamped) or more.
        int64_t blocks = std::max<int64_t>(1, map.count);
        if (random_.chance(0.12)) blocks = std::max<int64_t>(1, blocks - random_.in(1, 2));
        else if (random_.chance(0.08)) ++blocks;
        int64_t extent = blocks * block.size;
        if (random_.chance(0.45)) extent = (blocks - 1) * block.size + random_.in(1, block.size);
        if (random_.chance(0.04)) extent = random_.in(1, block.size);
        if (random_.chance(0.003)) extent = 0;
        if (num_elements(shape) * extent > 40000) {  // far from large: the lane-level interpreter keeps books per element
          map = {};
          extent = block.size;
          if (num_elements(shape) * extent > 40000) extent = block.size = 1;
        }
        shape.push_back(extent);
        m.block.push_back(block);
        maps.push_back(map);
        m.array_shape.push_back(random_.chance(0.15) ? named(extent) : Extent(extent));
      }
      m.index_map = values_.b.new_region(std::vector<Type>(grid_.size(), Type::array(DType::i32)));
      values_.b.set_region(m.index_map);
      std::vector<Value> results;
      for (const DimMap& map : maps) results.push_back(emit(map, k.region(m.index_map).args));
      values_.b.yield(results);
    }
    k.blocks.push_back(m);
    maps_.push_back(maps);
    shapes_.push_back(shape);
    if (!output) input(m.dtype, shape);
  }

  void input(DType t, const Shape& shape) {
    Array a(shape, t);
    Fact f{8, 0, true, false};
    const int style = static_cast<int>(random_.below(4));
    if (t == DType::boolean) f.bound = 1;
    else if (is_int(t) && style == 0) f.bound = std::max(exact_limit(t), 1.0);
    else if (is_float(t) && style == 0) f = {3, 0, false, false};
    else if (is_unsigned_int(t)) f.bound = 16;
    for (int64_t i = 0; i < a.size(); ++i) {
      if (t == DType::boolean) a.set_element_bits(i, random_.next() & 1);
      else if (is_int(t) && style == 0) a.set_element_bits(i, bits(t) == 64 ? random_.next() : random_.next() & ((uint64_t{1} << bits(t)) - 1));
      else if (is_float(t) && style == 0) a.set_element_bits(i, reference::from_double(t, static_cast<double>(random_.in(-24, 24)) / 8));
      else a.set_element_bits(i, reference::from_double(t, static_cast<double>(is_unsigned_int(t) ? random_.in(0, 16) : random_.in(-8, 8))));
    }
    out_.inputs.push_back(std::move(a));
    input_facts_.push_back(f);
  }

  // Axes along which programs share nothing: every output has a dim of distinct blocks along it, and scratch is written before it is read.
  void declare_parallel() {
    for (size_t axis = first_visible(); axis < grid_.size(); ++axis) {
      bool free = !persistent_ && (accumulator_ < 0 || static_cast<int>(axis) < accumulator_);
      for (size_t i = static_cast<size_t>(out_.kernel.num_inputs); i < out_.kernel.blocks.size(); ++i) {
        bool distinct = false;
        for (size_t d = 0; d < maps_[i].size(); ++d)
          distinct |= maps_[i][d].kind == DimMap::Kind::axis && maps_[i][d].a == static_cast<int64_t>(axis) &&
                      cdiv(shapes_[i][d], out_.kernel.blocks[i].block[d].size) >= grid_[axis];
        free &= distinct;
      }
      if (free) out_.kernel.grid[axis].parallel = true;
    }
  }

  // -- the body

  Value pid(size_t axis) {
    Op op{.code = Opcode::program_id};
    op.set(Attr::axis, static_cast<int64_t>(axis - first_visible()));
    const Value v = values_.note(values_.b.one(std::move(op)), {static_cast<double>(std::max<int64_t>(grid_[axis] - 1, 0)), 0, true, false});
    values_.pool.push_back(v);
    return v;
  }
  Value is_id(size_t axis, int64_t at) { return *values_.apply(Opcode::eq, {pid(axis), values_.constant(DType::i32, static_cast<double>(at))}); }

  void store_all(const RefInfo& r, Value v) {
    Op op{.code = Opcode::store, .operands = {r.ref, v}};
    for (const int64_t n : r.shape) op.index.push_back(Index::all(n));
    values_.b.append(std::move(op));
  }
  Value load_all(const RefInfo& r) {
    Op op{.code = Opcode::load, .operands = {r.ref}};
    for (const int64_t n : r.shape) op.index.push_back(Index::all(n));
    return values_.b.one(std::move(op));
  }

  void initialise_scratch() {
    for (size_t i = 0; i < refs_.size(); ++i) {
      RefInfo& r = refs_[i];
      if (r.block >= 0 || (accumulator_ >= 0 && i + 1 == refs_.size())) continue;
      const Value v = values_.conform(values_.leaf(r.dtype, r.shape), r.fact.bound);
      if (random_.chance(0.5) && grid_.size() > first_visible()) {
        // Once: scratch lives from program to program (and starts anew with each element of a batch).
        persistent_ = true;
        Value first = is_id(first_visible(), 0);
        for (size_t axis = first_visible() + 1; axis < grid_.size(); ++axis) first = *values_.apply(Opcode::and_, {first, is_id(axis, 0)});
        values_.b.when(first, [&] { store_all(r, v); });
      } else {
        store_all(r, v);
      }
      r.readable = true;
    }
  }

  // when(k == 0) acc = 0; acc += value; the sum goes to the pool, or to an output when(k == last).
  void accumulate() {
    RefInfo& r = refs_.back();
    const size_t axis = static_cast<size_t>(accumulator_);
    statement(0), statement(0);
    const Value zero = values_.constant(r.dtype, 0, r.shape);
    values_.b.when(is_id(axis, 0), [&] { store_all(r, zero); });
    const Value v = values_.conform(values_.want(r.dtype, r.shape, true), 4000);
    const double bound = 4000.0 * static_cast<double>(programs_);
    const Value old = values_.note(load_all(r), {bound - 4000, 0, true, false});
    store_all(r, *values_.apply(Opcode::add, {old, v}));
    r.fact = {bound, 0, true, false};
    r.readable = true;
    const Value sum = values_.note(load_all(r), r.fact);
    values_.pool.push_back(sum);
    for (RefInfo& o : refs_)
      if (o.block >= out_.kernel.num_inputs && random_.chance(0.6)) {
        const auto c = values_.cast(sum, o.dtype);
        if (!c) continue;
        const Value piece = fit(o, values_.coerce(*c, o.shape));
        values_.b.when(is_id(axis, grid_[axis] - 1), [&] { store_all(o, piece); });
        break;
      }
  }

  // v as the Ref may hold it: stateful Refs keep their fact (the caller's v is clean), the others' fact grows.
  Value fit(RefInfo& r, Value v) {
    if (r.stateful) return values_.conform(v, r.fact.bound);
    r.fact = join(r.fact, values_.fact(v));
    return v;
  }

  void final_store(RefInfo& r) {
    if (random_.chance(0.06)) return;
    const Value v = fit(r, values_.want(r.dtype, r.shape, r.stateful));
    if (random_.chance(0.1) && !grid_.empty()) {
      values_.b.when(values_.scalar_bool(), [&] { store_all(r, v); });
    } else if (random_.chance(0.1)) {
      const Value mask = values_.want(DType::boolean, r.shape, true);
      Op op{.code = Opcode::store, .operands = {r.ref, v, mask}};
      op.set(Attr::mask, 1);
      for (const int64_t n : r.shape) op.index.push_back(Index::all(n));
      values_.b.append(std::move(op));
    } else {
      store_all(r, v);
    }
  }

  // A random index; `starts` are the dynamic starts, whose operand positions begin at `first`. Returns the shape it selects.
  Shape random_index(const RefInfo& r, bool masked, std::vector<Index>& index, std::vector<Value>& starts, int32_t first) {
    Shape shape;
    for (const int64_t n : r.shape) {
      Index x = Index::all(n);
      if (!random_.chance(0.5)) {
        const bool dynamic = random_.chance(0.5);
        if (random_.chance(0.3) && n > 0) {
          x = Index::at(random_.in(0, n - 1));
        } else {
          x.step = random_.chance(0.2) ? random_.in(1, 3) : 1;
          const int64_t most = n == 0 ? 0 : (n - 1) / x.step + 1;
          x.size = most == 0 ? 0 : random_.in(1, most);
          x.start = most == 0 ? 0 : random_.in(0, n - ((x.size - 1) * x.step + 1));
        }
        if (dynamic && n > 0) {
          x.start = 0;
          x.start_operand = first + static_cast<int32_t>(starts.size());
          // Beyond the edges at times: unmasked starts wrap once and clamp, masked ones are tested per element.
          starts.push_back(random_.chance(0.8) ? values_.scalar_int(0, std::max<int64_t>(0, n - 1)) : values_.scalar_int(-n - 2, n + 2));
          if (masked && random_.chance(0.3)) x.size += 2;
        }
      }
      index.push_back(x);
      if (x.kind == Index::Kind::slice) shape.push_back(x.size);
    }
    return shape;
  }

  void load(RefInfo& r) {
    Op op{.code = Opcode::load, .operands = {r.ref}};
    std::vector<Value> starts;
    const bool masked = random_.chance(0.15), other = masked && random_.chance(0.7);
    Fact f = r.fact;
    // The block may hang over the edge; what lies there is unspecified.
    const bool over = r.block >= 0 && hangs_over(r);
    f.dirty |= over || (masked && !other) || !r.readable;
    if (!masked && random_.chance(values_.plain ? 0.85 : 0.5)) {
      for (const int64_t n : r.shape) op.index.push_back(Index::all(n));
      Value v = values_.note(values_.b.one(std::move(op)), f);
      if (over && r.block < out_.kernel.num_inputs && random_.chance(0.8)) v = mask_overhang(r, v);
      values_.pool.push_back(v);
      return;
    }
    const Shape shape = random_index(r, masked, op.index, starts, masked ? (other ? 3 : 2) : 1);
    if (masked) {
      op.set(Attr::mask, 1);
      op.operands.push_back(values_.want(DType::boolean, shape, true));
      if (other) {
        const Value o = values_.conform(values_.want(r.dtype, shape, true), 100);
        op.operands.push_back(o);
        op.set(Attr::other, 1);
        f = join(f, values_.fact(o));
      }
    }
    op.operands.insert(op.operands.end(), starts.begin(), starts.end());
    values_.pool.push_back(values_.note(values_.b.one(std::move(op)), f));
  }

  bool hangs_over(const RefInfo& r) const {
    const BlockMapping& m = out_.kernel.blocks[static_cast<size_t>(r.block)];
    for (size_t d = 0; d < m.block.size(); ++d)
      if (shapes_[static_cast<size_t>(r.block)][d] % m.block[d].size != 0 || shapes_[static_cast<size_t>(r.block)][d] == 0) return true;
    return false;
  }

  // select(inside the array, v, a number), as kernels do before they reduce. An empty array has no inside.
  Value mask_overhang(const RefInfo& r, Value v) {
    if (num_elements(shapes_[static_cast<size_t>(r.block)]) == 0) return v;
    ir::Builder& b = values_.b;
    const BlockMapping& m = out_.kernel.blocks[static_cast<size_t>(r.block)];
    std::vector<Value> ids;
    for (size_t axis = 0; axis < grid_.size(); ++axis) ids.push_back(axis < first_visible() ? Value{} : pid(axis));
    int64_t seen = 0;
    for (size_t d = 0; d < m.block.size(); ++d) {
      if (m.block[d].kind == BlockDim::Kind::squeezed) continue;
      const int64_t at = seen++, extent = shapes_[static_cast<size_t>(r.block)][d], size = m.block[d].size;
      if (extent % size == 0) continue;
      const auto number = [&](int64_t n, const Shape& s = {}) { return values_.constant(DType::i32, static_cast<double>(n), s); };
      const Value block = b.elementwise(Opcode::clamp, {number(0), emit(maps_[static_cast<size_t>(r.block)][d], ids), number(cdiv(extent, size) - 1)});
      const Value base = b.elementwise(Opcode::mul, {block, number(size)});
      Op iota{.code = Opcode::iota};
      iota.set(Attr::axis, at);
      const Value place = b.elementwise(Opcode::add, {b.one(std::move(iota), Type::array(DType::i32, r.shape)), b.broadcast(base, r.shape, {})});
      const Value inside = b.elementwise(Opcode::lt, {place, number(extent, r.shape)});
      const Value otherwise = values_.leaf(r.dtype, r.shape);
      Fact f = join(values_.fact(v), values_.fact(otherwise));
      v = values_.note(b.elementwise(Opcode::select, {inside, v, otherwise}), f);
    }
    Fact f = values_.fact(v);
    f.dirty = false;
    return values_.note(v, f);
  }

  void store(RefInfo& r, int depth) {
    if (depth == 0 && r.stateful && random_.chance(0.5)) {
      store_all(r, fit(r, values_.want(r.dtype, r.shape, true)));
      r.readable = true;
      return;
    }
    Op op{.code = random_.chance(0.2) && (r.readable || random_.chance(0.2)) ? Opcode::swap : Opcode::store, .operands = {r.ref}};
    std::vector<Value> starts;
    const bool masked = random_.chance(0.2), other = masked && op.code == Opcode::swap && random_.chance(0.7);
    const Shape shape = random_index(r, masked, op.index, starts, 2 + masked + other);
    const bool was_readable = r.readable;
    const Value v = fit(r, values_.want(r.dtype, shape, r.stateful));
    op.operands.push_back(v);
    if (masked) {
      op.set(Attr::mask, 1);
      op.operands.push_back(values_.want(DType::boolean, shape, true));
    }
    Fact f = r.fact;
    if (other) {
      const Value o = values_.conform(values_.want(r.dtype, shape, true), 100);
      op.operands.push_back(o);
      op.set(Attr::other, 1);
      f = join(f, values_.fact(o));
    }
    op.operands.insert(op.operands.end(), starts.begin(), starts.end());
    const bool is_swap = op.code == Opcode::swap;
    const ir::OpId id = values_.b.append(std::move(op));
    if (!is_swap || !r.stateful) return;
    f.dirty |= !was_readable || (masked && !other) || (r.block >= 0 && hangs_over(r));
    values_.pool.push_back(values_.note(out_.kernel.op(id).results[0], f));
  }

  // -- control flow; what a region makes stays in it

  template <class F> auto scoped(F f) {
    const size_t n = values_.pool.size();
    auto result = f();
    values_.pool.resize(n);
    return result;
  }
  void statements(int depth) {
    for (int64_t n = random_.in(1, 3); n-- > 0;) statement(depth);
  }

  struct Carry { Type type; Fact fact; };
  std::vector<Carry> carries(std::vector<Value>& init) {
    std::vector<Carry> list;
    for (int64_t n = random_.in(0, 2); n-- > 0;) {
      Value v = values_.pool.empty() ? values_.leaf(values_.some_dtype(), {}) : random_.pick(values_.pool);
      if (num_elements(values_.type(v).shape) > 1500) continue;
      if (values_.fact(v).dirty) v = values_.leaf(values_.type(v).dtype, values_.type(v).shape);
      v = values_.conform(v, 100);
      const DType t = values_.type(v).dtype;
      init.push_back(v);
      list.push_back({values_.type(v), {is_float(t) ? 100 : std::max(exact_limit(t), 1.0), 0, true, false}});
    }
    return list;
  }
  Value next(const Carry& c, Value now) {
    Value v = values_.want(c.type.dtype, c.type.shape, true);
    if (random_.chance(0.6)) {
      const auto sum = values_.apply(c.type.dtype == DType::boolean ? Opcode::xor_ : Opcode::add, {now, v});
      if (sum) v = *sum;
    }
    return values_.conform(v, c.fact.bound);
  }

  void for_loop(int depth) {
    std::vector<Value> init;
    const std::vector<Carry> list = carries(init);
    const bool simple = random_.chance(0.5);
    const Value lower = simple ? values_.constant(DType::i32, 0) : values_.scalar_int(-2, 2);
    const Value upper = simple ? values_.constant(DType::i32, static_cast<double>(random_.in(0, 4))) : values_.scalar_int(0, 4);
    const Value step = values_.constant(DType::i32, random_.chance(0.8) ? 1 : static_cast<double>(random_.in(1, 3)));
    const auto results = scoped([&] {
      return values_.b.for_loop(lower, upper, step, init, [&](Value iv, const std::vector<Value>& args) {
        values_.pool.push_back(values_.note(iv, {4, 0, true, false}));
        for (size_t i = 0; i < args.size(); ++i) values_.pool.push_back(values_.note(args[i], list[i].fact));
        statements(depth + 1);
        std::vector<Value> out;
        for (size_t i = 0; i < args.size(); ++i) out.push_back(next(list[i], args[i]));
        return out;
      });
    });
    for (size_t i = 0; i < results.size(); ++i) values_.pool.push_back(values_.note(results[i], list[i].fact));
  }

  void while_loop(int depth) {
    ir::Builder& b = values_.b;
    std::vector<Value> init{values_.scalar_int(-1, 2)};
    const std::vector<Carry> list = carries(init);
    const Value limit = values_.scalar_int(0, 4);
    std::vector<Type> types;
    for (const Value v : init) types.push_back(values_.type(v));
    const RegionId outer = b.region(), cond = b.new_region(types), body = b.new_region(types);
    const auto enter = [&](RegionId r) {
      b.set_region(r);
      const std::vector<Value> args = out_.kernel.region(r).args;
      values_.pool.push_back(values_.note(args[0], {4, 0, true, false}));
      for (size_t i = 0; i < list.size(); ++i) values_.pool.push_back(values_.note(args[i + 1], list[i].fact));
      return args;
    };
    scoped([&] {
      const std::vector<Value> args = enter(cond);
      Value go = *values_.apply(Opcode::lt, {args[0], limit});
      if (random_.chance(0.2)) go = *values_.apply(Opcode::and_, {go, values_.want(DType::boolean, {}, true)});
      b.yield({go});
      return 0;
    });
    scoped([&] {
      const std::vector<Value> args = enter(body);
      statements(depth + 1);
      std::vector<Value> out{b.elementwise(Opcode::add, {args[0], values_.constant(DType::i32, 1)})};
      for (size_t i = 0; i < list.size(); ++i) out.push_back(next(list[i], args[i + 1]));
      b.yield(out);
      return 0;
    });
    b.set_region(outer);
    const ir::OpId id = b.append({.code = Opcode::while_, .operands = init, .regions = {cond, body}});
    const std::vector<Value> results = out_.kernel.op(id).results;
    values_.pool.push_back(values_.note(results[0], {4, 0, true, false}));
    for (size_t i = 0; i < list.size(); ++i) values_.pool.push_back(values_.note(results[i + 1], list[i].fact));
  }

  void choice(int depth, bool is_switch) {
    ir::Builder& b = values_.b;
    const Value selector = is_switch ? values_.scalar_int(-1, 4) : values_.scalar_bool();
    std::vector<Type> types;
    for (int64_t n = random_.in(0, 2); n-- > 0;) {
      if (!values_.pool.empty() && random_.chance(0.7)) types.push_back(values_.type(random_.pick(values_.pool)));
      else types.push_back(Type::array(values_.some_dtype()));
      if (num_elements(types.back().shape) > 1500) types.pop_back();
    }
    std::vector<Fact> facts(types.size());
    std::vector<RegionId> regions;
    const RegionId outer = b.region();
    for (int64_t n = is_switch ? random_.in(1, 4) : 2; n-- > 0;) {
      regions.push_back(b.new_region({}));
      b.set_region(regions.back());
      scoped([&] {
        if (random_.chance(0.85)) statements(depth + 1);
        std::vector<Value> out;
        for (size_t i = 0; i < types.size(); ++i) {
          out.push_back(values_.want(types[i].dtype, types[i].shape, false));
          facts[i] = join(facts[i], values_.fact(out.back()));
        }
        b.yield(out);
        return 0;
      });
    }
    b.set_region(outer);
    const ir::OpId id = b.append({.code = is_switch ? Opcode::switch_ : Opcode::if_, .operands = {selector}, .regions = regions});
    const std::vector<Value> results = out_.kernel.op(id).results;
    for (size_t i = 0; i < results.size(); ++i) values_.pool.push_back(values_.note(results[i], facts[i]));
  }

  RefInfo* some_ref(bool to_write) {
    std::vector<RefInfo*> list;
    for (size_t i = 0; i < refs_.size(); ++i) {
      RefInfo& r = refs_[i];
      if (accumulator_ >= 0 && i + 1 == refs_.size()) continue;
      if (to_write ? r.block < 0 || r.block >= out_.kernel.num_inputs : r.readable || r.stateful) list.push_back(&r);
    }
    return list.empty() ? nullptr : random_.pick(list);
  }

  void statement(int depth) {
    std::vector<Value>& pool = values_.pool;
    const auto some = [&]() -> Value {
      if (pool.empty() || random_.chance(0.05)) return values_.leaf(values_.some_dtype(), {random_.in(1, 6), random_.in(1, 6)});
      const size_t n = pool.size();
      return random_.chance(0.6) ? pool[n - 1 - random_.below(std::min<size_t>(n, 3))] : random_.pick(pool);
    };
    const double roll = static_cast<double>(random_.below(1000)) / 1000;
    if (values_.plain && random_.chance(0.15)) {
      const Value v = some();
      if (num_elements(values_.type(v).shape) > 1)
        if (const auto r = values_.normalised(v)) return pool.push_back(*r);
    }
    if (roll < 0.22) {
      if (RefInfo* r = some_ref(false)) return load(*r);
    } else if (roll < 0.29) {
      if (RefInfo* r = some_ref(true)) return store(*r, depth);
    } else if (roll < 0.56) {
      Value v = values_.elementwise(some());
      for (int64_t n = random_.in(0, 3); n-- > 0;) v = values_.elementwise(v);
      return pool.push_back(v);
    } else if (roll < 0.70) {
      const Value v = values_.movement(some());
      if (num_elements(values_.type(v).shape) <= 8000) pool.push_back(v);
      return;
    } else if (roll < 0.81) {
      if (const auto v = values_.reduction(some())) pool.push_back(*v);
      return;
    } else if (roll < 0.88) {
      return pool.push_back(values_.dot());
    } else if (depth < 2) {
      if (roll < 0.93) return for_loop(depth);
      if (roll < 0.95) return while_loop(depth);
      return choice(depth, roll > 0.98);
    }
    pool.push_back(values_.elementwise(some()));
  }

  Case out_;
  Random random_;
  Values values_;
  bool big_ = false, vmapped_ = false;
  bool persistent_ = false;        // some scratch is initialised in the first program only
  std::vector<int64_t> grid_;
  int64_t programs_ = 1;
  int accumulator_ = -1;           // the grid axis of the accumulator in the last scratch Ref
  std::vector<RefInfo> refs_;
  std::vector<std::vector<DimMap>> maps_;
  std::vector<Shape> shapes_;      // of the arrays
  std::vector<Fact> input_facts_;
};
}  // namespace

void keep_used_dims(Case& c) {
  const std::vector<std::string> names = c.kernel.dim_names();
  std::erase_if(c.dims, [&](const auto& d) { return std::find(names.begin(), names.end(), d.first) == names.end(); });
}

Case generate(uint64_t seed) {
  Case c = Generator(seed).run();
  keep_used_dims(c);
  return c;
}

}  // namespace tessera::fuzz
