// What the ops of threads do: copies between gmem and smem, products, and the waits for them; and semaphores, which
// threads of all programs share.
#include <algorithm>
#include <cstring>

#include "engine/interpreter/threads.h"
#include "engine/ir/reference.h"

namespace tessera::interpreter {
using ir::Attr;
using ir::Op;
using ir::Opcode;

Step Threads::step(const Op& op) {
  if (ir::is_semaphore_op(op.code)) return [o = &op](Machine& m) { m.threads->semaphore_op(m, *o); };
  return [o = &op](Machine& m) { m.threads->thread_op(m, *o); };
}

void Threads::thread_op(Machine& m, const Op& op) {
  point(m);
  Runner& r = runners_[m.thread];
  switch (ir::Thread(op.code)) {
    case ir::Thread::barrier_arrive: {
      const ir::CopyPlace place = ir::thread_places(k_, op)[0];
      const std::vector<int64_t>& axes = k_.type(op.operands[0]).thread_traits().axes;
      for (const size_t p : axes.empty() ? std::vector<size_t>{program_of(m)} : peers(program_of(m), axes)) {
        Barrier& b = barrier(m, op, place, p);
        arrive(op, b, m.thread);
        end_phase(b);
      }
      return;
    }
    case ir::Thread::barrier_wait: return barrier_wait(m, op);
    case ir::Thread::copy_gmem_to_smem: return copy_in(m, op);
    case ir::Thread::copy_smem_to_gmem: return copy_out(m, op);
    case ir::Thread::commit_smem_to_gmem_group: r.group_ends.push_back(r.out_epoch); return;
    case ir::Thread::wait_smem_to_gmem: return wait_groups(m, op);
    case ir::Thread::commit_smem:
      join(r.knows.committed, r.knows.all);
      ++r.knows.all[m.thread];
      return;
    case ir::Thread::wgmma: return product(m, op);
    case ir::Thread::wgmma_wait: return wait_products(m.thread, op.attr(Attr::count));
    case ir::Thread::threads_meet: return meet(m, op, op.operands, {program_of(m)});
    case ir::Thread::set_max_registers: return;
  }
}

// -- places

Threads::Window Threads::window(const Machine& m, const Op& op, const ir::CopyPlace& place) const {
  Window w;
  w.ref = m.refs[place.ref.index];
  const ir::Type& t = k_.type(place.ref);
  const View& view = m.views[w.ref];
  w.data = view.data;
  w.dtype = t.dtype;
  w.bytes = size_bytes(t.dtype);
  for (size_t d = 0; d < place.rank; ++d) {
    const ir::Index& x = op.index[place.first + d];
    const ir::Index::Slice slice = x.as_slice();
    int64_t at = x.is_static() ? x.constant() : m.scalar(op.operand_of(x));
    if (!x.is_static() && t.space != ir::MemorySpace::any) {  // gmem: nothing shifts
      const int64_t span = slice.span(), wrapped = at < 0 ? at + t.shape[d] : at,
                    fitted = std::max<int64_t>(0, std::min(wrapped, t.shape[d] - span));
      if (m.raise && fitted != wrapped && span > 0)
        out_of_bounds(m, op, {w.ref, d, t.shape[d], at, at + span - 1},
                      "unless out-of-bounds accesses raise, the start is moved to " + std::to_string(fitted));
      at = fitted;
    }
    w.at.push_back(at);
    w.step.push_back(slice.step);
    w.strides.push_back(view.strides[d]);
    w.size.push_back(t.shape[d]);
    if (!x.slice()) continue;
    w.dims.push_back(d);
    w.shape.push_back(slice.size);
  }
  return w;
}

/// f(element or null where it is outside, position in the Ref, number in the window)
template <class F> void Threads::each(const Window& w, F&& f) {
  std::vector<int64_t> position = w.at;
  int64_t number = 0;
  for_each_index(w.shape.size(), w.shape.data(), [&](const int64_t* at) {
    for (size_t i = 0; i < w.dims.size(); ++i) position[w.dims[i]] = w.at[w.dims[i]] + at[i] * w.step[w.dims[i]];
    int64_t offset = 0;
    bool inside = true;
    for (size_t d = 0; d < position.size(); ++d) {
      inside &= position[d] >= 0 && position[d] < w.size[d];
      offset += position[d] * w.strides[d];
    }
    f(inside ? w.data + offset * w.bytes : nullptr, position, number++);
  });
}

std::vector<std::byte> Threads::gather(const Window& w) const {
  std::vector<std::byte> out(static_cast<size_t>(num_elements(w.shape) * w.bytes));
  each(w, [&](const std::byte* element, const std::vector<int64_t>&, int64_t i) {
    if (element) copy_element(out.data() + i * w.bytes, element, w.bytes);
  });
  return out;
}

void Threads::scatter(const Flight& f) {
  const bool combines = f.op->has(Attr::kind);
  const auto combine =
      combines ? reference::scalar_function(static_cast<Opcode>(f.op->attr(Attr::kind)), f.to.dtype, f.to.dtype)
               : nullptr;
  const int64_t bytes = f.to.bytes;
  each(f.to, [&](std::byte* element, const std::vector<int64_t>&, int64_t i) {
    if (!element || i < f.first || i >= f.first + f.count) return;
    const std::byte* from = f.between.data() + i * bytes;
    if (!combine) return copy_element(element, from, bytes);
    uint64_t operands[2] = {0, 0};
    std::memcpy(&operands[0], element, static_cast<size_t>(bytes));
    std::memcpy(&operands[1], from, static_cast<size_t>(bytes));
    const uint64_t now = combine(operands);
    std::memcpy(element, &now, static_cast<size_t>(bytes));
  });
}

void Threads::touch_window(const Flight& f, const Window& w, Touching how, uint32_t agent) {
  if (!races_on_) return;
  const int64_t first = f.first, end = first + (f.product() ? num_elements(w.shape) : f.count);
  const bool in_smem = type(w.ref).space == ir::MemorySpace::smem;
  const ThreadRaces::Access access{f.op,
                                   w.ref,
                                   how,
                                   agent,
                                   f.epoch,
                                   true,
                                   in_smem,
                                   &runners_[f.thread].knows,
                                   machines_[f.thread].grid_point.data()};
  each(w, [&](const std::byte* element, const std::vector<int64_t>& position, int64_t i) {
    if (element && i >= first && i < end) races_.access(access, element, position.data(), position.size());
  });
}

// -- copies

void Threads::begin(Flight f) {
  if (random_) {
    const uint64_t choice = random(4);  // at once, somewhere, or late
    f.moments = choice == 0 ? 0 : choice < 3 ? static_cast<int64_t>(random(24)) + 1 : -1;
  }
  flights_.push_back(std::move(f));
}

void Threads::copy_in(Machine& m, const Op& op) {
  const std::vector<ir::CopyPlace> places = ir::thread_places(k_, op);
  const size_t program = program_of(m);
  Barrier& own = barrier(m, op, places[2], program);
  const std::vector<size_t> receivers =
      op.has(Attr::axes) ? peers(program, op.ints(Attr::axes)) : std::vector<size_t>{program};
  const auto parts = static_cast<int64_t>(receivers.size());
  Flight f{.what = Flight::In{}, .op = &op, .thread = m.thread};
  f.from = window(m, op, places[0]);
  const Window target = window(m, op, places[1]);
  // Each program brings its share of the elements to all.
  const int64_t n = num_elements(target.shape),
                mine = std::find(receivers.begin(), receivers.end(), program) - receivers.begin();
  f.first = n * mine / parts;
  f.count = n * (mine + 1) / parts - f.first;
  for (const size_t p : receivers) {
    Barrier& b = barrier(m, op, places[2], p);
    f.what = Flight::In{&b};
    f.epoch = ++b.copies;
    f.to = target;
    f.to.data = memory_[p * views_ + target.ref].data();
    touch_window(f, f.from, Touching::load, b.agent);
    touch_window(f, f.to, Touching::store, b.agent);
    begin(f);
  }
  arrive(op, own, m.thread);
  own.transfers += parts;
  tick();
}

void Threads::copy_out(Machine& m, const Op& op) {
  const std::vector<ir::CopyPlace> places = ir::thread_places(k_, op);
  Runner& r = runners_[m.thread];
  Flight f{.what = Flight::Out{static_cast<int64_t>(r.group_ends.size())}, .op = &op, .thread = m.thread};
  f.from = window(m, op, places[0]);
  f.to = window(m, op, places[1]);
  f.count = num_elements(f.to.shape);
  f.epoch = ++r.out_epoch;
  const auto all = static_cast<uint32_t>(runners_.size()), t = static_cast<uint32_t>(m.thread);
  touch_window(f, f.from, Touching::load, all + t);
  touch_window(f, f.to, op.has(Attr::kind) ? Touching::atomic : Touching::store, 2 * all + t);
  begin(std::move(f));
  tick();
}

void Threads::land(std::list<Flight>::iterator f, bool read_only) {
  if (const Flight::In* in = f->in()) {
    f->between = gather(f->from);
    scatter(*f);
    Barrier& b = *in->barrier;
    --b.transfers;
    if (b.gathered.all.size() < agents_) b.gathered.all.resize(agents_);
    b.gathered.all[b.agent] = std::max(b.gathered.all[b.agent], f->epoch);
    end_phase(b);
  } else if (Flight::Out* out = f->out()) {
    if (!out->read) f->between = gather(f->from);
    out->read = true;
    if (read_only) return;
    scatter(*f);
  } else {
    multiply(*f);
  }
  flights_.erase(f);
}

void Threads::land_groups(size_t thread, int64_t up_to, bool read_only) {
  for (auto f = flights_.begin(); f != flights_.end();) {
    const auto now = f++;
    if (!now->out() || now->thread != thread || now->out()->group >= up_to) continue;
    land(now, read_only);
  }
}

void Threads::wait_groups(Machine& m, const Op& op) {
  Runner& r = runners_[m.thread];
  const bool read_only = op.attr_or(Attr::read_only, 0) != 0;
  const int64_t up_to = static_cast<int64_t>(r.group_ends.size()) - op.attr(Attr::count);
  if (up_to <= 0) return;
  land_groups(m.thread, up_to, read_only);
  const uint32_t known = r.group_ends[static_cast<size_t>(up_to) - 1];
  const size_t all = runners_.size();
  uint32_t &reads = r.knows.all[all + m.thread], &writes = r.knows.all[2 * all + m.thread];
  reads = std::max(reads, known);
  if (!read_only) writes = std::max(writes, known);
}

// -- products

void Threads::product(Machine& m, const Op& op) {
  const std::vector<ir::CopyPlace> places = ir::thread_places(k_, op);
  Runner& r = runners_[m.thread];
  Flight f{.what = Flight::Product{}, .op = &op, .thread = m.thread};
  const ir::Type& lhs = k_.type(op.operands[0]);
  if (lhs.is_ref) f.from = window(m, op, places[0]);
  else {
    f.from.ref = SIZE_MAX;
    f.from.shape = lhs.shape;
    f.from.dtype = lhs.dtype;
    const std::byte* from = m.place[op.operands[0].index];
    f.between.assign(from, from + num_elements(lhs.shape) * size_bytes(lhs.dtype));
  }
  f.what = Flight::Product{window(m, op, places[1])};
  f.to = window(m, op, places[2]);
  f.epoch = ++r.product_epoch;
  const uint32_t agent = static_cast<uint32_t>(3 * runners_.size() + m.thread);
  if (lhs.is_ref) touch_window(f, f.from, Touching::load, agent);
  touch_window(f, f.product()->rhs, Touching::load, agent);
  begin(std::move(f));
  tick();
}

void Threads::multiply(const Flight& f) {
  const Window& rhs = f.product()->rhs;
  const bool integers = is_int(f.from.dtype);
  const DType in = integers ? DType::i32 : DType::f32;
  const auto as = [&](DType from, DType to, const std::vector<std::byte>& given) {
    const auto n = static_cast<int64_t>(given.size()) / size_bytes(from);
    std::vector<std::byte> out(static_cast<size_t>(n * size_bytes(to)));
    const void* source = given.data();
    if (n > 0) reference::eval_array(Opcode::convert, from, to, &source, out.data(), n);
    return out;
  };
  const std::vector<std::byte> a = as(f.from.dtype, in, f.from.ref == SIZE_MAX ? f.between : gather(f.from)),
                               b = as(rhs.dtype, in, gather(rhs));
  std::vector<std::byte> c = as(f.to.dtype, in, gather(f.to));
  const std::vector<int64_t> transposed =
      f.op->has(Attr::transposed) ? f.op->ints(Attr::transposed) : std::vector<int64_t>{0, 0};
  const int64_t rows = f.to.shape[0], columns = f.to.shape[1], depth = ir::wgmma_depth(k_, *f.op);
  const int64_t a_row = transposed[0] != 0 ? 1 : depth, a_step = transposed[0] != 0 ? rows : 1,
                b_step = transposed[1] != 0 ? 1 : columns, b_column = transposed[1] != 0 ? depth : 1;
  const auto sum = [&](const auto* x, const auto* y, auto* z) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t k = 0; k < depth; ++k) {
        const auto factor = x[i * a_row + k * a_step];
        for (int64_t j = 0; j < columns; ++j) z[i * columns + j] += factor * y[k * b_step + j * b_column];
      }
  };
  if (integers)
    sum(reinterpret_cast<const uint32_t*>(a.data()), reinterpret_cast<const uint32_t*>(b.data()),
        reinterpret_cast<uint32_t*>(c.data()));
  else
    sum(reinterpret_cast<const float*>(a.data()), reinterpret_cast<const float*>(b.data()),
        reinterpret_cast<float*>(c.data()));
  const std::vector<std::byte> rounded = as(in, f.to.dtype, c);
  each(f.to, [&](std::byte* element, const std::vector<int64_t>&, int64_t i) {
    if (element) copy_element(element, rounded.data() + i * f.to.bytes, f.to.bytes);
  });
}

