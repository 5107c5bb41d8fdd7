// The functions of a Mosaic module: the kernel, with the attributes by which a TPU's compiler moves its blocks, and a
// function per block for its index map.
#include <algorithm>
#include <cctype>

#include "codegen/tpu/emitter.h"
#include "codegen/tpu/mosaic.h"
#include "engine/base/bind.h"
#include "engine/base/error.h"
#include "engine/ir/compact.h"
#include "engine/ir/verify.h"
#include "engine/passes/passes.h"

namespace tessera::tpu {
using ir::MemorySpace;

ir::Kernel prepare(const ir::Kernel& source, const DimValues& sizes) {
  ir::Kernel k = source;
  ir::verify(k, "input");
  const std::vector<std::string> names = k.dim_names();
  for (const auto& [n, size] : sizes)
    if (std::find(names.begin(), names.end(), n) == names.end())
      throw SpecError(k.name + ": a size \"" + n + "\" was given but the kernel has none of that name", k.loc);
  for (const std::string& n : names)
    if (!sizes.contains(n))
      throw CompileError(k.name + ": the size " + n + " is not known, and a TPU's module has no run-time sizes", k.loc,
                         "give it when compiling: --dim " + n + "=SIZE");
  const auto fix = [&](Extent& e) { e = e.eval(sizes); };
  for (ir::GridAxis& a : k.grid) fix(a.size);
  for (ir::BlockMapping& b : k.blocks)
    for (Extent& e : b.array_shape) fix(e);
  for (Extent& e : k.sizes) e = bind_size(k.name, k.loc, e, sizes);
  if (auto& cost = k.call.cost_estimate) {
    std::vector<std::string> named;
    Extent* const all[] = {&cost->flops, &cost->transcendentals, &cost->bytes_accessed,
                           &cost->remote_bytes_transferred};
    for (const Extent* e : all) e->collect_names(named);
    if (std::all_of(named.begin(), named.end(), [&](const std::string& n) { return sizes.contains(n); }))
      for (Extent* e : all) fix(*e);
    else cost.reset();  // advice, in sizes of which a call has no values
  }
  passes::optimize(k);
  ir::compact(k);
  return k;
}

bool stays_in_hbm(const ir::Kernel& k, int block) {
  const auto i = static_cast<size_t>(block);
  if (!k.blocks[i].is_whole() || block < k.num_prefetch || k.blocks[i].is_by_value()) return false;
  return std::none_of(k.ops.begin(), k.ops.end(), [&](const ir::Op& op) {
    return ir::accesses_ref(op.code) && k.value(op.operands[0]).region == k.body &&
           k.value(op.operands[0]).number == static_cast<uint32_t>(block);
  });
}

Shape memory_shape(const ir::Kernel& k, int block) {
  const ir::BlockMapping& b = k.blocks[static_cast<size_t>(block)];
  Shape shape;
  if (b.is_whole())
    for (const Extent& e : b.array_shape) shape.push_back(*e.value());
  else
    for (const ir::BlockDim& d : b.block()) shape.push_back(d.size());
  if (shape.empty()) shape.push_back(1);
  return shape;
}

bool is_trivial(const ir::Kernel& k, int block) {
  const ir::BlockMapping& b = k.blocks[static_cast<size_t>(block)];
  if (b.is_whole()) return true;
  for (size_t d = 0; d < b.block().size(); ++d)
    if (b.block()[d].size() != *b.array_shape[d].value() || b.block()[d].low() || b.block()[d].high()) return false;
  const std::vector<ir::Value>& yielded = k.terminator(b.index_map()).operands;
  return std::all_of(yielded.begin(), yielded.end(), [&](ir::Value v) { return ir::constant_int(k, v) == 0; });
}

namespace {
std::string identifier(const std::string& name) {
  std::string s;
  for (const char c : name) s += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return s.empty() || std::isdigit(static_cast<unsigned char>(s[0])) ? "kernel_" + s : s;
}
std::string array(const std::vector<int64_t>& xs) {
  std::string s = "array<i64";
  for (size_t i = 0; i < xs.size(); ++i) s += (i ? ", " : ": ") + std::to_string(xs[i]);
  return s + ">";
}

class Module {
 public:
  Module(const ir::Kernel& k, const Chip& chip) : k_(k), chip_(chip) {
    for (const ir::GridAxis& a : k.grid) bounds_.push_back(*a.size.value());
    for (int i = k.num_prefetch; i < count(); ++i)
      if (bounds_.empty() && !is_trivial(k, i)) bounds_ = {1};  // a grid for the sake of its blocks
  }

