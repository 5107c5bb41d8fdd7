// Type inference of what has memory or regions: accesses, semaphores and copies, control flow; and of the ops of
// kernels of threads.
#include <algorithm>

#include "engine/base/print_text.h"
#include "engine/ir/inference.h"

namespace tessera::ir {

Shape Inference::access(size_t before_mask, std::optional<DType> as) const {
  if (op_.operands.empty() || !type(0).is_ref)
    fail("operand 0 must be a ref" + (op_.operands.empty() ? std::string() : " but is " + to_string(type(0))));
  const Type& ref = type(0);
  if (is_semaphore(ref.space) && info(op_.code).effect != Effect::ordered)
    fail("the ref is a semaphore, " + to_string(ref), "semaphores are signalled, waited for and read");
  if (is_barrier(ref.space)) fail("the ref is a barrier, " + to_string(ref), "threads arrive and wait at barriers");
  const bool mask = flag(Attr::mask), other = flag(Attr::other);
  const size_t first_start = before_mask + mask + other;
  if (op_.operands.size() < first_start)
    fail("takes at least " + std::to_string(first_start) + " operands but got " + std::to_string(op_.operands.size()));
  if (op_.index.size() != ref.shape.size())
    fail("the index has " + std::to_string(op_.index.size()) + (op_.index.size() == 1 ? " entry" : " entries") +
         " but the ref " + to_string(ref) + " has " + std::to_string(ref.shape.size()) +
         (ref.shape.size() == 1 ? " dim" : " dims"));
  std::vector<bool> used(op_.operands.size() - first_start);
  const Shape* arrays = nullptr;
  size_t first_array = 0;
  for (size_t d = 0; d < op_.index.size(); ++d) {
    const Index& x = op_.index[d];
    if (!x.is_static()) {
      const size_t at = *x.operand();
      if (at < first_start || at >= op_.operands.size())
        fail("dim " + std::to_string(d) + ": the start is operand " + std::to_string(at) +
             ", which is not one of the dynamic starts");
      used[at - first_start] = true;
      if (x.is_array()) {
        const Type& t = type(at);
        const std::string place = "dim " + std::to_string(d) + ": ";
        if (k_.level == Level::lane) fail(place + "an index array is legal at tile level only");
        if (t.is_ref || t.dtype != DType::i32 || t.shape.empty())
          fail(place + "an index array must be i32 and have dims but is " + to_string(t));
        if (arrays && *arrays != t.shape)
          fail(place + "the index array has shape " + to_string(t.shape) + " but that of dim " +
                   std::to_string(first_array) + " has " + to_string(*arrays),
               "arrays of an index have one shape");
        if (ref.shape[d] == 0 && num_elements(t.shape) != 0) fail(place + "an index array into 0 elements");
        if (!arrays) first_array = d;
        arrays = &t.shape;
        continue;
      }
      if (type(at) != i32_) scalar(at, DType::i32, ("dim " + std::to_string(d) + ": a dynamic start").c_str());
    }
    bounds(d, x, ref.shape[d], mask);
  }
  const Shape shape = access_dims(k_, op_).shape;
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i]) fail("operand " + std::to_string(first_start + i) + " is not used by the index");
  if (mask && type(before_mask) != Type::array(DType::boolean, shape))
    fail("the mask must be " + to_string(Type::array(DType::boolean, shape)) + " but is " +
         to_string(type(before_mask)));
  if (other && !mask) fail("has other but no mask");
  if (const Type wanted = Type::array(as.value_or(ref.dtype), shape); other && type(before_mask + 1) != wanted)
    fail("other must be " + to_string(wanted) + " but is " + to_string(type(before_mask + 1)));
  return shape;
}