/// In their order, until so many are left.
void Threads::land_products(size_t thread, size_t left) {
  size_t there = 0;
  for (const Flight& f : flights_) there += f.product() && f.thread == thread;
  for (auto f = flights_.begin(); f != flights_.end() && there > left;) {
    const auto now = f++;
    if (!now->product() || now->thread != thread) continue;
    land(now);
    --there;
  }
}

void Threads::wait_products(size_t thread, int64_t left) {
  Runner& r = runners_[thread];
  land_products(thread, static_cast<size_t>(left));
  uint32_t& known = r.knows.all[3 * runners_.size() + thread];
  if (int64_t{r.product_epoch} > left) known = std::max(known, static_cast<uint32_t>(int64_t{r.product_epoch} - left));
}

void Threads::end_of_thread(size_t thread) {
  wait_products(thread, 0);
  for (const Flight& f : flights_)
    if (f.still_reads() && f.thread == thread)
      throw KernelError(
          k_.name + ": copy_smem_to_gmem by " + thread_text(thread) + " may still read smem at the end of the thread",
          f.op->loc, "wait_smem_to_gmem(0) before the end");
}

// -- semaphores

void Threads::semaphore_op(Machine& m, const Op& op) {
  point(m);
  const Window w = window(m, op, {op.operands[0], 0, op.index.size()});
  auto* counter = reinterpret_cast<int32_t*>(w.data);
  for (size_t d = 0; d < w.at.size(); ++d) counter += w.at[d] * w.strides[d];
  Runner& r = runners_[m.thread];
  Semaphore& s = semaphores_[counter];
  const auto known = [&] {
    if (s.gathered_in == races_.cluster()) r.knows.join_with(s.gathered);
    else r.knows.join_others(s.gathered);
  };
  if (op.code == Opcode::semaphore_read) {
    if (!random_ || random(2) == 0) let_others_go(m);
    std::memcpy(m.place[op.results[0].index], counter, sizeof(int32_t));
    return known();
  }
  const int32_t by = m.scalar(op.operands[1]);
  const auto add = [&](int32_t n) {
    *counter = static_cast<int32_t>(static_cast<uint32_t>(*counter) + static_cast<uint32_t>(n));
  };
  if (op.code == Opcode::semaphore_signal) {
    if (s.gathered_in != races_.cluster()) s.gathered.all = s.gathered.committed = {};
    s.gathered_in = races_.cluster();
    s.gathered.join_with(r.knows);
    join(s.gathered.others[races_.cluster()], r.knows.all);
    ++r.knows.all[m.thread];
    return add(by);
  }
  wait(
      m, op, [counter, by] { return *counter >= by; },
      [this, counter, by, ref = w.ref] {
        return "for " + std::to_string(by) + " in " + ref_text(k_, ref) + ", which holds " + std::to_string(*counter);
      });
  add(static_cast<int32_t>(0u - static_cast<uint32_t>(by)));
  known();
}

void Threads::end_of_kernel() {
  for (const auto& [counter, s] : semaphores_)
    if (*counter != 0)
      throw KernelError(k_.name + ": a semaphore holds " + std::to_string(*counter) + " at the end of the kernel",
                        k_.loc, "as many signals as waits: a semaphore must be 0 again in the end");
}

}  // namespace tessera::interpreter
