// Images of a Vulkan program's as arguments, its timeline semaphores, and what its device was given without.
#include "vulkan_host.h"

enum { W = 20, H = 15 };

typedef struct Picture {
  VkImage image;
  VkDeviceMemory memory;
} Picture;

static Picture picture_of(const Host* h, uint32_t levels, uint32_t layers) {
  Picture p;
  const VkImageCreateInfo info = {.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
                                  .imageType = VK_IMAGE_TYPE_2D,
                                  .format = VK_FORMAT_R32_SFLOAT,
                                  .extent = {W, H, 1},
                                  .mipLevels = levels,
                                  .arrayLayers = layers,
                                  .samples = VK_SAMPLE_COUNT_1_BIT,
                                  .usage = VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_STORAGE_BIT};
  CHECK(vkCreateImage(h->device, &info, NULL, &p.image) == VK_SUCCESS);
  VkMemoryRequirements needs;
  vkGetImageMemoryRequirements(h->device, p.image, &needs);
  const VkMemoryAllocateInfo allocation = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                           .allocationSize = needs.size,
                                           .memoryTypeIndex = memory_type(h, needs.memoryTypeBits, 0)};
  CHECK(vkAllocateMemory(h->device, &allocation, NULL, &p.memory) == VK_SUCCESS);
  CHECK(vkBindImageMemory(h->device, p.image, p.memory, 0) == VK_SUCCESS);
  return p;
}
static Picture picture(const Host* h) { return picture_of(h, 1, 1); }
static tessera_image* imported(tessera_device* d, const Picture* p) {
  const tessera_imported_image i = {.image = p->image,
                                    .format = VK_FORMAT_R32_SFLOAT,
                                    .extent = {W, H},
                                    .usage = VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_STORAGE_BIT};
  tessera_image* image = NULL;
  CHECK_OK(tessera_image_import(d, &i, &image));
  return image;
}

static const tessera_layouts fresh = {VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_GENERAL},
                             kept = {VK_IMAGE_LAYOUT_GENERAL, VK_IMAGE_LAYOUT_GENERAL};

