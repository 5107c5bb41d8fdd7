// Versions, devices, bundles and kernels.
#include <stdlib.h>

#include "test.h"

void test_versions(void) {
  CHECK(tessera_version() == TESSERA_VERSION_NUMBER);
  CHECK(strcmp(tessera_version_string(), TESSERA_VERSION) == 0);
  CHECK(TESSERA_MAKE_VERSION(1, 2, 3) == 4202499u);
  CHECK(strcmp(tessera_last_error(), "") == 0);
  CHECK_OK(tessera_check_version(TESSERA_VERSION_NUMBER));
  CHECK_OK(tessera_check_version(TESSERA_MAKE_VERSION(TESSERA_VERSION_MAJOR, TESSERA_VERSION_MINOR, 77)));
  CHECK_ERROR(tessera_check_version(TESSERA_MAKE_VERSION(7, 3, 1)), TESSERA_ERROR_ARGUMENT,
              "tessera_check_version: the program was compiled with the header of Tessera 7.3.1 but the library "
              "is " TESSERA_VERSION);
  CHECK(strcmp(tessera_result_name(TESSERA_ERROR_BUNDLE), "TESSERA_ERROR_BUNDLE") == 0);
  CHECK(strcmp(tessera_result_name(99), "?") == 0);
  CHECK(strcmp(tessera_dtype_name(TESSERA_BF16), "bf16") == 0);
  CHECK(tessera_dtype_name(17) == NULL && tessera_dtype_name(-1) == NULL);
  CHECK(tessera_dtype_bytes(TESSERA_F64) == 8 && tessera_dtype_bytes(TESSERA_I4) == 1 && tessera_dtype_bytes(99) == 0);
}

