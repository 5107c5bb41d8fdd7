// A module to a kernel: grid, blocks and scratch into pallas_call's parameters, index maps and the body as walks over
// their equations.
#include <algorithm>
#include <map>
#include <utility>

#include "engine/base/plural.h"
#include "engine/front/trace.h"
#include "engine/ir/verify.h"
#include "engine/jax/import.h"
#include "engine/jax/primitives.h"

namespace tessera::jax {
namespace {
Loc parse_loc(const std::string& s, Loc otherwise) {
  const size_t colon = s.rfind(':');
  if (colon == std::string::npos || colon == 0 || s.size() - colon - 1 > 9 || s.size() - colon < 2) return otherwise;
  if (std::any_of(s.begin(), s.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; })) return otherwise;
  if (!std::all_of(s.begin() + static_cast<std::ptrdiff_t>(colon) + 1, s.end(),
                   [](char c) { return c >= '0' && c <= '9'; }))
    return otherwise;
  return {intern_file(s.substr(0, colon)), static_cast<uint32_t>(std::stoul(s.substr(colon + 1)))};
}

/// A kernel's name as a word: Python allows more, "<lambda>" for one.
std::string word(const std::string& name) {
  std::string w;
  for (const char c : name) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    if (good) w += c;
    else if (!w.empty() && w.back() != '_') w += '_';
  }
  while (!w.empty() && w.back() == '_' && !name.ends_with('_')) w.pop_back();
  if (w.empty()) return "kernel";
  return w[0] >= '0' && w[0] <= '9' ? "_" + w : w;
}

int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}
std::string base64(const Node& n) {
  const std::string s = n.string();
  std::string out;
  uint32_t word = 0;
  int filled = 0;
  for (const char c : s) {
    if (c == '=') break;
    const int d = base64_digit(c);
    if (d < 0) n.fail("is not base 64");
    word = word << 6 | static_cast<uint32_t>(d);
    if ((filled += 6) >= 8) out += static_cast<char>(word >> (filled -= 8) & 0xff);
  }
  return out;
}

/// {"t": dtype, "v": bits} or {"t": dtype, "shape": ..., "data": bytes in base 64}.
Entry literal(const Node& n, Loc loc) {
  const DType t = n.at("t").dtype();
  const auto bits_of = [&](uint64_t v, const Node& place) {
    if (bits(t) < 64 && v >> (t == DType::boolean ? 1 : bits(t)))
      place.fail("has more bits than " + std::string(tessera::name(t)));
    return v;
  };
  if (const auto data = n.find("data")) {
    const Shape shape = n.at("shape").shape();
    const std::string bytes = base64(*data);
    const auto width = static_cast<size_t>(size_bytes(t));
    if (bytes.size() != width * static_cast<size_t>(num_elements(shape)))
      data->fail("has " + std::to_string(bytes.size()) + " bytes, but " + ir::to_string(ir::Type::array(t, shape)) +
                 " has " + std::to_string(width * static_cast<size_t>(num_elements(shape))));
    uint64_t first = 0;
    for (size_t i = 0; i < bytes.size(); ++i)
      if (bytes[i] != bytes[i % width])
        throw TraceError("jax module: " + n.path() + " is an array of different elements, which should be a table",
                         loc);
    for (size_t i = 0; i < std::min(width, bytes.size()); ++i)
      first |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
    return {constant(t, bits_of(first, *data), shape, loc)};
  }
  const Node v = n.at("v");
  const uint64_t b = bits_of(v.bits(), v);
  Entry e{constant(t, b, {}, loc)};
  if (is_unsigned_int(t)) e.number = static_cast<int64_t>(std::min<uint64_t>(b, INT64_MAX));
  if (is_signed_int(t)) e.number = static_cast<int64_t>(b << (64 - bits(t))) >> (64 - bits(t));
  return e;
}

TypeForm type_of(const Entry& e) {
  if (const Value* v = std::get_if<Value>(&e.is)) return {v->dtype(), v->shape(), std::nullopt};
  const Ref& r = std::get<Ref>(e.is);
  return {r.dtype(), r.shape(), std::string(ir::name(r.memory_space()))};
}
/// Memory spaces are hints that the two sides may name differently.
bool same_type(const TypeForm& a, const TypeForm& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.space.has_value() == b.space.has_value();
}
/// Whether it is memory in tiles, which are dims of its own to JAX.
bool in_tiles(const Entry& e, const TypeForm& wanted) {
  const Ref* r = std::get_if<Ref>(&e.is);
  return r && wanted.space && r->memory_space() == MemorySpace::smem && r->dtype() == wanted.dtype &&
         r->shape().size() < wanted.shape.size() && num_elements(r->shape()) == num_elements(wanted.shape);
}

