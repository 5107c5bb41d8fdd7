// A window of Qt's that shows a picture through Tessera's kernels, which are recorded into the command buffer of each of
// Qt's frames. Read next: viewer.cpp, filter.h.
#pragma once
#include <QImage>
#include <QVulkanWindow>
#include <memory>
#include <tessera/tessera.hpp>

namespace viewer {

/// What the sliders set: filter.h.
struct Settings {
  float smoothness = 0.08f, sharpness = 0.5f, exposure = 0, contrast = 1;
};

class Renderer;

/// The picture is drawn as large as the window allows, in its middle.
class Viewer : public QVulkanWindow {
 public:
  explicit Viewer(const QImage& picture);
  ~Viewer() override;
  QVulkanWindowRenderer* createRenderer() override;
  /// From the next frame on.
  void set(const Settings& settings);
  const Settings& settings() const { return settings_; }
  const tessera::Array& picture() const { return picture_; }
  /// The greatest difference between the picture that the device has made and the interpreter's, in steps of 255; a frame
  /// has been shown, and none is being recorded.
  double difference();

 private:
  friend class Renderer;
  tessera::Array picture_;  // f32[height, width, 4]
  Settings settings_;
  Renderer* renderer_ = nullptr;  // Qt's
};

}  // namespace viewer
