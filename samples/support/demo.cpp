#include "samples/support/demo.h"

#include <png.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "samples/support/window.h"

namespace sample {
using tessera::Array;

namespace {
/// Before anything is computed: pictures may take minutes.
void check_writable(const std::string& path) {
  const bool there = std::filesystem::exists(path);
  errno = 0;
  if (!std::ofstream(path, std::ios::binary | std::ios::app))
    throw std::runtime_error(path + ": " + (errno ? std::strerror(errno) : "cannot be written"));
  if (!there) std::filesystem::remove(path);
}
}  // namespace

Demo demo_options(int argc, char** argv, Demo demo) {
  const char* device = std::getenv("TESSERA_DEVICE");
  const Demo usual = demo;
  if (device && std::string(device) == "interpreter")
    demo.width /= 4, demo.height /= 4, demo.frames = std::min<int64_t>(demo.frames, 2);
  demo.out = demo.name + ".png";
  const std::string usage = demo.name + " [-o FILE] [--size WxH] [--frames N] [--window] [--hold SECONDS]";
  bool some_frames = false, named = false;
  const auto number = [](std::string_view text, int64_t& n) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    return error == std::errc{} && end == text.data() + text.size() && n >= 1 && n <= 10'000;
  };
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--help" || word == "-h") {
      std::printf(
          "%s\n%s\n  -o, --output  the PNG file (%s)\n  --size        columns and rows of pixels (%lldx%lld)\n"
          "  --frames      pictures; several make an animated PNG (%lld)\n"
          "  --window      shows them in a window, with the frames per second; without --frames until it is closed\n"
          "  --hold        seconds that the window stays after the last one (0)\n",
          usage.c_str(), demo.what.c_str(), demo.out.c_str(), static_cast<long long>(usual.width),
          static_cast<long long>(usual.height), static_cast<long long>(usual.frames));
      std::exit(0);
    }
    if (word == "--window") {
      demo.window = true;
    } else if (word == "--size") {
      const std::string text = i + 1 < argc ? argv[++i] : "";
      const size_t x = std::min(text.find('x'), text.size());
      if (!number(text.substr(0, x), demo.width) || !number(text.substr(std::min(x + 1, text.size())), demo.height))
        throw std::runtime_error("--size takes two numbers from 1 to 10000, as 640x360, not \"" + text +
                                 "\"\nusage: " + usage);
    } else if (word == "--frames" || word == "--hold") {
      const std::string text = i + 1 < argc ? argv[++i] : "";
      if (!number(text, word == "--frames" ? demo.frames : demo.hold))
        throw std::runtime_error(word + " takes a number from 1 to 10000, not \"" + text + "\"\nusage: " + usage);
      some_frames |= word == "--frames";
    } else if (word == "-o" || word == "--output") {
      const std::string text = i + 1 < argc ? argv[++i] : "";
      if (text.empty()) throw std::runtime_error(word + " takes a file's name\nusage: " + usage);
      if (named)
        throw std::runtime_error("pictures go to one file, not to " + demo.out + " and " + text + "\nusage: " + usage);
      demo.out = text;
      named = true;
    } else if (word.starts_with("-")) {
      throw std::runtime_error("unknown option " + word + "\nusage: " + usage);
    } else {
      throw std::runtime_error("\"" + word + "\" is no option: pictures go to -o " + word + "\nusage: " + usage);
    }
  }
  demo.endless = demo.window && !some_frames;
  if (demo.endless && named)
    throw std::runtime_error("a window without --frames writes nothing, not " + demo.out + " either\nusage: " + usage);
  if (!demo.endless) check_writable(demo.out);
  return demo;
}

void progress(const Demo& demo, int64_t frame) {
  if (!isatty(2)) return;
  std::fprintf(stderr, "\r%s: frame %lld of %lld%s", demo.name.c_str(), static_cast<long long>(frame),
               static_cast<long long>(demo.frames), frame == demo.frames ? "\n" : "");
}

namespace {
/// Rows of 8-bit red, green and blue.
std::vector<uint8_t> levels(const std::string& path, const Array& picture) {
  if (picture.shape().size() != 3 || picture.shape()[0] != 3)
    throw std::runtime_error(path + ": a picture is [3, height, width], not " + tessera::to_string(picture.shape()));
  const size_t plane = static_cast<size_t>(picture.shape()[1] * picture.shape()[2]);
  const std::span<const float> in = picture.data<float>();
  std::vector<uint8_t> pixels(plane * 3);
  for (size_t p = 0; p < plane; ++p)
    for (size_t c = 0; c < 3; ++c) {
      const float v = in[c * plane + p];
      pixels[p * 3 + c] = static_cast<uint8_t>(std::lround(255 * (v > 0 ? std::min(v, 1.0f) : 0.0f)));
    }
  return pixels;
}
std::vector<uint8_t> png_bytes(const std::string& path, const Array& picture) {
  const std::vector<uint8_t> pixels = levels(path, picture);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.format = PNG_FORMAT_RGB;
  image.width = static_cast<png_uint_32>(picture.shape()[2]);
  image.height = static_cast<png_uint_32>(picture.shape()[1]);
  png_alloc_size_t size = 0;
  if (!png_image_write_get_memory_size(image, size, 0, pixels.data(), 0, nullptr))
    throw std::runtime_error(path + ": " + image.message);
  std::vector<uint8_t> bytes(size);
  if (!png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.data(), 0, nullptr))
    throw std::runtime_error(path + ": " + image.message);
  bytes.resize(size);
  return bytes;
}
uint32_t word_at(const std::vector<uint8_t>& b, size_t i) {
  return uint32_t{b[i]} << 24 | uint32_t{b[i + 1]} << 16 | uint32_t{b[i + 2]} << 8 | b[i + 3];
}
void append_word(std::vector<uint8_t>& b, uint32_t w) {
  for (int shift = 24; shift >= 0; shift -= 8) b.push_back(static_cast<uint8_t>(w >> shift));
}
void append_chunk(std::vector<uint8_t>& file, const char (&type)[5], const std::vector<uint8_t>& data) {
  append_word(file, static_cast<uint32_t>(data.size()));
  const size_t from = file.size();
  file.insert(file.end(), type, type + 4);
  file.insert(file.end(), data.begin(), data.end());
  append_word(file, static_cast<uint32_t>(crc32(0, file.data() + from, static_cast<uInt>(file.size() - from))));
}
}  // namespace

