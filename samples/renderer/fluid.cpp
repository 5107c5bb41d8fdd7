// A fluid and the particles in it (samples/kernels/stable_fluids.h), drawn by the host: dye by a triangle over the
// whole picture whose fragments read the array where it lies, particles as points whose vertices are the rows of
// another array. All arrays that the host's shaders see are buffers of the host.
// clang-format off: what glslang writes includes nothing
#include <algorithm>
#include <cstdint>
#include <renderer_shaders/dye_frag.h>
#include <renderer_shaders/dye_vert.h>
#include <renderer_shaders/particles_frag.h>
#include <renderer_shaders/particles_vert.h>
// clang-format on

#include <cmath>
#include <cstring>
#include <utility>

#include "samples/kernels/stable_fluids.h"
#include "samples/renderer/scenes.h"

namespace renderer {
namespace {

using namespace tessera;
using namespace tessera::kernels;

constexpr int kIterations = 40;  // of the pressure; even, so that it ends where it began
constexpr VkFormat kFormat = VK_FORMAT_R8G8B8A8_UNORM;
constexpr double kKept = 0.995;  // of the dye, per step

// What stirs the fluid in a frame: two jets that go round, each a row of fluid_add's sources.
struct Jets {
  std::array<float, 10> forces;  // 2 x (row, column, radius, force along rows, along columns)
  std::array<float, 12> dye;     // 2 x (row, column, radius, red, green, blue)
};
Jets jets(uint64_t frame, int64_t h, int64_t w) {
  Jets j;
  const double t = static_cast<double>(frame) / 60, side = static_cast<double>(std::min(h, w));
  for (size_t k = 0; k < 2; ++k) {
    const double turn = 6.2831853 * k / 2 + 0.9 * t, along = turn + 1.9 + 0.5 * std::sin(2.3 * t);
    const double row = static_cast<double>(h) / 2 + 0.28 * side * std::sin(turn),
                 column = static_cast<double>(w) / 2 + 0.28 * side * std::cos(turn);
    const double force = 0.0030 * side, radius = 0.035 * side;
    const double f[] = {row, column, radius, force * std::sin(along), force * std::cos(along)};
    std::copy(f, f + 5, j.forces.begin() + 5 * static_cast<std::ptrdiff_t>(k));
    double d[6] = {row, column, radius};
    for (int c = 0; c < 3; ++c)
      d[3 + c] = 0.09 * (0.5 + 0.5 * std::cos(6.2831853 * (0.07 * t + 0.45 * static_cast<double>(k) + c / 3.0)));
    std::copy(d, d + 6, j.dye.begin() + 6 * static_cast<std::ptrdiff_t>(k));
  }
  return j;
}

Array starting_particles(int64_t h, int64_t w, int64_t n) {
  Array a({n, 4}, f32);
  const auto p = a.data<float>();
  for (int64_t i = 0; i < n; ++i) {  // the R2 sequence (Roberts, 2018): evenly over the grid
    const auto k = static_cast<size_t>(4 * i);
    p[k] = static_cast<float>(std::fmod(0.7548776662 * static_cast<double>(i), 1.0) * static_cast<double>(h - 1));
    p[k + 1] = static_cast<float>(std::fmod(0.5698402910 * static_cast<double>(i), 1.0) * static_cast<double>(w - 1));
    p[k + 3] = static_cast<float>((i * 7919) % 400);
  }
  return a;
}

class Fluid : public CheckedScene {
 public:
  Fluid(Host& host, const Device& device, FluidOptions o)
      : host_(host),
        h_(o.rows),
        w_(o.columns),
        n_(o.particles),
        add_force_(load(device, fluid_add(2, h_, w_, 2).trace()), 1),
        add_dye_(load(device, fluid_add(3, h_, w_, 2).trace()), 1),
        advect_velocity_(load(device, fluid_advect(2, h_, w_).trace()), 1),
        advect_dye_(load(device, fluid_advect(3, h_, w_, 1, kKept).trace()), 1),
        divergence_(load(device, fluid_divergence(h_, w_).trace()), 1),
        pressure_(load(device, fluid_pressure(h_, w_).trace()), kIterations),
        project_(load(device, fluid_project(h_, w_).trace()), 1),
        move_(load(device, fluid_particles(h_, w_, n_).trace()), 1),
        stream_(device) {
    constexpr VkBufferUsageFlags shared = VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                                          VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                          VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    const auto array = [&](Buffer& b, Shape shape, VkBufferUsageFlags usage) {
      b = host.make_buffer(static_cast<VkDeviceSize>(num_elements(shape)) * 4, shared | usage);
      DeviceArray a = import_buffer(device, {.buffer = b.buffer, .size = b.size, .usage = b.usage}, shape, f32);
      a.write(Array(shape, f32));
      return a;
    };
    for (size_t i = 0; i < 2; ++i) {
      velocity_[i] = DeviceArray(device, Array({2, h_, w_}, f32));
      pressures_[i] = DeviceArray(device, Array({1, h_, w_}, f32));
      dye_[i] = array(dye_buffer_[i], {3, h_, w_}, 0);
    }
    outflow_ = DeviceArray(device, Array({1, h_, w_}, f32));
    forces_ = array(force_buffer_, {2, 5}, 0);
    colors_ = array(color_buffer_, {2, 6}, 0);
    particles_ = array(particle_buffer_, {n_, 4}, VK_BUFFER_USAGE_VERTEX_BUFFER_BIT);
    particles_.write(starting_particles(h_, w_, n_));
    device.wait();
    dye_pipeline_ = host.make_pipeline({.vertex = dye_vert,
                                        .vertex_bytes = sizeof dye_vert,
                                        .fragment = dye_frag,
                                        .fragment_bytes = sizeof dye_frag,
                                        .colors = {kFormat},
                                        .push_bytes = sizeof(DyePush)});
    particle_pipeline_ = host.make_pipeline({.vertex = particles_vert,
                                             .vertex_bytes = sizeof particles_vert,
                                             .fragment = particles_frag,
                                             .fragment_bytes = sizeof particles_frag,
                                             .colors = {kFormat},
                                             .push_bytes = sizeof(ParticlePush),
                                             .topology = VK_PRIMITIVE_TOPOLOGY_POINT_LIST,
                                             .attributes = {VK_FORMAT_R32G32B32A32_SFLOAT},
                                             .stride = 16,
                                             .add = true});
  }

