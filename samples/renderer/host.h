// Host: a small Vulkan renderer as an engine has one, with nothing of Tessera in it: instance, device, two frames in
// flight, images, buffers, graphics pipelines, and a window with its swapchain (GLFW) or none. What it draws each frame
// is a Scene's; a Scene leaves its picture in one image, which the host shows in the window or reads back. Scenes put
// Tessera's kernels into the host's command buffers.
#pragma once
#include <vulkan/vulkan.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

struct GLFWwindow;

namespace renderer {

/// Throws std::runtime_error "WHAT: VkResult -4" unless r is VK_SUCCESS.
void check(VkResult r, const char* what);

class Host;

/// A Vulkan object that is destroyed when this goes; the one who holds it knows that the device has done with it.
template <class T>
class Owned {
 public:
  Owned() = default;
  Owned(T object, std::function<void(T)> destroy) : object_(object), destroy_(std::move(destroy)) {}
  Owned(Owned&& o) noexcept : object_(std::exchange(o.object_, T())), destroy_(std::move(o.destroy_)) {}
  Owned& operator=(Owned&& o) noexcept {
    reset();
    object_ = std::exchange(o.object_, T()), destroy_ = std::move(o.destroy_);
    return *this;
  }
  ~Owned() { reset(); }
  void reset() {
    if (object_ != T()) destroy_(std::exchange(object_, T()));
  }
  operator T() const { return object_; }  // NOLINT: implicit on purpose

 private:
  T object_ = T();
  std::function<void(T)> destroy_;
};

struct Image {
  Owned<VkDeviceMemory> memory;
  Owned<VkImage> image;
  Owned<VkImageView> view;
  VkFormat format = VK_FORMAT_UNDEFINED;
  VkImageUsageFlags usage = 0;
  VkExtent2D size = {};
};
struct Buffer {
  Owned<VkDeviceMemory> memory;
  Owned<VkBuffer> buffer;
  VkDeviceSize size = 0;
  VkBufferUsageFlags usage = 0;
  void* mapped = nullptr;
};

struct HostOptions {
  std::string title;
  VkExtent2D size = {640, 360};
  bool window = false;
  // an index or a part of a name, after "vulkan:" or not; empty: the environment's TESSERA_DEVICE, else the first that
  // is not a CPU, else the first
  std::string device;
  bool validation = false;  // core and synchronisation validation
};

/// What is to be drawn. It is made with a Host, and goes before it.
class Scene {
 public:
  virtual ~Scene() = default;
  /// Images of another size; nothing is in flight.
  virtual void resize(VkExtent2D size) = 0;
  /// The commands of a frame; frames are numbered through all runs of the host. Returns the image that has the picture
  /// when they are done: in layout TRANSFER_SRC_OPTIMAL, written in these stages. Of a larger one than the host asked
  /// for, the upper left part is shown.
  struct Result {
    const Image* picture;
    VkPipelineStageFlags2 stages;
    VkAccessFlags2 accesses;
  };
  virtual Result draw(VkCommandBuffer commands, uint64_t frame) = 0;
  /// What there is to say of the last frames, as lines.
  virtual std::vector<std::string> words() const { return {}; }
};

/// Barriers in the words of vkCmdPipelineBarrier2.
struct Scope {
  VkPipelineStageFlags2 stages;
  VkAccessFlags2 accesses;
};
void memory_barrier(VkCommandBuffer commands, Scope before, Scope after);
void image_barrier(VkCommandBuffer commands, const Image& image, VkImageLayout from, VkImageLayout to, Scope before,
                   Scope after);
void image_barrier(VkCommandBuffer commands, VkImage image, VkImageAspectFlags aspect, VkImageLayout from,
                   VkImageLayout to, Scope before, Scope after);

class Host {
 public:
  static constexpr int kFramesInFlight = 2;

  /// `enable` is called with the features that the physical device has and those that will be enabled (both chains
  /// begin with VkPhysicalDeviceFeatures2 and have the structures of Vulkan 1.1 to 1.3), and adds what else is to be.
  /// Of `extensions` those that the device has are enabled.
  using Enable = std::function<void(const void* has, void* enable)>;
  Host(const HostOptions& options, const Enable& enable = {}, const std::vector<const char*>& extensions = {});
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  /// Draws frames until `frames` have been (0: until the window is closed). `each`, if given, gets every frame's
  /// picture, rows of 8-bit red, green, blue and alpha, one to two frames later.
  using Picture = std::function<void(uint64_t frame, VkExtent2D size, const uint8_t* rgba)>;
  void run(Scene& scene, uint64_t frames, const Picture& each = {});
  /// The window stays, with the last frame, for so many seconds or until it is closed.
  void hold(double seconds);
  /// As if the user had dragged the window's corner; without a window, the images' size. From the next frame on.
  void resize(VkExtent2D size);