// The format is PNG's extension for animations: acTL says how many frames there are, fcTL what each covers and how long
// it stays; the first one's pixels are the PNG's own IDAT chunks, those of later ones are in fdAT chunks, which begin
// with a sequence number that fcTL chunks share.
void write_apng(const std::string& path, const std::vector<Array>& frames, int milliseconds) {
  if (frames.empty()) throw std::runtime_error(path + ": there is no frame");
  std::vector<uint8_t> file;
  uint32_t sequence = 0;
  for (size_t f = 0; f < frames.size(); ++f) {
    if (frames[f].shape() != frames[0].shape())
      throw std::runtime_error(path + ": frame " + std::to_string(f) + " is " + tessera::to_string(frames[f].shape()) +
                               ", the first one " + tessera::to_string(frames[0].shape()));
    const std::vector<uint8_t> png = png_bytes(path, frames[f]);
    bool announced = false;
    for (size_t at = 8; at < png.size();) {
      const uint32_t size = word_at(png, at);
      const std::string type(png.begin() + static_cast<std::ptrdiff_t>(at) + 4,
                             png.begin() + static_cast<std::ptrdiff_t>(at) + 8);
      const auto chunk = png.begin() + static_cast<std::ptrdiff_t>(at), data = chunk + 8, end = data + size;
      if (type == "IDAT" && !announced) {
        announced = true;
        std::vector<uint8_t> control;
        append_word(control, sequence++);
        append_word(control, static_cast<uint32_t>(frames[f].shape()[2]));
        append_word(control, static_cast<uint32_t>(frames[f].shape()[1]));
        append_word(control, 0), append_word(control, 0);  // where
        control.push_back(static_cast<uint8_t>(milliseconds >> 8)),
            control.push_back(static_cast<uint8_t>(milliseconds));
        control.push_back(1000 >> 8), control.push_back(1000 & 255);  // of a second
        control.push_back(0), control.push_back(0);                   // stays, and is drawn over
        append_chunk(file, "fcTL", control);
      }
      if (type == "IDAT" && f > 0) {
        std::vector<uint8_t> more;
        append_word(more, sequence++);
        more.insert(more.end(), data, end);
        append_chunk(file, "fdAT", more);
      } else if (f == 0 && type != "IEND") {
        if (type == "IHDR") file.insert(file.end(), png.begin(), png.begin() + 8);
        file.insert(file.end(), chunk, end + 4);
        if (type == "IHDR") {
          std::vector<uint8_t> animation;
          append_word(animation, static_cast<uint32_t>(frames.size())), append_word(animation, 0);
          append_chunk(file, "acTL", animation);
        }
      }
      at += size + 12;
    }
  }
  append_chunk(file, "IEND", {});
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  if (!out.flush()) throw std::runtime_error(path + ": cannot be written");
}

struct Player::Window {
  Window(const std::string& title, int64_t width, int64_t height)
      : window(sample_window_open(title.c_str(), static_cast<int>(width), static_cast<int>(height))) {
    if (!window) throw std::runtime_error(sample_window_error());
  }
  ~Window() { sample_window_close(window); }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  sample_window* window;
};
Player::Player(const Demo& demo)
    : demo_(demo), window_(demo.window ? std::make_unique<Window>(demo.name, demo.width, demo.height) : nullptr) {}
Player::~Player() = default;

void Player::show(const Array& picture) {
  if (window_) {
    const tessera::Shape wanted = {3, demo_.height, demo_.width};
    if (picture.shape() != wanted)
      throw std::runtime_error("the window is for pictures of " + tessera::to_string(wanted) + ", not " +
                               tessera::to_string(picture.shape()));
    const std::vector<uint8_t> rgb = levels(demo_.out, picture);
    const int shown = sample_window_show(window_->window, rgb.data());
    if (shown < 0) throw std::runtime_error(sample_window_error());
    open_ = shown > 0;
  }
  ++frame_;
  if (!demo_.endless || frame_ == 1) kept_.push_back(picture);
  if (!demo_.endless) progress(demo_, frame_);
}

void Player::finish() {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  if (!demo_.endless) {
    write_frames(demo_, kept_);
    std::printf("%s: %lld frames of %lld x %lld, %.3g per second: wrote %s\n", demo_.name.c_str(),
                static_cast<long long>(frame_), static_cast<long long>(demo_.width),
                static_cast<long long>(demo_.height), static_cast<double>(frame_) / std::max(seconds, 1e-9),
                demo_.out.c_str());
  }
  if (window_ && open_) sample_window_hold(window_->window, static_cast<double>(demo_.hold));
  window_.reset();
}

void write_frames(const Demo& demo, const std::vector<Array>& frames, int milliseconds) {
  if (frames.size() == 1) write_png(demo.out, frames[0]);
  else write_apng(demo.out, frames, milliseconds);
}

}  // namespace sample
