#include "samples/renderer/host.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <stdexcept>

#ifdef RENDERER_WINDOW
#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>
#endif

namespace renderer {
namespace {

template <class T>
T structure(VkStructureType type, const void* next = nullptr) {
  T t = {};
  t.sType = type, t.pNext = next;
  return t;
}

}  // namespace

void check(VkResult r, const char* what) {
  if (r != VK_SUCCESS) throw std::runtime_error(std::string(what) + ": VkResult " + std::to_string(r));
}

#ifdef RENDERER_WINDOW
struct Host::Window {
  GLFWwindow* window = nullptr;
  bool resized = false;
  explicit Window(const HostOptions& o) {
    if (!glfwInit()) throw std::runtime_error("GLFW finds no display: without --window the pictures go to a file");
    if (!glfwVulkanSupported())
      throw std::runtime_error(
          "GLFW finds no way to show what Vulkan draws: without --window the pictures go to a file");
    glfwWindowHint(GLFW_CLIENT_API, GLFW_NO_API);
    window = glfwCreateWindow(static_cast<int>(o.size.width), static_cast<int>(o.size.height), o.title.c_str(), nullptr,
                              nullptr);
    if (!window) throw std::runtime_error("GLFW cannot make a window");
    glfwSetWindowUserPointer(window, this);
    glfwSetFramebufferSizeCallback(
        window, [](GLFWwindow* w, int, int) { static_cast<Window*>(glfwGetWindowUserPointer(w))->resized = true; });
  }
  ~Window() {
    if (window) glfwDestroyWindow(window);
    glfwTerminate();
  }
  // Of the pixels; waits while the window is minimised.
  VkExtent2D size() const {
    int w = 0, h = 0;
    for (glfwGetFramebufferSize(window, &w, &h); (w == 0 || h == 0) && !glfwWindowShouldClose(window);
         glfwGetFramebufferSize(window, &w, &h))
      glfwWaitEvents();
    return {static_cast<uint32_t>(std::max(w, 1)), static_cast<uint32_t>(std::max(h, 1))};
  }
};
#else
struct Host::Window {
  explicit Window(const HostOptions&) {
    throw std::runtime_error(
        "this program was built without GLFW (Debian: libglfw3-dev), so it has no windows: without --window the "
        "pictures go to a file");
  }
};
#endif

Host::Features::Features() {
  all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, all.pNext = &v11;
  v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, v11.pNext = &v12;
  v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, v12.pNext = &v13;
  v13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES;
}

Host::Host(const HostOptions& options, const Enable& enable, const std::vector<const char*>& extensions)
    : size_(options.size), wanted_(options.size) {
  if (options.window) window_ = std::make_unique<Window>(options);
  try {
    make(options, enable, extensions);
  } catch (...) {
    destroy();
    throw;
  }
}

void Host::make(const HostOptions& options, const Enable& enable, const std::vector<const char*>& extensions) {
  make_instance(options);
#ifdef RENDERER_WINDOW
  if (window_)
    check(glfwCreateWindowSurface(instance_, window_->window, nullptr, &surface_), "glfwCreateWindowSurface");
#endif
  choose_device(options.device);
  make_device(enable, extensions);
  for (Frame& f : frames_) {
    VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr,
                                 VK_COMMAND_POOL_CREATE_TRANSIENT_BIT, family_};
    VkCommandPool p;
    check(vkCreateCommandPool(device_, &pool, nullptr, &p), "vkCreateCommandPool");
    f.pool = {p, [d = device_](VkCommandPool x) { vkDestroyCommandPool(d, x, nullptr); }};
    VkCommandBufferAllocateInfo allocate{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, f.pool,
                                         VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
    check(vkAllocateCommandBuffers(device_, &allocate, &f.commands), "vkAllocateCommandBuffers");
    VkFenceCreateInfo fence{VK_STRUCTURE_TYPE_FENCE_CREATE_INFO, nullptr, 0};
    VkFence done;
    check(vkCreateFence(device_, &fence, nullptr, &done), "vkCreateFence");
    f.done = {done, [d = device_](VkFence x) { vkDestroyFence(d, x, nullptr); }};
    VkSemaphoreCreateInfo semaphore{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, nullptr, 0};
    VkSemaphore acquired;
    check(vkCreateSemaphore(device_, &semaphore, nullptr, &acquired), "vkCreateSemaphore");
    f.acquired = {acquired, [d = device_](VkSemaphore x) { vkDestroySemaphore(d, x, nullptr); }};
  }
  if (window_) make_swapchain();
}

Host::~Host() { destroy(); }
void Host::destroy() {
  if (device_) vkDeviceWaitIdle(device_);
  swapchain_ = {};
  for (Frame& f : frames_) f = {};
  if (device_) vkDestroyDevice(device_, nullptr);
  if (surface_) vkDestroySurfaceKHR(instance_, surface_, nullptr);
  if (messenger_)
    reinterpret_cast<PFN_vkDestroyDebugUtilsMessengerEXT>(
        vkGetInstanceProcAddr(instance_, "vkDestroyDebugUtilsMessengerEXT"))(instance_, messenger_, nullptr);
  if (instance_) vkDestroyInstance(instance_, nullptr);
}

void Host::make_instance(const HostOptions& options) {
  const char* layer = "VK_LAYER_KHRONOS_validation";
#ifdef RENDERER_WINDOW
  if (window_) {
    uint32_t n = 0;
    const char** needed = glfwGetRequiredInstanceExtensions(&n);
    instance_extensions_.assign(needed, needed + n);
  }
#endif
  if (options.validation) instance_extensions_.push_back(VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
  const VkValidationFeatureEnableEXT synchronization = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT;
  const VkValidationFeaturesEXT validation{
      VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT, nullptr, 1, &synchronization, 0, nullptr};
  const VkApplicationInfo application{
      VK_STRUCTURE_TYPE_APPLICATION_INFO, nullptr, "renderer", 1, "renderer", 1, VK_API_VERSION_1_3};
  VkInstanceCreateInfo info{VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                            options.validation ? &validation : nullptr,
                            0,
                            &application,
                            options.validation ? 1u : 0u,
                            &layer,
                            static_cast<uint32_t>(instance_extensions_.size()),
                            instance_extensions_.data()};
  check(vkCreateInstance(&info, nullptr, &instance_), "vkCreateInstance");
  if (!options.validation) return;
  auto messenger =
      structure<VkDebugUtilsMessengerCreateInfoEXT>(VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT);
  messenger.messageSeverity =
      VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
  messenger.messageType =
      VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT;
  messenger.pUserData = &messages_;
  messenger.pfnUserCallback = [](VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,
                                 const VkDebugUtilsMessengerCallbackDataEXT* data, void* messages) -> VkBool32 {
    static_cast<std::vector<std::string>*>(messages)->emplace_back(data->pMessage);
    std::cerr << data->pMessage << "\n";
    return VK_FALSE;
  };
  const auto create = reinterpret_cast<PFN_vkCreateDebugUtilsMessengerEXT>(
      vkGetInstanceProcAddr(instance_, "vkCreateDebugUtilsMessengerEXT"));
  check(create(instance_, &messenger, nullptr, &messenger_), "vkCreateDebugUtilsMessengerEXT");
}

void Host::choose_device(const std::string& name) {
  uint32_t n = 0;
  check(vkEnumeratePhysicalDevices(instance_, &n, nullptr), "vkEnumeratePhysicalDevices");
  std::vector<VkPhysicalDevice> all(n);
  check(vkEnumeratePhysicalDevices(instance_, &n, all.data()), "vkEnumeratePhysicalDevices");
  const char* environment = std::getenv("TESSERA_DEVICE");
  std::string wanted = !name.empty() ? name : environment ? environment : "";
  const auto lower = [](std::string s) {
    std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return std::tolower(c); });
    return s;
  };
  wanted = lower(wanted);
  if (wanted.starts_with("vulkan")) wanted.erase(0, wanted.starts_with("vulkan:") ? 7 : 6);
  const bool is_index = !wanted.empty() && wanted.find_first_not_of("0123456789") == std::string::npos;
  int best = -1;
  for (size_t d = 0; d < all.size(); ++d) {
    const VkPhysicalDevice p = all[d];
    VkPhysicalDeviceProperties properties;
    vkGetPhysicalDeviceProperties(p, &properties);
    if (is_index ? wanted != std::to_string(d) : lower(properties.deviceName).find(wanted) == std::string::npos)
      continue;
    if (properties.apiVersion < VK_API_VERSION_1_3) continue;
    uint32_t families = 0;
    vkGetPhysicalDeviceQueueFamilyProperties(p, &families, nullptr);
    std::vector<VkQueueFamilyProperties> family(families);
    vkGetPhysicalDeviceQueueFamilyProperties(p, &families, family.data());
    for (uint32_t i = 0; i < families; ++i) {
      VkBool32 shows = VK_TRUE;
      if (surface_)
        check(vkGetPhysicalDeviceSurfaceSupportKHR(p, i, surface_, &shows), "vkGetPhysicalDeviceSurfaceSupportKHR");
      constexpr VkQueueFlags both = VK_QUEUE_GRAPHICS_BIT | VK_QUEUE_COMPUTE_BIT;
      const int score = properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU ? 2
                        : properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU        ? 0
                                                                                      : 1;
      if ((family[i].queueFlags & both) != both || !shows || score <= best) continue;
      best = score, physical_ = p, properties_ = properties, family_ = i;
    }
  }
  if (best < 0)
    throw std::runtime_error("no device" + (wanted.empty() ? "" : " named \"" + wanted + "\"") + " of " +
                             std::to_string(n) + " has Vulkan 1.3, graphics and compute in one queue" +
                             (surface_ ? ", and can show a window" : ""));
  vkGetPhysicalDeviceMemoryProperties(physical_, &memory_);
}

