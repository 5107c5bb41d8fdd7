// Uniformity of lane-level values: whether all invocations of the workgroup, or all of a subgroup, hold the same value
// whenever they run the same op together. An analysis only: it changes nothing and reports nothing. Read next:
// verify.h, which demands uniform control around barriers and subgroup ops.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::lane {

/// From the strongest to the weakest: one value per workgroup, one per subgroup, one per invocation.
enum class Uniformity : uint8_t { workgroup, subgroup, varying };
std::string_view name(Uniformity u);

struct UniformityInfo {
  std::vector<Uniformity> values;  // by Value::index; a Ref has the uniformity of its element 0's place
  // by RegionId::index: of the conditions and trip counts that decide who runs the region
  std::vector<Uniformity> control;
  std::vector<bool> written;  // by position of the body's args: the kernel stores to it
};

/// The memory that a Ref points into: the body's arg, alloc_shared or alloc_scratch that its chain of views starts
/// from; none if the chain ends elsewhere (a carried Ref, which verify_lane refuses).
ir::Value root_of(const ir::Kernel& k, ir::Value ref);

UniformityInfo analyze_uniformity(const ir::Kernel& k);

}  // namespace tessera::lane
