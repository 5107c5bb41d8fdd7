#include "samples/renderer/hall_passes.h"

// clang-format off: what glslang writes includes nothing
#include <renderer_shaders/smooth_comp.h>
// clang-format on

#include <algorithm>
#include <cmath>

#include "samples/kernels/temporal.h"
#include "samples/kernels/upscale.h"

namespace renderer {

using namespace tessera;
using namespace tessera::kernels;

namespace {
constexpr int kLevels = 5;                        // of the bloom
constexpr std::array<int, 2> kPassesOf = {5, 3};  // of a-trous filtering: of the light, of the gloss
constexpr int kMostPasses = 5;
constexpr double kThreshold = 1.4, kSpread = 0.85, kBloom = 0.07, kExposure = 0.58;
constexpr Accumulate kAccumulate[2] = {{.longest = 40, .most = 30}, {.longest = 16, .most = 10}};
constexpr Smooth kSmooth = {.color = 2.5, .normal = 96, .depth = 1.2, .least = 0.012};
constexpr ImageLayouts kRead{VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL, VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL};

Array pixels(int64_t h, int64_t w) {
  return Array({2}, std::vector<int32_t>{static_cast<int32_t>(h), static_cast<int32_t>(w)});
}
ImportedImage imported_image(const Image& i) {
  return {.image = i.image, .format = i.format, .extent = i.size, .usage = i.usage};
}
}  // namespace

/// For pictures of any size.
struct HallPasses::Kernels {
  std::vector<CompiledKernel> smooth;
  CompiledKernel compose, bright, down, up, add, tone;
  std::vector<CompiledKernel> enlarge;  // one after another
  Host::Pipeline by_hand;
  Kernels(Host& host, const Device& device)
      : compose(load(device, temporal_compose().trace())),
        bright(load(device, bloom_down(kThreshold).trace())),
        down(load(device, bloom_down(0).trace())),
        up(load(device, bloom_up(kSpread).trace())),
        add(load(device, bloom_up(kBloom).trace())),
        tone(load(device, tone_map(kExposure).trace())),
        by_hand(host.make_compute_pipeline(smooth_comp, sizeof smooth_comp, 64)) {
    for (const PallasCall& call : {upscale_first(), upscale_second(), upscale_last()})
      enlarge.push_back(load(device, call.trace()));
    for (int i = 0; i < kMostPasses; ++i) smooth.push_back(load(device, temporal_smooth(1 << i, kSmooth).trace()));
  }
};

/// What depends on the size of the pictures.
struct HallPasses::Sized {
  int64_t h, w;
  DeviceImage guide, surface, motion, screen;
  // The host's own shaders read some arrays, which are in its buffers.
  struct Shared {
    Buffer buffer;  // before its array, which goes first
    DeviceArray array;
  };
  /// Of the light, and of the gloss. What is kept from frame to frame is there twice, and `now` is written.
  struct Signal {
    explicit Signal(DeviceImage i) : image(std::move(i)) {}
    DeviceImage image;
    DeviceArray history[2], mixed;
    Shared states[2], passes[2];
    std::unique_ptr<Prepared> accumulate;
    std::vector<std::unique_ptr<Prepared>> smooth;
  };
  std::vector<Signal> signals;
  Shared guides[2], pictures[2], by_hand;
  DeviceArray composed, shown, unused;
  std::vector<DeviceArray> sizes, levels, sums;  // of the bloom; [0] of the latter two are unused
  std::unique_ptr<Prepared> compose, compose_raw, resolve, tone;
  // With its weights and biases, and what each but the last makes; none where the picture is not enlarged.
  struct Enlarging {
    DeviceArray weights, bias, made;
    std::unique_ptr<Prepared> prepared;
  };
  std::vector<Enlarging> enlarge;
  DeviceArray toned;
  std::vector<std::unique_ptr<Prepared>> down, up;
  size_t now = 0;

