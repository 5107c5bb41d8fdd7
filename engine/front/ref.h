// Ref: a kernel's view of memory (a block of an input or output, a whole array, or scratch), and how it is indexed.
//   x[all]                      the whole block
//   x[{ds(i * 8, 8), all}]      8 rows from a row computed at run time; dims not named are taken whole
//   x[{i, all}], x[3], x[-1]    an integer (Value or number) drops its dim
//   x[{range(0, 8, 2), all}]    Python's 0:8:2
//   x[{idx, all}]               an array of integers takes those positions: row idx[0], row idx[1], ...;
//                               several arrays broadcast to one shape
//   x[{0, ellipsis}]            ellipsis stands for all dims that are not named
//   x.at({0, all})              a view: another Ref to the same memory, indexed again;
//                               x.reshape, x.bitcast, x.transpose too
// x[...] is a temporary that is read by using it as a Value or Operand and written by =, +=, ... It cannot be kept:
// `auto v = x[all]` is useless, `Value v = x[all]` reads. Static indices are checked while tracing; dynamic ones wrap
// once if negative, then are clamped so that the window fits (with a mask nothing moves, and elements outside are
// masked out). Positions from an array wrap once; then loads take the nearest element and stores drop elements outside.
// engine/language.md has all rules. Read next: view.h, which composes views.
#pragma once
#include <concepts>
#include <initializer_list>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/front/value.h"

namespace tessera {

/// The index that takes a dim whole, or alone a whole Ref.
struct All {};
inline constexpr All all{};

/// All dims that the index does not name; once in an index.
struct Ellipsis {};
inline constexpr Ellipsis ellipsis{};

/// `size` elements start, start + step, ...; the start may be a Value, size and step are static.
struct Ds {
  Operand start;
  int64_t size;
  int64_t step;
};
inline Ds ds(Operand start, int64_t size, int64_t step = 1) { return {std::move(start), size, step}; }

/// Python's start:stop:step with a positive step; {} leaves an end open, negative ends count from the last element.
struct Range {
  std::optional<int64_t> start, stop;
  int64_t step;
};
inline Range range(std::optional<int64_t> start, std::optional<int64_t> stop, int64_t step = 1) {
  return {start, stop, step};
}

template <class T>
concept IndexNumber = std::integral<T> && !std::same_as<T, bool>;

/// The index of one dim.
class IndexItem {
 public:
  // Not inline, and neither are copies: a program compiles Tessera's headers faster.
  IndexItem(All);                                  // NOLINT: implicit on purpose, all of them
  IndexItem(Ellipsis);                             // NOLINT
  IndexItem(Ds d);                                 // NOLINT
  IndexItem(Range r);                              // NOLINT
  IndexItem(const Value& v, Loc l = Loc::here());  // NOLINT
  IndexItem(RefItem&& read, Loc l = Loc::here());  // NOLINT
  template <IndexNumber T>
  IndexItem(T i, Loc l = Loc::here()) : IndexItem(Operand(i, l)) {}  // NOLINT
  IndexItem(const IndexItem&);
  IndexItem(IndexItem&&) noexcept;
  IndexItem& operator=(const IndexItem&);
  IndexItem& operator=(IndexItem&&) noexcept;
  ~IndexItem();
  const std::variant<All, Ds, Range, Operand, Ellipsis>& item() const { return item_; }

 private:
  explicit IndexItem(Operand item);
  std::variant<All, Ds, Range, Operand, Ellipsis> item_;  // Operand: an integer, or an array of them
};

/// The index of a Ref: one item, or one per leading dim.
class RefIndex {
 public:
  // Not inline, and neither are copies: a program compiles Tessera's headers faster.
  RefIndex(All, Loc l = Loc::here());                                     // NOLINT: implicit on purpose, all of them
  RefIndex(Ellipsis, Loc l = Loc::here());                                // NOLINT
  RefIndex(std::initializer_list<IndexItem> items, Loc l = Loc::here());  // NOLINT
  RefIndex(std::vector<IndexItem> items, Loc l = Loc::here());            // NOLINT
  RefIndex(Ds d, Loc l = Loc::here());                                    // NOLINT
  RefIndex(Range r, Loc l = Loc::here());                                 // NOLINT
  RefIndex(const Value& v, Loc l = Loc::here());                          // NOLINT
  RefIndex(RefItem&& read, Loc l = Loc::here());                          // NOLINT
  template <IndexNumber T>
  RefIndex(T i, Loc l = Loc::here()) : RefIndex(l, IndexItem(i, l)) {}  // NOLINT
  RefIndex(const RefIndex&);
  RefIndex(RefIndex&&) noexcept;
  RefIndex& operator=(const RefIndex&);
  RefIndex& operator=(RefIndex&&) noexcept;
  ~RefIndex();
  const std::vector<IndexItem>& items() const { return items_; }
  Loc loc() const { return loc_; }

 private:
  RefIndex(Loc l, IndexItem&& one);
  std::vector<IndexItem> items_;
  Loc loc_;
};

struct RefTransform;  // view.h

class Ref {
 public:
  const Shape& shape() const { return type_.shape; }
  DType dtype() const { return type_.dtype; }
  int rank() const { return static_cast<int>(type_.shape.size()); }
  ir::MemorySpace memory_space() const { return type_.space; }

