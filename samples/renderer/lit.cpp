// Spheres in the light of one random ray per pixel, drawn by the host into three images: the light, a guide (normals
// and distances), the surfaces' colours. Tessera's kernels read them, smooth the light where the guide says that it
// falls on one surface, colour it, let bright parts bloom, and store what a screen shows into a fourth image.
// clang-format off: what glslang writes includes nothing
#include <algorithm>
#include <cstdint>
#include <renderer_shaders/scene_frag.h>
#include <renderer_shaders/scene_vert.h>
// clang-format on

#include <array>
#include <cmath>

#include "samples/kernels/post_processing.h"
#include "samples/renderer/scenes.h"

namespace renderer {
namespace {

using namespace tessera;
using namespace tessera::kernels;

constexpr int kSpheres = 11, kVertices = 6 * 24 * 48;  // as the shaders have them
constexpr int kPasses = 4, kLevels = 4;                // of the denoiser; of the bloom
constexpr VkFormat kLight = VK_FORMAT_R16G16B16A16_SFLOAT, kGuide = VK_FORMAT_R32G32B32A32_SFLOAT,
                   kSurface = VK_FORMAT_R8G8B8A8_UNORM, kScreen = VK_FORMAT_R8G8B8A8_UNORM,
                   kDepth = VK_FORMAT_D32_SFLOAT;
constexpr double kMost = 12, kThreshold = 1.1, kSpread = 0.9, kBloom = 0.10, kExposure = 0.75;
constexpr Denoise kDenoise = {.color = 0.9, .normal = 48, .depth = 0.02};

struct Vec {
  double x, y, z;
};
Vec operator-(Vec a, Vec b) { return {a.x - b.x, a.y - b.y, a.z - b.z}; }
double dot(Vec a, Vec b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
Vec cross(Vec a, Vec b) { return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x}; }
Vec unit(Vec a) {
  const double l = std::sqrt(dot(a, a));
  return {a.x / l, a.y / l, a.z / l};
}

struct Push {
  float to_clip[16];  // columns
  float eye[4];
  uint32_t frame[4];
};
Push camera(uint64_t frame, VkExtent2D size) {
  const double t = static_cast<double>(frame) / 30, turn = 0.6 + 0.15 * t;
  const Vec eye{7.2 * std::cos(turn), 3.1, 7.2 * std::sin(turn)},
      forward = unit(Vec{0, 0.6, 0} - eye), right = unit(cross(forward, {0, 1, 0})), up = cross(right, forward);
  const double near = 0.1, far = 60, scale = 1.6, aspect = static_cast<double>(size.width) / size.height;
  // Rows of the view, then of the perspective; y points down in Vulkan's clip space, depths go from 0 to 1.
  const double rows[4][4] = {
      {scale / aspect * right.x, scale / aspect * right.y, scale / aspect * right.z, -scale / aspect * dot(right, eye)},
      {-scale * up.x, -scale * up.y, -scale * up.z, scale * dot(up, eye)},
      {far / (far - near) * forward.x, far / (far - near) * forward.y, far / (far - near) * forward.z,
       -far / (far - near) * (dot(forward, eye) + near)},
      {forward.x, forward.y, forward.z, -dot(forward, eye)}};
  Push p = {{},
            {static_cast<float>(eye.x), static_cast<float>(eye.y), static_cast<float>(eye.z), static_cast<float>(t)},
            {static_cast<uint32_t>(frame), kSpheres, 0, 0}};
  for (size_t r = 0; r < 4; ++r)
    for (size_t c = 0; c < 4; ++c) p.to_clip[4 * c + r] = static_cast<float>(rows[r][c]);
  return p;
}

class Lit : public CheckedScene {
 public:
  Lit(Host& host, const Device& device, LitOptions o) : host_(host), device_(device), options_(o), stream_(device) {
    pipeline_ = host.make_pipeline({.vertex = scene_vert,
                                    .vertex_bytes = sizeof scene_vert,
                                    .fragment = scene_frag,
                                    .fragment_bytes = sizeof scene_frag,
                                    .colors = {kLight, kGuide, kSurface},
                                    .depth = kDepth,
                                    .push_bytes = sizeof(Push)});
    limit_ = load(limit_light(kMost));
    for (int i = 0; i < kPasses; ++i) smooth_.push_back(load(denoise(1 << i, kDenoise)));
    color_ = load(modulate());
    bright_ = load(bloom_down(kThreshold));
    down_ = load(bloom_down(0));
    up_ = load(bloom_up(kSpread));
    add_ = load(bloom_up(kBloom));
    tone_ = load(tone_map(kExposure));
  }

