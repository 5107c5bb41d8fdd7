#include "tests/fuzz/rewrite.h"

#include <algorithm>
#include <utility>

#include "engine/ir/compact.h"
#include "engine/ir/verify.h"
#include "tests/fuzz/rewriter.h"

namespace tessera::fuzz {
namespace {
struct Rewriting {
  const char* name;
  bool (*apply)(Rewriter&);
  bool perhaps_another = false;  // CheckOptions::perhaps_another
};
constexpr Rewriting kRewritings[] = {
    // the grid
    {"sizes", rewrite_sizes},              // arrays and axes get sizes that arrive with the call
    {"axis", rewrite_axis},                // an axis of size 1
    {"two_calls", rewrite_two_calls},      // an axis of size 2, with arrays for each of its programs
    {"merged_axes", rewrite_merged_axes},  // two axes as one
    {"split_axis", rewrite_split_axis},    // one axis as two
    {"turned_axes", rewrite_turned_axes},  // parallel axes swapped, or one reversed
    // arrays and blocks
    {"array_dim", rewrite_array_dim},          // a dim of 1
    {"squeezed", rewrite_squeezed},            // squeezed dims seen, and the other way
    {"transposed", rewrite_transposed},        // two dims of an array swapped
    {"padded", rewrite_padded, true},          // room behind an array's end, likewise
    {"windows", rewrite_windows},              // blocked dims as element and halo ones
    {"bounded", rewrite_bounded, true},        // as bounded ones, if no start is clamped
    {"blocked_whole", rewrite_blocked_whole},  // whole arrays as one block
    {"twice", rewrite_twice},                  // an input as two arguments
    {"stored_wide", rewrite_stored_wide},      // an array in memory as a wider dtype
    // values
    {"given_constants", rewrite_given_constants},  // constants that arrive with the call
    {"kept", rewrite_kept},                        // values through scratch
    {"chosen", rewrite_chosen},                    // select(true, x, garbage)
    {"moved", rewrite_moved},                      // moves that undo each other
    {"wide", rewrite_wide},                        // arithmetic in wider dtypes
    // statements
    {"order", rewrite_order},            // independent ones in another order
    {"wrapped", rewrite_wrapped},        // in a loop of one trip, under a condition that is true
    {"split_loop", rewrite_split_loop},  // a loop in two
    {"unrolled", rewrite_unrolled},      // a short loop as a straight line
    {"while", rewrite_while},            // for as while
    // accesses
    {"dynamic_index", rewrite_dynamic_index},  // starts and positions that arrive with the call
    {"split_access", rewrite_split_access},    // in two parts
    {"masked", rewrite_masked},                // with a mask that is true
    {"swaps", rewrite_swaps},                  // as other ops
};

const Rewriting* find(const std::string& name) {
  for (const Rewriting& r : kRewritings)
    if (name == r.name) return &r;
  return nullptr;
}
}  // namespace

const std::vector<std::string>& rewritings() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Rewriting& r : kRewritings) list.emplace_back(r.name);
    return list;
  }();
  return names;
}

std::optional<Rewritten> rewrite(const Case& c, const std::string& name, uint64_t seed) {
  if (c.kernel.has_threads()) return std::nullopt;  // what their programs share must be known
  Random random(seed);
  Rewritten result{c, {}, {}};
  std::vector<std::function<void(std::vector<Array>&)>> undo;
  const int64_t wanted = name.empty() ? random.in(1, 3) : 1;
  for (int64_t done = 0, tries = 0; done < wanted && tries < (name.empty() ? 12 : 3); ++tries) {
    const Rewriting& r = name.empty() ? kRewritings[random.below(std::size(kRewritings))] : *find(name);
    Case next = result.c;
    Rewriter e(next, random.next());
    try {
      if (!r.apply(e)) continue;
    } catch (const Error&) {
      continue;
    }
    keep_used_dims(next);
    ir::compact(next.kernel);
    if (!ir::find_problems(next.kernel).empty()) continue;
    result.c = std::move(next);
    undo.insert(undo.end(), e.undo.begin(), e.undo.end());
    result.perhaps_another = result.perhaps_another || r.perhaps_another;
    result.what += (done++ ? ", " : "") + std::string(r.name);
  }
  if (result.what.empty()) return std::nullopt;
  result.original = [undo](std::vector<Array> outputs) {
    for (size_t i = undo.size(); i-- > 0;) undo[i](outputs);
    return outputs;
  };
  return result;
}

}  // namespace tessera::fuzz
