#include "codegen/program/program_file.h"

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

namespace tessera {
namespace {

// FNV-1a.
uint64_t hash(std::string_view s) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : s) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

/// Thrown and caught here: the bytes end too early or say something impossible.
struct Malformed {};

class Writer {
 public:
  std::string out;

  template <class T>
    requires std::is_arithmetic_v<T>
  void operator()(T v) {
    out.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  void operator()(const std::string& s) { size(s.size()), out += s; }
  void operator()(Loc l) { (*this)(std::string(l.file ? l.file : "")), (*this)(l.line); }
  void operator()(DType t) { (*this)(std::string(name(t))); }
  void operator()(const Extent& e) { (*this)(to_string(e)); }
  void operator()(const Array& a) {
    size(a.shape().size());
    for (const int64_t n : a.shape()) (*this)(n);
    (*this)(a.dtype());
    (*this)(std::string(reinterpret_cast<const char*>(a.bytes()), static_cast<size_t>(a.nbytes())));
  }
  void size(size_t n) { (*this)(static_cast<uint64_t>(n)); }
};

class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in), whole_(in.size()) {}
  bool done() const { return in_.empty(); }

  template <class T>
    requires std::is_arithmetic_v<T>
  void operator()(T& v) {
    const std::string_view b = take(sizeof v);
    if constexpr (std::same_as<T, bool>) {
      if (b[0] != 0 && b[0] != 1) throw Malformed();
      v = b[0] != 0;
    } else {
      std::memcpy(&v, b.data(), sizeof v);
    }
  }
  void operator()(std::string& s) { s = take(size()); }
  void operator()(Loc& l) {
    std::string file;
    (*this)(file), (*this)(l.line);
    l.file = file.empty() ? nullptr : intern_file(file);
  }
  void operator()(DType& t) {
    std::string s;
    (*this)(s);
    const auto found = dtype_from_name(s);
    if (!found) throw Malformed();
    t = *found;
  }
  void operator()(Extent& e) {
    std::string s;
    (*this)(s);
    std::string_view rest = s;
    e = parse_extent(rest);
    if (!rest.empty()) throw Malformed();
  }
  void operator()(Array& a) {
    Shape shape;
    for (size_t n = size(); n > 0; --n) (*this)(shape.emplace_back());
    DType t{};
    (*this)(t);
    const std::string_view bytes = take(size());
    if (bytes.size() != bytes_of(shape, t)) throw Malformed();
    a = Array(shape, t);
    if (!bytes.empty()) std::memcpy(a.bytes(), bytes.data(), bytes.size());
  }
  /// Of something whose elements take at least a byte each.
  size_t size() {
    uint64_t n = 0;
    (*this)(n);
    if (n > in_.size()) throw Malformed();
    return static_cast<size_t>(n);
  }

 private:
  // Of an array; Malformed if no input of this size could hold it.
  size_t bytes_of(const Shape& shape, DType t) const {
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
    auto n = static_cast<size_t>(size_bytes(t));
    for (const int64_t dim : shape) {
      if (dim < 0 || static_cast<uint64_t>(dim) > whole_ / n) throw Malformed();
      n *= static_cast<size_t>(dim);
    }
    return n;
  }
  std::string_view take(size_t n) {
    if (n > in_.size()) throw Malformed();
    const std::string_view s = in_.substr(0, n);
    in_.remove_prefix(n);
    return s;
  }
  std::string_view in_;
  size_t whole_;
};

/// Writes down what the fields are rather than what they hold.
class Layout {
 public:
  std::string out;

  template <class T>
    requires std::is_arithmetic_v<T>
  void operator()(T) {
    out += (std::floating_point<T> ? 'f' : std::unsigned_integral<T> ? 'u' : 'i') + std::to_string(sizeof(T));
  }
  void operator()(const std::string&) { out += 's'; }
  void operator()(Loc) { out += 'l'; }
  void operator()(DType) { out += 't'; }
  void operator()(const Extent&) { out += 'e'; }
  void operator()(const Array&) { out += 'a'; }
};

template <class IO, class... T>
void all(IO& io, T&... fields);

template <class IO>
void part(IO& io, ProgramArg& a) {
  all(io, a.origin, a.dtype, a.shape, a.is_output, a.read, a.written, a.loc, a.alias, a.by_value);
}
template <class IO>
void part(IO& io, ProgramLoop& l) {
  all(io, l.loc, l.at_least, l.at_most);
}
template <class IO>
void part(IO& io, ProgramTensor& t) {
  all(io, t.array, t.box);
}
template <class IO>
void part(IO& io, ProgramPrint& p) {
  all(io, p.check, p.text, p.arguments, p.loc);
}
template <class IO>
void part(IO& io, WaitSite& w) {
  all(io, w.op, w.semaphore, w.bytes, w.loc);
}
template <class IO>
void part(IO& io, Needs& n) {
  auto& [features, workgroup_size, push_constant_bytes, required_subgroup_size, most_subgroup_size, workgroup_count,
         shared_bytes, loop_iterations] = n;
  all(io, features, workgroup_size, push_constant_bytes, required_subgroup_size, most_subgroup_size, workgroup_count,
      shared_bytes, loop_iterations);
}
template <class IO>
void part(IO& io, BundleVariant& v) {
  all(io, v.target, v.cpu, v.needs, v.program);
}
template <class IO>
void part(IO& io, BundleKernel& k) {
  all(io, k.name, k.loc, k.arguments, k.variants);
}
void enumerator(Writer& io, GraphProgram::Memory m) { io(static_cast<uint8_t>(m)); }
void enumerator(Layout& io, GraphProgram::Memory) { io(uint8_t{}); }
void enumerator(Reader& io, GraphProgram::Memory& m) {
  uint8_t v = 0;
  io(v);
  if (v > static_cast<uint8_t>(GraphProgram::Memory::own)) throw Malformed();
  m = static_cast<GraphProgram::Memory>(v);
}
template <class IO>
void part(IO& io, GraphProgram::Where& w) {
  enumerator(io, w.memory), all(io, w.index, w.donated);
}
template <class IO>
void part(IO& io, GraphProgram::Kernel& k) {
  all(io, k.program, k.dims, k.calls);
}
template <class IO>
void part(IO& io, GraphProgram::Own& o) {
  all(io, o.type, o.contents);
}
template <class IO>
void part(IO& io, GraphProgram::Call& c) {
  all(io, c.kernel, c.arguments, c.groups, c.groups_at);
}
template <class IO>
void part(IO& io, GraphProgram::Gate& g) {
  all(io, g.numbers, g.members);
}
template <class IO>
void part(IO& io, GraphProgram::Number& n) {
  all(io, n.input, n.kernel, n.own);
}
template <class IO>
void part(IO& io, GraphProgram& g) {
  auto& [name, loc, inputs, outputs, kernels, own, calls, gates, numbers] = g;
  all(io, name, loc, inputs, outputs, kernels, own, calls, gates, numbers);
}
template <class IO>
void part(IO& io, BundleGraph& g) {
  all(io, g.name, g.loc, g.arguments, g.program, g.kernels);
}
template <class IO>
void part(IO& io, CostEstimate& c) {
  all(io, c.flops, c.transcendentals, c.bytes_accessed, c.remote_bytes_transferred);
}

