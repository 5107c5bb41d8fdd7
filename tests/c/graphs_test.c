// A graph of a bundle in a Vulkan program written in C: recorded into its command buffer, frame after frame.
#include "c_kernels_c.h"
#include "vulkan_host.h"

enum { N = 300 };

void test_graphs(void) {
  Host h;
  make_host(&h);
  const tessera_imported_device imported = imported_host(&h);
  tessera_device* d = NULL;
  tessera_graph *graph = NULL, *none = NULL;
  tessera_stream* stream = NULL;
  CHECK_OK(tessera_device_import(&imported, NULL, &d));
  int32_t count = 0;
  const char* name = NULL;
  CHECK_OK(tessera_bundle_graph_count(bundle, &count));
  CHECK(count == 1);
  CHECK_OK(tessera_bundle_graph_name(bundle, 0, &name));
  CHECK(strcmp(name, "twice") == 0);
  CHECK_ERROR(tessera_bundle_graph_name(bundle, 1, &name), TESSERA_ERROR_ARGUMENT,
              "tessera_bundle_graph_name: there is no graph 1: their number is 1");
  CHECK_OK(c_kernels_twice_prepare(bundle, d, 2, 1, &graph));
  CHECK_OK(tessera_graph_signature(graph, &name));
  CHECK(strcmp(name, "(f32[300], f32[]) -> (f32[300], f32[300])") == 0);
  CHECK_ERROR(
      tessera_graph_check(graph, "() -> ()"), TESSERA_ERROR_ARGUMENT,
      "twice: the bundle's graph is (f32[300], f32[]) -> (f32[300], f32[300]) but the header was made for () -> "
      "()\n  note: use the header that tessera bundle wrote with the bundle");
  CHECK_OK(tessera_stream_create(d, &stream));
  const c_kernels_twice_inputs in = {host_floats(&h, d, 0, N), NULL};
  const c_kernels_twice_outputs out = {host_floats(&h, d, 2048, N), host_floats(&h, d, 4096, N)};
  for (int i = 0; i < N; ++i) h.mapped[i] = (float)i;
  tessera_array* missing[4] = {in.in0, NULL, out.out0, out.out1};
  for (uint64_t frame = 0; frame < 3; ++frame) {
    const float by = (float)frame + 2;
    c_kernels_twice_inputs given = in;
    CHECK_OK(tessera_scalar_create(TESSERA_F32, &by, &given.in1));
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    CHECK(vkBeginCommandBuffer(h.commands, &begin) == VK_SUCCESS);
    tessera_scopes one = {0, 0, 0, 0}, scopes = {0, 0, 0, 0};
    CHECK_OK(tessera_stream_begin(stream, h.commands, frame));
    CHECK_ERROR(tessera_stream_record_graph(stream, graph, missing, 4, NULL), TESSERA_ERROR_ARGUMENT,
                "twice: argument 1 is NULL");
    CHECK_ERROR(tessera_stream_record_graph(stream, graph, missing, 3, NULL), TESSERA_ERROR_ARGUMENT,
                "twice: has 4 arguments, inputs and outputs together, but 3 were given");
    CHECK_OK(c_kernels_twice_record(stream, graph, &given, &out, &one));
    CHECK_OK(tessera_stream_end(stream, &scopes));
    CHECK(one.signal_accesses & VK_ACCESS_2_SHADER_WRITE_BIT);
    end_for_host(&h, &scopes);
    submit_and_wait(&h);
    int right = 0;
    for (int i = 0; i < N; ++i) right += h.mapped[512 + i] == by * by * (float)i && h.mapped[1024 + i] == by * (float)i;
    CHECK(right == N);
    tessera_array_destroy(given.in1);
  }
  CHECK_ERROR(tessera_graph_prepare(bundle, d, "thrice", 2, 1, &none), TESSERA_ERROR_ARGUMENT, NULL);
  CHECK(strstr(tessera_last_error(), "has no graph \"thrice\"\n  note: its graphs are twice") != NULL);
  CHECK_ERROR(tessera_graph_prepare(NULL, d, "twice", 2, 1, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_prepare: bundle is NULL");
  CHECK_ERROR(tessera_graph_prepare(bundle, NULL, "twice", 2, 1, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_prepare: device is NULL");
  CHECK_ERROR(tessera_graph_prepare(bundle, d, NULL, 2, 1, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_prepare: name is NULL");
  CHECK_ERROR(tessera_graph_prepare(bundle, d, "twice", 2, 1, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_prepare: graph is NULL");
  CHECK_ERROR(tessera_graph_prepare(bundle, d, "twice", 0, 1, &none), TESSERA_ERROR_ARGUMENT, NULL);
  CHECK_ERROR(tessera_graph_signature(NULL, &name), TESSERA_ERROR_ARGUMENT, "tessera_graph_signature: graph is NULL");
  CHECK_ERROR(tessera_graph_signature(graph, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_signature: signature is NULL");
  CHECK_ERROR(tessera_graph_check(NULL, ""), TESSERA_ERROR_ARGUMENT, "tessera_graph_check: graph is NULL");
  CHECK_ERROR(tessera_graph_check(graph, NULL), TESSERA_ERROR_ARGUMENT, "tessera_graph_check: signature is NULL");
  CHECK_ERROR(tessera_stream_record_graph(NULL, graph, missing, 4, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_stream_record_graph: stream is NULL");
  CHECK_ERROR(tessera_stream_record_graph(stream, NULL, missing, 4, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_stream_record_graph: graph is NULL");
  CHECK_ERROR(tessera_stream_record_graph(stream, graph, NULL, 4, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_stream_record_graph: arrays is NULL");
  CHECK_ERROR(tessera_bundle_graph_count(NULL, &count), TESSERA_ERROR_ARGUMENT,
              "tessera_bundle_graph_count: bundle is NULL");
  CHECK_ERROR(tessera_bundle_graph_name(bundle, 0, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_bundle_graph_name: name is NULL");
  CHECK(none == NULL);
  tessera_array_destroy(in.in0);
  tessera_array_destroy(out.out0);
  tessera_array_destroy(out.out1);
  tessera_stream_destroy(stream);
  tessera_graph_destroy(graph);
  tessera_graph_destroy(NULL);
  CHECK_OK(tessera_device_wait(d));
  tessera_device_destroy(d);
  end_host(&h);
}
