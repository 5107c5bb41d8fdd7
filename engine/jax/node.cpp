#include "engine/jax/node.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/ir/kernel.h"

namespace tessera::jax {
namespace {
constexpr int kVersion = 1;
// levels of nested values: the importer, like JSON's own destructor, walks them by recursion
constexpr int kMaxDepth = 512;
constexpr int64_t kMaxElements = int64_t{1} << 40;

std::string kind(const json& j) {
  switch (j.type()) {
    case json::value_t::null: return "null";
    case json::value_t::object: return "an object";
    case json::value_t::array: return "a list";
    case json::value_t::string: return "a string";
    case json::value_t::boolean: return "a truth value";
    case json::value_t::number_float: return "a fraction";
    default: return "the number " + j.dump();
  }
}
/// How deep the brackets nest, strings skipped.
int depth(std::string_view text) {
  int now = 0, most = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      else if (c == '"') quoted = false;
    } else if (c == '"') quoted = true;
    else if (c == '[' || c == '{') most = std::max(most, ++now);
    else if (c == ']' || c == '}') --now;
  }
  return most;
}
}  // namespace

json parse_module(std::string_view text) {
  if (const int d = depth(text); d > kMaxDepth)
    throw SpecError("jax module: nested " + std::to_string(d) + " deep, but " + std::to_string(kMaxDepth) +
                    " levels are the most");
  json j;
  try {
    j = json::parse(text.begin(), text.end());
  } catch (const json::parse_error& e) {
    throw SpecError("jax module: no JSON from byte " + std::to_string(e.byte) + " on");
  } catch (const json::exception&) {
    throw SpecError("jax module: no JSON: a number is out of range");
  }
  const Node root(j, "");
  const int64_t version = root.at("tessera").integer();
  if (version != kVersion)
    throw SpecError("jax module: version " + std::to_string(version) + " is not known, this Tessera reads version " +
                        std::to_string(kVersion),
                    {}, "use the Python package and the library of one version");
  return j;
}

void Node::fail(const std::string& what, const std::string& note) const {
  throw SpecError("jax module: " + (path_.empty() ? "" : path_ + " ") + what, {}, note);
}

std::optional<Node> Node::find(const char* key) const {
  if (!j_->is_object()) fail("is " + kind(*j_) + " but should be an object");
  const auto it = j_->find(key);
  if (it == j_->end() || it->is_null()) return std::nullopt;
  return Node(*it, path_.empty() ? key : path_ + "." + key);
}
Node Node::at(const char* key) const {
  if (auto n = find(key)) return *n;
  Node(*j_, path_.empty() ? key : path_ + "." + key).fail("is missing");
}
size_t Node::size() const {
  if (!j_->is_array()) fail("is " + kind(*j_) + " but should be a list");
  return j_->size();
}
Node Node::at(size_t i) const {
  if (i >= size())
    fail("has " + std::to_string(size()) + (size() == 1 ? " entry" : " entries") + " but entry " + std::to_string(i) +
         " is needed");
  return Node((*j_)[i], path_ + "[" + std::to_string(i) + "]");
}
std::vector<Node> Node::items() const {
  std::vector<Node> all;
  for (size_t i = 0; i < size(); ++i) all.push_back(at(i));
  return all;
}
bool Node::boolean() const {
  if (!j_->is_boolean()) fail("is " + kind(*j_) + " but should be true or false");
  return j_->get<bool>();
}
int64_t Node::integer(int64_t least, int64_t most) const {
  if (!j_->is_number_integer()) fail("is " + kind(*j_) + " but should be an integer");
  const bool large = j_->is_number_unsigned() && j_->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  const int64_t i = large ? INT64_MAX : j_->get<int64_t>();
  if (large || i < least || i > most)
    fail("is " + kind(*j_) + ", which is not between " + std::to_string(least) + " and " + std::to_string(most));
  return i;
}
uint64_t Node::bits() const {
  if (!j_->is_number_unsigned()) fail("is " + kind(*j_) + " but should be an unsigned number");
  return j_->get<uint64_t>();
}
std::vector<int64_t> Node::integers(int64_t least, int64_t most) const {
  std::vector<int64_t> all;
  for (const Node& n : items()) all.push_back(n.integer(least, most));
  return all;
}
std::string Node::string() const {
  if (!j_->is_string()) fail("is " + kind(*j_) + " but should be a string");
  return j_->get<std::string>();
}
std::map<std::string, std::string> Node::strings() const {
  if (!j_->is_object()) fail("is " + kind(*j_) + " but should be an object");
  std::map<std::string, std::string> all;
  for (const auto& [key, value] : j_->items()) all[key] = Node(value, path_ + "." + key).string();
  return all;
}
DType Node::dtype() const {
  const std::string s = string();
  const auto t = dtype_from_name(s);
  if (!t) fail("is the dtype " + s + ", which kernels cannot hold");
  return *t;
}
Shape Node::shape() const {
  const Shape s = integers(0, INT32_MAX);
  int64_t elements = 1;
  for (int64_t d : s) {
    if (d && elements > kMaxElements / d)
      fail("is the shape " + tessera::to_string(s) + ", which has too many elements");
    elements *= std::max<int64_t>(d, 1);
  }
  return s;
}

TypeForm type_form(const Node& n) {
  if (n.size() < 2 || n.size() > 3) n.fail("should be [dtype, shape] or [dtype, shape, memory space]");
  TypeForm t{n.at(size_t{0}).dtype(), n.at(1).shape(), std::nullopt};
  if (n.size() == 3) t.space = n.at(2).string();
  return t;
}
std::string to_string(const TypeForm& t) {
  const std::string array = ir::to_string(ir::Type::array(t.dtype, t.shape));
  return t.space ? "ref<" + *t.space + ", " + array + ">" : array;
}

}  // namespace tessera::jax