template <class IO, class A, class B>
void part(IO& io, std::pair<A, B>& p) {
  all(io, p.first, p.second);
}
template <class IO, class T>
void part(IO& io, std::optional<T>& o) {
  bool there = o.has_value();
  io(there);
  if (there && !o) o.emplace();
  if (there) all(io, *o);
}
template <class T>
void part(Layout& io, std::optional<T>&) {
  T element{};
  io.out += '?', all(io, element);
}
template <class T>
void part(Layout& io, std::vector<T>&) {
  T element{};
  io.out += '[', all(io, element), io.out += ']';
}
template <class T>
void part(Writer& io, std::vector<T>& v) {
  io.size(v.size());
  for (size_t i = 0; i < v.size(); ++i) {
    T element = v[i];
    all(io, element);
  }
}
template <class T>
void part(Reader& io, std::vector<T>& v) {
  v.clear();
  for (size_t n = io.size(); n > 0; --n) {
    T element{};
    all(io, element);
    v.push_back(std::move(element));
  }
}
template <class T, class Less>
void part(Writer& io, std::map<std::string, T, Less>& m) {
  std::vector<std::pair<std::string, T>> list(m.begin(), m.end());
  part(io, list);
}
template <class T, class Less>
void part(Reader& io, std::map<std::string, T, Less>& m) {
  std::vector<std::pair<std::string, T>> list;
  part(io, list);
  m = {list.begin(), list.end()};
}
template <class T, class Less>
void part(Layout& io, std::map<std::string, T, Less>&) {
  T element{};
  io.out += 'm', all(io, element);
}

template <class IO, class T>
void one(IO& io, T& field) {
  if constexpr (requires { io(field); }) io(field);
  else part(io, field);
}
template <class IO, class... T>
void all(IO& io, T&... fields) {
  (one(io, fields), ...);
}

// Every field of Program, once for both directions.
template <class IO>
void program(IO& io, Program& p) {
  auto& [name, loc, args, spirv, ptx, mosaic, stable_hlo, grid, workgroup_size, required_subgroup_size, shared_bytes,
         scratch_bytes, max_workgroups, num_units, report_bytes, waits, prints, axis_names, loops, max_loop_iterations,
         extents, extent_is_64, tensors, units_extent, steps_extent, open_ended, indirect_table, alignment, relaxed,
         explain, metadata, cost_estimate] = p;
  all(io, name, loc, args, spirv, ptx, mosaic, stable_hlo, grid, workgroup_size, required_subgroup_size, shared_bytes,
      scratch_bytes, max_workgroups, num_units, report_bytes, waits, prints, axis_names, loops, max_loop_iterations,
      extents, extent_is_64, tensors, units_extent, steps_extent, open_ended, indirect_table, alignment, relaxed,
      explain, metadata, cost_estimate);
}

template <class T, class F>
std::optional<T> read(std::string_view bytes, F fields) {
  try {
    Reader r(bytes);
    T value;
    fields(r, value);
    if (!r.done()) return std::nullopt;
    return value;
  } catch (const Malformed&) {
    return std::nullopt;
  } catch (const Error&) {  // an Extent that is none
    return std::nullopt;
  }
}

}  // namespace

std::string program_to_bytes(const Program& p) {
  Writer w;
  Program copy = p;
  program(w, copy);
  return std::move(w.out);
}
std::optional<Program> program_from_bytes(std::string_view bytes) {
  auto p = read<Program>(bytes, [](Reader& r, Program& value) { program(r, value); });
  return p && is_valid(*p) ? p : std::nullopt;
}

uint64_t program_layout() {
  static const uint64_t layout = [] {
    Layout l;
    Program p;
    BundleGraph g;
    program(l, p), all(l, g);
    return hash(l.out);
  }();
  return layout;
}

std::string kernels_to_bytes(const BundleFile& b) {
  Writer w;
  BundleFile copy = b;
  all(w, copy.kernels, copy.graphs);
  return std::move(w.out);
}
std::optional<BundleFile> kernels_from_bytes(std::string_view bytes) {
  return read<BundleFile>(bytes, [](Reader& r, BundleFile& value) { all(r, value.kernels, value.graphs); });
}

}  // namespace tessera
