#include "tests/fuzz/shrink.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "engine/ir/verify.h"

namespace tessera::fuzz {
namespace {
using ir::Attr, ir::Kernel, ir::Op, ir::Opcode, ir::OpId, ir::RegionId, ir::Type, ir::Value;

void replace_uses(Kernel& k, Value from, Value to) {
  for (Op& op : k.ops)
    for (Value& v : op.operands)
      if (v == from) v = to;
}
bool is_used(const Kernel& k, Value v, const std::vector<bool>& live) {
  for (size_t i = 0; i < k.ops.size(); ++i)
    if (live[i])
      for (const Value o : k.ops[i].operands)
        if (o == v) return true;
  return false;
}

struct Place {
  RegionId region;
  size_t at;
};

// Every op that runs, in order, inner ops after the op that holds them.
void collect(const Kernel& k, RegionId r, std::vector<Place>& places) {
  for (size_t i = 0; i < k.region(r).ops.size(); ++i) {
    places.push_back({r, i});
    for (const RegionId inner : k.op(k.region(r).ops[i]).regions) collect(k, inner, places);
  }
}
std::vector<Place> all_places(const Kernel& k) {
  std::vector<Place> places;
  collect(k, k.body, places);
  for (const ir::BlockMapping& b : k.blocks)
    if (!b.is_whole()) collect(k, b.index_map(), places);
  return places;
}
std::vector<bool> live_ops(const Kernel& k) {
  std::vector<bool> live(k.ops.size(), false);
  for (const Place& p : all_places(k)) live[k.region(p.region).ops[p.at].index] = true;
  return live;
}

Value insert_zero(Kernel& k, RegionId r, size_t at, const Type& t) {
  Op op{.code = Opcode::constant};
  op.set(Attr::bits, 0);
  const OpId id{static_cast<uint32_t>(k.ops.size())};
  const Value v{static_cast<uint32_t>(k.values.size())};
  op.results = {v};
  k.values.push_back({t, id, {}, 0});
  k.ops.push_back(std::move(op));
  auto& ops = k.region(r).ops;
  ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(at), id);
  return v;
}
void erase(Kernel& k, const Place& p) {
  auto& ops = k.region(p.region).ops;
  ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(p.at));
}

// The block that shares blocks[i]'s array, or -1.
int partner(const Kernel& k, int i) {
  return k.is_output(i) ? k.blocks[static_cast<size_t>(i)].alias : k.aliased_output(i);
}

// Pure ops and loads without uses go; so do the tables' entries that nothing reaches (on printing).
void sweep(Kernel& k) {
  for (bool changed = true; changed;) {
    changed = false;
    const std::vector<bool> live = live_ops(k);
    std::vector<Place> places = all_places(k);
    std::reverse(places.begin(), places.end());
    for (const Place& p : places) {
      const Op& op = k.op(k.region(p.region).ops[p.at]);
      const ir::Effect e = ir::info(op.code).effect;
      if (e != ir::Effect::pure && e != ir::Effect::reads) continue;
      if (std::none_of(op.results.begin(), op.results.end(), [&](Value v) { return is_used(k, v, live); })) {
        erase(k, p);
        changed = true;
        break;
      }
    }
  }
}

void inline_region(Kernel& k, const Place& p, RegionId r, const std::vector<std::pair<Value, Value>>& args) {
  const Op op = k.op(k.region(p.region).ops[p.at]);
  std::vector<OpId> inner = k.region(r).ops;
  const std::vector<Value> yielded = k.op(inner.back()).operands;
  inner.pop_back();
  erase(k, p);
  auto& ops = k.region(p.region).ops;
  ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(p.at), inner.begin(), inner.end());
  for (size_t i = 0; i < op.results.size() && i < yielded.size(); ++i) {
    Value to = yielded[i];
    for (const auto& [from, v] : args)
      if (from == to) to = v;
    replace_uses(k, op.results[i], to);
  }
  for (const auto& [from, to] : args) replace_uses(k, from, to);
}

