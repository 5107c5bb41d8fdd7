// The arrays that recorded calls read their images into and write them from: one set of them for all frames and calls.
#include <deque>

#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "runtime/record.h"
#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace staging_test {
using namespace tessera;
using namespace tessera::test;

namespace {

constexpr VkImageUsageFlags kUsage =
    VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT;
constexpr ImageLayouts kGeneral{VK_IMAGE_LAYOUT_GENERAL, VK_IMAGE_LAYOUT_GENERAL},
    kFresh{VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_GENERAL};

struct Picture {
  Picture(VulkanHost& host, const Device& d, int64_t height, int64_t width, bool stored)
      : shape{height, width, 4},
        extent{static_cast<uint32_t>(width), static_cast<uint32_t>(height)},
        image(host.image(VK_FORMAT_R32G32B32A32_SFLOAT, extent, kUsage | (stored ? VK_IMAGE_USAGE_STORAGE_BIT : 0))),
        taken(d, {image.handle, image.format, image.extent, image.usage}) {}
  void fill(const Device& d, float x) const {  // every channel of every texel
    DeviceArray a(d, shape, f32);
    Array host(shape, f32);
    for (int64_t e = 0; e < host.size(); ++e) host.data<float>()[static_cast<size_t>(e)] = x;
    a.write(host);
    write_image(taken, a, kFresh);
  }
  int64_t bytes() const { return num_elements(shape) * 4; }
  Shape shape;
  VkExtent2D extent;
  VulkanHost::Image image;
  DeviceImage taken;
};

void check_all(const DeviceImage& image, float x) {
  const Array got = read_image(image, f32, kGeneral).download();
  int64_t wrong = 0;
  for (int64_t e = 0; e < got.size(); ++e) wrong += got.at(e) != x;
  CAPTURE(x);
  CAPTURE(got.at(0));
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("the memory that images are read into is that of one call, whatever the frames and calls") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    const Picture a(*host, d, 96, 128, true), b(*host, d, 96, 128, true), large(*host, d, 256, 128, true),
        other(*host, d, 256, 128, true);
    const auto held = [&, before = d.allocated_bytes()] { return d.allocated_bytes() - before; };
    constexpr int64_t kSlack = 4096;  // argument tables and what an allocation is rounded up to
    {
      const PreparedKernel one(d, scale_shaped(a.shape),
                               {.frames_in_flight = 1, .images = {{0, a.taken}, {1, b.taken}}});
      CHECK(held() >= a.bytes() + b.bytes());
      CHECK(held() <= a.bytes() + b.bytes() + kSlack);
      {
        const PreparedKernel many(
            d, scale_shaped(a.shape),
            {.frames_in_flight = 3, .calls_per_frame = 4, .images = {{0, a.taken}, {1, b.taken}}});
        CHECK(held() <= a.bytes() + b.bytes() + kSlack);
        const PreparedKernel larger(d, scale_shaped(large.shape),
                                    {.frames_in_flight = 3, .images = {{0, large.taken}, {1, other.taken}}});
        CHECK(held() <= large.bytes() + other.bytes() + kSlack);
      }
      // The next kernel gives back what nobody needs any more.
      const PreparedKernel next(d, scale_shaped(a.shape), {.images = {{0, a.taken}, {1, b.taken}}});
      CHECK(held() <= a.bytes() + b.bytes() + kSlack);
    }
    CHECK(held() <= kSlack);
  }
  check_silent(std::move(host));
}

