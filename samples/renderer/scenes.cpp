#include "samples/renderer/scenes.h"

namespace renderer {

void begin_rendering(VkCommandBuffer commands, VkExtent2D size, const std::vector<Target>& colors, VkImageView depth,
                     VkAttachmentStoreOp keep_depth) {
  std::vector<VkRenderingAttachmentInfo> attachments;
  for (const Target& t : colors)
    attachments.push_back({VK_STRUCTURE_TYPE_RENDERING_ATTACHMENT_INFO,
                           nullptr,
                           t.view,
                           VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL,
                           VK_RESOLVE_MODE_NONE,
                           VK_NULL_HANDLE,
                           VK_IMAGE_LAYOUT_UNDEFINED,
                           t.load,
                           VK_ATTACHMENT_STORE_OP_STORE,
                           {.color = t.clear}});
  VkClearValue far = {};
  far.depthStencil.depth = 1;
  const VkRenderingAttachmentInfo z{VK_STRUCTURE_TYPE_RENDERING_ATTACHMENT_INFO,
                                    nullptr,
                                    depth,
                                    VK_IMAGE_LAYOUT_DEPTH_ATTACHMENT_OPTIMAL,
                                    VK_RESOLVE_MODE_NONE,
                                    VK_NULL_HANDLE,
                                    VK_IMAGE_LAYOUT_UNDEFINED,
                                    VK_ATTACHMENT_LOAD_OP_CLEAR,
                                    keep_depth,
                                    far};
  const VkRenderingInfo info{VK_STRUCTURE_TYPE_RENDERING_INFO,
                             nullptr,
                             0,
                             {{0, 0}, size},
                             1,
                             0,
                             static_cast<uint32_t>(attachments.size()),
                             attachments.data(),
                             depth ? &z : nullptr,
                             nullptr};
  vkCmdBeginRendering(commands, &info);
  const VkViewport viewport{0, 0, static_cast<float>(size.width), static_cast<float>(size.height), 0, 1};
  const VkRect2D scissor{{0, 0}, size};
  vkCmdSetViewport(commands, 0, 1, &viewport);
  vkCmdSetScissor(commands, 0, 1, &scissor);
}

}  // namespace renderer
