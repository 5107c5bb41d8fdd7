// Extent: a size that is an integer or an integer expression over named sizes which arrive with the call
// (ts::dim("n")). Array extents and grid sizes are Extents; blocks, scratch and values are always static. One compiled
// kernel serves every size.
#pragma once
#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera {

using Shape = std::vector<int64_t>;
using DimValues = std::map<std::string, int64_t, std::less<>>;

class Extent {
 public:
  enum class Op : uint8_t { add, sub, mul, floordiv, cdiv, min, max };
  struct Operation {
    Op op;
    size_t lhs, rhs;  // positions of the operands in nodes(), before this node
    bool operator==(const Operation&) const = default;
  };
  /// A constant, a name, or an operation.
  using Node = std::variant<int64_t, std::string, Operation>;

  Extent(int64_t value = 0) : nodes_(1, Node(value)) {}  // NOLINT: implicit on purpose
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  Extent(T value) : Extent(static_cast<int64_t>(value)) {}  // NOLINT: size_t and int alike
  template <class T>
    requires(std::floating_point<T> || std::same_as<T, bool>)
  Extent(T) = delete;  // sizes are integers
  /// The extent that argument arrays (or the caller) give under `name`; equal names are equal sizes.
  static Extent named(std::string name);
  /// op over two extents, constants folded (x + 0, x * 1, x - x, x // 1 and cdiv(x, 1) too).
  static Extent make(Op op, const Extent& a, const Extent& b);

  bool is_static() const { return nodes_.size() == 1 && std::holds_alternative<int64_t>(nodes_[0]); }
  std::optional<int64_t> value() const {
    const int64_t* const n = nodes_.size() == 1 ? std::get_if<int64_t>(&nodes_[0]) : nullptr;
    return n ? std::optional(*n) : std::nullopt;
  }
  /// A bare name, e.g. dim("n"), else nothing.
  std::optional<std::string> as_name() const;
  /// Integer value under `dims`; throws SpecError naming the missing size, a division by zero or an overflow.
  int64_t eval(const DimValues& dims) const;
  void collect_names(std::vector<std::string>& names) const;  ///< appends names not yet in it, in order of appearance
  const std::vector<Node>& nodes() const { return nodes_; }   ///< the root is last

  /// Structural equality after folding (sound, not complete).
  bool operator==(const Extent&) const = default;

 private:
  std::vector<Node> nodes_;
};

Extent operator+(const Extent& a, const Extent& b);
Extent operator-(const Extent& a, const Extent& b);
Extent operator*(const Extent& a, const Extent& b);
/// Integer division rounded up, for b > 0.
Extent cdiv(const Extent& a, const Extent& b);
inline int64_t cdiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline Extent dim(std::string name) { return Extent::named(std::move(name)); }

/// "64", "n", "cdiv(n, 64)", "(n + 1) * 2": what parse_extent reads back.
std::string to_string(const Extent& e);
/// Parses the form above from the front of `text`, advancing it; throws TraceError.
Extent parse_extent(std::string_view& text);

/// "(32, 64)", "(8,)", "()" as Python prints tuples.
std::string to_string(const Shape& shape);
std::string to_string(const std::vector<Extent>& shape);
int64_t num_elements(const Shape& shape);

}  // namespace tessera