void Inference::bounds(size_t d, const Index& x, int64_t dim, bool mask, const std::string& role) const {
  const auto place = [&] { return role + "dim " + std::to_string(d) + ": "; };
  const auto elements = [&] {
    return dim < 0 ? std::string("an array") : std::to_string(dim) + (dim == 1 ? " element" : " elements");
  };
  const int64_t start = x.is_static() ? x.constant() : 0;
  if (x.is_integer()) {
    if (x.is_static() ? start < 0 || (dim >= 0 && start >= dim) : dim == 0)
      fail(place() + "index " + (x.is_static() ? std::to_string(start) + " " : std::string()) + "is out of range for " +
           elements());
    return;
  }
  const int64_t size = x.slice()->size, step = x.slice()->step;
  if (size < 0 || step < 1)
    fail(place() + "a slice needs a size of at least 0 and a step of at least 1, not " + std::to_string(size) +
         " and " + std::to_string(step));
  const bool vector = dim < 0 && k_.level == Level::lane && is_vector_access(op_);
  if (dim < 0 && !vector) fail(place() + "the ref " + to_string(type(0)) + " takes one integer index, not a slice");
  using Wide = __int128;
  const Wide window = size == 0 ? 0 : Wide{size - 1} * step + 1;
  if (x.is_static() ? start < 0 || (Wide{start} + window > dim && !vector) : !mask && window > dim && !vector)
    fail(place() + "slice of " + std::to_string(size) +
         (x.is_static() ? " from " + std::to_string(start) : std::string()) +
         (step == 1 ? std::string() : ", step " + std::to_string(step)) + " is out of range for " + elements());
}

std::vector<Type> Inference::load() const {
  Shape shape = access(1);
  if (k_.level == Level::lane && shape.size() == 1) return vector();
  return {Type::array(type(0).dtype, std::move(shape))};
}

// At lane level a slice is a vector access: one scalar per element.
std::vector<Type> Inference::vector() const {
  const Index::Slice& slice = *op_.index[0].slice();
  const int64_t n = slice.size;
  if ((n != 2 && n != 4 && n != 8 && n != 16) || slice.step != 1 || op_.has_mask())
    fail("a vector access takes 2, 4, 8 or 16 elements with step 1 and no mask");
  return std::vector<Type>(static_cast<size_t>(n), Type::array(type(0).dtype));
}

void Inference::vector_store() const {
  const auto n = static_cast<size_t>(std::clamp<int64_t>(op_.index[0].slice()->size, 1, 16));
  access(1 + n);
  const std::vector<Type> wanted = vector();
  for (size_t i = 0; i < wanted.size(); ++i)
    if (type(1 + i) != wanted[i])
      fail("value " + std::to_string(i) + " must be " + to_string(wanted[i]) + " but is " + to_string(type(1 + i)));
}

Type Inference::stored() const {
  if (op_.operands.size() < 2) fail("takes at least 2 operands but got " + std::to_string(op_.operands.size()));
  const Type wanted = Type::array(type(0).dtype, access(2));
  if (type(1) != wanted) fail("the value must be " + to_string(wanted) + " but is " + to_string(type(1)));
  return wanted;
}

Type Inference::atomic() const {
  const size_t first = op_.code == Opcode::atomic_cas ? 3 : 2;
  if (op_.operands.size() < first)
    fail("takes at least " + std::to_string(first) + " operands but got " + std::to_string(op_.operands.size()));
  const DType held = type(0).dtype, as = flag(Attr::bits) ? type(1).dtype : held;
  if (as != held && (bits(as) != bits(held) || as == DType::boolean || held == DType::boolean))
    fail("attribute bits takes elements for numbers of another dtype and of their width, not " +
         std::string(name(held)) + " for " + std::string(name(as)));
  const Type wanted = Type::array(as, access(first, as));
  if (type(1) != wanted) fail("the value must be " + to_string(wanted) + " but is " + to_string(type(1)));
  if (first == 3 && type(2) != wanted)
    fail("what the elements are compared with must be " + to_string(wanted) + " but is " + to_string(type(2)));
  if (first == 3) return wanted;
  flag(Attr::unordered);
  const int64_t kind = attr(Attr::kind);
  const bool is_op = kind >= 0 && kind < kNumOpcodes;
  const Opcode by = is_op ? static_cast<Opcode>(kind) : Opcode::yield;
  if (by == Opcode::swap) return wanted;
  if (const Combiner* row = combiner(by); !row || !row->atomic)
    fail("kind " + (is_op ? std::string(name(by)) : std::to_string(kind)) +
         " is not one of add, max, min, and, or, xor and swap");
  check_dtype(info(by).operands, wanted.dtype);
  return wanted;
}

