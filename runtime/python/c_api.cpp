// The functions that the Python package calls by ctypes: C types only, errors as text that the caller frees. So the library depends on no version of
// Python. The handler that XLA calls is in ffi.cpp.
#include <cstdlib>
#include <cstring>
#include <string>

#include "runtime/python/session.h"

#define TESSERA_PYTHON_API extern "C" __attribute__((visibility("default")))

namespace {
using namespace tessera;
using namespace tessera::python;

char* copied(const std::string& s) {
  char* c = static_cast<char*>(std::malloc(s.size() + 1));
  if (c) std::memcpy(c, s.c_str(), s.size() + 1);
  return c;
}
/// Null if f() returns, else what it threw.
template <class F>
char* error_of(const F& f) {
  try {
    f();
    return nullptr;
  } catch (const std::exception& e) {
    return copied(e.what());
  } catch (...) {
    return copied("tessera: an unknown exception");
  }
}

/// An array that crosses the border: `dtype` a name as in the text form, `shape` of `rank` sizes.
struct CArray {
  const char* dtype;
  int64_t rank;
  const int64_t* shape;
  void* data;
};
struct Outputs {
  std::vector<Array> arrays;
};
}  // namespace

TESSERA_PYTHON_API void tessera_free(char* text) { std::free(text); }

TESSERA_PYTHON_API char* tessera_prepare(const char* text, size_t size, const char* key, const char* device) {
  return error_of([&] { prepare({{text, size}, key, device}); });
}

TESSERA_PYTHON_API void tessera_stats(uint64_t* out) {
  const Stats s = stats();
  out[0] = s.modules;
  out[1] = s.calls;
  out[2] = s.bytes_copied;
}

/// Runs a kernel as .tir text; *outputs is to be given to tessera_outputs_free.
TESSERA_PYTHON_API char* tessera_run_text(const char* tir, size_t size, const char* device, const CArray* inputs, size_t count, Outputs** outputs) {
  *outputs = nullptr;
  return error_of([&] {
    std::vector<Array> arrays;
    for (size_t i = 0; i < count; ++i) {
      const CArray& c = inputs[i];
      const auto dtype = dtype_from_name(c.dtype);
      if (!dtype) throw SpecError("tessera: argument " + std::to_string(i) + " has the dtype " + c.dtype + ", which kernels cannot hold");
      Array& a = arrays.emplace_back(Shape(c.shape, c.shape + c.rank), *dtype);
      if (a.nbytes()) std::memcpy(a.bytes(), c.data, static_cast<size_t>(a.nbytes()));
    }
    *outputs = new Outputs{run_text({tir, size}, device, arrays)};
  });
}
TESSERA_PYTHON_API size_t tessera_outputs_count(const Outputs* o) { return o->arrays.size(); }
/// Output i; valid until the outputs are freed.
TESSERA_PYTHON_API void tessera_output(const Outputs* o, size_t i, CArray* out) {
  const Array& a = o->arrays.at(i);
  *out = {tessera::name(a.dtype()).data(), static_cast<int64_t>(a.shape().size()), a.shape().data(), const_cast<std::byte*>(a.bytes())};
}
TESSERA_PYTHON_API void tessera_outputs_free(Outputs* o) { delete o; }