void Host::make_device(const Enable& enable, const std::vector<const char*>& extensions) {
  Features has;
  vkGetPhysicalDeviceFeatures2(physical_, &has.all);
  if (!has.v13.dynamicRendering || !has.v13.synchronization2)
    throw std::runtime_error(std::string(properties_.deviceName) + " lacks dynamicRendering or synchronization2");
  enabled_.v13.dynamicRendering = enabled_.v13.synchronization2 = VK_TRUE;
  if (enable) enable(&has.all, &enabled_.all);
  uint32_t n = 0;
  check(vkEnumerateDeviceExtensionProperties(physical_, nullptr, &n, nullptr), "vkEnumerateDeviceExtensionProperties");
  std::vector<VkExtensionProperties> there(n);
  check(vkEnumerateDeviceExtensionProperties(physical_, nullptr, &n, there.data()),
        "vkEnumerateDeviceExtensionProperties");
  for (const char* e : extensions)
    if (std::any_of(there.begin(), there.end(),
                    [&](const VkExtensionProperties& p) { return std::strcmp(p.extensionName, e) == 0; }))
      device_extensions_.push_back(e);
  if (window_) device_extensions_.push_back(VK_KHR_SWAPCHAIN_EXTENSION_NAME);
  static const float priority = 1;
  static VkDeviceQueueCreateInfo queue;
  queue = {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, nullptr, 0, family_, 1, &priority};
  created_ = {VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
              &enabled_.all,
              0,
              1,
              &queue,
              0,
              nullptr,
              static_cast<uint32_t>(device_extensions_.size()),
              device_extensions_.data(),
              nullptr};
  check(vkCreateDevice(physical_, &created_, nullptr, &device_), "vkCreateDevice");
  vkGetDeviceQueue(device_, family_, 0, &queue_);
}

