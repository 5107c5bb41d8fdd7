// Kernels of a bundle in a Vulkan program written in C: its device imported, its buffer as an array, a call in its
// command buffer.
#include <stdlib.h>

#include "vulkan_host.h"

enum { N = 300 };

static void lock(void* user) { ++((Host*)user)->locked; }
static void unlock(void* user) { ++((Host*)user)->unlocked; }

/// A pool that has an allocation for each piece.
static VkResult allocate_memory(void* user, const tessera_memory_request* request, tessera_memory_piece* piece) {
  Host* h = user;
  uint32_t type = 0;
  while (!(request->memory_type_bits >> type & 1)) ++type;
  const VkMemoryAllocateFlagsInfo address = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                             .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
  const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                     .pNext = &address,
                                     .allocationSize = request->size,
                                     .memoryTypeIndex = type};
  VkResult r = vkAllocateMemory(h->device, &info, NULL, &piece->memory);
  if (r == VK_SUCCESS && request->required & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT)
    r = vkMapMemory(h->device, piece->memory, 0, VK_WHOLE_SIZE, 0, &piece->mapped);
  piece->size = request->size;
  piece->memory_type = type;
  piece->user = h;
  ++h->given;
  return r;
}
static void free_memory(void* user, const tessera_memory_piece* piece) {
  Host* h = user;
  CHECK(piece->user == h);
  vkFreeMemory(h->device, piece->memory, NULL);
  ++h->taken_back;
}

