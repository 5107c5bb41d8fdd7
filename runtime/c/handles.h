// The structs behind the handles of tessera.h, and the conversion of exceptions to results: nothing is thrown across
// the C interface. Internal to runtime/c.
#pragma once
#include <tessera/tessera.h>

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "codegen/program/bundle.h"
#include "runtime/bundle.h"
#include "runtime/device.h"
#include "runtime/device_array.h"

struct tessera_device {
  tessera::Device device;
};
struct tessera_bundle {
  tessera::Bundle bundle;
};
struct tessera_kernel {
  struct Argument {
    std::string name, shape;
    std::vector<int64_t> sizes;
  };
  tessera::CompiledKernel kernel;
  std::string variant, variants, signature;
  std::vector<Argument> arguments;
  int32_t num_inputs = 0;
};
struct tessera_array {
  tessera::DeviceArray array;
  tessera::Shape shape;  // as it was made: a donated array has none
  bool donate = false;
  int32_t scalar_dtype = 0;  // of a number by value
};

namespace tessera::c {

/// A callback asked to stop.
struct Stopped : Error {
  using Error::Error;
};

/// Keeps the sentence for tessera_last_error(), and gives `result` back.
tessera_result failed(tessera_result result, const char* what) noexcept;
/// The name at `index`, which stays; SpecError if there is none.
const char* name_at(const std::vector<std::string>& names, int32_t index, const std::string& function,
                    const char* what);
/// How many arrays a launch takes and makes.
struct Counts {
  int64_t inputs, outputs;
  bool operator==(const Counts&) const = default;
};
/// Throws SpecError unless a launch of what has this signature gives as many as it wants.
void check_counts(const std::string& name, Loc loc, const std::string& signature, const Counts& wanted,
                  const Counts& given);
/// The result of the exception that is being handled.
tessera_result handled(const char* function) noexcept;

/// f(), with what it throws as a result.
template <class F> tessera_result guarded(const char* function, F f) noexcept {
  try {
    f();
    return TESSERA_OK;
  } catch (...) {
    return handled(function);
  }
}

/// Throws SpecError if a pointer is NULL.
inline void need(const char* function, const char* parameter, const void* pointer) {
  if (!pointer) throw SpecError(std::string(function) + ": " + parameter + " is NULL");
}

/// What the structs of tessera.h say; SpecErrors begin with the function's name.
DeviceOptions options_of(const char* function, const tessera_device_options* options);
Shape shape_of(const char* function, tessera_dtype dtype, int32_t rank, const int64_t* shape);
void check_sizes(const char* function, const tessera_size* sizes, int32_t num_sizes);
/// Of the kernel or graph of that name.
DimValues dims_of(const char* function, const std::string& name, Loc loc, const tessera_size* sizes, int32_t num_sizes);

}  // namespace tessera::c
