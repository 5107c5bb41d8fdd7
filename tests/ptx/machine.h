// The machine that runs decoded code: blocks, threads, barriers, copies in flight. Handlers of instructions (the files
// ops_*.cpp) work on a Thread; the machine decides who runs. Private to the emulator.
#pragma once
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "tests/ptx/emulator.h"
#include "tests/ptx/memory.h"
#include "tests/ptx/numbers.h"

namespace tessera::ptx {

/// A register. `poison`: the bits that hang on what nobody has written.
struct Slot {
  uint64_t bits = 0, poison = 0;
};

struct Thread;
struct Instr;
using Handler = void (*)(Thread&, const Instr&);

/// An instruction on numbered slots. What the fields mean beyond that is its handler's.
struct Instr {
  Handler run = nullptr;
  uint32_t d = kNone, a = kNone, b = kNone, c = kNone, e = kNone;  // slots
  uint32_t list = 0, count = 0;                                    // of Code::lists
  uint32_t guard = kNone;
  bool guard_not = false;
  bool opaque = false;            // works on mbarriers
  bool proxy = false;             // accesses memory through the asynchronous proxy
  bool effects = false;           // more than writing registers
  bool of_cta = false;            // its scope is the block
  uint8_t width = 32, from = 32;  // bits, of the result and of a source
  uint8_t mode = 0, n = 1;
  Type type = Type::none, source = Type::none;
  Space space = Space::generic;
  uint16_t flags = 0;
  uint32_t kind = 0;  // which of its family
  uint64_t imm = 0;
  uint32_t statement = 0, pc = 0;
};

/// Of a branch: what runs between it and the place where its sides meet.
struct Region {
  bool opaque = false;  // works on mbarriers
  bool proxy = false;   // accesses memory through the asynchronous proxy
  bool effects = false;
  uint32_t meets = kNone;
  std::vector<uint32_t> writes;  // slots
};

struct Code {
  const Module* module = nullptr;
  const Function* entry = nullptr;
  std::vector<Instr> code;
  std::vector<uint32_t> lists;
  struct Source {
    const Function* function;
    uint32_t statement;
  };
  std::vector<Source> sources;  // by Instr::statement
  uint32_t slots = 0;
  std::vector<std::pair<uint32_t, uint64_t>> constants;  // slot, bits
  struct SpecialSlot {
    uint32_t slot;
    Special which;
    uint8_t component;
  };
  std::vector<SpecialSlot> specials;
  struct AddressSlot {  // of a global variable, known when memory is placed
    uint32_t slot, variable;
    uint64_t offset;
  };
  std::vector<AddressSlot> addresses;
  std::vector<uint64_t> offsets;  // by variable: where it lies in its space
  uint64_t shared_static = 0, shared_alignment = 1024, local_bytes = 0, constant_bytes = 0;
  uint32_t granule = 2;
  bool shares = false;                        // blocks may have to see each other: atomics, or accesses with an order
  std::vector<std::vector<uint32_t>> writes;  // by pc: slots
  std::vector<std::vector<uint32_t>> successors;  // by pc, of what does not just go on to the next
  std::set<uint32_t> of_products;                 // wgmma: slots of fragments of A, and of sums
  const Statement& statement(const Instr& i) const {
    return sources[i.statement].function->code[sources[i.statement].statement];
  }
};
Code decode(const Module& m, const Function& entry);
Region region_of(const Code& code, uint32_t branch);

constexpr uint64_t kSharedBase = 1024;  // of the first byte: nothing lies at 0
constexpr uint64_t kLocalBase = 256;
constexpr uint64_t kTensorMagic = 0x50414d524f534e54u;  // at the beginning of a tensor map

enum class State : uint8_t { ready, warp, barrier, mbarrier, async, cluster, done };
struct Block;
class Machine;

/// A copy or another operation that runs by itself.
struct Pending {
  std::function<void()> land;
  uint32_t agent_epoch = 0;
  uint32_t group = kNone;  // cp.async and bulk groups: which of its thread
  uint8_t kind = 0;
  uint32_t thread = 0, pc = 0;
  bool needs_shared = false;  // of its block, which may not end before
  Block* block = nullptr;
};
enum PendingKind : uint8_t { kCopy, kBulk, kBulkSource, kToBarrier };

struct Thread {
  Slot* r = nullptr;
  Machine* m = nullptr;
  Block* block = nullptr;
  uint32_t pc = 0, index = 0, warp = 0, lane = 0;
  State state = State::ready;
  bool listed = false;        // among those that may run
  uint32_t waits_at = kNone;  // pc of what it waits at
  uint64_t waits_for = 0;     // mask, barrier, address
  uint32_t quantum = 0;
  uint32_t last_source = 0, last_source_at = 0;  // its last bulk copy out of shared memory: epoch, pc
  uint32_t tried = kNone;                        // the last mbarrier.try_wait that gave up
  uint64_t tried_at = 0;
  bool carry = false, carry_poison = false;
  // order
  uint32_t agent = 0, epoch = 1, async_epoch = 0, async_done = 0, sources_done = 0;
  ClockPtr seen, proxied;      // proxied: what the asynchronous proxy may see
  uint32_t proxied_epoch = 0;  // of its own
  uint32_t proxied_done = 0;   // of its own copies that do not run through that proxy
  const Row* row = nullptr;    // of seen, of its own block
  ClockPtr fenced, acquired;   // by fences: what the next strong write passes on; what strong reads have met
  std::deque<std::pair<uint32_t, uint32_t>> committed_products;  // wgmma: group, epoch
  std::array<std::vector<uint32_t>, 4> committed;                // by PendingKind: each group's last epoch
  uint32_t cluster_phase = 0;                                    // in which it arrived
  Object* local = nullptr;
  std::vector<uint32_t> calls;
};

struct Barrier {
  uint32_t expected = 0, arrived = 0;         // expected 0: all threads
  uint32_t trues = 0, falses = 0, phase = 0;  // of reductions
  bool poison = false;
  std::vector<Thread*> waiting;
  ClockPtr clock, proxied, done, done_proxied;
};

struct MBarrier {
  uint32_t expected = 0, pending = 0, phase = 0;
  int64_t bytes = 0;                            // that are still to come
  Touch made;                                   // by mbarrier.init
  bool told = false;                            // by fence.mbarrier_init, to the asynchronous proxy, too
  ClockPtr clock, proxied, done, done_proxied;  // of this phase, and of those that are complete
};

/// A product that a warp has begun (ops_wgmma.cpp).
struct Product {
  std::function<void()> make;
  uint32_t group = 0, result = kNone;  // its first register
};
/// What a warp's products have summed up, until they are waited for: by first register, and lane by lane.
struct Sums {
  std::vector<uint32_t> slots;
  std::vector<Slot> values;  // by lane, then by slot
};
struct Products {
  std::deque<Product> begun;
  uint32_t committed = 0;
  bool fenced = false;  // since registers may have been written
  // what registers held at the last wgmma.fence: by slot, then by lane
  std::unordered_map<uint32_t, std::vector<uint64_t>> at_fence;
  uint64_t history = 0;                  // of wgmma's instructions, alike in the warps of a warpgroup
  uint32_t last = 0;                     // pc of the last of them
  std::map<uint32_t, Sums> sums, given;  // given: as the last wait left them in the registers
};

struct Block {
  uint32_t id[3] = {}, number = 0, rank = 0;
  std::vector<Thread> threads;
  std::vector<Slot> slots;
  std::vector<Object> locals;
  Object shared;
  std::array<Barrier, 16> barriers;
  std::unordered_map<uint64_t, MBarrier> mbarriers;
  std::vector<Products> products;  // by warp
  std::vector<Block*> cluster;
  Barrier cluster_barrier;  // of rank 0
  uint32_t alive = 0;
};

enum class How : uint8_t { read, write, atomic };
struct Access {
  Object* object = nullptr;
  uint64_t offset = 0;
  uint8_t* bytes() const { return object->bytes.data() + offset; }
  uint8_t* poison() const { return object->poison.data() + offset; }
};
struct Stop {
  Fault fault;
  std::string text;
  uint32_t line;
};

class Machine {
 public:
  Machine(const Code& code, const Launch& launch);
  Result run();