  void resize(VkExtent2D size) override {
    picture_ = host_.make_image(
        size, kFormat,
        VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT);
  }

  Result draw(VkCommandBuffer commands, uint64_t frame) override {
    // What the host's own commands of the last frame read, this one overwrites; and the jets, which its kernels read.
    const Jets j = jets(frame, h_, w_);
    const Scopes first = add_force_.prepared.scopes();
    constexpr Scope updated{VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT, VK_ACCESS_2_TRANSFER_WRITE_BIT};
    memory_barrier(commands,
                   {VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_2_VERTEX_ATTRIBUTE_INPUT_BIT |
                        VK_PIPELINE_STAGE_2_FRAGMENT_SHADER_BIT,
                    0},
                   {updated.stages | VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT, updated.accesses});
    vkCmdUpdateBuffer(commands, force_buffer_.buffer, 0, sizeof j.forces, j.forces.data());
    vkCmdUpdateBuffer(commands, color_buffer_.buffer, 0, sizeof j.dye, j.dye.data());
    memory_barrier(commands, updated, {first.wait_stages, first.wait_accesses});

    stream_.begin(commands, frame);
    stream_.record(add_force_.prepared, {velocity_[0], forces_, velocity_[0]});
    stream_.record(add_dye_.prepared, {dye_[0], colors_, dye_[0]});
    stream_.record(advect_velocity_.prepared, {velocity_[0], velocity_[0], velocity_[1]});
    stream_.record(divergence_.prepared, {velocity_[1], outflow_});
    for (size_t i = 0; i < kIterations; ++i)
      stream_.record(pressure_.prepared, {pressures_[i % 2], outflow_, pressures_[(i + 1) % 2]});
    stream_.record(project_.prepared, {velocity_[1], pressures_[0], velocity_[1]});
    stream_.record(advect_dye_.prepared, {velocity_[1], dye_[0], dye_[1]});
    stream_.record(move_.prepared, {velocity_[1], particles_, particles_});
    const Scopes made = stream_.end();
    std::swap(velocity_[0], velocity_[1]);
    std::swap(dye_[0], dye_[1]);
    std::swap(dye_buffer_[0], dye_buffer_[1]);
    memory_barrier(commands, {made.signal_stages, made.signal_accesses},
                   {VK_PIPELINE_STAGE_2_VERTEX_ATTRIBUTE_INPUT_BIT | VK_PIPELINE_STAGE_2_FRAGMENT_SHADER_BIT,
                    VK_ACCESS_2_VERTEX_ATTRIBUTE_READ_BIT | VK_ACCESS_2_SHADER_STORAGE_READ_BIT});
    render(commands);
    return {&picture_, VK_PIPELINE_STAGE_2_COLOR_ATTACHMENT_OUTPUT_BIT, VK_ACCESS_2_COLOR_ATTACHMENT_WRITE_BIT};
  }

