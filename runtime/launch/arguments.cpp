#include "runtime/launch/arguments.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "engine/base/bind.h"
#include "engine/base/error.h"

namespace tessera {

CallSignature call_signature(const Program& p) {
  CallSignature s{p.name, p.loc, {}, 0, {}, {}};
  s.args.reserve(p.args.size());
  for (const ProgramArg& a : p.args) {
    s.args.push_back({a.origin, a.dtype, a.shape, a.loc});
    s.num_inputs += !a.is_output;
    for (const Extent& e : a.shape) e.collect_names(s.sizes);
  }
  for (const Extent& e : p.grid) {
    s.grid.push_back(&e);
    e.collect_names(s.sizes);
  }
  for (const Extent& e : p.extents) e.collect_names(s.sizes);
  p.num_units.collect_names(s.sizes);
  return s;
}

std::vector<int64_t> extents_of(const Program& p, const DimValues& dims, const std::string& device) {
  std::vector<int64_t> values;
  extents_of(p, dims, device, values);
  return values;
}

void extents_of(const Program& p, const DimValues& dims, const std::string& device, std::vector<int64_t>& values) {
  values.clear();
  const auto value = [&](const Extent& e) {
    try {
      return e.eval(dims);
    } catch (const SpecError&) {
      return bind_extent(p.name, p.loc, e, dims);  // throws, saying what of
    }
  };
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  const auto beyond = [&](const std::string& what, int64_t is) {
    throw SpecError(p.name + ": " + what + " is " + std::to_string(is) + " but the kernel counts it in 32 bits", p.loc);
  };
  for (size_t i = 0; i < p.extents.size(); ++i) {
    const int64_t v = value(p.extents[i]);
    if (p.steps_extent >= 0 && i == static_cast<size_t>(p.steps_extent) + 1 && !p.open_ended && v > Program::kMostSteps)
      throw CompileError(loops_too_long(p.name, v, bindings({p.extents[i]}, dims), device, p.max_loop_iterations),
                         p.loc, kShorterLoops);
    if (!p.extent_is_64.at(i) && (v < std::numeric_limits<int32_t>::min() || v > most))
      beyond(to_string(p.extents[i]), v);
    values.push_back(v);
  }
  // The code may rest on it, also where it counts only parts of a size (lane::Prover).
  for (const Extent& e : p.extents)
    for (const Extent::Node& n : e.nodes())
      if (const auto* name = std::get_if<std::string>(&n); name && dims.find(*name)->second > most)
        beyond(*name, dims.find(*name)->second);
}

int64_t workgroups_of(const Program& p, const DimValues& dims, int64_t arena_bytes) {
  const int64_t n = p.num_units.eval(dims);
  if (n <= 0) return 0;
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  if (n > most)
    throw SpecError(
        p.name + ": the grid takes " + std::to_string(n) + " workgroups but a call has at most " + std::to_string(most),
        p.loc);
  // Nothing to write to, and no address for the code to read from (codegen/bounds.md).
  const auto is_empty = [&](const ProgramArg& a) {
    return a.by_value ||
           std::any_of(a.shape.begin(), a.shape.end(), [&](const Extent& e) { return e.eval(dims) == 0; });
  };
  if (p.report_bytes == 0 && p.scratch_bytes == 0 && std::all_of(p.args.begin(), p.args.end(), is_empty)) return 0;
  if (p.max_workgroups == 0) return n;
  const int64_t usual = std::min<int64_t>(n, p.max_workgroups);
  if (p.max_loop_iterations == 0) return usual;
  // Where that makes each loop over too many units for the driver: more workgroups, as far as there is memory for their
  // arenas.
  const LoopTotal unit = total_iterations(p.loops, 0, &dims);
  const int64_t units =
      std::max<int64_t>(p.max_loop_iterations / std::max<int64_t>(unit.at_most.value_or(unit.at_least), 1) - 1, 1);
  const int64_t room = arena_bytes / std::max<int64_t>(p.scratch_bytes, 1);
  return std::max(usual, std::min(cdiv(n, units), room));
}

bool may_take(const Program& p, size_t i) {
  return p.args[i].written ||
         std::any_of(p.args.begin(), p.args.end(), [&](const ProgramArg& a) { return a.alias == static_cast<int>(i); });
}

void check_donation(const Program& p, size_t i, size_t num_inputs, FunctionRef<bool(size_t)> same) {
  const std::string where = p.name + ": argument " + std::to_string(i) + " is donated, but ";
  if (!may_take(p, i))
    throw SpecError(where + "no output is aliased to it", p.loc,
                    "name one in input_output_aliases, or leave donate() out");
  for (size_t j = 0; j < num_inputs; ++j)
    if (j != i && same(j))
      throw SpecError(where + "argument " + std::to_string(j) + " is the same array", p.loc, "copy() one of them");
}

uint64_t value_of(const Program& p, size_t i, const std::optional<Scalar>& number) {
  const ProgramArg& a = p.args[i];
  if (!number)
    throw SpecError(p.name + ": " + a.origin + ": an array is given, but the kernel takes a number by value", a.loc,
                    "give a number, or a BlockSpec in place of by_value for numbers that are on the device");
  if (!number->fits(a.dtype)) throw SpecError(p.name + ": " + a.origin + ": " + number->misfit(a.dtype), a.loc);
  return number->bits(a.dtype);
}

size_t num_addresses(const Program& p) { return p.args.size() + (p.scratch_bytes > 0) + (p.report_bytes > 0); }

std::vector<std::byte> argument_block(const Program& p, const std::vector<uint64_t>& addresses,
                                      const std::vector<int64_t>& sizes) {
  const size_t at = addresses.size() * sizeof(uint64_t);
  size_t bytes = 0;
  for (size_t i = 0; i < sizes.size(); ++i) bytes += p.extent_is_64[i] ? sizeof(int64_t) : sizeof(int32_t);
  std::vector<std::byte> block(p.tensors.empty() ? at + bytes : static_cast<size_t>(p.push_bytes()));
  if (at > 0) std::memcpy(block.data(), addresses.data(), at);
  put_sizes(p, sizes, std::span(block).subspan(at));
  return block;
}

void put_sizes(const Program& p, const std::vector<int64_t>& sizes, std::span<std::byte> into) {
  const auto put = [&](auto v) {
    std::memcpy(into.data(), &v, sizeof v);
    into = into.subspan(sizeof v);
  };
  for (size_t i = 0; i < sizes.size(); ++i)
    if (p.extent_is_64[i]) put(sizes[i]);
  for (size_t i = 0; i < sizes.size(); ++i)
    if (!p.extent_is_64[i]) put(static_cast<int32_t>(sizes[i]));
}

}  // namespace tessera
