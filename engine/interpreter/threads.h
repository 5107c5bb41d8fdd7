// The threads of one cluster's programs, for kernels of threads (ir::Kernel::has_threads). Each thread is a thread of
// the host, of which one at a time goes on: until it has to wait, or, with a seed, until chance takes the turn from it.
// Copies and products begin where their op stands and happen as late as they may: when a wait needs them, or when
// nothing else can go on; with a seed at a random moment before. Where no thread can go on that is a deadlock, which
// is reported with what each thread waits for. thread_clocks.h finds races. thread_ops.cpp has the ops.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "engine/base/function.h"
#include "engine/interpreter/machine.h"
#include "engine/interpreter/thread_clocks.h"

namespace tessera::interpreter {

class Threads {
 public:
  struct Options {
    bool races = false;
    std::optional<uint64_t> seed;
  };
  /// One machine per thread of a cluster, program by program. Their views of arrays and of scratch that all programs
  /// share are the caller's.
  Threads(const ir::Kernel& k, std::vector<Machine>& machines, Options options);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  /// Threads of a program, and programs of a cluster.
  static size_t threads_of(const ir::Kernel& k);
  static size_t programs_of(const ir::Kernel& k);
  /// Whether each program has memory of its own for a Ref in this space.
  static bool of_program(ir::MemorySpace s);

  /// Runs the programs of the cluster whose first one has these coordinates. Throws what a thread throws.
  void run(const int64_t* program, uint64_t cluster);
  /// Semaphores must be 0 in the end.
  void end_of_kernel();

  // For the steps of ops:
  /// An access is about to happen: others may come first, and products end before their accumulator is touched.
  void before(const Machine& m, size_t ref);
  bool follows(size_t ref) const { return races_on_ && !is_accumulator(ref); }
  void touch(const Machine& m, const ir::Op& op, size_t ref, const std::byte* element, const int64_t* position,
             Touching how);
  void enter(Machine& m, const ir::Op& scope);
  /// All threads of these programs meet where op stands; their memory and barriers among `refs` begin anew.
  void meet(Machine& m, const ir::Op& op, const std::vector<ir::Value>& refs, const std::vector<size_t>& members);
  void leave(Machine& m, const ir::Op& scope);
  /// The thread may spin: others go on first, or a copy lands if none of them can.
  void let_others_go(const Machine& m);
  /// The step of an op of family thread, or of one on a semaphore.
  static Step step(const ir::Op& op);

 private:
  struct Window {  // a part of a Ref
    size_t ref = 0;
    std::byte* data = nullptr;
    int64_t bytes = 0;  // of an element
    DType dtype = DType::f32;
    Shape shape;
    std::vector<size_t> dims;                      // of the Ref, that the shape's dims run along
    std::vector<int64_t> at, step, strides, size;  // by dim of the Ref
  };
  struct Barrier {
    size_t program = 0, ref = 0;
    int64_t element = 0;
    int64_t expected = 1, pending = 1;  // arrivals of a phase, and those that are missing
    int64_t transfers = 0;              // begun, for its arrivals, and not yet there
    int64_t phase = 0;                  // how many have ended
    uint32_t agent = 0, copies = 0;     // of the copies that arrive here
    Knowledge gathered, done;           // in this phase, and at the end of the last one
    std::vector<int64_t> waited;        // by thread of the cluster: phases it has waited for
  };
  /// A copy or a product that has begun and is not over.
  struct Flight {
    struct In {  // to smem
      Barrier* barrier = nullptr;
    };
    struct Out {  // to gmem
      int64_t group = 0;
      bool read = false;  // it has read its source
    };
    struct Product {
      Window rhs;
    };
    std::variant<In, Out, Product> what;
    const ir::Op* op = nullptr;
    size_t thread = 0;  // that began it
    Window from = {}, to = {};
    uint32_t epoch = 0;  // of its agent
    int64_t moments = -1;
    std::vector<std::byte> between = {};
    int64_t first = 0, count = 0;  // elements of the window that it brings

    const In* in() const { return std::get_if<In>(&what); }
    Out* out() { return std::get_if<Out>(&what); }
    const Out* out() const { return std::get_if<Out>(&what); }
    const Product* product() const { return std::get_if<Product>(&what); }
    bool still_reads() const { return out() && !out()->read; }
  };
  enum class State : uint8_t { ready, waiting, ended };
  struct Runner {
    State state = State::ready;
    Function<bool()> can_go;
    Function<std::string()> what;
    const ir::Op* op = nullptr;
    std::condition_variable turn;
    std::thread host;
    Knowledge knows;
    std::vector<uint32_t> group_ends;  // by group of copies to gmem: its last copy's epoch
    uint32_t out_epoch = 0, product_epoch = 0;
  };
  struct Meeting {
    size_t there = 0;
    int64_t generation = 0;
    std::vector<Knowledge> gathered, done;  // by program
  };
  struct Stopped {};  // unwinds a thread when another one has failed

