#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#if defined(__SANITIZE_ADDRESS__)
// The validation layer and Mesa's drivers leak a little per instance. They stay loaded, so that the leak checker can tell by name whose leak
// it is; ours are reported.
extern "C" int dlclose(void*) { return 0; }
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libVkLayer_khronos_validation.so\nleak:libvulkan_\nleak:libLLVM\n"; }
#endif
