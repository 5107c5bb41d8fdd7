// The printer of the text form. It prints broken kernels too (for the verifier's dumps): what has no syntax is shown in
// angle brackets.
#include <algorithm>

#include "engine/ir/text.h"

namespace tessera::ir {
namespace {

constexpr uint32_t kUnnumbered = UINT32_MAX;

/// Visits values in the order in which the text shows them.
struct Numbering {
  const Kernel& k;
  std::vector<uint32_t> numbers;
  std::vector<bool> seen = std::vector<bool>(k.regions.size());  // a broken kernel's regions may form a cycle
  uint32_t next = 0;

  void give(Value v) {
    if (v.index < numbers.size() && numbers[v.index] == kUnnumbered) numbers[v.index] = next++;
  }
  void region(RegionId id) {
    if (id.index >= k.regions.size() || seen[id.index]) return;
    seen[id.index] = true;
    const Region& r = k.region(id);
    for (Value v : r.args) give(v);
    for (OpId o : r.ops) {
      if (o.index >= k.ops.size()) continue;
      for (Value v : k.op(o).results) give(v);
      for (RegionId inner : k.op(o).regions) region(inner);
    }
  }
};

bool is_identifier(std::string_view s) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !s.empty() && letter(s[0]) &&
         std::all_of(s.begin(), s.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

std::string quoted(std::string_view s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') out += '\\', out += c;
    else if (c == '\n') out += "\\n";
    else out += c;
  }
  return out + "\"";
}

class Printer {
 public:
  Printer(const Kernel& k, bool locations, const std::vector<std::string>& body_names)
      : k_(k), locations_(locations), numbers_(numbering(k)), names_(numbers_.size()) {
    if (!exists(k.body)) return;
    const std::vector<Value>& args = k.region(k.body).args;
    for (size_t i = 0; i < std::min(args.size(), body_names.size()); ++i)
      if (args[i].index < names_.size()) names_[args[i].index] = body_names[i];
  }

  std::string run() {
    out_ = "tir " + std::to_string(kTextVersion) + "\n";
    out_ += k_.level == Level::lane ? "lane kernel @" : "kernel @";
    out_ += is_identifier(k_.name) ? k_.name : quoted(k_.name);
    end_line(k_.loc);
    call_info();
    grid();
    if (k_.level == Level::lane) lane();
    for (int i = 0; i < static_cast<int>(k_.blocks.size()); ++i) block(i);
    for (size_t i = 0; i < k_.scratch.size(); ++i)
      out_ += "scratch " + to_string(k_.scratch[i]) +
              (i + static_cast<size_t>(k_.num_private_scratch) >= k_.scratch.size() ? " private\n" : "\n");
    if (!k_.sizes.empty()) {
      out_ += "sizes (";
      list(k_.sizes, [&](const Extent& e) { out_ += to_string(e); });
      out_ += ")\n";
    }
    for (const std::string& t : k_.texts) out_ += "text " + quoted(t) + "\n";
    out_ += "body ";
    if (exists(k_.body)) {
      arguments(k_.body, true);
      out_ += ' ';
      braces(k_.body, {});
    } else {
      out_ += "<no region>";
    }
    out_ += '\n';
    return std::move(out_);
  }

 private:
  const Kernel& k_;
  bool locations_;
  std::vector<uint32_t> numbers_;
  std::vector<std::string> names_;  // of values that have one, by Value::index
  std::string out_;
  std::vector<bool> seen_ = std::vector<bool>(k_.regions.size());
  int depth_ = 0;

  bool exists(RegionId r) const { return r.index < k_.regions.size(); }
  void location(Loc loc) {
    if (locations_ && loc) out_ += "  // " + to_string(loc);
  }
  void end_line(Loc loc) {
    location(loc);
    out_ += '\n';
  }
  void indent() { out_.append(static_cast<size_t>(depth_) * 2, ' '); }
  void value(Value v) {
    if (v.index < names_.size() && !names_[v.index].empty()) out_ += '%' + names_[v.index];
    else if (v.index < numbers_.size() && numbers_[v.index] != kUnnumbered)
      out_ += '%' + std::to_string(numbers_[v.index]);
    else out_ += "<value " + std::to_string(v.index) + ">";
  }
  template <class List, class F> void list(const List& items, F print) {
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += ", ";
      first = false;
      print(item);
    }
  }
  void values(const std::vector<Value>& v) {
    list(v, [&](Value x) { value(x); });
  }
  std::string type_of(Value v) const { return v.index < k_.values.size() ? to_string(k_.type(v)) : "<unknown>"; }

