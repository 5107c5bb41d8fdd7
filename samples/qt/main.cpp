// qt: an image viewer with live filters. Qt makes the window, the Vulkan device and the command buffers; Tessera's
// kernels are recorded into them in startNextFrame(), with what the sliders say as numbers of the recorded call.
#include <runtime/interop.h>

#include <QApplication>
#include <QCommandLineParser>
#include <QFormLayout>
#include <QHBoxLayout>
#include <QSlider>
#include <QVulkanInstance>
#include <iostream>

#include "samples/qt/features.h"
#include "samples/qt/viewer.h"

namespace {

using viewer::Settings, viewer::Viewer;

struct Slider {
  const char* name;
  const char* option;
  const char* help;
  float Settings::* value;
  float least, most;
};
constexpr Slider kSliders[] = {
    {"Smoothness", "smoothness", "difference of colours that is smoothed away", &Settings::smoothness, 0, 0.5f},
    {"Sharpness", "sharpness", "how much stronger fine detail becomes", &Settings::sharpness, 0, 4},
    {"Exposure", "exposure", "in stops", &Settings::exposure, -3, 3},
    {"Contrast", "contrast", "slope of the curve", &Settings::contrast, 0, 3}};

[[noreturn]] void fail(const std::string& text) {
  std::cerr << "qt: " << text << "\n";
  std::_Exit(1);  // without the destructors of what Qt is using
}

QSize size_of(const QString& text) {
  const QStringList sides = text.split('x');
  bool good[2] = {};
  const QSize size = sides.size() == 2 ? QSize(sides[0].toInt(&good[0]), sides[1].toInt(&good[1])) : QSize();
  if (!good[0] || !good[1] || size.width() < 16 || size.height() < 16 || size.width() > 8192 || size.height() > 8192)
    fail("\"" + text.toStdString() + "\" is no size: two numbers from 16 to 8192, as 640x360");
  return size;
}

/// The window with the picture beside the sliders.
QWidget* with_sliders(Viewer* viewer) {
  auto* const window = new QWidget;
  auto* const row = new QHBoxLayout(window);
  QWidget* const picture = QWidget::createWindowContainer(viewer, window);
  picture->setMinimumSize(64, 64);
  row->addWidget(picture, 1);
  auto* const form = new QFormLayout;
  row->addLayout(form);
  for (const Slider& s : kSliders) {
    auto* const slider = new QSlider(Qt::Horizontal, window);
    slider->setRange(0, 1000);
    slider->setMinimumWidth(150);
    slider->setValue(static_cast<int>(1000 * (viewer->settings().*s.value - s.least) / (s.most - s.least)));
    QObject::connect(slider, &QSlider::valueChanged, viewer, [viewer, s](int value) {
      Settings settings = viewer->settings();
      settings.*s.value = s.least + (s.most - s.least) * static_cast<float>(value) / 1000;
      viewer->set(settings);
    });
    form->addRow(s.name, slider);
  }
  window->resize(viewer->size() + QSize(260, 20));
  return window;
}

/// What is left to do when frames have been shown: another size, the comparison with the interpreter, the file.
struct Tasks {
  Viewer* viewer;
  QSize resize;
  QString save;
  bool check = false, resized = false, done = false;

  void after_frame() {
    if (done) return;
    if (resize.isValid() && !resized) viewer->resize(resize);
    resized = true;
    if (resize.isValid() && viewer->swapChainImageSize() != resize * viewer->devicePixelRatio()) return;
    done = true;
    if (check) {
      const double worst = viewer->difference();
      if (!(worst <= 1)) fail("the picture is up to " + std::to_string(worst) + " of 255 away from the interpreter's");
    }
    if (!save.isEmpty() && !viewer->developed().save(save)) fail("cannot write " + save.toStdString());
    if (check) {
      std::cout << "qt: right\n" << std::flush;
      QCoreApplication::quit();
    }
  }
};

/// The one that TESSERA_DEVICE names by its number or a part of its name, after "vulkan:" or not; else the first
/// discrete GPU, else the first that is no CPU, else the first. Of those with Vulkan 1.3.
void choose_device(Viewer& viewer) {
  const QList<VkPhysicalDeviceProperties> all = viewer.availablePhysicalDevices();
  QString wanted = qEnvironmentVariable("TESSERA_DEVICE");
  if (wanted.startsWith("vulkan")) wanted.remove(0, wanted.startsWith("vulkan:") ? 7 : 6);
  bool is_number = false;
  const int number = wanted.toInt(&is_number);
  int best = -1, rank = 0;
  for (int i = 0; i < all.size(); ++i) {
    const VkPhysicalDeviceProperties& p = all[i];
    if (!wanted.isEmpty() && !(is_number ? i == number : QString(p.deviceName).contains(wanted, Qt::CaseInsensitive)))
      continue;
    const int its = p.apiVersion < VK_API_VERSION_1_3                      ? 0
                    : p.deviceType == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU ? 3
                    : p.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU          ? 1
                                                                           : 2;
    if (its > rank) best = i, rank = its;
  }
  if (best < 0)
    fail((wanted.isEmpty() ? "none" : "no device named \"" + wanted.toStdString() + "\"") + " of " +
         std::to_string(all.size()) + " devices has Vulkan 1.3");
  viewer.setPhysicalDeviceIndex(best);
}

}  // namespace

