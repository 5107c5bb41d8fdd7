// ffmpeg: a video, decoded by FFmpeg or made up, whose frames FFmpeg uploads to a Vulkan device; Tessera's kernels,
// recorded into command buffers on the same device, take its images (VkImages with layouts and timeline semaphores),
// remove noise over time and map the tones; FFmpeg downloads the results and encodes them. In between the frames stay
// on the device. Some frames are compared with the interpreter and shown, before and after, on a contact sheet.
#include <runtime/interop.h>
#include <runtime/record.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "samples/ffmpeg/filter.h"
#include "samples/ffmpeg/video.h"
#include "samples/renderer/device.h"
#include "samples/support/picture.h"

namespace {

namespace ts = tessera;
using renderer::check;

struct Options {
  std::string input, output = "ffmpeg.mkv", encoder, sheet = "ffmpeg.png", size = "640x360";
  int64_t frames = 0;
  double exposure = 1.6;
};

constexpr uint64_t kInFlight = 2;
// Those that FFmpeg's Vulkan code calls functions of.
const std::vector<const char*> kExtensions = {"VK_KHR_push_descriptor", "VK_KHR_synchronization2"};

AVVkFrame& on_device(const AVFrame& f) { return *reinterpret_cast<AVVkFrame*>(f.data[0]); }

/// A plane of a frame in the host's memory, as the kernels see it.
ts::Array plane(const AVFrame& f, int p) {
  const int64_t h = p ? (f.height + 1) / 2 : f.height, w = p ? (f.width + 1) / 2 : f.width;
  ts::Array a({h, w}, ts::f32);
  const auto to = a.data<float>();
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = 0; x < w; ++x) to[static_cast<size_t>(y * w + x)] = f.data[p][y * f.linesize[p] + x] / 255.0f;
  return a;
}

/// Frames through the kernels, two of them in flight.
class Filter {
 public:
  struct Result {
    int64_t number;
    video::Frame frame;  // on the device
  };

  Filter(const renderer::Host& host, const ts::Device& device, const video::Pool& results, const video::Source& source,
         double exposure)
      : host_(host),
        device_(device),
        results_(results),
        stream_(device),
        tone_map_(filter::tone_map(source.height, source.width, exposure,
                                   source.full_range ? filter::Range{0, 1} : filter::Range{})) {
    for (size_t p = 0; p < 3; ++p) {
      const int64_t h = p ? (source.height + 1) / 2 : source.height, w = p ? (source.width + 1) / 2 : source.width;
      denoise_.push_back(filter::denoise(h, w));
      for (ts::DeviceArray& d : denoised_[p]) d = ts::DeviceArray(device, ts::Array({h, w}, ts::f32));
    }
    for (Slot& s : slots_) {
      const VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr, 0, host.queue_family()};
      VkCommandPool made = VK_NULL_HANDLE;
      check(vkCreateCommandPool(host.device(), &pool, nullptr, &made), "vkCreateCommandPool");
      s.pool = {made, [d = host.device()](VkCommandPool x) { vkDestroyCommandPool(d, x, nullptr); }};
      const VkCommandBufferAllocateInfo commands{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, s.pool,
                                                 VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
      check(vkAllocateCommandBuffers(host.device(), &commands, &s.commands), "vkAllocateCommandBuffers");
      const VkFenceCreateInfo fence{VK_STRUCTURE_TYPE_FENCE_CREATE_INFO, nullptr, VK_FENCE_CREATE_SIGNALED_BIT};
      VkFence done = VK_NULL_HANDLE;
      check(vkCreateFence(host.device(), &fence, nullptr, &done), "vkCreateFence");
      s.done = {done, [d = host.device()](VkFence x) { vkDestroyFence(d, x, nullptr); }};
    }
  }
  ~Filter() { vkQueueWaitIdle(host_.queue()); }
  Filter(const Filter&) = delete;
  Filter& operator=(const Filter&) = delete;

