// An array in the host's memory that somebody else owns (XLA, NumPy): what a call reads or writes in place. Nothing is
// said of who frees it, or when; Array (array.h) is the one that owns its elements.
#pragma once
#include "engine/base/dtype.h"
#include "engine/base/extent.h"

namespace tessera {

/// Dense and row-major.
struct HostArray {
  DType dtype;
  Shape shape;
  void* data;
};

}  // namespace tessera
