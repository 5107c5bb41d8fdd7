#include "engine/platform.h"

#include <cstdio>

#ifdef _WIN32
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <fcntl.h>
#include <io.h>
#include <process.h>
#include <windows.h>
#else
#include <dlfcn.h>
#include <unistd.h>
#endif

namespace tessera::platform {

#ifdef _WIN32

const char* const kVulkanLoader = "vulkan-1.dll";
const char* const kOpenBlas = "libopenblas.dll";
void* open_library(const std::string& file) { return LoadLibraryA(file.c_str()); }
bool is_open(const std::string& file) { return GetModuleHandleA(file.c_str()) != nullptr; }
void* symbol(void* library, const char* name) { return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name)); }
void close_library(void* library) { FreeLibrary(static_cast<HMODULE>(library)); }
int process_id() { return _getpid(); }
const bool kFileDescriptors = false;
int duplicate(int) { return -1; }
void close_descriptor(int) {}
bool replace_file(const std::string& from, const std::string& to) {
  for (int tries = 0; tries < 100; ++tries) {
    if (MoveFileExA(from.c_str(), to.c_str(), MOVEFILE_REPLACE_EXISTING)) return true;
    if (GetLastError() != ERROR_SHARING_VIOLATION && GetLastError() != ERROR_ACCESS_DENIED) return false;
    Sleep(10);  // an open file keeps its name here
  }
  return false;
}
bool prints_to_terminal() { return _isatty(_fileno(stdout)) != 0; }
bool errors_to_terminal() { return _isatty(_fileno(stderr)) != 0; }
void print_bytes() {
  _setmode(_fileno(stdout), _O_BINARY);
  _setmode(_fileno(stderr), _O_BINARY);
}

namespace {
template <class F> F of_windows(const char* name, F otherwise) {
  const HMODULE library = LoadLibraryA("ucrtbase.dll");
  const auto f = library ? reinterpret_cast<F>(reinterpret_cast<void*>(GetProcAddress(library, name))) : nullptr;
  return f ? f : otherwise;
}
using One = double (*)(double);
using Two = double (*)(double, double);
}  // namespace
double sin(double x) {
  static const One f = of_windows<One>("sin", std::sin);
  return f(x);
}
double cos(double x) {
  static const One f = of_windows<One>("cos", std::cos);
  return f(x);
}
double pow(double x, double y) {
  static const Two f = of_windows<Two>("pow", std::pow);
  return f(x, y);
}
double acosh(double x) {
  static const One f = of_windows<One>("acosh", std::acosh);
  return f(x);
}

#else

#ifdef __APPLE__
const char* const kVulkanLoader = "libvulkan.1.dylib";
const char* const kOpenBlas = "libopenblas.dylib";
#else
const char* const kVulkanLoader = "libvulkan.so.1";
const char* const kOpenBlas = "libopenblas.so.0";
#endif
void* open_library(const std::string& file) { return dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL); }
bool is_open(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library) dlclose(library);  // of the count that asking has added
  return library != nullptr;
}
void* symbol(void* library, const char* name) { return dlsym(library, name); }
void close_library(void* library) { dlclose(library); }
int process_id() { return static_cast<int>(getpid()); }
const bool kFileDescriptors = true;
int duplicate(int descriptor) { return dup(descriptor); }
void close_descriptor(int descriptor) { close(descriptor); }
bool replace_file(const std::string& from, const std::string& to) { return std::rename(from.c_str(), to.c_str()) == 0; }
bool prints_to_terminal() { return isatty(STDOUT_FILENO) != 0; }
bool errors_to_terminal() { return isatty(STDERR_FILENO) != 0; }
void print_bytes() {}

#endif

}  // namespace tessera::platform
