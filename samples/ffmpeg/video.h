// FFmpeg's libraries, as far as samples/ffmpeg needs them: frames of a video or made up, FFmpeg's frames on a Vulkan
// device, and an encoder. Nothing of Tessera. All functions throw std::runtime_error with what FFmpeg says.
#pragma once
extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/hwcontext.h>
#include <libavutil/hwcontext_vulkan.h>
#include <libswscale/swscale.h>
}

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "samples/renderer/host.h"

namespace video {

template <auto free>
struct Free {
  template <class T>
  void operator()(T* p) const {
    free(&p);
  }
};
struct FreeScaler {
  void operator()(SwsContext* p) const { sws_freeContext(p); }
};
using Frame = std::unique_ptr<AVFrame, Free<av_frame_free>>;
using Reference = std::unique_ptr<AVBufferRef, Free<av_buffer_unref>>;
using Packet = std::unique_ptr<AVPacket, Free<av_packet_free>>;
using Codec = std::unique_ptr<AVCodecContext, Free<avcodec_free_context>>;
using Scaler = std::unique_ptr<SwsContext, FreeScaler>;

/// `r`, if it is no error; else throws "WHAT: " and FFmpeg's words.
int check(int r, const std::string& what);
constexpr AVPixelFormat kFormat = AV_PIX_FMT_YUV420P;  // of all frames here
/// In the host's memory, to be written.
Frame make_frame(int width, int height);

/// Where frames come from, one after another.
class Source {
 public:
  virtual ~Source() = default;
  /// Null at the end.
  virtual Frame next() = 0;
  int width = 0, height = 0;
  AVRational rate = {25, 1};
  bool full_range = false;     // texels from 0 to 255
  AVRational aspect = {0, 1};  // of a texel, where it is known
  AVColorSpace matrix = AVCOL_SPC_UNSPECIFIED;
  /// The frame without noise, where that is known.
  virtual Frame clean(int64_t) const { return nullptr; }
};
/// A video file's first video stream, as FFmpeg decodes it.
std::unique_ptr<Source> open(const std::string& path);
/// Lamps over a moving pattern, with noise.
std::unique_ptr<Source> make_up(int width, int height);

/// FFmpeg's context of the host's Vulkan device, which it keeps using until the reference has gone.
Reference share(const renderer::Host& host);
/// A pool of its frames on that device.
class Pool {
 public:
  Pool(const Reference& device, int width, int height);
  Frame take() const;  ///< a frame whose contents are unspecified
  Frame upload(const AVFrame& from) const;
  Frame download(const AVFrame& from) const;
  VkImageUsageFlags usage() const;

 private:
  Reference frames_;
};

/// Writes frames to a file, by an encoder of FFmpeg's or, where `encoder` is empty, the one that it prefers for its
/// name.
class Writer {
 public:
  Writer(const std::string& path, const std::string& encoder, const Source& like);
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  void write(AVFrame& frame, int64_t number);
  void finish();

 private:
  struct FreeFile {
    void operator()(AVFormatContext* p) const {
      if (p->pb) avio_closep(&p->pb);
      avformat_free_context(p);
    }
  };
  void packets();
  std::string path_;
  std::unique_ptr<AVFormatContext, FreeFile> file_;
  AVStream* stream_ = nullptr;
  Codec codec_;
};

}  // namespace video
