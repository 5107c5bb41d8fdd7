#include "samples/qt/viewer.h"

#include <runtime/interop.h>
#include <runtime/record.h>

#include <QTimer>
#include <QVulkanDeviceFunctions>
#include <QVulkanFunctions>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
// clang-format off: what glslang writes includes nothing
#include <qt_shaders/picture_frag.h>
#include <qt_shaders/picture_vert.h>
// clang-format on
#include <stdexcept>
#include <string>

#include "samples/qt/features.h"
#include "samples/qt/filter.h"

namespace viewer {

namespace ts = tessera;

namespace {
constexpr VkFormat kFormat = VK_FORMAT_R8G8B8A8_UNORM;
constexpr VkImageUsageFlags kUsage = VK_IMAGE_USAGE_STORAGE_BIT | VK_IMAGE_USAGE_SAMPLED_BIT;
constexpr VkImageLayout kShown = VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL;

template <class T>
T structure(VkStructureType type) {
  T t = {};
  t.sType = type;
  return t;
}

void check(VkResult r, const char* what) {
  if (r != VK_SUCCESS) throw std::runtime_error(std::string(what) + ": VkResult " + std::to_string(r));
}
}  // namespace

template <class F>
void guarded(const F& f) {
  try {
    f();
  } catch (const std::exception& e) {
    std::cerr << "qt: " << e.what() << "\n";
    std::_Exit(1);  // without the destructors of what Qt is using
  }
}

/// Qt calls it: with a device, for each frame, and before the device goes.
class Renderer : public QVulkanWindowRenderer {
 public:
  explicit Renderer(Viewer& window)
      : window_(window),
        bilateral_(filter::bilateral(height(), width())),
        develop_(filter::develop(height(), width())) {}

  void initResources() override {
    guarded([&] { make(); });
  }
  void startNextFrame() override {
    guarded([&] { record(window_.currentCommandBuffer()); });
    window_.frameReady();
    QTimer::singleShot(0, &window_, [w = &window_] {
      if (w->after_frame_) guarded(w->after_frame_);
    });
  }
  void releaseResources() override {
    const VkDevice d = window_.device();
    vk_->vkDeviceWaitIdle(d);
    stream_.reset(), smoother_.reset(), developer_.reset(), shown_.reset();
    device_picture_ = smooth_ = {};
    device_.reset();
    vk_->vkDestroyPipeline(d, pipeline_, nullptr);
    vk_->vkDestroyPipelineLayout(d, layout_, nullptr);
    vk_->vkDestroyDescriptorPool(d, pool_, nullptr);
    vk_->vkDestroyDescriptorSetLayout(d, set_layout_, nullptr);
    vk_->vkDestroySampler(d, sampler_, nullptr);
    vk_->vkDestroyImageView(d, view_, nullptr);
    vk_->vkDestroyImage(d, image_, nullptr);
    vk_->vkFreeMemory(d, memory_, nullptr);
  }

  QImage developed() {
    const ts::Array texels = ts::read_image(*shown_, ts::u8, {kShown, kShown}).download();
    return QImage(reinterpret_cast<const uchar*>(texels.bytes()), static_cast<int>(width()), static_cast<int>(height()),
                  4 * static_cast<int>(width()), QImage::Format_RGBA8888)
        .copy();
  }

  double difference() {
    const Settings& s = window_.settings();
    const auto number = [](float x) { return ts::Array({}, std::vector<float>{x}); };
    const ts::Array smooth = ts::interpret(bilateral_, number(s.smoothness), window_.picture());
    const ts::Array wanted =
        ts::interpret(develop_, number(s.exposure), number(s.sharpness), number(s.contrast), smooth);
    const ts::Array got = ts::read_image(*shown_, ts::f32, {kShown, kShown}).download();
    double worst = 0;
    for (int64_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::abs(std::round(255 * got.at(i)) - std::round(255 * wanted.at(i))));
    return worst;
  }

 private:
  int64_t height() const { return window_.picture().shape()[0]; }
  int64_t width() const { return window_.picture().shape()[1]; }

  void make() {
    vk_ = window_.vulkanInstance()->deviceFunctions(window_.device());
    import();
    make_image();
    make_descriptors();
    make_pipeline();
    device_picture_ = ts::DeviceArray(*device_, window_.picture());
    smooth_ = ts::DeviceArray(*device_, window_.picture().shape(), ts::f32);
    const ts::PrepareOptions options{.frames_in_flight = window_.concurrentFrameCount()};
    smoother_.emplace(*device_, ts::compile(bilateral_.trace(), device_->target()), options);
    ts::PrepareOptions with_image = options;
    with_image.images = {{4, *shown_}};
    developer_.emplace(*device_, ts::compile(develop_.trace(), device_->target()), with_image);
    stream_.emplace(*device_);
  }