  // ---- for handlers
  [[noreturn]] void stop(Fault f, const Thread& t, const Instr& i, const std::string& what) const;
  /// Where an address leads; checks bounds and alignment.
  Access reach(Thread& t, const Instr& i, Space space, uint64_t address, uint64_t bytes, uint64_t alignment, How how);
  /// Notes an access and finds races. `strong`: atomic or ordered. The agent is the thread, or its copies.
  void touch(Thread& t, const Instr& i, const Access& a, uint64_t bytes, How how, bool strong, Agent agent = kSelf);
  Space space_of(uint64_t generic) const;
  uint64_t to_generic(Space s, uint64_t address) const;
  uint64_t from_generic(Space s, uint64_t address) const;
  Block* block_of(Thread& t, uint64_t shared_address) const;  // null: there is none

  // ---- order
  ClockPtr clock_of(Thread& t, bool proxied) const;  // what it has seen and done; call advance after
  /// What the end of a copy tells: that copy.
  ClockPtr clock_of_copy(const Thread& t, uint32_t epoch) const;
  void advance(Thread& t) { ++t.epoch; }
  void see(Thread& t, const ClockPtr& seen, const ClockPtr& proxied);
  void meet(std::vector<Thread*>& threads);  // all see what each has seen and done
  bool has_seen(const Thread& t, const Touch& x, bool proxied) const;

