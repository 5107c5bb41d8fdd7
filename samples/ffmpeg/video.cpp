#include "samples/ffmpeg/video.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace video {

int check(int r, const std::string& what) {
  if (r >= 0) return r;
  char text[AV_ERROR_MAX_STRING_SIZE];
  av_strerror(r, text, sizeof text);
  throw std::runtime_error(what + ": " + text);
}

namespace {
template <class T>
T* made(T* p, const std::string& what) {
  if (!p) check(AVERROR(ENOMEM), what);
  return p;
}
}  // namespace

Frame make_frame(int width, int height) {
  Frame f(made(av_frame_alloc(), "av_frame_alloc"));
  f->format = kFormat, f->width = width, f->height = height;
  check(av_frame_get_buffer(f.get(), 0), "av_frame_get_buffer");
  return f;
}

namespace {

class File : public Source {
 public:
  explicit File(const std::string& path) : path_(path) {
    check(avformat_open_input(&file_, path.c_str(), nullptr, nullptr), path);
    try {
      start();
    } catch (...) {
      avformat_close_input(&file_);
      throw;
    }
  }
  ~File() override { avformat_close_input(&file_); }

  Frame next() override {
    Frame f(made(av_frame_alloc(), "av_frame_alloc"));
    for (;;) {
      const int r = avcodec_receive_frame(codec_.get(), f.get());
      if (r == AVERROR_EOF) return nullptr;
      if (r == AVERROR(EAGAIN)) {
        feed();
      } else if (r != AVERROR_INVALIDDATA) {  // of which FFmpeg has said where it is
        check(r, path_);
        return converted(*f);
      }
    }
  }

 private:
  void start() {
    check(avformat_find_stream_info(file_, nullptr), path_);
    const AVCodec* codec = nullptr;
    stream_ = check(av_find_best_stream(file_, AVMEDIA_TYPE_VIDEO, -1, -1, &codec, 0), path_ + " has no video");
    const AVStream& s = *file_->streams[stream_];
    codec_.reset(made(avcodec_alloc_context3(codec), path_));
    check(avcodec_parameters_to_context(codec_.get(), s.codecpar), path_);
    check(avcodec_open2(codec_.get(), codec, nullptr), path_);
    width = codec_->width, height = codec_->height;
    aspect = codec_->sample_aspect_ratio, matrix = codec_->colorspace;
    if (s.avg_frame_rate.num > 0 && s.avg_frame_rate.den > 0) rate = s.avg_frame_rate;
    full_range = codec_->color_range == AVCOL_RANGE_JPEG || codec_->pix_fmt == AV_PIX_FMT_YUVJ420P ||
                 codec_->pix_fmt == AV_PIX_FMT_YUVJ422P || codec_->pix_fmt == AV_PIX_FMT_YUVJ444P;
    if (width < 2 || height < 2)
      throw std::runtime_error(path_ + ": its pictures of " + std::to_string(width) + " x " + std::to_string(height) +
                               " texels have no chroma planes of half their size");
  }
  void feed() {
    Packet p(made(av_packet_alloc(), "av_packet_alloc"));
    for (;;) {
      const int r = av_read_frame(file_, p.get());
      if (r == AVERROR_EOF) {
        check(avcodec_send_packet(codec_.get(), nullptr), path_);
        return;
      }
      check(r, path_);
      const bool mine = p->stream_index == stream_;
      if (mine) {
        const int sent = avcodec_send_packet(codec_.get(), p.get());
        if (sent != AVERROR_INVALIDDATA) check(sent, path_);
      }
      av_packet_unref(p.get());
      if (mine) return;
    }
  }
  Frame converted(const AVFrame& f) {
    scaler_.reset(made(sws_getCachedContext(scaler_.release(), f.width, f.height, static_cast<AVPixelFormat>(f.format),
                                            width, height, kFormat, SWS_BICUBIC, nullptr, nullptr, nullptr),
                       path_ + ": sws_getCachedContext"));
    // Both have the file's range: sws takes YUVJ formats for full and others for limited.
    const int* coefficients = sws_getCoefficients(SWS_CS_DEFAULT);
    check(sws_setColorspaceDetails(scaler_.get(), coefficients, full_range, coefficients, full_range, 0, 1 << 16,
                                   1 << 16),
          path_ + ": sws_setColorspaceDetails");
    Frame to = make_frame(width, height);
    check(sws_scale(scaler_.get(), f.data, f.linesize, 0, f.height, to->data, to->linesize), path_ + ": sws_scale");
    return to;
  }