  Sized(Host& host, const Device& device, const Kernels& k, const HallImages& i, bool enlarges)
      : h(i.guide->size.height),
        w(i.guide->size.width),
        guide(device, imported_image(*i.guide)),
        surface(device, imported_image(*i.surface)),
        motion(device, imported_image(*i.motion)),
        screen(device, imported_image(*i.screen)) {
    const auto array = [&] { return DeviceArray(device, Shape{h, w, 4}, f32); };
    const auto share = [&](Shared& s) {
      s.buffer = host.make_buffer(static_cast<VkDeviceSize>(h * w) * 16,
                                  VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT | VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                      VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT);
      s.array = import_buffer(device, {.buffer = s.buffer.buffer, .size = s.buffer.size, .usage = s.buffer.usage},
                              {h, w, 4}, f32);
    };
    const DimValues dims = {{"h", h}, {"w", w}};
    const auto prepare = [&](const CompiledKernel& c, std::vector<PrepareOptions::Image> images = {}) {
      return std::make_unique<Prepared>(c, 1, dims, std::move(images));
    };
    for (const Image* image : {i.light, i.gloss}) {
      const size_t n = signals.size();
      Signal& s = signals.emplace_back(DeviceImage(device, imported_image(*image)));
      for (DeviceArray& a : s.history) a = array();
      s.mixed = array();
      for (size_t t = 0; t < 2; ++t) share(s.states[t]), share(s.passes[t]);
      s.accumulate =
          std::make_unique<Prepared>(load(device, temporal_accumulate(h, w, kAccumulate[n]).trace()), 1, DimValues{},
                                     std::vector<PrepareOptions::Image>{{0, s.image}, {1, guide}, {2, motion}});
      for (int p = 0; p < kPassesOf[n]; ++p) s.smooth.push_back(prepare(k.smooth[static_cast<size_t>(p)]));
    }
    for (size_t t = 0; t < 2; ++t) share(guides[t]), share(pictures[t]);
    share(by_hand);
    composed = array(), shown = array(), unused = array();
    compose = prepare(k.compose, {{2, surface}});
    compose_raw = prepare(k.compose, {{0, signals[0].image}, {1, signals[1].image}, {2, surface}});
    resolve = std::make_unique<Prepared>(load(device, temporal_resolve(h, w).trace()), 1, DimValues{},
                                         std::vector<PrepareOptions::Image>{{1, motion}});
    if (enlarges) {
      const auto layers = upscale::layers();
      for (size_t n = 0; n < layers.size(); ++n) {
        const int64_t channels = layers[n].bias.size();
        enlarge.push_back({DeviceArray(device, layers[n].weights), DeviceArray(device, layers[n].bias),
                           n < 2 ? DeviceArray(device, Shape{h, w, channels}, f32) : DeviceArray(),
                           n < 2 ? prepare(k.enlarge[n]) : prepare(k.enlarge[n], {{4, screen}})});
      }
      toned = array();
      tone = prepare(k.tone);
    } else {
      tone = prepare(k.tone, {{1, screen}});
    }
    int64_t rows = h, columns = w;
    for (size_t l = 0; l <= kLevels; ++l) {
      const auto level = [&] { return l ? DeviceArray(device, Shape{rows, columns, 4}, f32) : DeviceArray(); };
      sizes.emplace_back(device, pixels(rows, columns));
      levels.push_back(level()), sums.push_back(level());
      if (l == kLevels) break;
      const DimValues at = {{"h", rows}, {"w", columns}};
      down.push_back(std::make_unique<Prepared>(l ? k.down : k.bright, 1, at));
      up.push_back(std::make_unique<Prepared>(l ? k.up : k.add, 1, at));
      rows = (rows + 1) / 2, columns = (columns + 1) / 2;
    }
  }