  /// Submits the commands of a frame on the device, which is FFmpeg's to use again when they are done.
  Result run(video::Frame from) {
    Result to{number_, results_.take()};
    Slot& s = slots_[static_cast<size_t>(number_) % kInFlight];
    const VkFence done = s.done;
    check(vkWaitForFences(host_.device(), 1, &done, VK_TRUE, UINT64_MAX), "vkWaitForFences");
    check(vkResetFences(host_.device(), 1, &done), "vkResetFences");
    check(vkResetCommandPool(host_.device(), s.pool, 0), "vkResetCommandPool");
    const VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr,
                                         VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT, nullptr};
    check(vkBeginCommandBuffer(s.commands, &begin), "vkBeginCommandBuffer");
    record(s.commands, *from, *to.frame);
    check(vkEndCommandBuffer(s.commands), "vkEndCommandBuffer");
    submit(s, *from, *to.frame);
    s.from = std::move(from);
    ++number_;
    return to;
  }

  /// The arrays of the last frame's planes without noise.
  std::array<ts::Array, 3> denoised() const {
    const size_t last = static_cast<size_t>(number_ + 1) % 2;
    return {denoised_[0][last].download(), denoised_[1][last].download(), denoised_[2][last].download()};
  }
  /// What the interpreter makes of frame `number`, of those planes of the frame before.
  std::array<ts::Array, 3> expected(const AVFrame& from, int64_t number, const std::array<ts::Array, 3>& before) const {
    const ts::Array least({}, std::vector<float>{least_new(number)});
    std::vector<ts::Array> planes;
    for (size_t p = 0; p < 3; ++p)
      planes.push_back(ts::interpret(denoise_[p], least, plane(from, static_cast<int>(p)), before[p]));
    const ts::Arrays mapped = ts::interpret(tone_map_, planes[0], planes[1], planes[2]);
    return {mapped[0], mapped[1], mapped[2]};
  }

 private:
  struct Slot {
    renderer::Owned<VkCommandPool> pool;
    VkCommandBuffer commands = VK_NULL_HANDLE;
    renderer::Owned<VkFence> done;
    video::Frame from;  // until the commands are done
  };

  static float least_new(int64_t number) { return number == 0 ? 1.0f : 0.12f; }

  const ts::DeviceImage& image(VkImage image, const AVFrame& of, size_t p) {
    const auto half = [p](int n) { return static_cast<uint32_t>(p ? (n + 1) / 2 : n); };
    const auto it = images_.find(image);  // FFmpeg's pools use theirs again
    if (it != images_.end()) return it->second;
    return images_
        .emplace(image, ts::DeviceImage(device_, {.image = image,
                                                  .format = av_vkfmt_from_pixfmt(video::kFormat)[p],
                                                  .extent = {half(of.width), half(of.height)},
                                                  .usage = results_.usage()}))
        .first->second;
  }

  void prepare(const AVFrame& from, const AVFrame& to) {
    for (size_t p = 0; p < 3; ++p)
      prepared_.emplace_back(
          device_, ts::compile(denoise_[p].trace(), device_.target()),
          ts::PrepareOptions{.frames_in_flight = kInFlight, .images = {{1, image(on_device(from).img[p], from, p)}}});
    ts::PrepareOptions options{.frames_in_flight = kInFlight};
    for (size_t p = 0; p < 3; ++p) options.images.push_back({3 + p, image(on_device(to).img[p], to, p)});
    prepared_.emplace_back(device_, ts::compile(tone_map_.trace(), device_.target()), options);
  }

  void record(VkCommandBuffer commands, const AVFrame& from, const AVFrame& to) {
    if (prepared_.empty()) prepare(from, to);
    AVVkFrame &in = on_device(from), &out = on_device(to);
    const size_t now = static_cast<size_t>(number_) % 2;
    stream_.begin(commands, static_cast<uint64_t>(number_));
    for (size_t p = 0; p < 3; ++p)
      stream_.record(prepared_[p], {least_new(number_),
                                    ts::Argument(image(in.img[p], from, p), {in.layout[p], VK_IMAGE_LAYOUT_GENERAL}),
                                    denoised_[p][1 - now], denoised_[p][now]});
    const auto stored = [&](size_t p) {
      return ts::Argument(image(out.img[p], to, p), {VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_GENERAL});
    };
    stream_.record(prepared_[3],
                   {denoised_[0][now], denoised_[1][now], denoised_[2][now], stored(0), stored(1), stored(2)});
    stream_.end();
  }

  /// Each image's semaphore is waited for at the value that it has when FFmpeg is done with the image, and signalled
  /// with the next one. They order all accesses before and after.
  void submit(const Slot& s, const AVFrame& from, const AVFrame& to) {
    std::vector<VkSemaphoreSubmitInfo> waits, signals;
    for (AVVkFrame* f : {&on_device(from), &on_device(to)})
      for (size_t p = 0; p < 3; ++p) {
        VkSemaphoreSubmitInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO, nullptr, f->sem[p], f->sem_value[p],
                                   VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,    0};
        waits.push_back(info);
        ++info.value;
        signals.push_back(info);
      }
    const VkCommandBufferSubmitInfo commands{VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO, nullptr, s.commands, 0};
    const VkSubmitInfo2 info{VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
                             nullptr,
                             0,
                             static_cast<uint32_t>(waits.size()),
                             waits.data(),
                             1,
                             &commands,
                             static_cast<uint32_t>(signals.size()),
                             signals.data()};
    check(vkQueueSubmit2(host_.queue(), 1, &info, s.done), "vkQueueSubmit2");
    AVVkFrame &in = on_device(from), &out = on_device(to);
    for (size_t p = 0; p < 3; ++p) {
      ++in.sem_value[p], ++out.sem_value[p];
      in.layout[p] = out.layout[p] = VK_IMAGE_LAYOUT_GENERAL;
      in.access[p] = VK_ACCESS_SHADER_READ_BIT;
      out.access[p] = static_cast<VkAccessFlagBits>(VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT);
    }
  }

  const renderer::Host& host_;
  ts::Device device_;
  const video::Pool& results_;
  ts::CommandStream stream_;
  std::vector<ts::PallasCall> denoise_;  // by plane
  ts::PallasCall tone_map_;
  std::vector<ts::PreparedKernel> prepared_;
  std::map<VkImage, ts::DeviceImage> images_;
  std::array<std::array<ts::DeviceArray, 2>, 3> denoised_;  // by plane: of this frame and the last one, in turns
  std::array<Slot, kInFlight> slots_;
  int64_t number_ = 0;
};

