// What spec.h declares and does not define: a program compiles its header faster that way.
#include "engine/front/spec.h"

namespace tessera {

DynamicSlice ds(Operand start, const Value& size, Loc l) { return {std::move(start), Operand(size, l)}; }

BlockIndex::BlockIndex(Operand index) : start(std::move(index)) {}
BlockIndex::BlockIndex(DynamicSlice s) : start(std::move(s.start)), size(std::move(s.size)) {}
BlockIndex::BlockIndex(Ds s, Loc l) : start(std::move(s.start)), size(s.size, l), stepped(s.step == 1 ? Loc{} : l) {}

Indices::Indices(std::initializer_list<BlockIndex> v) : values(v) {}
Indices::Indices(std::vector<BlockIndex> v) : values(std::move(v)) {}

IndexMap IndexMap::of(int arity, int num_refs, Function call) {
  IndexMap m;
  m.arity_ = arity;
  m.num_refs_ = num_refs;
  m.call_ = std::move(call);
  return m;
}
Indices IndexMap::operator()(const std::vector<Value>& program_ids, const std::vector<Ref>& prefetch) const {
  return call_(program_ids, prefetch);
}

BlockDim::BlockDim(Squeezed) : kind_(Squeezed{}) {}
BlockDim::BlockDim(std::nullopt_t) : kind_(Squeezed{}) {}
BlockDim::BlockDim(Blocked b) : kind_(b) {}
BlockDim::BlockDim(Element e) : kind_(e) {}
BlockDim::BlockDim(BoundedSlice b) : kind_(b) {}
BlockDim::BlockDim(Halo h) : kind_(h) {}
BlockDim::BlockDim(Extent e) : kind_(std::move(e)) {}
BlockDim::BlockDim(const BlockDim&) = default;
BlockDim::BlockDim(BlockDim&&) noexcept = default;
BlockDim& BlockDim::operator=(const BlockDim&) = default;
BlockDim& BlockDim::operator=(BlockDim&&) noexcept = default;
BlockDim::~BlockDim() = default;

BlockShape::BlockShape(std::initializer_list<BlockDim> dims) : dims_(std::vector<BlockDim>(dims)) {}
BlockShape::BlockShape(std::vector<BlockDim> dims) : dims_(std::move(dims)) {}

BlockSpec by_value(DType dtype, Loc loc) {
  BlockSpec s;
  s.memory_space = MemorySpace::smem;
  s.loc = loc;
  s.whole = true;
  s.value = dtype;
  return s;
}
NoBlockSpec::operator BlockSpec() const {
  BlockSpec s;
  s.whole = true;
  s.loc = {};
  return s;
}

BlockSpecs::BlockSpecs(NoBlockSpec) {}
BlockSpecs::BlockSpecs(BlockSpec one) : specs_(std::vector<BlockSpec>{std::move(one)}) {}
BlockSpecs::BlockSpecs(std::initializer_list<BlockSpec> specs) : specs_(std::vector<BlockSpec>(specs)) {}
BlockSpecs::BlockSpecs(std::vector<BlockSpec> specs) : specs_(std::move(specs)) {}

GridSizes::GridSizes(std::initializer_list<int64_t> sizes) : sizes_(sizes) {}
GridSizes::GridSizes(std::vector<int64_t> sizes) : sizes_(std::move(sizes)) {}
GridSizes::GridSizes(DimValues named) : named_(std::move(named)) {}

GridSize::GridSize(DynamicGridDim) : dynamic_(true) {}
GridSize::GridSize(const char* name, DynamicGridDim) : name_(name), dynamic_(true) {}
GridSize::GridSize(Extent size) : size_(std::move(size)) {}
GridSize::GridSize(const char* name, Extent size) : size_(std::move(size)), name_(name) {}

Grid::Grid(std::initializer_list<GridSize> axes) : axes_(axes) {}
Grid::Grid(std::vector<GridSize> axes) : axes_(std::move(axes)) {}

ScratchShape VMEM(Shape shape, DType dtype) { return {std::move(shape), dtype, MemorySpace::vmem}; }
ScratchShape SMEM(Shape shape, DType dtype) { return {std::move(shape), dtype, MemorySpace::smem}; }
ScratchShape ANY(Shape shape, DType dtype) { return {std::move(shape), dtype, MemorySpace::any}; }
ScratchShape HBM(Shape shape, DType dtype) { return ANY(std::move(shape), dtype); }
ScratchShape GMEM(Shape shape, DType dtype) { return ANY(std::move(shape), dtype); }

ScratchShape SemaphoreType::REGULAR(Shape shape) { return {std::move(shape), DType::i32, MemorySpace::semaphore}; }
ScratchShape SemaphoreType::DMA(Shape shape) { return {std::move(shape), DType::i32, MemorySpace::dma_semaphore}; }

}  // namespace tessera