/// Whether it is a value for a Ref that a body of threads only reads: nothing is stored anywhere.
bool stands_for_ref(const Entry& e, const TypeForm& wanted) {
  const Value* v = std::get_if<Value>(&e.is);
  return v && wanted.space == "vmem" && v->dtype() == wanted.dtype && v->shape() == wanted.shape;
}

/// A literal, or what lies in one of the call's tables.
Entry constant_entry(const Import& import, const Node& n, Loc loc) {
  const auto table = n.find("table");
  if (!table) return literal(n, loc);
  const int64_t i = table->integer();
  if (i < 0 || i >= static_cast<int64_t>(import.tables.size()))
    table->fail("is the table " + std::to_string(i) + ", but " + std::to_string(import.tables.size()) +
                " can be seen here");
  return {load(import.tables[static_cast<size_t>(i)], RefIndex(all, loc))};
}
Entry operand_entry(const Import& import, const Node& n, const Entries& scope, Loc loc) {
  if (n.is_object()) return constant_entry(import, n, loc);
  const int64_t i = n.integer();
  if (i < 0 || i >= static_cast<int64_t>(scope.size()))
    n.fail("is the variable " + std::to_string(i) + ", but there are " + std::to_string(scope.size()) + " so far");
  return scope[static_cast<size_t>(i)];
}

Equation equation(Import& import, const Node& node, const Entries& scope, Loc around) {
  const auto at = node.find("at");
  const Loc loc = at ? parse_loc(at->string(), around) : around;
  Equation e{import, node, node.at("params"), node.at("p").string(), loc, scope, {}};
  for (const Node& n : node.at("in").items()) e.in.push_back(operand_entry(import, n, scope, loc));
  return e;
}
void run_equation(Import& import, const Node& node, Entries& scope, Loc around) {
  Equation e = equation(import, node, scope, around);
  const Row* row = find_row(e.name);
  if (!row)
    throw TraceError(
        import.kernel + ": the primitive " + e.name + " of JAX cannot be imported", e.loc,
        "write it with other operations, or leave such calls to JAX's interpreter: tessera.install(fallback=True)");
  if (row->operands >= 0 && e.in.size() != static_cast<size_t>(row->operands))
    e.fail("has " + std::to_string(e.in.size()) + (e.in.size() == 1 ? " operand" : " operands") + " but takes " +
           std::to_string(row->operands));
  const Values results = row->make(e);
  if (results.size() != e.num_out())
    e.fail("gives " + std::to_string(results.size()) + (results.size() == 1 ? " result" : " results") +
           " but JAX says " + std::to_string(e.num_out()));
  for (size_t i = 0; i < results.size(); ++i) {
    scope.push_back({results[i]});
    if (e.dropped(i)) continue;
    const TypeForm got = type_of(scope.back()), wanted = e.out(i);
    if (!same_type(got, wanted))
      e.fail("result " + std::to_string(i) + " is " + to_string(got) + " but JAX says " + to_string(wanted));
    if (e.name == "convert_element_type" && e.value(0).dtype() == DType::boolean && is_int(got.dtype))
      scope.back().truth = e.value(0);
  }
}

// -- the call

MemorySpace space(const Node& n) {
  const std::string s = n.string();
  if (s == "any") return MemorySpace::any;
  if (s == "vmem") return MemorySpace::vmem;
  if (s == "smem") return MemorySpace::smem;
  n.fail("is the memory space " + s + ", which is not supported yet", "any, vmem and smem are");
}

BlockDim block_dim(const Node& n) {
  if (n.is_null()) return squeezed;
  if (!n.is_object()) return BlockDim(n.integer(0, INT32_MAX));
  if (const auto b = n.find("bounded")) return BlockDim(BoundedSlice{b->integer(1, INT32_MAX)});
  const std::vector<int64_t> padding = n.at("padding").integers(0, INT32_MAX);
  if (padding.size() != 2) n.fail("has a padding of " + std::to_string(padding.size()) + " numbers but should have 2");
  return BlockDim(Element{n.at("element").integer(1, INT32_MAX), {padding[0], padding[1]}});
}

