// Every function that the library exports, given NULL for everything and sizes of 0: an error in words or nothing,
// never a crash. tests/library.sh compares this list with the library's.
#include <tessera/tessera_vulkan.h>

#include "test.h"

#define REFUSED(call, sentence) CHECK_ERROR(call, TESSERA_ERROR_ARGUMENT, sentence)

void test_nulls(void) {
  const tessera_layouts none = {VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_UNDEFINED};
  CHECK(tessera_version() != 0);
  CHECK(tessera_version_string() != NULL);
  CHECK(tessera_last_error() != NULL);
  CHECK(tessera_result_name(0) != NULL);
  CHECK(tessera_dtype_name(0) != NULL);
  CHECK(tessera_dtype_bytes(0) == 1);
  CHECK(tessera_device_defaults().size == sizeof(tessera_device_options));
  CHECK(tessera_device_feature_count(0) > 0);
  REFUSED(tessera_check_version(0),
          "tessera_check_version: the program was compiled with the header of Tessera 0.0.0 but the library "
          "is " TESSERA_VERSION);

  tessera_device_destroy(NULL);
  tessera_bundle_destroy(NULL);
  tessera_kernel_destroy(NULL);
  tessera_array_destroy(NULL);
  tessera_prepared_destroy(NULL);
  tessera_graph_destroy(NULL);
  tessera_stream_destroy(NULL);
  tessera_image_destroy(NULL);

  CHECK(tessera_device_extension_count() > 0);
  CHECK_OK(tessera_set_log(NULL, NULL));
  REFUSED(tessera_device_count(NULL), "tessera_device_count: count is NULL");
  REFUSED(tessera_device_info_at(0, NULL), "tessera_device_info_at: info is NULL");
  REFUSED(tessera_device_create(NULL, NULL), "tessera_device_create: device is NULL");
  REFUSED(tessera_device_get_info(NULL, NULL), "tessera_device_get_info: device is NULL");
  REFUSED(tessera_device_wait(NULL), "tessera_device_wait: device is NULL");
  REFUSED(tessera_device_lost(NULL, NULL), "tessera_device_lost: device is NULL");
  REFUSED(tessera_device_recover(NULL), "tessera_device_recover: device is NULL");
  REFUSED(tessera_device_allocated(NULL, NULL), "tessera_device_allocated: device is NULL");
  REFUSED(tessera_device_validation(NULL, NULL, NULL), "tessera_device_validation: device is NULL");
  REFUSED(tessera_bundle_load(NULL, NULL), "tessera_bundle_load: path is NULL");
  REFUSED(tessera_bundle_load_memory(NULL, 0, NULL, NULL), "tessera_bundle_load_memory: bytes is NULL");
  REFUSED(tessera_bundle_kernel_count(NULL, NULL), "tessera_bundle_kernel_count: bundle is NULL");
  REFUSED(tessera_bundle_kernel_name(NULL, 0, NULL), "tessera_bundle_kernel_name: bundle is NULL");
  REFUSED(tessera_bundle_reload(NULL, NULL), "tessera_bundle_reload: bundle is NULL");
  REFUSED(tessera_bundle_prewarm(NULL, NULL, 0, NULL, NULL), "tessera_bundle_prewarm: bundle is NULL");
  REFUSED(tessera_kernel_get(NULL, NULL, NULL, NULL), "tessera_kernel_get: bundle is NULL");
  REFUSED(tessera_kernel_signature(NULL, NULL), "tessera_kernel_signature: kernel is NULL");
  REFUSED(tessera_kernel_check(NULL, NULL), "tessera_kernel_check: kernel is NULL");
  REFUSED(tessera_kernel_variant(NULL, NULL), "tessera_kernel_variant: kernel is NULL");
  REFUSED(tessera_kernel_argument_count(NULL, NULL, NULL), "tessera_kernel_argument_count: kernel is NULL");
  REFUSED(tessera_kernel_argument(NULL, 0, NULL), "tessera_kernel_argument: kernel is NULL");
  REFUSED(tessera_array_create(NULL, 0, 0, NULL, NULL, NULL), "tessera_array_create: device is NULL");
  REFUSED(tessera_array_get_info(NULL, NULL, NULL, NULL, NULL), "tessera_array_get_info: array is NULL");
  REFUSED(tessera_array_write(NULL, NULL, 0), "tessera_array_write: array is NULL");
  REFUSED(tessera_array_read(NULL, NULL, 0), "tessera_array_read: array is NULL");
  REFUSED(tessera_array_donate(NULL), "tessera_array_donate: array is NULL");
  REFUSED(tessera_array_keep(NULL), "tessera_array_keep: array is NULL");
  REFUSED(tessera_scalar_create(0, NULL, NULL), "tessera_scalar_create: scalar is NULL");
  REFUSED(tessera_scalar_set(NULL, NULL), "tessera_scalar_set: scalar is NULL");
  REFUSED(tessera_kernel_argument_by_value(NULL, 0, NULL), "tessera_kernel_argument_by_value: kernel is NULL");
  REFUSED(tessera_launch(NULL, NULL, 0, NULL, 0, NULL, 0), "tessera_launch: kernel is NULL");
  REFUSED(tessera_device_feature_at(0, 0, NULL), "tessera_device_feature_at: feature is NULL");
  REFUSED(tessera_enable_device_features(NULL, NULL, NULL), "tessera_enable_device_features: has is NULL");
  REFUSED(tessera_device_import(NULL, NULL, NULL), "tessera_device_import: imported is NULL");
  REFUSED(tessera_array_import(NULL, NULL, 0, 0, NULL, NULL), "tessera_array_import: device is NULL");
  REFUSED(tessera_kernel_prepare(NULL, 0, 0, NULL, 0, NULL), "tessera_kernel_prepare: kernel is NULL");
  REFUSED(tessera_prepared_resize(NULL, NULL, 0), "tessera_prepared_resize: prepared is NULL");
  REFUSED(tessera_kernel_variants(NULL, NULL), "tessera_kernel_variants: kernel is NULL");
  REFUSED(tessera_missing_device_features(NULL, NULL, NULL, NULL), "tessera_missing_device_features: enabled is NULL");
  REFUSED(tessera_device_feature_enabled(NULL, 0, 0, NULL), "tessera_device_feature_enabled: device is NULL");
  REFUSED(tessera_device_extension_at(0, NULL, NULL), "tessera_device_extension_at: name is NULL");
  REFUSED(tessera_semaphore_wait(NULL, VK_NULL_HANDLE, 0), "tessera_semaphore_wait: device is NULL");
  REFUSED(tessera_semaphore_signal(NULL, VK_NULL_HANDLE, 0), "tessera_semaphore_signal: device is NULL");
  REFUSED(tessera_image_import(NULL, NULL, NULL), "tessera_image_import: device is NULL");
  CHECK(tessera_image_part_defaults().size == sizeof(tessera_image_part));
  REFUSED(tessera_image_import_part(NULL, NULL, NULL, NULL), "tessera_image_import_part: device is NULL");
  REFUSED(tessera_image_channels(NULL, NULL), "tessera_image_channels: image is NULL");
  REFUSED(tessera_image_read(NULL, 0, 0, none, NULL), "tessera_image_read: image is NULL");
  REFUSED(tessera_image_write(NULL, NULL, none), "tessera_image_write: image is NULL");
  REFUSED(tessera_kernel_prepare_images(NULL, 0, 0, NULL, 0, NULL, 0, NULL),
          "tessera_kernel_prepare_images: kernel is NULL");
  REFUSED(tessera_stream_record_arguments(NULL, NULL, NULL, 0, NULL),
          "tessera_stream_record_arguments: stream is NULL");
  REFUSED(tessera_stream_create(NULL, NULL), "tessera_stream_create: device is NULL");
  REFUSED(tessera_stream_create_timed(NULL, 1, 2, NULL), "tessera_stream_create_timed: device is NULL");
  REFUSED(tessera_stream_trace(NULL, 0, NULL, 0, NULL), "tessera_stream_trace: stream is NULL");
  REFUSED(tessera_stream_begin(NULL, NULL, 0), "tessera_stream_begin: stream is NULL");
  REFUSED(tessera_stream_record(NULL, NULL, NULL, 0, NULL), "tessera_stream_record: stream is NULL");
  REFUSED(tessera_stream_end(NULL, NULL), "tessera_stream_end: stream is NULL");
  REFUSED(tessera_bundle_graph_count(NULL, NULL), "tessera_bundle_graph_count: bundle is NULL");
  REFUSED(tessera_bundle_graph_name(NULL, 0, NULL), "tessera_bundle_graph_name: bundle is NULL");
  REFUSED(tessera_graph_load(NULL, NULL, NULL, NULL, 0, NULL), "tessera_graph_load: bundle is NULL");
  REFUSED(tessera_graph_launch(NULL, NULL, 0, NULL, 0), "tessera_graph_launch: graph is NULL");
  REFUSED(tessera_graph_prepare(NULL, NULL, NULL, 0, 0, NULL, 0, NULL), "tessera_graph_prepare: bundle is NULL");
  REFUSED(tessera_graph_resize(NULL, NULL, 0), "tessera_graph_resize: graph is NULL");
  REFUSED(tessera_graph_signature(NULL, NULL), "tessera_graph_signature: graph is NULL");
  REFUSED(tessera_graph_check(NULL, NULL), "tessera_graph_check: graph is NULL");
  REFUSED(tessera_stream_record_graph(NULL, NULL, NULL, 0, NULL), "tessera_stream_record_graph: stream is NULL");
}