uint32_t Host::memory_type(uint32_t allowed, VkMemoryPropertyFlags wanted) const {
  for (uint32_t i = 0; i < memory_.memoryTypeCount; ++i)
    if ((allowed >> i & 1) && (memory_.memoryTypes[i].propertyFlags & wanted) == wanted) return i;
  throw std::runtime_error("no memory type has the properties " + std::to_string(wanted));
}

Image Host::make_image(VkExtent2D size, VkFormat format, VkImageUsageFlags usage) {
  Image i;
  i.format = format, i.usage = usage, i.size = size;
  auto info = structure<VkImageCreateInfo>(VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO);
  info.imageType = VK_IMAGE_TYPE_2D, info.format = format, info.extent = {size.width, size.height, 1};
  info.mipLevels = info.arrayLayers = 1, info.samples = VK_SAMPLE_COUNT_1_BIT, info.tiling = VK_IMAGE_TILING_OPTIMAL,
  info.usage = usage;
  VkImage image;
  check(vkCreateImage(device_, &info, nullptr, &image), "vkCreateImage");
  i.image = {image, [d = device_](VkImage x) { vkDestroyImage(d, x, nullptr); }};
  VkMemoryRequirements needs;
  vkGetImageMemoryRequirements(device_, image, &needs);
  VkMemoryAllocateInfo allocate{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, nullptr, needs.size,
                                memory_type(needs.memoryTypeBits, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT)};
  VkDeviceMemory memory;
  check(vkAllocateMemory(device_, &allocate, nullptr, &memory), "vkAllocateMemory");
  i.memory = {memory, [d = device_](VkDeviceMemory x) { vkFreeMemory(d, x, nullptr); }};
  check(vkBindImageMemory(device_, image, memory, 0), "vkBindImageMemory");
  auto view = structure<VkImageViewCreateInfo>(VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO);
  view.image = image, view.viewType = VK_IMAGE_VIEW_TYPE_2D, view.format = format;
  view.subresourceRange = {format == VK_FORMAT_D32_SFLOAT ? VK_IMAGE_ASPECT_DEPTH_BIT : VK_IMAGE_ASPECT_COLOR_BIT, 0, 1,
                           0, 1};
  if (usage & ~static_cast<VkImageUsageFlags>(VK_IMAGE_USAGE_TRANSFER_SRC_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT)) {
    VkImageView v;
    check(vkCreateImageView(device_, &view, nullptr, &v), "vkCreateImageView");
    i.view = {v, [d = device_](VkImageView x) { vkDestroyImageView(d, x, nullptr); }};
  }
  return i;
}