  // ---- waiting
  void wait(Thread& t, const Instr& i, State s, uint64_t what);
  void wake(Thread& t);
  /// The lanes of the warp that are to run `i` together with t, once all have come; empty: t waits.
  std::vector<Thread*> gather(Thread& t, const Instr& i, uint32_t mask, bool same_place);
  uint32_t alive_lanes(const Thread& t) const;
  void exit(Thread& t);
  /// At barrier `id`; expected: 0 means all threads of the block.
  void arrive(Thread& t, const Instr& i, uint32_t id, uint32_t expected, uint32_t count, bool waits);
  void barrier_check(Block& b, uint32_t id);
  void cluster_check(Block& b);
  void phase_check(Block& b, uint64_t offset, MBarrier& bar);

  // ---- mbarriers
  /// The barrier at a shared address, with its block and offset; a fault if there is none or its making is not seen.
  struct Found {
    Block* block;
    uint64_t offset;
    MBarrier* barrier;
  };
  Found mbarrier_at(Thread& t, const Instr& i, Space space, uint64_t address, bool proxied);
  void mbarrier_arrive(const Thread& t, const Instr& i, const Found& f, uint32_t count);
  /// Bytes have come. `by_proxy`: by the asynchronous proxy, which then sees them.
  void mbarrier_bytes(Block& b, uint64_t offset, int64_t bytes, const ClockPtr& clock, bool by_proxy = true);

  // ---- copies in flight
  void launch_async(Thread& t, const Instr& i, PendingKind kind, bool needs_shared, std::function<void()> land);
  void commit(Thread& t, uint8_t kind);
  /// sources: only until what it copies has been read.
  void wait_group(Thread& t, uint8_t kind, uint64_t most_left, bool sources = false);
  void land_one(size_t at);
  /// The exact value off by at most `relative` of it, or `absolute`, as the seed and the operands decide.
  double off(double exact, double relative, double absolute, uint64_t operands) const;

  const Code& code;
  const Launch& launch;
  Random random;
  uint32_t threads_per_block = 1, warps_per_block = 1, cluster_size = 1;
  uint32_t cluster_dims[3] = {1, 1, 1};
  std::vector<Pending> pending;
  std::vector<std::unique_ptr<Object>> globals;  // by base
  std::vector<Object*> buffers;                  // by launch buffer
  std::vector<uint64_t> variable_bases;          // of global variables
  std::vector<TensorMap> tensors;
  Object parameters, constants;
  uint64_t shared_window = 0, local_window = 0, constant_window = 0, param_window = 0;
  uint64_t steps = 0;

 private:
  void start(uint32_t number);
  void start_thread(Block& b, uint32_t index);
  void reset(Block& b);
  uint64_t special(const Thread& t, Special s, uint32_t component) const;
  void place_memory();
  void execute(Thread& t);
  void poisoned_guard(Thread& t, const Instr& i);
  [[noreturn]] void race(Thread& t, const Instr& i, const Access& a, const Touch& other, How how, How before,
                         bool async);
  [[noreturn]] void deadlock();
  std::string who(const Thread& t) const;
  std::string place_of(uint64_t address) const;
  void finish();

  std::unordered_map<uint32_t, Region> regions_;
  std::vector<std::unique_ptr<Block>> blocks_;  // at work
  std::vector<std::unique_ptr<Block>> idle_;
  std::vector<Thread*> ready_;
  size_t last_global_ = 0;
  uint64_t errors_ = 0;
  uint32_t next_block_ = 0, clusters_ = 0;
  std::vector<uint32_t> order_;
};

/// The names of what an instruction may do wrong, with the registers' poison.
inline bool poisoned(const Slot& s) { return s.poison != 0; }

}  // namespace tessera::ptx
