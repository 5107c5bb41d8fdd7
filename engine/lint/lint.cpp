#include "engine/lint/lint.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <mutex>

#include "engine/interpreter/interpreter.h"
#include "engine/interpreter/races.h"
#include "engine/ir/walk.h"
#include "engine/lint/finding.h"

namespace tessera {
namespace lint {

void Context::report(const std::string& what, Loc loc, const std::string& note) {
  std::string text = Error(k.name + ": " + what, loc, note).what();
  if (seen.insert(text).second) findings.push_back(std::move(text));
}
std::string Context::program(const std::vector<int64_t>& at) const {
  return "program " + interpreter::program_text(k, at.data());
}
std::string Context::ref(ir::Value ref) const {
  if (k.value(ref).region == k.body) return interpreter::ref_text(k, k.value(ref).number);
  const std::vector<ir::Value> scoped = ir::scoped_refs(k);
  const auto at = std::find(scoped.begin(), scoped.end(), ref) - scoped.begin();
  return interpreter::ref_text(k, k.region(k.body).args.size() + static_cast<size_t>(at));
}

std::optional<std::vector<Place>> place_of(const Context& c, passes::Programs& programs, size_t i) {
  const ir::BlockMapping& b = c.k.blocks[i];
  const Shape& array = c.arrays[i];
  std::vector<Place> places;
  if (b.is_whole()) {
    for (const int64_t n : array) places.push_back({0, n, true});
    return places;
  }
  const auto given = programs.map(b);
  if (!given) return {};
  for (size_t d = 0, at = 0; d < b.block().size(); ++d) {
    const ir::BlockDim& dim = b.block()[d];
    const int64_t last = std::max<int64_t>(*ir::last_index(dim, array[d]).value(), 0),
                  index = ir::block_index(dim, (*given)[at], last);
    const int64_t size = dim.is_bounded() ? std::clamp<int64_t>((*given)[at + 1], 0, dim.size()) : dim.size();
    places.push_back({index * dim.unit() - dim.low(), size, dim.seen(), dim.halo() != nullptr});
    at += dim.results();
  }
  return places;
}

bool Box::empty() const {
  return std::any_of(dims.begin(), dims.end(), [](const auto& d) { return d.first >= d.second; });
}
bool Box::meets(const Box& o) const {
  for (size_t d = 0; d < dims.size(); ++d)
    if (std::max(dims[d].first, o.dims[d].first) >= std::min(dims[d].second, o.dims[d].second)) return false;
  return true;
}

std::optional<int64_t> start_of(const ir::Kernel& k, passes::Programs& programs, const ir::Op& op, size_t d) {
  const ir::Index& x = op.index[d];
  if (x.is_array()) return {};
  const auto start = x.is_static() ? std::optional(x.constant()) : programs.value(op.operand_of(x));
  const bool fits = start && *start >= 0 && *start + x.as_slice().span() <= k.type(op.operands[0]).shape[d];
  return fits ? start : std::nullopt;
}

Box box_of(const ir::Kernel& k, passes::Programs& programs, const ir::Op& op, const Shape& array,
           const std::vector<Place>& places) {
  Box box;
  // A copy names three Refs in one index; the whole of each counts.
  const bool indexed = ir::accesses_ref(op.code);
  size_t at = 0;
  for (size_t d = 0; d < array.size(); ++d) {
    const Place& p = places[d];
    int64_t first = 0, end = p.size;  // in the Ref
    if (p.seen && indexed) {
      // Where the start is not known, all of the dim counts.
      const ir::Index& x = op.index[at];
      if (const auto start = start_of(k, programs, op, at++)) {
        first = *start;
        end = std::min(first + x.as_slice().span(), p.size);
      }
    }
    box.dims.emplace_back(std::max<int64_t>(p.start + first, 0), std::min(p.start + end, array[d]));
  }
  return box;
}
}  // namespace lint

std::optional<Lint> lint_from_name(std::string_view name) {
  if (name == "off") return Lint::off;
  if (name == "warn") return Lint::warn;
  if (name == "error") return Lint::error;
  return {};
}

std::optional<Lint> lint_of_environment() {
  const char* const given = std::getenv("TESSERA_LINT");
  if (!given || !*given) return {};
  if (const auto what = lint_from_name(given)) return what;
  throw SpecError("TESSERA_LINT is \"" + std::string(given) + "\"", {}, "it is off, warn or error");
}

bool has_all_sizes(const ir::Kernel& k, const DimValues& dims) {
  const std::vector<std::string> names = k.dim_names();
  return std::all_of(names.begin(), names.end(), [&](const std::string& n) { return dims.contains(n); });
}

std::vector<std::string> lints(const ir::Kernel& k, const DimValues& dims) {
  if (k.level != ir::Level::tile) throw InternalError("lints of a lowered kernel");
  if (k.has_threads()) return {};  // they are written for programs that run alone
  lint::Context c{k, {}, bind_grid(k, dims), {}};
  for (int i = 0; i < static_cast<int>(k.blocks.size()); ++i) c.arrays.push_back(bind_shape(k, i, dims));
  for (const ir::Remark& r : k.remarks) c.report(r.what, r.loc, r.note);
  std::vector<lint::EarlyLoad> early;
  lint::find_coverage(c, early);
  lint::find_unspecified(c, early);
  return std::move(c.findings);
}

void check_lints(const ir::Kernel& k, const DimValues& dims, Lint what,
                 const Function<void(const std::string&)>& warn) {
  if (what == Lint::off) return;
  const std::vector<std::string> found = lints(k, dims);
  if (found.empty()) return;
  if (what == Lint::error) {
    std::string all;
    for (const std::string& f : found) all += (all.empty() ? "" : "\n") + f;
    throw KernelError(all);
  }
  static std::mutex mutex;
  static std::set<std::string> said;
  for (const std::string& f : found) {
    if (warn) {
      warn(f);
      continue;
    }
    const std::lock_guard lock(mutex);
    if (said.insert(f).second) std::cerr << "warning: " << f << "\n";
  }
}

}  // namespace tessera