Buffer Host::make_buffer(VkDeviceSize size, VkBufferUsageFlags usage, bool mapped) {
  Buffer b;
  b.size = size, b.usage = usage;
  VkBufferCreateInfo info{
      VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, nullptr, 0, size, usage, VK_SHARING_MODE_EXCLUSIVE, 0, nullptr};
  VkBuffer buffer;
  check(vkCreateBuffer(device_, &info, nullptr, &buffer), "vkCreateBuffer");
  b.buffer = {buffer, [d = device_](VkBuffer x) { vkDestroyBuffer(d, x, nullptr); }};
  VkMemoryRequirements needs;
  vkGetBufferMemoryRequirements(device_, buffer, &needs);
  const VkMemoryAllocateFlagsInfo flags{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, nullptr,
                                        VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT, 0};
  VkMemoryAllocateInfo allocate{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                usage & VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT ? &flags : nullptr, needs.size,
                                memory_type(needs.memoryTypeBits, mapped ? VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                                                               VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
                                                                         : VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT)};
  VkDeviceMemory memory;
  check(vkAllocateMemory(device_, &allocate, nullptr, &memory), "vkAllocateMemory");
  b.memory = {memory, [d = device_](VkDeviceMemory x) { vkFreeMemory(d, x, nullptr); }};
  check(vkBindBufferMemory(device_, buffer, memory, 0), "vkBindBufferMemory");
  if (mapped) check(vkMapMemory(device_, memory, 0, VK_WHOLE_SIZE, 0, &b.mapped), "vkMapMemory");
  return b;
}

Owned<VkShaderModule> Host::make_module(const uint32_t* words, size_t bytes) {
  VkShaderModuleCreateInfo info{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, nullptr, 0, bytes, words};
  VkShaderModule m;
  check(vkCreateShaderModule(device_, &info, nullptr, &m), "vkCreateShaderModule");
  return Owned<VkShaderModule>(m, [d = device_](VkShaderModule x) { vkDestroyShaderModule(d, x, nullptr); });
}

Owned<VkPipelineLayout> Host::make_layout(VkShaderStageFlags stages, uint32_t push_bytes,
                                          VkDescriptorSetLayout textures) {
  const VkPushConstantRange push{stages, 0, push_bytes};
  VkPipelineLayoutCreateInfo layout{VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                    nullptr,
                                    0,
                                    textures ? 1u : 0u,
                                    &textures,
                                    push_bytes ? 1u : 0u,
                                    &push};
  VkPipelineLayout l;
  check(vkCreatePipelineLayout(device_, &layout, nullptr, &l), "vkCreatePipelineLayout");
  return {l, [d = device_](VkPipelineLayout x) { vkDestroyPipelineLayout(d, x, nullptr); }};
}

Host::Pipeline Host::make_compute_pipeline(const uint32_t* words, size_t bytes, uint32_t push_bytes) {
  Pipeline out;
  out.layout = make_layout(VK_SHADER_STAGE_COMPUTE_BIT, push_bytes, VK_NULL_HANDLE);
  const Owned<VkShaderModule> module = make_module(words, bytes);
  auto info = structure<VkComputePipelineCreateInfo>(VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO);
  info.stage = structure<VkPipelineShaderStageCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO);
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT, info.stage.module = module, info.stage.pName = "main";
  info.layout = out.layout;
  VkPipeline p;
  check(vkCreateComputePipelines(device_, VK_NULL_HANDLE, 1, &info, nullptr, &p), "vkCreateComputePipelines");
  out.pipeline = {p, [d = device_](VkPipeline x) { vkDestroyPipeline(d, x, nullptr); }};
  return out;
}

Host::Textures Host::make_textures(uint32_t count) {
  Textures t;
  auto nearest = structure<VkSamplerCreateInfo>(VK_STRUCTURE_TYPE_SAMPLER_CREATE_INFO);
  nearest.addressModeU = nearest.addressModeV = nearest.addressModeW = VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_EDGE;
  VkSampler sampler;
  check(vkCreateSampler(device_, &nearest, nullptr, &sampler), "vkCreateSampler");
  t.sampler = {sampler, [d = device_](VkSampler x) { vkDestroySampler(d, x, nullptr); }};
  const std::vector<VkSampler> samplers(count, sampler);
  std::vector<VkDescriptorSetLayoutBinding> bindings;
  for (uint32_t i = 0; i < count; ++i)
    bindings.push_back({i, VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER, 1, VK_SHADER_STAGE_FRAGMENT_BIT, &samplers[i]});
  auto layout = structure<VkDescriptorSetLayoutCreateInfo>(VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO);
  layout.bindingCount = count, layout.pBindings = bindings.data();
  VkDescriptorSetLayout l;
  check(vkCreateDescriptorSetLayout(device_, &layout, nullptr, &l), "vkCreateDescriptorSetLayout");
  t.layout = {l, [d = device_](VkDescriptorSetLayout x) { vkDestroyDescriptorSetLayout(d, x, nullptr); }};
  const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER, count};
  const VkDescriptorPoolCreateInfo pool{VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, nullptr, 0, 1, 1, &size};
  VkDescriptorPool p;
  check(vkCreateDescriptorPool(device_, &pool, nullptr, &p), "vkCreateDescriptorPool");
  t.pool = {p, [d = device_](VkDescriptorPool x) { vkDestroyDescriptorPool(d, x, nullptr); }};
  const VkDescriptorSetAllocateInfo allocate{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO, nullptr, p, 1, &l};
  check(vkAllocateDescriptorSets(device_, &allocate, &t.set), "vkAllocateDescriptorSets");
  return t;
}