  /// The light or the gloss, denoised: in the result.
  const DeviceArray& denoise(CommandStream& stream, size_t n, float kept) {
    Signal& s = signals[n];
    const size_t before = 1 - now;
    // The gloss gives the guide once more, which nobody needs.
    stream.record(s.accumulate->prepared, {Argument(s.image, kRead), Argument(guide, kRead), Argument(motion, kRead),
                                           s.history[before], s.states[before].array, guides[before].array, kept,
                                           s.mixed, s.states[now].array, n == 0 ? guides[now].array : unused});
    // What the first pass makes is the next frame's history; then two arrays take turns.
    const DeviceArray* from = &s.mixed;
    for (size_t p = 0; p < s.smooth.size(); ++p) {
      const DeviceArray* to = p == 0 ? &s.history[now] : &s.passes[p % 2].array;
      stream.record(s.smooth[p]->prepared, {*from, guides[now].array, s.states[now].array, *to});
      from = to;
    }
    return *from;
  }
  /// The picture as the screen shows it, and twice as large if that is asked for.
  void finish(CommandStream& stream, const DeviceArray& picture) {
    const Argument stored(screen, {VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL});
    if (enlarge.empty()) {
      stream.record(tone->prepared, {picture, stored});
      return;
    }
    stream.record(tone->prepared, {picture, toned});
    const Enlarging &first = enlarge[0], &second = enlarge[1], &last = enlarge[2];
    stream.record(first.prepared->prepared, {toned, first.weights, first.bias, first.made});
    stream.record(second.prepared->prepared, {first.made, second.weights, second.bias, second.made});
    stream.record(last.prepared->prepared, {second.made, last.weights, last.bias, toned, stored});
  }
  size_t last_input(size_t n) const { return (signals[n].smooth.size() - 2) % 2; }
  size_t last_output(size_t n) const { return (signals[n].smooth.size() - 1) % 2; }
};

HallPasses::HallPasses(Host& host, const Device& device, bool raw, bool enlarges)
    : host_(host),
      device_(device),
      raw_(raw),
      enlarges_(enlarges),
      kernels_(std::make_unique<Kernels>(host, device)),
      stream_(std::make_unique<CommandStream>(
          device, StreamOptions{.timed_calls = 32, .frames_in_flight = Host::kFramesInFlight})) {}
HallPasses::~HallPasses() = default;

void HallPasses::resize(const HallImages& images) {
  sized_.reset();
  sized_ = std::make_unique<Sized>(host_, device_, *kernels_, images, enlarges_);
  frames_ = 0;
}

Scopes HallPasses::scopes() const {
  return (raw_ ? *sized_->compose_raw : *sized_->signals[0].accumulate).prepared.scopes();
}

Scopes HallPasses::record(VkCommandBuffer commands, uint64_t frame) {
  Sized& s = *sized_;
  const float kept = frames_ > 0 ? 1.0f : 0.0f;
  s.now = 1 - s.now;
  ++frames_;
  stream_->begin(commands, frame);
  if (raw_) {
    stream_->record(s.compose_raw->prepared, {Argument(s.signals[0].image, kRead), Argument(s.signals[1].image, kRead),
                                              Argument(s.surface, kRead), s.pictures[s.now].array});
    s.finish(*stream_, s.pictures[s.now].array);
    return stream_->end();
  }
  const DeviceArray& light = s.denoise(*stream_, 0, kept);
  const DeviceArray& gloss = s.denoise(*stream_, 1, kept);
  stream_->record(s.compose->prepared, {light, gloss, Argument(s.surface, kRead), s.composed});
  const DeviceArray& picture = s.pictures[s.now].array;
  stream_->record(s.resolve->prepared,
                  {s.composed, Argument(s.motion, kRead), s.pictures[1 - s.now].array, kept, picture});
  stream_->record(s.down[0]->prepared, {s.sizes[0], picture, s.levels[1]});
  for (size_t i = 1; i < kLevels; ++i) stream_->record(s.down[i]->prepared, {s.sizes[i], s.levels[i], s.levels[i + 1]});
  for (size_t i = kLevels; i > 1; --i)
    stream_->record(s.up[i - 1]->prepared,
                    {s.sizes[i], i == kLevels ? s.levels[i] : s.sums[i], s.levels[i - 1], s.sums[i - 1]});
  stream_->record(s.up[0]->prepared, {s.sizes[1], s.sums[1], picture, s.shown});
  s.finish(*stream_, s.shown);
  return stream_->end();
}

void HallPasses::record_by_hand(VkCommandBuffer commands) {
  by_hand_ = true;
  const Sized& s = *sized_;
  const auto address = [&](const Buffer& b) {
    const VkBufferDeviceAddressInfo info{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, nullptr, b.buffer};
    return vkGetBufferDeviceAddress(host_.device(), &info);
  };
  const struct {
    VkDeviceAddress picture, guide, state, result;
    int32_t size[2], step;
    float color, depth, least;
  } push{address(s.signals[0].passes[s.last_input(0)].buffer),
         address(s.guides[s.now].buffer),
         address(s.signals[0].states[s.now].buffer),
         address(s.by_hand.buffer),
         {static_cast<int32_t>(s.w), static_cast<int32_t>(s.h)},
         1 << (kPassesOf[0] - 1),
         static_cast<float>(kSmooth.color),
         static_cast<float>(kSmooth.depth),
         static_cast<float>(kSmooth.least)};
  static_assert(sizeof push <= 64 && kSmooth.normal == 96, "smooth.comp has the power written out");
  vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, kernels_->by_hand.pipeline);
  vkCmdPushConstants(commands, kernels_->by_hand.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof push, &push);
  vkCmdDispatch(commands, static_cast<uint32_t>((s.w + 31) / 32), static_cast<uint32_t>((s.h + 3) / 4), 1);
}

