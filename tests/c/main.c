// The C interface (tessera.h) from C11: every function, every error, to the letter. TESSERA_KERNELS is the bundle that
// CMake has made of this folder's kernels.
#include <stdlib.h>

#include "test.h"

int passed = 0, failed = 0;
tessera_device* device = NULL;
tessera_bundle* bundle = NULL;
char printed[4096] = "";

void check(int condition, const char* text, const char* file, int line) {
  if (condition) {
    ++passed;
    return;
  }
  ++failed;
  printf("%s:%d: FAILED: %s\n", file, line, text);
}

void check_error(tessera_result got, tessera_result wanted, const char* sentence, const char* file, int line) {
  const char* said = tessera_last_error();
  if (got == wanted && (!sentence || strcmp(said, sentence) == 0)) {
    ++passed;
    return;
  }
  ++failed;
  printf("%s:%d: FAILED: %s, wanted %s\n  said:   %s\n  wanted: %s\n", file, line, tessera_result_name(got),
         tessera_result_name(wanted), said, sentence ? sentence : "");
}

static void print(void* user, const char* line) {
  char* to = user;
  const size_t used = strlen(to);
  snprintf(to + used, sizeof printed - used, "%s\n", line);
}
static void say(void* user, const char* message) {
  ++*(int*)user;
  printf("validation: %s\n", message);
}

tessera_kernel* kernel_named(const char* name) {
  tessera_kernel* k = NULL;
  CHECK_OK(tessera_kernel_get(bundle, device, name, &k));
  return k;
}
tessera_array* floats(int64_t n, const float* data) {
  tessera_array* a = NULL;
  CHECK_OK(tessera_array_create(device, TESSERA_F32, 1, &n, data, &a));
  return a;
}
tessera_array* ints(int64_t n, const int32_t* data) {
  tessera_array* a = NULL;
  CHECK_OK(tessera_array_create(device, TESSERA_I32, 1, &n, data, &a));
  return a;
}

int main(void) {
  tessera_device_options options = tessera_device_defaults();
  options.validation = VALIDATION;
  options.print = print;
  options.print_user = printed;
  test_versions();
  CHECK_OK(tessera_device_create(&options, &device));
  CHECK_OK(tessera_bundle_load(TESSERA_KERNELS, &bundle));
  if (!device || !bundle) {
    printf("%d passed, %d failed\n", passed, failed);
    return 1;
  }
  test_devices();
  test_bundles();
  test_reload();
  test_kernels();
  test_arrays();
  test_calls();
  test_numbers();
  test_vulkan();
  test_graphs();
  test_nulls();
  test_images();
  test_callbacks();
  int messages = 0;
  CHECK_OK(tessera_device_validation(device, say, &messages));
  CHECK(messages == 0);
  tessera_bundle_destroy(bundle);
  tessera_device_destroy(device);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
