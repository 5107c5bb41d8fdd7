// A hall of columns, arches, cloth and leaves, drawn by the host into surfaces, normals, distances and motions, and lit
// by one random ray of each kind per pixel; what Tessera's kernels make of it is in hall_passes.h. All is in one
// command buffer per frame. The lighting's rays see what kernels have left in a buffer in the frame before.
// clang-format off: what glslang writes includes nothing
#include <algorithm>
#include <cstdint>
#include <renderer_shaders/dye_vert.h>
#include <renderer_shaders/hall_frag.h>
#include <renderer_shaders/hall_light_frag.h>
#include <renderer_shaders/hall_shadow_vert.h>
#include <renderer_shaders/hall_vert.h>
// clang-format on

#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "samples/renderer/hall_passes.h"
#include "samples/renderer/mesh.h"
#include "samples/renderer/overlay.h"
#include "samples/renderer/vec.h"

namespace renderer {
namespace {

constexpr VkFormat kLightFormat = VK_FORMAT_R16G16B16A16_SFLOAT, kFloats = VK_FORMAT_R32G32B32A32_SFLOAT,
                   kColors = VK_FORMAT_R8G8B8A8_UNORM, kDepths = VK_FORMAT_D32_SFLOAT;
constexpr Scope kColorWrites{VK_PIPELINE_STAGE_2_COLOR_ATTACHMENT_OUTPUT_BIT, VK_ACCESS_2_COLOR_ATTACHMENT_WRITE_BIT},
    kDepthTests{VK_PIPELINE_STAGE_2_EARLY_FRAGMENT_TESTS_BIT | VK_PIPELINE_STAGE_2_LATE_FRAGMENT_TESTS_BIT,
                VK_ACCESS_2_DEPTH_STENCIL_ATTACHMENT_READ_BIT | VK_ACCESS_2_DEPTH_STENCIL_ATTACHMENT_WRITE_BIT},
    kSampled{VK_PIPELINE_STAGE_2_FRAGMENT_SHADER_BIT, VK_ACCESS_2_SHADER_SAMPLED_READ_BIT};

struct Matrix {
  double m[4][4];  // rows
};
/// Of what looks from `eye` along `forward`: x to the right, y down, depths from 0 to 1. `across`, `down`: what is 1 of
/// the clip space; `flat`: without a perspective.
struct View {
  Vec eye, forward, right, up;
  View(Vec from, Vec to)
      : eye(from), forward(unit(to - from)), right(unit(cross(forward, {0, 1, 0}))), up(cross(right, forward)) {}
  Matrix perspective(double half_w, double half_h) const {
    const double near = 0.1, far = 80, z = far / (far - near);
    return rows(right * (1 / half_w), up * (-1 / half_h), forward * z, -z * near, forward);
  }
  Matrix flat(double half, double near, double far) const {
    Matrix m = rows(right * (1 / half), up * (-1 / half), forward * (1 / (far - near)), -near / (far - near), {});
    m.m[3][3] = 1;
    return m;
  }