struct Call {
  const json document;
  Node root{document, ""};
  Import import{};
  Loc loc{};
  size_t rank = 0;
  CompilerParams compiler{};
  std::ptrdiff_t num_inputs = 0, num_tables = 0;  // blocks
  std::vector<ShapeDtype> inputs{};
  PallasCallParams params{};
  // operands that the kernel writes to: it sees a copy of its own, which is scratch
  std::vector<int64_t> stored_prefetch{};
  std::vector<std::pair<size_t, size_t>> shared{};  // inputs that it writes to, and the aliased output: one memory

  BlockSpec block(const Node& n) {
    const TypeForm array = type_form(n.at("array"));
    BlockSpec s;
    s.loc = loc;
    s.memory_space = space(n.at("space"));
    const std::vector<Node> dims = n.at("block").items();
    std::vector<BlockDim> block;
    bool is_whole = dims.size() == array.shape.size();
    for (size_t d = 0; d < dims.size(); ++d) {
      block.push_back(block_dim(dims[d]));
      const auto* b = std::get_if<Blocked>(&block.back().kind());
      is_whole = is_whole && b && b->size == array.shape[d];
    }
    std::vector<bool> bounded;
    for (const BlockDim& d : block) bounded.push_back(std::holds_alternative<BoundedSlice>(d.kind()));
    if (const auto b = n.find("buffered")) s.pipeline_mode = Buffered{b->integer(1, INT32_MAX)};
    const bool empty = std::find(array.shape.begin(), array.shape.end(), 0) != array.shape.end();
    if (is_whole && (empty || s.memory_space == MemorySpace::any)) return no_block_spec;
    s.block_shape = BlockShape(std::move(block));
    const Node map = n.at("map");
    const int num_refs = static_cast<int>(root.at("prefetch").size());
    s.index_map = IndexMap::of(static_cast<int>(rank), num_refs,
                               [this, map, bounded](const std::vector<Value>& ids, const std::vector<Ref>& refs) {
                                 Entries arguments;
                                 for (const Value& v : ids) arguments.push_back({v});
                                 for (const Ref& r : refs) arguments.push_back({r});
                                 std::vector<Operand> values;
                                 for (const Entry& e : run(import, map, arguments, loc)) {
                                   if (e.number) values.emplace_back(*e.number, loc);
                                   else if (const Value* v = std::get_if<Value>(&e.is)) values.emplace_back(*v, loc);
                                   else map.fail("returns a Ref");
                                 }
                                 Indices out{};
                                 for (size_t i = 0, d = 0; i < values.size();
                                      ++i, ++d) {  // a bounded dim's slice comes as its start and its size
                                   out.values.emplace_back(values[i]);
                                   if (d < bounded.size() && bounded[d] && i + 1 < values.size())
                                     out.values.back().size = values[++i];
                                 }
                                 return out;
                               });
    return s;
  }

  static bool is_whole_anywhere(const Node& block) {
    const std::vector<Node> dims = block.at("block").items();
    const Shape array = type_form(block.at("array")).shape;
    for (size_t d = 0; d < dims.size(); ++d)
      if (d >= array.size() || !dims[d].is_integer() || dims[d].integer() != array[d]) return false;
    return block.at("space").string() == "any";
  }
  /// Body argument i is an input that the kernel writes to.
  void find_shared(int64_t i, size_t num_prefetch, const std::vector<Node>& blocks) {
    for (const Node& n : root.at("aliases").items()) {
      const std::vector<int64_t> pair = n.integers(0, INT32_MAX);
      if (pair.size() != 2 || pair[0] != i || pair[1] >= static_cast<int64_t>(blocks.size()) - num_inputs) continue;
      const auto output = static_cast<size_t>(num_inputs + pair[1]);
      if (is_whole_anywhere(blocks[static_cast<size_t>(i) - num_prefetch]) && is_whole_anywhere(blocks[output]))
        shared.emplace_back(static_cast<size_t>(i), num_prefetch + output);
    }
  }

