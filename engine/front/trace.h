// Trace: the recording of one kernel, on a thread-local stack while its lambdas run; and Emit: one op being recorded,
// which checks operands, promotes and broadcasts them and words its errors. Internal to engine: kernels use
// value.h, ops.h, ref.h, control.h.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/array.h"
#include "engine/front/value.h"
#include "engine/ir/builder.h"

namespace tessera {

class Ref;

/// What the trace of a jit (engine/call/jit.h) holds beside its ops: those here stand for calls of kernels and for
/// arrays of the host, whatever their opcode is.
struct CallRecord {
  struct Call {
    std::shared_ptr<const ir::Kernel> kernel;
    std::vector<std::pair<std::string, ir::Value>> sizes;  // of the grid
  };
  std::map<uint32_t, Call> calls;  // by OpId::index
  std::map<uint32_t, Array> arrays;
};

/// Records into `kernel` from construction to destruction. Traces nest (a kernel lambda may trace another pallas_call);
/// only the innermost records. Exceptions unwind it.
class Trace {
 public:
  /// `calls`: of a jit, whose kernel is never run as such.
  explicit Trace(ir::Kernel& kernel, CallRecord* calls = nullptr);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// The innermost trace of this thread, or null.
  static Trace* innermost();

  ir::Kernel& kernel() { return kernel_; }
  CallRecord* calls() { return calls_; }
  ir::Builder& builder() { return builder_; }
  Value wrap(ir::Value v) const { return wrap(v, open_.back()); }
  Value argument(ir::RegionId r, size_t i) const { return wrap(kernel_.region(r).args.at(i), r); }
  Ref ref_argument(ir::RegionId r, size_t i) const;
  /// The state of random.h's stateful generator, u32[3] of scratch, which a kernel has once it is asked for.
  Ref prng_state();
  bool is_open(ir::RegionId r) const;
  uint64_t serial() const { return serial_; }
  ir::RegionId outermost_region() const { return open_.front(); }

  /// The index map being traced: its origin ("in_specs[0]") and region; empty and none while the body is traced.
  const std::string& index_map_origin() const { return index_map_origin_; }
  /// The grid of the pipeline whose body is being traced, or null: its program ids and sizes are what the body asks
  /// for.
  class InnerGrid {
   public:
    InnerGrid(Trace& t, std::vector<Value> program_ids, std::vector<Value> sizes)
        : ids(std::move(program_ids)), num_programs(std::move(sizes)), trace_(t), outer_(t.inner_grid_) {
      t.inner_grid_ = this;
    }
    ~InnerGrid() { trace_.inner_grid_ = outer_; }
    InnerGrid(const InnerGrid&) = delete;
    InnerGrid& operator=(const InnerGrid&) = delete;
    const std::vector<Value> ids, num_programs;

   private:
    Trace& trace_;
    const InnerGrid* outer_;
  };
  const InnerGrid* inner_grid() const { return inner_grid_; }
  /// "matmul: " or "matmul: in_specs[0]: index map: ".
  std::string prefix() const;

  /// Ops go to `r` until destruction.
  class Region {
   public:
    Region(Trace& t, ir::RegionId r) : trace_(t), outer_(t.builder_.region()) {
      t.open_.push_back(r);
      t.builder_.set_region(r);
    }
    ~Region() {
      trace_.open_.pop_back();
      trace_.builder_.set_region(outer_);
    }
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;

   private:
    Trace& trace_;
    ir::RegionId outer_;
  };
  /// Ops belong to the index map of `origin` until destruction.
  class IndexMapPart {
   public:
    IndexMapPart(Trace& t, std::string origin) : trace_(t) { t.index_map_origin_ = std::move(origin); }
    ~IndexMapPart() { trace_.index_map_origin_.clear(); }
    IndexMapPart(const IndexMapPart&) = delete;
    IndexMapPart& operator=(const IndexMapPart&) = delete;

   private:
    Trace& trace_;
  };

 private:
  friend class Emit;
  Value wrap(ir::Value v, ir::RegionId r) const { return Value(serial_, r, v, kernel_.type(v)); }
  static const ir::Value& id(const Value& v) { return v.id_; }
  static uint64_t serial(const Value& v) { return v.trace_; }
  static ir::RegionId region(const Value& v) { return v.region_; }

  ir::Kernel& kernel_;
  CallRecord* calls_;
  ir::Builder builder_;
  uint64_t serial_;
  std::vector<ir::RegionId> open_;  // outermost first
  std::string index_map_origin_;
  size_t prng_state_ = SIZE_MAX;  // position among the body's arguments
  const InnerGrid* inner_grid_ = nullptr;
  Trace* outer_;
};

/// One op being recorded. Construction finds the trace (TraceError if there is none) and gives the builder the user's
/// line.
class Emit {
 public:
  Emit(std::string_view op, Loc loc);
  /// As above; where there is no trace the message says why the operand's Value has none (ended, or on another thread).
  Emit(std::string_view op, const Operand& first);

  Trace& trace() { return *trace_; }
  ir::Builder& builder() { return trace_->builder(); }
  Loc loc() const { return loc_; }
  /// promote_types(), or an error where the dtypes do not meet.
  DType promote(DType a, DType b) const;
  [[noreturn]] void fail(const std::string& what, const std::string& note = {}) const;

  /// The IR value, once it is sure that v belongs here.
  ir::Value use(const Value& v) const;
  /// Checks the trace and region that a Value or Ref was made in; `what` is "Value" or "Ref".
  void check_owner(uint64_t serial, ir::RegionId region, const char* what) const;

  /// The dtype in which the operands meet.
  DType common_dtype(const std::vector<const Operand*>& operands) const;
  /// The shape in which they meet; TraceError if they do not.
  Shape common_shape(const std::vector<const Operand*>& operands) const;
  /// The operand as dtype t (numbers adopt, Values convert), its own shape.
  ir::Value as(const Operand& o, DType t);
  /// The operand with its own dtype (numbers: bool, i32 or f32).
  ir::Value as_is(const Operand& o);
  /// The operand as dtype t, broadcast to `shape` by NumPy's rules (checked by the caller or common_shape).
  ir::Value as(const Operand& o, DType t, const Shape& shape);
  /// v broadcast to `shape` by NumPy's rules; TraceError if it does not.
  ir::Value broadcast(ir::Value v, const Shape& shape);
  /// bool of o's shape: itself, or o != 0.
  ir::Value truth(const Operand& o);
  /// An i32 scalar from an integer scalar, saturating rather than wrapping (it is an index or a bound); `what` names it
  /// in errors.
  ir::Value index_scalar(const Operand& o, const std::string& what);
  /// A constant of dtype t for a number; TraceError if t cannot hold it.
  ir::Value constant(const Operand::Number& n, DType t, const Shape& shape = {});

  const Shape& shape(const Operand& o) const;
  /// The operand's dtype, or for a number the one it takes alone.
  DType dtype(const Operand& o) const;
  int axis(int64_t a, size_t rank) const;  ///< normalised from [-rank, rank)
  Value wrap(ir::Value v) const { return trace_->wrap(v); }

 private:
  std::string_view op_;
  Loc loc_;
  Trace* trace_;
};

}  // namespace tessera
