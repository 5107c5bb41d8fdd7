#include "engine/interpreter/races.h"

#include <limits>

#include "engine/base/function.h"
#include "engine/base/print_text.h"

namespace tessera::interpreter {

std::string program_text(const ir::Kernel& k, const int64_t* program) {
  std::vector<std::string> names;
  for (const ir::GridAxis& axis : k.grid) names.push_back(axis.name);
  return tessera::program_text(names, program);
}

std::string ref_text(const ir::Kernel& k, size_t ref) {
  if (ref < k.blocks.size()) return k.blocks[ref].origin;
  const size_t body = k.region(k.body).args.size();
  if (ref < body)
    return (k.has_threads() ? "scratch_types[" : "scratch_shapes[") + std::to_string(ref - k.blocks.size()) + "]";
  return "run_scoped[" + std::to_string(k.value(ir::scoped_refs(k).at(ref - body)).number) + "]";
}

namespace {
constexpr int64_t kMostPrograms = std::numeric_limits<uint32_t>::max() - int64_t{1};
}

bool Races::fits(const std::vector<int64_t>& grid) {
  int64_t programs = 1;
  for (size_t a = grid.size(); a-- > 0; programs *= grid[a])
    if (grid[a] > 0 && programs > kMostPrograms / grid[a]) return false;
  return true;
}

Races::Races(const ir::Kernel& k, std::vector<int64_t> grid, std::vector<bool> parallel,
             Function<void(const std::string&)> warn)
    : k_(k), grid_(std::move(grid)), parallel_(std::move(parallel)), strides_(grid_.size()), warn_(std::move(warn)) {
  if (!fits(grid_))
    throw SpecError(k.name + ": the race detector handles at most " + std::to_string(kMostPrograms) + " programs",
                    k.loc, "give it a smaller grid");
  int64_t programs = 1;
  for (size_t a = grid_.size(); a-- > 0; programs *= grid_[a]) strides_[a] = programs;
  memory_.resize(k.region(k.body).args.size());
  for (size_t i = 0; i < memory_.size(); ++i) memory_of_.push_back(i);
  snapshot_.resize(memory_.size());
  current_.resize(grid_.size());
}

void Races::follow(size_t ref, size_t memory, Shape shape, bool snapshot) {
  memory_of_[ref] = memory;
  snapshot_[ref] = snapshot;
  memory_[memory].elements.resize(static_cast<size_t>(num_elements(shape)));
  memory_[memory].shape = std::move(shape);
}

void Races::begin(const int64_t* program) {
  int64_t number = 1;
  for (size_t a = 0; a < grid_.size(); ++a) {
    current_[a] = program[a];
    number += program[a] * strides_[a];
  }
  number_ = static_cast<uint32_t>(number);
}

std::vector<int64_t> Races::program(uint32_t number) const {
  std::vector<int64_t> p(grid_.size());
  int64_t left = int64_t{number} - 1;
  for (size_t a = 0; a < grid_.size(); ++a) {
    p[a] = left / strides_[a];
    left %= strides_[a];
  }
  return p;
}

// Nothing was there, or it was this program's, or that of one that differs in no parallel axis.
bool Races::ordered(const Touch& t) const {
  if (t.program == 0 || t.program == number_) return true;
  int64_t left = int64_t{t.program} - 1;
  for (size_t a = 0; a < grid_.size(); ++a) {
    if (parallel_[a] && left / strides_[a] != current_[a]) return false;
    left %= strides_[a];
  }
  return true;
}

void Races::access(const ir::Op& op, size_t ref, int64_t element, Touching how) {
  std::vector<Element>& elements = memory_[memory_of_[ref]].elements;
  if (element < 0 || static_cast<size_t>(element) >= elements.size())
    throw InternalError(k_.name + ": the race detector is asked about element " + std::to_string(element) + " of " +
                            ref_text(k_, ref) + ", which has " + std::to_string(elements.size()),
                        op.loc);
  Element& e = elements[static_cast<size_t>(element)];
  if (ref >= k_.blocks.size()) {  // scratch: storing what this program has not loaded is fine, atomics load as well
    if (!ordered(e.writer) && how != Touching::store)
      report(op, ref, element, how == Touching::atomic ? Touching::load : how, e.writer, Touching::store);
    if (how == Touching::load) return;
    e.writer = {number_, &op};
    return;
  }
  const Touch& writer = snapshot_[ref] && e.writer.program == number_ ? e.before : e.writer;
  if (!ordered(writer)) report(op, ref, element, how, writer, Touching::store);
  if (how == Touching::load && memory_of_[ref] != ref && writer.program != 0 && writer.program != number_)
    warn_of(op, ref, element, writer);
  if (how != Touching::load)
    for (const Touch& reader : e.readers)
      if (!ordered(reader)) report(op, ref, element, how, reader, Touching::load);
  if (how != Touching::atomic)
    for (const Touch& atomic : e.atomics)
      if (!ordered(atomic)) report(op, ref, element, how, atomic, Touching::atomic);
  if (how == Touching::store && e.writer.program != number_) e.before = e.writer;
  if (how == Touching::store) e.writer = {number_, &op};
  else keep(how == Touching::atomic ? e.atomics : e.readers, op);
}

// Whoever comes next and must be in order with all of them is in no order with one of the two.
void Races::keep(Touch (&list)[2], const ir::Op& op) const {
  list[list[0].program != 0 && !ordered(list[0])] = {number_, &op};
}

// " on in_specs[0], element (3): program (1) loads what program (0) stored"
std::string Races::accessed(size_t ref, int64_t element, Touching how, const Touch& other, Touching other_how) const {
  const Shape& shape = memory_[memory_of_[ref]].shape;
  Shape position(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    position[d] = element % shape[d];
    element /= shape[d];
  }
  return " on " + ref_text(k_, ref) + ", element " + to_string(position) + ": program " +
         program_text(k_, current_.data()) +
         (how == Touching::load    ? " loads"
          : how == Touching::store ? " stores"
                                   : " atomically updates") +
         " what program " + program_text(k_, program(other.program).data()) +
         (other_how == Touching::load    ? " loaded"
          : other_how == Touching::store ? " stored"
                                         : " atomically updated");
}

void Races::warn_of(const ir::Op& op, size_t ref, int64_t element, const Touch& other) {
  if (!warn_ || !warned_.insert(&op).second) return;
  warn_(KernelError(k_.name + ": order decides" + accessed(ref, element, Touching::load, other, Touching::store),
                    op.loc,
                    (other.op->loc ? "that was at " + to_string(other.op->loc) + "; " : std::string()) +
                        ref_text(k_, ref) + " is aliased to " + ref_text(k_, memory_of_[ref]) +
                        ": programs see what earlier ones stored, and with JAX's interpreter the first contents")
            .what());
}

void Races::report(const ir::Op& op, size_t ref, int64_t element, Touching how, const Touch& other,
                   Touching other_how) const {
  const std::vector<int64_t> there = program(other.program);
  std::string axes;
  for (size_t a = 0; a < grid_.size(); ++a)
    if (parallel_[a] && there[a] != current_[a])
      axes += (axes.empty() ? "" : ", ") +
              (k_.grid[a].name.empty() ? "axis " + std::to_string(a) : "axis " + k_.grid[a].name);
  const bool scratch = ref >= k_.blocks.size();
  throw KernelError(k_.name + ": race" + accessed(ref, element, how, other, other_how), op.loc,
                    (other.op->loc ? "that was at " + to_string(other.op->loc) + "; " : std::string()) +
                        (scratch ? "programs that differ in " + axes + " share no scratch"
                                 : "nothing orders programs that differ in " + axes));
}

}  // namespace tessera::interpreter
