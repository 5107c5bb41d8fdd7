// What differs between operating systems: shared libraries, the process' number, whether output goes to a person. All of it is here; nothing else in
// engine/, codegen/ or runtime/ includes a system's own headers.
#pragma once
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
/// And OpenBLAS.
extern const char* const kOpenBlas;

int process_id();
/// stdout is a terminal.
bool prints_to_terminal();

}  // namespace tessera::platform