void Host::set_textures(const Textures& textures, const std::vector<const Image*>& images) {
  std::vector<VkDescriptorImageInfo> infos;
  for (const Image* i : images) infos.push_back({VK_NULL_HANDLE, i->view, VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL});
  std::vector<VkWriteDescriptorSet> writes;
  for (uint32_t i = 0; i < infos.size(); ++i)
    writes.push_back({VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET, nullptr, textures.set, i, 0, 1,
                      VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER, &infos[i], nullptr, nullptr});
  vkUpdateDescriptorSets(device_, static_cast<uint32_t>(writes.size()), writes.data(), 0, nullptr);
}

Host::Pipeline Host::make_pipeline(const PipelineInfo& p) {
  Pipeline out;
  out.layout = make_layout(VK_SHADER_STAGE_VERTEX_BIT | VK_SHADER_STAGE_FRAGMENT_BIT, p.push_bytes, p.textures);
  const Owned<VkShaderModule> vertex = make_module(p.vertex, p.vertex_bytes);
  Owned<VkShaderModule> fragment;
  if (p.fragment) fragment = make_module(p.fragment, p.fragment_bytes);
  const VkPipelineShaderStageCreateInfo stages[] = {{VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO, nullptr, 0,
                                                     VK_SHADER_STAGE_VERTEX_BIT, vertex, "main", nullptr},
                                                    {VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO, nullptr, 0,
                                                     VK_SHADER_STAGE_FRAGMENT_BIT, fragment, "main", nullptr}};
  const VkVertexInputBindingDescription binding{0, p.stride, VK_VERTEX_INPUT_RATE_VERTEX};
  std::vector<VkVertexInputAttributeDescription> attributes;
  for (const VkFormat f : p.attributes)
    attributes.push_back(
        {static_cast<uint32_t>(attributes.size()), 0, f, static_cast<uint32_t>(16 * attributes.size())});
  auto input =
      structure<VkPipelineVertexInputStateCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_VERTEX_INPUT_STATE_CREATE_INFO);
  if (p.stride) input.vertexBindingDescriptionCount = 1, input.pVertexBindingDescriptions = &binding;
  input.vertexAttributeDescriptionCount = static_cast<uint32_t>(attributes.size()),
  input.pVertexAttributeDescriptions = attributes.data();
  const VkPipelineInputAssemblyStateCreateInfo assembly{VK_STRUCTURE_TYPE_PIPELINE_INPUT_ASSEMBLY_STATE_CREATE_INFO,
                                                        nullptr, 0, p.topology, VK_FALSE};
  auto viewport = structure<VkPipelineViewportStateCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_VIEWPORT_STATE_CREATE_INFO);
  viewport.viewportCount = viewport.scissorCount = 1;
  auto raster =
      structure<VkPipelineRasterizationStateCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_RASTERIZATION_STATE_CREATE_INFO);
  raster.polygonMode = VK_POLYGON_MODE_FILL, raster.cullMode = VK_CULL_MODE_NONE,
  raster.frontFace = VK_FRONT_FACE_COUNTER_CLOCKWISE, raster.lineWidth = 1;
  raster.depthBiasEnable = p.depth_slope != 0, raster.depthBiasSlopeFactor = p.depth_slope;
  auto samples =
      structure<VkPipelineMultisampleStateCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_MULTISAMPLE_STATE_CREATE_INFO);
  samples.rasterizationSamples = VK_SAMPLE_COUNT_1_BIT;
  auto depth =
      structure<VkPipelineDepthStencilStateCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_DEPTH_STENCIL_STATE_CREATE_INFO);
  depth.depthTestEnable = depth.depthWriteEnable = p.depth != VK_FORMAT_UNDEFINED,
  depth.depthCompareOp = VK_COMPARE_OP_LESS;
  VkPipelineColorBlendAttachmentState blend{};
  blend.colorWriteMask = 15, blend.blendEnable = p.add;
  blend.srcColorBlendFactor = blend.dstColorBlendFactor = blend.srcAlphaBlendFactor = blend.dstAlphaBlendFactor =
      VK_BLEND_FACTOR_ONE;
  const std::vector<VkPipelineColorBlendAttachmentState> blends(p.colors.size(), blend);
  auto colors =
      structure<VkPipelineColorBlendStateCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_COLOR_BLEND_STATE_CREATE_INFO);
  colors.attachmentCount = static_cast<uint32_t>(blends.size()), colors.pAttachments = blends.data();
  const VkDynamicState states[] = {VK_DYNAMIC_STATE_VIEWPORT, VK_DYNAMIC_STATE_SCISSOR};
  const VkPipelineDynamicStateCreateInfo dynamic{VK_STRUCTURE_TYPE_PIPELINE_DYNAMIC_STATE_CREATE_INFO, nullptr, 0, 2,
                                                 states};
  const VkPipelineRenderingCreateInfo rendering{VK_STRUCTURE_TYPE_PIPELINE_RENDERING_CREATE_INFO,
                                                nullptr,
                                                0,
                                                static_cast<uint32_t>(p.colors.size()),
                                                p.colors.data(),
                                                p.depth,
                                                VK_FORMAT_UNDEFINED};
  auto info = structure<VkGraphicsPipelineCreateInfo>(VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_CREATE_INFO, &rendering);
  info.stageCount = p.fragment ? 2 : 1, info.pStages = stages, info.pVertexInputState = &input,
  info.pInputAssemblyState = &assembly, info.pViewportState = &viewport, info.pRasterizationState = &raster;
  info.pMultisampleState = &samples, info.pDepthStencilState = &depth, info.pColorBlendState = &colors,
  info.pDynamicState = &dynamic, info.layout = out.layout;
  VkPipeline pipeline;
  check(vkCreateGraphicsPipelines(device_, VK_NULL_HANDLE, 1, &info, nullptr, &pipeline), "vkCreateGraphicsPipelines");
  out.pipeline = {pipeline, [d = device_](VkPipeline x) { vkDestroyPipeline(d, x, nullptr); }};
  return out;
}

