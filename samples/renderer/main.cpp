// renderer: a small Vulkan application with a device, a window and graphics passes of its own, into whose frames
// Tessera's kernels are recorded: a fluid with particles, and a hall whose noisy light is denoised. Without a window it
// writes a PNG per scene and checks a small version of each against the interpreter.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>

#include "samples/renderer/device.h"
#include "samples/renderer/overlay.h"
#include "samples/renderer/scenes.h"
#include "samples/support/picture.h"

namespace ts = tessera;

namespace {

struct Options {
  std::string scene = "all", size = "640x360", resize, output;
  uint64_t frames = 0;
  bool window = false, raw = false, overlay = false;
  double hold = 0, detail = 1;
  int64_t particles = 60000;
  uint32_t upscale = 1;
};

VkExtent2D extent(const std::string& text) {
  unsigned w = 0, h = 0;
  char more = 0;
  if (std::sscanf(text.c_str(), "%ux%u%c", &w, &h, &more) != 2 || w < 16 || h < 16 || w > 8192 || h > 8192)
    throw CLI::ValidationError("\"" + text + "\" is no size: two numbers from 16 to 8192, as 640x360");
  return {w, h};
}

std::unique_ptr<renderer::CheckedScene> make_scene(const std::string& name, renderer::Host& host,
                                                   const ts::Device& device, const Options& o, bool small) {
  if (name == "hall")
    return renderer::make_hall_scene(
        host, device,
        {.raw = o.raw, .by_hand = small || o.overlay, .detail = small ? 0.02 : o.detail, .upscale = o.upscale});
  if (small) return renderer::make_fluid(host, device, {.rows = 19, .columns = 70, .particles = 300});
  const VkExtent2D s = extent(o.size);
  return renderer::make_fluid(host, device, {.rows = s.height / 4, .columns = s.width / 4, .particles = o.particles});
}

void silent(const renderer::Host& host, const ts::Device& device) {
  const size_t n = host.validation_messages().size() + device.validation_messages().size();
  if (n > 0) throw std::runtime_error("the validation layers have said " + std::to_string(n) + " things");
}

// Three frames of a small version of the scene, against the interpreter.
void check(renderer::Host& host, renderer::CheckedScene& scene) {
  host.run(scene, 3);
  const double worst = scene.check(3);
  if (!(worst <= 1e-3))
    throw std::runtime_error("the device's result is up to " + std::to_string(worst) + " away from the interpreter's");
}

void run(const std::string& name, const Options& o) {
  const VkExtent2D size = extent(o.size);
  const std::unique_ptr<renderer::Host> host = renderer::make_host(
      {.title = "Tessera: " + name, .size = o.window ? size : VkExtent2D{70, 40}, .window = o.window, .device = {}});
  const ts::Device device = renderer::import_device(*host);
  std::unique_ptr<renderer::CheckedScene> scene;
  if (!o.window) {
    scene = make_scene(name, *host, device, o, true);
    check(*host, *scene);
    scene.reset();
    host->resize(size);
  }
  scene = make_scene(name, *host, device, o, false);
  std::optional<renderer::Overlay> overlay;
  if (o.overlay) overlay.emplace(*host, *scene);
  const uint64_t frames = o.frames ? o.frames : o.window ? 0 : name == "fluid" ? 240 : 24;
  ts::Array picture;
  VkExtent2D seen = {};
  const bool keeps = !o.window || !o.output.empty();
  const renderer::Host::Picture keep = [&](uint64_t frame, VkExtent2D s, const uint8_t* rgba) {
    // A frame is handed out when its place in flight is needed, so this one just before frame frames / 2 is drawn.
    if (!o.resize.empty() &&
        frame + renderer::Host::kFramesInFlight == std::max<uint64_t>(frames / 2, renderer::Host::kFramesInFlight))
      host->resize(extent(o.resize));
    seen = s;
    if (frame + 1 != frames) return;
    picture = ts::Array({3, s.height, s.width}, ts::f32);
    const auto p = picture.data<float>();
    const size_t n = size_t{s.width} * s.height;
    for (size_t i = 0; i < n; ++i)
      for (size_t c = 0; c < 3; ++c) p[c * n + i] = static_cast<float>(rgba[4 * i + c]) / 255;
  };
  host->run(overlay ? static_cast<renderer::Scene&>(*overlay) : *scene, frames,
            keeps || !o.resize.empty() ? keep : renderer::Host::Picture());
  silent(*host, device);
  if (frames == 0) return;
  const std::string path = !o.output.empty() ? o.output : "renderer_" + name + ".png";
  if (keeps) sample::write_png(path, picture);
  host->hold(o.hold);
  if (!keeps) return;
  std::cout << name << ": " << frames << " frames on " << host->device_name() << ", the last of " << seen.width << " x "
            << seen.height << " pixels: wrote " << path << "\n";
}

}  // namespace