  static bool is_number(const std::string& s) {
    return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
  }
  static std::string word(const std::string& s) { return is_identifier(s) ? s : quoted(s); }
  void call_info() {
    const CallInfo& c = k_.call;
    if (!c.metadata.empty()) {
      out_ += "metadata (";
      list(c.metadata, [&](const auto& entry) { out_ += word(entry.first) + ": " + quoted(entry.second); });
      out_ += ")\n";
    }
    if (c.cost_estimate) {
      const CostEstimate& e = *c.cost_estimate;
      out_ += "cost_estimate (flops: " + to_string(e.flops) + ", transcendentals: " + to_string(e.transcendentals) +
              ", bytes_accessed: " + to_string(e.bytes_accessed);
      if (e.remote_bytes_transferred != Extent(0))
        out_ += ", remote_bytes_transferred: " + to_string(e.remote_bytes_transferred);
      out_ += ")\n";
    }
    for (size_t i = 0; i < c.compiler_params.size(); ++i) {
      const CompilerParam& p = c.compiler_params[i];
      const bool first = i == 0 || c.compiler_params[i - 1].backend != p.backend,
                 last = i + 1 == c.compiler_params.size() || c.compiler_params[i + 1].backend != p.backend;
      out_ += (first ? "compiler_params " + word(p.backend) + " (" : std::string(", ")) + word(p.name) + ": " +
              (is_number(p.value) ? p.value : word(p.value)) + (last ? ")\n" : "");
    }
  }
  void grid() {
    if (k_.grid.empty()) return;
    out_ += "grid (";
    list(k_.grid, [&](const GridAxis& g) {
      if (!g.name.empty()) out_ += (is_identifier(g.name) ? g.name : quoted(g.name)) + ": ";
      out_ += to_string(g.size);
      if (g.parallel) out_ += " parallel";
      if (g.vmapped) out_ += " vmapped";
      if (g.role != GridAxis::Role::grid) out_ += g.role == GridAxis::Role::thread ? " thread" : " cluster";
    });
    out_ += ")\n";
  }
  void lane() {
    const LaneInfo& l = k_.lane;
    out_ += "workgroup_size " + std::to_string(l.workgroup_size);
    if (l.subgroup_size) out_ += " subgroup_size " + std::to_string(l.subgroup_size);
    if (l.shared_bytes) out_ += " shared_bytes " + std::to_string(l.shared_bytes);
    if (l.scratch_bytes) out_ += " scratch_bytes " + std::to_string(l.scratch_bytes);
    if (l.report_bytes) out_ += " report_bytes " + std::to_string(l.report_bytes);
    if (l.threads > 1) out_ += " threads " + std::to_string(l.threads);
    if (l.program_bytes) out_ += " program_bytes " + std::to_string(l.program_bytes);
    for (const int32_t arrivals : l.barriers) out_ += " mbarrier " + std::to_string(arrivals);
    if (l.max_workgroups) out_ += " max_workgroups " + std::to_string(l.max_workgroups);
    if (l.steps_extent >= 0)
      out_ += " steps_extent " + std::to_string(l.steps_extent) + (l.open_ended ? " open_ended" : "");
    out_ += "\nnum_units " + to_string(l.num_units) + (l.exact ? " exact\n" : "\n");
    for (const TensorBox& t : l.tensors) {
      out_ += "tensor " + std::to_string(t.array) + " box (";
      list(t.box, [&](int64_t n) { out_ += std::to_string(n); });
      out_ += ")\n";
    }
    if (l.extents.empty()) return;
    out_ += "extents (";
    for (size_t i = 0; i < l.extents.size(); ++i)
      out_ +=
          (i ? ", " : "") + to_string(l.extents[i]) + (i < l.extent_is_64.size() && l.extent_is_64[i] ? ": i64" : "");
    out_ += ")\n";
  }
  void block(int i) {
    const BlockMapping& b = k_.blocks[static_cast<size_t>(i)];
    out_ += i < k_.num_prefetch ? "prefetch " : k_.is_output(i) ? "out " : "in ";
    if (b.origin != k_.usual_origin(i)) out_ += quoted(b.origin) + " ";
    out_ += std::string(name(b.dtype)) + "[";
    list(b.array_shape, [&](const Extent& e) { out_ += to_string(e); });
    out_ += "]";
    if (b.alias != -1) out_ += " alias " + std::to_string(b.alias);
    if (b.is_by_value()) {
      out_ += " value";
    } else if (b.is_whole()) {
      out_ += " whole";
    } else {
      out_ += " block (";
      list(b.block(), [&](const BlockDim& d) { out_ += to_string(d); });
      out_ += ")";
    }
    if (b.space != MemorySpace::vmem && i >= k_.num_prefetch && !b.is_by_value())
      out_ += " " + std::string(name(b.space));
    if (b.buffering != Buffering{}) {
      out_ += " buffered " + std::to_string(b.buffering.count);
      if (b.buffering.lookahead) out_ += " lookahead";
      if (b.buffering.revisit != Buffering::Revisit::unsaid)
        out_ += b.buffering.revisit == Buffering::Revisit::any ? " revisit any" : " revisit immediate";
    }
    if (!b.is_whole() && exists(b.index_map())) {
      out_ += " map ";
      arguments(b.index_map(), false);
      out_ += ' ';
      braces(b.index_map(), b.loc);
    } else {
      location(b.loc);
    }
    out_ += '\n';
  }
  /// An index map's i32 scalars go without types.
  void arguments(RegionId r, bool types) {
    out_ += '(';
    list(k_.region(r).args, [&](Value v) {
      value(v);
      if (types || type_of(v) != "i32[]") out_ += ": " + type_of(v);
    });
    out_ += ')';
  }
  /// "{ yield %0 }" on one line where that is all, else ops on lines of their own. An empty yield is left out.
  void braces(RegionId id, Loc loc) {
    if (!exists(id) || seen_[id.index]) {
      out_ += exists(id) ? "<region " + std::to_string(id.index) + " again>" : "<no region>";
      return;
    }
    seen_[id.index] = true;
    const Region& r = k_.region(id);
    const bool yields =
        !r.ops.empty() && r.ops.back().index < k_.ops.size() && k_.op(r.ops.back()).code == Opcode::yield;
    out_ += '{';
    if (yields && r.ops.size() == 1 && !locations_) {
      if (!k_.op(r.ops[0]).operands.empty()) {
        out_ += " yield ";
        values(k_.op(r.ops[0]).operands);
        out_ += ' ';
      }
      out_ += '}';
      return;
    }
    end_line(loc);
    ++depth_;
    for (OpId o : r.ops) {
      if (o.index < k_.ops.size() && k_.op(o).code == Opcode::yield && k_.op(o).operands.empty() && o == r.ops.back())
        continue;
      indent();
      if (o.index >= k_.ops.size()) out_ += "<op " + std::to_string(o.index) + ">\n";
      else op(k_.op(o));
    }
    if (!yields) {
      indent();
      out_ += "<no yield>\n";
    }
    --depth_;
    indent();
    out_ += '}';
  }

