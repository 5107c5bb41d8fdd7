// The differences between operating systems: shared libraries, the process' number, opening and renaming files, file
// descriptors, whether output goes to a terminal, a few functions of C's mathematics. Nothing else in engine/, codegen/
// or runtime/ includes a system's own headers, except for threads (pthread.h, which mingw has).
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

namespace tessera::platform {

/// Opens a shared library for the caller alone; null where there is none of that name.
void* open_library(const std::string& file);
/// Whether something in the process has opened it already.
bool is_open(const std::string& file);
/// A function of it, or null.
void* symbol(void* library, const char* name);
void close_library(void* library);
/// What Vulkan's loader is called here.
extern const char* const kVulkanLoader;
/// And NVIDIA's driver.
extern const char* const kCudaDriver;
/// And OpenBLAS.
extern const char* const kOpenBlas;

int process_id();
/// Whether memory is shared by file descriptors; then, another descriptor of the same file, or -1, and the end of one.
extern const bool kFileDescriptors;
int duplicate(int descriptor);
void close_descriptor(int descriptor);
/// A file that is there, opened to be read: never waits, as opening a pipe would, and opens no device.
struct Opened {
  enum class What : uint8_t { file, missing, no_file, link, denied };
  What what = What::missing;
  std::FILE* stream = nullptr;  // of a file alone
  uint64_t bytes = 0;
  bool foreign = false;  // another user than this one or root owns it, or may write it. Not known on Windows
};
/// `links`: whether the name may be a link to the file; those of the folders around it may be.
Opened open_file(const std::string& file, bool links);
/// A new file, to be written; null if there is anything of that name, be it a link to nothing. `others`: it may be for
/// others to write, as the process has it for new files.
std::FILE* create_file(const std::string& file, bool others);
/// Gives a file another's name, in place of what has it; both are in one folder. On Windows it waits up to a second for
/// whoever reads the old one. False if it cannot be.
bool replace_file(const std::string& from, const std::string& to);
/// stdout is a terminal; stderr is one.
bool prints_to_terminal();
bool errors_to_terminal();
/// From now on stdout and stderr take bytes as they are: Windows would end each line in \r\n, also within what is no
/// text.
void print_bytes();

// Functions that mingw's own C library gets wrong: those that it takes from the x87 (sin(1e22) is 0.46 there) come from
// Windows' (ucrtbase.dll), and rounding is written out.
#ifdef _WIN32
double sin(double x);
double cos(double x);
double pow(double x, double y);
double acosh(double x);
template <class T> T round(T x) {
  const T whole = std::trunc(x);
  return std::abs(x - whole) >= T{0.5} ? whole + std::copysign(T{1}, x) : whole;
}
#else
using std::acosh, std::cos, std::pow, std::round, std::sin;
#endif

}  // namespace tessera::platform