  void record(VkCommandBuffer commands) {
    const Settings& s = window_.settings();
    // The last frame may still be drawing the picture that this one's kernels make anew.
    const ts::Scopes needs = developer_->scopes();
    barrier(commands, VK_PIPELINE_STAGE_FRAGMENT_SHADER_BIT, 0, needs.wait_stages, needs.wait_accesses);
    stream_->begin(commands, frame_++);
    stream_->record(*smoother_, {s.smoothness, device_picture_, smooth_});
    stream_->record(*developer_, {s.exposure, s.sharpness, s.contrast, smooth_,
                                  ts::Argument(*shown_, {VK_IMAGE_LAYOUT_UNDEFINED, kShown})});
    const ts::Scopes made = stream_->end();
    barrier(commands, made.signal_stages, made.signal_accesses, VK_PIPELINE_STAGE_FRAGMENT_SHADER_BIT,
            VK_ACCESS_SHADER_READ_BIT);
    draw(commands);
  }

  void import() {
    ts::ImportedDevice d;
    d.get_instance_proc_addr = features_loader();
    d.instance = window_.vulkanInstance()->vkInstance();
    d.api_version = VK_API_VERSION_1_3;
    d.physical_device = window_.physicalDevice();
    d.device = window_.device();
    d.queue = window_.graphicsQueue();
    d.queue_family = window_.graphicsQueueFamilyIndex();
    for (const QByteArray& e : window_.vulkanInstance()->extensions()) d.instance_extensions.push_back(e.toStdString());
    ts::enabled_by(*features_created_with(), d);
    device_ = ts::Device::import(d);
  }

  void make_image() {
    const VkDevice d = window_.device();
    const VkExtent2D size{static_cast<uint32_t>(width()), static_cast<uint32_t>(height())};
    auto image = structure<VkImageCreateInfo>(VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO);
    image.imageType = VK_IMAGE_TYPE_2D, image.format = kFormat, image.extent = {size.width, size.height, 1};
    image.mipLevels = image.arrayLayers = 1, image.samples = VK_SAMPLE_COUNT_1_BIT, image.usage = kUsage;
    check(vk_->vkCreateImage(d, &image, nullptr, &image_), "vkCreateImage");
    VkMemoryRequirements needs;
    vk_->vkGetImageMemoryRequirements(d, image_, &needs);
    uint32_t type = window_.deviceLocalMemoryIndex();
    if (!(needs.memoryTypeBits >> type & 1))
      for (type = 0; !(needs.memoryTypeBits >> type & 1);) ++type;
    const VkMemoryAllocateInfo memory{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, nullptr, needs.size, type};
    check(vk_->vkAllocateMemory(d, &memory, nullptr, &memory_), "vkAllocateMemory");
    check(vk_->vkBindImageMemory(d, image_, memory_, 0), "vkBindImageMemory");
    const VkImageViewCreateInfo view{
        VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO, nullptr, 0, image_, VK_IMAGE_VIEW_TYPE_2D, kFormat, {},
        {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1}};
    check(vk_->vkCreateImageView(d, &view, nullptr, &view_), "vkCreateImageView");
    shown_.emplace(*device_, ts::ImportedImage{.image = image_, .format = kFormat, .extent = size, .usage = kUsage});
  }

