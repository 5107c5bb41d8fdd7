#include "engine/base/platform.h"

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
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#endif

namespace tessera::platform {

#ifdef _WIN32

const char* const kVulkanLoader = "vulkan-1.dll";
const char* const kCudaDriver = "nvcuda.dll";
const char* const kOpenBlas = "libopenblas.dll";
void* open_library(const std::string& file) { return LoadLibraryA(file.c_str()); }
bool is_open(const std::string& file) { return GetModuleHandleA(file.c_str()) != nullptr; }
void* symbol(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}
void close_library(void* library) { FreeLibrary(static_cast<HMODULE>(library)); }
int process_id() { return _getpid(); }
const bool kFileDescriptors = false;
int duplicate(int) { return -1; }
void close_descriptor(int) {}
namespace {
std::FILE* stream_of(HANDLE handle, int flags, const char* mode) {
  const int descriptor =
      handle == INVALID_HANDLE_VALUE ? -1 : _open_osfhandle(reinterpret_cast<intptr_t>(handle), flags | _O_BINARY);
  if (descriptor < 0 && handle != INVALID_HANDLE_VALUE) CloseHandle(handle);
  std::FILE* const stream = descriptor < 0 ? nullptr : _fdopen(descriptor, mode);
  if (!stream && descriptor >= 0) _close(descriptor);
  return stream;
}
}  // namespace
Opened open_file(const std::string& file, bool links) {
  using What = Opened::What;
  const HANDLE handle = CreateFileA(file.c_str(), GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                                    nullptr, OPEN_EXISTING,
                                    // backup: folders open too, and are told
                                    FILE_FLAG_BACKUP_SEMANTICS | (links ? 0 : FILE_FLAG_OPEN_REPARSE_POINT), nullptr);
  if (handle == INVALID_HANDLE_VALUE) {
    const DWORD why = GetLastError();
    return {why == ERROR_FILE_NOT_FOUND || why == ERROR_PATH_NOT_FOUND || why == ERROR_INVALID_NAME ? What::missing
                                                                                                    : What::denied};
  }
  FILE_ATTRIBUTE_TAG_INFO tag{};
  LARGE_INTEGER size{};
  What what = What::file;
  if (GetFileType(handle) != FILE_TYPE_DISK) what = What::no_file;  // CON, or a pipe
  else if (!GetFileInformationByHandleEx(handle, FileAttributeTagInfo, &tag, sizeof tag) ||
           !GetFileSizeEx(handle, &size))
    what = What::denied;
  else if ((tag.FileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) && IsReparseTagNameSurrogate(tag.ReparseTag))
    what = What::link;
  else if (tag.FileAttributes & FILE_ATTRIBUTE_DIRECTORY) what = What::no_file;
  if (what != What::file) {
    CloseHandle(handle);
    return {what};
  }
  std::FILE* const stream = stream_of(handle, _O_RDONLY, "rb");
  return {stream ? What::file : What::denied, stream, static_cast<uint64_t>(size.QuadPart)};
}
std::FILE* create_file(const std::string& file, bool) {
  return stream_of(CreateFileA(file.c_str(), GENERIC_WRITE, 0, nullptr, CREATE_NEW, FILE_ATTRIBUTE_NORMAL, nullptr),
                   _O_WRONLY, "wb");
}
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
const char* const kCudaDriver = "libcuda.dylib";
const char* const kOpenBlas = "libopenblas.dylib";
#else
const char* const kVulkanLoader = "libvulkan.so.1";
const char* const kCudaDriver = "libcuda.so.1";
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
Opened open_file(const std::string& file, bool links) {
  using What = Opened::What;
  const auto failed = [&] {
    return Opened{errno == ENOENT || errno == ENOTDIR ? What::missing
                  : errno == ELOOP && !links          ? What::link
                                                      : What::denied};
  };
  struct stat s{};
  if ((links ? stat(file.c_str(), &s) : lstat(file.c_str(), &s)) != 0) return failed();
  if (S_ISLNK(s.st_mode)) return {What::link};
  if (!S_ISREG(s.st_mode)) return {What::no_file};  // to open a device may be to do something
  const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (links ? 0 : O_NOFOLLOW));
  if (descriptor < 0) return failed();
  if (fstat(descriptor, &s) != 0 || !S_ISREG(s.st_mode)) {  // another one by now
    close(descriptor);
    return {What::no_file};
  }
  std::FILE* const stream = fdopen(descriptor, "rb");
  if (!stream) close(descriptor);
  return {stream ? What::file : What::denied, stream, static_cast<uint64_t>(s.st_size),
          (s.st_uid != geteuid() && s.st_uid != 0) || (s.st_mode & (S_IWGRP | S_IWOTH))};
}
std::FILE* create_file(const std::string& file, bool others) {
  const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, others ? 0666 : 0644);
  std::FILE* const stream = descriptor < 0 ? nullptr : fdopen(descriptor, "wb");
  if (!stream && descriptor >= 0) close(descriptor);
  return stream;
}
bool replace_file(const std::string& from, const std::string& to) { return std::rename(from.c_str(), to.c_str()) == 0; }
bool prints_to_terminal() { return isatty(STDOUT_FILENO) != 0; }
bool errors_to_terminal() { return isatty(STDERR_FILENO) != 0; }
void print_bytes() {}

#endif

}  // namespace tessera::platform
