// A program in C without a compiler for kernels in it: normalise.tir was compiled when this was built
// (tessera_add_kernels), into the bundle at KERNELS.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>

enum { ROWS = 1000, COLUMNS = 128 };
static float rows[ROWS][COLUMNS], normalised[ROWS][COLUMNS];

static void or_exit(tessera_result result) {
  if (result == TESSERA_OK) return;
  fprintf(stderr, "normalise: %s\n", tessera_last_error());
  exit(1);
}

int main(int argc, char** argv) {
  tessera_bundle* bundle = NULL;
  tessera_device* device = NULL;
  tessera_kernel* normalise = NULL;
  tessera_array *in = NULL, *out = NULL;
  tessera_device_info info;
  const int64_t shape[2] = {ROWS, COLUMNS};
  for (int i = 0; i < ROWS; ++i)
    for (int j = 0; j < COLUMNS; ++j) rows[i][j] = (float)((i * 31 + j * 17) % 101 + 1);

  or_exit(tessera_check_version(TESSERA_VERSION_NUMBER));
  or_exit(tessera_bundle_load(argc > 1 ? argv[1] : KERNELS, &bundle));
  or_exit(tessera_device_create(NULL, &device));
  or_exit(tessera_kernel_get(bundle, device, "normalise", &normalise));
  or_exit(tessera_array_create(device, TESSERA_F32, 2, shape, rows, &in));
  or_exit(tessera_launch(normalise, &in, 1, &out, 1, NULL, 0));  // makes the output, and does not wait
  or_exit(tessera_array_read(out, normalised, sizeof normalised));

  double worst = 0;
  for (int i = 0; i < ROWS; ++i) {
    double sum = 0;
    for (int j = 0; j < COLUMNS; ++j) sum += rows[i][j];
    for (int j = 0; j < COLUMNS; ++j) worst = fmax(worst, fabs(normalised[i][j] - rows[i][j] / sum));
  }
  or_exit(tessera_device_get_info(device, &info));
  const int ok = worst < 1e-7;  // of numbers below 0.02: four units in the last place
  printf("normalise: %d x %d on %s: largest difference %.2g: %s\n", ROWS, COLUMNS, info.name, worst,
         ok ? "ok" : "WRONG");

  tessera_array_destroy(out);
  tessera_array_destroy(in);
  tessera_kernel_destroy(normalise);
  tessera_bundle_destroy(bundle);
  tessera_device_destroy(device);
  return !ok;
}
