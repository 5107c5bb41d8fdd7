// The log, and the host's memory, by functions of the program's.
#define _POSIX_C_SOURCE 200112L
#include <stdlib.h>
#include <vulkan/vulkan_core.h>

#include "test.h"

static int set_cache(const char* folder) {
#ifdef _WIN32
  return _putenv_s("TESSERA_CACHE", folder ? folder : "");
#else
  return folder ? setenv("TESSERA_CACHE", folder, 1) : unsetenv("TESSERA_CACHE");
#endif
}

typedef struct Logged {
  int number;
  tessera_severity severity;
  char last[1000];
} Logged;
static void log_it(void* user, tessera_severity severity, const char* message) {
  Logged* logged = user;
  ++logged->number;
  logged->severity = severity;
  snprintf(logged->last, sizeof logged->last, "%s", message);
}

typedef struct Heap {
  int calls, alive;
} Heap;
// A block, with its size and where malloc's begins in front of it.
typedef struct Front {
  void* whole;
  size_t size;
} Front;
static void* VKAPI_PTR take(void* user, size_t size, size_t alignment, VkSystemAllocationScope scope) {
  Heap* heap = user;
  (void)scope;
  if (alignment < sizeof(Front)) alignment = sizeof(Front);
  char* whole = malloc(size + 2 * alignment);
  if (!whole) return NULL;
  char* at = whole + alignment;
  at += (alignment - (uintptr_t)at % alignment) % alignment;
  const Front front = {whole, size};
  memcpy(at - sizeof front, &front, sizeof front);
  ++heap->calls, ++heap->alive;
  return at;
}
static void VKAPI_PTR give(void* user, void* memory) {
  if (!memory) return;
  Front front;
  memcpy(&front, (char*)memory - sizeof front, sizeof front);
  --((Heap*)user)->alive;
  free(front.whole);
}
static void* VKAPI_PTR take_again(void* user, void* memory, size_t size, size_t alignment,
                                  VkSystemAllocationScope scope) {
  if (size == 0) {
    give(user, memory);
    return NULL;
  }
  void* fresh = take(user, size, alignment, scope);
  if (fresh && memory) {
    Front front;
    memcpy(&front, (char*)memory - sizeof front, sizeof front);
    memcpy(fresh, memory, front.size < size ? front.size : size);
    give(user, memory);
  }
  return fresh;
}

static void test_log(void) {
  Logged process = {0, -1, ""}, own = {0, -1, ""};
  tessera_device_options options = tessera_device_defaults();
  options.validation = VALIDATION, options.log = log_it, options.log_user = &own;
  CHECK_OK(tessera_set_log(log_it, &process));
  tessera_device* d = NULL;
  tessera_kernel* k = NULL;
  // A cache that can be no folder.
  char expected[1100];
  CHECK(set_cache(TESSERA_KERNELS) == 0);
  CHECK_OK(tessera_device_create(&options, &d));
  CHECK_OK(tessera_kernel_get(bundle, d, "in_place", &k));
  CHECK_OK(tessera_bundle_prewarm(bundle, d, 1, NULL, NULL));
  CHECK(set_cache(NULL) == 0);
  CHECK(process.number > 0 && process.severity == TESSERA_WARNING);
  snprintf(expected, sizeof expected, "tessera: TESSERA_CACHE: cannot write to %s: ", TESSERA_KERNELS);
  CHECK(strncmp(process.last, expected, strlen(expected)) == 0);
  CHECK(own.number == 0);  // the validation layers have nothing to say
  CHECK_OK(tessera_set_log(NULL, NULL));
  tessera_kernel_destroy(k);
  tessera_device_destroy(d);
}

static void test_allocation(void) {
  Heap heap = {0, 0};
  const VkAllocationCallbacks callbacks = {
      .pUserData = &heap, .pfnAllocation = take, .pfnReallocation = take_again, .pfnFree = give};
  tessera_device_options options = tessera_device_defaults();
  options.allocation_callbacks = &callbacks;
  tessera_device* d = NULL;
  tessera_array* a = NULL;
  const int64_t n = 1000;
  CHECK_OK(tessera_device_create(&options, &d));
  const int before = heap.calls;
  CHECK(before > 0);
  CHECK_OK(tessera_array_create(d, TESSERA_F32, 1, &n, NULL, &a));
  CHECK_OK(tessera_bundle_prewarm(bundle, d, 1, NULL, NULL));
  CHECK(heap.calls > before && heap.alive > 0);
  tessera_array_destroy(a);
  tessera_device_destroy(d);
  CHECK(heap.alive == 0);
}

void test_callbacks(void) {
  test_log();
  test_allocation();
}