  void make_descriptors() {
    const VkDevice d = window_.device();
    auto sampler = structure<VkSamplerCreateInfo>(VK_STRUCTURE_TYPE_SAMPLER_CREATE_INFO);
    sampler.magFilter = sampler.minFilter = VK_FILTER_LINEAR;
    sampler.addressModeU = sampler.addressModeV = sampler.addressModeW = VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_EDGE;
    check(vk_->vkCreateSampler(d, &sampler, nullptr, &sampler_), "vkCreateSampler");
    const VkDescriptorSetLayoutBinding binding{0, VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER, 1,
                                               VK_SHADER_STAGE_FRAGMENT_BIT, nullptr};
    const VkDescriptorSetLayoutCreateInfo sets{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, nullptr, 0, 1,
                                               &binding};
    check(vk_->vkCreateDescriptorSetLayout(d, &sets, nullptr, &set_layout_), "vkCreateDescriptorSetLayout");
    const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER, 1};
    const VkDescriptorPoolCreateInfo pool{VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, nullptr, 0, 1, 1, &size};
    check(vk_->vkCreateDescriptorPool(d, &pool, nullptr, &pool_), "vkCreateDescriptorPool");
    const VkDescriptorSetAllocateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO, nullptr, pool_, 1,
                                           &set_layout_};
    check(vk_->vkAllocateDescriptorSets(d, &info, &set_), "vkAllocateDescriptorSets");
    const VkDescriptorImageInfo image{sampler_, view_, kShown};
    auto write = structure<VkWriteDescriptorSet>(VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET);
    write.dstSet = set_, write.descriptorCount = 1, write.pImageInfo = &image;
    write.descriptorType = VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER;
    vk_->vkUpdateDescriptorSets(d, 1, &write, 0, nullptr);
  }

  VkShaderModule module(const uint32_t* words, size_t bytes) {
    const VkShaderModuleCreateInfo info{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, nullptr, 0, bytes, words};
    VkShaderModule made = VK_NULL_HANDLE;
    check(vk_->vkCreateShaderModule(window_.device(), &info, nullptr, &made), "vkCreateShaderModule");
    return made;
  }

  void make_pipeline() {
    const VkDevice d = window_.device();
    const VkPipelineLayoutCreateInfo layout{
        VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, nullptr, 0, 1, &set_layout_, 0, nullptr};
    check(vk_->vkCreatePipelineLayout(d, &layout, nullptr, &layout_), "vkCreatePipelineLayout");
    const VkShaderModule vertex = module(picture_vert, sizeof picture_vert),
                         fragment = module(picture_frag, sizeof picture_frag);
    const auto stage = structure<VkPipelineShaderStageCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO);
    VkPipelineShaderStageCreateInfo stages[2] = {stage, stage};
    stages[0].stage = VK_SHADER_STAGE_VERTEX_BIT, stages[0].module = vertex, stages[0].pName = "main";
    stages[1].stage = VK_SHADER_STAGE_FRAGMENT_BIT, stages[1].module = fragment, stages[1].pName = "main";
    const auto input =
        structure<VkPipelineVertexInputStateCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_VERTEX_INPUT_STATE_CREATE_INFO);
    auto assembly =
        structure<VkPipelineInputAssemblyStateCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_INPUT_ASSEMBLY_STATE_CREATE_INFO);
    assembly.topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST;
    auto viewport = structure<VkPipelineViewportStateCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_VIEWPORT_STATE_CREATE_INFO);
    viewport.viewportCount = viewport.scissorCount = 1;
    auto raster =
        structure<VkPipelineRasterizationStateCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_RASTERIZATION_STATE_CREATE_INFO);
    raster.lineWidth = 1;
    auto samples =
        structure<VkPipelineMultisampleStateCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_MULTISAMPLE_STATE_CREATE_INFO);
    samples.rasterizationSamples = window_.sampleCountFlagBits();
    const auto depth =
        structure<VkPipelineDepthStencilStateCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_DEPTH_STENCIL_STATE_CREATE_INFO);
    VkPipelineColorBlendAttachmentState color{};
    color.colorWriteMask = 0xf;
    auto blend =
        structure<VkPipelineColorBlendStateCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_COLOR_BLEND_STATE_CREATE_INFO);
    blend.attachmentCount = 1, blend.pAttachments = &color;
    const VkDynamicState states[] = {VK_DYNAMIC_STATE_VIEWPORT, VK_DYNAMIC_STATE_SCISSOR};
    const VkPipelineDynamicStateCreateInfo dynamic{VK_STRUCTURE_TYPE_PIPELINE_DYNAMIC_STATE_CREATE_INFO, nullptr, 0, 2,
                                                   states};
    auto info = structure<VkGraphicsPipelineCreateInfo>(VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_CREATE_INFO);
    info.stageCount = 2, info.pStages = stages, info.pVertexInputState = &input, info.pInputAssemblyState = &assembly;
    info.pViewportState = &viewport, info.pRasterizationState = &raster, info.pMultisampleState = &samples;
    info.pDepthStencilState = &depth, info.pColorBlendState = &blend, info.pDynamicState = &dynamic;
    info.layout = layout_, info.renderPass = window_.defaultRenderPass();
    const VkResult r = vk_->vkCreateGraphicsPipelines(d, VK_NULL_HANDLE, 1, &info, nullptr, &pipeline_);
    vk_->vkDestroyShaderModule(d, vertex, nullptr);
    vk_->vkDestroyShaderModule(d, fragment, nullptr);
    check(r, "vkCreateGraphicsPipelines");
  }

  void barrier(VkCommandBuffer commands, VkPipelineStageFlags2 from, VkAccessFlags2 wrote, VkPipelineStageFlags2 to,
               VkAccessFlags2 reads) {
    // Of Tessera's stages and accesses, all have the same bits in Vulkan 1.0.
    const VkMemoryBarrier memory{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, static_cast<VkAccessFlags>(wrote),
                                 static_cast<VkAccessFlags>(reads)};
    vk_->vkCmdPipelineBarrier(commands, static_cast<VkPipelineStageFlags>(from), static_cast<VkPipelineStageFlags>(to),
                              0, 1, &memory, 0, nullptr, 0, nullptr);
  }

  void draw(VkCommandBuffer commands) {
    const QSize size = window_.swapChainImageSize();
    VkClearValue clear[3] = {};
    clear[0].color = {{0.1f, 0.1f, 0.1f, 1}}, clear[1].depthStencil = {1, 0}, clear[2] = clear[0];
    const VkRenderPassBeginInfo pass{
        VK_STRUCTURE_TYPE_RENDER_PASS_BEGIN_INFO,
        nullptr,
        window_.defaultRenderPass(),
        window_.currentFramebuffer(),
        {{0, 0}, {static_cast<uint32_t>(size.width()), static_cast<uint32_t>(size.height())}},
        window_.sampleCountFlagBits() > VK_SAMPLE_COUNT_1_BIT ? 3u : 2u,
        clear};
    vk_->vkCmdBeginRenderPass(commands, &pass, VK_SUBPASS_CONTENTS_INLINE);
    const double scale =
        std::min(size.width() / static_cast<double>(width()), size.height() / static_cast<double>(height()));
    const float w = static_cast<float>(scale * static_cast<double>(width())),
                h = static_cast<float>(scale * static_cast<double>(height()));
    const VkViewport viewport{
        (static_cast<float>(size.width()) - w) / 2, (static_cast<float>(size.height()) - h) / 2, w, h, 0, 1};
    const int left = static_cast<int>(std::floor(viewport.x)), top = static_cast<int>(std::floor(viewport.y));
    const VkRect2D scissor{{std::max(left, 0), std::max(top, 0)},
                           {static_cast<uint32_t>(std::ceil(w)), static_cast<uint32_t>(std::ceil(h))}};
    vk_->vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_GRAPHICS, pipeline_);
    vk_->vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_GRAPHICS, layout_, 0, 1, &set_, 0, nullptr);
    vk_->vkCmdSetViewport(commands, 0, 1, &viewport);
    vk_->vkCmdSetScissor(commands, 0, 1, &scissor);
    vk_->vkCmdDraw(commands, 3, 1, 0, 0);
    vk_->vkCmdEndRenderPass(commands);
  }

  Viewer& window_;
  ts::PallasCall bilateral_, develop_;
  QVulkanDeviceFunctions* vk_ = nullptr;
  std::optional<ts::Device> device_;
  std::optional<ts::DeviceImage> shown_;
  ts::DeviceArray device_picture_, smooth_;
  std::optional<ts::PreparedKernel> smoother_, developer_;
  std::optional<ts::CommandStream> stream_;
  uint64_t frame_ = 0;
  VkImage image_ = VK_NULL_HANDLE;
  VkDeviceMemory memory_ = VK_NULL_HANDLE;
  VkImageView view_ = VK_NULL_HANDLE;
  VkSampler sampler_ = VK_NULL_HANDLE;
  VkDescriptorSetLayout set_layout_ = VK_NULL_HANDLE;
  VkDescriptorPool pool_ = VK_NULL_HANDLE;
  VkDescriptorSet set_ = VK_NULL_HANDLE;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkPipeline pipeline_ = VK_NULL_HANDLE;
};

