// Text: writes the body of one MLIR function. Values are named in order; constants are collected and stand at the
// function's beginning, each once. It knows the spelling of types and of the forms that instructions have, and nothing
// of kernels. Read next: emitter.h.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/extent.h"

namespace tessera::tpu {

/// A value of MLIR: a scalar or a vector, whose dtype here also says whether an integer is signed.
struct Val {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};

/// "f32", "i1", "i8" of u8 too: MLIR's integers have no sign.
std::string element_type(DType t);
/// "f32" for a scalar, "vector<8x128xf32>".
std::string value_type(DType t, const Shape& shape);
inline std::string type_of(const Val& v) { return value_type(v.dtype, v.shape); }
/// "[1, 0]"
std::string list(const std::vector<int64_t>& xs);
/// The names or types of values with commas.
std::string names(const std::vector<Val>& vs);
std::string types(const std::vector<Val>& vs);

class Text {
 public:
  explicit Text(int depth) : depth_(depth) {}

  void line(const std::string& text);
  void open(const std::string& text) { line(text), ++depth_; }
  void close(const std::string& text) { --depth_, line(text); }
  void next(const std::string& text) { --depth_, line(text), ++depth_; }  ///< between two regions of one op
  std::string fresh() { return "%" + std::to_string(next_++); }
  /// A line that makes a value: "NAME = TEXT".
  Val make(const std::string& text, DType t, Shape shape);
  /// The constants, then the lines.
  std::string str() const;

  std::string index(int64_t v);
  Val constant(DType t, uint64_t bits, const Shape& shape = {});
  Val integer(DType t, int64_t v, const Shape& shape = {});
  Val number(DType t, double v, const Shape& shape = {});

  Val unary(std::string_view op, const Val& a);
  Val binary(std::string_view op, const Val& a, const Val& b);
  Val compare(std::string_view predicate, const Val& a, const Val& b);  ///< "slt", "olt": of integers and floats
  Val select(const Val& c, const Val& a, const Val& b);
  Val cast(std::string_view op, const Val& a, DType t);  ///< "OP a : T to U"
  Val shape_cast(const Val& a, const Shape& shape);      ///< between vectors of as many elements
  Val broadcast(const Val& a, const Shape& shape);       ///< a scalar, or a vector whose dims are 1 or as the last ones
  Val extract(const Val& a);                             ///< of a vector of one element: the scalar
  Val slice(const Val& a, size_t axis, int64_t start, int64_t size);
  Val concatenate(const std::vector<Val>& parts, size_t axis);
  Val iota(const Shape& shape, size_t axis);  ///< i32, of rank 2 and more
  Val to_index(const Val& a);                 ///< an i32 scalar as an index

 private:
  std::string constant(const std::string& type, const std::string& text);

  int depth_, next_ = 0;
  std::string body_;
  std::vector<std::string> constants_;
  std::map<std::string, std::string> known_;
};

}  // namespace tessera::tpu
