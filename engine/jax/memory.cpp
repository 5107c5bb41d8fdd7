// The primitives that read and write Refs. Where they do so was unflattened by the exporter: a list of transforms, of which the last may be an index.
#include "engine/jax/primitives.h"

namespace tessera::jax {
namespace {
/// A static integer, as the front end wants numbers, or a Value.
Operand index_operand(const Equation& e, const Node& n) {
  const Entry entry = e.entry(n);
  return entry.number ? Operand(*entry.number, e.loc) : Operand(value_of(entry, e), e.loc);
}

IndexItem item(const Equation& e, const Node& n) {
  if (!n.is_object() || !n.find("size")) {
    const Operand o = index_operand(e, n);
    return o.number() ? IndexItem(std::get<int64_t>(*o.number()), e.loc) : IndexItem(*o.value(), e.loc);
  }
  const Entry size = e.entry(n.at("size"));
  if (!size.number) e.fail("a slice's size is known only when the kernel runs", "give a static size and a mask");
  return IndexItem(ds(index_operand(e, n.at("start")), *size.number, n.at("stride").integer(0, INT32_MAX)));
}

/// Whether an index takes everything, so that it changes nothing.
bool takes_all(const Equation& e, const Node& index, const Shape& shape) {
  if (index.size() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d) {
    const Node n = index.at(d);
    if (!n.is_object() || !n.find("size")) return false;
    const Entry start = e.entry(n.at("start")), size = e.entry(n.at("size"));
    if (start.number != std::optional<int64_t>(0) || size.number != std::optional<int64_t>(shape[d]) || n.at("stride").integer() != 1) return false;
  }
  return true;
}

/// The part of operand i that a list of transforms takes.
RefIndex place(const Equation& e, size_t i = 0, const char* transforms = "transforms") {
  const Shape& shape = e.ref(i).shape();
  std::optional<Node> last;
  for (const Node& t : e.params.at(transforms).items()) {
    const auto index = t.find("index");
    if (last || !index) e.fail("views of Refs (Ref.at[...] followed by an index, reshape, bitcast, transpose) cannot be imported yet", "index the Ref itself");
    if (takes_all(e, *index, shape)) continue;
    if (t.at("array").size() > 0) e.fail("indices that are arrays cannot be imported yet");
    last = index;
  }
  if (!last) return RefIndex(all, e.loc);
  std::vector<IndexItem> items;
  for (const Node& n : last->items()) items.push_back(item(e, n));
  return RefIndex(std::move(items), e.loc);
}

Operand mask(const Equation& e) {
  const auto m = e.params.find("mask");
  return m ? e.operand(*m) : Operand();
}

Values load_of(Equation& e) {
  LoadParams p{.mask = mask(e)};
  const auto other = e.params.find("other");
  if (other && !p.mask.absent()) p.other = Operand(cast(e.operand(*other), e.ref(0).dtype()), e.loc);  // without a mask nothing is left out
  return {load(e.ref(0), place(e), p)};
}
Values store_of(Equation& e) {
  const Ref& ref = e.ref(0);
  if (!e.dropped(0)) return {swap(ref, place(e), e.x(1), {.mask = mask(e)})};
  store(ref, place(e), e.x(1), {.mask = mask(e)});
  return {e.value(1)};  // a result that nothing reads
}
Values add_update(Equation& e) {
  e.ref(0)[place(e)] += e.x(1);
  return {};
}
AsyncCopy copy(Equation& e) {
  const auto adds = e.params.find("add");
  if (adds && adds->boolean()) e.fail("copies that add to their target cannot be imported yet");
  return make_async_copy({e.ref(0), place(e, 0, "source")}, {e.ref(1), place(e, 1, "target")}, {e.ref(2), place(e, 2, "semaphore")});
}
Values wait(Equation& e) {
  if (!e.params.at("decrement").boolean()) e.fail("waiting without lowering the semaphore cannot be imported yet");
  semaphore_wait({e.ref(0), place(e)}, e.x(1), e.loc);
  return {};
}

MemorySpace scratch_space(const Node& n) {
  const std::string s = n.string();
  for (const MemorySpace m : {MemorySpace::any, MemorySpace::vmem, MemorySpace::smem, MemorySpace::semaphore, MemorySpace::dma_semaphore})
    if (s == ir::name(m)) return m;
  n.fail("is the memory space " + s + ", which scratch cannot be in", "any, vmem, smem, semaphore and dma_semaphore are");
}
/// A body with Refs of its own behind those that it is given.
Values scoped(Equation& e) {
  const Node body = e.params.at("jaxpr");
  const std::vector<Node> args = body.at("args").items();
  if (args.size() < e.size()) body.fail("takes " + std::to_string(args.size()) + " arguments but is given " + std::to_string(e.size()));
  std::vector<ScratchShape> types;
  for (size_t i = e.size(); i < args.size(); ++i) types.push_back(scratch_shape(args[i]));
  return scope::run(
      types, types.size(),
      [&](const std::vector<Ref>& refs) {
        Entries arguments = e.in;
        for (const Ref& r : refs) arguments.push_back({r});
        control::Operands out;
        for (const Entry& x : run(e.import, body, arguments, e.loc)) out.emplace_back(value_of(x, e), e.loc);
        return out;
      },
      e.loc);
}
}  // namespace

ScratchShape scratch_shape(const Node& n) {
  const TypeForm t = type_form(n);
  if (!t.space) n.fail("is no Ref");
  return {t.shape, t.dtype, scratch_space(n.at(2))};
}

const std::vector<Row>& memory_rows() {
  static const std::vector<Row> rows{
      {"addupdate", 2, add_update},
      {"dma_start", 3, [](Equation& e) { return copy(e).start(e.loc), Values{}; }},
      {"dma_wait", 3, [](Equation& e) { return copy(e).wait(e.loc), Values{}; }},
      {"get", 1, load_of},
      {"masked_load", 1, load_of},
      {"masked_swap", 2, store_of},
      {"run_scoped", -1, scoped},
      {"semaphore_read", 1, [](Equation& e) { return Values{semaphore_read({e.ref(0), place(e)}, e.loc)}; }},
      {"semaphore_signal", 2, [](Equation& e) { return semaphore_signal({e.ref(0), place(e)}, e.x(1), e.loc), Values{}; }},
      {"semaphore_wait", 2, wait},
      {"swap", 2, store_of},
  };
  return rows;
}

}  // namespace tessera::jax