void Inference::text(size_t first) const {
  const int64_t at = attr(Attr::text);
  if (at < 0 || at >= static_cast<int64_t>(k_.texts.size()))
    fail("text " + std::to_string(at) + " is out of range for " + std::to_string(k_.texts.size()) +
         (k_.texts.size() == 1 ? " text" : " texts"));
  std::vector<std::pair<DType, Shape>> arguments;
  for (size_t i = first; i < op_.operands.size(); ++i) arguments.emplace_back(array(i).dtype, type(i).shape);
  if (const std::string problem = format_problem(k_.texts[static_cast<size_t>(at)], arguments); !problem.empty())
    fail(problem);
}

std::vector<Type> Inference::semaphore() const {
  const bool read = op_.code == Opcode::semaphore_read;
  const size_t fixed = read ? 1 : 2;
  if (op_.operands.size() < fixed)
    fail("takes at least " + std::to_string(fixed) + (fixed == 1 ? " operand" : " operands") + " but got " +
         std::to_string(op_.operands.size()));
  const Shape shape = access(fixed);
  if (!is_semaphore(type(0).space)) fail("the ref must be a semaphore but is " + to_string(type(0)));
  if (!shape.empty())
    fail("the index selects " + to_string(shape) + " of the semaphores " + to_string(type(0)),
         "one semaphore at a time: index every dim with an integer");
  if (read) return {i32_};
  if (type(0).space == MemorySpace::dma_semaphore)
    fail("the ref is a " + to_string(type(0)),
         "copies alone count there: wait for the copy, or take a regular semaphore");
  scalar(1, DType::i32, op_.code == Opcode::semaphore_signal ? "the increment" : "what is waited for");
  return {};
}

// From operand 0 to operand 1.
void Inference::copies_elements(const Shape& source, const Shape& target) const {
  if (source != target)
    fail("the source is " + to_string(source) + " but the target is " + to_string(target),
         "a copy does not change shapes");
  if (type(0).dtype != type(1).dtype)
    fail("the source holds " + std::string(name(type(0).dtype)) + " but the target " + std::string(name(type(1).dtype)),
         "a copy does not convert");
}

void Inference::copy() const {
  constexpr const char* kRoles[] = {"source", "target", "semaphore"};
  if (op_.operands.size() < 3)
    fail("takes a source, a target and a semaphore but got " + std::to_string(op_.operands.size()) + " operands");
  size_t dims = 0;
  for (size_t i = 0; i < 3; ++i) {
    if (!type(i).is_ref) fail(std::string("the ") + kRoles[i] + " must be a ref but is " + to_string(type(i)));
    if (is_semaphore(type(i).space) != (i == 2))
      fail(std::string("the ") + kRoles[i] + (i == 2 ? " must be a dma_semaphore but is " : " is a semaphore, ") +
           to_string(type(i)));
    dims += type(i).shape.size();
  }
  if (type(2).space != MemorySpace::dma_semaphore)
    fail("the semaphore must be a dma_semaphore but is " + to_string(type(2)),
         "regular semaphores are signalled, copies count in DMA semaphores");
  if (op_.index.size() != dims)
    fail("the index has " + std::to_string(op_.index.size()) + (op_.index.size() == 1 ? " entry" : " entries") +
         " but the three refs have " + std::to_string(dims) + (dims == 1 ? " dim" : " dims"));
  const bool clip = flag(Attr::clip);
  std::vector<bool> used(op_.operands.size() - 3);
  Shape shapes[3];
  const std::array<CopyPlace, 3> places = copy_places(k_, op_);
  for (size_t i = 0; i < 3; ++i)
    for (size_t d = 0; d < places[i].rank; ++d) {
      const Index& x = op_.index[places[i].first + d];
      if (!x.is_static()) {
        const size_t at = *x.operand();
        if (at < 3 || at >= op_.operands.size())
          fail(std::string("the ") + kRoles[i] + ": dim " + std::to_string(d) + ": the start is operand " +
               std::to_string(at) + ", which is not one of the dynamic starts");
        if (type(at) != i32_)
          scalar(at, DType::i32, ("dim " + std::to_string(d) + " of the " + kRoles[i] + ": a dynamic start").c_str());
        used[at - 3] = true;
      }
      bounds(d, x, type(i).shape[d], clip && i < 2, std::string("the ") + kRoles[i] + ": ");
      if (x.slice()) shapes[i].push_back(x.slice()->size);
    }
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i]) fail("operand " + std::to_string(3 + i) + " is not used by the index");
  copies_elements(shapes[0], shapes[1]);
  if (!shapes[2].empty())
    fail("the index selects " + to_string(shapes[2]) + " of the semaphores " + to_string(type(2)),
         "one semaphore at a time: index every dim with an integer");
  constexpr int64_t kMostBytes = INT32_MAX;
  if (within_limits(shapes[0]) && num_elements(shapes[0]) > kMostBytes / size_bytes(type(0).dtype))
    fail("copies " + std::to_string(num_elements(shapes[0]) * size_bytes(type(0).dtype)) +
             " bytes, and a semaphore counts to " + std::to_string(kMostBytes),
         "copy it in pieces");
}

