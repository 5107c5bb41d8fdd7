// The functions that the Python package calls by ctypes: C types only, errors as text that the caller frees. So the
// library depends on no version of Python. The handler that XLA calls is in ffi.cpp.
#include <cstdlib>
#include <cstring>
#include <string>

#include "runtime/device.h"
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
std::vector<Buffer> buffers(const CArray* arrays, size_t count) {
  std::vector<Buffer> found;
  for (size_t i = 0; i < count; ++i) {
    const CArray& c = arrays[i];
    const auto dtype = dtype_from_name(c.dtype);
    if (!dtype)
      throw SpecError("tessera: argument " + std::to_string(i) + " has the dtype " + c.dtype +
                      ", which kernels cannot hold");
    found.push_back({*dtype, Shape(c.shape, c.shape + c.rank), c.data});
  }
  return found;
}
}  // namespace

TESSERA_PYTHON_API void tessera_free(char* text) { std::free(text); }

TESSERA_PYTHON_API char* tessera_prepare(const char* text, size_t size, const char* key, const char* device) {
  return error_of([&] { prepare({{text, size}, key, device}); });
}

/// *name: of the device, or nothing; to be given to tessera_free.
TESSERA_PYTHON_API char* tessera_unnamed_cpu_driver(char** name) {
  *name = nullptr;
  return error_of([&] { *name = copied(unnamed_cpu_driver()); });
}

/// The Vulkan devices in the order of their indices, a line each: name, kind, driver and what it lacks, with tabs
/// between them. To be given to tessera_free.
TESSERA_PYTHON_API char* tessera_devices(char** text) {
  *text = nullptr;
  return error_of([&] {
    std::string lines;
    for (const DeviceInfo& d : list_devices()) {
      std::string lacks;
      for (const std::string& l : d.lacks) lacks += (lacks.empty() ? "" : ", ") + l;
      lines += d.name + "\t" + d.kind + "\t" + d.driver + "\t" + lacks + "\n";
    }
    *text = copied(lines);
  });
}

/// Whether the environment says that calls run on the interpreter where no device is named.
TESSERA_PYTHON_API bool tessera_interpreter_selected() { return interpreter_selected(); }

TESSERA_PYTHON_API char* tessera_submit_nothing(const char* device, int64_t times) {
  return error_of([&] { submit_nothing(device, times); });
}

TESSERA_PYTHON_API void tessera_set_printer(void (*printer)(const char* line)) { set_printer(printer); }

TESSERA_PYTHON_API void tessera_stats(uint64_t* out) {
  const Stats s = stats();
  out[0] = s.modules;
  out[1] = s.calls;
  out[2] = s.bytes_copied;
  out[3] = s.compiled;
  out[4] = s.from_disk;
}

/// Runs a kernel as .tir text; *outputs is to be given to tessera_outputs_free.
TESSERA_PYTHON_API char* tessera_run_text(const char* tir, size_t size, const char* device, const CArray* inputs,
                                          size_t count, Outputs** outputs) {
  *outputs = nullptr;
  return error_of([&] { *outputs = new Outputs{run_text({tir, size}, device, buffers(inputs, count))}; });
}
/// Reads the graph in `folder`, whose graph.txt is given, and a key of its other files.
TESSERA_PYTHON_API char* tessera_load_graph(const char* text, size_t size, const char* folder, const char* key,
                                            const char* device) {
  return error_of([&] { load_graph({{text, size}, folder, key}, device); });
}
/// Runs it as it was then, whatever the folder holds now.
TESSERA_PYTHON_API char* tessera_run_graph(const char* text, size_t size, const char* folder, const char* key,
                                           const char* device, const CArray* inputs, size_t count, Outputs** outputs) {
  *outputs = nullptr;
  return error_of(
      [&] { *outputs = new Outputs{run_graph({{text, size}, folder, key}, device, buffers(inputs, count))}; });
}
/// An exported call as .tir text, which is to be given to tessera_free.
TESSERA_PYTHON_API char* tessera_import_text(const char* text, size_t size, char** tir) {
  *tir = nullptr;
  return error_of([&] { *tir = copied(import_text({text, size})); });
}
TESSERA_PYTHON_API size_t tessera_outputs_count(const Outputs* o) { return o->arrays.size(); }
/// Output i; valid until the outputs are freed.
TESSERA_PYTHON_API void tessera_output(const Outputs* o, size_t i, CArray* out) {
  const Array& a = o->arrays.at(i);
  *out = {tessera::name(a.dtype()).data(), static_cast<int64_t>(a.shape().size()), a.shape().data(),
          const_cast<std::byte*>(a.bytes())};
}
TESSERA_PYTHON_API void tessera_outputs_free(Outputs* o) { delete o; }