  void prepare(const ImportOptions& options) {
    import.kernel = word(root.at("name").string());
    if (const auto at = root.find("at")) loc = parse_loc(at->string(), {});
    params.name = import.kernel;
    GridSpec spec;
    spec.grid = grid(options);
    blocks(spec);
    scratch(spec);
    params.grid_spec = std::move(spec);
    if (rank) params.compiler_params = std::move(compiler);
    for (const Node& n : root.at("aliases").items()) {
      const std::vector<int64_t> pair = n.integers(0, INT32_MAX);
      if (pair.size() != 2)
        n.fail("has " + std::to_string(pair.size()) + " entries but should have 2: an input and an output");
      params.input_output_aliases[static_cast<int>(pair[0])] = static_cast<int>(pair[1]);
    }
    if (const auto n = root.find("metadata")) params.metadata = n->strings();
    if (const auto n = root.find("cost"))
      params.cost_estimate = CostEstimate{n->at("flops").integer(0), n->at("transcendentals").integer(0),
                                          n->at("bytes_accessed").integer(0)};
  }

  /// The axes; those that JAX leaves open get the options' sizes, or names.
  Grid grid(const ImportOptions& options) {
    const std::vector<Node> sizes = root.at("grid").items(), parallel = root.at("parallel").items();
    rank = sizes.size();
    if (parallel.size() != rank)
      root.at("parallel")
          .fail("has " + plural(parallel.size(), "entry", "entries") + " but the grid has " + std::to_string(rank));
    std::vector<std::string> names(rank);
    if (const auto n = root.find("grid_names")) {
      if (n->size() != rank)
        n->fail("has " + plural(n->size(), "entry", "entries") + " but the grid has " + std::to_string(rank));
      for (size_t i = 0; i < rank; ++i) names[i] = n->at(i).string();
    }
    const std::vector<int64_t> vmapped = root.at("vmapped").integers(0, static_cast<int64_t>(rank) - 1);
    std::vector<GridSize> axes;
    size_t open = 0;
    for (size_t i = 0; i < rank; ++i) {
      Extent size = 0;
      if (!sizes[i].is_null()) size = sizes[i].integer(0, INT32_MAX);
      else if (options.open_grid) size = dim("grid_" + std::to_string(open++));
      else if (open >= options.grid_sizes.size()) ++open;            // counted, and refused below
      else size = std::max<int64_t>(options.grid_sizes[open++], 0);  // as a loop in JAX: no program runs
      import.grid_names.push_back(names[i]);
      axes.emplace_back(names[i].c_str(), size);
      compiler.dimension_semantics.push_back(parallel[i].boolean() ? "parallel" : "arbitrary");
      if (std::find(vmapped.begin(), vmapped.end(), static_cast<int64_t>(i)) == vmapped.end())
        import.grid_axes.push_back(static_cast<int>(i));
    }
    if (!options.open_grid && open != options.grid_sizes.size())
      throw SpecError(import.kernel + ": the grid leaves " + plural(open, "size") + " open but " +
                          std::to_string(options.grid_sizes.size()) +
                          (options.grid_sizes.size() == 1 ? " is given" : " are given"),
                      loc);
    return Grid(std::move(axes));
  }

  /// Scalar-prefetch operands, inputs and outputs.
  void blocks(GridSpec& spec) {
    const std::vector<Node> prefetch = root.at("prefetch").items(), all = root.at("blocks").items();
    spec.num_scalar_prefetch = static_cast<int>(prefetch.size());
    for (const Node& n : prefetch) {
      const TypeForm t = type_form(n);
      inputs.push_back({{t.shape.begin(), t.shape.end()}, t.dtype});
    }
    num_inputs = root.at("num_inputs").integer(0, static_cast<int64_t>(all.size()));
    if (const auto n = root.find("tables")) num_tables = n->integer(0, num_inputs);
    std::vector<BlockSpec> in_specs, out_specs;
    std::vector<ShapeDtype> outputs;
    for (size_t i = 0; i < all.size(); ++i) {
      const bool is_input = i < static_cast<size_t>(num_inputs);
      const TypeForm t = type_form(all[i].at("array"));
      (is_input ? inputs : outputs).push_back({{t.shape.begin(), t.shape.end()}, t.dtype});
      (is_input ? in_specs : out_specs).push_back(block(all[i]));
    }
    spec.in_specs = BlockSpecs(std::move(in_specs));
    spec.out_specs = BlockSpecs(std::move(out_specs));
    params.out_shape = ShapeDtypes(std::move(outputs));
  }

