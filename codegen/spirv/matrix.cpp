// Matrices that subgroups multiply (SPV_KHR_cooperative_matrix), and the words that their tiles in shared memory
// consist of. SPIR-V's enumerants for them are newer than the headers of some systems: they stand here.
#include "codegen/spirv/emitter.h"
#include "engine/base/error.h"

namespace tessera::spirv {

namespace {
constexpr uint32_t kTypeMatrix = 4456, kScopeSubgroup = 3, kRowMajor = 0, kColumnMajor = 1;
constexpr auto kLoad = static_cast<spv::Op>(4457), kStore = static_cast<spv::Op>(4458),
               kMultiplyAdd = static_cast<spv::Op>(4459);
constexpr auto kCapability = static_cast<spv::Capability>(6022);
// Operands of a product: whose components are signed.
constexpr uint32_t kSignedA = 1, kSignedB = 2, kSignedC = 4, kSignedResult = 8;
}  // namespace

Id Emitter::component_type(DType t) {
  switch (t) {
    case DType::f16: return f_.type_f16();
    case DType::f32: return m_.type_float(32);
    case DType::i8: m_.capability(spv::CapabilityInt8); return m_.type_sint(8);
    case DType::u8: m_.capability(spv::CapabilityInt8); return m_.type_uint(8);
    case DType::i32: return m_.type_sint(32);
    case DType::u32: return m_.type_uint(32);
    case DType::bf16:
      m_.extension("SPV_KHR_bfloat16");
      m_.capability(static_cast<spv::Capability>(5116));  // BFloat16TypeKHR
      m_.capability(static_cast<spv::Capability>(5118));  // BFloat16CooperativeMatrixKHR
      return m_.type_of(spv::OpTypeFloat, {16, 0});       // BFloat16KHR
    case DType::f8e4m3fn:
    case DType::f8e5m2:
      m_.extension("SPV_EXT_float8");
      m_.capability(static_cast<spv::Capability>(4212));  // Float8EXT
      m_.capability(static_cast<spv::Capability>(4213));  // Float8CooperativeMatrixEXT
      return m_.type_of(spv::OpTypeFloat, {8, t == DType::f8e4m3fn ? 4214u : 4215u});
    default: throw InternalError(k_.name + ": spirv: no matrices of " + std::string(tessera::name(t)));
  }
}

Reg Emitter::matrix_type(const ir::Type& t, ir::MatrixUse use) {
  m_.extension("SPV_KHR_cooperative_matrix");
  m_.capability(kCapability);
  const auto word = [&](int64_t x) { return f_.make(Reg::u32, x).id; };
  const Id component = component_type(t.dtype), scope = word(kScopeSubgroup), rows = word(t.shape.at(0)),
           cols = word(t.shape.at(1)), as = word(static_cast<int64_t>(use));
  return f_.opaque(m_.type_of(kTypeMatrix, {component, scope, rows, cols, as}));
}

/// To a word of the arena.
Id Emitter::matrix_pointer(const ir::Op& op, V index) { return shared_pointer(ref(op.operands.at(0)), index, 0); }

void Emitter::emit_matrix(const ir::Op& op) {
  const auto word = [&](int64_t x) { return f_.make(Reg::u32, x).id; };
  switch (ir::Matrix(op.code)) {
    case ir::Matrix::pack: break;
    case ir::Matrix::matrix_fill: {
      const ir::Type& t = k_.type(op.results.at(0));
      const Reg type = matrix_type(t, ir::MatrixUse::accumulator);
      V x = get(op.operands.at(0));
      if (t.dtype == DType::i32) x.id = m_.op(spv::OpBitcast, component_type(t.dtype), {x.id});
      return set(op.results[0], {&f_, m_.op(spv::OpCompositeConstruct, f_.type(type), {x.id}), type});
    }
    case ir::Matrix::matrix_load: {
      const Reg type = matrix_type(k_.type(op.results.at(0)), static_cast<ir::MatrixUse>(op.attr(ir::Attr::kind)));
      const Id from = matrix_pointer(op, get(op.operands.at(1)));
      const Id layout = word(op.attr_or(ir::Attr::reverse, 0) ? kColumnMajor : kRowMajor),
               stride = word(op.attr(ir::Attr::stride));
      const Id loaded = m_.op(kLoad, f_.type(type), {from, layout, stride, spv::MemoryAccessNonPrivatePointerMask});
      return set(op.results[0], {&f_, loaded, type});
    }
    case ir::Matrix::matrix_store: {
      const Id to = matrix_pointer(op, get(op.operands.at(2)));
      const Id layout = word(kRowMajor), stride = word(op.attr(ir::Attr::stride));
      m_.op(kStore, {to, get(op.operands.at(1)).id, layout, stride, spv::MemoryAccessNonPrivatePointerMask});
      return;
    }
    case ir::Matrix::matrix_multiply_add: {
      const auto is_signed = [&](size_t i) { return is_signed_int(k_.type(op.operands.at(i)).dtype); };
      const uint32_t signs =
          (is_signed(0) ? kSignedA : 0) | (is_signed(1) ? kSignedB : 0) | (is_signed(2) ? kSignedC | kSignedResult : 0);
      const V a = get(op.operands[0]), b = get(op.operands[1]), c = get(op.operands[2]);
      Words w{a.id, b.id, c.id};
      if (signs) w.push_back(signs);
      return set(op.results.at(0), {&f_, m_.op(kMultiplyAdd, f_.type(c.reg), w), c.reg});
    }
    case ir::Matrix::warpgroup_multiply_add:
    case ir::Matrix::warpgroup_wait:
    case ir::Matrix::matrix_elements:
    case ir::Matrix::matrix_of:
      throw InternalError(k_.name + ": " + std::string(name(op.code)) + " is of NVIDIA's PTX alone", op.loc);
    case ir::Matrix::matrix_multiply: {
      const V a = get(op.operands.at(0)), b = get(op.operands.at(1));
      const Id product = m_.op(spv::OpFMul, f_.type(a.reg), {a.id, b.id});
      m_.decorate(product, spv::DecorationNoContraction);
      return set(op.results.at(0), {&f_, product, a.reg});
    }
  }
}

}  // namespace tessera::spirv