// Removes the body's arg and its block or scratch.
bool remove_arg(Case& c, size_t i) {
  Kernel& k = c.kernel;
  auto& args = k.region(k.body).args;
  const std::vector<bool> live = live_ops(k);
  if (is_used(k, args[i], live)) return false;
  const bool prefetch = static_cast<int>(i) < k.num_prefetch;
  if (prefetch) {  // the index maps' Refs of it go too
    const auto maps = [&](const auto& f) {
      return std::all_of(k.blocks.begin() + k.num_prefetch, k.blocks.end(),
                         [&](const ir::BlockMapping& b) { return b.is_whole() || f(k.region(b.index_map()).args); });
    };
    if (!maps([&](const auto& list) { return !is_used(k, list[k.grid.size() + i], live); })) return false;
    maps([&](auto& list) {
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(k.grid.size() + i));
      for (size_t n = 0; n < list.size(); ++n) k.values[list[n].index].number = static_cast<uint32_t>(n);
      return true;
    });
    --k.num_prefetch;
  }
  if (i < k.blocks.size()) {
    const bool input = static_cast<int>(i) < k.num_inputs;
    if (!input && k.num_outputs() == 1) return false;
    k.blocks.erase(k.blocks.begin() + static_cast<std::ptrdiff_t>(i));
    for (ir::BlockMapping& b : k.blocks)
      if (b.alias >= static_cast<int>(i)) b.alias = b.alias == static_cast<int>(i) ? -1 : b.alias - 1;
    if (input) {
      --k.num_inputs;
      c.inputs.erase(c.inputs.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      c.tolerance.erase(c.tolerance.begin() + static_cast<std::ptrdiff_t>(i - static_cast<size_t>(k.num_inputs)));
    }
  } else {
    k.scratch.erase(k.scratch.begin() + static_cast<std::ptrdiff_t>(i - k.blocks.size()));
  }
  args.erase(args.begin() + static_cast<std::ptrdiff_t>(i));
  for (size_t n = 0; n < args.size(); ++n) k.values[args[n].index].number = static_cast<uint32_t>(n);
  return true;
}

Array cropped(const Array& a, const Shape& shape) {
  Array r(shape, a.dtype());
  for (int64_t i = 0; i < r.size(); ++i) {
    int64_t from = 0, left = i, scale = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      from += left % shape[d] * scale;
      left /= shape[d];
      scale *= a.shape()[d];
    }
    r.set_element_bits(i, a.element_bits(from));
  }
  return r;
}

// A change returns false if it does not apply.
using Change = std::function<bool(Case&)>;

void add_grid_changes(const Kernel& k, std::vector<Change>& list) {
  for (size_t a = 0; a < k.grid.size(); ++a) {
    list.push_back([a](Case& x) {
      if (x.kernel.grid[a].size == Extent(1)) return false;
      x.kernel.grid[a].size = 1;
      return true;
    });
    list.push_back([a](Case& x) {
      const int64_t n = x.kernel.grid[a].size.eval(x.dims);
      if (n <= 2) return false;
      x.kernel.grid[a].size = n - 1;
      return true;
    });
    list.push_back([a](Case& x) {
      if (x.kernel.grid[a].size.is_static() && x.kernel.grid[a].name.empty()) return false;
      x.kernel.grid[a].size = x.kernel.grid[a].size.eval(x.dims);
      x.kernel.grid[a].name.clear();
      return true;
    });
  }
}

void add_index_changes(const Op& op, const Place& p, std::vector<Change>& list) {
  for (size_t d = 0; d < op.index.size(); ++d)
    list.push_back([p, d](Case& x) {
      Op& o = x.kernel.op(x.kernel.region(p.region).ops[p.at]);
      if (o.index[d].is_static() || o.index[d].is_array()) return false;
      const size_t gone = *o.index[d].operand();
      for (size_t e = 0; e < o.index.size(); ++e)
        if (e != d && !o.index[e].is_static() && *o.index[e].operand() == gone) return false;
      o.operands.erase(o.operands.begin() + static_cast<ptrdiff_t>(gone));
      o.index[d].start() = 0;
      for (ir::Index& e : o.index)
        if (!e.is_static() && *e.operand() > gone) e.shift(-1);
      return true;
    });
  list.push_back([p](Case& x) {  // no mask
    Op& o = x.kernel.op(x.kernel.region(p.region).ops[p.at]);
    if (!o.has_mask()) return false;
    const int gone = 1 + o.has_other();
    o.operands.erase(o.operands.begin() + o.mask_position(), o.operands.begin() + o.mask_position() + gone);
    o.set(Attr::mask, 0);
    o.set(Attr::other, 0);
    for (ir::Index& e : o.index) e.shift(-gone);
    return true;
  });
}

