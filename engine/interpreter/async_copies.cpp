#include "engine/interpreter/async_copies.h"

#include <algorithm>
#include <cstring>

namespace tessera::interpreter {
namespace {
using ir::Index;
using ir::Op;
using ir::Opcode;

std::string text(const std::vector<int64_t>& position) {
  if (position.empty()) return "";
  std::string s = "[";
  for (size_t d = 0; d < position.size(); ++d) s += (d ? ", " : "") + std::to_string(position[d]);
  return s + "]";
}

/// Where an index takes each dim of a Ref.
struct Side {
  const Op* op;
  size_t ref;
  Shape extents;
  std::vector<Index> index;

  int64_t given(const Machine& m, size_t d) const {
    return index[d].is_static() ? index[d].constant() : m.scalar(op->operand_of(index[d]));
  }
  int64_t start(const Machine& m, size_t d, bool shifts) const {
    const int64_t n = extents[d], at = given(m, d);
    if (index[d].is_static() || !shifts) return at;
    const int64_t span = index[d].as_slice().span(), wrapped = at < 0 ? at + n : at;
    const int64_t fitted = std::max<int64_t>(0, std::min(wrapped, n - span));
    if (m.raise && fitted != wrapped && span > 0)
      throw KernelError(m.kernel->name + ": " + std::string(ir::name(op->code)) + " of " + ref_text(*m.kernel, ref) +
                            " by program " + program_text(*m.kernel, m.grid_point.data()) + ": element" +
                            (span == 1 ? " " + std::to_string(at)
                                       : "s " + std::to_string(at) + " to " + std::to_string(at + span - 1)) +
                            " along dim " + std::to_string(d) + ", which has " + std::to_string(n),
                        op->loc,
                        "unless out-of-bounds accesses raise, the start is moved to " + std::to_string(fitted));
    return fitted;
  }
};
Side side(const Machine& m, const Op& op, const ir::CopyPlace& place) {
  return {&op,
          m.refs[place.ref.index],
          m.kernel->type(place.ref).shape,
          {op.index.begin() + static_cast<ptrdiff_t>(place.first),
           op.index.begin() + static_cast<ptrdiff_t>(place.first + place.rank)}};
}

struct Counter {
  int32_t* at;
  std::vector<int64_t> position;
};
Counter counter(const Machine& m, const Side& s) {
  Counter c{reinterpret_cast<int32_t*>(m.views[s.ref].data), {}};
  for (size_t d = 0; d < s.index.size(); ++d) {
    c.position.push_back(s.start(m, d, true));
    c.at += c.position[d] * m.views[s.ref].strides[d];
  }
  return c;
}

/// The copy as its operands say now.
AsyncCopies::Copy make_copy(const Machine& m, const Op& op, const Side (&sides)[3], bool clip) {
  AsyncCopies::Copy c;
  c.op = &op;
  c.element_bytes = size_bytes(m.kernel->type(op.operands[0]).dtype);
  c.program = m.grid_point;
  Counter s = counter(m, sides[2]);
  c.counter = s.at;
  c.semaphore_at = std::move(s.position);
  c.semaphore = sides[2].ref;
  Shape low, high;  // per dim of the copy: the part that is inside both
  for (const Index& x : sides[0].index)
    if (x.slice()) low.push_back(0), high.push_back(x.slice()->size);
  c.bytes = num_elements(high) * c.element_bytes;
  for (const Side* from : {&sides[0], &sides[1]}) {
    AsyncCopies::Window& w = from == &sides[0] ? c.from : c.to;
    w.ref = from->ref;
    w.first = m.views[from->ref].data;
    size_t i = 0;
    for (size_t d = 0; d < from->index.size(); ++d) {
      const Index::Slice* x = from->index[d].slice();
      const int64_t start = from->start(m, d, !clip), n = from->extents[d], stride = m.views[from->ref].strides[d];
      w.at.push_back(start);
      w.first += start * stride * c.element_bytes;
      if (!x) {
        if (start < 0 || start >= n) high.assign(high.size(), 0), c.element_bytes = high.empty() ? 0 : c.element_bytes;
        continue;
      }
      w.dims.push_back(d);
      w.step.push_back(x->step);
      w.strides.push_back(stride * x->step);
      // start + e * step is in [0, n)
      low[i] = std::max(low[i], start >= 0 ? 0 : (-start + x->step - 1) / x->step);
      high[i] = std::min(high[i], start >= n ? 0 : (n - 1 - start) / x->step + 1);
      ++i;
    }
  }
  for (size_t i = 0; i < low.size(); ++i) {
    c.shape.push_back(std::max<int64_t>(high[i] - low[i], 0));
    for (AsyncCopies::Window* w : {&c.from, &c.to}) {
      w->first += low[i] * w->strides[i] * size_bytes(m.kernel->type(op.operands[0]).dtype);
      w->at[w->dims[i]] += low[i] * w->step[i];
    }
  }
  return c;
}

/// Reports a race if an op reads or changes a counter in scratch that a program without an order to this one changed.
void touch(Machine& m, const Op& op, size_t ref, const Counter& c) {
  if (!m.races || !m.races->follows(ref)) return;
  const Shape& shape = m.kernel->scratch[ref - m.kernel->blocks.size()].shape;
  int64_t element = 0;
  for (size_t d = 0; d < shape.size(); ++d) element = element * shape[d] + c.position[d];
  if (*c.at != 0) m.races->access(op, ref, element, Touching::load);
  m.races->access(op, ref, element, Touching::store);
}
}  // namespace

Step async_step(const Machine& machine, const Op& op) {
  if (ir::is_copy(op.code)) {
    const std::array<ir::CopyPlace, 3> places = ir::copy_places(*machine.kernel, op);
    const bool clip = op.attr_or(ir::Attr::clip, 0) != 0, starts = op.code == Opcode::copy_start;
    return [o = &op, from = side(machine, op, places[0]), to = side(machine, op, places[1]),
            semaphore = side(machine, op, places[2]), clip, starts](Machine& m) {
      const Side sides[3] = {from, to, semaphore};
      if (starts) return m.async->start(make_copy(m, *o, sides, clip));
      const Counter s = counter(m, semaphore);
      touch(m, *o, semaphore.ref, s);
      int64_t bytes = size_bytes(m.kernel->type(o->operands[0]).dtype);
      for (const Index& x : from.index) bytes *= x.as_slice().size;
      m.async->wait(*o, semaphore.ref, s.at, s.position, static_cast<int32_t>(bytes));
    };
  }
  return [o = &op, semaphore = side(machine, op, {op.operands[0], 0, op.index.size()})](Machine& m) {
    const Counter s = counter(m, semaphore);
    touch(m, *o, semaphore.ref, s);
    if (o->code == Opcode::semaphore_read) std::memcpy(m.place[o->results[0].index], s.at, sizeof(int32_t));
    else if (o->code == Opcode::semaphore_signal) m.async->signal(s.at, m.scalar(o->operands[1]));
    else m.async->wait(*o, semaphore.ref, s.at, s.position, m.scalar(o->operands[1]));
  };
}

bool AsyncCopies::needed(const ir::Kernel& k) {
  return std::any_of(k.ops.begin(), k.ops.end(),
                     [](const Op& op) { return op.code == Opcode::run_scoped || ir::is_async(op.code); });
}

AsyncCopies::AsyncCopies(Machine& m, std::optional<uint64_t> seed)
    : m_(m), k_(*m.kernel), random_(seed ? std::optional(mix(*seed + 77)) : std::nullopt) {
  const std::vector<ir::Value>& refs = m.scoped;
  const size_t body = k_.region(k_.body).args.size();
  memory_.resize(refs.size());
  for (const ir::Value v : refs) strides_.push_back(dense_strides(k_.type(v).shape));
  for (size_t i = 0; i < refs.size(); ++i) {
    const ir::Type& t = k_.type(refs[i]);
    memory_[i].resize(static_cast<size_t>(num_elements(t.shape) * size_bytes(t.dtype)));
    m_.views[body + i] = {memory_[i].data(), strides_[i].data(), true};
  }
}

std::string AsyncCopies::program() const { return program_text(k_, m_.grid_point.data()); }

void AsyncCopies::enter(const Op& scope) {
  const size_t body = k_.region(k_.body).args.size();
  for (const ir::Value v : k_.region(scope.regions[0]).args) {
    const ir::Type& t = k_.type(v);
    std::vector<std::byte>& bytes = memory_[m_.refs[v.index] - body];
    if (ir::is_semaphore(t.space)) std::fill(bytes.begin(), bytes.end(), std::byte{0});
    else fill_unspecified(bytes.data(), num_elements(t.shape), t.dtype, m_.fill, ++owners_);
  }
}

void AsyncCopies::leave(const Op& scope) {
  for (const ir::Value v : k_.region(scope.regions[0]).args) check_end(m_.refs[v.index], "its run_scoped");
}

void AsyncCopies::end_of_kernel() {
  for (size_t i = 0; i < k_.scratch.size(); ++i) check_end(k_.blocks.size() + i, "the kernel");
}

void AsyncCopies::check_end(size_t ref, const std::string& where) {
  for (const Copy& c : copies_) {
    if (c.semaphore != ref && c.from.ref != ref && c.to.ref != ref) continue;
    throw KernelError(k_.name + ": copy_start by program " + program_text(k_, c.program.data()) + ": the copy from " +
                          ref_text(k_, c.from.ref) + " to " + ref_text(k_, c.to.ref) +
                          " is still under way at the end of " + where,
                      c.op->loc, "wait() for every copy before the memory and the semaphore that it uses are gone");
  }
  const size_t body = k_.region(k_.body).args.size();
  const ir::Type& t = ref < body ? k_.type(k_.region(k_.body).args[ref]) : k_.type(m_.scoped[ref - body]);
  if (!ir::is_semaphore(t.space)) return;
  const auto* counts = reinterpret_cast<const int32_t*>(m_.views[ref].data);
  for (int64_t i = 0; i < num_elements(t.shape); ++i) {
    if (counts[i] == 0) continue;
    std::vector<int64_t> position(t.shape.size());
    int64_t left = i;
    for (size_t d = t.shape.size(); d-- > 0; left /= t.shape[d]) position[d] = left % t.shape[d];
    throw KernelError(k_.name + ": the semaphore " + ref_text(k_, ref) + text(position) + " holds " +
                          std::to_string(counts[i]) + " at the end of " + where,
                      k_.loc, "as many signals as waits: a semaphore must be 0 again in the end");
  }
}

template <class F> void AsyncCopies::each_element(const Copy& c, const Window& w, F&& f) {
  if (c.element_bytes == 0) return;
  std::vector<int64_t> position = w.at;
  for_each_index(c.shape.size(), c.shape.data(), [&](const int64_t* at) {
    int64_t offset = 0;
    for (size_t i = 0; i < c.shape.size(); ++i) {
      offset += at[i] * w.strides[i];
      position[w.dims[i]] = w.at[w.dims[i]] + at[i] * w.step[i];
    }
    f(w.first + offset * c.element_bytes, position);
  });
}

void AsyncCopies::start(Copy copy) {
  tick();
  if (m_.races) {
    for (const bool writes : {false, true}) {
      const Window& w = writes ? copy.to : copy.from;
      const Tracked& t = m_.tracked[w.ref];
      const bool followed = m_.races->follows(w.ref);
      each_element(copy, w, [&](const std::byte* element, const std::vector<int64_t>& position) {
        if (under_way()) access(*copy.op, w.ref, element, position.data(), position.size(), writes);
        if (!followed) return;
        int64_t number = t.first;
        for (size_t d = 0; d < position.size(); ++d) {
          if (position[d] < t.below[d] || position[d] >= t.below[d] + t.inside[d]) return;
          number += position[d] * t.strides[d];
        }
        m_.races->access(*copy.op, w.ref, number, writes ? Touching::store : Touching::load);
      });
    }
    for (const bool writes : {false, true})
      each_element(copy, writes ? copy.to : copy.from, [&](const std::byte* element, const std::vector<int64_t>&) {
        Use& use = (writes ? written_ : read_)[element];
        ++use.copies;
        use.op = copy.op;
      });
  }
  open_[copy.counter] += copy.bytes;
  copy.moments = -1;
  if (random_) {
    *random_ = mix(*random_ + 0x9e3779b97f4a7c15u);
    const uint64_t choice = *random_ % 4;  // at once, somewhere, or late
    copy.moments = choice == 0 ? 0 : choice < 3 ? static_cast<int64_t>(*random_ / 4 % 12) + 1 : -1;
  }
  copies_.push_back(std::move(copy));
  if (copies_.back().moments == 0) perform(copies_.back());
}

void AsyncCopies::perform(Copy& c) {
  c.done = true;
  if (m_.races) {  // the copy's program signals, whichever runs now
    m_.races->begin(c.program.data());
    touch(m_, *c.op, c.semaphore, {c.counter, c.semaphore_at});
    m_.races->begin(m_.grid_point.data());
  }
  signal(c.counter, static_cast<int32_t>(c.bytes));
  const int64_t n = num_elements(c.shape);
  if (n == 0 || c.element_bytes == 0) return;
  // Through memory between, since source and target may overlap.
  std::vector<std::byte> between(static_cast<size_t>(n * c.element_bytes));
  const Strides dense = dense_strides(c.shape);
  const size_t rank = c.shape.size();
  StridedCopy(rank, c.shape.data(), dense.data(), c.from.strides.data(), c.element_bytes)
      .run(between.data(), c.from.first);
  StridedCopy(rank, c.shape.data(), c.to.strides.data(), dense.data(), c.element_bytes).run(c.to.first, between.data());
}

void AsyncCopies::tick() {
  if (!random_) return;
  for (Copy& c : copies_)
    if (!c.done && c.moments > 0 && --c.moments == 0) perform(c);
}

void AsyncCopies::wait(const Op& op, size_t semaphore, int32_t* counter, const std::vector<int64_t>& position,
                       int32_t amount) {
  while (*counter < amount) {
    std::vector<Copy*> left;
    for (Copy& c : copies_)
      if (!c.done && c.counter == counter) left.push_back(&c);
    if (left.empty()) {
      const bool copy = op.code == Opcode::copy_wait;
      throw KernelError(k_.name + ": " + std::string(ir::name(op.code)) + " by program " + program() + ": waits for " +
                            std::to_string(amount) + (copy ? " bytes" : "") + " in " + ref_text(k_, semaphore) +
                            text(position) + ", which holds " + std::to_string(*counter),
                        op.loc,
                        copy ? "no copy that is under way counts there: start() it before, with the same semaphore"
                             : "nothing that is under way can signal it: signal before waiting");
    }
    size_t choice = 0;
    if (random_) choice = (*random_ = mix(*random_ + 0x9e3779b97f4a7c15u)) % left.size();
    perform(*left[choice]);
  }
  signal(counter, static_cast<int32_t>(0u - static_cast<uint32_t>(amount)));
  if (op.code != Opcode::copy_wait) return;
  // Only when all that was started is waited for is it certain which copies have ended.
  if ((open_[counter] -= amount) != 0) return;
  open_.erase(counter);
  std::erase_if(copies_, [&](const Copy& c) {
    if (c.counter != counter) return false;
    if (m_.races)
      for (const bool writes : {false, true})
        each_element(c, writes ? c.to : c.from, [&](const std::byte* element, const std::vector<int64_t>&) {
          auto& uses = writes ? written_ : read_;
          if (const auto it = uses.find(element); it != uses.end() && --it->second.copies == 0) uses.erase(it);
        });
    return true;
  });
}

void AsyncCopies::access(const Op& op, size_t ref, const std::byte* element, const int64_t* position, size_t rank,
                         bool writes) const {
  const auto target = written_.find(element), source = writes ? read_.find(element) : read_.end();
  const bool is_target = target != written_.end();
  if (!is_target && source == read_.end()) return;
  const Op& copy = *(is_target ? target : source)->second.op;
  const bool by_copy = op.code == Opcode::copy_start;
  throw KernelError(k_.name + ": race on " + ref_text(k_, ref) + ", element " +
                        to_string(Shape(position, position + rank)) + ": program " + program() +
                        (by_copy  ? writes ? " copies to" : " copies from"
                         : writes ? " stores to"
                                  : " loads") +
                        " what a copy under way " + (is_target ? "writes" : "reads"),
                    op.loc,
                    (copy.loc ? "that was started at " + to_string(copy.loc) + "; " : std::string()) +
                        "wait for it first, and for all others that count in its semaphore");
}

}  // namespace tessera::interpreter