 private:
  Matrix rows(Vec x, Vec y, Vec z, double z_more, Vec w) const {
    return {{{x.x, x.y, x.z, -dot(x, eye)},
             {y.x, y.y, y.z, -dot(y, eye)},
             {z.x, z.y, z.z, z_more - dot(z, eye)},
             {w.x, w.y, w.z, -dot(w, eye)}}};
  }
};

/// hall.glsl's.
struct FrameNumbers {
  float to_clip[16], to_clip_before[16], to_sun[16];
  float eye[4], eye_before[4], right[4], up[4], forward[4], sun[4], size[4];
  uint32_t frame[4];
  VkDeviceAddress picture;
};
void set(float (&to)[16], const Matrix& m) {
  for (size_t r = 0; r < 4; ++r)
    for (size_t c = 0; c < 4; ++c) to[4 * c + r] = static_cast<float>(m.m[r][c]);
}
void set(float (&to)[4], Vec v, double w) {
  const double all[] = {v.x, v.y, v.z, w};
  for (size_t i = 0; i < 4; ++i) to[i] = static_cast<float>(all[i]);
}

constexpr double kShift[2] = {0.7548776662, 0.5698402910};  // the R2 sequence (Roberts, 2018)
View camera(double time) {
  const Vec eye{1.15 * std::sin(0.31 * time + 0.5), 1.72 + 0.12 * std::sin(0.23 * time), 8.6 - 0.18 * time};
  return View(eye, Vec{-0.25 + 0.35 * std::sin(0.17 * time), 2.05, -4});
}

FrameNumbers numbers(uint64_t frame, VkExtent2D size, bool goes_on) {
  FrameNumbers f = {};
  const double now = static_cast<double>(frame) / 30, then = frame ? now - 1.0 / 30 : now;
  const double half_h = 0.62, half_w = half_h * size.width / size.height;
  const View view = camera(now), before = camera(then);
  const Vec sun = unit({0.62, 0.62, 0.34}), middle{0, 2, -3};
  set(f.to_clip, view.perspective(half_w, half_h));
  set(f.to_clip_before, before.perspective(half_w, half_h));
  set(f.to_sun, View(middle + sun * 20, middle).flat(22, 0, 40));
  set(f.eye, view.eye, now), set(f.eye_before, before.eye, then);
  set(f.right, view.right, half_w), set(f.up, view.up, half_h), set(f.forward, view.forward, 0);
  set(f.sun, sun, 0.012);
  const double n = static_cast<double>(frame % 1024 + 1);
  f.size[0] = static_cast<float>(size.width), f.size[1] = static_cast<float>(size.height);
  for (size_t i = 0; i < 2; ++i) f.size[2 + i] = static_cast<float>(std::fmod(kShift[i] * n, 1.0) - 0.5);
  f.frame[0] = static_cast<uint32_t>(frame), f.frame[1] = goes_on;
  return f;
}

class Hall : public CheckedScene {
 public:
  Hall(Host& host, const tessera::Device& device, HallOptions o)
      : host_(host),
        options_(o),
        timer_(host),
        textures_(host.make_textures(4)),
        passes_(host, device, o.raw, o.upscale > 1) {
    make_vertices(make_hall(o.detail));
    Host::PipelineInfo info{.vertex = hall_vert,
                            .vertex_bytes = sizeof hall_vert,
                            .fragment = hall_frag,
                            .fragment_bytes = sizeof hall_frag,
                            .colors = {kColors, kFloats, kFloats},
                            .depth = kDepths,
                            .push_bytes = sizeof(VkDeviceAddress),
                            .attributes = {kFloats, kFloats, kFloats},
                            .stride = 4 * Mesh::kFloats};
    surfaces_ = host.make_pipeline(info);
    info.vertex = hall_shadow_vert, info.vertex_bytes = sizeof hall_shadow_vert;
    info.fragment = nullptr, info.colors = {}, info.depth_slope = 1.5f;
    shadows_ = host.make_pipeline(info);
    lights_ = host.make_pipeline({.vertex = dye_vert,
                                  .vertex_bytes = sizeof dye_vert,
                                  .fragment = hall_light_frag,
                                  .fragment_bytes = sizeof hall_light_frag,
                                  .colors = {kLightFormat, kLightFormat},
                                  .push_bytes = sizeof(VkDeviceAddress),
                                  .textures = textures_.layout});
    for (Buffer& b : numbers_)
      b = host.make_buffer(sizeof(FrameNumbers),
                           VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT | VK_BUFFER_USAGE_STORAGE_BUFFER_BIT, true);
  }

  void resize(VkExtent2D shown) override {
    const uint32_t by = options_.upscale;
    const VkExtent2D size = {(shown.width + by - 1) / by, (shown.height + by - 1) / by};
    constexpr VkImageUsageFlags drawn = VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT | VK_IMAGE_USAGE_SAMPLED_BIT;
    Images next;
    next.light = host_.make_image(size, kLightFormat, drawn), next.gloss = host_.make_image(size, kLightFormat, drawn);
    next.guide = host_.make_image(size, kFloats, drawn), next.motion = host_.make_image(size, kFloats, drawn);
    next.surface = host_.make_image(size, kColors, drawn);
    next.depth = host_.make_image(size, kDepths, VK_IMAGE_USAGE_DEPTH_STENCIL_ATTACHMENT_BIT);
    const uint32_t side = options_.detail < 0.5 ? 512 : 2048;
    next.shadow = host_.make_image({side, side}, kDepths,
                                   VK_IMAGE_USAGE_DEPTH_STENCIL_ATTACHMENT_BIT | VK_IMAGE_USAGE_SAMPLED_BIT);
    next.screen = host_.make_image({by * size.width, by * size.height}, kColors,
                                   VK_IMAGE_USAGE_STORAGE_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT |
                                       VK_IMAGE_USAGE_TRANSFER_DST_BIT | VK_IMAGE_USAGE_SAMPLED_BIT);
    host_.set_textures(textures_, {&next.guide, &next.surface, &next.motion, &next.shadow});
    passes_.resize({&next.light, &next.gloss, &next.guide, &next.surface, &next.motion, &next.screen});
    images_ = std::move(next);
    first_ = true;
  }