void add_op_changes(const Kernel& k, const Place& p, std::vector<Change>& list) {
  const Op& op = k.op(k.region(p.region).ops[p.at]);
  if (op.code == Opcode::yield) return;
  list.push_back([p](Case& x) {  // zeros instead of the results
    const Op o = x.kernel.op(x.kernel.region(p.region).ops[p.at]);
    if (o.code == Opcode::constant && o.attr(Attr::bits) == 0) return false;
    for (const Value v : o.results) {
      const Type t = x.kernel.type(v);
      replace_uses(x.kernel, v, insert_zero(x.kernel, p.region, p.at, t));
    }
    erase(x.kernel, {p.region, p.at + o.results.size()});
    return true;
  });
  if (op.results.size() == 1)
    for (size_t i = 0; i < op.operands.size(); ++i)
      if (!k.type(op.operands[i]).is_ref && k.type(op.operands[i]) == k.type(op.results[0]) && op.regions.empty())
        list.push_back([p, i](Case& x) {
          const Op o = x.kernel.op(x.kernel.region(p.region).ops[p.at]);
          replace_uses(x.kernel, o.results[0], o.operands[i]);
          erase(x.kernel, p);
          return true;
        });
  if (op.code == Opcode::if_ || op.code == Opcode::switch_)
    for (const RegionId r : op.regions)
      list.push_back([p, r](Case& x) {
        inline_region(x.kernel, p, r, {});
        return true;
      });
  if (op.code == Opcode::for_ || op.code == Opcode::while_)
    list.push_back([p](Case& x) {
      const Op o = x.kernel.op(x.kernel.region(p.region).ops[p.at]);
      const RegionId r = o.regions.back();
      const std::vector<Value> args = x.kernel.region(r).args;
      const size_t skip = o.code == Opcode::for_ ? 2 : 0;  // iv <- lower, carries <- their start
      std::vector<std::pair<Value, Value>> with;
      for (size_t i = 0; i < args.size(); ++i) with.emplace_back(args[i], o.operands[skip && i ? i + skip : i]);
      inline_region(x.kernel, p, r, with);
      return true;
    });
  for (const RegionId r : op.regions)
    for (size_t i = 0; i < k.region(r).args.size(); ++i)
      list.push_back([r, i](Case& x) {
        const Value v = x.kernel.region(r).args[i];
        if (!is_used(x.kernel, v, live_ops(x.kernel))) return false;
        const Type t = x.kernel.type(v);
        replace_uses(x.kernel, v, insert_zero(x.kernel, r, 0, t));
        return true;
      });
  if (!op.index.empty()) add_index_changes(op, p, list);
}

void add_array_changes(const Kernel& k, std::vector<Change>& list) {
  for (size_t i = 0; i < k.blocks.size(); ++i) {
    if (k.blocks[i].is_whole()) continue;
    for (size_t d = 0; d < k.blocks[i].array_shape.size(); ++d) {
      for (const bool to_one_block : {true, false})
        list.push_back([i, d, to_one_block](Case& x) {
          ir::BlockMapping& m = x.kernel.blocks[i];
          const int64_t n = m.array_shape[d].eval(x.dims), to = to_one_block ? std::min(n, m.block()[d].size()) : n - 1;
          if (to >= n || to < 1) return false;
          const int other = partner(x.kernel, static_cast<int>(i));
          for (const int b : {static_cast<int>(i), other}) {
            if (b < 0) continue;
            x.kernel.blocks[static_cast<size_t>(b)].array_shape[d] = to;
            if (b >= x.kernel.num_inputs) continue;
            Array& input = x.inputs[static_cast<size_t>(b)];
            Shape shape = input.shape();
            shape[d] = to;
            input = cropped(input, shape);
          }
          return true;
        });
      list.push_back([i, d](Case& x) {
        Extent& e = x.kernel.blocks[i].array_shape[d];
        if (e.is_static()) return false;
        e = e.eval(x.dims);
        if (const int other = partner(x.kernel, static_cast<int>(i)); other >= 0)
          x.kernel.blocks[static_cast<size_t>(other)].array_shape[d] = e;
        return true;
      });
    }
  }
}

// The changes of one round, most promising first.
std::vector<Change> changes(const Case& c) {
  std::vector<Change> list;
  const Kernel& k = c.kernel;
  add_grid_changes(k, list);
  std::vector<Place> places = all_places(k);
  std::reverse(places.begin(), places.end());
  for (const Place& p : places) add_op_changes(k, p, list);
  for (size_t i = k.region(k.body).args.size(); i-- > 0;) list.push_back([i](Case& x) { return remove_arg(x, i); });
  add_array_changes(k, list);
  list.push_back([](Case& x) {
    const ir::CallInfo& call = x.kernel.call;
    if (call.compiler_params.empty() && call.metadata.empty() && !call.cost_estimate) return false;
    x.kernel.call = {};
    return true;
  });
  return list;
}
}  // namespace

Case shrink(const Case& c, const std::function<bool(const Case&)>& fails, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto late = [&] { return std::chrono::duration<double>(Clock::now() - start).count() > seconds; };
  Case best = c;
  for (bool better = true; better && !late();) {
    better = false;
    const size_t n = changes(best).size();
    for (size_t i = 0; i < n && !late(); ++i) {
      const std::vector<Change> list = changes(best);
      if (i >= list.size()) break;
      Case next = best;
      try {
        if (!list[i](next)) continue;
        sweep(next.kernel);
        keep_used_dims(next);
        if (!ir::find_problems(next.kernel).empty() || !fails(next)) continue;
      } catch (const std::exception&) {
        continue;  // the change made no kernel
      }
      best = std::move(next);
      better = true;
    }
  }
  return best;
}

}  // namespace tessera::fuzz