  std::string path_;
  AVFormatContext* file_ = nullptr;
  int stream_ = -1;
  Codec codec_;
  Scaler scaler_;
};

uint32_t hash(uint32_t x) {  // lowbias32 of Chris Wellons
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

class MadeUp : public Source {
 public:
  MadeUp(int w, int h) { width = w, height = h; }
  Frame next() override { return draw(frame_++, true); }
  Frame clean(int64_t frame) const override { return draw(frame, false); }

 private:
  Frame draw(int64_t frame, bool noise) const {
    Frame f = make_frame(width, height);
    const double t = static_cast<double>(frame) / 25;
    for (int plane = 0; plane < 3; ++plane) {
      const int part = plane ? 2 : 1, w = (width + part - 1) / part, h = (height + part - 1) / part;
      for (int y = 0; y < h; ++y)
        for (int x = 0; x < w; ++x) {
          const double u = (part * x - width / 2.0) / height, v = (part * y - height / 2.0) / height;
          double value = plane ? 128 + 40 * std::sin(plane * 2.1 + 3 * u - 2 * v)
                               : 70 + 26 * std::sin(14 * u) * std::sin(11 * v) + 30 * v;
          for (int lamp = 0; lamp < 3; ++lamp) {
            const double a = 2.1 * lamp + (0.5 + 0.2 * lamp) * t, dx = u - 0.6 * std::cos(a),
                         dy = v - 0.3 * std::sin(a);
            const double glow = std::exp(-90 * (dx * dx + dy * dy));
            value += glow * (plane == 0 ? 235 - value : 50 * std::cos(2.1 * (lamp + plane)));
          }
          if (noise) {  // nearly normal: four even ones
            uint32_t seed = hash(static_cast<uint32_t>(((frame * 3 + plane) * h + y) * w + x));
            double n = 0;
            for (int i = 0; i < 4; ++i, seed = hash(seed + 1)) n += seed / 4294967296.0 - 0.5;
            value += (plane ? 10 : 16) * n;
          }
          f->data[plane][y * f->linesize[plane] + x] =
              static_cast<uint8_t>(std::clamp(std::lround(value), 16L, plane ? 240L : 235L));
        }
    }
    return f;
  }

  int64_t frame_ = 0;
};

}  // namespace

std::unique_ptr<Source> open(const std::string& path) { return std::make_unique<File>(path); }
std::unique_ptr<Source> make_up(int width, int height) { return std::make_unique<MadeUp>(width, height); }

Reference share(const renderer::Host& host) {
  Reference device(made(av_hwdevice_ctx_alloc(AV_HWDEVICE_TYPE_VULKAN), "FFmpeg without Vulkan"));
  auto* const vk = static_cast<AVVulkanDeviceContext*>(reinterpret_cast<AVHWDeviceContext*>(device->data)->hwctx);
  const VkDeviceCreateInfo& created = host.created_with();
  vk->get_proc_addr = vkGetInstanceProcAddr;
  vk->inst = host.instance(), vk->phys_dev = host.physical_device(), vk->act_dev = host.device();
  vk->device_features = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, nullptr, {}};
  if (created.pEnabledFeatures) vk->device_features.features = *created.pEnabledFeatures;
  vk->device_features.pNext = const_cast<void*>(created.pNext);
  vk->enabled_inst_extensions = host.instance_extensions().data();
  vk->nb_enabled_inst_extensions = static_cast<int>(host.instance_extensions().size());
  vk->enabled_dev_extensions = created.ppEnabledExtensionNames;
  vk->nb_enabled_dev_extensions = static_cast<int>(created.enabledExtensionCount);
  const int family = static_cast<int>(host.queue_family());
  vk->queue_family_index = vk->queue_family_tx_index = vk->queue_family_comp_index = family;
  vk->nb_graphics_queues = vk->nb_tx_queues = vk->nb_comp_queues = 1;
  vk->queue_family_encode_index = vk->queue_family_decode_index = -1;
  check(av_hwdevice_ctx_init(device.get()), "av_hwdevice_ctx_init");
  return device;
}