  void resize(VkExtent2D size) override {
    constexpr VkImageUsageFlags drawn = VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT | VK_IMAGE_USAGE_SAMPLED_BIT;
    images_.reset();
    light_ = host_.make_image(size, kLight, drawn);
    guide_ = host_.make_image(size, kGuide, drawn);
    surface_ = host_.make_image(size, kSurface, drawn);
    depth_ = host_.make_image(size, kDepth, VK_IMAGE_USAGE_DEPTH_STENCIL_ATTACHMENT_BIT);
    screen_ = host_.make_image(
        size, kScreen, VK_IMAGE_USAGE_STORAGE_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT | VK_IMAGE_USAGE_SAMPLED_BIT);
    images_ = std::make_unique<Sized>(*this, size);
  }

  Result draw(VkCommandBuffer commands, uint64_t frame) override {
    Sized& s = *images_;
    draw_spheres(commands, frame);
    constexpr ImageLayouts read{VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL, VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL},
        stored{VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL};
    stream_.begin(commands, frame);
    if (options_.raw) {
      stream_.record(s.color_raw->prepared, {Argument(s.light, read), Argument(s.surface, read), s.pictures[1]});
    } else {
      stream_.record(s.limit->prepared, {Argument(s.light, read), Argument(s.guide, read), s.pictures[0], s.guides});
      for (size_t i = 0; i < kPasses; ++i)
        stream_.record(s.smooth[i]->prepared, {s.sizes[0], s.pictures[i % 2], s.guides, s.pictures[(i + 1) % 2]});
      static_assert(kPasses % 2 == 0, "the smooth light is pictures[0]");
      stream_.record(s.color->prepared, {s.pictures[0], Argument(s.surface, read), s.colored});
      stream_.record(s.down[0]->prepared, {s.sizes[0], s.colored, s.levels[1]});
      for (size_t i = 1; i < kLevels; ++i)
        stream_.record(s.down[i]->prepared, {s.sizes[i], s.levels[i], s.levels[i + 1]});
      for (size_t i = kLevels; i > 1; --i)
        stream_.record(s.up[i - 1]->prepared,
                       {s.sizes[i], i == kLevels ? s.levels[i] : s.sums[i], s.levels[i - 1], s.sums[i - 1]});
      stream_.record(s.up[0]->prepared, {s.sizes[1], s.sums[1], s.colored, s.pictures[1]});
    }
    stream_.record(s.tone->prepared, {s.pictures[1], Argument(s.screen, stored)});
    const Scopes made = stream_.end();
    return {&screen_, made.signal_stages, made.signal_accesses};
  }

  double check(uint64_t) override {
    constexpr ImageLayouts read{VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL, VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL},
        screen{VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL};
    const Sized& s = *images_;
    Array picture = read_image(s.light, f32, read).download();
    const Array guide = read_image(s.guide, f32, read).download(),
                surface = read_image(s.surface, f32, read).download();
    const auto size = [](const Array& a) {
      return Array({2}, std::vector<int32_t>{static_cast<int32_t>(a.shape()[0]), static_cast<int32_t>(a.shape()[1])});
    };
    if (!options_.raw) {
      picture = interpret(limit_light(kMost), picture, guide)[0];
      for (int i = 0; i < kPasses; ++i) picture = interpret(denoise(1 << i, kDenoise), size(picture), picture, guide);
    }
    picture = interpret(modulate(), picture, surface);
    if (!options_.raw) {
      std::vector<Array> levels = {picture};
      for (int i = 0; i < kLevels; ++i)
        levels.push_back(interpret(bloom_down(i ? 0 : kThreshold), size(levels.back()), levels.back()));
      for (size_t i = kLevels; i > 0; --i)
        levels[i - 1] = interpret(bloom_up(i > 1 ? kSpread : kBloom), size(levels[i]), levels[i], levels[i - 1]);
      picture = levels[0];
    }
    picture = interpret(tone_map(kExposure), picture);
    for (float& x : picture.data<float>()) x = std::round(255 * x) / 255;
    // A level of 255 more or less is rounding's.
    return std::max(0.0, worst(read_image(s.screen, f32, screen).download(), picture) - 1.01 / 255);
  }

 private:
  // What depends on the size of the pictures.
  struct Sized {
    DeviceImage light, guide, surface, screen;
    std::vector<DeviceArray> sizes;  // h and w of each level
    DeviceArray pictures[2], guides, colored;
    std::vector<DeviceArray> levels, sums;  // [0] is unused
    std::unique_ptr<Prepared> limit, color, color_raw, tone;
    std::vector<std::unique_ptr<Prepared>> smooth, down, up;

