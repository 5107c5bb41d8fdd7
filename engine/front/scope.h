// Scoped memory, semaphores and asynchronous copies.
//   run_scoped([&](Ref tile, Ref sem) { ... }, {VMEM({8, 128}, f32), SemaphoreType::DMA()});
//   auto copy = make_async_copy(x[{ds(i * 8, 8), all}], tile, sem);
//   copy.start();  ...  copy.wait();
// A copy's source is read and its target written at some moment between start and wait. A conflicting access in between
// is a race, which InterpretOptions::races reports. Semaphores count: signals and copies raise them, waits lower them;
// they are 0 at first and must be 0 at the end of their scope. Not supported: barrier semaphores, copies to other
// devices. Read next: pipeline.h.
#pragma once
#include <string_view>
#include <vector>

#include "engine/base/function.h"
#include "engine/front/control.h"
#include "engine/front/ref.h"
#include "engine/front/spec.h"

namespace tessera {

/// A part of a Ref as a place, not as its value: x, or x[...] as an argument of the functions below.
class Place {
 public:
  // NOLINT: implicit on purpose
  Place(const Ref& ref, Loc l = Loc::here()) : ref_(ref), index_(all, l) {}
  Place(const Ref& ref, RefIndex index) : ref_(ref), index_(std::move(index)) {}
  Place(RefItem&& item) : ref_(std::move(item.ref_)), index_(std::move(item.index_)) {}  // NOLINT
  const Ref& ref() const { return ref_; }
  const RefIndex& index() const { return index_; }

 private:
  Ref ref_;
  RefIndex index_;
};

namespace scope {
control::Values run(const std::vector<ScratchShape>& types, size_t refs,
                    FunctionRef<control::Operands(const std::vector<Ref>&)> body, Loc loc);
/// The same of types that are known to fit.
control::Values run_types(const std::vector<ir::Type>& types, size_t refs,
                          FunctionRef<control::Operands(const std::vector<Ref>&)> body, Loc loc);
template <class F, size_t... i>
control::Operands call(F& f, const std::vector<Ref>& refs, Loc loc, std::index_sequence<i...>) {
  using Result = decltype(f(refs[i]...));
  if constexpr (std::is_void_v<Result>) {
    f(refs[i]...);
    return {};
  } else {
    return control::flatten<std::remove_cvref_t<Result>>(f(refs[i]...), loc);
  }
}
}  // namespace scope

/// Runs body(Refs...) with one Ref per entry of `types` and returns what it returns: nothing, a Value or number, or a
/// std::tuple of them. The memory is the body's own: nothing is known of its contents at each entry, and it is gone at
/// the end. May stand in loops, branches and other bodies.
template <class F>
auto run_scoped(F body, std::vector<ScratchShape> types, Loc loc = Loc::here()) {
  static_assert(spec::Countable<F>,
                "run_scoped: the body's parameters must be spelled as Ref (not auto), so that they can be counted");
  if constexpr (spec::Countable<F>) {
    using P = typename spec::Signature<F>::Parameters;
    using R = std::remove_cvref_t<typename spec::Signature<F>::Result>;
    constexpr int n = control::count<R>;
    static_assert(spec::all_are<Ref, P>, "run_scoped: every parameter of the body must be a Ref");
    static_assert(n >= 0, "run_scoped: the body must return nothing, a Value, a number, or a std::tuple of them");
    if constexpr (spec::all_are<Ref, P> && n >= 0) {
      constexpr size_t refs = std::tuple_size_v<P>;
      const control::Values results = scope::run(
          types, refs,
          [&](const std::vector<Ref>& r) { return scope::call(body, r, loc, std::make_index_sequence<refs>{}); }, loc);
      return control::unflatten<n, control::is_tuple<R>::value>(results);
    }
  }
}

/// Raises a regular semaphore (one of an array: s[i]) by an integer.
void semaphore_signal(Place semaphore, Operand increment = 1, Loc loc = Loc::here());
/// Waits until the semaphore holds `value` and lowers it by that. Waiting for what nothing under way can bring is an
/// error when it happens.
void semaphore_wait(Place semaphore, Operand value = 1, Loc loc = Loc::here());
/// The same, and without `decrement` the semaphore keeps what it holds.
void semaphore_wait(Place semaphore, Operand value, bool decrement, Loc loc = Loc::here());
/// What it counts now, i32.
Value semaphore_read(Place semaphore, Loc loc = Loc::here());

/// A copy between places of one shape and dtype, which counts its bytes in a DMA semaphore. Does nothing until start().
class AsyncCopy {
 public:
  AsyncCopy(Place source, Place target, Place semaphore)
      : source_(std::move(source)), target_(std::move(target)), semaphore_(std::move(semaphore)) {}
  void start(Loc loc = Loc::here()) const;
  void wait(Loc loc = Loc::here()) const;
  /// The windows may hang over their Refs: nothing shifts, and elements outside of either Ref are not copied.
  AsyncCopy clipped() && {
    clip_ = true;
    return std::move(*this);
  }

 private:
  Place source_, target_, semaphore_;
  bool clip_ = false;
};
inline AsyncCopy make_async_copy(Place source, Place target, Place semaphore) {
  return {std::move(source), std::move(target), std::move(semaphore)};
}
/// The same, started.
inline AsyncCopy async_copy(Place source, Place target, Place semaphore, Loc loc = Loc::here()) {
  AsyncCopy copy = make_async_copy(std::move(source), std::move(target), std::move(semaphore));
  copy.start(loc);
  return copy;
}
/// Starts a copy and waits for it, with a semaphore of its own.
void sync_copy(Place source, Place target, Loc loc = Loc::here());

/// Copies to other devices and semaphores that several devices share: always a SpecError, since a kernel runs on one.
[[noreturn]] void make_async_remote_copy(Place source, Place target, Place send_semaphore, Place receive_semaphore,
                                         Operand device_id, Loc loc = Loc::here());
[[noreturn]] void get_barrier_semaphore(Loc loc = Loc::here());

/// What ref.cpp makes of a place while op `op` is traced. Internal to engine/front.
struct PlaceParts {
  ir::Value ref;
  DType dtype;
  std::vector<ir::Index> index;  // operand() is a position in `starts`
  std::vector<ir::Value> starts;
  Shape shape;
};
/// Of another Ref, by at(), reshape() and the like.
bool is_view(const Ref& ref);
PlaceParts place_parts(std::string_view op, const Place& place, Loc loc, bool masked, bool writes);

}  // namespace tessera
