// Errors and the user's source lines. Every message reads: kernel, place, what is wrong with both numbers; then where;
// then what to do:
//   matmul: in_specs[1]: block shape (32, 64) has 2 dims but the array (4, 64, 128) has 3
//     at samples/matmul.cpp:21
//     note: give one block size per array dim, or ts::squeezed for a dim that the kernel should not see
// The C++ API throws these; nothing prints.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tessera {

/// A line of the user's program. `file` points at a string that outlives the program (a literal, or a Kernel's file
/// table). std::source_location is missing in clang 14 with libstdc++ 12, hence the builtins.
struct Loc {
  const char* file = nullptr;
  uint32_t line = 0;
  static Loc here(const char* file = __builtin_FILE(), uint32_t line = static_cast<uint32_t>(__builtin_LINE())) {
    return {file, line};
  }
  explicit operator bool() const { return file != nullptr; }
};
std::string to_string(Loc loc);  ///< "samples/matmul.cpp:21", or "" if unknown. Printed as the compiler saw the path.
/// Keeps a copy of `file` for the life of the process, for Locs that come from text; equal names share one copy.
/// Thread-safe.
const char* intern_file(std::string_view file);

class Error : public std::runtime_error {
 public:
  /// Joins `what`, "\n  at LOC" if known, and "\n  note: NOTE" if given.
  explicit Error(const std::string& what, Loc loc = {}, const std::string& note = {});
};
/// A grid, block spec or argument that does not fit.
struct SpecError : Error {
  using Error::Error;
};
/// A shape or dtype error while a kernel is traced or parsed, or a Value used outside its trace.
struct TraceError : Error {
  using Error::Error;
};
/// The kernel broke a rule while the interpreter ran it (out of bounds, or a race), or needs more memory than there is.
struct KernelError : Error {
  using Error::Error;
};
/// The target cannot run this kernel; names the limit and the need.
struct CompileError : Error {
  using Error::Error;
};
/// Vulkan failed: VkResult, call, device.
struct DeviceError : Error {
  using Error::Error;
};
/// A bug of Tessera's.
struct InternalError : Error {
  using Error::Error;
};

}  // namespace tessera
