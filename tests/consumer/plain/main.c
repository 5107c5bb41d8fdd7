// Uses Tessera::c: the same kernel from a file, whose path is the argument.
#include <stdio.h>
#include <tessera/tessera.h>

int main(int argc, char** argv) {
  tessera_bundle* bundle = NULL;
  tessera_device* device = NULL;
  tessera_kernel* kernel = NULL;
  tessera_array *x = NULL, *y = NULL;
  const int64_t n = 3;
  float data[3] = {1, 2, 3};
  if (argc < 2 || tessera_bundle_load(argv[1], &bundle) || tessera_device_create(NULL, &device) ||
      tessera_kernel_get(bundle, device, "scale", &kernel) ||
      tessera_array_create(device, TESSERA_F32, 1, &n, data, &x) || tessera_launch(kernel, &x, 1, &y, 1, NULL, 0) ||
      tessera_array_read(y, data, sizeof data)) {
    printf("%s\n", tessera_last_error());
    return 1;
  }
  printf("%g %g %g\n", data[0], data[1], data[2]);
  tessera_array_destroy(y);
  tessera_array_destroy(x);
  tessera_kernel_destroy(kernel);
  tessera_device_destroy(device);
  tessera_bundle_destroy(bundle);
  return 0;
}
