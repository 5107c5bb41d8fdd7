// A graph of a bundle in C: launched, and in a Vulkan program recorded into its command buffer, frame after frame.
#include "c_kernels_c.h"
#include "vulkan_host.h"

enum { N = 300 };

static int times(const tessera_array* array, float by) {
  float values[N];
  int right = 0;
  CHECK_OK(tessera_array_read(array, values, sizeof values));
  for (int i = 0; i < N; ++i) right += values[i] == by * (float)i;
  return right;
}

static void test_launches(void) {
  tessera_graph *graph = NULL, *prepared = NULL;
  float ramp[N];
  const int64_t shape[1] = {N};
  for (int i = 0; i < N; ++i) ramp[i] = (float)i;
  CHECK_OK(c_kernels_twice_load(bundle, device, &graph));
  const char* text = NULL;
  CHECK_OK(tessera_graph_signature(graph, &text));
  CHECK(strcmp(text, "(f32[300], f32[]) -> (f32[300], f32[300])") == 0);
  c_kernels_twice_inputs in = {NULL, NULL};
  c_kernels_twice_outputs out = {NULL, NULL};
  const float by = 3;
  CHECK_OK(tessera_array_create(device, TESSERA_F32, 1, shape, ramp, &in.in0));
  CHECK_OK(tessera_scalar_create(TESSERA_F32, &by, &in.in1));
  CHECK_OK(c_kernels_twice_launch(graph, &in, &out));  // makes the outputs
  CHECK(times(out.out0, 9) == N && times(out.out1, 3) == N);
  const float more = 5;
  CHECK_OK(tessera_scalar_set(in.in1, &more));
  CHECK_OK(c_kernels_twice_launch(graph, &in, &out));  // into them
  CHECK(times(out.out0, 25) == N && times(out.out1, 5) == N);
  tessera_array *all[2] = {in.in0, in.in1}, *made[2] = {out.out0, NULL}, *same[2] = {in.in0, out.out1};
  CHECK_ERROR(tessera_graph_launch(graph, all, 1, made, 2), TESSERA_ERROR_ARGUMENT,
              "twice: takes 2 inputs and makes 2 outputs but 1 and 2 were given\n  note: it is twice(f32[300], f32[]) "
              "-> (f32[300], f32[300])");
  CHECK_ERROR(tessera_graph_launch(graph, all, 2, same, 2), TESSERA_ERROR_ARGUMENT,
              "twice: output 0 is to go where argument 0 is\n  note: give it an array of its own");
  CHECK_ERROR(tessera_graph_launch(NULL, all, 2, made, 2), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_launch: graph is NULL");
  CHECK_ERROR(tessera_graph_launch(graph, NULL, 2, made, 2), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_launch: inputs is NULL");
  CHECK_ERROR(tessera_graph_launch(graph, all, 2, NULL, 2), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_launch: outputs is NULL");
  all[1] = NULL;
  CHECK_ERROR(tessera_graph_launch(graph, all, 2, made, 2), TESSERA_ERROR_ARGUMENT, "twice: argument 1 is NULL");
  CHECK(made[1] == NULL);
  CHECK_ERROR(tessera_graph_load(bundle, device, "thrice", &prepared), TESSERA_ERROR_ARGUMENT, NULL);
  CHECK_ERROR(tessera_graph_load(NULL, device, "twice", &prepared), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_load: bundle is NULL");
  CHECK_ERROR(tessera_graph_load(bundle, NULL, "twice", &prepared), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_load: device is NULL");
  CHECK_ERROR(tessera_graph_load(bundle, device, NULL, &prepared), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_load: name is NULL");
  CHECK_ERROR(tessera_graph_load(bundle, device, "twice", NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_load: graph is NULL");
  tessera_array_destroy(in.in0);
  tessera_array_destroy(in.in1);
  tessera_array_destroy(out.out0);
  tessera_array_destroy(out.out1);
  tessera_graph_destroy(graph);
}

void test_graphs(void) {
  test_launches();
  Host h;
  make_host(&h);
  const tessera_imported_device imported = imported_host(&h);
  tessera_device* d = NULL;
  tessera_graph *graph = NULL, *loaded = NULL, *none = NULL;
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
  CHECK_ERROR(tessera_graph_launch(graph, missing, 2, missing + 2, 2), TESSERA_ERROR_ARGUMENT,
              "twice: has been prepared to be recorded, not loaded for launches\n  note: tessera_graph_load() loads a "
              "graph");
  CHECK_OK(tessera_graph_load(bundle, d, "twice", &loaded));
  CHECK_ERROR(tessera_stream_record_graph(stream, loaded, missing, 4, NULL), TESSERA_ERROR_ARGUMENT,
              "twice: has been loaded for launches, not prepared to be recorded\n  note: tessera_graph_prepare() "
              "prepares a graph");
  tessera_graph_destroy(loaded);
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