Pool::Pool(const Reference& device, int width, int height)
    : frames_(made(av_hwframe_ctx_alloc(device.get()), "av_hwframe_ctx_alloc")) {
  auto* const c = reinterpret_cast<AVHWFramesContext*>(frames_->data);
  c->format = AV_PIX_FMT_VULKAN, c->sw_format = kFormat, c->width = width, c->height = height;
#if LIBAVUTIL_VERSION_MAJOR >= 58  // an image for each plane, as FFmpeg 5.1 makes them, and not one of three planes
  auto* const vk = static_cast<AVVulkanFramesContext*>(c->hwctx);
  vk->flags = static_cast<AVVkFrameFlags>(vk->flags | AV_VK_FRAME_FLAG_DISABLE_MULTIPLANE);
#endif
  check(av_hwframe_ctx_init(frames_.get()), "av_hwframe_ctx_init");
}
Frame Pool::take() const {
  Frame f(made(av_frame_alloc(), "av_frame_alloc"));
  check(av_hwframe_get_buffer(frames_.get(), f.get(), 0), "av_hwframe_get_buffer");
  return f;
}
Frame Pool::upload(const AVFrame& from) const {
  Frame f = take();
  check(av_hwframe_transfer_data(f.get(), &from, 0), "upload: av_hwframe_transfer_data");
  return f;
}
Frame Pool::download(const AVFrame& from) const {
  Frame f = make_frame(from.width, from.height);
  check(av_hwframe_transfer_data(f.get(), &from, 0), "download: av_hwframe_transfer_data");
  return f;
}
VkImageUsageFlags Pool::usage() const {
  const auto* c = reinterpret_cast<const AVHWFramesContext*>(frames_->data);
  return static_cast<const AVVulkanFramesContext*>(c->hwctx)->usage;
}

Writer::Writer(const std::string& path, const std::string& encoder, const Source& like) : path_(path) {
  AVFormatContext* file = nullptr;
  check(avformat_alloc_output_context2(&file, nullptr, nullptr, path.c_str()), path);
  file_.reset(file);
  const AVCodec* codec = encoder.empty() ? avcodec_find_encoder(file->oformat->video_codec)
                                         : avcodec_find_encoder_by_name(encoder.c_str());
  if (!codec)
    throw std::runtime_error(encoder.empty() ? path + ": FFmpeg has no encoder of videos for this kind of file"
                                             : "FFmpeg has no encoder named " + encoder);
  bool takes = !codec->pix_fmts;
  for (const AVPixelFormat* f = codec->pix_fmts; f && *f != AV_PIX_FMT_NONE; ++f) takes = takes || *f == kFormat;
  if (!takes)
    throw std::runtime_error(path + ": FFmpeg's encoder " + codec->name +
                             " takes no yuv420p, in which the frames are: name another one by --encoder");
  stream_ = made(avformat_new_stream(file, nullptr), path);
  codec_.reset(made(avcodec_alloc_context3(codec), path));
  codec_->width = like.width, codec_->height = like.height, codec_->pix_fmt = kFormat;
  codec_->time_base = av_inv_q(like.rate), codec_->framerate = like.rate;
  codec_->sample_aspect_ratio = like.aspect, codec_->colorspace = like.matrix;
  codec_->color_range = like.full_range ? AVCOL_RANGE_JPEG : AVCOL_RANGE_MPEG;
  codec_->bit_rate = int64_t{like.width} * like.height * 8;
  if (file->oformat->flags & AVFMT_GLOBALHEADER) codec_->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
  check(avcodec_open2(codec_.get(), codec, nullptr), path + ": FFmpeg's encoder " + codec->name + ", for pictures of " +
                                                         std::to_string(like.width) + " x " +
                                                         std::to_string(like.height));
  check(avcodec_parameters_from_context(stream_->codecpar, codec_.get()), path);
  stream_->time_base = codec_->time_base;
  stream_->sample_aspect_ratio = codec_->sample_aspect_ratio;
  if (!(file->oformat->flags & AVFMT_NOFILE)) check(avio_open(&file->pb, path.c_str(), AVIO_FLAG_WRITE), path);
  check(avformat_write_header(file, nullptr), path);
}
void Writer::write(AVFrame& frame, int64_t number) {
  frame.pts = number;
  check(avcodec_send_frame(codec_.get(), &frame), path_);
  packets();
}
void Writer::finish() {
  check(avcodec_send_frame(codec_.get(), nullptr), path_);
  packets();
  check(av_write_trailer(file_.get()), path_);
  if (file_->pb) check(avio_closep(&file_->pb), path_);
}
void Writer::packets() {
  Packet p(made(av_packet_alloc(), "av_packet_alloc"));
  for (;;) {
    const int r = avcodec_receive_packet(codec_.get(), p.get());
    if (r == AVERROR(EAGAIN) || r == AVERROR_EOF) return;
    check(r, path_);
    av_packet_rescale_ts(p.get(), codec_->time_base, stream_->time_base);
    check(av_interleaved_write_frame(file_.get(), p.get()), path_);
  }
}

}  // namespace video
