#include "engine/front/trace.h"

#if __has_include(<pthread.h>)
#include <pthread.h>
#endif

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "engine/front/ref.h"

namespace tessera {
namespace {
thread_local Trace* innermost_trace = nullptr;

// Which traces live, for messages about Values that are used where they do not belong.
std::mutex live_mutex;
#if __has_include(<pthread.h>)
// What some thread holds while another one forks stays locked in the child for ever, so fork takes it itself.
[[maybe_unused]] const int lock_survives_fork =
    pthread_atfork([] { live_mutex.lock(); }, [] { live_mutex.unlock(); }, [] { live_mutex.unlock(); });
#endif
std::map<uint64_t, std::string>& live() {
  static std::map<uint64_t, std::string> traces;
  return traces;
}
std::optional<std::string> live_name(uint64_t serial) {
  const std::lock_guard lock(live_mutex);
  const auto it = live().find(serial);
  return it == live().end() ? std::nullopt : std::optional(it->second);
}

[[noreturn]] void fail_foreign(const std::string& prefix, uint64_t serial, const char* what, Loc loc) {
  const std::string w = what;
  const auto owner = live_name(serial);
  if (!owner)
    throw TraceError(prefix + "a " + w + " is used after the trace that made it has ended", loc,
                     "a " + w + " lives only while its kernel is traced; make it inside the kernel that uses it");
  if (!Trace::innermost())
    throw TraceError(prefix + "a " + w + " of the kernel \"" + *owner + "\" is used on a thread that traces no kernel",
                     loc, "a kernel is traced by one thread, the one that made the call");
  throw TraceError(prefix + "a " + w + " of the kernel \"" + *owner + "\" is used in the trace of another kernel", loc,
                   "pass data between kernels through their inputs and outputs");
}

std::string text(const Operand::Number& n) {
  if (const bool* b = std::get_if<bool>(&n)) return *b ? "true" : "false";
  if (const int64_t* i = std::get_if<int64_t>(&n)) return std::to_string(*i);
  if (const uint64_t* u = std::get_if<uint64_t>(&n)) return std::to_string(*u);
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.17g", std::get<double>(n));
  for (int digits = 1; digits < 17; ++digits) {  // the shortest form that reads back
    char shorter[32];
    std::snprintf(shorter, sizeof shorter, "%.*g", digits, std::get<double>(n));
    if (std::strtod(shorter, nullptr) == std::get<double>(n)) return shorter;
  }
  return buffer;
}
const Shape kScalar;
}  // namespace

Trace::Trace(ir::Kernel& kernel, CallRecord* calls)
    : kernel_(kernel), calls_(calls), builder_(kernel), outer_(innermost_trace) {
  static std::atomic<uint64_t> next{1};
  serial_ = next++;
  {
    const std::lock_guard lock(live_mutex);
    live().emplace(serial_, kernel.name);
  }
  innermost_trace = this;
}

Trace::~Trace() {
  innermost_trace = outer_;
  const std::lock_guard lock(live_mutex);
  live().erase(serial_);
}

Trace* Trace::innermost() { return innermost_trace; }
Ref Trace::ref_argument(ir::RegionId r, size_t i) const {
  const ir::Value v = kernel_.region(r).args.at(i);
  return Ref(serial_, r, v, kernel_.type(v));
}
Ref Trace::prng_state() {
  if (prng_state_ == SIZE_MAX) {
    prng_state_ = kernel_.region(kernel_.body).args.size();
    kernel_.scratch.push_back(ir::Type::ref(DType::u32, {3}, ir::MemorySpace::smem));
    builder_.add_arg(kernel_.body, kernel_.scratch.back());
  }
  return ref_argument(kernel_.body, prng_state_);
}
bool Trace::is_open(ir::RegionId r) const { return std::find(open_.begin(), open_.end(), r) != open_.end(); }
std::string Trace::prefix() const {
  return kernel_.name + ": " + (index_map_origin_.empty() ? "" : index_map_origin_ + ": index map: ");
}

Emit::Emit(std::string_view op, Loc loc) : op_(op), loc_(loc), trace_(Trace::innermost()) {
  if (!trace_)
    throw TraceError(std::string(op) + ": no kernel is being traced", loc,
                     "call it inside the kernel given to pallas_call");
  builder().set_loc(loc);
}

Emit::Emit(std::string_view op, const Operand& first) : op_(op), loc_(first.loc()), trace_(Trace::innermost()) {
  if (!trace_ && first.value()) fail_foreign(std::string(op) + ": ", Trace::serial(*first.value()), "Value", loc_);
  if (!trace_)
    throw TraceError(std::string(op) + ": no kernel is being traced", loc_,
                     "call it inside the kernel given to pallas_call");
  builder().set_loc(loc_);
}

void Emit::fail(const std::string& what, const std::string& note) const {
  throw TraceError(trace_->prefix() + std::string(op_) + ": " + what, loc_, note);
}

void Emit::check_owner(uint64_t serial, ir::RegionId region, const char* what) const {
  const std::string w = what;
  if (serial != trace_->serial()) fail_foreign(trace_->prefix() + std::string(op_) + ": ", serial, what, loc_);
  if (trace_->is_open(region)) return;
  if (!trace_->index_map_origin().empty())
    fail("a " + w + " from outside the index map is used in it",
         "an index map computes from its program ids and from numbers alone");
  fail("a " + w + " is used outside the loop body, branch or index map that made it",
       "return it from the body to use it outside");
}

ir::Value Emit::use(const Value& v) const {
  check_owner(Trace::serial(v), Trace::region(v), "Value");
  return Trace::id(v);
}

DType Emit::common_dtype(const std::vector<const Operand*>& operands) const {
  std::optional<DType> strong;
  bool integer = false, floating = false;
  for (const Operand* o : operands) {
    std::optional<DType> t;
    if (o->value()) {
      use(*o->value());  // before anything is said about its shape or dtype
      t = o->value()->dtype();
    }
    if (o->number() && std::holds_alternative<bool>(*o->number())) t = DType::boolean;
    else if (o->number()) (std::holds_alternative<double>(*o->number()) ? floating : integer) = true;
    if (t) strong = strong ? promote(*strong, *t) : *t;
  }
  if (floating && strong && is_int4(*strong)) promote(*strong, DType::f32);
  if (floating && (!strong || !is_float(*strong))) return DType::f32;
  if (integer && (!strong || *strong == DType::boolean)) return DType::i32;
  if (!strong) fail("an operand is missing");
  return *strong;
}

DType Emit::promote(DType a, DType b) const {
  if (const auto t = promote_types(a, b)) {
    // Two integers of one width meet in a wider dtype, or in a float: hardly meant, and dear on a GPU.
    if (is_int(a) && is_int(b) && a != b && bits(a) == bits(b))
      trace_->kernel().remarks.push_back({std::string(op_) + ": " + std::string(name(a)) + " and " +
                                              std::string(name(b)) + " meet in " + std::string(name(*t)),
                                          "cast() one of the operands to the other's dtype if that is not meant",
                                          loc_});
    return *t;
  }
  fail(std::string(name(a)) + " and " + std::string(name(b)) + " have no common dtype",
       "8-bit floats and 4-bit integers are not promoted, as in JAX: cast() one of the operands");
}

const Shape& Emit::shape(const Operand& o) const { return o.value() ? o.value()->shape() : kScalar; }
DType Emit::dtype(const Operand& o) const { return common_dtype({&o}); }

Shape Emit::common_shape(const std::vector<const Operand*>& operands) const {
  Shape result;
  for (const Operand* o : operands) {
    const Shape& s = shape(*o);
    Shape merged(std::max(result.size(), s.size()));
    for (size_t i = 0; i < merged.size(); ++i) {
      const auto from_last = [&](const Shape& x) { return i < x.size() ? x[x.size() - 1 - i] : int64_t{1}; };
      const int64_t a = from_last(result), b = from_last(s);
      if (a != b && a != 1 && b != 1) {
        std::string shapes;
        for (const Operand* each : operands)
          if (each->value()) shapes += (shapes.empty() ? "" : " and ") + to_string(each->value()->shape());
        fail("shapes " + shapes + " do not broadcast", "counted from the last dim, sizes must be equal or 1");
      }
      merged[merged.size() - 1 - i] = a == 1 ? b : a;
    }
    result = std::move(merged);
  }
  return result;
}

ir::Value Emit::constant(const Operand::Number& n, DType t, const Shape& shape) {
  ir::Builder& b = builder();
  const auto too_large = [&]() { fail("the number " + text(n) + " does not fit " + std::string(name(t))); };
  if (const double* d = std::get_if<double>(&n)) {
    if (!is_float(t))
      fail("the number " + text(n) + " is floating but " + std::string(name(t)) + " is needed",
           "cast() says how to convert");
    return b.constant_float(t, *d, shape);
  }
  if (const bool* x = std::get_if<bool>(&n)) return b.constant_int(t, *x, shape);
  const uint64_t* u = std::get_if<uint64_t>(&n);
  const int64_t i = u ? static_cast<int64_t>(*u) : std::get<int64_t>(n);
  const bool negative = !u && i < 0;
  if (is_float(t)) return b.constant_float(t, u ? static_cast<double>(*u) : static_cast<double>(i), shape);
  if (t == DType::boolean) fail("the number " + text(n) + " is not a bool");
  const uint64_t most = (is_signed_int(t) ? ~uint64_t{0} >> 1 : ~uint64_t{0}) >> (64 - bits(t));
  if (negative ? !is_signed_int(t) || static_cast<uint64_t>(-(i + 1)) > most : static_cast<uint64_t>(i) > most)
    too_large();
  return b.constant_int(t, i, shape);
}

ir::Value Emit::as(const Operand& o, DType t) {
  if (o.number()) return constant(*o.number(), t);
  if (!o.value()) fail("an operand is missing");
  return builder().convert(use(*o.value()), t);
}
ir::Value Emit::as_is(const Operand& o) { return as(o, dtype(o)); }
ir::Value Emit::as(const Operand& o, DType t, const Shape& shape) {
  if (o.number()) return constant(*o.number(), t, shape);
  return broadcast(as(o, t), shape);
}

ir::Value Emit::broadcast(ir::Value v, const Shape& shape) {
  const Shape from = trace_->kernel().type(v).shape;
  bool fits = from.size() <= shape.size();
  for (size_t i = 0; fits && i < from.size(); ++i) {
    const int64_t to = shape[shape.size() - from.size() + i];
    fits = from[i] == to || from[i] == 1;
  }
  if (!fits)
    fail("shape " + to_string(from) + " does not broadcast to " + to_string(shape),
         "counted from the last dim, sizes must be equal or 1");
  std::vector<int64_t> dims;
  for (size_t i = 0; i < from.size(); ++i) dims.push_back(static_cast<int64_t>(shape.size() - from.size() + i));
  return builder().broadcast(v, shape, dims);
}

ir::Value Emit::truth(const Operand& o) {
  const DType t = dtype(o);
  const ir::Value v = as(o, t);
  if (t == DType::boolean) return v;
  return builder().elementwise(ir::Opcode::ne, {v, builder().constant_int(t, 0, shape(o))});
}

ir::Value Emit::index_scalar(const Operand& o, const std::string& what) {
  if (o.absent()) fail(what + " is missing");
  if (o.number()) {
    if (std::holds_alternative<double>(*o.number()) || std::holds_alternative<bool>(*o.number()))
      fail(what + " must be an integer but is the number " + text(*o.number()));
    return constant(*o.number(), DType::i32);
  }
  const Value& v = *o.value();
  ir::Value x = use(v);
  if (v.rank() != 0 || !is_int(v.dtype()))
    fail(what + " must be an integer scalar but is " + to_string(ir::Type::array(v.dtype(), v.shape())));
  ir::Builder& b = builder();
  const auto limit = [&](int64_t n) { return b.constant_int(v.dtype(), n); };
  if (v.dtype() == DType::i64 || v.dtype() == DType::u32 || v.dtype() == DType::u64)
    x = b.elementwise(ir::Opcode::min, {x, limit(std::numeric_limits<int32_t>::max())});
  if (v.dtype() == DType::i64) x = b.elementwise(ir::Opcode::max, {x, limit(std::numeric_limits<int32_t>::min())});
  return b.convert(x, DType::i32);
}

int Emit::axis(int64_t a, size_t rank) const {
  const int64_t n = static_cast<int64_t>(rank);
  if (a < -n || a >= n)
    fail("axis " + std::to_string(a) + " is out of range for " + std::to_string(rank) + (rank == 1 ? " dim" : " dims"));
  return static_cast<int>(a < 0 ? a + n : a);
}

}  // namespace tessera
