#include "engine/ir/kernel.h"

#include <algorithm>
#include <array>

#include "engine/ir/walk.h"

namespace tessera::ir {
namespace {
constexpr std::string_view bare(std::string_view n) { return n.back() == '_' ? n.substr(0, n.size() - 1) : n; }

constexpr int C = 1, A = 2, T = 4, I = 8, K = 16, L = 32;  // flags column
constexpr OperandRule num = OperandRule::num, flt = OperandRule::flt, int_ = OperandRule::int_, ibl = OperandRule::ibl,
                      any = OperandRule::any, select = OperandRule::select;
enum Levels { tile = 1, lane = 2, both = 3 };

const std::array<OpInfo, kNumOpcodes> kInfo = [] {
#define RULE_num num
#define RULE_flt flt
#define RULE_int int_
#define RULE_ibl ibl
#define RULE_any any
#define RULE_select select
  std::array<OpInfo, kNumOpcodes> t;
#define TESSERA_ELEMENTWISE(n, ar, operands, res, flags, ref, sf, ss, su, sb, pf, ps, pu, pb, ulp, doc) \
  t[static_cast<int>(Opcode::n)] = OpInfo{bare(#n),                                                     \
                                          Family::elementwise,                                          \
                                          ar,                                                           \
                                          RULE_##operands,                                              \
                                          ResultRule::res,                                              \
                                          ((flags) & C) != 0,                                           \
                                          ((flags) & A) != 0,                                           \
                                          ((flags) & I) != 0,                                           \
                                          ((flags) & K) != 0,                                           \
                                          ((flags) & T) != 0,                                           \
                                          ((flags) & L) == 0,                                           \
                                          true,                                                         \
                                          Effect::pure,                                                 \
                                          ulp,                                                          \
                                          doc};
#define TESSERA_STRUCTURED(n, family, level, effect, doc)                                                           \
  t[static_cast<int>(Opcode::n)] =                                                                                  \
      OpInfo{bare(#n), Family::family, -1,    OperandRule::none,     ResultRule::structured, false,          false, \
             false,    false,          false, ((level) & tile) != 0, ((level) & lane) != 0,  Effect::effect, 0,     \
             doc};
#define TESSERA_RELAXED(n, ulp, doc)                \
  t[static_cast<int>(Opcode::n)].relaxed_ulp = ulp; \
  t[static_cast<int>(Opcode::n)].relaxed_doc = doc;
#include "engine/ir/ops.def"
  return t;
}();

struct Combining {
  std::optional<Combiner> by;  // of elementwise rows
  std::optional<Opcode> with;  // of reductions and scans
};
const std::array<Combining, kNumOpcodes> kCombining = [] {
  constexpr bool wide = true, own = false, yes = true, no = false;
  std::array<Combining, kNumOpcodes> t;
#define TESSERA_COMBINER(n, identity, accumulator, atomic, ...) \
  t[static_cast<int>(Opcode::n)].by = Combiner{Identity::identity, accumulator, atomic};
#define TESSERA_REDUCE(n, combiner, doc) t[static_cast<int>(Opcode::n)].with = Opcode::combiner;
#define TESSERA_ARGREDUCE(n, combiner, doc) TESSERA_REDUCE(n, combiner, doc)
#define TESSERA_SCAN(n, combiner, doc) TESSERA_REDUCE(n, combiner, doc)
#include "engine/ir/ops.def"
  return t;
}();
}  // namespace

const Combiner* combiner(Opcode op) {
  return kCombining[static_cast<int>(op)].by ? &*kCombining[static_cast<int>(op)].by : nullptr;
}

Opcode combining_op(Opcode op) {
  if (const auto with = kCombining[static_cast<int>(op)].with) return *with;
  throw InternalError(std::string(name(op)) + " is no reduction and no scan");
}

std::string_view name(Family f) {
  constexpr std::string_view kNames[] = {"elementwise", "source",    "move",  "contract", "reduce", "argreduce",
                                         "scan",        "rearrange", "grid",  "memory",   "print",  "control",
                                         "async",       "thread",    "end",   "launch",   "ref",    "group",
                                         "packed",      "matrix",    "report"};
  static_assert(std::size(kNames) == kNumFamilies);
  return kNames[static_cast<int>(f)];
}

const OpInfo& info(Opcode op) { return kInfo[static_cast<int>(op)]; }

std::optional<Opcode> opcode_from_name(std::string_view n) {
  for (int i = 0; i < kNumOpcodes; ++i)
    if (kInfo[i].name == n) return static_cast<Opcode>(i);
  return std::nullopt;
}

std::string_view name(MemorySpace s) {
  constexpr std::string_view kNames[] = {"any",       "vmem",          "smem",    "global",          "shared",
                                         "semaphore", "dma_semaphore", "barrier", "cluster_barrier", "accumulator"};
  return kNames[static_cast<int>(s)];
}

std::string_view name(Attr a) {
  constexpr std::string_view kNames[] = {
      "bits",   "axis",         "axes",         "dims",      "perm",      "start",     "limit",
      "stride", "lhs_contract", "rhs_contract", "lhs_batch", "rhs_batch", "reverse",   "mask",
      "other",  "offset",       "kind",         "index",     "clip",      "unordered", "text",
      "keys",   "count",        "transposed",   "read_only", "decrease",  "late",      "pieces"};
  static_assert(std::size(kNames) == kNumAttrs);
  return kNames[static_cast<int>(a)];
}

bool within_limits(const Shape& shape) {
  constexpr int64_t kMaxElements = int64_t{1} << 40;
  constexpr size_t kMaxRank = 32;
  int64_t n = 1;
  for (int64_t d : shape)
    if (d > 0 && (__builtin_mul_overflow(n, d, &n) || n > kMaxElements)) return false;
  return shape.size() <= kMaxRank;
}

Index::Slice Index::as_slice() const {
  const Slice* given = slice();
  return given ? *given : Slice{start(), 1};
}
const Index::Start& Index::start() const {
  if (const Slice* given = slice()) return given->start;
  if (const Integer* given = std::get_if<Integer>(&what)) return given->start;
  throw InternalError("the start of an index array");
}
const size_t* Index::operand() const {
  if (const Array* array = std::get_if<Array>(&what)) return &array->operand;
  const Dynamic* dynamic = std::get_if<Dynamic>(&start());
  return dynamic ? &dynamic->operand : nullptr;
}
void Index::shift(ptrdiff_t by) {
  if (size_t* at = operand()) *at += static_cast<size_t>(by);
}
bool Index::operator==(const Index& o) const { return what == o.what; }

int64_t BlockDim::size() const {
  if (const Halo* d = halo()) return d->low + d->size + d->high;
  return std::visit(
      [](const auto& d) -> int64_t {
        if constexpr (requires { d.size; }) return d.size;
        else return 1;
      },
      what);
}
int64_t BlockDim::low() const {
  if (const Halo* d = halo()) return d->low;
  return is_element() ? std::get<Element>(what).low : 0;
}
int64_t BlockDim::high() const {
  if (const Halo* d = halo()) return d->high;
  return is_element() ? std::get<Element>(what).high : 0;
}
int64_t BlockDim::unit() const {
  if (const Halo* d = halo()) return d->size;
  return is_blocked() ? size() : 1;
}
bool BlockDim::operator==(const BlockDim& o) const { return what == o.what; }

std::string to_string(const BlockDim& d) {
  if (!d.seen()) return "squeezed";
  const std::string size = std::to_string(d.halo() ? d.unit() : d.size()),
                    around = ", " + std::to_string(d.low()) + ", " + std::to_string(d.high());
  if (d.is_blocked()) return size;
  if (d.is_bounded()) return "bounded(" + size + ")";
  if (d.is_element()) return "element(" + size + (d.low() || d.high() ? around : "") + ")";
  return "halo(" + size + around + ", " + std::string(name(d.halo()->edge)) + ")";
}

std::string_view name(Edge e) {
  switch (e) {
    case Edge::clamp: return "clamp";
    case Edge::zero: return "zero";
    case Edge::reflect: return "reflect";
    case Edge::symmetric: return "symmetric";
    case Edge::wrap: return "wrap";
  }
  return "";
}

int64_t edge_position(Edge e, int64_t at, int64_t extent) {
  if (at >= 0 && at < extent) return at;
  if (extent <= 0) return -1;
  const auto modulo = [&](int64_t n) { return at % n + (at % n < 0 ? n : 0); };
  switch (e) {
    case Edge::clamp: return std::clamp<int64_t>(at, 0, extent - 1);
    case Edge::zero: return -1;
    case Edge::wrap: return modulo(extent);
    case Edge::reflect: {
      if (extent == 1) return 0;
      const int64_t m = modulo(2 * (extent - 1));
      return std::min(m, 2 * (extent - 1) - m);
    }
    case Edge::symmetric: {
      const int64_t m = modulo(2 * extent);
      return std::min(m, 2 * extent - 1 - m);
    }
  }
  return -1;
}

int64_t block_index(const BlockDim& d, int64_t given, int64_t last) {
  return std::clamp<int64_t>(given < 0 && d.wrap() ? given + last + d.wrap() : given, 0, last);
}
Extent last_index(const BlockDim& d, const Extent& extent) {
  const Extent size(std::max<int64_t>(d.is_element() ? d.size() : d.unit(), 1));
  if (d.is_element()) return cdiv(extent + Extent(d.low() + d.high()), size) * size - size;
  return cdiv(extent, size) - Extent(1);
}

std::string to_string(const Type& t) {
  std::string s = std::string(name(t.dtype)) + "[";
  for (size_t i = 0; i < t.shape.size(); ++i)
    s += (i ? ", " : "") + (t.shape[i] < 0 ? std::string("?") : std::to_string(t.shape[i]));
  s += "]";
  if (!t.is_ref) return s;
  const ThreadTraits& more = t.thread_traits();
  const auto list = [](const std::vector<int64_t>& numbers) {
    std::string text = "[";
    for (size_t i = 0; i < numbers.size(); ++i) text += (i ? ", " : "") + std::to_string(numbers[i]);
    return text + "]";
  };
  if (more.arrivals != 1) s += ", arrivals " + std::to_string(more.arrivals);
  if (!more.axes.empty()) s += ", axes " + list(more.axes);
  if (!more.tiling.empty()) s += ", tiling " + list(more.tiling);
  if (more.swizzle != 0) s += ", swizzle " + std::to_string(more.swizzle);
  return "ref<" + std::string(name(t.space)) + ", " + s + ">";
}

bool Op::has(Attr a) const {
  return std::any_of(attrs.begin(), attrs.end(), [&](const auto& p) { return p.first == a; });
}
const std::vector<int64_t>& Op::ints(Attr a) const {
  for (const auto& [key, value] : attrs)
    if (key == a) return value;
  throw InternalError(std::string(info(code).name) + " has no attribute " + std::string(ir::name(a)), loc);
}
void Op::set(Attr a, std::vector<int64_t> v) {
  for (auto& [key, value] : attrs)
    if (key == a) {
      value = std::move(v);
      return;
    }
  attrs.emplace_back(a, std::move(v));
}

const BlockMapping::Blocks& BlockMapping::blocks() const {
  if (const auto* b = std::get_if<Blocks>(&what)) return *b;
  throw InternalError(origin + " has no blocks", loc);
}

Type Kernel::block_ref_type(int i) const {
  const BlockMapping& b = blocks[static_cast<size_t>(i)];
  Shape shape;
  if (b.is_whole()) {
    for (const Extent& e : b.array_shape) {
      if (!e.is_static())
        throw SpecError(name + ": " + b.origin + ": a Ref without a BlockSpec needs static extents, but the array is " +
                            to_string(b.array_shape),
                        b.loc, "give a BlockSpec with a static block shape");
      shape.push_back(*e.value());
    }
    return Type::ref(b.dtype, shape, i < num_prefetch || b.is_by_value() ? MemorySpace::smem : MemorySpace::any);
  }
  for (const BlockDim& d : b.block())
    if (d.seen()) shape.push_back(d.size());
  return Type::ref(b.dtype, shape, b.space);
}

bool Kernel::has_halo(int i) const {
  const BlockMapping& b = blocks[static_cast<size_t>(i)];
  return !b.is_whole() && std::any_of(b.block().begin(), b.block().end(), [](const BlockDim& d) { return d.halo(); });
}

bool Kernel::is_stored(int i) const {
  return std::any_of(ops.begin(), ops.end(), [&](const Op& op) {
    const Value to = stored_ref(op);
    return to && value(to).region == body && value(to).number == static_cast<uint32_t>(i);
  });
}

int Kernel::aliased_output(int i) const {
  for (int o = num_inputs; o < static_cast<int>(blocks.size()); ++o)
    if (i >= 0 && blocks[static_cast<size_t>(o)].alias == i) return o;
  return -1;
}

namespace {
/// In space any, and no block hangs over the edge: nothing stands between the Ref and the array.
bool in_place(const BlockMapping& b) {
  if (b.is_whole()) return true;
  bool inside = b.space == MemorySpace::any;
  for (size_t d = 0; d < b.block().size() && inside; ++d) {
    const auto extent = b.array_shape[d].value();
    const BlockDim& x = b.block()[d];
    inside = !x.seen() || (!x.is_bounded() && !x.halo() && x.low() == 0 && x.high() == 0 && extent && x.size() > 0 &&
                           *extent % x.size() == 0);
  }
  return inside;
}
}  // namespace

bool Kernel::shares_at_once(int i) const {
  const int o = aliased_output(i);
  return o >= 0 && in_place(blocks[static_cast<size_t>(i)]) && in_place(blocks[static_cast<size_t>(o)]);
}

std::string Kernel::usual_origin(int i) const {
  const auto place = [](const char* list, int at) { return std::string(list) + "[" + std::to_string(at) + "]"; };
  if (has_threads()) return is_output(i) ? place("out_type", i - num_inputs) : place("operands", i);
  if (i < num_prefetch) return place("scalar_prefetch", i);
  return is_output(i) ? place("out_specs", i - num_inputs) : place("in_specs", i - num_prefetch);
}

std::string Kernel::description() const {
  const std::string function = loc ? "kernel at " + to_string(loc) : "kernel";
  return name == "kernel" ? function : name + " for kernel function " + function;
}

void Kernel::put_values_in_memory() {
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (!blocks[i].is_by_value()) continue;
    blocks[i].what = BlockMapping::Whole{};
    const int at = static_cast<int>(i);
    blocks[i].space = at < num_prefetch ? MemorySpace::smem : MemorySpace::any;
    values[region(body).args[i].index].type = block_ref_type(at);
    for (const BlockMapping& b : blocks)
      if (!b.is_whole() && at < num_prefetch && region(b.index_map()).args.size() > grid.size() + i)
        values[region(b.index_map()).args[grid.size() + i].index].type = block_ref_type(at);
  }
}

std::vector<std::string> Kernel::dim_names() const {
  std::vector<std::string> names;
  for (const BlockMapping& b : blocks)
    for (const Extent& e : b.array_shape) e.collect_names(names);
  for (const GridAxis& g : grid) g.size.collect_names(names);
  for (const Extent& e : sizes) e.collect_names(names);
  return names;
}

DotDims dot_dims(const Op& dot, size_t lhs_rank, size_t rhs_rank) {
  DotDims d{dot.ints(Attr::lhs_contract),
            dot.ints(Attr::rhs_contract),
            dot.ints(Attr::lhs_batch),
            dot.ints(Attr::rhs_batch),
            {},
            {}};
  const auto free_dims = [](size_t rank, const std::vector<int64_t>& contract, const std::vector<int64_t>& batch) {
    std::vector<int64_t> dims;
    for (int64_t i = 0; i < static_cast<int64_t>(rank); ++i)
      if (std::find(contract.begin(), contract.end(), i) == contract.end() &&
          std::find(batch.begin(), batch.end(), i) == batch.end())
        dims.push_back(i);
    return dims;
  };
  d.lhs_free = free_dims(lhs_rank, d.lhs_contract, d.lhs_batch);
  d.rhs_free = free_dims(rhs_rank, d.rhs_contract, d.rhs_batch);
  return d;
}

DotDims dot_dims(const Kernel& k, const Op& dot) {
  return dot_dims(dot, k.type(dot.operands[0]).shape.size(), k.type(dot.operands[1]).shape.size());
}

std::vector<RegionId> regions_of_ops(const Kernel& k) {
  std::vector<RegionId> region(k.ops.size());
  for (uint32_t r = 0; r < k.regions.size(); ++r)
    for (const OpId o : k.regions[r].ops) region[o.index] = {r};
  return region;
}

bool threads_meet(const Kernel& k, const Op& op) {
  if (op.code != Opcode::run_scoped || !k.has_threads() || k.grid.back().size.value() == 1) return false;
  const std::vector<Value>& args = k.region(op.regions[0]).args;
  return std::any_of(args.begin(), args.end(), [&](Value v) {
    const MemorySpace s = k.type(v).space;
    return s == MemorySpace::smem || is_barrier(s);
  });
}

std::vector<Value> flows_into(const Kernel& k, const Op& op, size_t i) {
  std::vector<Value> values;
  if (is_loop(op.code)) {
    values.push_back(op.operands[first_init(op) + i]);
    for (const RegionId r : op.regions) values.push_back(k.region(r).args[first_carried(op) + i]);
    values.push_back(k.terminator(op.regions.back()).operands[i]);
  } else {
    for (const RegionId r : op.regions) values.push_back(k.terminator(r).operands[i]);
  }
  return values;
}

AccessDims access_dims(const Kernel& k, const Op& op) {
  AccessDims r;
  Shape common;
  size_t runs = 0, slices = 0;  // runs of integers and arrays next to each other
  bool steps = false, dynamic = false;
  for (size_t d = 0; d < op.index.size(); ++d) {
    const Index& x = op.index[d];
    const Index::Slice* slice = x.slice();
    steps = steps || (slice && slice->step > 1);
    dynamic = dynamic || !x.is_static();
    if (x.is_array()) {
      common = k.type(op.operand_of(x)).shape;
      r.arrays = true;
    }
    if (!slice && (d == 0 || op.index[d - 1].slice()) && ++runs == 1) r.array_at = slices;
    r.slice.push_back(slice ? static_cast<int>(slices++) : -1);
  }
  if (!r.arrays || runs > 1) r.array_at = 0;
  r.per_element = r.arrays || (steps && dynamic);
  r.array_rank = common.size();
  r.shape.resize(slices + common.size());
  for (size_t i = 0; i < common.size(); ++i) r.shape[r.array_at + i] = common[i];
  for (size_t d = 0; d < op.index.size(); ++d) {
    if (r.slice[d] < 0) continue;
    if (static_cast<size_t>(r.slice[d]) >= r.array_at) r.slice[d] += static_cast<int>(r.array_rank);
    r.shape[static_cast<size_t>(r.slice[d])] = op.index[d].slice()->size;
  }
  return r;
}

std::array<CopyPlace, 3> copy_places(const Kernel& k, const Op& op) {
  std::array<CopyPlace, 3> places;
  size_t first = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    places[i] = {op.operands.at(i), first, k.type(op.operands[i]).shape.size()};
    first += places[i].rank;
  }
  return places;
}

const ThreadTraits& Type::thread_traits() const {
  static const ThreadTraits usual;
  return traits ? *traits : usual;
}

std::vector<CopyPlace> thread_places(const Kernel& k, const Op& op) {
  std::vector<CopyPlace> places;
  size_t first = 0;
  for (size_t i = 0; i < static_cast<size_t>(num_thread_places(op.code)) && i < op.operands.size(); ++i) {
    const Type& t = k.type(op.operands[i]);
    places.push_back({op.operands[i], first, t.is_ref ? t.shape.size() : 0});
    first += places.back().rank;
  }
  return places;
}

Shape place_shape(const Kernel& k, const Op& op, const CopyPlace& place) {
  if (!k.type(place.ref).is_ref) return k.type(place.ref).shape;
  Shape shape;
  for (size_t d = 0; d < place.rank; ++d)
    if (const Index::Slice* x = op.index.at(place.first + d).slice()) shape.push_back(x->size);
  return shape;
}

int64_t wgmma_depth(const Kernel& k, const Op& op) {
  const Shape lhs = place_shape(k, op, thread_places(k, op)[0]);
  const bool turned = op.has(Attr::transposed) && op.ints(Attr::transposed).at(0) != 0;
  return lhs.at(turned ? 0 : 1);
}

std::vector<Value> scoped_refs(const Kernel& k) {
  std::vector<Value> refs;
  for (const Op& op : k.ops)
    if (op.code == Opcode::run_scoped && !op.regions.empty())
      refs.insert(refs.end(), k.region(op.regions[0]).args.begin(), k.region(op.regions[0]).args.end());
  return refs;
}

std::optional<uint64_t> constant_bits(const Kernel& k, Value v) {
  const Op* op = k.def(v);
  if (!op || op->code != Opcode::constant) return std::nullopt;
  return static_cast<uint64_t>(op->attr(Attr::bits));
}
std::optional<int64_t> constant_int(const Kernel& k, Value v) {
  const auto b = constant_bits(k, v);
  const DType t = k.type(v).dtype;
  if (!b || is_float(t)) return std::nullopt;
  const int n = bits(t);
  if (is_signed_int(t) && n < 64 && (*b >> (n - 1) & 1)) return static_cast<int64_t>(*b | ~uint64_t{0} << n);
  return static_cast<int64_t>(*b);
}

}  // namespace tessera::ir