/// Before and after, side by side, of some frames, one below the other.
class Sheet {
 public:
  void add(const AVFrame& before, const AVFrame& after, bool full_range) {
    rows_.push_back({rgb(before, full_range), rgb(after, full_range)});
  }
  void write(const std::string& path) const {
    const int64_t h = rows_.at(0)[0].shape()[1], w = rows_[0][0].shape()[2], n = static_cast<int64_t>(rows_.size());
    ts::Array sheet({3, n * h, 2 * w}, ts::f32);
    for (int64_t r = 0; r < n; ++r)
      for (int64_t side = 0; side < 2; ++side) {
        const ts::Array& picture = rows_[static_cast<size_t>(r)][static_cast<size_t>(side)];
        for (int64_t c = 0; c < 3; ++c)
          for (int64_t y = 0; y < h; ++y)
            std::copy_n(&picture.data<float>()[static_cast<size_t>((c * h + y) * w)], w,
                        &sheet.data<float>()[static_cast<size_t>(((c * n + r) * h + y) * 2 * w + side * w)]);
      }
    sample::write_png(path, sheet);
  }

 private:
  /// By ITU-R BT.601.
  static ts::Array rgb(const AVFrame& f, bool full_range) {
    ts::Array a({3, f.height, f.width}, ts::f32);
    const auto to = a.data<float>();
    const size_t n = static_cast<size_t>(f.width) * static_cast<size_t>(f.height);
    const double low = full_range ? 0 : 16, luma = full_range ? 255 : 219, chroma = full_range ? 255 : 224;
    for (int y = 0; y < f.height; ++y)
      for (int x = 0; x < f.width; ++x) {
        const double l = (f.data[0][y * f.linesize[0] + x] - low) / luma,
                     b = (f.data[1][y / 2 * f.linesize[1] + x / 2] - 128) / chroma,
                     r = (f.data[2][y / 2 * f.linesize[2] + x / 2] - 128) / chroma;
        const size_t i = static_cast<size_t>(y) * static_cast<size_t>(f.width) + static_cast<size_t>(x);
        to[i] = static_cast<float>(l + 1.402 * r);
        to[n + i] = static_cast<float>(l - 0.344136 * b - 0.714136 * r);
        to[2 * n + i] = static_cast<float>(l + 1.772 * b);
      }
    return a;
  }
  std::vector<std::array<ts::Array, 2>> rows_;
};

double decibels(const ts::Array& a, const ts::Array& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.size(); ++i) sum += (a.at(i) - b.at(i)) * (a.at(i) - b.at(i));
  return -10 * std::log10(sum / static_cast<double>(a.size()));
}

/// The greatest difference of the texels, in steps of 255, from what the interpreter's values round to.
double difference(const AVFrame& got, const std::array<ts::Array, 3>& expected) {
  double worst = 0;
  for (size_t p = 0; p < 3; ++p) {
    const ts::Array a = plane(got, static_cast<int>(p));
    for (int64_t i = 0; i < a.size(); ++i) {
      const double d = std::abs(std::round(255 * a.at(i)) - std::round(255 * std::clamp(expected[p].at(i), 0.0, 1.0)));
      worst = std::max(worst, d);
    }
  }
  return worst;
}