  VkInstance instance() const { return instance_; }
  VkPhysicalDevice physical_device() const { return physical_; }
  VkDevice device() const { return device_; }
  VkQueue queue() const { return queue_; }
  uint32_t queue_family() const { return family_; }
  float timestamp_period() const { return properties_.limits.timestampPeriod; }  ///< nanoseconds
  const VkDeviceCreateInfo& created_with() const { return created_; }
  const std::vector<const char*>& instance_extensions() const { return instance_extensions_; }
  const char* device_name() const { return properties_.deviceName; }
  VkExtent2D size() const { return size_; }
  const std::vector<std::string>& validation_messages() const { return messages_; }

  Image make_image(VkExtent2D size, VkFormat format, VkImageUsageFlags usage);
  /// `mapped`: memory that the host sees, coherent.
  Buffer make_buffer(VkDeviceSize size, VkBufferUsageFlags usage, bool mapped = false);

  struct PipelineInfo {
    const uint32_t* vertex = nullptr;
    size_t vertex_bytes = 0;
    const uint32_t* fragment = nullptr;  // none: for depths alone
    size_t fragment_bytes = 0;
    std::vector<VkFormat> colors = {};
    VkFormat depth = VK_FORMAT_UNDEFINED;
    uint32_t push_bytes = 0;  // for both stages
    VkPrimitiveTopology topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST;
    std::vector<VkFormat> attributes = {};  // of one vertex, one after another, in binding 0
    uint32_t stride = 0;
    bool add = false;  // colours are added to what is there
    VkDescriptorSetLayout textures = VK_NULL_HANDLE;
    float depth_slope = 0;  // how much farther away what is steep is taken to be
  };
  struct Pipeline {
    Owned<VkPipelineLayout> layout;
    Owned<VkPipeline> pipeline;
  };
  Pipeline make_pipeline(const PipelineInfo& info);
  Pipeline make_compute_pipeline(const uint32_t* words, size_t bytes, uint32_t push_bytes);

  /// Images that fragment shaders fetch from: set 0, bindings 0, 1, ..., in SHADER_READ_ONLY_OPTIMAL.
  struct Textures {
    Owned<VkSampler> sampler;
    Owned<VkDescriptorSetLayout> layout;
    Owned<VkDescriptorPool> pool;
    VkDescriptorSet set = VK_NULL_HANDLE;
  };
  Textures make_textures(uint32_t count);
  /// Nothing in flight uses them.
  void set_textures(const Textures& textures, const std::vector<const Image*>& images);

 private:
  struct Frame {
    Owned<VkCommandPool> pool;
    VkCommandBuffer commands = VK_NULL_HANDLE;
    Owned<VkFence> done;
    Owned<VkSemaphore> acquired;
    Buffer readback;
    bool pending = false;
    uint64_t number = 0;
    VkExtent2D size = {};
  };
  Owned<VkShaderModule> make_module(const uint32_t* words, size_t bytes);
  Owned<VkPipelineLayout> make_layout(VkShaderStageFlags stages, uint32_t push_bytes, VkDescriptorSetLayout textures);
  void make(const HostOptions& options, const Enable& enable, const std::vector<const char*>& extensions);
  void destroy();
  void make_instance(const HostOptions& options);
  void choose_device(const std::string& name);
  void make_device(const Enable& enable, const std::vector<const char*>& extensions);
  void make_swapchain();
  void finish(Frame& f, const Picture& each);
  void wait_all(const Picture& each);
  void apply_resize(Scene& scene, const Picture& each);
  bool acquire(Frame& f, uint32_t& image);
  VkExtent2D visible(const Scene::Result& drawn) const;
  void show(VkCommandBuffer commands, const Scene::Result& drawn, uint32_t image);
  void read_back(Frame& f, const Scene::Result& drawn);
  uint32_t memory_type(uint32_t allowed, VkMemoryPropertyFlags wanted) const;

  struct Window;
  std::unique_ptr<Window> window_;
  VkInstance instance_ = VK_NULL_HANDLE;
  VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
  VkPhysicalDevice physical_ = VK_NULL_HANDLE;
  VkPhysicalDeviceProperties properties_ = {};
  VkPhysicalDeviceMemoryProperties memory_ = {};
  VkDevice device_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
  uint32_t family_ = 0;
  VkSurfaceKHR surface_ = VK_NULL_HANDLE;
  std::vector<const char*> instance_extensions_, device_extensions_;
  struct Features {
    VkPhysicalDeviceFeatures2 all = {};
    VkPhysicalDeviceVulkan11Features v11 = {};
    VkPhysicalDeviceVulkan12Features v12 = {};
    VkPhysicalDeviceVulkan13Features v13 = {};
    Features();
    Features(const Features&) = delete;
  } enabled_;
  VkDeviceCreateInfo created_ = {};
  std::vector<std::string> messages_;
  VkExtent2D size_ = {}, wanted_ = {};
  uint64_t next_ = 0;  // frame, of all runs
  std::array<Frame, kFramesInFlight> frames_;
  struct Swapchain {
    Owned<VkSwapchainKHR> chain;
    std::vector<VkImage> images;
    std::vector<Owned<VkSemaphore>> drawn;  // one per image: a present may still wait for it when its frame is done
  } swapchain_;
};

}  // namespace renderer