  /// The kernel's own, and behind it a copy of each scalar-prefetch operand that the kernel stores to.
  void scratch(GridSpec& spec) {
    for (const Node& n : root.at("scratch").items()) spec.scratch_shapes.push_back(scratch_shape(n));
    const std::vector<Node> prefetch = root.at("prefetch").items();
    const auto num_prefetch = static_cast<int64_t>(prefetch.size());
    const auto stored = root.find("stored");
    for (const int64_t i : stored ? stored->integers(0, num_prefetch + num_inputs - 1) : std::vector<int64_t>{}) {
      if (i < num_prefetch) stored_prefetch.push_back(i);
      else find_shared(i, prefetch.size(), root.at("blocks").items());
    }
    for (const int64_t i : stored_prefetch) {
      const TypeForm t = type_form(prefetch[static_cast<size_t>(i)]);
      spec.scratch_shapes.push_back({t.shape, t.dtype, MemorySpace::smem});
    }
  }

  /// The body's Refs without the tables, which it does not know.
  Entries without_tables(std::vector<Ref> given) {
    const auto behind = given.begin() + static_cast<std::ptrdiff_t>(root.at("prefetch").size()) + num_inputs;
    import.tables.assign(behind - num_tables, behind);
    given.erase(behind - num_tables, behind);
    Entries arguments;
    for (const Ref& r : given) arguments.push_back({r});
    return arguments;
  }

  /// The axes of plgpu.kernel by their roles: of the grid, of the cluster, the threads.
  mosaic_gpu::KernelParams thread_params(const Node& mesh) {
    mosaic_gpu::KernelParams p;
    p.kernel_name = import.kernel;
    p.out_type = params.out_shape;
    const Node sizes = root.at("grid");
    const auto programs = static_cast<size_t>(mesh.at("grid").integer(0, static_cast<int64_t>(rank)));
    const bool threads = mesh.at("threads").boolean();
    if (programs + static_cast<size_t>(mesh.at("cluster").integer(0, INT32_MAX)) + threads != rank)
      mesh.fail("does not have the " + plural(rank, "axis", "axes") + " of the grid");
    std::vector<GridSize> grid;
    for (size_t i = 0; i < rank; ++i) {
      const int64_t size = sizes.at(i).integer(0, INT32_MAX);
      if (i < programs) {
        grid.emplace_back(size);
        p.grid_names.push_back(import.grid_names[i]);
      } else if (threads && i + 1 == rank) {
        p.num_threads = size;
        p.thread_name = import.grid_names[i];
      } else {
        p.cluster.push_back(size);
        p.cluster_names.push_back(import.grid_names[i]);
      }
    }
    p.grid = Grid(std::move(grid));
    return p;
  }

  struct Scoped {
    std::string path;  // of the equation
    size_t refs;
  };
  /// The run_scoped of a jaxpr that all threads enter, once: their Refs are the kernel's scratch. JAX has all of a body
  /// inside one of them, and kernels put what they share inside more, and wait for copies behind them.
  static void find_scratch(const Node& jaxpr, const std::string& thread, std::vector<Scoped>& found,
                           std::vector<mosaic_gpu::ScratchType>& types, Loc loc) {
    for (const Node& n : jaxpr.at("eqns").items()) {
      if (n.at("p").string() != "run_scoped") continue;
      const Node params = n.at("params"), body = params.at("jaxpr");
      const std::vector<Node> args = body.at("args").items();
      const size_t outer = n.at("in").size();
      const auto more = params.find("types"), axes = params.find("collective_axes");
      bool shared = thread.empty() ? found.empty() && jaxpr.at("eqns").size() == 1
                                   : axes && axes->size() == 1 && axes->at(size_t{0}).string() == thread;
      for (size_t i = outer; i < args.size(); ++i)  // accumulators are each thread's own
        shared = shared && (args[i].size() < 3 || args[i].at(2).string() != "accumulator");
      if (!shared) continue;
      for (size_t i = outer; i < args.size(); ++i)
        types.push_back(thread_scratch(args[i], more ? std::optional(more->at(i - outer)) : std::nullopt, loc));
      found.push_back({n.path(), args.size() - std::min(outer, args.size())});
      find_scratch(body, thread, found, types, loc);
    }
  }

