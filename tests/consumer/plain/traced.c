// Uses Tessera::c: the kernels of filters.cpp, in the header filters_c.h.
#include <filters_c.h>
#include <stdio.h>

static int failed(void) {
  printf("%s\n", tessera_last_error());
  return 1;
}

int main(void) {
  tessera_bundle* bundle = NULL;
  tessera_device* device = NULL;
  tessera_kernel *blend = NULL, *count = NULL;
  tessera_array *x = NULL, *y = NULL;
  const int64_t n = 70;
  float data[70], other[70];
  int32_t cells[6];
  for (int i = 0; i < 70; ++i) data[i] = (float)i, other[i] = 5;
  if (filters_bundle(&bundle) || tessera_device_create(NULL, &device) || filters_blend_get(bundle, device, &blend) ||
      filters_count_get(bundle, device, &count) || tessera_array_create(device, TESSERA_F32, 1, &n, data, &x) ||
      tessera_array_create(device, TESSERA_F32, 1, &n, other, &y))
    return failed();
  const filters_blend_inputs inputs = {.x = x, .y = y, .amount = 0.5f, .away = true};
  filters_blend_outputs blended = {NULL};
  const filters_count_inputs from = {.first = 10};
  const filters_count_sizes sizes = {.h = 2, .w = 3};
  filters_count_outputs counted = {NULL};
  if (filters_blend_launch(blend, &inputs, &blended) || filters_count_launch(count, &from, &counted, &sizes) ||
      tessera_array_read(blended.blended, data, sizeof data) || tessera_array_read(counted.cells, cells, sizeof cells))
    return failed();
  printf("%g %g %g; %d %d\n", data[0], data[3], data[69], cells[0], cells[5]);
  // Another kernel than the header was made for, and what does not fit, are errors with a sentence.
  if (tessera_kernel_check(count, "(f32[n]) -> (f32[n])") != TESSERA_ERROR_ARGUMENT) return 1;
  printf("%s\n", tessera_last_error());
  const filters_blend_inputs without = {.x = x, .y = NULL};
  if (filters_blend_launch(blend, &without, &blended) != TESSERA_ERROR_ARGUMENT) return 1;
  tessera_array_destroy(blended.blended);
  tessera_array_destroy(counted.cells);
  tessera_array_destroy(x);
  tessera_array_destroy(y);
  tessera_kernel_destroy(blend);
  tessera_kernel_destroy(count);
  tessera_device_destroy(device);
  tessera_bundle_destroy(bundle);
  return 0;
}
