// .npy files, NumPy's format for one array (versions 1, 2 and 3): reading and writing Arrays of every dtype. Not .npz
// archives, not structured, complex, string or object arrays: those are refused by name. No file is misread: byte order
// and Fortran order are honoured, and sizes are checked against the file before memory is allocated.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/array.h"
#include "engine/base/read_file.h"

namespace tessera {

/// Reads an array. bfloat16 is stored as two raw bytes ("<V2", what NumPy writes for ml_dtypes.bfloat16): `wanted`, if
/// it has two bytes, says what they are; without it they are bf16. ml_dtypes' 8-bit floats and 4-bit integers are one
/// raw byte ("V1", or "f1" of float8_e5m2): `wanted` has to say which, and may then name them for bytes too ("u1", a
/// view as uint8). Otherwise the file's dtype stands. Throws SpecError "PATH: what is wrong".
Array read_npy(const std::string& path, std::optional<DType> wanted = std::nullopt);
/// An array in a file, of which dtype and shape are known before memory is taken for it.
class NpyFile {
 public:
  explicit NpyFile(const std::string& path, std::optional<DType> wanted = std::nullopt,
                   InputFile::Links links = InputFile::Links::followed);
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  Array read();  ///< once

 private:
  InputFile file_;
  DType dtype_ = DType::f32;
  Shape shape_;
  bool swap_ = false, fortran_ = false;
};
/// The same from memory; `name` stands in messages.
Array parse_npy(std::string_view bytes, std::string_view name, std::optional<DType> wanted = std::nullopt);

/// 8-bit floats and 4-bit integers are written as raw bytes ("|V1"), which NumPy's view(ml_dtypes.float8_e4m3fn) makes
/// what they are. Writes version 1 (2 if the header needs it), little-endian, C order. Throws Error if the file cannot
/// be written.
void write_npy(const std::string& path, const Array& array);
/// The bytes of such a file, and those of them that come before the elements.
std::string npy_header(const Array& array);
std::string format_npy(const Array& array);

}  // namespace tessera