void test_devices(void) {
  tessera_device_info info, own;
  int32_t count = 0, lost = 1;
  int64_t bytes = -1;
  CHECK_OK(tessera_device_count(&count));
  CHECK(count >= 1);
  CHECK_OK(tessera_device_info_at(0, &info));
  CHECK(info.name[0] != 0 && info.index == 0);
  CHECK_OK(tessera_device_get_info(device, &own));
  CHECK(own.usable == 1 && own.memory_bytes > 0 && own.max_array_bytes > 0 && own.driver[0] != 0 &&
        own.api_version[0] == '1');
  CHECK_OK(tessera_device_lost(device, &lost));
  CHECK(lost == 0);
  CHECK_OK(tessera_device_allocated(device, &bytes));
  CHECK(bytes >= 0);
  CHECK_OK(tessera_device_wait(device));
  CHECK_OK(tessera_device_recover(device));
  tessera_device_destroy(NULL);

  char text[200];
  snprintf(text, sizeof text, "tessera_device_info_at: there is no device 99: their number is %d", count);
  CHECK_ERROR(tessera_device_info_at(99, &info), TESSERA_ERROR_ARGUMENT, text);
  CHECK_ERROR(tessera_device_info_at(0, NULL), TESSERA_ERROR_ARGUMENT, "tessera_device_info_at: info is NULL");
  CHECK_ERROR(tessera_device_count(NULL), TESSERA_ERROR_ARGUMENT, "tessera_device_count: count is NULL");
  CHECK_ERROR(tessera_device_create(NULL, NULL), TESSERA_ERROR_ARGUMENT, "tessera_device_create: device is NULL");
  CHECK_ERROR(tessera_device_wait(NULL), TESSERA_ERROR_ARGUMENT, "tessera_device_wait: device is NULL");
  CHECK_ERROR(tessera_device_lost(NULL, &lost), TESSERA_ERROR_ARGUMENT, "tessera_device_lost: device is NULL");
  CHECK_ERROR(tessera_device_lost(device, NULL), TESSERA_ERROR_ARGUMENT, "tessera_device_lost: lost is NULL");
  CHECK_ERROR(tessera_device_recover(NULL), TESSERA_ERROR_ARGUMENT, "tessera_device_recover: device is NULL");
  CHECK_ERROR(tessera_device_get_info(NULL, &info), TESSERA_ERROR_ARGUMENT, "tessera_device_get_info: device is NULL");
  CHECK_ERROR(tessera_device_get_info(device, NULL), TESSERA_ERROR_ARGUMENT, "tessera_device_get_info: info is NULL");
  CHECK_ERROR(tessera_device_allocated(NULL, &bytes), TESSERA_ERROR_ARGUMENT,
              "tessera_device_allocated: device is NULL");
  CHECK_ERROR(tessera_device_allocated(device, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_device_allocated: bytes is NULL");
  CHECK_ERROR(tessera_device_validation(device, NULL, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_device_validation: say is NULL");
  CHECK_ERROR(tessera_device_validation(NULL, NULL, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_device_validation: device is NULL");

  tessera_device* other = NULL;
  tessera_device_options options = tessera_device_defaults();
  options.select = "no such device";
  CHECK_ERROR(tessera_device_create(&options, &other), TESSERA_ERROR_DEVICE, NULL);
  CHECK(strstr(tessera_last_error(), "no such device") != NULL);
  CHECK(other == NULL);
  options = tessera_device_defaults();
  options.memory_limit = -5;
  CHECK_ERROR(tessera_device_create(&options, &other), TESSERA_ERROR_ARGUMENT,
              "DeviceOptions::memory_limit is -5, which is below 0");
  options = tessera_device_defaults();
  options.size = 8;
  snprintf(text, sizeof text,
           "tessera_device_create: options.size is 8 and reserved 0, but %zu and 0 are right\n  note: begin with "
           "tessera_device_defaults()",
           sizeof options);
  CHECK_ERROR(tessera_device_create(&options, &other), TESSERA_ERROR_ARGUMENT, text);
}

static int32_t count_up(void* user, int32_t done, int32_t total, const char* kernel) {
  int32_t* counts = user;
  ++counts[0];
  counts[1] = total;
  counts[2] = counts[2] && done == counts[0] && kernel[0] != 0;
  return 0;
}
static int32_t stop(void* user, int32_t done, int32_t total, const char* kernel) {
  (void)user, (void)done, (void)total, (void)kernel;
  return 1;
}

static char* contents(const char* path, size_t* size) {
  FILE* f = fopen(path, "rb");
  char* bytes = NULL;
  long end = 0;
  if (f && fseek(f, 0, SEEK_END) == 0 && (end = ftell(f)) > 0 && fseek(f, 0, SEEK_SET) == 0 &&
      (bytes = malloc((size_t)end)) != NULL)
    if (fread(bytes, 1, (size_t)end, f) != (size_t)end) end = 0;
  if (f) fclose(f);
  *size = (size_t)end;
  return bytes;
}

void test_bundles(void) {
  int32_t count = 0;
  const char* name = NULL;
  tessera_bundle* b = NULL;
  CHECK_OK(tessera_bundle_kernel_count(bundle, &count));
  CHECK(count == 6);
  CHECK_OK(tessera_bundle_kernel_name(bundle, 1, &name));
  CHECK(strcmp(name, "checked") == 0);
  CHECK_ERROR(tessera_bundle_kernel_name(bundle, 6, &name), TESSERA_ERROR_ARGUMENT,
              "tessera_bundle_kernel_name: there is no kernel 6: their number is 6");
  CHECK_ERROR(tessera_bundle_kernel_name(bundle, -1, &name), TESSERA_ERROR_ARGUMENT,
              "tessera_bundle_kernel_name: there is no kernel -1: their number is 6");
  CHECK_ERROR(tessera_bundle_kernel_name(bundle, 0, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_bundle_kernel_name: name is NULL");
  CHECK_ERROR(tessera_bundle_kernel_name(NULL, 0, &name), TESSERA_ERROR_ARGUMENT,
              "tessera_bundle_kernel_name: bundle is NULL");
  CHECK_ERROR(tessera_bundle_kernel_count(bundle, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_bundle_kernel_count: count is NULL");
  CHECK_ERROR(tessera_bundle_kernel_count(NULL, &count), TESSERA_ERROR_ARGUMENT,
              "tessera_bundle_kernel_count: bundle is NULL");
  CHECK_ERROR(tessera_bundle_load("/nowhere/k.tsb", &b), TESSERA_ERROR_BUNDLE, "/nowhere/k.tsb: cannot be read");
  CHECK_ERROR(tessera_bundle_load(NULL, &b), TESSERA_ERROR_ARGUMENT, "tessera_bundle_load: path is NULL");
  CHECK_ERROR(tessera_bundle_load("k.tsb", NULL), TESSERA_ERROR_ARGUMENT, "tessera_bundle_load: bundle is NULL");
  CHECK_ERROR(tessera_bundle_load("CMakeLists.txt", &b), TESSERA_ERROR_BUNDLE,
              "CMakeLists.txt: is no bundle of kernels: it does not begin with \"TESSERA\"\n  note: tessera bundle "
              "makes bundles, of .tir files");
  CHECK(b == NULL);

  size_t size = 0;
  char* bytes = contents(TESSERA_KERNELS, &size);
  CHECK(bytes != NULL && size > 100);
  CHECK_OK(tessera_bundle_load_memory(bytes, size, "mine", &b));
  CHECK_ERROR(tessera_bundle_load_memory(NULL, size, "mine", &b), TESSERA_ERROR_ARGUMENT,
              "tessera_bundle_load_memory: bytes is NULL");
  CHECK_ERROR(tessera_bundle_load_memory(bytes, size, NULL, &b), TESSERA_ERROR_ARGUMENT,
              "tessera_bundle_load_memory: name is NULL");
  CHECK_ERROR(tessera_bundle_load_memory(bytes, size, "mine", NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_bundle_load_memory: bundle is NULL");
  bytes[8] = 9;
  tessera_bundle* none = NULL;
  CHECK_ERROR(tessera_bundle_load_memory(bytes, size, "mine", &none), TESSERA_ERROR_BUNDLE,
              "mine: is a bundle of version 9, and this Tessera reads version 1\n  note: use a newer Tessera, or make "
              "it again with this version's tessera bundle");
  bytes[8] = 1;
  bytes[size / 2] = (char)~bytes[size / 2];
  CHECK_ERROR(tessera_bundle_load_memory(bytes, size, "mine", &none), TESSERA_ERROR_BUNDLE,
              "mine: is damaged: its checksum is wrong\n  note: copy it anew, or make it again");
  CHECK_ERROR(tessera_bundle_load_memory(bytes, 20, "mine", &none), TESSERA_ERROR_BUNDLE,
              "mine: is cut off: it has 20 bytes, and its header alone takes 40");
  CHECK(none == NULL);
  free(bytes);  // the bundle has a copy
  tessera_kernel* k = NULL;
  CHECK_OK(tessera_kernel_get(b, device, "saxpy", &k));
  tessera_kernel_destroy(k);

  int32_t counts[3] = {0, 0, 1};
  CHECK_OK(tessera_bundle_prewarm(b, device, 2, count_up, counts));
  CHECK(counts[0] == 10 && counts[1] == 10 && counts[2] == 1);
  CHECK_OK(tessera_bundle_prewarm(b, device, 0, NULL, NULL));
  CHECK_ERROR(tessera_bundle_prewarm(b, device, 1, stop, NULL), TESSERA_ERROR_STOPPED,
              "tessera_bundle_prewarm: stopped by progress after 1 of 10 kernels");
  CHECK_ERROR(tessera_bundle_prewarm(b, device, -1, NULL, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_bundle_prewarm: threads is -1, which is below 0");
  CHECK_ERROR(tessera_bundle_prewarm(NULL, device, 0, NULL, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_bundle_prewarm: bundle is NULL");
  CHECK_ERROR(tessera_bundle_prewarm(b, NULL, 0, NULL, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_bundle_prewarm: device is NULL");
  int32_t changed = 1;
  CHECK_OK(tessera_bundle_reload(b, &changed));  // from memory
  CHECK(changed == 0);
  tessera_bundle_destroy(b);
  tessera_bundle_destroy(NULL);
}

static void put(const char* path, const char* bytes, size_t size) {
  FILE* f = fopen(path, "wb");
  CHECK(f != NULL && fwrite(bytes, 1, size, f) == size);
  if (f) fclose(f);
}

void test_reload(void) {
  char path[300], sentence[500];
  size_t size = 0;
  char* bytes = contents(TESSERA_KERNELS, &size);
  tessera_bundle* b = NULL;
  tessera_kernel* k = NULL;
  int32_t changed = 1;
  snprintf(path, sizeof path, "%s.copy", TESSERA_KERNELS);
  put(path, bytes, size);
  CHECK_OK(tessera_bundle_load(path, &b));
  CHECK_OK(tessera_kernel_get(b, device, "in_place", &k));
  CHECK_OK(tessera_bundle_reload(b, &changed));
  CHECK(changed == 0);
  put(path, bytes, size - 10);
  snprintf(sentence, sizeof sentence, "%s: is cut off: its kernels take %zu bytes and it has %zu of them", path,
           size - 40, size - 50);
  CHECK_ERROR(tessera_bundle_reload(b, &changed), TESSERA_ERROR_BUNDLE, sentence);
  int32_t count = 0;
  CHECK_OK(tessera_bundle_kernel_count(b, &count));
  CHECK(count == 6);
  put(path, bytes, size);
  CHECK_OK(tessera_bundle_reload(b, NULL));
  CHECK(remove(path) == 0);
  snprintf(sentence, sizeof sentence, "%s: cannot be read", path);
  CHECK_ERROR(tessera_bundle_reload(b, NULL), TESSERA_ERROR_BUNDLE, sentence);
  CHECK_ERROR(tessera_bundle_reload(NULL, NULL), TESSERA_ERROR_ARGUMENT, "tessera_bundle_reload: bundle is NULL");
  tessera_bundle_destroy(b);  // the kernel goes on without it

  const int32_t x[3] = {1, 2, 3};
  int32_t y[3] = {0, 0, 0};
  tessera_array *in = ints(3, x), *out = NULL;
  CHECK_OK(tessera_launch(k, &in, 1, &out, 1, NULL, 0));
  CHECK_OK(tessera_array_read(out, y, sizeof y));
  CHECK(y[0] == 2 && y[1] == 4 && y[2] == 6);
  tessera_array_destroy(in);
  tessera_array_destroy(out);
  tessera_kernel_destroy(k);
  free(bytes);
}

void test_kernels(void) {
  tessera_kernel* k = kernel_named("saxpy");
  const char* text = NULL;
  int32_t inputs = 0, outputs = 0;
  tessera_argument_info info;
  CHECK_OK(tessera_kernel_signature(k, &text));
  CHECK(strcmp(text, "(f32[1], f32[n], f32[n]) -> (f32[n])") == 0);
  CHECK_OK(tessera_kernel_check(k, text));
  CHECK_ERROR(
      tessera_kernel_check(k, "(f32[n]) -> (f32[n])"), TESSERA_ERROR_ARGUMENT,
      "saxpy: the bundle's kernel is (f32[1], f32[n], f32[n]) -> (f32[n]) but the header was made for (f32[n]) "
      "-> (f32[n])\n  at tests/c/saxpy.tir:2\n  note: use the header that tessera bundle wrote with the bundle");
  CHECK_ERROR(tessera_kernel_check(k, NULL), TESSERA_ERROR_ARGUMENT, "tessera_kernel_check: signature is NULL");
  CHECK_OK(tessera_kernel_variant(k, &text));
  CHECK(text[0] != 0);
  char line[100];
  snprintf(line, sizeof line, "%s: taken: for ", text);
  CHECK_OK(tessera_kernel_variants(k, &text));
  CHECK(strstr(text, line) != NULL && strstr(text, "minimum: ") == text);
  CHECK_ERROR(tessera_kernel_variants(k, NULL), TESSERA_ERROR_ARGUMENT, "tessera_kernel_variants: text is NULL");
  CHECK_OK(tessera_kernel_argument_count(k, &inputs, &outputs));
  CHECK(inputs == 3 && outputs == 1);
  CHECK_OK(tessera_kernel_argument_count(k, NULL, NULL));
  CHECK_OK(tessera_kernel_argument(k, 0, &info));
  CHECK(strcmp(info.name, "a") == 0 && strcmp(info.shape, "1") == 0 && info.dtype == TESSERA_F32 && info.rank == 1 &&
        info.sizes[0] == 1 && info.is_output == 0 && info.alias == -1);
  CHECK_OK(tessera_kernel_argument(k, 3, &info));
  CHECK(strcmp(info.name, "z") == 0 && strcmp(info.shape, "n") == 0 && info.sizes[0] == -1 && info.is_output == 1);
  CHECK_ERROR(tessera_kernel_argument(k, 4, &info), TESSERA_ERROR_ARGUMENT,
              "tessera_kernel_argument: saxpy has no argument 4: their number is 4");
  CHECK_ERROR(tessera_kernel_argument(k, 0, NULL), TESSERA_ERROR_ARGUMENT, "tessera_kernel_argument: info is NULL");
  CHECK_ERROR(tessera_kernel_argument(NULL, 0, &info), TESSERA_ERROR_ARGUMENT,
              "tessera_kernel_argument: kernel is NULL");
  CHECK_ERROR(tessera_kernel_signature(NULL, &text), TESSERA_ERROR_ARGUMENT,
              "tessera_kernel_signature: kernel is NULL");
  CHECK_ERROR(tessera_kernel_signature(k, NULL), TESSERA_ERROR_ARGUMENT, "tessera_kernel_signature: signature is NULL");
  CHECK_ERROR(tessera_kernel_variant(NULL, &text), TESSERA_ERROR_ARGUMENT, "tessera_kernel_variant: kernel is NULL");
  CHECK_ERROR(tessera_kernel_variant(k, NULL), TESSERA_ERROR_ARGUMENT, "tessera_kernel_variant: variant is NULL");
  CHECK_ERROR(tessera_kernel_argument_count(NULL, &inputs, &outputs), TESSERA_ERROR_ARGUMENT,
              "tessera_kernel_argument_count: kernel is NULL");
  tessera_kernel_destroy(k);
  tessera_kernel_destroy(NULL);

  k = NULL;
  char sentence[600];
  snprintf(sentence, sizeof sentence,
           "%s: has no kernel \"sxapy\"\n  note: its kernels are saxpy, checked, sized, in_place, doubled, expose",
           TESSERA_KERNELS);
  CHECK_ERROR(tessera_kernel_get(bundle, device, "sxapy", &k), TESSERA_ERROR_ARGUMENT, sentence);
  CHECK_ERROR(tessera_kernel_get(NULL, device, "saxpy", &k), TESSERA_ERROR_ARGUMENT,
              "tessera_kernel_get: bundle is NULL");
  CHECK_ERROR(tessera_kernel_get(bundle, NULL, "saxpy", &k), TESSERA_ERROR_ARGUMENT,
              "tessera_kernel_get: device is NULL");
  CHECK_ERROR(tessera_kernel_get(bundle, device, NULL, &k), TESSERA_ERROR_ARGUMENT, "tessera_kernel_get: name is NULL");
  CHECK_ERROR(tessera_kernel_get(bundle, device, "saxpy", NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_kernel_get: kernel is NULL");
  CHECK(k == NULL);
}
