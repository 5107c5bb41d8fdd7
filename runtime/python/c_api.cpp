// The functions that the Python package calls by ctypes: C types only, errors as text that the caller frees. So the
// library depends on no version of Python. The handler that XLA calls is in ffi.cpp.
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
Buffer buffer(const CArray& c, size_t i) {
  const auto dtype = dtype_from_name(c.dtype);
  if (!dtype)
    throw SpecError("tessera: argument " + std::to_string(i) + " has the dtype " + c.dtype +
                    ", which kernels cannot hold");
  return {*dtype, Shape(c.shape, c.shape + c.rank), c.data};
}
std::vector<Buffer> buffers(const CArray* arrays, size_t count) {
  std::vector<Buffer> found;
  for (size_t i = 0; i < count; ++i) found.push_back(buffer(arrays[i], i));
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

/// python::devices(), to be given to tessera_free.
TESSERA_PYTHON_API char* tessera_devices(char** text) {
  *text = nullptr;
  return error_of([&] { *text = copied(devices()); });
}

/// python::device_of_environment(), to be given to tessera_free.
TESSERA_PYTHON_API char* tessera_device_of_environment(char** text) {
  *text = nullptr;
  return error_of([&] { *text = copied(device_of_environment()); });
}

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
TESSERA_PYTHON_API char* tessera_run_text(const char* tir, size_t size, const char* path, const char* device,
                                          const CArray* inputs, size_t count, Outputs** outputs) {
  *outputs = nullptr;
  return error_of([&] { *outputs = new Outputs{run_text({{tir, size}, path}, device, buffers(inputs, count))}; });
}
/// An array on an NVIDIA GPU: ours, kept by `own`, or another library's; one of the host has neither `own` nor on_gpu.
struct CGpuArray {
  CArray array;
  const CudaArray* own;
  bool on_gpu;
};
struct GpuOutputs {
  std::vector<CudaArray> arrays;
};
/// The same as tessera_run_text on them; *outputs is to be given to tessera_gpu_outputs_free.
TESSERA_PYTHON_API char* tessera_gpu_run_text(const char* tir, size_t size, const char* path, const char* device,
                                              const CGpuArray* inputs, size_t count, GpuOutputs** outputs) {
  *outputs = nullptr;
  return error_of([&] {
    std::vector<GpuBuffer> found;
    for (size_t i = 0; i < count; ++i)
      found.push_back({inputs[i].own ? Buffer{} : buffer(inputs[i].array, i), inputs[i].on_gpu, inputs[i].own});
    *outputs = new GpuOutputs{run_text_on_gpu({{tir, size}, path}, device, found)};
  });
}
TESSERA_PYTHON_API size_t tessera_gpu_outputs_count(const GpuOutputs* o) { return o->arrays.size(); }
/// Output i, and what keeps it: to be given to tessera_gpu_free, as what it describes is valid until then.
TESSERA_PYTHON_API void tessera_gpu_output(const GpuOutputs* o, size_t i, CGpuArray* out) {
  const auto* own = new CudaArray(o->arrays.at(i));
  *out = {{tessera::name(own->dtype()).data(), static_cast<int64_t>(own->shape().size()), own->shape().data(),
           reinterpret_cast<void*>(own->address())},
          own,
          true};
}
TESSERA_PYTHON_API void tessera_gpu_outputs_free(GpuOutputs* o) { delete o; }
TESSERA_PYTHON_API void tessera_gpu_free(const CudaArray* own) { delete own; }
/// The calls that were made are done.
TESSERA_PYTHON_API char* tessera_gpu_wait(const CudaArray* own) {
  return error_of([&] { wait_for(*own); });
}
TESSERA_PYTHON_API char* tessera_gpu_download(const CudaArray* own, void* to) {
  return error_of([&] {
    const Array a = download(*own);
    if (a.nbytes()) std::memcpy(to, a.bytes(), static_cast<size_t>(a.nbytes()));
  });
}
/// DLPack's DLManagedTensor, as its header has it.
struct ManagedTensor {
  void* data;
  int32_t device_type, device;
  int32_t rank;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
  void* context;
  void (*deleter)(ManagedTensor*);
};
/// The array as one, of an element type with that code and so many bits; whoever takes it calls its deleter, from any
/// thread.
TESSERA_PYTHON_API ManagedTensor* tessera_gpu_dlpack(const CudaArray* own, uint8_t code, uint8_t bits) {
  struct Kept {
    ManagedTensor tensor;
    CudaArray array;
    Shape shape;
  };
  auto* kept = new Kept{{}, *own, own->shape()};
  constexpr int32_t kCuda = 2;
  kept->tensor = {reinterpret_cast<void*>(own->address()),
                  kCuda,
                  own->device().info().index,
                  static_cast<int32_t>(kept->shape.size()),
                  code,
                  bits,
                  1,
                  kept->shape.data(),
                  nullptr,
                  0,
                  kept,
                  [](ManagedTensor* t) { delete static_cast<Kept*>(t->context); }};
  return &kept->tensor;
}
TESSERA_PYTHON_API void tessera_gpu_dlpack_free(ManagedTensor* tensor) { tensor->deleter(tensor); }
TESSERA_PYTHON_API char* tessera_gpu_stream(const char* device, uint64_t* stream) {
  return error_of([&] { *stream = gpu_stream(device); });
}
TESSERA_PYTHON_API char* tessera_gpu_wait_for_stream(const char* device, uint64_t stream) {
  return error_of([&] { wait_for_gpu_stream(device, stream); });
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
