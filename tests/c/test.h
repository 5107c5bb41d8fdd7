// What the C interface's tests share: checks that count, in C11.
#pragma once
#include <stdio.h>
#include <string.h>
#include <tessera/tessera.h>

#ifdef _WIN32
#define VALIDATION 0
#else
#define VALIDATION 1
#endif

extern int passed, failed;
extern tessera_device* device;  // with validation, but under Wine, whose loader knows no layers
extern tessera_bundle* bundle;  // c_kernels.tsb
extern char printed[4096];      // what kernels have printed, with line ends

void check(int condition, const char* text, const char* file, int line);
#define CHECK(condition) check((condition) != 0, #condition, __FILE__, __LINE__)
/// The result, and the sentence that goes with it.
void check_error(tessera_result got, tessera_result wanted, const char* sentence, const char* file, int line);
#define CHECK_ERROR(call, wanted, sentence) check_error((call), (wanted), (sentence), __FILE__, __LINE__)
#define CHECK_OK(call) CHECK_ERROR(call, TESSERA_OK, NULL)

tessera_kernel* kernel_named(const char* name);
tessera_array* floats(int64_t n, const float* data);
tessera_array* ints(int64_t n, const int32_t* data);

void test_versions(void);
void test_devices(void);
void test_bundles(void);
void test_reload(void);
void test_kernels(void);
void test_arrays(void);
void test_calls(void);
void test_numbers(void);
void test_vulkan(void);
void test_graphs(void);
void test_nulls(void);
void test_images(void);
void test_callbacks(void);