static void test_read_and_write(tessera_device* d, const Picture* p, tessera_image* image, const float* texels) {
  const int64_t shape[3] = {H, W, 1}, other[2] = {W, H};
  const int64_t* dims = NULL;
  tessera_array *a = NULL, *back = NULL, *turned = NULL;
  tessera_image* none = NULL;
  int32_t channels = 0, rank = 0;
  float read[W * H];
  CHECK_OK(tessera_image_channels(image, &channels));
  CHECK(channels == 1);
  CHECK_OK(tessera_array_create(d, TESSERA_F32, 2, shape, texels, &a));
  CHECK_OK(tessera_image_write(image, a, fresh));
  CHECK_OK(tessera_image_read(image, TESSERA_F32, 0, kept, &back));
  CHECK_OK(tessera_array_get_info(back, NULL, &rank, &dims, NULL));
  CHECK(rank == 3 && dims[0] == H && dims[1] == W && dims[2] == 1);
  CHECK_OK(tessera_array_read(back, read, sizeof read));
  CHECK(memcmp(read, texels, sizeof read) == 0);

  const tessera_array* untouched = back;
  CHECK_ERROR(tessera_image_read(image, TESSERA_F32, 2, kept, &back), TESSERA_ERROR_ARGUMENT,
              "tessera_image_read: channels is 2 but the image has 1");
  CHECK_ERROR(tessera_image_read(image, 99, 0, kept, &back), TESSERA_ERROR_ARGUMENT,
              "tessera_image_read: there is no dtype 99");
  CHECK_ERROR(tessera_image_read(image, TESSERA_I32, 0, kept, &back), TESSERA_ERROR_ARGUMENT, NULL);
  CHECK_ERROR(tessera_image_read(image, TESSERA_F32, 0, fresh, &back), TESSERA_ERROR_ARGUMENT,
              "read_image: the image is read but comes in VK_IMAGE_LAYOUT_UNDEFINED, which discards what it holds\n  "
              "note: say in ImageLayouts::before which layout it is in");
  CHECK_ERROR(tessera_image_read(image, TESSERA_F32, 0, kept, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_image_read: array is NULL");
  CHECK(back == untouched);
  CHECK_OK(tessera_array_create(d, TESSERA_F32, 2, other, texels, &turned));
  CHECK_ERROR(tessera_image_write(image, turned, fresh), TESSERA_ERROR_ARGUMENT,
              "write_image: the array is (20, 15) but the image of 20 x 15 texels of VK_FORMAT_R32_SFLOAT is (15, 20) "
              "or (15, 20, C) with C from 1 to 1");
  CHECK_ERROR(tessera_image_write(image, NULL, fresh), TESSERA_ERROR_ARGUMENT, "tessera_image_write: array is NULL");
  CHECK_ERROR(tessera_image_channels(image, NULL), TESSERA_ERROR_ARGUMENT, "tessera_image_channels: channels is NULL");
  tessera_imported_image bad = {.image = VK_NULL_HANDLE, .format = VK_FORMAT_R32_SFLOAT, .extent = {W, H}};
  CHECK_ERROR(tessera_image_import(d, &bad, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_image_import: imported.image is VK_NULL_HANDLE");
  CHECK_ERROR(tessera_image_import(d, NULL, &none), TESSERA_ERROR_ARGUMENT, "tessera_image_import: imported is NULL");
  CHECK_ERROR(tessera_image_import(d, &bad, NULL), TESSERA_ERROR_ARGUMENT, "tessera_image_import: image is NULL");
  bad.image = p->image, bad.format = VK_FORMAT_BC1_RGB_UNORM_BLOCK;
  CHECK_ERROR(tessera_image_import(d, &bad, &none), TESSERA_ERROR_ARGUMENT, NULL);
  CHECK(none == NULL);
  tessera_array_destroy(a);
  tessera_array_destroy(back);
  tessera_array_destroy(turned);
}

static void test_recorded(const Host* h, tessera_device* d, tessera_image* from, tessera_image* to,
                          const float* texels) {
  tessera_kernel* k = NULL;
  tessera_prepared *prepared = NULL, *none = NULL;
  tessera_stream* stream = NULL;
  tessera_array* result = NULL;
  const tessera_size sizes[2] = {{"h", H}, {"w", W}};
  const tessera_image_argument images[2] = {{from, 0}, {to, 1}}, beyond[1] = {{from, 2}}, missing[1] = {{NULL, 0}};
  float read[W * H];
  CHECK_OK(tessera_kernel_get(bundle, d, "doubled", &k));
  CHECK_OK(tessera_kernel_prepare_images(k, 2, 1, sizes, 2, images, 2, &prepared));
  CHECK_OK(tessera_stream_create(d, &stream));
  CHECK_ERROR(tessera_kernel_prepare_images(k, 2, 1, sizes, 2, beyond, 1, &none), TESSERA_ERROR_ARGUMENT,
              "doubled: there is no argument 2 to be an image: their number is 2\n  at tests/c/doubled.tir:2");
  CHECK_ERROR(tessera_kernel_prepare_images(k, 2, 1, sizes, 2, missing, 1, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_kernel_prepare_images: images[0].like is NULL");
  CHECK_ERROR(tessera_kernel_prepare_images(k, 2, 1, sizes, 2, NULL, 1, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_kernel_prepare_images: images is NULL");
  CHECK_ERROR(tessera_kernel_prepare_images(k, 2, 1, sizes, 2, NULL, -1, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_kernel_prepare_images: num_images is -1, which is below 0");
  CHECK(none == NULL);

  const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  CHECK(vkBeginCommandBuffer(h->commands, &begin) == VK_SUCCESS);
  CHECK_OK(tessera_stream_begin(stream, h->commands, 0));
  const tessera_argument arguments[2] = {{NULL, from, kept}, {NULL, to, fresh}},
                         nothing[2] = {{NULL, from, kept}, {NULL, NULL, fresh}};
  CHECK_ERROR(tessera_stream_record_arguments(stream, prepared, nothing, 2, NULL), TESSERA_ERROR_ARGUMENT,
              "doubled: argument 1 is NULL\n  at tests/c/doubled.tir:2");
  CHECK_ERROR(tessera_stream_record_arguments(stream, prepared, arguments, 1, NULL), TESSERA_ERROR_ARGUMENT,
              "doubled: has 2 arguments, inputs and outputs together, but 1 was given\n  at tests/c/doubled.tir:2");
  CHECK_ERROR(tessera_stream_record_arguments(stream, prepared, NULL, 2, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_stream_record_arguments: arguments is NULL");
  const int64_t shape[2] = {H, W};
  tessera_array* array = NULL;
  CHECK_OK(tessera_array_create(d, TESSERA_F32, 2, shape, texels, &array));
  const tessera_argument both[2] = {{array, from, kept}, {NULL, to, fresh}},
                         as_array[2] = {{array, NULL, kept}, {NULL, to, fresh}};
  CHECK_ERROR(
      tessera_stream_record_arguments(stream, prepared, both, 2, NULL), TESSERA_ERROR_ARGUMENT,
      "doubled: argument 0 is an array and an image\n  at tests/c/doubled.tir:2\n  note: leave one of them NULL");
  CHECK_ERROR(tessera_stream_record_arguments(stream, prepared, as_array, 2, NULL), TESSERA_ERROR_ARGUMENT, NULL);
  CHECK(strstr(tessera_last_error(), "an array is given, but PrepareOptions::images names this argument") != NULL);
  tessera_scopes scopes = {0, 0, 0, 0};
  CHECK_OK(tessera_stream_record_arguments(stream, prepared, arguments, 2, &scopes));
  CHECK(scopes.signal_stages != 0);
  CHECK_OK(tessera_stream_end(stream, NULL));
  CHECK(vkEndCommandBuffer(h->commands) == VK_SUCCESS);
  submit_and_wait(h);
  CHECK_OK(tessera_image_read(to, TESSERA_F32, 1, kept, &result));
  CHECK_OK(tessera_array_read(result, read, sizeof read));
  int right = 0;
  for (int i = 0; i < W * H; ++i) right += read[i] == 2 * texels[i];
  CHECK(right == W * H);
  tessera_array_destroy(array);
  tessera_array_destroy(result);
  tessera_stream_destroy(stream);
  tessera_prepared_destroy(prepared);
  tessera_kernel_destroy(k);
}

// Two of the layers of a level.
static void test_parts(const Host* h, tessera_device* d) {
  const Picture p = picture_of(h, 2, 3);
  const tessera_imported_image i = {.image = p.image,
                                    .format = VK_FORMAT_R32_SFLOAT,
                                    .extent = {W / 2, H / 2},
                                    .usage = VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_STORAGE_BIT,
                                    .mip_level = 1,
                                    .array_layer = 1};
  const int64_t shape[3] = {2, H / 2, W / 2};
  const int64_t* dims = NULL;
  float texels[2 * (H / 2) * (W / 2)], read[2 * (H / 2) * (W / 2)];
  int32_t rank = 0;
  tessera_image *image = NULL, *one = NULL, *none = NULL;
  tessera_array *a = NULL, *back = NULL;
  for (int k = 0; k < 2 * (H / 2) * (W / 2); ++k) texels[k] = (float)k;
  tessera_image_part part = tessera_image_part_defaults();
  part.layer_count = 2, part.mip_levels = 2, part.array_layers = 3;
  CHECK_OK(tessera_image_import_part(d, &i, &part, &image));
  CHECK_OK(tessera_array_create(d, TESSERA_F32, 3, shape, texels, &a));
  CHECK_OK(tessera_image_write(image, a, fresh));
  CHECK_OK(tessera_image_read(image, TESSERA_F32, 0, kept, &back));
  CHECK_OK(tessera_array_get_info(back, NULL, &rank, &dims, NULL));
  CHECK(rank == 4 && dims[0] == 2 && dims[1] == H / 2 && dims[2] == W / 2 && dims[3] == 1);
  CHECK_OK(tessera_array_read(back, read, sizeof read));
  CHECK(memcmp(read, texels, sizeof read) == 0);
  tessera_array_destroy(back);
  CHECK_OK(tessera_image_import_part(d, &i, NULL, &one));  // the first of them alone
  CHECK_OK(tessera_image_read(one, TESSERA_F32, 0, kept, &back));
  CHECK_OK(tessera_array_get_info(back, NULL, &rank, &dims, NULL));
  CHECK(rank == 3 && dims[0] == H / 2 && dims[1] == W / 2);
  CHECK_OK(tessera_array_read(back, read, sizeof read / 2));
  CHECK(memcmp(read, texels, sizeof read / 2) == 0);
  part.layer_count = 3;
  CHECK_ERROR(tessera_image_import_part(d, &i, &part, &none), TESSERA_ERROR_ARGUMENT,
              "DeviceImage: the image of 10 x 7 texels in 3 layers of VK_FORMAT_R32_SFLOAT (level 1, layers 1 to 3): "
              "there is no layer 3: the image has 3, from 0 on");
  part.size = 8;
  CHECK_ERROR(tessera_image_import_part(d, &i, &part, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_image_import_part: part.size is 8, but 32 is right\n  note: begin with "
              "tessera_image_part_defaults()");
  CHECK(none == NULL);
  tessera_array_destroy(a);
  tessera_array_destroy(back);
  tessera_image_destroy(image);
  tessera_image_destroy(one);
  CHECK_OK(tessera_device_wait(d));
  vkDestroyImage(h->device, p.image, NULL);
  vkFreeMemory(h->device, p.memory, NULL);
}

static void test_semaphores(const Host* h, tessera_device* d) {
  const VkSemaphoreTypeCreateInfo timeline = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                              .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
  const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &timeline};
  VkSemaphore s = VK_NULL_HANDLE;
  uint64_t value = 0;
  CHECK(vkCreateSemaphore(h->device, &info, NULL, &s) == VK_SUCCESS);
  CHECK_OK(tessera_semaphore_signal(d, s, 5));
  CHECK_OK(tessera_device_wait(d));
  CHECK(vkGetSemaphoreCounterValue(h->device, s, &value) == VK_SUCCESS && value == 5);
  CHECK_OK(tessera_semaphore_wait(d, s, 6));
  CHECK_OK(tessera_semaphore_signal(d, s, 7));
  CHECK(vkGetSemaphoreCounterValue(h->device, s, &value) == VK_SUCCESS && value == 5);  // it waits for the program
  const VkSemaphoreSignalInfo signal = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, .semaphore = s, .value = 6};
  CHECK(vkSignalSemaphore(h->device, &signal) == VK_SUCCESS);
  CHECK_OK(tessera_device_wait(d));
  CHECK(vkGetSemaphoreCounterValue(h->device, s, &value) == VK_SUCCESS && value == 7);
  CHECK_ERROR(tessera_semaphore_wait(d, VK_NULL_HANDLE, 1), TESSERA_ERROR_ARGUMENT,
              "tessera_semaphore_wait: semaphore is VK_NULL_HANDLE");
  CHECK_ERROR(tessera_semaphore_signal(d, VK_NULL_HANDLE, 1), TESSERA_ERROR_ARGUMENT,
              "tessera_semaphore_signal: semaphore is VK_NULL_HANDLE");
  vkDestroySemaphore(h->device, s, NULL);
}

typedef struct Said {
  int number;
  char names[2000];
} Said;
static void say(void* user, const tessera_device_feature* feature) {
  Said* said = user;
  ++said->number;
  strncat(said->names, feature->name, sizeof said->names - strlen(said->names) - 1);
  strncat(said->names, " ", sizeof said->names - strlen(said->names) - 1);
}

// A device without 64-bit integers, though its driver has them.
static void test_features(const Host* h, tessera_device* d) {
  Said all = {0, ""}, left_out = {0, ""};
  VkPhysicalDeviceVulkan13Features v13;
  VkPhysicalDeviceVulkan12Features v12;
  VkPhysicalDeviceVulkan11Features v11;
  VkPhysicalDeviceFeatures2 has;
  vkGetPhysicalDeviceFeatures2(h->physical, chain(&has, &v11, &v12, &v13));
  CHECK_OK(tessera_missing_device_features(&has, &h->features, say, &left_out));
  CHECK(left_out.number == 0);
  VkPhysicalDeviceFeatures2 fewer = h->features;
  fewer.features.shaderInt64 = VK_FALSE;
  CHECK_OK(tessera_missing_device_features(&has, &fewer, say, &left_out));
  CHECK(strcmp(left_out.names, "shaderInt64 ") == 0);
  CHECK_OK(tessera_missing_device_features(NULL, &has, say, &all));  // what the driver lacks
  CHECK(strstr(all.names, "bufferDeviceAddress") == NULL);
  CHECK_ERROR(tessera_missing_device_features(&has, NULL, say, &all), TESSERA_ERROR_ARGUMENT,
              "tessera_missing_device_features: enabled is NULL");
  CHECK_ERROR(tessera_missing_device_features(&has, &has, NULL, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_missing_device_features: say is NULL");

  tessera_imported_device without = imported_host(h);
  without.features = &fewer;
  tessera_device* narrow = NULL;
  CHECK_OK(tessera_device_import(&without, NULL, &narrow));
  int different = 0;
  for (int32_t i = 0; i < tessera_device_feature_count(0); ++i) {
    tessera_device_feature f;
    int32_t here = -1, there = -1;
    CHECK_OK(tessera_device_feature_at(0, i, &f));
    CHECK_OK(tessera_device_feature_enabled(d, 0, i, &here));
    CHECK_OK(tessera_device_feature_enabled(narrow, 0, i, &there));
    different += here != there;
    if (strcmp(f.name, "shaderInt64") == 0) CHECK(there == 0 && here == (has.features.shaderInt64 == VK_TRUE));
  }
  CHECK(different == (has.features.shaderInt64 == VK_TRUE));
  int32_t enabled = 0;
  CHECK_OK(tessera_device_feature_enabled(d, 1, 0, &enabled));
  CHECK(enabled == 1);
  CHECK_ERROR(tessera_device_feature_enabled(d, 1, 99, &enabled), TESSERA_ERROR_ARGUMENT,
              "tessera_device_feature_enabled: there is no feature 99: their number is 4");
  CHECK_ERROR(tessera_device_feature_enabled(d, 1, 0, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_device_feature_enabled: enabled is NULL");

  const char *name = NULL, *gives = NULL;
  CHECK_OK(tessera_device_extension_at(0, &name, &gives));
  CHECK(strcmp(name, "VK_EXT_memory_budget") == 0 && gives[0] != 0);
  char text[200];
  snprintf(text, sizeof text, "tessera_device_extension_at: there is no extension -1: their number is %d",
           tessera_device_extension_count());
  CHECK_ERROR(tessera_device_extension_at(-1, &name, &gives), TESSERA_ERROR_ARGUMENT, text);
  CHECK_ERROR(tessera_device_extension_at(0, &name, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_device_extension_at: gives is NULL");
  tessera_device_destroy(narrow);
}

void test_images(void) {
  Host h;
  make_host(&h);
  const tessera_imported_device there = imported_host(&h);
  tessera_device* d = NULL;
  CHECK_OK(tessera_device_import(&there, NULL, &d));
  const Picture first = picture(&h), second = picture(&h);
  tessera_image *from = imported(d, &first), *to = imported(d, &second);
  float texels[W * H];
  for (int i = 0; i < W * H; ++i) texels[i] = (float)i / 4;
  test_read_and_write(d, &first, from, texels);
  test_recorded(&h, d, from, to, texels);
  test_parts(&h, d);
  test_semaphores(&h, d);
  test_features(&h, d);
  tessera_image_destroy(from);
  tessera_image_destroy(to);
  CHECK_OK(tessera_device_wait(d));
  tessera_device_destroy(d);
  vkDestroyImage(h.device, first.image, NULL);
  vkDestroyImage(h.device, second.image, NULL);
  vkFreeMemory(h.device, first.memory, NULL);
  vkFreeMemory(h.device, second.memory, NULL);
  end_host(&h);
}
