// .safetensors files: named arrays, and text about them. The format is eight bytes with the header's size
// (little-endian), the header, a JSON object from names to dtype, shape and first and last byte, and the arrays' bytes
// one after another (Hugging Face, safetensors 0.4). A file is checked whole before anything of it is used: what is
// damaged is a std::runtime_error that says where and both numbers.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <tessera/tessera.hpp>

namespace transformer {

struct SafeTensors {
  std::map<std::string, tessera::Array> tensors;
  std::map<std::string, std::string> metadata;
};

/// Throws std::runtime_error "PATH: what is wrong".
SafeTensors read_safetensors(const std::string& path);
SafeTensors parse_safetensors(std::string_view bytes, const std::string& path);
/// Wide dtypes come first, so that every array is aligned. SpecError for 4-bit integers, which the format has not;
/// std::runtime_error where the file cannot be written.
void write_safetensors(const std::string& path, const SafeTensors& file);
std::string format_safetensors(const SafeTensors& file);

}  // namespace transformer