  Result draw(VkCommandBuffer commands, uint64_t frame) override {
    const tessera::Scopes first = passes_.scopes();
    const Buffer& b = numbers_[frame % Host::kFramesInFlight];
    FrameNumbers f = numbers(drawn_++, images_.light.size, !first_);
    f.picture = address(passes_.picture());
    std::memcpy(b.mapped, &f, sizeof f);
    timer_.begin(commands, frame);
    if (!begun_) begun_ = frame;
    if (frame >= *begun_ + Host::kFramesInFlight) times_ = passes_.times(frame - Host::kFramesInFlight);
    timer_.start(commands, "sun's depths");
    draw_shadows(commands, address(b.buffer));
    timer_.stop(commands), timer_.start(commands, "surfaces");
    draw_surfaces(commands, address(b.buffer));
    timer_.stop(commands), timer_.start(commands, "one ray each");
    draw_light(commands, address(b.buffer));
    timer_.stop(commands);
    // What the host's shaders have read, and what it has read of the screen's image in the last frame, is overwritten.
    memory_barrier(commands, {VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT | VK_PIPELINE_STAGE_2_FRAGMENT_SHADER_BIT, 0},
                   {first.wait_stages | VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT, 0});
    for (const Image* i : {&images_.light, &images_.gloss})
      image_barrier(commands, *i, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL, VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL,
                    kColorWrites, {first.wait_stages, first.wait_accesses});
    made_ = passes_.record(commands, frame);
    if (options_.by_hand && !options_.raw) {
      timer_.start(commands, "temporal_smooth_16 by hand");  // before the barrier: CPU drivers write times late
      memory_barrier(commands, {made_.signal_stages, made_.signal_accesses},
                     {VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT,
                      VK_ACCESS_2_SHADER_STORAGE_READ_BIT | VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT});
      passes_.record_by_hand(commands);
      timer_.stop(commands);
    }
    first_ = false;
    return {&images_.screen, made_.signal_stages, made_.signal_accesses};
  }

  double check(uint64_t) override { return passes_.check(); }

  std::vector<std::string> words() const override {
    std::vector<std::string> lines;
    char text[80];
    const auto add = [&](const std::string& name, double ms) {
      std::snprintf(text, sizeof text, "%-28s%8.2f ms", name.c_str(), ms);
      lines.emplace_back(text);
    };
    std::snprintf(text, sizeof text, "%u triangles", triangles_);
    lines.emplace_back(text);
    lines.emplace_back("host:");
    for (const Timer::Time& t : timer_.times())
      if (t.name.find("by hand") == std::string::npos) add("  " + t.name, t.milliseconds);
    lines.emplace_back("tessera:");
    std::vector<std::pair<std::string, double>> sums;  // kernels of one name together, but for the a-trous passes
    for (const auto& [name, ms] : times_) {
      const auto at = std::find_if(sums.begin(), sums.end(), [&, n = name](const auto& s) { return s.first == n; });
      if (at == sums.end()) sums.emplace_back(name, ms);
      else at->second += ms;
    }
    for (const auto& [name, ms] : sums) add("  " + name, ms);
    for (const Timer::Time& t : timer_.times())
      if (t.name.find("by hand") != std::string::npos) {
        lines.emplace_back("GLSL:");
        add("  " + t.name, t.milliseconds);
      }
    return lines;
  }

 private:
  struct Images {
    Image light, gloss, guide, surface, motion, depth, shadow, screen;
  };

  void make_vertices(const Mesh& mesh) {
    triangles_ = static_cast<uint32_t>(mesh.indices.size() / 3);
    const auto fill = [&](Buffer& b, const void* from, size_t bytes, VkBufferUsageFlags usage) {
      b = host_.make_buffer(bytes, usage, true);
      std::memcpy(b.mapped, from, bytes);
    };
    fill(vertices_, mesh.vertices.data(), mesh.vertices.size() * 4, VK_BUFFER_USAGE_VERTEX_BUFFER_BIT);
    fill(indices_, mesh.indices.data(), mesh.indices.size() * 4, VK_BUFFER_USAGE_INDEX_BUFFER_BIT);
  }
  VkDeviceAddress address(VkBuffer b) const {
    const VkBufferDeviceAddressInfo info{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, nullptr, b};
    return vkGetBufferDeviceAddress(host_.device(), &info);
  }
  void draw_mesh(VkCommandBuffer commands, const Host::Pipeline& p, VkDeviceAddress numbers) {
    push(commands, p, numbers);
    const VkBuffer vertices = vertices_.buffer;
    const VkDeviceSize start = 0;
    vkCmdBindVertexBuffers(commands, 0, 1, &vertices, &start);
    vkCmdBindIndexBuffer(commands, indices_.buffer, 0, VK_INDEX_TYPE_UINT32);
    vkCmdDrawIndexed(commands, 3 * triangles_, 1, 0, 0, 0);
  }
  static void push(VkCommandBuffer commands, const Host::Pipeline& p, VkDeviceAddress numbers) {
    vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_GRAPHICS, p.pipeline);
    vkCmdPushConstants(commands, p.layout, VK_SHADER_STAGE_VERTEX_BIT | VK_SHADER_STAGE_FRAGMENT_BIT, 0, sizeof numbers,
                       &numbers);
  }