    Sized(Lit& lit, VkExtent2D extent)
        : light(lit.device_, imported(lit.light_)),
          guide(lit.device_, imported(lit.guide_)),
          surface(lit.device_, imported(lit.surface_)),
          screen(lit.device_, imported(lit.screen_)) {
      const auto array = [&](int64_t h, int64_t w) { return DeviceArray(lit.device_, Shape{h, w, 4}, f32); };
      int64_t h = extent.height, w = extent.width;
      for (DeviceArray& p : pictures) p = array(h, w);
      guides = array(h, w);
      colored = array(h, w);
      const auto prepare = [](const std::optional<CompiledKernel>& k, int64_t rows, int64_t columns,
                              std::vector<PrepareOptions::Image> images = {}) {
        return std::make_unique<Prepared>(*k, 1, DimValues{{"h", rows}, {"w", columns}}, std::move(images));
      };
      limit = prepare(lit.limit_, h, w, {{0, light}, {1, guide}});
      tone = prepare(lit.tone_, h, w, {{1, screen}});
      color = prepare(lit.color_, h, w, {{1, surface}});
      color_raw = prepare(lit.color_, h, w, {{0, light}, {1, surface}});
      for (const auto& k : lit.smooth_) smooth.push_back(prepare(k, h, w));
      for (size_t i = 0; i <= kLevels; ++i) {
        sizes.emplace_back(lit.device_,
                           Array({2}, std::vector<int32_t>{static_cast<int32_t>(h), static_cast<int32_t>(w)}));
        levels.push_back(i ? array(h, w) : DeviceArray());
        sums.push_back(i ? array(h, w) : DeviceArray());
        if (i == kLevels) break;
        down.push_back(prepare(i ? lit.down_ : lit.bright_, h, w));
        up.push_back(prepare(i ? lit.up_ : lit.add_, h, w));
        h = (h + 1) / 2, w = (w + 1) / 2;
      }
    }
    static ImportedImage imported(const Image& i) {
      return {.image = i.image, .format = i.format, .extent = i.size, .usage = i.usage};
    }
  };

  std::optional<CompiledKernel> load(const PallasCall& call) { return tessera::load(device_, call.trace()); }

  void draw_spheres(VkCommandBuffer commands, uint64_t frame) {
    // The kernels of the last frame have read what this one draws over.
    constexpr Scope color{VK_PIPELINE_STAGE_2_COLOR_ATTACHMENT_OUTPUT_BIT, VK_ACCESS_2_COLOR_ATTACHMENT_WRITE_BIT};
    constexpr Scope tests{
        VK_PIPELINE_STAGE_2_EARLY_FRAGMENT_TESTS_BIT | VK_PIPELINE_STAGE_2_LATE_FRAGMENT_TESTS_BIT,
        VK_ACCESS_2_DEPTH_STENCIL_ATTACHMENT_READ_BIT | VK_ACCESS_2_DEPTH_STENCIL_ATTACHMENT_WRITE_BIT};
    for (const Image* i : {&light_, &guide_, &surface_})
      image_barrier(commands, *i, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL,
                    {VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT, 0}, color);
    image_barrier(commands, depth_, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_DEPTH_ATTACHMENT_OPTIMAL, tests, tests);
    begin_rendering(commands, light_.size,
                    {{light_.view, VK_ATTACHMENT_LOAD_OP_CLEAR, {{0.10f, 0.14f, 0.24f, 1}}},
                     {guide_.view, VK_ATTACHMENT_LOAD_OP_CLEAR},
                     {surface_.view, VK_ATTACHMENT_LOAD_OP_CLEAR, {{1, 1, 1, 1}}}},
                    depth_.view);
    const Push push = camera(frame, light_.size);
    vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_GRAPHICS, pipeline_.pipeline);
    vkCmdPushConstants(commands, pipeline_.layout, VK_SHADER_STAGE_VERTEX_BIT | VK_SHADER_STAGE_FRAGMENT_BIT, 0,
                       sizeof push, &push);
    vkCmdDraw(commands, kVertices, kSpheres + 1, 0, 0);
    vkCmdEndRendering(commands);
    const Scopes first = (options_.raw ? images_->color_raw : images_->limit)->prepared.scopes();
    for (const Image* i : {&light_, &guide_, &surface_})
      image_barrier(commands, *i, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL, VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL,
                    color, {first.wait_stages, first.wait_accesses});
    // What the host has read of the screen's image in the last frame, the kernels store over.
    memory_barrier(commands, {VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT, 0}, {first.wait_stages, 0});
  }

  Host& host_;
  Device device_;
  LitOptions options_;
  CommandStream stream_;
  Host::Pipeline pipeline_;
  std::optional<CompiledKernel> limit_, color_, bright_, down_, up_, add_, tone_;
  std::vector<std::optional<CompiledKernel>> smooth_;
  Image light_, guide_, surface_, depth_, screen_;
  std::unique_ptr<Sized> images_;  // after the images, which it refers to
};

}  // namespace

std::unique_ptr<CheckedScene> make_lit(Host& host, const tessera::Device& device, LitOptions options) {
  return std::make_unique<Lit>(host, device, options);
}

}  // namespace renderer