  /// The kernel of a plgpu.kernel: what its run_scopeds make once is scratch, behind the scratch that the call names.
  ir::Kernel trace_threads(const Node& mesh) {
    mosaic_gpu::KernelParams p = thread_params(mesh);
    if (!params.input_output_aliases.empty()) root.at("aliases").fail("stand in a kernel of mosaic_gpu");
    const Node body = root.at("body");
    std::vector<Scoped> scoped;
    for (const Node& n : root.at("scratch").items()) p.scratch_types.push_back(thread_scratch(n, std::nullopt, loc));
    const size_t given_scratch = p.scratch_types.size();
    find_scratch(body, p.thread_name.value_or(""), scoped, p.scratch_types, loc);
    const size_t own = p.scratch_types.size(), refs = inputs.size() + params.out_shape.list()->size() + own;
    const auto kernel = [this, body, scoped, own, given_scratch](const std::vector<Ref>& given) {
      auto next = given.end() - static_cast<std::ptrdiff_t>(own - given_scratch);
      const Entries arguments = without_tables({given.begin(), next});
      for (const Scoped& s : scoped) {
        const auto end = next + static_cast<std::ptrdiff_t>(s.refs);
        import.scratch[s.path].assign(next, end);
        next = end;
      }
      if (!run(import, body, arguments, loc).empty()) body.fail("returns something");
    };
    return mosaic_gpu::kernels::make({static_cast<int>(refs), kernel}, std::move(p), loc).trace(inputs);
  }
  void add_compiler_params(ir::Kernel& k) const {
    if (const auto n = root.find("compiler_params"))
      for (const auto& [name, value] : n->at("params").strings()) {
        ir::CompilerParam p{n->at("backend").string(), name, value};
        if (!ir::problem(p)) k.call.compiler_params.push_back(std::move(p));  // versions of JAX have more of them
      }
  }

  ir::Kernel trace() {
    if (const auto mesh = root.find("mesh")) {
      ir::Kernel k = trace_threads(*mesh);
      add_compiler_params(k);
      return k;
    }
    const auto refs = inputs.size() + params.out_shape.list()->size() + params.grid_spec->scratch_shapes.size();
    const Node body = root.at("body");
    const auto kernel = [this, body](std::vector<Ref> given) {
      const size_t own = given.size() - stored_prefetch.size();
      if (!stored_prefetch.empty()) {
        // Programs along parallel axes share no state: the first along all others fills the copies.
        std::optional<Value> first;
        for (size_t i = 0; i < rank; ++i) {
          if (root.at("parallel").at(i).boolean()) continue;
          const Value here = Operand(program_id(static_cast<int64_t>(i), loc), loc) == Operand(int64_t{0}, loc);
          first = first ? Operand(*first, loc) & Operand(here, loc) : here;
        }
        const auto fill = [&] {
          for (size_t k = 0; k < stored_prefetch.size(); ++k) {
            const Value v = load(given[static_cast<size_t>(stored_prefetch[k])], RefIndex(all, loc));
            store(given[own + k], RefIndex(all, loc), Operand(v, loc));
          }
        };
        if (first) when(Operand(*first, loc), fill);
        else fill();
        for (size_t k = 0; k < stored_prefetch.size(); ++k)
          given[static_cast<size_t>(stored_prefetch[k])] = std::as_const(given[own + k]);
        given.erase(given.begin() + static_cast<std::ptrdiff_t>(own), given.end());
      }
      for (const auto& [input, output] : shared) given[input] = std::as_const(given[output]);
      if (!run(import, body, without_tables(std::move(given)), loc).empty()) body.fail("returns something");
    };
    ir::Kernel k = spec::make_pallas_call({static_cast<int>(refs), kernel}, params, loc).trace(inputs);
    add_compiler_params(k);
    // Traced with all axes counted; the kernel is to see those only that vmap did not add.
    std::vector<int64_t> position(rank, -1);
    for (size_t i = 0; i < import.grid_axes.size(); ++i)
      position[static_cast<size_t>(import.grid_axes[i])] = static_cast<int64_t>(i);
    if (import.grid_axes.size() == rank) return k;
    for (ir::Op& op : k.ops)
      if (ir::is_grid(op.code) && op.code != ir::Opcode::size)
        op.set(ir::Attr::axis, position.at(static_cast<size_t>(op.attr(ir::Attr::axis))));
    for (size_t i = 0; i < rank; ++i) k.grid[i].vmapped = position[i] < 0;
    ir::verify(k, "importing");
    return k;
  }
};
}  // namespace