void run(const Options& o) {
  int w = 0, h = 0;
  std::sscanf(o.size.c_str(), "%dx%d", &w, &h);
  const std::unique_ptr<video::Source> source = o.input.empty() ? video::make_up(w, h) : video::open(o.input);
  const int64_t frames = o.frames ? o.frames : o.input.empty() ? 50 : INT64_MAX;
  const std::unique_ptr<renderer::Host> host =
      renderer::make_host({.title = "ffmpeg", .size = {16, 16}, .device = {}}, kExtensions);
  const ts::Device device = renderer::import_device(*host);
  size_t messages = 0;
  {
    const video::Reference shared = video::share(*host);
    const video::Pool uploads(shared, source->width, source->height), results(shared, source->width, source->height);
    Filter filter(*host, device, results, *source, o.exposure);
    video::Writer writer(o.output, o.encoder, *source);
    Sheet sheet;
    std::optional<Filter::Result> running;
    const auto finish = [&] {
      if (!running) return;
      const video::Frame done = results.download(*running->frame);
      writer.write(*done, running->number);
      running.reset();
    };
    const auto start = std::chrono::steady_clock::now();
    double worst = 0, noisy = 0, cleaned = 0;
    int64_t n = 0;
    for (; n < frames; ++n) {
      const video::Frame frame = source->next();
      if (!frame) break;
      // Of the first, the 10th, the 20th ... as long as the sheet has room.
      const bool looked_at = n % 10 == 0 && n < 50;
      std::array<ts::Array, 3> expected;
      if (looked_at) expected = filter.expected(*frame, n, filter.denoised());
      Filter::Result result = filter.run(uploads.upload(*frame));
      finish();  // the frame before, while the device works on this one
      running = std::move(result);
      if (!looked_at) continue;
      const video::Frame done = results.download(*running->frame);
      worst = std::max(worst, difference(*done, expected));
      sheet.add(*frame, *done, source->full_range);
      if (const video::Frame clean = source->clean(n)) {
        noisy = decibels(plane(*frame, 0), plane(*clean, 0));
        cleaned = decibels(filter.denoised()[0], plane(*clean, 0));
      }
    }
    if (n == 0) throw std::runtime_error(o.input + " has no frame");
    finish();
    writer.finish();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    sheet.write(o.sheet);
    if (worst > 1)
      throw std::runtime_error("the device's texels are up to " + std::to_string(worst) +
                               " of 255 away from the interpreter's");
    std::cout << n << " frames of " << source->width << " x " << source->height << " on " << host->device_name()
              << " in " << std::lround(seconds * 1000) << " ms: " << o.output << "\n"
              << "before and after of some, which the interpreter agrees with: " << o.sheet << "\n";
    if (noisy > 0) {
      std::cout << "luma is " << std::lround(noisy * 10) / 10.0 << " dB from the picture without noise, denoised "
                << std::lround(cleaned * 10) / 10.0 << " dB\n";
      if (n > 10 && cleaned < noisy + 3) throw std::runtime_error("the noise is still there");
    }
  }
  messages = host->validation_messages().size() + device.validation_messages().size();
  for (const std::string& m : host->validation_messages()) std::cerr << m << "\n";
  if (messages > 0) throw std::runtime_error("the validation layers have said " + std::to_string(messages) + " things");
}

}  // namespace

int main(int argc, char** argv) try {
  Options o;
  CLI::App app{"Removes noise from a video and maps its tones, by kernels on FFmpeg's Vulkan frames."};
  app.add_option("input", o.input, "a video; without it one is made up")->check(CLI::ExistingFile);
  app.add_option("-o,--output", o.output, "the video to write, of the kind that its name says")->capture_default_str();
  app.add_option("--encoder", o.encoder,
                 "FFmpeg's name of one, as ffv1; without it the one that it prefers for the file");
  app.add_option("--sheet", o.sheet, "the PNG with some frames before and after")->capture_default_str();
  app.add_option("--size", o.size, "of the video that is made up, WIDTHxHEIGHT")->capture_default_str();
  app.add_option("--frames", o.frames, "at most so many; 0: all, 50 of the one that is made up")
      ->check(CLI::Range(int64_t{0}, int64_t{10000000}));
  app.add_option("--exposure", o.exposure, "what light is multiplied by")
      ->check(CLI::Range(0.01, 100.0))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  int w = 0, h = 0;
  char more = 0;
  if (std::sscanf(o.size.c_str(), "%dx%d%c", &w, &h, &more) != 2 || w < 2 || h < 2 || w > 8192 || h > 8192)
    return app.exit(CLI::ValidationError("\"" + o.size + "\" is no size: two numbers from 2 to 8192, as 640x360"));
  av_log_set_level(AV_LOG_ERROR);
  run(o);
  std::cout << "ffmpeg: right\n";
} catch (const std::exception& e) {
  std::cerr << "ffmpeg: " << e.what() << "\n";
  return 1;
}