  void op(const Op& o) {
    if (!o.results.empty()) {
      values(o.results);
      out_ += " = ";
    }
    out_ += name(o.code);
    if (!o.regions.empty()) {
      structured(o);
      out_ += '\n';
      return;
    }
    if (is_copy(o.code)) copy(o);
    else if (num_thread_places(o.code) > 0) thread_op(o);
    else if (accesses_ref(o.code) || is_semaphore_op(o.code)) memory(o);
    else if (o.code == Opcode::constant && o.has(Attr::bits) && !o.results.empty()) constant(o);
    else plain(o);
    if (o.results.size() == 1) out_ += " : " + type_of(o.results[0]);
    end_line(o.loc);
  }
  void constant(const Op& o) {
    out_ += ' ';
    const auto& bits = o.ints(Attr::bits);
    if (bits.size() == 1 && o.results[0].index < k_.values.size())
      out_ += literal(k_.type(o.results[0]).dtype, static_cast<uint64_t>(bits[0]));
    else out_ += "<bits>";
  }
  void plain(const Op& o) {
    if (!o.operands.empty()) out_ += ' ', values(o.operands);
    if (o.code == Opcode::slice && slice(o)) return;
    for (const auto& [key, ints] : o.attrs) attribute(key, ints);
  }
  void attribute(Attr key, const std::vector<int64_t>& ints) {
    out_ += ' ' + std::string(name(key)) + ' ';
    if (key == Attr::kind && ints.size() == 1 && ints[0] >= 0 && ints[0] < kNumOpcodes)
      out_ += name(static_cast<Opcode>(ints[0]));
    else if (ints.size() == 1 && is_single(key)) out_ += std::to_string(ints[0]);
    else {
      out_ += '[';
      list(ints, [&](int64_t v) { out_ += std::to_string(v); });
      out_ += ']';
    }
  }
  static bool is_single(Attr a) {
    switch (a) {
      case Attr::bits:
      case Attr::axis:
      case Attr::reverse:
      case Attr::mask:
      case Attr::other:
      case Attr::offset:
      case Attr::kind:
      case Attr::index:
      case Attr::clip:
      case Attr::unordered:
      case Attr::text:
      case Attr::keys:
      case Attr::count:
      case Attr::read_only:
      case Attr::decrease:
      case Attr::late:
      case Attr::pieces: return true;
      default: return false;
    }
  }
  bool slice(const Op& o) {
    if (o.attrs.size() != 3 || !o.has(Attr::start) || !o.has(Attr::limit) || !o.has(Attr::stride)) return false;
    const auto &start = o.ints(Attr::start), &limit = o.ints(Attr::limit), &stride = o.ints(Attr::stride);
    if (start.size() != limit.size() || start.size() != stride.size()) return false;
    out_ += '[';
    for (size_t i = 0; i < start.size(); ++i)
      out_ += (i ? ", " : "") + std::to_string(start[i]) + ":" + std::to_string(limit[i]) +
              (stride[i] == 1 ? std::string() : ":" + std::to_string(stride[i]));
    out_ += ']';
    return true;
  }
  void memory(const Op& o) {
    const auto operand = [&](size_t i) {
      if (i < o.operands.size()) value(o.operands[i]);
      else out_ += "<no operand " + std::to_string(i) + ">";
    };
    out_ += ' ';
    operand(0);
    access(o, 0, o.index.size());
    if (o.value_position() >= 0) out_ += ", ", operand(static_cast<size_t>(o.value_position()));
    if (k_.level == Level::lane && o.code == Opcode::store && is_vector_access(o))
      for (int64_t i = 1; i < std::min<int64_t>(o.index[0].slice()->size, 16); ++i)
        out_ += ", ", operand(static_cast<size_t>(1 + i));
    if (o.code == Opcode::atomic_cas) out_ += " compare ", operand(2);
    if (o.has_mask()) out_ += " mask ", operand(static_cast<size_t>(o.mask_position()));
    if (o.has_other()) out_ += " other ", operand(static_cast<size_t>(o.other_position()));
    for (Attr a : {Attr::kind, Attr::unordered, Attr::bits, Attr::late})
      if (o.has(a)) attribute(a, o.ints(a));
  }
  void copy(const Op& o) {
    constexpr const char* kBefore[] = {" ", " to ", " with "};
    size_t first = 0;
    for (size_t i = 0; i < 3; ++i) {
      out_ += kBefore[i];
      if (i >= o.operands.size() || o.operands[i].index >= k_.values.size()) {
        out_ += "<no operand " + std::to_string(i) + ">";
        continue;
      }
      value(o.operands[i]);
      const size_t rank = std::min(k_.type(o.operands[i]).shape.size(), o.index.size() - first);
      access(o, first, rank);
      first += rank;
    }
    if (o.has(Attr::clip)) out_ += " clip " + std::to_string(o.attr_or(Attr::clip, 0));
  }
  /// "copy_gmem_to_smem %0[%i, 0:8] to %3[0:8] with %4[%s]": a value among the places has no index.
  void thread_op(const Op& o) {
    constexpr const char* kBefore[] = {" ", " to ", " with "};
    constexpr const char* kOfProduct[] = {" ", " with ", " to "};
    const std::vector<CopyPlace> places = thread_places(k_, o);
    for (size_t i = 0; i < places.size(); ++i) {
      out_ += o.code == Opcode::wgmma ? kOfProduct[i] : kBefore[i];
      value(places[i].ref);
      if (k_.type(places[i].ref).is_ref && places[i].first <= o.index.size())
        access(o, places[i].first, std::min(places[i].rank, o.index.size() - places[i].first));
    }
    for (const auto& [key, ints] : o.attrs) attribute(key, ints);
  }
  /// "[0:8, %4]": entries [first, first + count) of the op's index.
  void access(const Op& o, size_t first, size_t count) {
    const auto operand = [&](size_t i) {
      if (i < o.operands.size()) value(o.operands[i]);
      else out_ += "<no operand " + std::to_string(i) + ">";
    };
    const std::vector<Index> index(o.index.begin() + static_cast<ptrdiff_t>(first),
                                   o.index.begin() + static_cast<ptrdiff_t>(first + count));
    out_ += '[';
    list(index, [&](const Index& x) {
      const auto start = [&] {
        if (x.is_static()) out_ += std::to_string(x.constant());
        else operand(*x.operand());
      };
      if (!x.slice()) return start();
      const int64_t size = x.slice()->size, step = x.slice()->step;
      int64_t stop = 0;
      const bool plain_stop = x.is_static() && size >= 0 && step >= 1 &&
                              !__builtin_mul_overflow(std::max<int64_t>(size - 1, 0), step, &stop) &&
                              !__builtin_add_overflow(stop, x.constant() + (size > 0), &stop);
      if (plain_stop) {
        out_ += std::to_string(x.constant()) + ":" + std::to_string(stop) +
                (step == 1 ? std::string() : ":" + std::to_string(step));
        return;
      }
      out_ += "ds(";
      start();
      out_ += ", " + std::to_string(size) + (step == 1 ? std::string() : ", " + std::to_string(step)) + ")";
    });
    out_ += ']';
  }