void memory_barrier(VkCommandBuffer commands, Scope before, Scope after) {
  const VkMemoryBarrier2 barrier{
      VK_STRUCTURE_TYPE_MEMORY_BARRIER_2, nullptr, before.stages, before.accesses, after.stages, after.accesses};
  auto info = structure<VkDependencyInfo>(VK_STRUCTURE_TYPE_DEPENDENCY_INFO);
  info.memoryBarrierCount = 1, info.pMemoryBarriers = &barrier;
  vkCmdPipelineBarrier2(commands, &info);
}

void image_barrier(VkCommandBuffer commands, const Image& image, VkImageLayout from, VkImageLayout to, Scope before,
                   Scope after) {
  image_barrier(commands, image.image,
                image.format == VK_FORMAT_D32_SFLOAT ? VK_IMAGE_ASPECT_DEPTH_BIT : VK_IMAGE_ASPECT_COLOR_BIT, from, to,
                before, after);
}
void image_barrier(VkCommandBuffer commands, VkImage image, VkImageAspectFlags aspect, VkImageLayout from,
                   VkImageLayout to, Scope before, Scope after) {
  const VkImageMemoryBarrier2 barrier{VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER_2,
                                      nullptr,
                                      before.stages,
                                      before.accesses,
                                      after.stages,
                                      after.accesses,
                                      from,
                                      to,
                                      VK_QUEUE_FAMILY_IGNORED,
                                      VK_QUEUE_FAMILY_IGNORED,
                                      image,
                                      {aspect, 0, 1, 0, 1}};
  auto info = structure<VkDependencyInfo>(VK_STRUCTURE_TYPE_DEPENDENCY_INFO);
  info.imageMemoryBarrierCount = 1, info.pImageMemoryBarriers = &barrier;
  vkCmdPipelineBarrier2(commands, &info);
}

void Host::make_swapchain() {
#ifdef RENDERER_WINDOW
  VkSurfaceCapabilitiesKHR can;
  check(vkGetPhysicalDeviceSurfaceCapabilitiesKHR(physical_, surface_, &can),
        "vkGetPhysicalDeviceSurfaceCapabilitiesKHR");
  if (!(can.supportedUsageFlags & VK_IMAGE_USAGE_TRANSFER_DST_BIT))
    throw std::runtime_error("the window's images cannot be copied to");
  uint32_t n = 0;
  check(vkGetPhysicalDeviceSurfaceFormatsKHR(physical_, surface_, &n, nullptr), "vkGetPhysicalDeviceSurfaceFormatsKHR");
  std::vector<VkSurfaceFormatKHR> formats(n);
  check(vkGetPhysicalDeviceSurfaceFormatsKHR(physical_, surface_, &n, formats.data()),
        "vkGetPhysicalDeviceSurfaceFormatsKHR");
  VkSurfaceFormatKHR format = formats.at(0);
  for (const VkSurfaceFormatKHR& f : formats)  // pictures are in sRGB's numbers already
    if (f.format == VK_FORMAT_B8G8R8A8_UNORM || f.format == VK_FORMAT_R8G8B8A8_UNORM) {
      format = f;
      break;
    }
  size_ = can.currentExtent.width != UINT32_MAX ? can.currentExtent : window_->size();
  size_.width = std::clamp(size_.width, std::max(can.minImageExtent.width, 1u), can.maxImageExtent.width);
  size_.height = std::clamp(size_.height, std::max(can.minImageExtent.height, 1u), can.maxImageExtent.height);
  auto info = structure<VkSwapchainCreateInfoKHR>(VK_STRUCTURE_TYPE_SWAPCHAIN_CREATE_INFO_KHR);
  info.surface = surface_, info.minImageCount = std::max(can.minImageCount + 1, 3u), info.imageFormat = format.format,
  info.imageColorSpace = format.colorSpace;
  if (can.maxImageCount) info.minImageCount = std::min(info.minImageCount, can.maxImageCount);
  info.imageExtent = size_, info.imageArrayLayers = 1, info.imageUsage = VK_IMAGE_USAGE_TRANSFER_DST_BIT,
  info.preTransform = can.currentTransform;
  info.compositeAlpha = can.supportedCompositeAlpha & VK_COMPOSITE_ALPHA_OPAQUE_BIT_KHR
                            ? VK_COMPOSITE_ALPHA_OPAQUE_BIT_KHR
                            : VK_COMPOSITE_ALPHA_INHERIT_BIT_KHR;
  info.presentMode = VK_PRESENT_MODE_FIFO_KHR, info.clipped = VK_TRUE, info.oldSwapchain = swapchain_.chain;
  VkSwapchainKHR chain;
  check(vkCreateSwapchainKHR(device_, &info, nullptr, &chain), "vkCreateSwapchainKHR");
  swapchain_ = {};
  swapchain_.chain = {chain, [d = device_](VkSwapchainKHR x) { vkDestroySwapchainKHR(d, x, nullptr); }};
  check(vkGetSwapchainImagesKHR(device_, chain, &n, nullptr), "vkGetSwapchainImagesKHR");
  swapchain_.images.resize(n);
  check(vkGetSwapchainImagesKHR(device_, chain, &n, swapchain_.images.data()), "vkGetSwapchainImagesKHR");
  for (uint32_t i = 0; i < n; ++i) {
    VkSemaphoreCreateInfo semaphore{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, nullptr, 0};
    VkSemaphore drawn;
    check(vkCreateSemaphore(device_, &semaphore, nullptr, &drawn), "vkCreateSemaphore");
    swapchain_.drawn.emplace_back(drawn, [d = device_](VkSemaphore x) { vkDestroySemaphore(d, x, nullptr); });
  }
#endif
}

