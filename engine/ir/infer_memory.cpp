// Type inference of what has memory or regions: accesses, semaphores and copies, control flow.
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
      const size_t at = static_cast<size_t>(x.start_operand);
      if (at < first_start || at >= op_.operands.size())
        fail("dim " + std::to_string(d) + ": the start is operand " + std::to_string(at) +
             ", which is not one of the dynamic starts");
      used[at - first_start] = true;
      if (x.kind == Index::Kind::array) {
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
    } else if (x.kind == Index::Kind::array) {
      fail("dim " + std::to_string(d) + ": the index array is missing");
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
  if (x.kind == Index::Kind::integer) {
    if (x.is_static() ? x.start < 0 || (dim >= 0 && x.start >= dim) : dim == 0)
      fail(place() + "index " + (x.is_static() ? std::to_string(x.start) + " " : std::string()) +
           "is out of range for " + elements());
    return;
  }
  if (x.size < 0 || x.step < 1)
    fail(place() + "a slice needs a size of at least 0 and a step of at least 1, not " + std::to_string(x.size) +
         " and " + std::to_string(x.step));
  const bool vector = dim < 0 && k_.level == Level::lane && is_vector_access(op_);
  if (dim < 0 && !vector) fail(place() + "the ref " + to_string(type(0)) + " takes one integer index, not a slice");
  using Wide = __int128;
  const Wide window = x.size == 0 ? 0 : Wide{x.size - 1} * x.step + 1;
  if (x.is_static() ? x.start < 0 || (Wide{x.start} + window > dim && !vector) : !mask && window > dim && !vector) {
    const std::string step = x.step == 1 ? "" : ", step " + std::to_string(x.step);
    fail(place() + "slice of " + std::to_string(x.size) +
         (x.is_static() ? " from " + std::to_string(x.start) : std::string()) + step + " is out of range for " +
         elements());
  }
}

std::vector<Type> Inference::load() const {
  Shape shape = access(1);
  if (k_.level == Level::lane && shape.size() == 1) return vector();
  return {Type::array(type(0).dtype, std::move(shape))};
}

// At lane level a slice is a vector access: one scalar per element.
std::vector<Type> Inference::vector() const {
  const int64_t n = op_.index[0].size;
  if ((n != 2 && n != 4 && n != 8 && n != 16) || op_.index[0].step != 1 || op_.has_mask())
    fail("a vector access takes 2, 4, 8 or 16 elements with step 1 and no mask");
  return std::vector<Type>(static_cast<size_t>(n), Type::array(type(0).dtype));
}

void Inference::vector_store() const {
  const auto n = static_cast<size_t>(std::clamp<int64_t>(op_.index[0].size, 1, 16));
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
        const auto at = static_cast<size_t>(x.start_operand);
        if (at < 3 || at >= op_.operands.size())
          fail(std::string("the ") + kRoles[i] + ": dim " + std::to_string(d) + ": the start is operand " +
               std::to_string(at) + ", which is not one of the dynamic starts");
        if (type(at) != i32_)
          scalar(at, DType::i32, ("dim " + std::to_string(d) + " of the " + kRoles[i] + ": a dynamic start").c_str());
        used[at - 3] = true;
      }
      bounds(d, x, type(i).shape[d], clip && i < 2, std::string("the ") + kRoles[i] + ": ");
      if (x.kind == Index::Kind::slice) shapes[i].push_back(x.size);
    }
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i]) fail("operand " + std::to_string(3 + i) + " is not used by the index");
  if (shapes[0] != shapes[1])
    fail("the source is " + to_string(shapes[0]) + " but the target is " + to_string(shapes[1]),
         "a copy does not change shapes");
  if (type(0).dtype != type(1).dtype)
    fail("the source holds " + std::string(name(type(0).dtype)) + " but the target " + std::string(name(type(1).dtype)),
         "a copy does not convert");
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

}  // namespace tessera::ir