static void test_errors(const tessera_imported_device* good, tessera_device* d, const tessera_kernel* k,
                        tessera_stream* stream, tessera_prepared* prepared, tessera_array* const* arrays) {
  tessera_device* none = NULL;
  tessera_array* no_array = NULL;
  tessera_prepared* not_prepared = NULL;
  tessera_stream* no_stream = NULL;
  tessera_device_feature feature;
  const int64_t n = N;
  char text[300];
  CHECK(tessera_device_feature_count(1) > 3 && tessera_device_feature_count(0) > 3);
  CHECK_OK(tessera_device_feature_at(1, 0, &feature));
  CHECK(feature.name[0] != 0 && feature.gives[0] != 0 && feature.structure[0] != 0 &&
        feature.offset >= sizeof(VkBaseInStructure));
  snprintf(text, sizeof text, "tessera_device_feature_at: there is no feature 999: their number is %d",
           tessera_device_feature_count(0));
  CHECK_ERROR(tessera_device_feature_at(0, 999, &feature), TESSERA_ERROR_ARGUMENT, text);
  CHECK_ERROR(tessera_device_feature_at(0, 0, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_device_feature_at: feature is NULL");
  CHECK_ERROR(tessera_enable_device_features(NULL, &feature, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_enable_device_features: has is NULL");
  CHECK_ERROR(tessera_enable_device_features(&feature, NULL, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_enable_device_features: enable is NULL");

  CHECK_ERROR(tessera_device_import(NULL, NULL, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_device_import: imported is NULL");
  CHECK_ERROR(tessera_device_import(good, NULL, NULL), TESSERA_ERROR_ARGUMENT, "tessera_device_import: device is NULL");
  tessera_imported_device bad = *good;
  bad.size = 4;
  snprintf(text, sizeof text, "tessera_device_import: imported.size is 4 but %zu is right", sizeof bad);
  CHECK_ERROR(tessera_device_import(&bad, NULL, &none), TESSERA_ERROR_ARGUMENT, text);
  bad = *good;
  bad.unlock_queue = NULL;
  CHECK_ERROR(tessera_device_import(&bad, NULL, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_device_import: of lock_queue and unlock_queue one is NULL and the other is not");
  bad = *good;
  bad.free_memory = NULL;
  CHECK_ERROR(tessera_device_import(&bad, NULL, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_device_import: of allocate_memory and free_memory one is NULL and the other is not");
  bad = *good;
  bad.num_device_extensions = 1;
  CHECK_ERROR(tessera_device_import(&bad, NULL, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_device_import: device_extensions is NULL");
  bad = *good;
  bad.num_instance_extensions = 1;
  CHECK_ERROR(tessera_device_import(&bad, NULL, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_device_import: instance_extensions is NULL");
  const char* const names[] = {"VK_KHR_swapchain", NULL};
  bad = *good;
  bad.device_extensions = names, bad.num_device_extensions = 2;
  CHECK_ERROR(tessera_device_import(&bad, NULL, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_device_import: device_extensions[1] is NULL");
  bad = *good;
  bad.instance_extensions = &names[1], bad.num_instance_extensions = 1;
  CHECK_ERROR(tessera_device_import(&bad, NULL, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_device_import: instance_extensions[0] is NULL");
  bad = *good;
  bad.features = NULL;
  CHECK_ERROR(tessera_device_import(&bad, NULL, &none), TESSERA_ERROR_DEVICE, NULL);
  CHECK(strstr(tessera_last_error(), "bufferDeviceAddress") != NULL);
  CHECK(none == NULL);

  tessera_imported_buffer b = {VK_NULL_HANDLE, 0, 0, 0};
  CHECK_ERROR(tessera_array_import(NULL, &b, TESSERA_F32, 1, &n, &no_array), TESSERA_ERROR_ARGUMENT,
              "tessera_array_import: device is NULL");
  CHECK_ERROR(tessera_array_import(d, NULL, TESSERA_F32, 1, &n, &no_array), TESSERA_ERROR_ARGUMENT,
              "tessera_array_import: buffer is NULL");
  CHECK_ERROR(tessera_array_import(d, &b, TESSERA_F32, 1, &n, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_array_import: array is NULL");
  CHECK_ERROR(tessera_array_import(d, &b, 40, 1, &n, &no_array), TESSERA_ERROR_ARGUMENT,
              "tessera_array_import: there is no dtype 40");
  CHECK_ERROR(tessera_array_import(d, &b, TESSERA_F32, 1, &n, &no_array), TESSERA_ERROR_ARGUMENT, NULL);

  const tessera_size size = {"n", N};
  CHECK_ERROR(tessera_kernel_prepare(NULL, 2, 1, &size, 1, &not_prepared), TESSERA_ERROR_ARGUMENT,
              "tessera_kernel_prepare: kernel is NULL");
  CHECK_ERROR(tessera_kernel_prepare(k, 2, 1, &size, 1, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_kernel_prepare: prepared is NULL");
  CHECK_ERROR(tessera_kernel_prepare(k, 2, 1, NULL, 1, &not_prepared), TESSERA_ERROR_ARGUMENT,
              "tessera_kernel_prepare: sizes is NULL");
  CHECK_ERROR(tessera_kernel_prepare(k, 2, 1, NULL, -1, &not_prepared), TESSERA_ERROR_ARGUMENT,
              "tessera_kernel_prepare: num_sizes is -1, which is below 0");
  CHECK_ERROR(tessera_kernel_prepare(k, 2, 1, NULL, 0, &not_prepared), TESSERA_ERROR_ARGUMENT, NULL);
  CHECK_ERROR(tessera_stream_create(NULL, &no_stream), TESSERA_ERROR_ARGUMENT, "tessera_stream_create: device is NULL");
  CHECK_ERROR(tessera_stream_create(d, NULL), TESSERA_ERROR_ARGUMENT, "tessera_stream_create: stream is NULL");
  CHECK_ERROR(tessera_stream_begin(NULL, VK_NULL_HANDLE, 0), TESSERA_ERROR_ARGUMENT,
              "tessera_stream_begin: stream is NULL");
  CHECK_ERROR(tessera_stream_begin(stream, VK_NULL_HANDLE, 0), TESSERA_ERROR_ARGUMENT,
              "tessera_stream_begin: commands is NULL");
  CHECK_ERROR(tessera_stream_record(NULL, prepared, arrays, 4, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_stream_record: stream is NULL");
  CHECK_ERROR(tessera_stream_record(stream, NULL, arrays, 4, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_stream_record: prepared is NULL");
  CHECK_ERROR(tessera_stream_record(stream, prepared, NULL, 4, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_stream_record: arrays is NULL");
  CHECK_ERROR(tessera_stream_record(stream, prepared, arrays, 3, NULL), TESSERA_ERROR_ARGUMENT,
              "saxpy: has 4 arguments, inputs and outputs together, but 3 were given\n  at tests/c/saxpy.tir:2");
  tessera_array* missing[4] = {arrays[0], NULL, arrays[2], arrays[3]};
  CHECK_ERROR(tessera_stream_record(stream, prepared, missing, 4, NULL), TESSERA_ERROR_ARGUMENT,
              "saxpy: argument 1 is NULL\n  at tests/c/saxpy.tir:2");
  tessera_array* wrong[4] = {arrays[1], arrays[0], arrays[2], arrays[3]};
  CHECK_ERROR(tessera_stream_record(stream, prepared, wrong, 4, NULL), TESSERA_ERROR_ARGUMENT, NULL);
  CHECK_ERROR(tessera_stream_end(NULL, NULL), TESSERA_ERROR_ARGUMENT, "tessera_stream_end: stream is NULL");
  tessera_prepared_destroy(NULL);
  tessera_stream_destroy(NULL);
}

void test_vulkan(void) {
  Host h;
  make_host(&h);
  tessera_imported_device imported = imported_host(&h);
  imported.lock_queue = lock, imported.unlock_queue = unlock, imported.queue_user = &h;
  imported.allocate_memory = allocate_memory, imported.free_memory = free_memory, imported.memory_user = &h;
  tessera_device* d = NULL;
  tessera_kernel* k = NULL;
  tessera_prepared* prepared = NULL;
  tessera_stream* stream = NULL;
  CHECK_OK(tessera_device_import(&imported, NULL, &d));
  CHECK_OK(tessera_kernel_get(bundle, d, "saxpy", &k));
  const tessera_size size = {"n", N};
  CHECK_OK(tessera_kernel_prepare(k, 2, 1, &size, 1, &prepared));
  CHECK_ERROR(tessera_stream_create_timed(d, 0, 2, &stream), TESSERA_ERROR_ARGUMENT,
              "tessera_stream_create_timed: timed_calls must be positive but is 0");
  CHECK_OK(tessera_stream_create_timed(d, 1, 2, &stream));
  tessera_array* arrays[4] = {host_floats(&h, d, 0, 1), host_floats(&h, d, 256, N), host_floats(&h, d, 2048, N),
                              host_floats(&h, d, 4096, N)};
  h.mapped[0] = 3;
  for (int i = 0; i < N; ++i) h.mapped[64 + i] = (float)i, h.mapped[512 + i] = (float)(2 * i);

  const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  CHECK(vkBeginCommandBuffer(h.commands, &begin) == VK_SUCCESS);
  tessera_scopes one = {0, 0, 0, 0}, scopes = {0, 0, 0, 0};
  CHECK_OK(tessera_stream_begin(stream, h.commands, 0));
  test_errors(&imported, d, k, stream, prepared, arrays);
  CHECK_OK(tessera_stream_record(stream, prepared, arrays, 4, &one));
  CHECK_OK(tessera_stream_end(stream, &scopes));
  CHECK(one.wait_stages & VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT && one.signal_accesses & VK_ACCESS_2_SHADER_WRITE_BIT);
  CHECK(scopes.signal_stages & VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT);
  end_for_host(&h, &scopes);
  submit_and_wait(&h);
  int right = 0;
  for (int i = 0; i < N; ++i) right += h.mapped[1024 + i] == 5 * (float)i;
  CHECK(right == N);

  int32_t timed = 0;
  tessera_timed_call call = {NULL, 0, 0};
  CHECK_OK(tessera_stream_trace(stream, 0, NULL, 0, &timed));
  CHECK(timed == 1);
  CHECK_OK(tessera_stream_trace(stream, 0, &call, 1, &timed));
  CHECK(timed == 1 && strcmp(call.kernel, "saxpy") == 0 && call.begin == 0 && call.end >= 0);
  CHECK_ERROR(tessera_stream_trace(stream, 7, NULL, 0, &timed), TESSERA_ERROR_ARGUMENT, NULL);
  CHECK(strstr(tessera_last_error(), "there are no times of frame 7 but of 0") != NULL);
  CHECK_ERROR(tessera_stream_trace(stream, 0, NULL, 1, &timed), TESSERA_ERROR_ARGUMENT,
              "tessera_stream_trace: calls is NULL");

  // The same device by launch, which submits to the host's queue.
  h.mapped[0] = 1;
  float z[N];
  tessera_array* made = NULL;
  CHECK_OK(tessera_launch(k, arrays, 3, &made, 1, NULL, 0));
  CHECK_OK(tessera_array_read(made, z, sizeof z));
  CHECK(z[N - 1] == 3 * (float)(N - 1));
  CHECK(h.locked > 0 && h.locked == h.unlocked);

  tessera_array_destroy(made);
  for (int i = 0; i < 4; ++i) tessera_array_destroy(arrays[i]);
  tessera_stream_destroy(stream);
  tessera_prepared_destroy(prepared);
  tessera_kernel_destroy(k);
  CHECK_OK(tessera_device_wait(d));
  tessera_device_destroy(d);
  CHECK(h.given > 0 && h.given == h.taken_back);
  end_host(&h);
}