TEST_CASE("frames in flight and calls that share the memory of their images do not disturb each other") {
  for (const bool stored : {true, false}) {
    CAPTURE(stored);
    auto host = std::make_unique<VulkanHost>();
    {
      DeviceOptions o;
      o.log_commands = true;
      const Device d = Device::import(host->imported(), o);
      std::deque<Picture> first, second, third;
      constexpr uint64_t kFrames = 3;
      for (uint64_t f = 0; f < kFrames; ++f) {
        first.emplace_back(*host, d, 33, 47, stored).fill(d, static_cast<float>(f));
        second.emplace_back(*host, d, 33, 47, stored);
        third.emplace_back(*host, d, 33, 47, stored);
      }
      PrepareOptions options{
          .frames_in_flight = kFrames, .calls_per_frame = 4, .images = {{0, first[0].taken}, {1, second[0].taken}}};
      PreparedKernel kernel(d, scale_shaped(first[0].shape), options);
      // A larger kernel, prepared while the first is in use, takes other memory for both.
      const Picture large(*host, d, 100, 90, stored), out(*host, d, 100, 90, stored);
      large.fill(d, 5);
      std::vector<CommandStream> streams;
      std::vector<VkCommandBuffer> commands;
      std::unique_ptr<PreparedKernel> larger;
      for (uint64_t f = 0; f < kFrames; ++f) {
        CommandStream& s = streams.emplace_back(d);
        const VkCommandBuffer c = commands.emplace_back(host->commands());
        host->begin(c);
        s.begin(c, f);
        s.record(kernel, {{first[f].taken, kGeneral}, {second[f].taken, kFresh}});
        if (f == 1) {
          larger = std::make_unique<PreparedKernel>(d, scale_shaped(large.shape),
                                                    PrepareOptions{.images = {{0, large.taken}, {1, out.taken}}});
          s.record(*larger, {{large.taken, kGeneral}, {out.taken, kFresh}});
        }
        s.record(kernel, {{second[f].taken, kGeneral}, {third[f].taken, kFresh}});
        s.record(kernel, {{third[f].taken, kGeneral}, {first[f].taken, kGeneral}});
        s.end();
      }
      for (const uint64_t f : {2, 0, 1}) host->submit(commands[f]);  // in another order, and none waited for
      host->wait();
      for (uint64_t f = 0; f < kFrames; ++f) {
        const float x = static_cast<float>(f);
        check_all(second[f].taken, 2 * x + 1);
        check_all(third[f].taken, 4 * x + 3);
        check_all(first[f].taken, 8 * x + 7);
      }
      check_all(out.taken, 11);
      d.submit_nothing();
      for (const std::string& r : find_unordered(d.command_log())) FAIL_CHECK(r);
    }
    check_silent(std::move(host));
  }
}

TEST_CASE("a resize to fewer channels, and to a smaller picture") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    const Picture large(*host, d, 6, 5, true), small(*host, d, 4, 3, true);
    for (const Picture* p : {&large, &small}) {
      DeviceArray a(d, p->shape, f32);
      Array values(p->shape, f32);
      for (int64_t e = 0; e < values.size(); ++e) values.data<float>()[static_cast<size_t>(e)] = static_cast<float>(e);
      a.write(values);
      write_image(p->taken, a, kFresh);
    }
    const ir::Kernel k = ir::parse(R"(tir 1
kernel @copied
grid (h, w, c)
in f32[h, w, c] block (squeezed, squeezed, squeezed) map (%i, %j, %k) {
  yield %i, %j, %k
}
out f32[h, w, c] block (squeezed, squeezed, squeezed) map (%i, %j, %k) {
  yield %i, %j, %k
}
body (%x, %o) {
  %a = load %x[]
  store %o[], %a
}
)",
                                   "copied.tir");
    PreparedKernel kernel = load(d, k).prepare({.dims = {{"h", 6}, {"w", 5}, {"c", 4}}, .images = {{0, large.taken}}});
    CommandStream s(d);
    uint64_t frame = 0;
    for (const Picture* p : {&large, &small, &large})
      for (const int64_t channels : {4, 3, 1}) {
        const int64_t h = p->shape[0], w = p->shape[1];
        kernel.resize({{"h", h}, {"w", w}, {"c", channels}});
        const DeviceArray out(d, {h, w, channels}, f32);
        const VkCommandBuffer c = host->commands();
        host->begin(c);
        s.begin(c, frame++);
        s.record(kernel, {{p->taken, kGeneral}, out});
        s.end();
        host->run(c);
        const Array got = out.download();
        for (int64_t e = 0; e < got.size(); ++e)
          CHECK(got.at(e) == static_cast<double>(e / channels * 4 + e % channels));
      }
    CHECK(error_of<SpecError>([&] { kernel.resize({{"c", 0}}); }) ==
          "copied: resize: in_specs[0]: shape (6, 5, 0) has 0 channels but the image of 5 x 6 texels of "
          "VK_FORMAT_R32G32B32A32_SFLOAT has 1 to 4\n  at copied.tir:2");
    // An array as large as before, of fewer channels, is of an image with more texels than there is room for.
    const ir::Kernel divided = ir::parse(R"(tir 1
kernel @divided
grid (1)
in f32[c] block (1) map (%i) { yield %i }
out f32[floordiv(12, c), 5, c] block (squeezed, squeezed, 1) map (%i) { yield %i, %i, %i }
body (%x, %o) {
  %a = load %x[0:1]
  store %o[0:1], %a
  yield
}
)",
                                         "divided.tir");
    const VulkanHost::Image packed =
        host->image(VK_FORMAT_R8G8B8A8_UNORM, VkExtent2D{5, 3}, VK_IMAGE_USAGE_TRANSFER_DST_BIT);
    PreparedKernel written =
        load(d, divided)
            .prepare({.dims = {{"c", 4}},
                      .images = {{1, DeviceImage(d, {packed.handle, packed.format, packed.extent, packed.usage})}}});
    CHECK(error_of<SpecError>([&] { written.resize({{"c", 1}}); }) ==
          "divided: resize: the image of out_specs[0] takes 240 bytes but has been prepared with 60\n  at "
          "divided.tir:2\n  note: prepare the kernel for these sizes");
  }
  check_silent(std::move(host));
}

