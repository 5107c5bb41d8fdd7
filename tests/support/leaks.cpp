// Of programs of tests under the address sanitizer: its leak checker reports what is ours and nothing else. The
// validation layer and Mesa's drivers leak a little per instance; they stay loaded, so that it can tell by name whose
// leak it is.
#include "tests/support/sanitizer.h"

#if defined(TESSERA_ADDRESS_SANITIZER)
extern "C" int dlclose(void*);
extern "C" const char* __lsan_default_suppressions();
extern "C" int dlclose(void*) { return 0; }
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libVkLayer_khronos_validation.so\nleak:libvulkan_\nleak:libLLVM\n";
}
#endif