  bool is_accumulator(size_t ref) const { return type(ref).space == ir::MemorySpace::accumulator; }
  const ir::Type& type(size_t ref) const;
  size_t program_of(const Machine& m) const { return m.thread / threads_; }
  std::string thread_text(size_t thread) const;
  std::string barrier_text(const Barrier& b) const;
  std::vector<size_t> peers(size_t program, const std::vector<int64_t>& axes) const;

  // -- turns
  uint64_t random(uint64_t below);
  void point(const Machine& m);
  void wait(const Machine& m, const ir::Op& op, Function<bool()> can_go, Function<std::string()> what);
  static bool can_go(const Runner& r);
  size_t next(size_t self);
  void hand_over(size_t self, size_t to);
  void thread_main(size_t self);
  bool land_for_waiting();
  [[noreturn]] void deadlock() const;
  void tick();

  // -- memory of a program
  void make_memory(size_t program, size_t ref);
  void reset(size_t program, size_t ref);
  void reset_accumulator(size_t thread, size_t ref);
  void find_scope_axes();
  void nothing_under_way(size_t program, size_t ref) const;
  [[noreturn]] void still_under_way(const Flight& f) const;
  void start_threads();

  // -- barriers
  Barrier& barrier(const Machine& m, const ir::Op& op, const ir::CopyPlace& place, size_t program);
  std::vector<Barrier>& barriers(size_t program, size_t ref) { return barriers_[program * views_ + ref]; }
  void arrive(const ir::Op& op, Barrier& b, size_t thread);
  void end_phase(Barrier& b);

  // -- copies and products
  Window window(const Machine& m, const ir::Op& op, const ir::CopyPlace& place) const;
  template <class F> static void each(const Window& w, F&& f);
  std::vector<std::byte> gather(const Window& w) const;
  void scatter(const Flight& f);
  /// What the copy or product is going to touch of a window, by this agent.
  void touch_window(const Flight& f, const Window& w, Touching how, uint32_t agent);
  void begin(Flight f);
  void land(std::list<Flight>::iterator f, bool read_only = false);
  void multiply(const Flight& f);
  void land_products(size_t thread, size_t left);
  void land_groups(size_t thread, int64_t up_to, bool read_only);

  // -- ops
  void thread_op(Machine& m, const ir::Op& op);
  void barrier_wait(Machine& m, const ir::Op& op);
  void copy_in(Machine& m, const ir::Op& op);
  void copy_out(Machine& m, const ir::Op& op);
  void product(Machine& m, const ir::Op& op);
  void wait_groups(Machine& m, const ir::Op& op);
  void wait_products(size_t thread, int64_t left);
  void semaphore_op(Machine& m, const ir::Op& op);
  void end_of_thread(size_t thread);

  const ir::Kernel& k_;
  std::vector<Machine>& machines_;
  const size_t threads_, programs_;  // of a program, of the cluster
  const size_t views_;
  const bool races_on_;
  std::optional<uint64_t> random_;
  ThreadRaces races_;
  std::deque<Runner> runners_;
  std::vector<std::vector<std::byte>> memory_;  // by program and Ref; of accumulators by thread and Ref
  std::vector<Strides> strides_;                // by Ref
  std::vector<std::vector<Barrier>> barriers_;  // by program and Ref
  std::list<Flight> flights_;                   // that are not over, in the order of their beginnings
  std::map<std::pair<size_t, const ir::Op*>, Meeting> meetings_;   // by first program and op
  std::map<std::pair<size_t, const ir::Op*>, size_t> left_scope_;  // by program: threads that have left it
  std::map<const ir::Op*, std::vector<int64_t>> scope_axes_;       // of a run_scoped that programs share: along which
  struct Semaphore {
    Knowledge gathered;  // from signals: of one cluster's threads, and of what they know of others
    uint64_t gathered_in = 0;
  };
  std::unordered_map<const int32_t*, Semaphore> semaphores_;
  uint32_t agents_ = 0;
  uint64_t owners_ = uint64_t{1} << 57;  // beyond those of blocks, scratch, masked loads and scopes
  // Turns:
  std::mutex mutex_;
  std::condition_variable finished_;
  size_t current_ = SIZE_MAX, left_ = 0;
  bool stop_ = false;
  std::exception_ptr failure_;
};

}  // namespace tessera::interpreter