TEST_CASE("an image is not written from the half word at the end of a host's buffer") {
  auto host = std::make_unique<VulkanHost>(VulkanHostOptions{.all_features = true, .without = {}});
  {
    const Device d = Device::import(host->imported());
    const VulkanHost::Image image = host->image(VK_FORMAT_R8_UNORM, VkExtent2D{3, 1}, VK_IMAGE_USAGE_STORAGE_BIT);
    const DeviceImage to(d, {image.handle, image.format, image.extent, image.usage});
    const VulkanHost::Buffer b = host->buffer(3);
    if (d.target().storage8 && d.target().storage16) {
      const DeviceArray bytes = import_buffer(d, host->range(b), {1, 3}, u8);
      CHECK(
          error_of<SpecError>([&] { write_image(to, bytes, kFresh); }) ==
          "write_image: the array has 3 bytes of the host's VkBuffer, no whole words, and images are written by words\n"
          "  note: write a copy() of it, or import an array of whole words");
      write_image(to, bytes.copy(), kFresh);
      d.wait();
    }
  }
  check_silent(std::move(host));
}

TEST_CASE("a resized kernel takes layers and slices of the new sizes") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    const ir::Kernel k = ir::parse(R"(tir 1
kernel @copied
grid (n, h, w)
in u32[n, h, w] block (squeezed, squeezed, squeezed) map (%i, %j, %k) {
  yield %i, %j, %k
}
out u32[n, h, w] block (squeezed, squeezed, squeezed) map (%i, %j, %k) {
  yield %i, %j, %k
}
body (%x, %o) {
  %a = load %x[]
  store %o[], %a
}
)",
                                   "copied.tir");
    const auto part = [&](uint32_t slices, uint32_t height, uint32_t width, bool solid) {
      const VulkanHost::Image image = host->image(VK_FORMAT_R8G8_UINT, {width, height, solid ? slices : 1}, 1,
                                                  solid ? 1 : slices, kUsage | VK_IMAGE_USAGE_STORAGE_BIT);
      ImportedImage i{image.handle, image.format, image.extent, image.usage};
      if (solid) i.type = VK_IMAGE_TYPE_3D, i.depth = slices;
      else i.layer_count = slices;
      return DeviceImage(d, i);
    };
    for (const bool solid : {false, true}) {
      PreparedKernel kernel = load(d, k).prepare(
          {.dims = {{"n", 4}, {"h", 6}, {"w", 5}}, .images = {{0, part(4, 6, 5, solid)}, {1, part(4, 6, 5, solid)}}});
      CommandStream s(d);
      uint64_t frame = 0;
      for (const Shape& shape : {Shape{2, 6, 3}, Shape{4, 1, 5}, Shape{4, 6, 5}, Shape{3, 5, 4}}) {
        const auto n = static_cast<uint32_t>(shape[0]), h = static_cast<uint32_t>(shape[1]),
                   w = static_cast<uint32_t>(shape[2]);
        const DeviceImage from = part(n, h, w, solid), to = part(n, h, w, solid);
        Array x(shape, u32);
        for (int64_t e = 0; e < x.size(); ++e) x.set_element_bits(e, static_cast<uint64_t>(e) * 2);
        write_image(from, DeviceArray(d, x), kFresh);
        kernel.resize({{"n", shape[0]}, {"h", shape[1]}, {"w", shape[2]}});
        const VkCommandBuffer c = host->commands();
        host->begin(c);
        s.begin(c, frame++);
        s.record(kernel, {{from, kGeneral}, {to, kFresh}});
        s.end();
        host->run(c);
        const Array got = read_image(to, u8, kGeneral).download();
        CHECK(got.shape() == Shape{shape[0], shape[1], shape[2], 2});
        for (int64_t e = 0; e < x.size(); ++e) {
          CHECK(got.at(2 * e) == x.at(e));
          CHECK(got.at(2 * e + 1) == 0);
        }
      }
      const VkCommandBuffer c = host->commands();
      host->begin(c);
      s.begin(c, frame++);
      CHECK(error_of<SpecError>(
                [&] { s.record(kernel, {{part(3, 5, 4, solid), kGeneral}, {part(3, 4, 4, solid), kFresh}}); }) ==
            "copied: out_specs[0]: the kernel has been prepared for the image of 5 x 6 " +
                std::string(solid ? "x 4 texels" : "texels in 4 layers") +
                " of VK_FORMAT_R8G8_UINT, and resized to (3, 5, 4), but is given the image of 4 x 4 " +
                (solid ? "x 3 texels" : "texels in 3 layers") +
                " of VK_FORMAT_R8G8_UINT\n  at copied.tir:2\n  note: images of one argument have the same format, "
                "extent and usage");
      s.end();
      host->run(c);
    }
  }
  check_silent(std::move(host));
}