  std::string str() {
    std::string s = "module {\n" + kernel();
    if (!bounds_.empty())
      for (int i = k_.num_prefetch; i < count(); ++i)
        if (!stays_in_hbm(k_, i)) s += transform(i);
    return s + "}\n";
  }

 private:
  int count() const { return static_cast<int>(k_.blocks.size()); }
  const ir::BlockMapping& block(int i) const { return k_.blocks[static_cast<size_t>(i)]; }

  Memory memory(int i, const std::string& name) const {
    const ir::BlockMapping& b = block(i);
    Memory m{name, b.dtype, memory_shape(k_, i), {}, MemorySpace::vmem};
    if (i < k_.num_prefetch || b.space == MemorySpace::smem) m.space = MemorySpace::smem;
    if (stays_in_hbm(k_, i)) m.space = MemorySpace::any;
    int seen = 0;
    if (b.is_whole())
      for (size_t d = 0; d < b.array_shape.size(); ++d) m.dims.push_back(seen++);
    else
      for (const ir::BlockDim& d : b.block()) m.dims.push_back(d.seen() ? seen++ : -1);
    if (m.dims.empty()) m.dims.push_back(-1);
    return m;
  }
  Memory scratch(const ir::Type& t, const std::string& name) const {
    Memory m{name, t.dtype, t.shape, {}, t.space};
    for (size_t d = 0; d < t.shape.size(); ++d) m.dims.push_back(static_cast<int>(d));
    if (m.shape.empty() && !ir::is_semaphore(t.space)) m.shape = {1}, m.dims = {-1};
    if (m.space == MemorySpace::any) m.space = MemorySpace::vmem;
    return m;
  }

  // Parameters of the grid and the prefetched arrays, which all functions have.
  std::string parameters(Emitter& e, const std::vector<ir::Value>& refs) const {
    std::string s;
    std::vector<Val> ids;
    for (size_t a = 0; a < bounds_.size(); ++a) {
      ids.push_back({"%i" + std::to_string(a), DType::i32, {}});
      s += (s.empty() ? "" : ", ") + ids.back().name + ": i32";
    }
    e.set_program_ids(std::move(ids));
    for (int i = 0; i < k_.num_prefetch; ++i) {
      const Memory m = memory(i, "%prefetch" + std::to_string(i));
      e.bind(refs[static_cast<size_t>(i)], m);
      s += (s.empty() ? "" : ", ") + m.name + ": " + memref_type(m);
    }
    return s;
  }

  std::string kernel() {
    Text text(2);
    Emitter e(k_, chip_, text);
    const std::vector<ir::Value>& args = k_.region(k_.body).args;
    std::string s = parameters(e, args);
    std::vector<Memory> memories(k_.blocks.size());
    const auto add = [&](ir::Value v, const Memory& m) {
      e.bind(v, m);
      s += (s.empty() ? "" : ", ") + m.name + ": " + memref_type(m);
    };
    for (int i = k_.num_prefetch; i < count(); ++i) {
      const bool out = k_.is_output(i);
      memories[static_cast<size_t>(i)] =
          memory(i, (out ? "%out" : "%in") + std::to_string(out ? i - k_.num_inputs : i - k_.num_prefetch));
      add(args[static_cast<size_t>(i)], memories[static_cast<size_t>(i)]);
    }
    for (size_t i = 0; i < k_.scratch.size(); ++i)
      add(args[k_.blocks.size() + i], scratch(k_.scratch[i], "%scratch" + std::to_string(i)));
    start_aliased(e, text, memories);
    e.region(k_.body);
    return "  func.func @" + identifier(k_.name) + "(" + s + ") attributes {" + attributes() + "} {\n" + text.str() +
           "    return\n  }\n";
  }