int main(int argc, char** argv) try {
  features_for_qt([](const void* has, void* enable) { tessera::enable_device_features(has, enable); });
  const bool validation = qgetenv("TESSERA_VALIDATION") == "1";
  if (validation) qputenv("VK_LAYER_ENABLES", "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT");
  QApplication app(argc, argv);
  QCommandLineParser options;
  options.setApplicationDescription("An image viewer with live filters: kernels in the frames of a QVulkanWindow.");
  options.addHelpOption();
  options.addPositionalArgument("picture", "what to show; any file that Qt reads");
  options.addOption({"plain", "the picture alone, without sliders"});
  options.addOption({"resize", "another size of the plain window, after the first frame", "WIDTHxHEIGHT"});
  options.addOption({"save", "write the picture as it is shown to a file, in its own size", "FILE"});
  options.addOption({"check", "compare the picture with the interpreter's, and end"});
  for (const Slider& s : kSliders) options.addOption({s.option, s.help, "NUMBER"});
  options.process(app);
  const QStringList files = options.positionalArguments();
  if (files.size() > 1) fail("one picture, not " + std::to_string(files.size()));
  const QString file = files.isEmpty() ? QString(TESSERA_SAMPLES_DIR "/mandelbrot.png") : files[0];
  const QImage picture(file);
  if (picture.isNull()) fail(file.toStdString() + " is no picture that Qt can read");
  if (options.isSet("resize")) size_of(options.value("resize"));
  if (options.isSet("resize") && !options.isSet("plain")) fail("--resize is of the window that --plain makes");

  QVulkanInstance instance;
  instance.setApiVersion(QVersionNumber(1, 3));
  if (validation) instance.setLayers({"VK_LAYER_KHRONOS_validation"});
  if (!instance.create())
    fail("there is no Vulkan 1.3 here (VkResult " + std::to_string(instance.errorCode()) +
         "): install the driver of the GPU, or Mesa's for the CPU");
  auto* const viewer = new Viewer(picture);
  viewer->setVulkanInstance(&instance);
  Settings settings;
  for (const Slider& s : kSliders)
    if (options.isSet(s.option)) {
      bool good = false;
      settings.*s.value = options.value(s.option).toFloat(&good);
      if (!good || !(settings.*s.value >= s.least) || !(settings.*s.value <= s.most))
        fail("--" + std::string(s.option) + " " + options.value(s.option).toStdString() + " is no number from " +
             QString::number(s.least).toStdString() + " to " + QString::number(s.most).toStdString());
    }
  viewer->set(settings);
  choose_device(*viewer);
  Tasks tasks{viewer, {}, options.value("save"), options.isSet("check")};
  if (options.isSet("resize")) tasks.resize = size_of(options.value("resize"));
  viewer->after_frames([&] { tasks.after_frame(); });
  viewer->setTitle("Tessera: qt");
  std::unique_ptr<QWidget> window;
  std::unique_ptr<Viewer> plain;
  if (options.isSet("plain")) {
    plain.reset(viewer);
    viewer->setPosition(0, 0);
    viewer->show();
  } else {
    window.reset(with_sliders(viewer));  // which owns the viewer then
    window->show();
  }
  return QApplication::exec();
} catch (const std::exception& e) {
  std::cerr << "qt: " << e.what() << "\n";
  return 1;
}
