// The C++ front end: include this. Kernels are lambdas over Refs (front/ref.h) that compute with Values (front/value.h,
// front/ops.h, front/control.h); call/pallas_call.h makes them callable, front/spec.h says how arrays are cut into
// blocks. namespace ts = tessera;
#pragma once
#include "engine/base/array.h"
#include "engine/call/buffered.h"
#include "engine/call/call.h"
#include "engine/call/grid_mapping.h"
#include "engine/call/jit.h"
#include "engine/call/pallas_call.h"
#include "engine/call/vmap.h"
#include "engine/front/bits.h"
#include "engine/front/control.h"
#include "engine/front/debug.h"
#include "engine/front/ops.h"
#include "engine/front/pipeline.h"
#include "engine/front/random.h"
#include "engine/front/rearrange.h"
#include "engine/front/ref.h"
#include "engine/front/scope.h"
#include "engine/front/spec.h"
#include "engine/front/value.h"
#include "engine/interpreter/interpreter.h"
#include "engine/passes/cost.h"