void Host::resize(VkExtent2D size) {
  wanted_ = size;
#ifdef RENDERER_WINDOW
  if (!window_) return;
  glfwSetWindowSize(window_->window, static_cast<int>(size.width), static_cast<int>(size.height));
  const double until = glfwGetTime() + 1;  // a window manager may have other plans
  for (VkExtent2D now = window_->size();
       (now.width != size.width || now.height != size.height) && glfwGetTime() < until; now = window_->size())
    glfwWaitEventsTimeout(0.01);
#endif
}

void Host::hold([[maybe_unused]] double seconds) {
#ifdef RENDERER_WINDOW
  if (!window_) return;
  const double until = glfwGetTime() + seconds;
  while (!glfwWindowShouldClose(window_->window) && glfwGetTime() < until)
    glfwWaitEventsTimeout(std::max(until - glfwGetTime(), 0.001));
#endif
}

void Host::finish(Frame& f, const Picture& each) {
  if (!f.pending) return;
  check(vkWaitForFences(device_, 1, std::array<VkFence, 1>{f.done}.data(), VK_TRUE, UINT64_MAX), "vkWaitForFences");
  check(vkResetFences(device_, 1, std::array<VkFence, 1>{f.done}.data()), "vkResetFences");
  f.pending = false;
  if (each) each(f.number, f.size, static_cast<const uint8_t*>(f.readback.mapped));
}
void Host::wait_all(const Picture& each) {
  std::array<Frame*, kFramesInFlight> order;
  std::transform(frames_.begin(), frames_.end(), order.begin(), [](Frame& f) { return &f; });
  std::sort(order.begin(), order.end(), [](const Frame* a, const Frame* b) { return a->number < b->number; });
  for (Frame* f : order) finish(*f, each);
}

// The frames in flight are finished first: what is made anew, they may still use. So may presents, which no fence tells
// of, and the queue's end does.
void Host::apply_resize(Scene& scene, const Picture& each) {
  wait_all(each);
  check(vkQueueWaitIdle(queue_), "vkQueueWaitIdle");
  if (window_) make_swapchain();
  else size_ = wanted_;
  wanted_ = size_;
  scene.resize(size_);
}

// Of the swapchain; false: it no longer fits the window.
bool Host::acquire(Frame& f, uint32_t& image) {
  const VkResult r = vkAcquireNextImageKHR(device_, swapchain_.chain, UINT64_MAX, f.acquired, VK_NULL_HANDLE, &image);
  if (r == VK_ERROR_OUT_OF_DATE_KHR) return false;
  if (r != VK_SUBOPTIMAL_KHR) check(r, "vkAcquireNextImageKHR");
  return true;
}

VkExtent2D Host::visible(const Scene::Result& drawn) const {
  const VkExtent2D s = drawn.picture->size;
  return {std::min(s.width, size_.width), std::min(s.height, size_.height)};
}

