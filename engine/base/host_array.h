// An array in the host's memory that another library owns (XLA, NumPy) and that a call reads or writes in place. It
// does not manage the memory's lifetime; Array (array.h) owns its elements.
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
