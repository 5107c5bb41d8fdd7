// Turns, memory and barriers of the threads of a cluster. thread_ops.cpp has their copies and products.
#include "engine/interpreter/threads.h"

#include <algorithm>
#include <cstring>

#include "engine/base/function.h"
#include "engine/base/plural.h"

namespace tessera::interpreter {

size_t Threads::threads_of(const ir::Kernel& k) { return static_cast<size_t>(*k.grid.back().size.value()); }
size_t Threads::programs_of(const ir::Kernel& k) {
  size_t n = 1;
  for (const ir::GridAxis& g : k.grid)
    if (g.role == ir::GridAxis::Role::cluster) n *= static_cast<size_t>(*g.size.value());
  return n;
}
bool Threads::of_program(ir::MemorySpace s) { return s == ir::MemorySpace::smem || ir::is_barrier(s); }

const ir::Type& Threads::type(size_t ref) const {
  const auto& args = k_.region(k_.body).args;
  return k_.type(ref < args.size() ? args[ref] : machines_[0].scoped[ref - args.size()]);
}

Threads::Threads(const ir::Kernel& k, std::vector<Machine>& machines, Options options)
    : k_(k),
      machines_(machines),
      threads_(threads_of(k)),
      programs_(programs_of(k)),
      views_(machines.at(0).views.size()),
      races_on_(options.races),
      random_(options.seed ? std::optional(mix(*options.seed + 177)) : std::nullopt),
      races_(k) {
  const size_t all = threads_ * programs_;
  for (size_t t = 0; t < all; ++t) {
    runners_.emplace_back();
    machines_[t].threads = this;
    machines_[t].thread = t;
  }
  agents_ = static_cast<uint32_t>(4 * all);  // threads, what their copies read, what those write, their products
  memory_.resize((programs_ + all) * views_);
  barriers_.resize(programs_ * views_);
  for (size_t ref = 0; ref < views_; ++ref) strides_.push_back(dense_strides(type(ref).shape));
  for (size_t ref = k.blocks.size(); ref < views_; ++ref)
    for (size_t p = 0; p < programs_; ++p) make_memory(p, ref);
  find_scope_axes();
}

/// A copy with axes writes to its peers' memory, and an arrival at a cluster_barrier counts at theirs: a run_scoped of
/// such memory begins in all these programs before one of them goes on.
void Threads::find_scope_axes() {
  std::map<uint32_t, const ir::Op*> scopes;  // by region
  for (const ir::Op& op : k_.ops)
    if (op.code == ir::Opcode::run_scoped) scopes[op.regions[0].index] = &op;
  const auto add = [&](ir::Value ref, const std::vector<int64_t>& axes) {
    const auto scope = scopes.find(k_.value(ref).region.index);
    if (scope == scopes.end()) return;
    std::vector<int64_t>& all = scope_axes_[scope->second];
    all.insert(all.end(), axes.begin(), axes.end());
  };
  for (const ir::Op& op : k_.ops)
    if (op.code == ir::Opcode::copy_gmem_to_smem && op.has(ir::Attr::axes))
      for (const size_t i : {1, 2}) add(op.operands[i], op.ints(ir::Attr::axes));
  for (const ir::Value ref : scoped_refs(k_)) add(ref, k_.type(ref).thread_traits().axes);
  std::erase_if(scope_axes_, [](const auto& item) { return item.second.empty(); });
}

Threads::~Threads() {
  for (Machine& m : machines_) m.threads = nullptr;
}

void Threads::make_memory(size_t program, size_t ref) {
  const ir::Type& t = type(ref);
  const auto n = static_cast<size_t>(num_elements(t.shape)), bytes = n * static_cast<size_t>(size_bytes(t.dtype));
  const auto show = [&](size_t thread, std::vector<std::byte>& memory) {
    memory.resize(std::max<size_t>(bytes, 1));
    machines_[thread].views[ref] = {memory.data(), strides_[ref].data(), true};
  };
  if (of_program(t.space))
    for (size_t i = 0; i < threads_; ++i) show(program * threads_ + i, memory_[program * views_ + ref]);
  else if (t.space == ir::MemorySpace::accumulator)
    for (size_t i = program * threads_; i < (program + 1) * threads_; ++i)
      show(i, memory_[(programs_ + i) * views_ + ref]);
  if (!ir::is_barrier(t.space)) return;
  for (size_t i = 0; i < n; ++i) {
    Barrier b;
    b.program = program;
    b.ref = ref;
    b.element = static_cast<int64_t>(i);
    b.agent = agents_++;
    barriers(program, ref).push_back(std::move(b));
  }
}

void Threads::reset(size_t program, size_t ref) {
  const ir::Type& t = type(ref);
  std::vector<std::byte>& memory = memory_[program * views_ + ref];
  if (races_on_)
    races_.forget(memory.data(), static_cast<size_t>(num_elements(t.shape)), static_cast<size_t>(size_bytes(t.dtype)));
  if (!ir::is_barrier(t.space))
    return fill_unspecified(memory.data(), num_elements(t.shape), t.dtype, machines_[0].fill, ++owners_);
  const ir::ThreadTraits& more = t.thread_traits();
  for (Barrier& b : barriers(program, ref)) {
    b.expected = more.arrivals * static_cast<int64_t>(more.axes.empty() ? 1 : peers(program, more.axes).size());
    b.pending = b.expected;
    b.transfers = b.phase = 0;
    b.gathered = b.done = {};
    b.waited.assign(threads_ * programs_, 0);
  }
}

void Threads::reset_accumulator(size_t thread, size_t ref) {
  std::vector<std::byte>& memory = memory_[(programs_ + thread) * views_ + ref];
  std::fill(memory.begin(), memory.end(), std::byte{0});
}

std::string Threads::thread_text(size_t thread) const {
  return "thread " + program_text(k_, machines_[thread].grid_point.data());
}

std::string Threads::barrier_text(const Barrier& b) const {
  std::string s = ref_text(k_, b.ref);
  const Shape& shape = type(b.ref).shape;
  if (shape.empty()) return s;
  std::vector<int64_t> position(shape.size());
  int64_t left = b.element;
  for (size_t d = shape.size(); d-- > 0; left /= shape[d]) position[d] = left % shape[d];
  for (size_t d = 0; d < position.size(); ++d) s += (d ? ", " : "[") + std::to_string(position[d]);
  return s + "]";
}

/// The programs of the cluster that differ from this one along these axes alone, itself included.
std::vector<size_t> Threads::peers(size_t program, const std::vector<int64_t>& axes) const {
  std::vector<size_t> found;
  for (size_t other = 0; other < programs_; ++other) {
    size_t a = program, b = other;
    bool peer = true;
    for (size_t g = k_.grid.size() - 1; g-- > 0 && k_.grid[g].role == ir::GridAxis::Role::cluster;) {
      const auto n = static_cast<size_t>(*k_.grid[g].size.value());
      const bool along = std::find(axes.begin(), axes.end(), static_cast<int64_t>(g)) != axes.end();
      peer &= along || a % n == b % n;
      a /= n, b /= n;
    }
    if (peer) found.push_back(other);
  }
  return found;
}

// -- turns

uint64_t Threads::random(uint64_t below) {
  *random_ = mix(*random_ + 0x9e3779b97f4a7c15u);
  return *random_ % below;
}

void Threads::tick() {
  if (!random_) return;
  for (bool again = true; again;) {
    again = false;
    for (auto f = flights_.begin(); f != flights_.end(); ++f) {
      if (f->moments < 0 || --f->moments >= 0) continue;
      f->moments = -1;
      if (f->still_reads()) {
        f->moments = static_cast<int64_t>(random(8));
        land(f, true);
      } else if (f->product()) {
        size_t later = 0;
        for (auto g = std::next(f); g != flights_.end(); ++g) later += g->product() && g->thread == f->thread;
        land_products(f->thread, later);
      } else {
        land(f);
      }
      again = true;  // the list has changed
      break;
    }
  }
}

void Threads::point(const Machine& m) {
  if (!random_) return;
  tick();
  if (runners_.size() == 1 || random(3) != 0) return;
  hand_over(m.thread, next(m.thread));
}

void Threads::wait(const Machine& m, const ir::Op& op, Function<bool()> can_go, Function<std::string()> what) {
  tick();
  if (can_go()) return;
  Runner& self = runners_[m.thread];
  self.state = State::waiting;
  self.op = &op;
  self.can_go = std::move(can_go);
  self.what = std::move(what);
  hand_over(m.thread, next(m.thread));
  self.state = State::ready;
}

void Threads::let_others_go(const Machine& m) {
  const size_t n = runners_.size();
  std::vector<size_t> able;
  for (size_t i = 1; i < n; ++i)
    if (const size_t t = (m.thread + i) % n; can_go(runners_[t])) able.push_back(t);
  if (!able.empty()) hand_over(m.thread, able[random_ ? random(able.size()) : 0]);
  else land_for_waiting();
}

bool Threads::can_go(const Runner& r) { return r.state == State::ready || (r.state == State::waiting && r.can_go()); }

/// Who goes on. What nobody waits for stays under way as long as someone can go on.
size_t Threads::next(size_t self) {
  for (;;) {
    std::vector<size_t> able;
    const size_t n = runners_.size();
    for (size_t i = 0; i < n; ++i) {
      const size_t t = (self + i) % n;
      if (can_go(runners_[t])) able.push_back(t);
    }
    if (!able.empty()) return able[random_ ? random(able.size()) : 0];
    if (!land_for_waiting()) deadlock();
  }
}

bool Threads::land_for_waiting() {
  std::vector<std::list<Flight>::iterator> able;
  for (auto f = flights_.begin(); f != flights_.end(); ++f)
    if (f->in()) able.push_back(f);
  if (able.empty()) return false;
  land(able[random_ ? random(able.size()) : 0]);
  return true;
}

void Threads::deadlock() const {
  std::string list;
  const ir::Op* first = nullptr;
  for (size_t t = 0; t < runners_.size(); ++t) {
    const Runner& r = runners_[t];
    list += (t ? "; " : "") + thread_text(t);
    if (r.state == State::ended) {
      list += " has ended";
      continue;
    }
    list += " waits " + r.what();
    if (first && r.op->loc) list += ", at " + to_string(r.op->loc);
    if (!first) first = r.op;
  }
  throw KernelError(k_.name + ": deadlock: " + list, first ? first->loc : k_.loc,
                    "no thread can go on, and no copy is under way that could arrive");
}

void Threads::hand_over(size_t self, size_t to) {
  if (to == self) return;
  std::unique_lock lock(mutex_);
  current_ = to;
  runners_[to].turn.notify_one();
  runners_[self].turn.wait(lock, [&] { return current_ == self || stop_; });
  if (stop_) throw Stopped{};
}

void Threads::thread_main(size_t self) {
  bool go_on = true;
  {
    std::unique_lock lock(mutex_);
    runners_[self].turn.wait(lock, [&] { return current_ == self || stop_; });
    go_on = !stop_;
  }
  try {
    if (go_on) {
      machines_[self].run(k_.body);
      end_of_thread(self);
      runners_[self].state = State::ended;
      const bool last =
          std::all_of(runners_.begin(), runners_.end(), [](const Runner& r) { return r.state == State::ended; });
      const size_t to = last ? self : next(self);
      const std::lock_guard lock(mutex_);
      current_ = last ? SIZE_MAX : to;
      if (!last) runners_[to].turn.notify_one();
    }
  } catch (const Stopped&) {
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    stop_ = true;
    for (Runner& r : runners_) r.turn.notify_one();
  }
  const std::lock_guard lock(mutex_);
  if (--left_ == 0) finished_.notify_one();
}

/// They wait for their turns. If the host has not so many threads, those that are there end.
void Threads::start_threads() {
  const size_t all = runners_.size();
  size_t begun = 0;
  left_ = all;
  try {
    for (; begun < all; ++begun) runners_[begun].host = std::thread([this, t = begun] { thread_main(t); });
  } catch (const std::exception& e) {
    const std::lock_guard lock(mutex_);
    failure_ = std::make_exception_ptr(KernelError(
        k_.name + ": the host starts " + std::to_string(begun) + " of the " + std::to_string(all) +
            " threads of a cluster: " + e.what(),
        k_.loc, "each thread of a cluster is a thread of the host: raise its limits of threads and memory"));
    stop_ = true;
    left_ -= all - begun;
    for (Runner& r : runners_) r.turn.notify_one();
  }
}

void Threads::run(const int64_t* program, uint64_t cluster) {
  const size_t all = runners_.size(), rank = k_.grid.size();
  races_.begin(cluster + 1);
  for (size_t t = 0; t < all; ++t) {
    Machine& m = machines_[t];
    size_t number = t;
    for (size_t a = rank; a-- > 0;) {
      const auto n = k_.grid[a].role == ir::GridAxis::Role::grid ? 0 : static_cast<size_t>(*k_.grid[a].size.value());
      m.grid_point[a] = n ? static_cast<int64_t>(number % n) : program[a];
      if (n) number /= n;
      m.program[a] = static_cast<int32_t>(m.grid_point[a]);
    }
    m.failed.reset();
    Runner& r = runners_[t];
    r.state = State::ready;
    r.knows = {};
    r.knows.all.assign(agents_, 0);
    r.knows.all[t] = 1;
    r.knows.committed.assign(agents_, 0);
    r.group_ends.clear();
    r.out_epoch = r.product_epoch = 0;
  }
  for (auto& list : barriers_)
    for (Barrier& b : list) b.copies = 0;
  for (size_t ref = k_.blocks.size(); ref < k_.region(k_.body).args.size(); ++ref) {
    if (of_program(type(ref).space))
      for (size_t p = 0; p < programs_; ++p) reset(p, ref);
    if (is_accumulator(ref))
      for (size_t t = 0; t < all; ++t) reset_accumulator(t, ref);
  }
  flights_.clear();
  meetings_.clear();
  left_scope_.clear();
  failure_ = nullptr;
  stop_ = false;
  if (all == 1) {
    machines_[0].run(k_.body);
    end_of_thread(0);
  } else {
    start_threads();
    {
      std::unique_lock lock(mutex_);
      if (!stop_) {
        current_ = random_ ? random(all) : 0;
        runners_[current_].turn.notify_one();
      }
      finished_.wait(lock, [&] { return left_ == 0; });
    }
    for (Runner& r : runners_)
      if (r.host.joinable()) r.host.join();
    current_ = SIZE_MAX;
    if (failure_) std::rethrow_exception(failure_);
  }
  while (!flights_.empty()) {
    const Flight& f = flights_.front();
    if (f.in())
      throw KernelError(
          k_.name + ": copy_gmem_to_smem by " + thread_text(f.thread) + " is still under way at the end of its program",
          f.op->loc, "barrier_wait() for every copy: " + barrier_text(*f.in()->barrier) + " has none left");
    land(flights_.begin());
  }
}

// -- accesses

void Threads::before(const Machine& m, size_t ref) {
  if (is_accumulator(ref)) wait_products(m.thread, 0);
  point(m);
}

void Threads::touch(const Machine& m, const ir::Op& op, size_t ref, const std::byte* element, const int64_t* position,
                    Touching how) {
  const Runner& r = runners_[m.thread];
  const auto agent = static_cast<uint32_t>(m.thread);
  races_.access({&op, ref, how, agent, r.knows.all[agent], false, false, &r.knows, m.grid_point.data()}, element,
                position, type(ref).shape.size());
}

void Threads::enter(Machine& m, const ir::Op& scope) {
  const auto& args = k_.region(scope.regions[0]).args;
  const size_t program = program_of(m);
  bool shared = false;
  for (const ir::Value v : args) {
    shared |= of_program(k_.type(v).space);
    if (k_.type(v).space == ir::MemorySpace::accumulator) reset_accumulator(m.thread, m.refs[v.index]);
  }
  if (!shared) return;
  const auto shares = scope_axes_.find(&scope);
  const std::vector<size_t> members =
      shares == scope_axes_.end() ? std::vector<size_t>{program} : peers(program, shares->second);
  meet(m, scope, args, members);
}

void Threads::meet(Machine& m, const ir::Op& op, const std::vector<ir::Value>& refs,
                   const std::vector<size_t>& members) {
  const size_t program = program_of(m), wanted = members.size() * threads_;
  Meeting& meeting = meetings_[{members[0], &op}];
  meeting.gathered.resize(programs_);
  meeting.done.resize(programs_);
  meeting.gathered[program].join_with(runners_[m.thread].knows);
  ++runners_[m.thread].knows.all[m.thread];
  const int64_t mine = meeting.generation;
  if (++meeting.there == wanted) {
    for (const size_t p : members)
      for (const ir::Value v : refs)
        if (of_program(k_.type(v).space)) {
          nothing_under_way(p, m.refs[v.index]);
          reset(p, m.refs[v.index]);
        }
    meeting.there = 0;
    meeting.done = meeting.gathered;
    ++meeting.generation;
  } else {
    wait(
        m, op, [&meeting, mine] { return meeting.generation != mine; },
        [&meeting, wanted, scope = op.code == ir::Opcode::run_scoped] {
          return (scope ? "at a run_scoped of memory that all threads share, where "
                        : "at a meeting of all threads, where ") +
                 std::to_string(meeting.there) + " of " + std::to_string(wanted) + " threads are";
        });
  }
  runners_[m.thread].knows.join_with(meeting.done[program]);
}

/// Memory of a program ends when the last of its threads leaves; what the thread's own copies read, with the thread.
void Threads::leave(Machine& m, const ir::Op& scope) {
  wait_products(m.thread, 0);
  const auto& args = k_.region(scope.regions[0]).args;
  const size_t program = program_of(m);
  const bool shared = std::any_of(args.begin(), args.end(), [&](ir::Value v) { return of_program(k_.type(v).space); });
  bool last = false;
  if (shared) {
    size_t& left = left_scope_[{program, &scope}];
    last = ++left == threads_;
    if (last) left = 0;
  }
  for (const ir::Value v : args) {
    const size_t ref = m.refs[v.index];
    for (const Flight& f : flights_)
      if (f.still_reads() && f.thread == m.thread && f.from.ref == ref) still_under_way(f);
    if (last) nothing_under_way(program, ref);
  }
}

void Threads::nothing_under_way(size_t program, size_t ref) const {
  for (const Flight& f : flights_)
    if (f.in() && f.in()->barrier->program == program && (f.to.ref == ref || f.in()->barrier->ref == ref))
      still_under_way(f);
}

void Threads::still_under_way(const Flight& f) const {
  throw KernelError(k_.name + ": " + std::string(ir::name(f.op->code)) + " by " + thread_text(f.thread) +
                        " is still under way at the end of its run_scoped",
                    f.op->loc, "wait for it before the memory that it uses is gone");
}

// -- barriers

Threads::Barrier& Threads::barrier(const Machine& m, const ir::Op& op, const ir::CopyPlace& place, size_t program) {
  const size_t ref = m.refs[place.ref.index];
  const Shape& shape = type(ref).shape;
  int64_t element = 0;
  for (size_t d = 0; d < place.rank; ++d) {
    const ir::Index& x = op.index[place.first + d];
    const int64_t given = x.is_static() ? x.constant() : m.scalar(op.operand_of(x)),
                  at = given < 0 ? given + shape[d] : given;
    if (at < 0 || at >= shape[d])
      throw KernelError(k_.name + ": " + std::string(ir::name(op.code)) + " by " + thread_text(m.thread) +
                            ": barrier " + std::to_string(given) + " of " + ref_text(k_, ref) + ", which has " +
                            std::to_string(shape[d]) + " along dim " + std::to_string(d),
                        op.loc, "barriers are not clamped");
    element = element * shape[d] + at;
  }
  return barriers(program, ref)[static_cast<size_t>(element)];
}

void Threads::arrive(const ir::Op& op, Barrier& b, size_t thread) {
  if (b.pending == 0)
    throw KernelError(k_.name + ": " + std::string(ir::name(op.code)) + " by " + thread_text(thread) + " arrives at " +
                          barrier_text(b) + ", whose phase " + std::to_string(b.phase + 1) + " has its " +
                          plural(static_cast<size_t>(b.expected), "arrival") + " already",
                      op.loc,
                      "copies that arrive there are under way: wait for the phase before the next arrival, or "
                      "raise num_arrivals");
  Runner& r = runners_[thread];
  b.gathered.join_with(r.knows);
  ++r.knows.all[thread];
  --b.pending;
}

void Threads::end_phase(Barrier& b) {
  if (b.pending > 0 || b.transfers != 0) return;
  b.pending = b.expected;
  ++b.phase;
  b.done = std::move(b.gathered);
  b.gathered = {};
}

void Threads::barrier_wait(Machine& m, const ir::Op& op) {
  Barrier& b = barrier(m, op, ir::thread_places(k_, op)[0], program_of(m));
  const int64_t wanted = ++b.waited[m.thread];
  wait(
      m, op, [&b, wanted] { return b.phase >= wanted; },
      [this, &b, wanted] {
        return "at " + barrier_text(b) + " for its phase " + std::to_string(wanted) + ", with " +
               std::to_string(b.expected - b.pending) + " of " + std::to_string(b.expected) + " arrivals";
      });
  if (b.phase > wanted)
    throw KernelError(
        k_.name + ": barrier_wait by " + thread_text(m.thread) + " for phase " + std::to_string(wanted) + " of " +
            barrier_text(b) + ", of which " + std::to_string(b.phase) + " have ended",
        op.loc, "a barrier tells a phase from the one before alone: a thread that waits there waits for every phase");
  runners_[m.thread].knows.join_with(b.done);
}

}  // namespace tessera::interpreter