  void draw_shadows(VkCommandBuffer commands, VkDeviceAddress numbers) {
    image_barrier(commands, images_.shadow, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_DEPTH_ATTACHMENT_OPTIMAL,
                  {kSampled.stages | kDepthTests.stages, kDepthTests.accesses}, kDepthTests);
    begin_rendering(commands, images_.shadow.size, {}, images_.shadow.view, VK_ATTACHMENT_STORE_OP_STORE);
    draw_mesh(commands, shadows_, numbers);
    vkCmdEndRendering(commands);
    image_barrier(commands, images_.shadow, VK_IMAGE_LAYOUT_DEPTH_ATTACHMENT_OPTIMAL,
                  VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL, kDepthTests, kSampled);
  }
  void draw_surfaces(VkCommandBuffer commands, VkDeviceAddress numbers) {
    // The lighting and the kernels of the last frame have read what this one draws over.
    for (const Image* i : {&images_.surface, &images_.guide, &images_.motion})
      image_barrier(commands, *i, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL,
                    {VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT | kSampled.stages, 0}, kColorWrites);
    image_barrier(commands, images_.depth, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_DEPTH_ATTACHMENT_OPTIMAL,
                  kDepthTests, kDepthTests);
    begin_rendering(commands, images_.surface.size,
                    {{images_.surface.view, VK_ATTACHMENT_LOAD_OP_CLEAR, {{1, 1, 1, 0}}},
                     {images_.guide.view, VK_ATTACHMENT_LOAD_OP_CLEAR},
                     {images_.motion.view, VK_ATTACHMENT_LOAD_OP_CLEAR}},
                    images_.depth.view);
    draw_mesh(commands, surfaces_, numbers);
    vkCmdEndRendering(commands);
    constexpr Scope read{kSampled.stages | VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT, kSampled.accesses};
    for (const Image* i : {&images_.surface, &images_.guide, &images_.motion})
      image_barrier(commands, *i, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL, VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL,
                    kColorWrites, read);
  }
  void draw_light(VkCommandBuffer commands, VkDeviceAddress numbers) {
    for (const Image* i : {&images_.light, &images_.gloss})
      image_barrier(commands, *i, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL,
                    {VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT, 0}, kColorWrites);
    // The picture of the frame before, by its kernels.
    memory_barrier(commands, {made_.signal_stages, made_.signal_accesses},
                   {VK_PIPELINE_STAGE_2_FRAGMENT_SHADER_BIT, VK_ACCESS_2_SHADER_STORAGE_READ_BIT});
    begin_rendering(
        commands, images_.light.size,
        {{images_.light.view, VK_ATTACHMENT_LOAD_OP_DONT_CARE}, {images_.gloss.view, VK_ATTACHMENT_LOAD_OP_DONT_CARE}});
    push(commands, lights_, numbers);
    vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_GRAPHICS, lights_.layout, 0, 1, &textures_.set, 0,
                            nullptr);
    vkCmdDraw(commands, 3, 1, 0, 0);
    vkCmdEndRendering(commands);
  }

  Host& host_;
  HallOptions options_;
  Timer timer_;
  Host::Textures textures_;
  Host::Pipeline surfaces_, shadows_, lights_;
  Buffer vertices_, indices_, numbers_[Host::kFramesInFlight];
  uint32_t triangles_ = 0;
  Images images_;
  HallPasses passes_;  // after the images, which it refers to
  tessera::Scopes made_ = {};
  bool first_ = true;
  uint64_t drawn_ = 0;
  std::optional<uint64_t> begun_;  // the first frame
  std::vector<std::pair<std::string, double>> times_;
};

}  // namespace

std::unique_ptr<CheckedScene> make_hall_scene(Host& host, const tessera::Device& device, HallOptions options) {
  return std::make_unique<Hall>(host, device, options);
}

}  // namespace renderer