Value constant(DType t, uint64_t bits, Shape shape, Loc loc) {
  Emit e("literal", loc);
  return e.wrap(e.builder().constant(t, bits, std::move(shape)));
}

/// The equations from the i-th on. One that makes a Ref has the rest inside its scope.
static Entries run_from(Import& import, const Node& jaxpr, size_t i, Entries& scope, Loc loc) {
  const Node equations = jaxpr.at("eqns");
  for (; i < equations.size(); ++i) {
    const Node n = equations.at(i);
    if (!makes_ref(n)) {
      run_equation(import, n, scope, loc);
      continue;
    }
    const Equation e = equation(import, n, scope, loc);
    return entries(new_ref(e, [&](const Ref& r) {
      scope.push_back({r});
      Values out;
      for (const Entry& x : run_from(import, jaxpr, i + 1, scope, loc)) out.push_back(value_of(x, e));
      return out;
    }));
  }
  Entries out;
  for (const Node& n : jaxpr.at("out").items()) out.push_back(operand_entry(import, n, scope, loc));
  return out;
}

Entries run(Import& import, const Node& jaxpr, const Entries& arguments, Loc loc) {
  Entries scope;
  if (const auto consts = jaxpr.find("consts"))
    for (const Node& n : consts->items()) scope.push_back(constant_entry(import, n, loc));
  scope.insert(scope.end(), arguments.begin(), arguments.end());
  const std::vector<Node> args = jaxpr.at("args").items();
  if (args.size() != scope.size())
    jaxpr.fail("takes " + std::to_string(args.size()) + (args.size() == 1 ? " argument" : " arguments") +
               " but is given " + std::to_string(scope.size()));
  for (size_t i = 0; i < args.size(); ++i)
    if (const TypeForm got = type_of(scope[i]), wanted = type_form(args[i]);
        !same_type(got, wanted) && !in_tiles(scope[i], wanted) && !stands_for_ref(scope[i], wanted))
      args[i].fail("is " + to_string(wanted) + " but is given " + to_string(got));
  return run_from(import, jaxpr, 0, scope, loc);
}

void Equation::fail(const std::string& what, const std::string& note) const {
  throw TraceError(import.kernel + ": " + name + ": " + what, loc, note);
}

Value value_of(const Entry& e, const Equation& where) {
  if (const Value* v = std::get_if<Value>(&e.is)) return *v;
  where.fail("an operand is a Ref but should be a value");
}
Value Equation::value(size_t i) const {
  if (i >= in.size()) fail("operand " + std::to_string(i) + " is missing");
  return value_of(in[i], *this);
}
std::vector<Operand> Equation::operands() const {
  std::vector<Operand> all;
  for (size_t i = 0; i < in.size(); ++i) all.push_back(x(i));
  return all;
}
const Ref& Equation::ref(size_t i) const {
  if (i >= in.size()) fail("operand " + std::to_string(i) + " is missing");
  if (const Ref* r = std::get_if<Ref>(&in[i].is)) return *r;
  fail("operand " + std::to_string(i) + " is a value but should be a Ref");
}
Entry Equation::entry(const Node& n) const { return operand_entry(import, n, scope, loc); }
Operand Equation::operand(const Node& n) const { return Operand(value_of(entry(n), *this), loc); }
size_t Equation::num_out() const { return node.at("out").size(); }
bool Equation::dropped(size_t i) const { return node.at("out").at(i).is_null(); }
TypeForm Equation::out(size_t i) const { return type_form(node.at("out").at(i)); }

const Row* find_row(std::string_view name) {
  static const std::map<std::string_view, const Row*> table = [] {
    std::map<std::string_view, const Row*> t;
    for (const auto* rows :
         {&value_rows(), &indexed_rows(), &memory_rows(), &effect_rows(), &control_rows(), &thread_rows()})
      for (const Row& r : *rows) t.emplace(r.name, &r);
    return t;
  }();
  const auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

ir::Kernel import_kernel(std::string_view text, const ImportOptions& options) {
  Call call{parse_module(text)};
  call.prepare(options);
  return call.trace();
}

int num_dynamic_grid_bounds(std::string_view text) {
  const json document = parse_module(text);
  int n = 0;
  for (const Node& size : Node(document, "").at("grid").items()) n += size.is_null();
  return n;
}

}  // namespace tessera::jax
