// Type inference of the ops of kernels of threads: barriers, copies between gmem and smem, wgmma.
#include <algorithm>

#include "engine/ir/inference.h"

namespace tessera::ir {

std::vector<Shape> Inference::places(const std::vector<const char*>& roles) const {
  if (op_.operands.size() < roles.size())
    fail("takes at least " + std::to_string(roles.size()) + (roles.size() == 1 ? " operand" : " operands") +
         " but got " + std::to_string(op_.operands.size()));
  const std::vector<CopyPlace> list = thread_places(k_, op_);
  size_t dims = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    dims += list[i].rank;
    if (!type(i).is_ref && !(op_.code == Opcode::wgmma && i == 0))
      fail(std::string("the ") + roles[i] + " must be a ref but is " + to_string(type(i)));
  }
  if (op_.index.size() != dims)
    fail("the index has " + plural(op_.index.size(), "entry", "entries") + " but the refs have " + plural(dims, "dim"));
  std::vector<bool> used(op_.operands.size() - roles.size());
  std::vector<Shape> shapes;
  for (size_t i = 0; i < list.size(); ++i) {
    for (size_t d = 0; d < list[i].rank; ++d) {
      const Index& x = op_.index[list[i].first + d];
      const std::string place = std::string("the ") + roles[i] + ": ";
      if (x.kind == Index::Kind::array) fail(place + "dim " + std::to_string(d) + ": an index array is for loads and stores");
      if (!x.is_static()) {
        const auto at = static_cast<size_t>(x.start_operand);
        if (at < roles.size() || at >= op_.operands.size())
          fail(place + "dim " + std::to_string(d) + ": the start is operand " + std::to_string(at) +
               ", which is not one of the dynamic starts");
        if (type(at) != i32_) scalar(at, DType::i32, (place + "dim " + std::to_string(d) + ": a dynamic start").c_str());
        used[at - roles.size()] = true;
      }
      bounds(d, x, type(i).shape[d], type(i).space == MemorySpace::any, place);
    }
    shapes.push_back(place_shape(k_, op_, list[i]));
  }
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i]) fail("operand " + std::to_string(roles.size() + i) + " is not used by the index");
  return shapes;
}

void Inference::in_space(size_t operand, const char* role, MemorySpace wanted) const {
  if (type(operand).space != wanted)
    fail(std::string("the ") + role + " must be in " + std::string(name(wanted)) + " but is " + to_string(type(operand)));
}

void Inference::one_barrier(size_t operand, const Shape& shape) const {
  if (!is_barrier(type(operand).space)) fail("the barrier must be one but is " + to_string(type(operand)));
  if (!shape.empty())
    fail("the index selects " + to_string(shape) + " of the barriers " + to_string(type(operand)),
         "one barrier at a time: index every dim with an integer");
}

void Inference::thread_copy() const {
  const bool in = op_.code == Opcode::copy_gmem_to_smem;
  const std::vector<Shape> shapes =
      in ? places({"source", "target", "barrier"}) : places({"source", "target"});
  in_space(0, "source", in ? MemorySpace::any : MemorySpace::smem);
  in_space(1, "target", in ? MemorySpace::smem : MemorySpace::any);
  if (shapes[0] != shapes[1])
    fail("the source is " + to_string(shapes[0]) + " but the target is " + to_string(shapes[1]),
         "a copy does not change shapes");
  if (type(0).dtype != type(1).dtype)
    fail("the source holds " + std::string(name(type(0).dtype)) + " but the target " + std::string(name(type(1).dtype)),
         "a copy does not convert");
  if (in) {
    one_barrier(2, shapes[2]);
    in_space(2, "barrier", MemorySpace::barrier);
    if (op_.has(Attr::axes)) cluster_axes(ints(Attr::axes));
    return;
  }
  if (!op_.has(Attr::kind)) return;
  const int64_t kind = attr(Attr::kind);
  const bool known = kind >= 0 && kind < kNumOpcodes;
  const Combiner* row = known ? combiner(static_cast<Opcode>(kind)) : nullptr;
  if (!row || !row->atomic)
    fail("kind " + (known ? std::string(name(static_cast<Opcode>(kind))) : std::to_string(kind)) +
         " is not one of add, max, min, and, or and xor");
  check_dtype(info(static_cast<Opcode>(kind)).operands, type(0).dtype);
}

