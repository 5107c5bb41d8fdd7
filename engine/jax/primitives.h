// The primitives of JAX that kernels may contain: one row each, a function from an equation to the Values that it
// computes. Internal to engine/jax: importer.cpp walks the equations; primitives.cpp has the rows of values,
// indexed.cpp those for elements at computed positions, memory.cpp those of Refs, effects.cpp prints and random
// numbers, control.cpp those with jaxprs inside, threads.cpp those of plgpu.kernel.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/base/function.h"
#include "engine/front.h"
#include "engine/front/mosaic_gpu.h"
#include "engine/jax/node.h"

namespace tessera::jax {

using Values = std::vector<Value>;

/// What a variable of a jaxpr stands for.
struct Entry {
  std::variant<Value, Ref> is;
  std::optional<int64_t> number = std::nullopt;  ///< of a literal integer: what it is, for places that want it static
  std::optional<Value> truth = std::nullopt;     ///< of an integer made from a truth value: that
};
using Entries = std::vector<Entry>;

/// The state of one import.
struct Import {
  std::string kernel;                   // its name, for messages
  std::vector<int> grid_axes;           // the axes that program_id counts: those that vmap did not add
  std::vector<std::string> grid_names;  // one per axis, empty for an axis without a name
  std::vector<Ref> tables = {};         // constants that are arrays of different elements; none in index maps
  // of kernels of threads: the Refs of each run_scoped that is entered once, which are the kernel's scratch, by its
  // path
  std::map<std::string, std::vector<Ref>> scratch = {};
  // of a jaxpr that a pipeline calls: the position along each axis of the call's grid
  std::vector<Value> program_ids = {};
};

/// Runs a jaxpr on what its arguments stand for (behind its constants), and returns what it results in. Equations of
/// unknown line have `loc`.
Entries run(Import& import, const Node& jaxpr, const Entries& arguments, Loc loc);

/// One equation while it is imported. Node is the whole equation; the operands are what the variables before it stand
/// for.
struct Equation {
  Import& import;
  const Node& node;
  const Node params;
  std::string name;
  Loc loc;
  const Entries& scope;  // of the jaxpr, before this equation
  Entries in;

  [[noreturn]] void fail(const std::string& what,
                         const std::string& note = {}) const;  ///< TraceError "KERNEL: PRIMITIVE: what"
  size_t size() const { return in.size(); }
  Value value(size_t i) const;
  Operand x(size_t i) const { return Operand(value(i), loc); }
  std::vector<Operand> operands() const;
  const Ref& ref(size_t i) const;
  /// A variable or literal among the parameters (masks, indices).
  Entry entry(const Node& n) const;
  Operand operand(const Node& n) const;
  /// The type that JAX says result i has, and whether anything uses it.
  TypeForm out(size_t i) const;
  size_t num_out() const;
  bool dropped(size_t i) const;
};

struct Row {
  std::string_view name;
  int operands;  // how many, or -1
  Values (*make)(Equation&);
};
/// The row of a primitive, or null.
const Row* find_row(std::string_view name);
const std::vector<Row>& value_rows();
const std::vector<Row>& indexed_rows();
const std::vector<Row>& memory_rows();
const std::vector<Row>& effect_rows();
const std::vector<Row>& control_rows();
const std::vector<Row>& thread_rows();

Value value_of(const Entry& e, const Equation& where);
Entries entries(const std::vector<Value>& values);
/// Whether an equation makes a Ref, which lives until the end of the jaxpr that it stands in; and what `rest` computes
/// with that.
bool makes_ref(const Node& equation);
Values new_ref(const Equation& e, FunctionRef<Values(const Ref&)> rest);
/// Scratch, or an argument of run_scoped, from its TYPE.
ScratchShape scratch_shape(const Node& n);
/// The same in a kernel of threads; `more`: what the TYPE leaves open (format.md, "types").
mosaic_gpu::ScratchType thread_scratch(const Node& type, const std::optional<Node>& more, Loc loc);
/// run_scoped there.
Values scoped_by_threads(Equation& e);
/// The part of operand i that these transforms take, as a Ref.
Ref part_of(const Equation& e, size_t i, const Node& transforms);
/// The part of operand i that the transforms in this parameter take.
Place place_of(const Equation& e, size_t i, const char* transforms);
/// A scalar constant of these bits, or an array with the same bits everywhere.
Value constant(DType t, uint64_t bits, Shape shape, Loc loc);

}  // namespace tessera::jax
