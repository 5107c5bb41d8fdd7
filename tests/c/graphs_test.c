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
  CHECK_ERROR(tessera_graph_load(bundle, device, "thrice", NULL, 0, &prepared), TESSERA_ERROR_ARGUMENT, NULL);
  CHECK_ERROR(tessera_graph_load(NULL, device, "twice", NULL, 0, &prepared), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_load: bundle is NULL");
  CHECK_ERROR(tessera_graph_load(bundle, NULL, "twice", NULL, 0, &prepared), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_load: device is NULL");
  CHECK_ERROR(tessera_graph_load(bundle, device, NULL, NULL, 0, &prepared), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_load: name is NULL");
  CHECK_ERROR(tessera_graph_load(bundle, device, "twice", NULL, 0, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_load: graph is NULL");
  tessera_array_destroy(in.in0);
  tessera_array_destroy(in.in1);
  tessera_array_destroy(out.out0);
  tessera_array_destroy(out.out1);
  tessera_graph_destroy(graph);
}

/// A graph of every size, launched.
static void test_sized_launches(void) {
  tessera_graph* graph = NULL;
  float ramp[N];
  for (int i = 0; i < N; ++i) ramp[i] = (float)i;
  const c_kernels_grown_sizes largest = {200};
  CHECK_OK(c_kernels_grown_load(bundle, device, &largest, &graph));
  const char* text = NULL;
  CHECK_OK(tessera_graph_signature(graph, &text));
  CHECK(strcmp(text, "(f32[n], f32[]) -> (f32[n], f32[n])") == 0);
  const float by = 3;
  const int64_t sizes[4] = {200, 1, 0, 77};
  for (int k = 0; k < 4; ++k) {
    c_kernels_grown_inputs in = {NULL, NULL};
    c_kernels_grown_outputs out = {NULL, NULL};
    CHECK_OK(tessera_array_create(device, TESSERA_F32, 1, &sizes[k], ramp, &in.in0));
    CHECK_OK(tessera_scalar_create(TESSERA_F32, &by, &in.in1));
    CHECK_OK(c_kernels_grown_launch(graph, &in, &out));
    float values[N];
    const size_t bytes = (size_t)sizes[k] * sizeof values[0];
    int right = 0;
    CHECK_OK(tessera_array_read(out.out0, values, bytes));
    for (int i = 0; i < sizes[k]; ++i) right += values[i] == 9 * (float)i;
    CHECK(right == sizes[k]);
    tessera_array_destroy(in.in0);
    tessera_array_destroy(in.in1);
    tessera_array_destroy(out.out0);
    tessera_array_destroy(out.out1);
  }
  const int64_t more = 201;
  tessera_array *in[2] = {NULL, NULL}, *out[2] = {NULL, NULL};
  CHECK_OK(tessera_array_create(device, TESSERA_F32, 1, &more, ramp, &in[0]));
  CHECK_OK(tessera_scalar_create(TESSERA_F32, &by, &in[1]));
  CHECK_ERROR(tessera_graph_launch(graph, in, 2, out, 2), TESSERA_ERROR_ARGUMENT,
              "grown: the size n is 201 but the graph has been loaded for at most 200\n  note: load it for the largest "
              "size that is to come");
  const tessera_size given[2] = {{"n", 3}, {"n", 4}}, other = {"m", 3}, below = {"n", -1}, unnamed = {NULL, 3};
  CHECK_ERROR(tessera_graph_resize(graph, given, 1), TESSERA_ERROR_ARGUMENT,
              "grown: has been loaded for launches, not prepared to be recorded\n  note: tessera_graph_prepare() "
              "prepares a graph");
  tessera_graph* none = NULL;
  CHECK_ERROR(
      tessera_graph_load(bundle, device, "grown", NULL, 0, &none), TESSERA_ERROR_ARGUMENT,
      "grown: no value for the size n\n  note: LoadGraphOptions::dims gives the largest value of each size that "
      "is to come");
  CHECK_ERROR(tessera_graph_load(bundle, device, "grown", given, 2, &none), TESSERA_ERROR_ARGUMENT,
              "grown: the size n is given twice");
  CHECK_ERROR(tessera_graph_load(bundle, device, "grown", &other, 1, &none), TESSERA_ERROR_ARGUMENT,
              "grown: LoadGraphOptions::dims gives a size m, which the graph does not have");
  CHECK_ERROR(tessera_graph_load(bundle, device, "grown", &below, 1, &none), TESSERA_ERROR_ARGUMENT,
              "grown: f32[n] has the size -1 for n = -1\n  note: sizes must not be negative");
  CHECK_ERROR(tessera_graph_load(bundle, device, "grown", &unnamed, 1, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_load: the name of a size is NULL");
  CHECK_ERROR(tessera_graph_load(bundle, device, "grown", given, -1, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_load: num_sizes is -1, which is below 0");
  CHECK_ERROR(tessera_graph_load(bundle, device, "grown", NULL, 1, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_load: sizes is NULL");
  tessera_array_destroy(in[0]);
  tessera_array_destroy(in[1]);
  tessera_graph_destroy(graph);
}

/// The same, recorded.
static void test_sized_recordings(Host* h, tessera_device* d) {
  tessera_graph* graph = NULL;
  tessera_stream* stream = NULL;
  const c_kernels_grown_sizes largest = {N};
  CHECK_OK(c_kernels_grown_prepare(bundle, d, 2, 1, &largest, &graph));
  CHECK_OK(tessera_stream_create(d, &stream));
  float ramp[N], values[N];
  for (int i = 0; i < N; ++i) ramp[i] = (float)i;
  const int64_t sizes[4] = {N, 1, 123, 299};
  for (uint64_t frame = 0; frame < 4; ++frame) {
    const int64_t n = sizes[frame];
    const float by = (float)frame + 2;
    const c_kernels_grown_sizes now = {n};
    c_kernels_grown_inputs in = {NULL, NULL};
    c_kernels_grown_outputs out = {NULL, NULL};
    CHECK_OK(tessera_array_create(d, TESSERA_F32, 1, &n, ramp, &in.in0));
    CHECK_OK(tessera_array_create(d, TESSERA_F32, 1, &n, NULL, &out.out0));
    CHECK_OK(tessera_array_create(d, TESSERA_F32, 1, &n, NULL, &out.out1));
    CHECK_OK(tessera_scalar_create(TESSERA_F32, &by, &in.in1));
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    CHECK(vkBeginCommandBuffer(h->commands, &begin) == VK_SUCCESS);
    tessera_scopes scopes = {0, 0, 0, 0};
    CHECK_OK(c_kernels_grown_resize(graph, &now));
    CHECK_OK(tessera_stream_begin(stream, h->commands, frame));
    CHECK_OK(c_kernels_grown_record(stream, graph, &in, &out, NULL));
    CHECK_OK(tessera_stream_end(stream, &scopes));
    end_for_host(h, &scopes);
    submit_and_wait(h);
    int right = 0;
    CHECK_OK(tessera_array_read(out.out0, values, (size_t)n * sizeof values[0]));
    for (int i = 0; i < n; ++i) right += values[i] == by * by * (float)i;
    CHECK(right == n);
    tessera_array_destroy(in.in0);
    tessera_array_destroy(in.in1);
    tessera_array_destroy(out.out0);
    tessera_array_destroy(out.out1);
  }
  const tessera_size more = {"n", N + 1}, other = {"m", 1};
  CHECK_ERROR(
      tessera_graph_resize(graph, &more, 1), TESSERA_ERROR_ARGUMENT,
      "grown: resize: the size n is 301 but the graph has been prepared for at most 300\n  note: prepare it for "
      "the largest size that is to come");
  CHECK_ERROR(tessera_graph_resize(graph, &other, 1), TESSERA_ERROR_ARGUMENT,
              "grown: resize: the size m is none that PrepareGraphOptions::dims gives");
  tessera_stream_destroy(stream);
  tessera_graph_destroy(graph);
}

void test_graphs(void) {
  test_launches();
  test_sized_launches();
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
  CHECK(count == 2);
  CHECK_OK(tessera_bundle_graph_name(bundle, 0, &name));
  CHECK(strcmp(name, "twice") == 0);
  CHECK_ERROR(tessera_bundle_graph_name(bundle, 2, &name), TESSERA_ERROR_ARGUMENT,
              "tessera_bundle_graph_name: there is no graph 2: their number is 2");
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
  CHECK_OK(tessera_graph_load(bundle, d, "twice", NULL, 0, &loaded));
  CHECK_ERROR(tessera_stream_record_graph(stream, loaded, missing, 4, NULL), TESSERA_ERROR_ARGUMENT,
              "twice: has been loaded for launches, not prepared to be recorded\n  note: tessera_graph_prepare() "
              "prepares a graph");
  tessera_graph_destroy(loaded);
  CHECK_ERROR(tessera_graph_prepare(bundle, d, "thrice", 2, 1, NULL, 0, &none), TESSERA_ERROR_ARGUMENT, NULL);
  CHECK(strstr(tessera_last_error(), "has no graph \"thrice\"\n  note: its graphs are twice, grown") != NULL);
  CHECK_ERROR(tessera_graph_prepare(NULL, d, "twice", 2, 1, NULL, 0, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_prepare: bundle is NULL");
  CHECK_ERROR(tessera_graph_prepare(bundle, NULL, "twice", 2, 1, NULL, 0, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_prepare: device is NULL");
  CHECK_ERROR(tessera_graph_prepare(bundle, d, NULL, 2, 1, NULL, 0, &none), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_prepare: name is NULL");
  CHECK_ERROR(tessera_graph_prepare(bundle, d, "twice", 2, 1, NULL, 0, NULL), TESSERA_ERROR_ARGUMENT,
              "tessera_graph_prepare: graph is NULL");
  CHECK_ERROR(tessera_graph_prepare(bundle, d, "twice", 0, 1, NULL, 0, &none), TESSERA_ERROR_ARGUMENT, NULL);
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
  test_sized_recordings(&h, d);
  CHECK_OK(tessera_device_wait(d));
  tessera_device_destroy(d);
  end_host(&h);
}