int main(int argc, char** argv) try {
  Options o;
  CLI::App app{
      "A small Vulkan renderer with Tessera's kernels in its frames. Without a window, each scene's last frame goes to "
      "a PNG file."};
  app.add_option("scene", o.scene, "fluid, hall or all")
      ->check(CLI::IsMember({"fluid", "hall", "all"}))
      ->capture_default_str();
  app.add_option("--size", o.size, "of the picture, WIDTHxHEIGHT")->capture_default_str();
  app.add_option("--frames", o.frames, "how many; 0: a few without a window, and in a window until it is closed")
      ->check(CLI::Range(int64_t{0}, int64_t{1000000}));
  app.add_flag("--window", o.window, "in a window");
  app.add_option("--resize", o.resize, "another size, WIDTHxHEIGHT, from half of the frames on");
  app.add_option("-o,--output", o.output, "the PNG file for the last frame (of one scene)");
  app.add_option("--hold", o.hold, "seconds that a window stays after its last frame")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  app.add_option("--particles", o.particles, "of the fluid")
      ->check(CLI::Range(int64_t{1}, int64_t{10000000}))
      ->capture_default_str();
  app.add_flag("--raw", o.raw, "the hall as its light is drawn, only tone-mapped");
  app.add_option("--upscale", o.upscale,
                 "2: the hall is drawn and denoised at half the size, and enlarged by a network")
      ->check(CLI::Range(1, 2))
      ->capture_default_str();
  app.add_option("--detail", o.detail, "of how many triangles the hall is: 1, half a million")
      ->check(CLI::Range(0.01, 10.0))
      ->capture_default_str();
  app.add_flag("--overlay,!--no-overlay", o.overlay,
               "frames per second and the time of each pass, in the picture; in a window unless --no-overlay");
  CLI11_PARSE(app, argc, argv);
  if (o.window && app.count("--overlay") == 0) o.overlay = true;
  try {
    extent(o.size);
    if (!o.resize.empty()) extent(o.resize);
    if (o.window && o.frames == 0 && !o.output.empty())
      throw CLI::ValidationError("--output is of the last frame: in a window it takes --frames");
    if (!o.resize.empty() && o.frames > 0 && o.frames < 4)
      throw CLI::ValidationError("--resize comes at half of the frames, of which there are 4 at least, not " +
                                 std::to_string(o.frames));
    if (o.scene == "all" && (o.window || !o.output.empty()))
      throw CLI::ValidationError("--window and --output are of one scene: renderer fluid, or renderer hall");
  } catch (const CLI::ValidationError& e) {
    return app.exit(e);
  }
  for (const std::string name : {"fluid", "hall"}) {
    if (o.scene != "all" && o.scene != name) continue;
    run(name, o);
  }
  std::cout << "renderer: right\n";
} catch (const std::exception& e) {
  std::cerr << "renderer: " << e.what() << "\n";
  return 1;
}