  // A TPU fetches no output: what an aliased one starts with is copied from the input's block, in the first program
  // that sees the block. An input that shares its memory at once is the output.
  void start_aliased(Emitter& e, Text& text, const std::vector<Memory>& memories) const {
    for (int o = k_.num_inputs; o < count(); ++o) {
      const int i = block(o).alias;
      if (i < 0 || stays_in_hbm(k_, o)) continue;
      const Memory &from = memories[static_cast<size_t>(i)], &to = memories[static_cast<size_t>(o)];
      std::string first;  // all axes that the block does not depend on are at 0
      for (size_t a = 0; a < bounds_.size() && a < k_.grid.size(); ++a) {
        if (bounds_[a] == 1 || uses_axis(o, a)) continue;
        const Val zero = text.integer(DType::i32, 0);
        const Val at_zero = text.compare("eq", Val{"%i" + std::to_string(a), DType::i32, {}}, zero);
        first = first.empty() ? at_zero.name : text.binary("arith.andi", Val{first, DType::boolean, {}}, at_zero).name;
      }
      if (!first.empty()) text.open("scf.if " + first + " {");
      const Val contents = e.load_all(from);
      e.store_all(to, contents);
      if (!first.empty()) text.close("}");
      if (k_.shares_at_once(i)) e.bind(k_.region(k_.body).args[static_cast<size_t>(i)], to);
    }
  }

  bool uses_axis(int i, size_t axis) const {
    if (block(i).is_whole()) return false;
    const ir::Value v = k_.region(block(i).index_map()).args[axis];
    const auto names_it = [&](const ir::Op& op) {
      return std::find(op.operands.begin(), op.operands.end(), v) != op.operands.end();
    };
    return std::any_of(k_.ops.begin(), k_.ops.end(), names_it);
  }

  std::string attributes() const {
    std::string semantics;
    for (size_t a = 0; a < bounds_.size(); ++a) {
      const bool parallel = a < k_.grid.size() && (k_.grid[a].parallel || k_.grid[a].vmapped);
      semantics +=
          (a ? ", " : "") + std::string("#tpu.dimension_semantics<") + (parallel ? "parallel" : "arbitrary") + ">";
    }
    std::string s = "dimension_semantics = [" + semantics + "]";
    if (!bounds_.empty()) s += ", iteration_bounds = " + array(bounds_);
    s += ", scalar_prefetch = " + std::to_string(k_.num_prefetch) +
         " : i64, scratch_operands = " + std::to_string(k_.scratch.size()) +
         " : i64, tpu.core_type = #tpu.core_type<tc>";
    if (bounds_.empty()) return s;
    s += ", window_params = [";
    for (int i = k_.num_prefetch; i < count(); ++i) s += (i > k_.num_prefetch ? ", " : "") + window(i);
    return s + "]";
  }

  static bool is_element(const ir::BlockMapping& b) {
    return std::any_of(b.block().begin(), b.block().end(), [](const ir::BlockDim& d) { return d.is_element(); });
  }