void Host::show(VkCommandBuffer commands, const Scene::Result& drawn, uint32_t image) {
  const VkImage to = swapchain_.images[image];
  constexpr Scope blit{VK_PIPELINE_STAGE_2_BLIT_BIT, VK_ACCESS_2_TRANSFER_WRITE_BIT};
  // The acquisition is waited for at the stage of the blit, so that this barrier follows it.
  image_barrier(commands, to, VK_IMAGE_ASPECT_COLOR_BIT, VK_IMAGE_LAYOUT_UNDEFINED,
                VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, {VK_PIPELINE_STAGE_2_BLIT_BIT, 0}, blit);
  const auto corner = [](VkExtent2D s) {
    return VkOffset3D{static_cast<int32_t>(s.width), static_cast<int32_t>(s.height), 1};
  };
  VkImageBlit region{{VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1},
                     {{}, corner(visible(drawn))},
                     {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1},
                     {{}, corner(size_)}};
  vkCmdBlitImage(commands, drawn.picture->image, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, to,
                 VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, 1, &region, VK_FILTER_NEAREST);
  image_barrier(commands, to, VK_IMAGE_ASPECT_COLOR_BIT, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL,
                VK_IMAGE_LAYOUT_PRESENT_SRC_KHR, blit, {VK_PIPELINE_STAGE_2_BOTTOM_OF_PIPE_BIT, 0});
}

void Host::read_back(Frame& f, const Scene::Result& drawn) {
  const VkExtent2D s = visible(drawn);
  if (f.readback.size < VkDeviceSize{4} * s.width * s.height)
    f.readback = make_buffer(VkDeviceSize{4} * s.width * s.height, VK_BUFFER_USAGE_TRANSFER_DST_BIT, true);
  VkBufferImageCopy region{0, 0, 0, {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1}, {}, {s.width, s.height, 1}};
  vkCmdCopyImageToBuffer(f.commands, drawn.picture->image, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, f.readback.buffer, 1,
                         &region);
  memory_barrier(f.commands, {VK_PIPELINE_STAGE_2_COPY_BIT, VK_ACCESS_2_TRANSFER_WRITE_BIT},
                 {VK_PIPELINE_STAGE_2_HOST_BIT, VK_ACCESS_2_HOST_READ_BIT});
}

void Host::run(Scene& scene, uint64_t frames, const Picture& each) {
  scene.resize(size_);
  bool fits = true;
  for (uint64_t frame = 0; frames == 0 || frame < frames; ++frame) {
#ifdef RENDERER_WINDOW
    if (window_) {
      glfwPollEvents();
      if (glfwWindowShouldClose(window_->window)) break;
      window_->size();
      if (std::exchange(window_->resized, false)) fits = false;
    }
#endif
    if (!window_ && (wanted_.width != size_.width || wanted_.height != size_.height)) fits = false;
    Frame& f = frames_[next_ % kFramesInFlight];
    finish(f, each);
    uint32_t image = 0;
    while (!fits || (window_ && !acquire(f, image))) {
      apply_resize(scene, each);
      fits = true;
    }
    f.number = frame, f.size = size_;
    check(vkResetCommandPool(device_, f.pool, 0), "vkResetCommandPool");
    const VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr,
                                         VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT, nullptr};
    check(vkBeginCommandBuffer(f.commands, &begin), "vkBeginCommandBuffer");
    const Scene::Result drawn = scene.draw(f.commands, next_++);
    memory_barrier(f.commands, {drawn.stages, drawn.accesses},
                   {VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT, VK_ACCESS_2_TRANSFER_READ_BIT});
    if (each) read_back(f, drawn);
    if (window_) show(f.commands, drawn, image);
    check(vkEndCommandBuffer(f.commands), "vkEndCommandBuffer");
    const VkCommandBufferSubmitInfo commands{VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO, nullptr, f.commands, 0};
    const VkSemaphoreSubmitInfo acquired{
        VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO, nullptr, f.acquired, 0, VK_PIPELINE_STAGE_2_BLIT_BIT, 0};
    const VkSemaphore to_present = window_ ? static_cast<VkSemaphore>(swapchain_.drawn[image]) : VK_NULL_HANDLE;
    const VkSemaphoreSubmitInfo done{VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO, nullptr, to_present, 0,
                                     VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,    0};
    const uint32_t semaphores = window_ ? 1 : 0;
    const VkSubmitInfo2 submit{
        VK_STRUCTURE_TYPE_SUBMIT_INFO_2, nullptr, 0, semaphores, &acquired, 1, &commands, semaphores, &done};
    check(vkQueueSubmit2(queue_, 1, &submit, f.done), "vkQueueSubmit2");
    f.pending = true;
    if (!window_) continue;
    const VkSwapchainKHR chain = swapchain_.chain;
    const VkPresentInfoKHR present{
        VK_STRUCTURE_TYPE_PRESENT_INFO_KHR, nullptr, 1, &to_present, 1, &chain, &image, nullptr};
    const VkResult r = vkQueuePresentKHR(queue_, &present);
    if (r == VK_ERROR_OUT_OF_DATE_KHR || r == VK_SUBOPTIMAL_KHR) fits = false;
    else check(r, "vkQueuePresentKHR");
  }
  wait_all(each);
  check(vkQueueWaitIdle(queue_), "vkQueueWaitIdle");
}

}  // namespace renderer