Viewer::Viewer(const QImage& picture) : picture_({picture.height(), picture.width(), 4}, ts::f32) {
  const QImage rgba = picture.convertToFormat(QImage::Format_RGBA8888);
  const auto to = picture_.data<float>();
  size_t i = 0;
  for (int y = 0; y < rgba.height(); ++y) {
    const uchar* row = rgba.constScanLine(y);
    for (int x = 0; x < 4 * rgba.width(); ++x) to[i++] = row[x] / 255.0f;
  }
  QByteArrayList extensions;
  for (const ts::DeviceExtension& e : ts::optional_device_extensions()) extensions.push_back(e.name);
  setDeviceExtensions(extensions);  // those that the device has
  // The kernels encode colours as sRGB, so what they make is shown as it is.
  setPreferredColorFormats({VK_FORMAT_B8G8R8A8_UNORM, VK_FORMAT_R8G8B8A8_UNORM});
  resize(picture.size());
}
Viewer::~Viewer() { destroy(); }  // while Qt can still call releaseResources()
QVulkanWindowRenderer* Viewer::createRenderer() { return renderer_ = new Renderer(*this); }
void Viewer::set(const Settings& settings) {
  settings_ = settings;
  requestUpdate();
}
double Viewer::difference() { return renderer_->difference(); }
QImage Viewer::developed() { return renderer_->developed(); }

}  // namespace viewer