  /// "(%4 = %0: f32[8], ...)": a region's arguments from `first_arg` with the operands from `first_operand` that they
  /// start from.
  void carries(const Op& o, size_t first_operand, size_t first_arg) {
    const auto& args = k_.region(o.regions[0]).args;
    out_ += '(';
    for (size_t i = 0; i + first_arg < args.size(); ++i) {
      if (i) out_ += ", ";
      value(args[i + first_arg]);
      out_ += " = ";
      value(o.operands[i + first_operand]);
      out_ += ": " + type_of(args[i + first_arg]);
    }
    out_ += ')';
  }
  void structured(const Op& o) {
    const auto args = [&](size_t i) { return exists(o.regions[i]) ? k_.region(o.regions[i]).args.size() : size_t{0}; };
    if (o.code == Opcode::for_ && o.regions.size() == 1 && o.operands.size() >= 3 && args(0) == o.operands.size() - 2) {
      out_ += ' ';
      value(k_.region(o.regions[0]).args[0]);
      out_ += " = ";
      value(o.operands[0]);
      out_ += " to ";
      value(o.operands[1]);
      out_ += " step ";
      value(o.operands[2]);
      if (args(0) > 1) out_ += " carry ", carries(o, 3, 1);
      out_ += ' ';
      braces(o.regions[0], o.loc);
    } else if (o.code == Opcode::while_ && o.regions.size() == 2 && exists(o.regions[0]) && exists(o.regions[1]) &&
               args(0) == o.operands.size() && args(1) == args(0)) {
      out_ += ' ';
      carries(o, 0, 0);
      out_ += ' ';
      braces(o.regions[0], o.loc);
      out_ += " do ";
      arguments(o.regions[1], true);
      out_ += ' ';
      braces(o.regions[1], {});
    } else if (o.code == Opcode::if_ && o.regions.size() == 2 && o.operands.size() == 1 && args(0) == 0 &&
               args(1) == 0) {
      out_ += ' ';
      value(o.operands[0]);
      out_ += ' ';
      braces(o.regions[0], o.loc);
      if (!is_empty(o.regions[1])) {
        out_ += " else ";
        braces(o.regions[1], {});
      }
    } else if (o.code == Opcode::run_scoped && o.regions.size() == 1 && o.operands.empty() && exists(o.regions[0])) {
      out_ += ' ';
      arguments(o.regions[0], true);
      out_ += ' ';
      braces(o.regions[0], o.loc);
    } else if (o.code == Opcode::switch_ && o.operands.size() == 1) {
      out_ += ' ';
      value(o.operands[0]);
      for (size_t i = 0; i < o.regions.size(); ++i) {
        out_ += " case " + std::to_string(i) + " ";
        braces(o.regions[i], i == 0 ? o.loc : Loc{});
      }
    } else {  // broken: not read back
      out_ += ' ';
      values(o.operands);
      for (RegionId r : o.regions) {
        out_ += ' ';
        if (exists(r)) arguments(r, true);
        out_ += ' ';
        braces(r, {});
      }
    }
  }
  bool is_empty(RegionId id) const {
    if (!exists(id)) return false;
    const Region& r = k_.region(id);
    return r.ops.size() == 1 && r.ops[0].index < k_.ops.size() && k_.op(r.ops[0]).code == Opcode::yield &&
           k_.op(r.ops[0]).operands.empty();
  }
};

}  // namespace

std::vector<uint32_t> numbering(const Kernel& k) {
  Numbering n{.k = k, .numbers = std::vector<uint32_t>(k.values.size(), kUnnumbered)};
  for (const BlockMapping& b : k.blocks)
    if (!b.is_whole()) n.region(b.index_map());
  n.region(k.body);
  return std::move(n.numbers);
}

std::string print(const Kernel& k, bool locations, const std::vector<std::string>& body_names) {
  return Printer(k, locations, body_names).run();
}

}  // namespace tessera::ir
