// Arrays and calls.
#include "test.h"

void test_arrays(void) {
  const float data[4] = {1, 2, 3, 4};
  float back[4] = {0, 0, 0, 0};
  const int64_t shape[2] = {2, 2}, negative[1] = {-3}, empty[1] = {0}, huge[2] = {INT64_MAX, 2};
  tessera_array *a = NULL, *scalar = NULL, *nothing = NULL, *none = NULL;
  tessera_dtype dtype = -1;
  int32_t rank = -1;
  const int64_t* dims = NULL;
  size_t bytes = 0;
  CHECK_OK(tessera_array_create(device, TESSERA_F32, 2, shape, data, &a));
  CHECK_OK(tessera_array_get_info(a, &dtype, &rank, &dims, &bytes));
  CHECK(dtype == TESSERA_F32 && rank == 2 && dims[0] == 2 && dims[1] == 2 && bytes == 16);
  CHECK_OK(tessera_array_get_info(a, NULL, NULL, NULL, NULL));
  CHECK_OK(tessera_array_read(a, back, sizeof back));
  CHECK(memcmp(data, back, sizeof back) == 0);
  back[2] = 7;
  CHECK_OK(tessera_array_write(a, back, sizeof back));
  back[2] = 0;
  CHECK_OK(tessera_array_read(a, back, sizeof back));
  CHECK(back[2] == 7);
  CHECK_OK(tessera_array_create(device, TESSERA_I4, 0, NULL, NULL, &scalar));
  CHECK_OK(tessera_array_get_info(scalar, NULL, &rank, NULL, &bytes));
  CHECK(rank == 0 && bytes == 1);
  CHECK_OK(tessera_array_create(device, TESSERA_F64, 1, empty, NULL, &nothing));
  CHECK_OK(tessera_array_read(nothing, NULL, 0));
  CHECK_OK(tessera_array_write(nothing, NULL, 0));

  CHECK_ERROR(tessera_array_read(a, back, 12), TESSERA_ERROR_ARGUMENT,
              "tessera_array_read: 12 bytes are given but the array f32(2, 2) has 16");
  CHECK_ERROR(tessera_array_write(a, back, 20), TESSERA_ERROR_ARGUMENT,
              "tessera_array_write: 20 bytes are given but the array f32(2, 2) has 16");
  CHECK_ERROR(tessera_array_read(a, NULL, 16), TESSERA_ERROR_ARGUMENT, "tessera_array_read: data is NULL");
  CHECK_ERROR(tessera_array_write(a, NULL, 16), TESSERA_ERROR_ARGUMENT, "tessera_array_write: data is NULL");
  CHECK_ERROR(tessera_array_read(NULL, back, 16), TESSERA_ERROR_ARGUMENT, "tessera_array_read: array is NULL");
  CHECK_ERROR(tessera_array_write(NULL, back, 16), TESSERA_ERROR_ARGUMENT, "tessera_array_write: array is NULL");
  CHECK_ERROR(tessera_array_donate(NULL), TESSERA_ERROR_ARGUMENT, "tessera_array_donate: array is NULL");
  CHECK_ERROR(tessera_array_get_info(NULL, NULL, NULL, NULL, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_array_get_info: array is NULL");
  CHECK_ERROR(tessera_array_create(NULL, TESSERA_F32, 2, shape, data, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_array_create: device is NULL");
  CHECK_ERROR(tessera_array_create(device, TESSERA_F32, 2, shape, data, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_array_create: array is NULL");
  CHECK_ERROR(tessera_array_create(device, TESSERA_F32, 2, NULL, data, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_array_create: shape is NULL");
  CHECK_ERROR(tessera_array_create(device, 17, 2, shape, data, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_array_create: there is no dtype 17");
  CHECK_ERROR(tessera_array_create(device, TESSERA_F32, -1, shape, data, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_array_create: rank is -1, which is below 0");
  CHECK_ERROR(tessera_array_create(device, TESSERA_F32, 1, negative, NULL, &none), TESSERA_ERROR_ARGUMENT, NULL);
  CHECK(strstr(tessera_last_error(), "(-3,)") != NULL);
  CHECK_ERROR(tessera_array_create(device, TESSERA_F32, 2, huge, NULL, &none), TESSERA_ERROR_DEVICE,
              "f32[9223372036854775807, 2] takes more bytes than a 64-bit number counts");
  CHECK(none == NULL);
  tessera_array_destroy(a);
  tessera_array_destroy(scalar);
  tessera_array_destroy(nothing);
  tessera_array_destroy(NULL);
}

static void test_saxpy(void) {
  enum { N = 1000 };
  static float x[N], y[N], z[N];
  const float a = 3, two[2] = {1, 2};
  const int32_t whole[1] = {3};
  tessera_kernel* k = kernel_named("saxpy");
  for (int i = 0; i < N; ++i) x[i] = (float)i, y[i] = (float)(2 * i);
  tessera_array *in[3] = {floats(1, &a), floats(N, x), floats(N, y)}, *out[1] = {NULL};
  CHECK_OK(tessera_launch(k, in, 3, out, 1, NULL, 0));
  CHECK_OK(tessera_array_read(out[0], z, sizeof z));
  int right = 0;
  for (int i = 0; i < N; ++i) right += z[i] == 5 * (float)i;
  CHECK(right == N);
  tessera_array* kept = out[0];
  CHECK_OK(tessera_array_write(in[0], &two[1], sizeof a));
  CHECK_OK(tessera_launch(k, in, 3, out, 1, NULL, 0));  // into the same
  CHECK(out[0] == kept);
  CHECK_OK(tessera_array_read(out[0], z, sizeof z));
  right = 0;
  for (int i = 0; i < N; ++i) right += z[i] == 4 * (float)i;
  CHECK(right == N);

  CHECK_ERROR(tessera_launch(k, in, 2, out, 1, NULL, 0), TESSERA_ERROR_ARGUMENT,
              "saxpy: takes 3 inputs and makes 1 output but 2 and 1 were given\n  at tests/c/saxpy.tir:2\n  note: it "
              "is saxpy(f32[1], f32[n], f32[n]) -> (f32[n])");
  CHECK_ERROR(tessera_launch(k, in, 3, out, 0, NULL, 0), TESSERA_ERROR_ARGUMENT,
              "saxpy: takes 3 inputs and makes 1 output but 3 and 0 were given\n  at tests/c/saxpy.tir:2\n  note: it "
              "is saxpy(f32[1], f32[n], f32[n]) -> (f32[n])");
  CHECK_ERROR(tessera_launch(NULL, in, 3, out, 1, NULL, 0), TESSERA_ERROR_ARGUMENT, "tessera_launch: kernel is NULL");
  CHECK_ERROR(tessera_launch(k, NULL, 3, out, 1, NULL, 0), TESSERA_ERROR_ARGUMENT, "tessera_launch: inputs is NULL");
  CHECK_ERROR(tessera_launch(k, in, 3, NULL, 1, NULL, 0), TESSERA_ERROR_ARGUMENT, "tessera_launch: outputs is NULL");
  CHECK_ERROR(tessera_launch(k, in, 3, out, 1, NULL, 1), TESSERA_ERROR_ARGUMENT, "tessera_launch: sizes is NULL");
  CHECK_ERROR(tessera_launch(k, in, 3, out, 1, NULL, -1), TESSERA_ERROR_ARGUMENT,
              "tessera_launch: num_sizes is -1, which is below 0");
  tessera_array *wrong[3] = {in[1], in[0], in[2]}, *other[1] = {NULL};
  CHECK_ERROR(tessera_launch(k, wrong, 3, other, 1, NULL, 0), TESSERA_ERROR_ARGUMENT,
              "saxpy: argument 0: shape is (1000,) but the kernel takes (1,)\n  at tests/c/saxpy.tir:4");
  tessera_array* missing[3] = {in[0], NULL, in[2]};
  CHECK_ERROR(tessera_launch(k, missing, 3, other, 1, NULL, 0), TESSERA_ERROR_ARGUMENT,
              "saxpy: argument 1 (x) is NULL\n  at tests/c/saxpy.tir:2");
  tessera_array *pair = floats(2, two), *lengths[3] = {in[0], in[1], pair};
  CHECK_ERROR(tessera_launch(k, lengths, 3, other, 1, NULL, 0), TESSERA_ERROR_ARGUMENT,
              "saxpy: argument 2: shape (2,) has n = 2 but argument 1 has n = 1000\n  at tests/c/saxpy.tir:6\n  note: "
              "the kernel takes (n,) here; equal names are equal sizes");
  tessera_array *integer = ints(1, whole), *dtypes[3] = {integer, in[1], in[2]};
  CHECK_ERROR(tessera_launch(k, dtypes, 3, other, 1, NULL, 0), TESSERA_ERROR_ARGUMENT,
              "saxpy: argument 0: dtype is i32 but the kernel takes f32\n  at tests/c/saxpy.tir:4");
  tessera_array* small[1] = {pair};
  CHECK_ERROR(tessera_launch(k, in, 3, small, 1, NULL, 0), TESSERA_ERROR_ARGUMENT,
              "saxpy: out_specs[0]: the result is f32(1000,) but its array is f32(2,)\n  at tests/c/saxpy.tir:2");
  tessera_array* same[1] = {in[2]};
  CHECK_ERROR(tessera_launch(k, in, 3, same, 1, NULL, 0), TESSERA_ERROR_ARGUMENT,
              "saxpy: output 0 (z) is argument 2 too\n  at tests/c/saxpy.tir:2\n  note: an output of a call is an "
              "array of its own, or NULL");
  const tessera_size size[2] = {{"m", 5}, {"m", 5}}, nameless[1] = {{NULL, 5}};
  CHECK_ERROR(tessera_launch(k, in, 3, other, 1, size, 1), TESSERA_ERROR_ARGUMENT,
              "saxpy: a size \"m\" was given but the kernel has none of that name\n  at tests/c/saxpy.tir:2\n  note: "
              "its sizes are n");
  CHECK_ERROR(tessera_launch(k, in, 3, other, 1, size, 2), TESSERA_ERROR_ARGUMENT,
              "saxpy: the size m is given twice\n  at tests/c/saxpy.tir:2");
  CHECK_ERROR(tessera_launch(k, in, 3, other, 1, nameless, 1), TESSERA_ERROR_ARGUMENT,
              "tessera_launch: the name of a size is NULL");
  CHECK(other[0] == NULL);
  tessera_device* second = NULL;
  const int64_t n = N;
  CHECK_OK(tessera_device_create(NULL, &second));
  tessera_array* foreign = NULL;
  CHECK_OK(tessera_array_create(second, TESSERA_F32, 1, &n, x, &foreign));
  tessera_array* mixed[3] = {in[0], foreign, in[2]};
  CHECK_ERROR(tessera_launch(k, mixed, 3, other, 1, NULL, 0), TESSERA_ERROR_ARGUMENT,
              "saxpy: argument 1: the array is on another Device than the call\n  at tests/c/saxpy.tir:2");
  tessera_device_destroy(second);  // its array keeps what it needs
  CHECK_OK(tessera_array_read(foreign, z, sizeof z));
  CHECK(z[999] == 999);
  tessera_array_destroy(foreign);
  for (int i = 0; i < 3; ++i) tessera_array_destroy(in[i]);
  tessera_array_destroy(out[0]);
  tessera_array_destroy(pair);
  tessera_array_destroy(integer);
  tessera_kernel_destroy(k);
}

static void test_in_place(void) {
  const int32_t x[3] = {1, 2, 3};
  int32_t y[3] = {0, 0, 0};
  tessera_kernel *k = kernel_named("in_place"), *saxpy = kernel_named("saxpy");
  tessera_array *in = ints(3, x), *out = NULL, *again = NULL;
  tessera_argument_info info;
  CHECK_OK(tessera_kernel_argument(k, 1, &info));
  CHECK(info.alias == 0);
  CHECK_OK(tessera_launch(k, &in, 1, &out, 1, NULL, 0));
  CHECK_OK(tessera_array_read(in, y, sizeof y));
  CHECK(y[2] == 3);
  // A donation that a call refuses, or that was a mistake, is taken back.
  const float number[1] = {2};
  tessera_array *a = floats(1, number), *v = floats(1, number), *made = NULL, *arguments[3] = {a, v, v};
  CHECK_OK(tessera_array_donate(v));
  CHECK_ERROR(tessera_launch(saxpy, arguments, 3, &made, 1, NULL, 0), TESSERA_ERROR_ARGUMENT,
              "saxpy: argument 1 is donated, but no output is aliased to it\n  at tests/c/saxpy.tir:2\n  note: name "
              "one in input_output_aliases, or leave donate() out");
  CHECK_OK(tessera_array_keep(v));
  CHECK_OK(tessera_launch(saxpy, arguments, 3, &made, 1, NULL, 0));
  CHECK_OK(tessera_array_donate(in));
  CHECK_OK(tessera_array_keep(in));
  CHECK_OK(tessera_launch(k, &in, 1, &out, 1, NULL, 0));
  CHECK_OK(tessera_array_read(in, y, sizeof y));
  CHECK(y[2] == 3);
  tessera_array_destroy(a);
  tessera_array_destroy(v);
  tessera_array_destroy(made);
  CHECK_OK(tessera_array_donate(in));
  CHECK_OK(tessera_launch(k, &in, 1, &again, 1, NULL, 0));
  CHECK_OK(tessera_array_read(again, y, sizeof y));
  CHECK(y[2] == 6);
  CHECK_ERROR(tessera_array_read(in, y, sizeof y), TESSERA_ERROR_ARGUMENT,
              "download: the device array i32[3] has been donated to in_place");
  CHECK_ERROR(tessera_array_donate(in), TESSERA_ERROR_ARGUMENT,
              "tessera_array_donate: the device array i32[3] has been donated to in_place");
  CHECK_ERROR(tessera_array_keep(in), TESSERA_ERROR_ARGUMENT,
              "tessera_array_keep: the device array i32[3] has been donated to in_place");
  CHECK_ERROR(tessera_launch(k, &in, 1, &again, 1, NULL, 0), TESSERA_ERROR_ARGUMENT, NULL);
  tessera_array_destroy(in);
  tessera_array_destroy(out);
  tessera_array_destroy(again);
  tessera_kernel_destroy(saxpy);
  tessera_kernel_destroy(k);
}

static void test_sizes(void) {
  static int32_t x[40 * 8], y[40 * 8];
  const int64_t shape[2] = {40, 8};
  tessera_kernel* k = kernel_named("sized");
  tessera_array *in = NULL, *out = NULL;
  CHECK_OK(tessera_array_create(device, TESSERA_I32, 2, shape, x, &in));
  const tessera_size rows = {"rows", 5};
  CHECK_OK(tessera_launch(k, &in, 1, &out, 1, &rows, 1));
  CHECK_OK(tessera_array_read(out, y, sizeof y));
  CHECK(y[0] == 5 && y[4 * 8 + 7] == 9 && y[5 * 8] == 0);
  CHECK_ERROR(tessera_launch(k, &in, 1, &out, 1, NULL, 0), TESSERA_ERROR_ARGUMENT,
              "sized: grid axis 0: no value for the size \"rows\" in rows\n  at tests/c/sized.tir:3\n  note: a size is "
              "taken from an argument whose shape names it alone, or given with the call");
  const tessera_size below = {"rows", -1};
  CHECK_ERROR(tessera_launch(k, &in, 1, &out, 1, &below, 1), TESSERA_ERROR_ARGUMENT,
              "sized: the size rows was given as -1\n  at tests/c/sized.tir:3\n  note: sizes must not be negative");
  tessera_array_destroy(in);
  tessera_array_destroy(out);
  tessera_kernel_destroy(k);
}

static void test_messages(void) {
  const int32_t good[4] = {7, 2, 3, 4}, bad[4] = {700, 2, 3, 4};
  int32_t y[4];
  tessera_kernel* k = kernel_named("checked");
  tessera_array *in = ints(4, good), *out = NULL;
  CHECK_OK(tessera_launch(k, &in, 1, &out, 1, NULL, 0));
  CHECK_OK(tessera_array_read(out, y, sizeof y));
  CHECK(strcmp(printed, "the first is 7\n") == 0);
  CHECK_OK(tessera_array_write(in, bad, sizeof bad));
  CHECK_OK(tessera_launch(k, &in, 1, &out, 1, NULL, 0));
  CHECK_ERROR(tessera_array_read(out, y, sizeof y), TESSERA_ERROR_KERNEL,
              "checked: check failed in program (): 700 is not below 100\n  at tests/c/checked.tir:13");
  CHECK_OK(tessera_device_wait(device));
  tessera_array_destroy(in);
  tessera_array_destroy(out);
  tessera_kernel_destroy(k);
}

void test_calls(void) {
  test_saxpy();
  test_in_place();
  test_sizes();
  test_messages();
}
