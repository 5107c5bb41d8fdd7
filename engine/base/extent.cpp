#include "engine/base/extent.h"

#include <algorithm>
#include <cctype>

#include "engine/base/error.h"

namespace tessera {
namespace {
using Op = Extent::Op;

int64_t apply(Op op, int64_t a, int64_t b) {
  int64_t r = 0;
  bool overflow = false;
  switch (op) {
    case Op::add: overflow = __builtin_add_overflow(a, b, &r); break;
    case Op::sub: overflow = __builtin_sub_overflow(a, b, &r); break;
    case Op::mul: overflow = __builtin_mul_overflow(a, b, &r); break;
    case Op::floordiv:
    case Op::cdiv: {
      if (b <= 0)
        throw SpecError("size expression divides " + std::to_string(a) + " by " + std::to_string(b), {},
                        "divisors must be positive");
      r = a / b;
      const bool inexact = a % b != 0;
      if (op == Op::floordiv && inexact && a < 0) --r;
      if (op == Op::cdiv && inexact && a > 0) ++r;
      break;
    }
    case Op::min: r = std::min(a, b); break;
    case Op::max: r = std::max(a, b); break;
  }
  if (overflow)
    throw SpecError("size expression overflows 64 bits on " + std::to_string(a) + " and " + std::to_string(b));
  return r;
}

constexpr std::string_view function_name(Op op) {
  return op == Op::cdiv ? "cdiv" : op == Op::floordiv ? "floordiv" : op == Op::min ? "min" : op == Op::max ? "max" : "";
}

std::string print(const Extent& e, size_t at, int outer) {
  const Extent::Node& node = e.nodes()[at];
  if (const auto* v = std::get_if<int64_t>(&node))
    return *v < 0 && outer > 0 ? "(" + std::to_string(*v) + ")" : std::to_string(*v);
  if (const auto* name = std::get_if<std::string>(&node)) return *name;
  const auto& n = std::get<Extent::Operation>(node);
  switch (n.op) {
    case Op::add:
    case Op::sub: {
      const std::string s = print(e, n.lhs, 1) + (n.op == Op::add ? " + " : " - ") + print(e, n.rhs, 2);
      return outer > 1 ? "(" + s + ")" : s;
    }
    case Op::mul: {
      const std::string s = print(e, n.lhs, 2) + " * " + print(e, n.rhs, 3);
      return outer > 2 ? "(" + s + ")" : s;
    }
    default: return std::string(function_name(n.op)) + "(" + print(e, n.lhs, 0) + ", " + print(e, n.rhs, 0) + ")";
  }
}

constexpr int kMaxDepth = 100;  // of parentheses
constexpr size_t kMaxNodes = 1000;

struct Parser {
  std::string_view& text;
  int depth = 0;
  Extent make(Op op, const Extent& a, const Extent& b) const {
    if (a.nodes().size() + b.nodes().size() > kMaxNodes)
      throw TraceError("size expression has more than " + std::to_string(kMaxNodes) + " terms");
    return Extent::make(op, a, b);
  }
  void space() {
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  }
  bool take(char c) {
    space();
    if (text.empty() || text.front() != c) return false;
    text.remove_prefix(1);
    return true;
  }
  [[noreturn]] void fail(const std::string& wanted) {
    const bool line_ends = !text.empty() && (text.front() == '\n' || text.front() == '\r');
    const std::string found = text.empty() ? "the end"
                              : line_ends  ? "the end of the line"
                                           : "'" + std::string(text.substr(0, 1)) + "'";
    throw TraceError("expected " + wanted + " but found " + found);
  }
  void deeper() {
    if (++depth > kMaxDepth)
      throw TraceError("size expression is nested more than " + std::to_string(kMaxDepth) + " deep");
  }
  Extent sum() {
    Extent e = product();
    for (;;) {
      if (take('+')) e = make(Op::add, e, product());
      else if (take('-')) e = make(Op::sub, e, product());
      else return e;
    }
  }
  Extent product() {
    Extent e = atom();
    while (take('*')) e = make(Op::mul, e, atom());
    return e;
  }
  Extent atom() {
    if (take('(')) {
      deeper();
      Extent e = sum();
      --depth;
      if (!take(')')) fail("')' in a size");
      return e;
    }
    const bool negative = take('-');
    space();
    size_t n = 0;
    while (n < text.size() && std::isdigit(static_cast<unsigned char>(text[n]))) ++n;
    if (n) {
      int64_t v = 0;
      for (char c : text.substr(0, n))
        if (__builtin_mul_overflow(v, int64_t{10}, &v) || __builtin_add_overflow(v, int64_t{c - '0'}, &v))
          throw TraceError("size " + std::string(text.substr(0, n)) + " exceeds 64 bits");
      text.remove_prefix(n);
      return negative ? -v : v;
    }
    if (negative) fail("a number after '-'");
    while (n < text.size() && (std::isalnum(static_cast<unsigned char>(text[n])) || text[n] == '_')) ++n;
    if (!n) fail("a size");
    const std::string word(text.substr(0, n));
    text.remove_prefix(n);
    for (Op op : {Op::cdiv, Op::floordiv, Op::min, Op::max})
      if (word == function_name(op) && take('(')) {
        deeper();
        Extent a = sum();
        if (!take(',')) fail("',' in " + word);
        Extent b = sum();
        if (!take(')')) fail("')' after " + word);
        --depth;
        return make(op, a, b);
      }
    return Extent::named(word);
  }
};
}  // namespace

Extent Extent::named(std::string name) {
  Extent e;
  e.nodes_[0] = std::move(name);
  return e;
}

Extent Extent::make(Op op, const Extent& a, const Extent& b) {
  if (a.is_static() && b.is_static() && !((op == Op::cdiv || op == Op::floordiv) && *b.value() <= 0))
    return apply(op, *a.value(), *b.value());
  const std::optional<int64_t> y = b.value(), x = a.value();
  if ((op == Op::add || op == Op::sub) && y == 0) return a;
  if (op == Op::add && x == 0) return b;
  if ((op == Op::mul || op == Op::floordiv || op == Op::cdiv) && y == 1) return a;
  if (op == Op::mul && x == 1) return b;
  if (op == Op::mul && (x == 0 || y == 0)) return 0;
  if (op == Op::sub && a == b) return 0;
  if ((op == Op::min || op == Op::max) && a == b) return a;
  Extent e;
  e.nodes_ = a.nodes_;
  const size_t shift = a.nodes_.size();
  e.nodes_.insert(e.nodes_.end(), b.nodes_.begin(), b.nodes_.end());
  for (size_t i = shift; i < e.nodes_.size(); ++i)
    if (auto* n = std::get_if<Operation>(&e.nodes_[i])) n->lhs += shift, n->rhs += shift;
  e.nodes_.push_back(Operation{op, shift - 1, e.nodes_.size() - 1});
  return e;
}

std::optional<std::string> Extent::as_name() const {
  const auto* name = nodes_.size() == 1 ? std::get_if<std::string>(&nodes_[0]) : nullptr;
  return name ? std::optional(*name) : std::nullopt;
}

int64_t Extent::eval(const DimValues& dims) const {
  if (const auto n = value()) return *n;
  // On the stack as a rule: recording a call into a host's command buffer allocates nothing.
  constexpr size_t kUsual = 64;
  int64_t usual[kUsual];
  std::vector<int64_t> many(nodes_.size() > kUsual ? nodes_.size() : 0);
  int64_t* const v = many.empty() ? usual : many.data();
  size_t at = 0;
  for (const Node& n : nodes_) {
    if (const auto* constant = std::get_if<int64_t>(&n)) {
      v[at++] = *constant;
    } else if (const auto* name = std::get_if<std::string>(&n)) {
      const auto it = dims.find(*name);
      if (it == dims.end())
        throw SpecError("no value for the size \"" + *name + "\"", {},
                        "a size is taken from an argument whose shape names it, or given with the call");
      v[at++] = it->second;
    } else {
      const auto& o = std::get<Operation>(n);
      v[at++] = apply(o.op, v[o.lhs], v[o.rhs]);
    }
  }
  return v[at - 1];
}

void Extent::collect_names(std::vector<std::string>& names) const {
  for (const Node& n : nodes_)
    if (const auto* name = std::get_if<std::string>(&n);
        name && std::find(names.begin(), names.end(), *name) == names.end())
      names.push_back(*name);
}

Extent operator+(const Extent& a, const Extent& b) { return Extent::make(Op::add, a, b); }
Extent operator-(const Extent& a, const Extent& b) { return Extent::make(Op::sub, a, b); }
Extent operator*(const Extent& a, const Extent& b) { return Extent::make(Op::mul, a, b); }
Extent cdiv(const Extent& a, const Extent& b) { return Extent::make(Op::cdiv, a, b); }

std::string to_string(const Extent& e) { return print(e, e.nodes().size() - 1, 0); }
Extent parse_extent(std::string_view& text) { return Parser{text}.sum(); }

namespace {
template <class T, class F> std::string tuple(const std::vector<T>& shape, F print) {
  std::string s = "(";
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + print(shape[i]);
  return s + (shape.size() == 1 ? ",)" : ")");
}
}  // namespace
std::string to_string(const Shape& shape) {
  return tuple(shape, [](int64_t v) { return std::to_string(v); });
}
std::string to_string(const std::vector<Extent>& shape) {
  return tuple(shape, [](const Extent& e) { return to_string(e); });
}
int64_t num_elements(const Shape& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

}  // namespace tessera
