// Numbers by value, and sizes that change from one recorded call to the next.
#include "test.h"
#include "vulkan_host.h"

enum { LARGE = 200, SMALL = 70 };

static int right(tessera_array* a, int n, float gain) {
  float z[LARGE];
  CHECK_OK(tessera_array_read(a, z, (size_t)n * sizeof z[0]));
  for (int i = 0; i < n; ++i)
    if (z[i] != (float)i * gain + (float)n) return 0;
  return 1;
}
static tessera_array* array_of(tessera_device* d, int64_t n, const float* data) {
  tessera_array* a = NULL;
  CHECK_OK(tessera_array_create(d, TESSERA_F32, 1, &n, data, &a));
  return a;
}

static void test_launches(const float* data) {
  const float half = 0.5f, two = 2;
  const int32_t one = 1;
  tessera_kernel* k = kernel_named("expose");
  tessera_array *gain = NULL, *wrong = NULL, *made = NULL, *none = NULL;
  int32_t by_value = -1;
  const char* signature = NULL;
  CHECK_OK(tessera_kernel_signature(k, &signature));
  CHECK(strcmp(signature, "(f32[n], f32 by value) -> (f32[n])") == 0);
  CHECK_OK(tessera_kernel_argument_by_value(k, 0, &by_value));
  CHECK(by_value == 0);
  CHECK_OK(tessera_kernel_argument_by_value(k, 1, &by_value));
  CHECK(by_value == 1);
  CHECK_OK(tessera_scalar_create(TESSERA_F32, &half, &gain));
  tessera_array* inputs[2] = {array_of(device, LARGE, data), gain};
  CHECK_OK(tessera_launch(k, inputs, 2, &made, 1, NULL, 0));
  CHECK(right(made, LARGE, 0.5f));
  CHECK_OK(tessera_scalar_set(gain, &two));
  CHECK_OK(tessera_launch(k, inputs, 2, &made, 1, NULL, 0));
  CHECK(right(made, LARGE, 2));

  CHECK_OK(tessera_scalar_create(TESSERA_I32, &one, &wrong));
  inputs[1] = wrong;
  CHECK_ERROR(tessera_launch(k, inputs, 2, &made, 1, NULL, 0), TESSERA_ERROR_ARGUMENT,
              "expose: in_specs[1]: the number is i32 but the argument is f32\n  at tests/c/expose.tir:6");
  inputs[1] = inputs[0];
  CHECK_ERROR(
      tessera_launch(k, inputs, 2, &made, 1, NULL, 0), TESSERA_ERROR_ARGUMENT,
      "expose: in_specs[1]: an array is given, but the kernel takes a number by value\n  at "
      "tests/c/expose.tir:6\n  note: give a number, or a BlockSpec in place of by_value for numbers that are on "
      "the device");
  CHECK_ERROR(tessera_scalar_set(inputs[0], &two), TESSERA_ERROR_ARGUMENT,
              "tessera_scalar_set: scalar is an array\n  note: tessera_array_write() replaces its contents");
  CHECK_ERROR(tessera_scalar_create(40, &two, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_scalar_create: there is no dtype 40");
  CHECK_ERROR(tessera_scalar_create(TESSERA_F32, NULL, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_scalar_create: value is NULL");
  CHECK_ERROR(tessera_kernel_argument_by_value(k, 3, &by_value), TESSERA_ERROR_ARGUMENT,
              "tessera_kernel_argument_by_value: expose has no argument 3: their number is 3");
  tessera_array_destroy(inputs[0]);
  tessera_array_destroy(gain);
  tessera_array_destroy(wrong);
  tessera_array_destroy(made);
  tessera_kernel_destroy(k);
}

static void test_recordings(const float* data) {
  Host h;
  make_host(&h);
  const tessera_imported_device imported = imported_host(&h);
  tessera_device* d = NULL;
  tessera_kernel* k = NULL;
  tessera_prepared* prepared = NULL;
  tessera_stream* stream = NULL;
  tessera_array* gain = NULL;
  const tessera_size large = {"n", LARGE}, small = {"n", SMALL}, more = {"n", LARGE + 1};
  const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  float number = 3;
  CHECK_OK(tessera_device_import(&imported, NULL, &d));
  CHECK_OK(tessera_kernel_get(bundle, d, "expose", &k));
  CHECK_OK(tessera_kernel_prepare(k, 2, 2, &large, 1, &prepared));
  CHECK_OK(tessera_stream_create(d, &stream));
  CHECK_OK(tessera_scalar_create(TESSERA_F32, &number, &gain));
  tessera_array* first[3] = {array_of(d, LARGE, data), gain, array_of(d, LARGE, NULL)};
  tessera_array* second[3] = {array_of(d, SMALL, data), gain, array_of(d, SMALL, NULL)};
  CHECK(vkBeginCommandBuffer(h.commands, &begin) == VK_SUCCESS);
  CHECK_OK(tessera_stream_begin(stream, h.commands, 0));
  CHECK_OK(tessera_stream_record(stream, prepared, first, 3, NULL));
  number = -2;
  CHECK_OK(tessera_scalar_set(gain, &number));
  CHECK_OK(tessera_prepared_resize(prepared, &small, 1));
  CHECK_OK(tessera_stream_record(stream, prepared, second, 3, NULL));
  CHECK_ERROR(tessera_prepared_resize(prepared, &more, 1), TESSERA_ERROR_ARGUMENT,
              "expose: resize: the size n is 201 but the kernel has been prepared for at most 200\n  at "
              "tests/c/expose.tir:3\n  note: prepare it for the largest size that is to come");
  CHECK_OK(tessera_stream_end(stream, NULL));
  CHECK(vkEndCommandBuffer(h.commands) == VK_SUCCESS);
  submit_and_wait(&h);
  CHECK(right(first[2], LARGE, 3));
  CHECK(right(second[2], SMALL, -2));
  for (int i = 0; i < 3; i += 2) tessera_array_destroy(first[i]), tessera_array_destroy(second[i]);
  tessera_array_destroy(gain);
  tessera_stream_destroy(stream);
  tessera_prepared_destroy(prepared);
  tessera_kernel_destroy(k);
  CHECK_OK(tessera_device_wait(d));
  tessera_device_destroy(d);
  end_host(&h);
}

void test_numbers(void) {
  float data[LARGE];
  for (int i = 0; i < LARGE; ++i) data[i] = (float)i;
  test_launches(data);
  test_recordings(data);
}
