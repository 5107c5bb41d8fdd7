// The primitives that read and write Refs. Where they do so was unflattened by the exporter into a list of transforms.
#include <algorithm>
#include <map>

#include "engine/base/function.h"
#include "engine/front/trace.h"
#include "engine/jax/primitives.h"

namespace tessera::jax {
namespace {
/// A static integer, as the front end wants numbers, or a Value.
Operand index_operand(const Equation& e, const Node& n) {
  const Entry entry = e.entry(n);
  return entry.number ? Operand(*entry.number, e.loc) : Operand(value_of(entry, e), e.loc);
}

/// A slice whose size comes at run time: the dim, of which the place takes all it can, and the size.
struct OpenSize {
  size_t dim;
  Operand size;
};
IndexItem item(const Equation& e, const Node& n, size_t dim, int64_t extent, std::vector<OpenSize>* open) {
  if (!n.is_object() || !n.find("size")) {
    const Operand o = index_operand(e, n);
    return o.number() ? IndexItem(std::get<int64_t>(*o.number()), e.loc) : IndexItem(*o.value(), e.loc);
  }
  const Entry size = e.entry(n.at("size"));
  if (!size.number && !open)
    e.fail("a slice's size is known only when the kernel runs", "give a static size and a mask");
  if (!size.number) open->push_back({dim, Operand(value_of(size, e), e.loc)});
  return IndexItem(
      ds(index_operand(e, n.at("start")), size.number.value_or(extent), n.at("stride").integer(0, INT32_MAX)));
}

/// Whether an index takes everything, so that it changes nothing.
bool takes_all(const Equation& e, const Node& index, const Shape& shape) {
  if (index.size() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d) {
    const Node n = index.at(d);
    if (!n.is_object() || !n.find("size")) return false;
    const Entry start = e.entry(n.at("start")), size = e.entry(n.at("size"));
    if (start.number != std::optional<int64_t>(0) || size.number != std::optional<int64_t>(shape[d]) ||
        n.at("stride").integer() != 1)
      return false;
  }
  return true;
}

/// a + b * scale, of numbers or scalars.
Operand plus(const Equation& e, const Operand& a, const Operand& b, int64_t scale) {
  if (a.number() && b.number())
    return Operand(std::get<int64_t>(*a.number()) + std::get<int64_t>(*b.number()) * scale, e.loc);
  Emit emit(e.name, e.loc);
  const Value from = emit.wrap(emit.index_scalar(a, "the start")), by = emit.wrap(emit.index_scalar(b, "the start"));
  const Value step = scale == 1 ? by : Operand(by, e.loc) * Operand(scale, e.loc);
  return Operand(Operand(from, e.loc) + Operand(step, e.loc), e.loc);
}
/// An index of what another one takes, as one: of slices and integers, whose starts add up before any is compared with
/// the array's edges. Nothing where one of them is an array.
std::optional<std::vector<IndexItem>> merged(const Equation& e, const std::vector<IndexItem>& outer,
                                             const std::vector<IndexItem>& inner) {
  std::vector<IndexItem> all;
  auto next = inner.begin();
  const auto is_scalar = [](const Operand* o) { return o && (o->number() || (o->value() && o->value()->rank() == 0)); };
  for (const IndexItem& item : outer) {
    const Ds* from = std::get_if<Ds>(&item.item());
    if (!from) {
      if (!is_scalar(std::get_if<Operand>(&item.item()))) return std::nullopt;
      all.push_back(item);
      continue;
    }
    if (next == inner.end()) return std::nullopt;
    const Ds* s = std::get_if<Ds>(&next->item());
    const Operand* o = std::get_if<Operand>(&next->item());
    if (s) {
      all.emplace_back(ds(plus(e, from->start, s->start, from->step), s->size, from->step * s->step));
    } else if (is_scalar(o)) {
      const Operand at = plus(e, from->start, *o, from->step);
      all.push_back(at.number() ? IndexItem(std::get<int64_t>(*at.number()), e.loc) : IndexItem(*at.value(), e.loc));
    } else {
      return std::nullopt;
    }
    ++next;
  }
  return next == inner.end() ? std::optional(all) : std::nullopt;
}
/// What an index leaves of a Ref's dims.
Shape taken(const std::vector<IndexItem>& items) {
  Shape shape;
  for (const IndexItem& i : items)
    if (const Ds* s = std::get_if<Ds>(&i.item())) shape.push_back(s->size);
  return shape;
}

/// The part of operand i that a list of transforms takes: a view for all of them but an index at the end. In kernels of
/// threads a window of a window is one window, which may leave the inner one, as in JAX.
Place place(const Equation& e, size_t i, const Node& transforms, std::vector<OpenSize>* open) {
  Ref ref = e.ref(i);
  const bool threads = Emit(e.name, e.loc).trace().kernel().has_threads();
  const std::vector<Node> steps = transforms.items();
  std::vector<IndexItem> window;  // of the Ref, where it is not a part of it yet
  const auto enter = [&] {
    if (!window.empty()) ref = ref.at(RefIndex(std::exchange(window, {}), e.loc));
  };
  for (const Node& t : steps) {
    if (const auto index = t.find("index")) {
      const Shape shape = window.empty() ? ref.shape() : taken(window);
      if (takes_all(e, *index, shape)) continue;
      std::vector<IndexItem> items;
      for (const Node& n : index->items())
        items.push_back(item(e, n, items.size(), items.size() < shape.size() ? shape[items.size()] : 0,
                             &t == &steps.back() ? open : nullptr));
      auto both = window.empty() ? std::nullopt : merged(e, window, items);
      if (!both) enter();
      window = both ? std::move(*both) : std::move(items);
      if (!threads && &t != &steps.back()) enter();
      continue;
    }
    if (t.find("untile") || t.find("unswizzle")) {
      // How elements of smem lie, which its type says: of the whole memory, before any part of it is taken.
      if (&t != &steps.front() && !steps.front().find("untile") && !steps.front().find("unswizzle"))
        e.fail("tiles of a part of the memory");
      continue;
    }
    enter();
    if (const auto shape = t.find("reshape")) ref = ref.reshape(shape->shape(), e.loc);
    else if (const auto dtype = t.find("bitcast")) ref = ref.bitcast(dtype->dtype(), e.loc);
    else ref = ref.transpose(t.at("transpose").integers(0, INT32_MAX), e.loc);
  }
  if (window.empty()) return {ref, RefIndex(all, e.loc)};
  return {ref, RefIndex(std::move(window), e.loc)};
}

Place place(const Equation& e, size_t i = 0, const char* transforms = "transforms",
            std::vector<OpenSize>* open = nullptr) {
  return place(e, i, e.params.at(transforms), open);
}

Operand mask(const Equation& e) {
  const auto m = e.params.find("mask");
  return m ? e.operand(*m) : Operand();
}

/// masked_load and masked_swap look at elements one by one: what a window leaves of the Ref is not there, where get and
/// swap move the window. JAX's interpreter lengthens each dim by the window to that end, so that a negative start wraps
/// around that length. Index arrays go as with get and swap. The same as starts under a mask, which moves nothing.
struct Access {
  Place at;
  Operand mask;
  bool own_mask;  // the kernel gave it
};
/// Positions from arrays outside of the Ref find the nearest element, under a mask as without.
RefIndex nearest(const Shape& shape, std::vector<IndexItem> items, Loc loc) {
  for (size_t d = 0; d < items.size(); ++d) {
    const Operand* i = std::get_if<Operand>(&items[d].item());
    if (!i || !i->value() || i->value()->rank() == 0 || !is_int(i->value()->dtype()) || shape[d] == 0) continue;
    if (bits(i->value()->dtype()) > 32 || i->value()->dtype() == DType::u32) continue;
    const Operand zero(0, loc), position(cast(*i, DType::i32), loc), behind(position + Operand(shape[d], loc), loc),
        wrapped(where(Operand(position < zero, loc), behind, position), loc);
    items[d] = IndexItem(clamp(zero, wrapped, Operand(shape[d] - 1, loc)), loc);
  }
  return {std::move(items), loc};
}
Access access(const Equation& e) {
  Access a{place(e), mask(e), true};
  if (e.name != "masked_load" && e.name != "masked_swap") return a;
  std::vector<IndexItem> items = a.at.index().items();
  if (!a.mask.absent()) {
    if (e.name == "masked_load") a.at = Place(a.at.ref(), nearest(a.at.ref().shape(), std::move(items), e.loc));
    return a;
  }
  for (size_t d = 0; d < items.size(); ++d) {
    const Operand* i = std::get_if<Operand>(&items[d].item());
    const Ds* s = std::get_if<Ds>(&items[d].item());
    if (i && i->value() && i->value()->rank() != 0) return a;
    if ((!i || i->number()) && !s) continue;
    const int64_t n = a.at.ref().shape()[d], span = !s ? 1 : s->size ? (s->size - 1) * s->step + 1 : 0;
    const auto operand = [&](int64_t x) { return Operand(x, e.loc); };
    if (s && s->start.number()) {
      const int64_t start = std::get<int64_t>(*s->start.number()),
                    from = std::clamp<int64_t>(start < 0 ? start + n + span : start, 0, n);
      if (start >= 0 && start + span <= n) continue;
      items[d] = ds(operand(from), s->size, s->step);
    } else {
      Emit emit(e.name, e.loc);
      const Operand start(emit.wrap(emit.index_scalar(s ? s->start : *i, "dim " + std::to_string(d) + ": the start")),
                          e.loc);
      const Operand behind(start + operand(n + span), e.loc);
      const Value wrapped = where(Operand(start < operand(0), e.loc), behind, start);
      const Operand from(clamp(operand(0), Operand(wrapped, e.loc), operand(n)), e.loc);
      items[d] = s ? IndexItem(ds(from, s->size, s->step)) : IndexItem(*from.value(), e.loc);
    }
    a.mask = Operand(true, e.loc);
    a.own_mask = false;
  }
  a.at = Place(a.at.ref(), RefIndex(std::move(items), e.loc));
  return a;
}

/// Whether run_state gave a value for the Ref, in a kernel of threads.
bool is_held_value(const Equation& e) {
  return e.size() > 0 && std::holds_alternative<Value>(e.in[0].is) &&
         Emit(e.name, e.loc).trace().kernel().has_threads();
}
Values load_of(Equation& e) {
  if (is_held_value(e)) {
    const Node transforms = e.params.at("transforms");
    for (const Node& t : transforms.items())
      if (const auto index = t.find("index"); !index || !takes_all(e, *index, e.value(0).shape()))
        e.fail("takes a part of a value that run_state holds", "take all of it, ref[...], and then a part of that");
    return {e.value(0)};
  }
  const Access a = access(e);
  LoadParams p{.mask = a.mask};
  const auto other = e.params.find("other");
  // without a mask nothing is left out
  if (other && !p.mask.absent() && a.own_mask) p.other = Operand(cast(e.operand(*other), a.at.ref().dtype()), e.loc);
  return {load(a.at.ref(), a.at.index(), p)};
}
Values store_of(Equation& e) {
  if (is_held_value(e))
    e.fail("stores to what run_state holds beside an accumulator, and a thread has no memory of its own",
           "keep it in a loop's carry, or in plgpu.SMEM of scratch_types");
  const Access a = access(e);
  if (!e.dropped(0)) {
    LoadParams p{.mask = a.mask};
    if (!p.mask.absent() && a.own_mask) p.other = e.x(1);  // what is left out results in the value itself
    return {swap(a.at.ref(), a.at.index(), e.x(1), p)};
  }
  store(a.at.ref(), a.at.index(), e.x(1), {.mask = a.mask});
  return {e.value(1)};  // a result that nothing reads
}
Values add_update(Equation& e) {
  const Place at = place(e);
  addupdate(at.ref(), at.index(), e.x(1));
  return {};
}
Values atomic(Equation& e) {
  using Atomic = Value (*)(const Ref&, RefIndex, Operand, LoadParams);
  static const std::map<std::string, Atomic> kinds{{"add", atomic_add}, {"and", atomic_and}, {"max", atomic_max},
                                                   {"min", atomic_min}, {"or", atomic_or},   {"xchg", atomic_xchg},
                                                   {"xor", atomic_xor}};
  const std::string kind = e.params.at("atomic_type").string();
  const auto it = kinds.find(kind);
  if (it == kinds.end()) e.fail("the kind " + kind + " is not known");
  const Place at = place(e);
  return {it->second(at.ref(), at.index(), e.x(1), {.mask = mask(e)})};
}
/// A copy of a size that comes at run time: a load and a store under a mask where it starts. Its semaphore, which only
/// the copy's own wait could look at, does not move.
void copy_of_open_size(const Equation& e, const Place& source, const Place& target, const std::vector<OpenSize>& from,
                       const std::vector<OpenSize>& to) {
  if (from.size() != to.size())
    e.fail("the source has " + std::to_string(from.size()) + " dims whose size comes at run time but the target " +
           std::to_string(to.size()));
  std::vector<IndexItem> sources = source.index().items(), targets = target.index().items();
  for (size_t i = 0; i < from.size(); ++i) {
    Ds a = std::get<Ds>(sources[from[i].dim].item()), b = std::get<Ds>(targets[to[i].dim].item());
    a.size = b.size = std::min(a.size, b.size);
    sources[from[i].dim] = IndexItem(a);
    targets[to[i].dim] = IndexItem(b);
  }
  Shape shape;
  std::vector<int64_t> dims;  // of the value, by open size
  for (size_t d = 0, next = 0; d < sources.size(); ++d) {
    const Ds* s = std::get_if<Ds>(&sources[d].item());
    if (!s) continue;
    if (next < from.size() && from[next].dim == d) dims.push_back(static_cast<int64_t>(shape.size())), ++next;
    shape.push_back(s->size);
  }
  std::optional<Value> mask;
  for (size_t i = 0; i < from.size(); ++i) {
    const Operand size(cast(from[i].size, DType::i32), e.loc);
    const Value inside = Operand(iota(DType::i32, shape, dims[i], e.loc), e.loc) < size;
    mask = mask ? Operand(*mask, e.loc) & Operand(inside, e.loc) : inside;
  }
  const Operand m(*mask, e.loc);
  const Value v = load(source.ref(), RefIndex(std::move(sources), e.loc), {.mask = m});
  store(target.ref(), RefIndex(std::move(targets), e.loc), Operand(v, e.loc), {.mask = m});
}
Values copy(Equation& e, bool starts) {
  const auto adds = e.params.find("add");
  if (adds && adds->boolean()) e.fail("copies that add to their target cannot be imported yet");
  std::vector<OpenSize> from, to;
  const Place source = place(e, 0, "source", &from), target = place(e, 1, "target", &to);
  if (!from.empty() || !to.empty()) {
    if (starts) copy_of_open_size(e, source, target, from, to);
    return {};
  }
  const AsyncCopy c = make_async_copy(source, target, place(e, 2, "semaphore"));
  if (starts) c.start(e.loc);
  else c.wait(e.loc);
  return {};
}
Values wait(Equation& e) {
  semaphore_wait(place(e), e.x(1), e.params.at("decrement").boolean(), e.loc);
  return {};
}

/// Asked of a whole array only, which is where a TPU's big memory would be.
Values has_memory_space(Equation& e) {
  return {constant(DType::boolean, e.params.at("memory_space").string() == "hbm", {}, e.loc)};
}

MemorySpace scratch_space(const Node& n) {
  const std::string s = n.string();
  for (const MemorySpace m :
       {MemorySpace::any, MemorySpace::vmem, MemorySpace::smem, MemorySpace::semaphore, MemorySpace::dma_semaphore})
    if (s == ir::name(m)) return m;
  n.fail("is the memory space " + s + ", which scratch cannot be in",
         "any, vmem, smem, semaphore and dma_semaphore are");
}
/// A body with Refs of its own behind those that it is given.
Values scoped(Equation& e) {
  if (Emit(e.name, e.loc).trace().kernel().has_threads()) return scoped_by_threads(e);
  const Node body = e.params.at("jaxpr");
  const std::vector<Node> args = body.at("args").items();
  if (args.size() < e.size())
    body.fail("takes " + std::to_string(args.size()) + " arguments but is given " + std::to_string(e.size()));
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

namespace {
/// A body on Refs that it is given values for; what they hold in the end is the result. Refs of the equation's own
/// scope go through, and are no results. A thread has no memory of its own: values that the body only reads stay
/// values.
Values run_state(Equation& e) {
  const Node body = e.params.at("jaxpr"), initialized = e.params.at("is_initialized");
  const std::vector<Node> args = body.at("args").items();
  if (initialized.size() != args.size())
    initialized.fail("has " + std::to_string(initialized.size()) + " entries but there are " +
                     std::to_string(args.size()) + " Refs");
  const bool threads = Emit(e.name, e.loc).trace().kernel().has_threads();
  const auto through = e.params.find("through");  // Refs of the scope around, to JAX
  struct Held {
    std::optional<Entry> given;
    bool made;    // a Ref for it
    bool result;  // it is one
  };
  std::vector<Held> state;
  std::vector<Node> made;
  for (size_t i = 0, next = 0; i < args.size(); ++i) {
    Held h{std::nullopt, true, !through || !through->at(i).boolean()};
    if (initialized.at(i).boolean()) {
      if (next >= e.size()) e.fail("operand " + std::to_string(next) + " is missing");
      h.given = e.in[next++];
      h.made = std::holds_alternative<Value>(h.given->is) && !(threads && type_form(args[i]).space == "vmem");
    }
    if (h.made) made.push_back(args[i]);
    state.push_back(std::move(h));
  }
  const auto inside = [&](const std::vector<Ref>& refs) {
    Entries arguments;
    auto next = refs.begin();
    for (const Held& h : state) {
      if (h.made && h.given) store(*next, RefIndex(all, e.loc), Operand(value_of(*h.given, e), e.loc));
      arguments.push_back(h.made ? Entry{*next++} : *h.given);
    }
    run(e.import, body, arguments, e.loc);
    control::Operands out;
    next = refs.begin();
    for (const Held& h : state)
      if (h.made) out.emplace_back(load(*next++, RefIndex(all, e.loc)), e.loc);
      else if (h.result) out.emplace_back(value_of(*h.given, e), e.loc);
    return out;
  };
  if (threads) {
    std::vector<mosaic_gpu::ScratchType> types;
    for (const Node& n : made) types.push_back(thread_scratch(n, std::nullopt, e.loc));
    return mosaic_gpu::scoped::run(types, types.size(), {}, inside, e.loc);
  }
  std::vector<ScratchShape> types;
  for (const Node& n : made) types.push_back(scratch_shape(n));
  return scope::run(types, types.size(), inside, e.loc);
}
}  // namespace

bool makes_ref(const Node& equation) {
  const std::string name = equation.at("p").string();
  return name == "new_ref" || name == "empty_ref";
}
Values new_ref(const Equation& e, FunctionRef<Values(const Ref&)> rest) {
  return scope::run(
      {scratch_shape(e.node.at("out").at(size_t{0}))}, 1,
      [&](const std::vector<Ref>& refs) {
        if (e.name == "new_ref") store(refs[0], RefIndex(all, e.loc), e.x(0));
        control::Operands out;
        for (const Value& v : rest(refs[0])) out.emplace_back(v, e.loc);
        return out;
      },
      e.loc);
}

Place place_of(const Equation& e, size_t i, const char* transforms) { return place(e, i, transforms); }

Ref part_of(const Equation& e, size_t i, const Node& transforms) {
  const Place p = place(e, i, transforms, nullptr);
  return p.index().items().empty() ? p.ref() : Ref(p.ref().at(p.index()));
}

ScratchShape scratch_shape(const Node& n) {
  const TypeForm t = type_form(n);
  if (!t.space) n.fail("is no Ref");
  return {t.shape, t.dtype, scratch_space(n.at(2))};
}

const std::vector<Row>& memory_rows() {
  static const std::vector<Row> rows{
      {"addupdate", 2, add_update},
      {"atomic_cas", 3, [](Equation& e) { return Values{atomic_cas(e.ref(0), RefIndex(all, e.loc), e.x(1), e.x(2))}; }},
      {"atomic_rmw", 2, atomic},
      {"dma_start", 3, [](Equation& e) { return copy(e, true); }},
      {"dma_wait", 3, [](Equation& e) { return copy(e, false); }},
      {"free_ref", 1, [](Equation&) { return Values{}; }},
      {"freeze", 1, [](Equation& e) { return Values{load(e.ref(0), RefIndex(all, e.loc))}; }},
      {"get", 1, load_of},
      {"has_memory_space", 1, has_memory_space},
      {"masked_load", 1, load_of},
      {"masked_swap", 2, store_of},
      {"run_scoped", -1, scoped},
      {"run_state", -1, run_state},
      {"semaphore_read", 1, [](Equation& e) { return Values{semaphore_read(place(e), e.loc)}; }},
      {"semaphore_signal", 2, [](Equation& e) { return semaphore_signal(place(e), e.x(1), e.loc), Values{}; }},
      {"semaphore_wait", 2, wait},
      {"swap", 2, store_of},
  };
  return rows;
}

}  // namespace tessera::jax