std::vector<Type> Inference::run_scoped() const {
  count(0);
  regions(1);
  for (Value v : k_.region(op_.regions[0]).args) {
    const Type& t = k_.type(v);
    if (!t.is_ref || !is_for_scratch(t.space))
      fail("region 0 takes " + to_string(t) + ", no ref to scratch",
           "refs to any, vmem, smem, semaphore and dma_semaphore are");
    if (is_semaphore(t.space) && t.dtype != DType::i32)
      fail("region 0 takes " + to_string(t) + ", but semaphores are i32");
  }
  std::vector<Type> result;
  for (Value v : terminator(0).operands) result.push_back(k_.type(v));
  return result;
}

const Op& Inference::terminator(size_t region) const {
  const Region& r = k_.region(op_.regions[region]);
  if (r.ops.empty() || k_.op(r.ops.back()).code != Opcode::yield)
    fail("region " + std::to_string(region) + " does not end in a yield");
  return k_.op(r.ops.back());
}

std::string Inference::types(const std::vector<Type>& list) const {
  std::string s = "(";
  for (size_t i = 0; i < list.size(); ++i) s += (i ? ", " : "") + to_string(list[i]);
  return s + ")";
}

bool Inference::match(const std::vector<Value>& values, const std::vector<Type>& wanted) const {
  return std::equal(values.begin(), values.end(), wanted.begin(), wanted.end(),
                    [&](Value v, const Type& t) { return k_.type(v) == t; });
}

void Inference::region_takes(size_t region, const std::vector<Type>& wanted) const {
  const auto& args = k_.region(op_.regions[region]).args;
  if (!match(args, wanted))
    fail("region " + std::to_string(region) + " must take " + types(wanted) + " but takes " + types(args));
}

void Inference::region_yields(size_t region, const std::vector<Type>& wanted) const {
  const auto& values = terminator(region).operands;
  if (!match(values, wanted))
    fail("region " + std::to_string(region) + " must yield " + types(wanted) + " but yields " + types(values));
}

std::vector<Type> Inference::carries(size_t first) const {
  std::vector<Type> result;
  for (size_t i = first; i < op_.operands.size(); ++i) result.push_back(array(i));
  return result;
}

std::vector<Type> Inference::for_loop() const {
  if (op_.operands.size() < 3)
    fail("takes lower, upper and step but got " + std::to_string(op_.operands.size()) + " operands");
  regions(1);
  scalar(0, DType::i32, "the lower bound");
  scalar(1, DType::i32, "the upper bound");
  scalar(2, DType::i32, "the step");
  if (const auto step = constant_int(k_, op_.operands[2]); step && *step <= 0)
    fail("the step is " + std::to_string(*step) + ", not positive");
  std::vector<Type> result = carries(3), args{Type::array(DType::i32)};
  args.insert(args.end(), result.begin(), result.end());
  region_takes(0, args);
  region_yields(0, result);
  return result;
}

