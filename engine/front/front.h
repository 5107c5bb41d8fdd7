// The C++ front end: include this. Kernels are lambdas over Refs (ref.h) that compute with Values (value.h, ops.h,
// control.h); pallas_call.h makes them callable, spec.h says how arrays are cut into blocks, vmap.h batches them,
// grid_mapping.h is the canonical form. namespace ts = tessera;
#pragma once
#include "engine/base/array.h"
#include "engine/front/bits.h"
#include "engine/front/buffered.h"
#include "engine/front/call.h"
#include "engine/front/control.h"
#include "engine/front/debug.h"
#include "engine/front/grid_mapping.h"
#include "engine/front/jit.h"
#include "engine/front/ops.h"
#include "engine/front/pallas_call.h"
#include "engine/front/pipeline.h"
#include "engine/front/random.h"
#include "engine/front/rearrange.h"
#include "engine/front/ref.h"
#include "engine/front/scope.h"
#include "engine/front/spec.h"
#include "engine/front/value.h"
#include "engine/front/vmap.h"
#include "engine/interpreter/interpreter.h"
#include "engine/passes/cost.h"