VkBuffer HallPasses::picture() const { return sized_->pictures[sized_->now].buffer.buffer; }

std::vector<std::pair<std::string, double>> HallPasses::times(uint64_t frame) const {
  // They run one after another. CPU drivers write the beginning's time late, so each is taken to begin where the one
  // before has ended.
  std::vector<std::pair<std::string, double>> out;
  double before = 0;
  for (const TimedCommand& c : stream_->trace(frame)) {
    out.emplace_back(c.name, (c.end - std::max(before, out.empty() ? c.begin : 0.0)) * 1e-6);
    before = c.end;
  }
  return out;
}

double HallPasses::check() {
  const Sized& s = *sized_;
  const auto image = [&](const DeviceImage& i) { return read_image(i, f32, kRead).download(); };
  const Array surface = image(s.surface);
  Array picture;
  double off = 0;
  if (raw_) {
    picture = interpret(temporal_compose(), image(s.signals[0].image), image(s.signals[1].image), surface);
  } else {
    const Array guide = image(s.guide), motion = image(s.motion), kept({}, std::vector<float>{1});
    const size_t before = 1 - s.now;
    std::array<Array, 2> denoised;
    for (size_t n = 0; n < 2; ++n) {
      const Sized::Signal& g = s.signals[n];
      const Arrays mixed = interpret(temporal_accumulate(s.h, s.w, kAccumulate[n]), image(g.image), guide, motion,
                                     g.history[before].download(), g.states[before].array.download(),
                                     s.guides[before].array.download(), kept);
      off = std::max({off, worst(g.mixed.download(), mixed[0]), worst(g.states[s.now].array.download(), mixed[1])});
      denoised[n] = mixed[0];
      for (int p = 0; p < kPassesOf[n]; ++p)
        denoised[n] = interpret(temporal_smooth(1 << p, kSmooth), denoised[n], guide, mixed[1]);
      off = std::max(off, worst(g.passes[s.last_output(n)].array.download(), denoised[n]));
    }
    if (by_hand_) off = std::max(off, worst(s.by_hand.array.download(), denoised[0]));
    const Array composed = interpret(temporal_compose(), denoised[0], denoised[1], surface);
    picture = interpret(temporal_resolve(s.h, s.w), composed, motion, s.pictures[before].array.download(), kept);
    off = std::max(off, worst(s.pictures[s.now].array.download(), picture));
    std::vector<Array> levels = {picture};
    const auto size = [](const Array& a) { return pixels(a.shape()[0], a.shape()[1]); };
    for (int i = 0; i < kLevels; ++i)
      levels.push_back(interpret(bloom_down(i ? 0 : kThreshold), size(levels.back()), levels.back()));
    for (size_t i = kLevels; i > 0; --i)
      levels[i - 1] = interpret(bloom_up(i > 1 ? kSpread : kBloom), size(levels[i]), levels[i], levels[i - 1]);
    picture = levels[0];
  }
  picture = interpret(tone_map(kExposure), picture);
  if (enlarges_) {
    const auto layers = upscale::layers();
    const Array first = interpret(upscale_first(), picture, layers[0].weights, layers[0].bias),
                second = interpret(upscale_second(), first, layers[1].weights, layers[1].bias);
    picture = interpret(upscale_last(), second, layers[2].weights, layers[2].bias, picture);
  }
  for (float& x : picture.data<float>()) x = std::round(255 * x) / 255;
  constexpr ImageLayouts screen{VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL};
  // A level of 255 more or less is rounding's.
  return std::max(off, worst(read_image(s.screen, f32, screen).download(), picture) - 1.01 / 255);
}

}  // namespace renderer
