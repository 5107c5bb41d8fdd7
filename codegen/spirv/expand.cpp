#include "codegen/spirv/expand.h"

#include "engine/error.h"

namespace tessera::spirv {

V sqrt(V x) { return x.fn->glsl(GLSLstd450Sqrt, x.reg, {x}); }
V rsqrt(V x) { return x.fn->glsl(GLSLstd450InverseSqrt, x.reg, {x}); }

namespace {
V missing(const char* what) { throw CompileError(std::string("spirv: ") + what + " is not emitted yet"); }
}  // namespace
V exp(V) { return missing("exp"); }
V exp2(V) { return missing("exp2"); }
V log(V) { return missing("log"); }
V log2(V) { return missing("log2"); }
V pow(V, V) { return missing("pow"); }
V sin(V) { return missing("sin"); }
V cos(V) { return missing("cos"); }
V tanh(V) { return missing("tanh"); }
V erf(V) { return missing("erf"); }
V logistic(V) { return missing("logistic"); }
V float_rem(V, V) { return missing("rem of floats"); }

}  // namespace tessera::spirv