  std::string window(int i) const {
    if (stays_in_hbm(k_, i)) return "{}";
    const ir::BlockMapping& b = block(i);
    std::string s = "{";
    const bool once = is_trivial(k_, i) || b.buffering.count == 1;
    if (once || b.buffering.count > 1)
      s += std::string("pipeline_mode = #tpu.pipeline_mode<") + (once ? "synchronous" : "double_buffered") + ">, ";
    if (b.buffering.revisit == ir::Buffering::Revisit::immediate ||
        (b.buffering.revisit == ir::Buffering::Revisit::any && once))
      s += std::string("revisit_mode = #tpu.revisit_mode<") +
           (b.buffering.revisit == ir::Buffering::Revisit::any ? "any" : "immediate") + ">, ";
    s += "transform_indices = @transform_" + std::to_string(i - k_.num_prefetch) +
         ", window_bounds = " + array(memory_shape(k_, i));
    if (!b.is_whole() && is_element(b)) {
      std::vector<int64_t> low, high;
      for (size_t d = 0; d < b.block().size(); ++d) {
        const int64_t n = *b.array_shape[d].value(), size = b.block()[d].size();
        const int64_t length = b.block()[d].low() + n + b.block()[d].high();
        low.push_back(b.block()[d].low());
        high.push_back(b.block()[d].high() + (cdiv(length, size) * size - length));
      }
      s += ", window_kind = #tpu.element_window<" + list(low) + ", " + list(high) + ">";
    }
    return s + "}";
  }

  std::string transform(int i) {
    Text text(2);
    Emitter e(k_, chip_, text);
    const ir::BlockMapping& b = block(i);
    std::vector<ir::Value> refs;
    if (!b.is_whole()) {
      const std::vector<ir::Value>& args = k_.region(b.index_map()).args;
      for (size_t a = 0; a < k_.grid.size(); ++a) {
        e.bind(args[a], Val{"%i" + std::to_string(a), DType::i32, {}});
        e.bound(args[a], Interval{0, std::max<int64_t>(bounds_[a] - 1, 0)});
      }
      refs.assign(args.begin() + static_cast<ptrdiff_t>(k_.grid.size()), args.end());
    } else {
      refs = k_.region(k_.body).args;
    }
    const std::string s = parameters(e, refs);
    std::vector<Val> indices;
    if (b.is_whole()) {
      for (size_t d = 0; d < memory_shape(k_, i).size(); ++d) indices.push_back(text.integer(DType::i32, 0));
    } else {
      const std::vector<Val> given = e.region(b.index_map());
      const std::vector<ir::Value>& yielded = k_.terminator(b.index_map()).operands;
      for (size_t d = 0; d < b.block().size(); ++d)
        indices.push_back(e.block_index(b.block()[d], *b.array_shape[d].value(), given[d], yielded[d], is_element(b)));
      if (indices.empty()) indices.push_back(text.integer(DType::i32, 0));
    }
    const std::string result = types(indices);
    return "  func.func @transform_" + std::to_string(i - k_.num_prefetch) + "(" + s + ") -> " +
           (indices.size() == 1 ? result : "(" + result + ")") + " {\n" + text.str() + "    return " + names(indices) +
           " : " + result + "\n  }\n";
  }

  const ir::Kernel& k_;
  const Chip& chip_;
  std::vector<int64_t> bounds_;  // of the grid
};
}  // namespace

Val Emitter::block_index(const ir::BlockDim& d, int64_t extent, Val index, ir::Value given, bool elements) {
  const Extent last_of = ir::last_index(d, extent);
  const int64_t last = std::max<int64_t>(*last_of.value(), 0);
  const Bounds r = ranges_.of(given);
  if (!within(r, 0, last)) {
    if (!within(r, 0)) {
      const Val zero = t_.integer(DType::i32, 0), more = t_.integer(DType::i32, last + d.wrap());
      const Val negative = t_.compare("slt", index, zero);
      const Val wrapped = t_.binary("arith.addi", index, more);
      const Val once = t_.select(negative, wrapped, index);
      index = t_.binary("arith.maxsi", once, zero);
    }
    index = t_.binary("arith.minsi", index, t_.integer(DType::i32, last));
  }
  if (!elements || !d.is_blocked() || d.size() == 1) return index;
  return t_.binary("arith.muli", index, t_.integer(DType::i32, d.size()));
}

std::string mosaic(const ir::Kernel& k, const Chip& chip) {
  check(k, chip);
  return Module(k, chip).str();
}

}  // namespace tessera::tpu