  Ref(const Ref&);
  Ref(Ref&&) noexcept;
  Ref& operator=(const Ref&);
  Ref& operator=(Ref&&) noexcept;
  ~Ref();
  // In a kernel `o = x` makes o another name of x's memory, which containers of Refs need and nobody else.
  template <std::same_as<Ref> T>
  [[nodiscard("o = x stores nothing: o[all] = x[all] stores the elements of x in o")]] Ref& operator=(T& x) {
    return *this = std::as_const(x);
  }
  template <class T>
    requires(!std::same_as<std::remove_cvref_t<T>, Ref>)
  void operator=(T&&) {
    static_assert(std::same_as<T, void>, "a Ref is not assigned to: o[all] = x stores x in the elements of o");
  }

  RefItem operator[](RefIndex index) const;

  /// The elements that the index takes, as a Ref of their own: x.at({ds(i, 4)})[1] is x[i + 1]. Dynamic indices are
  /// wrapped and clamped here.
  Ref at(RefIndex index) const;
  /// The same elements in row-major order under another shape; one size may be -1.
  Ref reshape(Shape shape, Loc loc = Loc::here()) const;
  /// The same bits as another dtype. Where its width differs, rows of the last dim but one part or join, as JAX's Refs
  /// do. Not of 4-bit integers as wider elements or the other way round: they lie one to a byte.
  Ref bitcast(DType dtype, Loc loc = Loc::here()) const;
  /// Dim i is dim perm[i] of this Ref.
  Ref transpose(std::vector<int64_t> perm, Loc loc = Loc::here()) const;
  Ref T(Loc loc = Loc::here()) const;  ///< all dims in the opposite order

 private:
  friend class Trace;
  friend class RefAccess;
  Ref with(RefTransform step, Shape shape, DType dtype) const;
  Ref(uint64_t trace, ir::RegionId region, ir::Value id, ir::Type type);
  uint64_t trace_;
  ir::RegionId region_;
  ir::Value id_;
  ir::Type type_;                    // of the view
  std::vector<RefTransform> views_;  // from the body's argument on
};

/// x[...]: a place in memory, for this expression only. Stored values broadcast to the place's shape and must have its
/// dtype (cast() converts); numbers adopt it.
class RefItem {
 public:
  RefItem(const RefItem&) = delete;
  RefItem& operator=(const RefItem&) = delete;
  ~RefItem();
  void operator=(RefItem&& other) &&;  ///< o[all] = x[all] reads and stores
  operator Value() &&;                 // NOLINT: implicit on purpose
  Value read(Loc loc) &&;

  void operator=(Operand v) &&;
  void operator+=(Operand v) &&;
  void operator-=(Operand v) &&;
  void operator*=(Operand v) &&;
  void operator/=(Operand v) &&;
  void operator%=(Operand v) &&;
  void operator&=(Operand v) &&;
  void operator|=(Operand v) &&;
  void operator^=(Operand v) &&;

 private:
  friend class Ref;
  friend class Place;
  RefItem(const Ref& ref, RefIndex&& index);
  Ref ref_;
  RefIndex index_;
};

/// bool masks broadcast to the place's shape. Elements that the mask leaves out are `other`, or unspecified.
struct LoadParams {
  Operand mask = {};
  Operand other = {};
};
struct StoreParams {
  Operand mask = {};
  /// Of store(): the index arrays bring no two elements to one place, as lax.scatter's unique_indices. Then all are
  /// stored at once; else, where the compiler cannot prove it, one after another. Where two meet all the same either
  /// may stay, and InterpretOptions::races reports it.
  bool unique_indices = false;
};
Value load(const Ref& ref, RefIndex index, LoadParams params = {});
/// Elements that the mask leaves out keep their contents.
void store(const Ref& ref, RefIndex index, Operand value, StoreParams params = {});
/// Adds the value to what the elements hold. Other than += it adds up what an index array brings to one element several
/// times.
void addupdate(const Ref& ref, RefIndex index, Operand value, StoreParams params = {});
/// Stores and returns what the elements held before.
Value swap(const Ref& ref, RefIndex index, Operand value, LoadParams params = {});

/// Each element becomes the sum (the maximum, ...) of itself and the value in one step that programs running at once do
/// not disturb. All return what the elements held before. Values that an index array brings to one element all count,
/// one after another in row-major order, and each finds what the one before has left. Views do, but for bitcasts to
/// another width. Programs along an axis may run at once if that is unused and the kinds agree: then the updates
/// commute. Sums of floats depend on their order all the same, so they keep it unless
/// CompilerParams::allow_float_atomics.
Value atomic_add(const Ref& ref, RefIndex index, Operand value, LoadParams params = {});
Value atomic_max(const Ref& ref, RefIndex index, Operand value, LoadParams params = {});
Value atomic_min(const Ref& ref, RefIndex index, Operand value, LoadParams params = {});
Value atomic_and(const Ref& ref, RefIndex index, Operand value, LoadParams params = {});
Value atomic_or(const Ref& ref, RefIndex index, Operand value, LoadParams params = {});
Value atomic_xor(const Ref& ref, RefIndex index, Operand value, LoadParams params = {});
Value atomic_xchg(const Ref& ref, RefIndex index, Operand value, LoadParams params = {});
/// Elements that equal `compare` (by ==: NaN equals nothing, 0 equals -0) become `value`.
Value atomic_cas(const Ref& ref, RefIndex index, Operand compare, Operand value, LoadParams params = {});

}  // namespace tessera
