// A window of Qt's that shows a picture through Tessera's kernels, which are recorded into the command buffer of each
// of Qt's frames. Read next: viewer.cpp, filter.h.
#pragma once
#include <QImage>
#include <QVulkanWindow>
#include <functional>
#include <memory>
#include <tessera/tessera.hpp>

namespace viewer {

/// What the sliders set: filter.h.
struct Settings {
  float smoothness = 0.08f, sharpness = 0.5f, exposure = 0, contrast = 1;
};

class Renderer;

/// The picture is drawn as large as the window allows, in its middle. An error in a frame ends the program: Qt passes
/// no exceptions on.
class Viewer : public QVulkanWindow {
 public:
  explicit Viewer(const QImage& picture);
  ~Viewer() override;
  QVulkanWindowRenderer* createRenderer() override;
  /// Called by the event loop after each frame.
  void after_frames(std::function<void()> f) { after_frame_ = std::move(f); }
  /// From the next frame on.
  void set(const Settings& settings);
  const Settings& settings() const { return settings_; }
  const tessera::Array& picture() const { return picture_; }
  /// The greatest difference between the picture that the device has made and the interpreter's, in steps of 255; a
  /// frame has been shown, and none is being recorded.
  double difference();
  /// What the kernels have made, in the picture's own size; a frame has been shown.
  QImage developed();

 protected:
  void resizeEvent(QResizeEvent*) override { requestUpdate(); }

 private:
  friend class Renderer;
  tessera::Array picture_;  // f32[height, width, 4]
  Settings settings_;
  std::function<void()> after_frame_;
  Renderer* renderer_ = nullptr;  // Qt's
};

}  // namespace viewer