std::vector<Type> Inference::while_loop() const {
  regions(2);
  std::vector<Type> result = carries(0);
  region_takes(0, result);
  region_yields(0, {Type::array(DType::boolean)});
  region_takes(1, result);
  region_yields(1, result);
  return result;
}

std::vector<Type> Inference::choice(bool is_if) const {
  count(1);
  if (is_if) {
    regions(2);
    scalar(0, DType::boolean, "the predicate");
  } else {
    if (op_.regions.empty()) fail("takes at least one region");
    scalar(0, DType::i32, "the index");
  }
  std::vector<Type> result;
  for (size_t i = 0; i < op_.regions.size(); ++i) {
    region_takes(i, {});
    if (i == 0)
      for (Value v : terminator(0).operands) result.push_back(k_.type(v));
    else if (const auto& values = terminator(i).operands; !match(values, result))
      fail("region 0 yields " + types(result) + " but region " + std::to_string(i) + " yields " + types(values));
  }
  return result;
}

// -- kernels of threads

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
      if (x.is_array()) fail(place + "dim " + std::to_string(d) + ": an index array is for loads and stores");
      if (!x.is_static()) {
        const size_t at = *x.operand();
        if (at < roles.size() || at >= op_.operands.size())
          fail(place + "dim " + std::to_string(d) + ": the start is operand " + std::to_string(at) +
               ", which is not one of the dynamic starts");
        if (type(at) != i32_)
          scalar(at, DType::i32, (place + "dim " + std::to_string(d) + ": a dynamic start").c_str());
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
    fail(std::string("the ") + role + " must be in " + std::string(name(wanted)) + " but is " +
         to_string(type(operand)));
}

void Inference::one_barrier(size_t operand, const Shape& shape) const {
  if (!is_barrier(type(operand).space)) fail("the barrier must be one but is " + to_string(type(operand)));
  if (!shape.empty())
    fail("the index selects " + to_string(shape) + " of the barriers " + to_string(type(operand)),
         "one barrier at a time: index every dim with an integer");
}

void Inference::thread_copy() const {
  const bool in = op_.code == Opcode::copy_gmem_to_smem;
  const std::vector<Shape> shapes = in ? places({"source", "target", "barrier"}) : places({"source", "target"});
  in_space(0, "source", in ? MemorySpace::any : MemorySpace::smem);
  in_space(1, "target", in ? MemorySpace::smem : MemorySpace::any);
  copies_elements(shapes[0], shapes[1]);
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
    if (shapes[i].size() != 2)
      fail(std::string("the ") + kWhat[i] + " must have 2 dims but is " + to_string(shapes[i]));
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
  const DType in = type(0).dtype, sum = type(2).dtype;
  const bool floats = is_float(in) && in != DType::f64,
             good = floats ? sum == DType::f32 || (sum == DType::f16 && (in == DType::f16 || is_float8(in)))
                           : is_int(in) && bits(in) <= 32 && in != DType::u32 && sum == DType::i32;
  if (!good)
    fail("operands of " + std::string(name(in)) + " cannot be summed in an accumulator of " + std::string(name(sum)),
         "floats up to f32 are summed in f32, f16 and floats of 8 bits also in f16; integers up to i32 in i32");
}

void Inference::thread_op() const {
  if (!k_.has_threads())
    fail("stands in a kernel without threads", "mosaic_gpu::kernel makes one: the last axis of its grid is `thread`");
  switch (Thread(op_.code)) {
    case Thread::barrier_arrive:
    case Thread::barrier_wait: return one_barrier(0, places({"barrier"})[0]);
    case Thread::threads_meet:
      for (size_t i = 0; i < op_.operands.size(); ++i)
        if (!type(i).is_ref || !is_barrier(type(i).space))
          fail("operand " + std::to_string(i) + " must be a barrier but is " + to_string(type(i)));
      return;
    case Thread::copy_gmem_to_smem:
    case Thread::copy_smem_to_gmem: return thread_copy();
    case Thread::wgmma: return wgmma();
    case Thread::wait_smem_to_gmem: flag(Attr::read_only); [[fallthrough]];
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
