// What the renderer writes into its pictures: when each pass ran, the host's by its own queries and Tessera's by
// CommandStream::trace(), and how many frames there are per second. Read next: scenes.h.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "samples/renderer/host.h"

namespace renderer {

/// The time that commands took, without a claim to the nanosecond: two writes of the time around each pass.
class Timer {
 public:
  static constexpr uint32_t kPasses = 8;
  explicit Timer(Host& host);
  /// Once per frame, before its passes: gives the times of the frame whose place in flight this one takes.
  void begin(VkCommandBuffer commands, uint64_t frame);
  void start(VkCommandBuffer commands, const char* name);
  void stop(VkCommandBuffer commands);
  struct Time {
    std::string name;
    double milliseconds;
  };
  const std::vector<Time>& times() const { return times_; }

 private:
  struct Frame {
    Owned<VkQueryPool> pool;
    std::vector<const char*> names;
  };
  Host& host_;
  Frame frames_[Host::kFramesInFlight];
  Frame* now_ = nullptr;
  std::vector<Time> times_;
};

/// A scene with lines of text over its pictures, which are made with TRANSFER_DST beside what the host asks for.
class Overlay : public Scene {
 public:
  Overlay(Host& host, Scene& scene);
  void resize(VkExtent2D size) override;
  Result draw(VkCommandBuffer commands, uint64_t frame) override;

 private:
  Host& host_;
  Scene& scene_;
  Buffer panels_[Host::kFramesInFlight];
  VkExtent2D most_ = {};
  uint64_t frames_ = 0;  // since then
  std::chrono::steady_clock::time_point since_;
  double per_second_ = 0;
};

}  // namespace renderer