void Inference::cluster_axes(const std::vector<int64_t>& axes) const {
  if (axes.empty()) fail("the cluster axes are missing");
  for (size_t i = 0; i < axes.size(); ++i) {
    const bool there = axes[i] >= 0 && axes[i] < static_cast<int64_t>(k_.grid.size()) &&
                       k_.grid[static_cast<size_t>(axes[i])].role == GridAxis::Role::cluster;
    if (!there) fail("axis " + std::to_string(axes[i]) + " of the grid is no cluster axis");
    if (i > 0 && axes[i] <= axes[i - 1]) fail("the cluster axes are not in ascending order");
  }
}

void Inference::wgmma() const {
  const std::vector<Shape> shapes = places({"left operand", "right operand", "accumulator"});
  if (type(0).is_ref) in_space(0, "left operand", MemorySpace::smem);
  in_space(1, "right operand", MemorySpace::smem);
  in_space(2, "accumulator", MemorySpace::accumulator);
  constexpr const char* kWhat[] = {"left operand", "right operand", "accumulator"};
  for (size_t i = 0; i < 3; ++i)
    if (shapes[i].size() != 2) fail(std::string("the ") + kWhat[i] + " must have 2 dims but is " + to_string(shapes[i]));
  std::vector<int64_t> turned{0, 0};
  if (op_.has(Attr::transposed)) turned = ints(Attr::transposed);
  if (turned.size() != 2) fail("attribute transposed takes two numbers but got " + std::to_string(turned.size()));
  for (const int64_t t : turned)
    if (t != 0 && t != 1) fail("attribute transposed has " + std::to_string(t) + ", not 0 or 1");
  if (!type(0).is_ref && turned[0] != 0) fail("a left operand that is a value is not transposed");
  Shape lhs = shapes[0], rhs = shapes[1];
  if (turned[0] != 0) std::swap(lhs[0], lhs[1]);
  if (turned[1] != 0) std::swap(rhs[0], rhs[1]);
  if (lhs[1] != rhs[0] || lhs[0] != shapes[2][0] || rhs[1] != shapes[2][1])
    fail("operands of " + to_string(lhs) + " and " + to_string(rhs) + " have no product of " + to_string(shapes[2]));
  if (type(0).dtype != type(1).dtype)
    fail("the left operand is " + std::string(name(type(0).dtype)) + " but the right one " +
             std::string(name(type(1).dtype)),
         "both have one dtype");
}

void Inference::thread_op() const {
  if (!k_.has_threads())
    fail("stands in a kernel without threads", "mosaic_gpu::kernel makes one: the last axis of its grid is `thread`");
  switch (Thread(op_.code)) {
    case Thread::barrier_arrive:
    case Thread::barrier_wait: return one_barrier(0, places({"barrier"})[0]);
    case Thread::copy_gmem_to_smem:
    case Thread::copy_smem_to_gmem: return thread_copy();
    case Thread::wgmma: return wgmma();
    case Thread::wait_smem_to_gmem:
      flag(Attr::read_only);
      [[fallthrough]];
    case Thread::wgmma_wait:
      count(0);
      if (attr(Attr::count) < 0) fail("count is " + std::to_string(attr(Attr::count)) + ", which is negative");
      return;
    case Thread::set_max_registers: {
      count(0);
      flag(Attr::decrease);
      const int64_t n = attr(Attr::count);
      if (n < 24 || n > 256 || n % 8 != 0)
        fail("count is " + std::to_string(n) + ", not a multiple of 8 from 24 to 256");
      return;
    }
    case Thread::commit_smem_to_gmem_group:
    case Thread::commit_smem: return count(0);
  }
}

}  // namespace tessera::ir
