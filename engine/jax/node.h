// Node: a place in a JSON document that is expected to have a certain form. Every accessor checks it and throws a
// SpecError with the path to the place, so that no document can crash the importer. Internal to engine/jax.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/extent.h"

namespace tessera::jax {

using nlohmann::json;
using tessera::to_string;  // of shapes, beside to_string(TypeForm)

/// Parses a module and checks its version.
json parse_module(std::string_view text);

class Node {
 public:
  Node(const json& j, std::string path) : j_(&j), path_(std::move(path)) {}

  [[noreturn]] void fail(const std::string& what, const std::string& note = {}) const;  ///< "jax module: PATH what"

  Node at(const char* key) const;                   ///< of an object that has it
  std::optional<Node> find(const char* key) const;  ///< absent or null: nothing
  size_t size() const;                              ///< of a list
  Node at(size_t i) const;
  std::vector<Node> items() const;

  bool is_null() const { return j_->is_null(); }
  bool is_boolean() const { return j_->is_boolean(); }
  bool is_string() const { return j_->is_string(); }
  bool is_list() const { return j_->is_array(); }
  bool is_object() const { return j_->is_object(); }
  bool is_integer() const { return j_->is_number_integer(); }

  bool boolean() const;
  int64_t integer(int64_t least = INT64_MIN, int64_t most = INT64_MAX) const;
  uint64_t bits() const;  ///< an unsigned number
  std::vector<int64_t> integers(int64_t least = INT64_MIN, int64_t most = INT64_MAX) const;
  std::string string() const;
  std::map<std::string, std::string> strings() const;  ///< an object of strings
  DType dtype() const;
  Shape shape() const;  ///< sizes whose product is a size

  const std::string& path() const { return path_; }

 private:
  const json* j_;
  std::string path_;
};

/// [dtype, shape], and a Ref's memory space behind that.
struct TypeForm {
  DType dtype;
  Shape shape;
  std::optional<std::string> space;
};
TypeForm type_form(const Node& n);
std::string to_string(const TypeForm& t);  ///< "f32[8, 4]" or "ref<vmem, f32[8, 4]>"

}  // namespace tessera::jax