TEST_CASE("an image that is aliased to another is computed where that was read into") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    const Picture a(*host, d, 20, 30, true), b(*host, d, 20, 30, false);
    a.fill(d, 3);
    Program p = scale_shaped(a.shape);
    p.args[1].alias = 0;
    const int64_t before = d.allocated_bytes();
    PreparedKernel kernel(d, p, {.images = {{0, a.taken}, {1, b.taken}}});
    CHECK(d.allocated_bytes() - before < 3 * a.bytes());  // its array and the texels' bytes; no copy
    const DeviceArray x(d, a.shape, f32), y(d, a.shape, f32);
    PreparedKernel to_array(d, p, {.images = {{0, b.taken}}}), from_array(d, p, {.images = {{1, a.taken}}});
    const VkCommandBuffer c = host->commands();
    CommandStream s(d);
    host->begin(c);
    s.begin(c, 0);
    CHECK(error_of<SpecError>([&] { s.record(to_array, {{a.taken, kGeneral}, y}); }) ==
          "scale: in_specs[0]: the kernel has been prepared for the image of 30 x 20 texels of "
          "VK_FORMAT_R32G32B32A32_SFLOAT but is given the image of 30 x 20 texels of VK_FORMAT_R32G32B32A32_SFLOAT\n"
          "  note: images of one argument have the same format, extent and usage; their usages are 7 and 15");
    s.record(kernel, {{a.taken, kGeneral}, {b.taken, kFresh}});
    s.record(to_array, {{b.taken, kGeneral}, y});
    s.record(from_array, {y, {a.taken, kGeneral}});
    s.end();
    host->run(c);
    check_all(b.taken, 7);
    check_all(a.taken, 31);
    CHECK(y.download().at(0) == 15);
  }
  check_silent(std::move(host));
}

}  // namespace staging_test