  double check(uint64_t frames) override {
    const Array z({1, h_, w_}, f32);
    Array velocity({2, h_, w_}, f32), pressure = z, dye({3, h_, w_}, f32), particles = starting_particles(h_, w_, n_);
    for (uint64_t frame = 0; frame < frames; ++frame) {
      const Jets j = jets(frame, h_, w_);
      velocity = interpret(fluid_add(2, h_, w_, 2), velocity,
                           Array({2, 5}, std::vector<float>(j.forces.begin(), j.forces.end())));
      dye = interpret(fluid_add(3, h_, w_, 2), dye, Array({2, 6}, std::vector<float>(j.dye.begin(), j.dye.end())));
      velocity = interpret(fluid_advect(2, h_, w_), velocity, velocity);
      const Array outflow = interpret(fluid_divergence(h_, w_), velocity);
      for (int i = 0; i < kIterations; ++i) pressure = interpret(fluid_pressure(h_, w_), pressure, outflow);
      velocity = interpret(fluid_project(h_, w_), velocity, pressure);
      dye = interpret(fluid_advect(3, h_, w_, 1, kKept), velocity, dye);
      particles = interpret(fluid_particles(h_, w_, n_), velocity, particles);
    }
    return std::max({worst(velocity_[0].download(), velocity), worst(dye_[0].download(), dye),
                     worst(particles_.download(), particles)});
  }

 private:
  struct DyePush {
    VkDeviceAddress dye;
    float size[2];
    int32_t grid[2];
  };
  struct ParticlePush {
    float grid[2];
    float glow;
  };

  void render(VkCommandBuffer commands) {
    image_barrier(commands, picture_, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL,
                  {VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT, 0},
                  {VK_PIPELINE_STAGE_2_COLOR_ATTACHMENT_OUTPUT_BIT, VK_ACCESS_2_COLOR_ATTACHMENT_WRITE_BIT});
    begin_rendering(commands, picture_.size, {{picture_.view, VK_ATTACHMENT_LOAD_OP_DONT_CARE}});
    const VkBufferDeviceAddressInfo dye{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, nullptr, dye_buffer_[0].buffer};
    const DyePush push{vkGetBufferDeviceAddress(host_.device(), &dye),
                       {static_cast<float>(picture_.size.width), static_cast<float>(picture_.size.height)},
                       {static_cast<int32_t>(h_), static_cast<int32_t>(w_)}};
    constexpr VkShaderStageFlags both = VK_SHADER_STAGE_VERTEX_BIT | VK_SHADER_STAGE_FRAGMENT_BIT;
    vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_GRAPHICS, dye_pipeline_.pipeline);
    vkCmdPushConstants(commands, dye_pipeline_.layout, both, 0, sizeof push, &push);
    vkCmdDraw(commands, 3, 1, 0, 0);
    const double pixels = static_cast<double>(picture_.size.width) * picture_.size.height;
    const ParticlePush points{{static_cast<float>(h_), static_cast<float>(w_)},
                              static_cast<float>(std::min(1.0, 0.35 * pixels / static_cast<double>(n_)))};
    vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_GRAPHICS, particle_pipeline_.pipeline);
    vkCmdPushConstants(commands, particle_pipeline_.layout, both, 0, sizeof points, &points);
    const VkBuffer vertices = particle_buffer_.buffer;
    const VkDeviceSize start = 0;
    vkCmdBindVertexBuffers(commands, 0, 1, &vertices, &start);
    vkCmdDraw(commands, static_cast<uint32_t>(n_), 1, 0, 0);
    vkCmdEndRendering(commands);
    image_barrier(commands, picture_, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL,
                  {VK_PIPELINE_STAGE_2_COLOR_ATTACHMENT_OUTPUT_BIT, VK_ACCESS_2_COLOR_ATTACHMENT_WRITE_BIT},
                  {VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT, VK_ACCESS_2_TRANSFER_READ_BIT});
  }

  Host& host_;
  int64_t h_, w_, n_;
  Prepared add_force_, add_dye_, advect_velocity_, advect_dye_, divergence_, pressure_, project_, move_;
  CommandStream stream_;
  Buffer dye_buffer_[2], force_buffer_, color_buffer_, particle_buffer_;  // before their arrays, which go first
  DeviceArray velocity_[2], dye_[2], pressures_[2], outflow_, forces_, colors_, particles_;
  Host::Pipeline dye_pipeline_, particle_pipeline_;
  Image picture_;
};

}  // namespace

std::unique_ptr<CheckedScene> make_fluid(Host& host, const tessera::Device& device, FluidOptions options) {
  return std::make_unique<Fluid>(host, device, options);
}

}  // namespace renderer
