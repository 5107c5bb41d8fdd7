#include "engine/base/bind.h"

#include <algorithm>
#include <limits>
#include <map>

#include "engine/base/plural.h"

namespace tessera {
namespace {

// `place()` is the text for errors: calls that bind are many, and few of them fail.
template <class Place> int64_t evaluate(const CallSignature& k, const Place& place, const Extent& e,
                                        const DimValues& dims, Loc loc) {
  if (const auto fixed = e.value()) return *fixed;
  std::vector<std::string> names;
  e.collect_names(names);
  for (const std::string& n : names)
    if (!dims.contains(n))
      throw SpecError(std::string(k.name) + ": " + place() + ": no value for the size \"" + n + "\" in " + to_string(e),
                      loc, "a size is taken from an argument whose shape names it alone, or given with the call");
  try {
    return e.eval(dims);
  } catch (const SpecError& error) {
    const std::string what = error.what(), separator = "\n  note: ";
    const size_t end = what.find(separator);
    throw SpecError(
        std::string(k.name) + ": " + place() + ": " + to_string(e) + bindings({e}, dims) + ": " + what.substr(0, end),
        loc, end == std::string::npos ? "" : what.substr(end + separator.size()));
  }
}
}  // namespace

std::string bindings(const std::vector<Extent>& extents, const DimValues& dims) {
  std::vector<std::string> names;
  for (const Extent& e : extents) e.collect_names(names);
  std::string s;
  for (const std::string& n : names)
    if (const auto it = dims.find(n); it != dims.end())
      s += (s.empty() ? " for " : ", ") + n + " = " + std::to_string(it->second);
  return s;
}

Shape bind_shape(const CallSignature& k, size_t position, const DimValues& dims) {
  const CallSignature::Arg& b = k.args[position];
  Shape shape;
  for (const Extent& e : b.shape) shape.push_back(evaluate(k, [&] { return std::string(b.origin); }, e, dims, b.loc));
  if (std::any_of(shape.begin(), shape.end(), [](int64_t d) { return d < 0; }))
    throw SpecError(std::string(k.name) + ": " + std::string(b.origin) + ": array shape " + to_string(b.shape) +
                        " is " + to_string(shape) + bindings(b.shape, dims),
                    b.loc, "sizes must not be negative");
  return shape;
}

Extent substitute(const Extent& size, const NamedExtents& by) {
  if (size.is_static()) return size;
  std::vector<Extent> made;
  for (const Extent::Node& n : size.nodes()) {
    if (const auto* constant = std::get_if<int64_t>(&n)) {
      made.emplace_back(*constant);
    } else if (const auto* name = std::get_if<std::string>(&n)) {
      const auto it = std::find_if(by.begin(), by.end(), [&](const auto& named) { return named.first == *name; });
      if (it == by.end()) throw SpecError("no value for the size \"" + *name + "\" in " + to_string(size));
      made.push_back(it->second);
    } else {
      const auto& o = std::get<Extent::Operation>(n);
      const Extent &a = made[o.lhs], &b = made[o.rhs];
      if (a.nodes().size() + b.nodes().size() > 1000) throw SpecError("size expression has more than 1000 terms");
      Extent both = Extent::make(o.op, a, b);
      made.push_back(std::move(both));
    }
  }
  return std::move(made.back());
}

std::string type_text(DType dtype, const std::vector<Extent>& dims) {
  std::string text;
  for (const Extent& e : dims) text += (text.empty() ? "" : ", ") + to_string(e);
  return std::string(name(dtype)) + "[" + text + "]";
}

DimValues bind_graph_sizes(std::string_view graph, Loc loc,
                           const std::vector<std::pair<DType, std::vector<Extent>>>& inputs,
                           const std::vector<std::pair<DType, Shape>>& arguments) {
  if (arguments.size() != inputs.size())
    throw SpecError(std::string(graph) + " takes " + plural(inputs.size(), "argument") + " but " +
                        std::to_string(arguments.size()) + (arguments.size() == 1 ? " is given" : " are given"),
                    loc);
  DimValues sizes;
  const auto misfit = [&](size_t i) {
    const auto& [dtype, shape] = arguments[i];
    throw SpecError(std::string(graph) + ": argument " + std::to_string(i) + " is " +
                        type_text(dtype, {shape.begin(), shape.end()}) + " but " +
                        type_text(inputs[i].first, inputs[i].second) + " is expected" +
                        bindings(inputs[i].second, sizes),
                    loc);
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& [dtype, dims] = inputs[i];
    const Shape& shape = arguments[i].second;
    if (arguments[i].first != dtype || shape.size() != dims.size()) misfit(i);
    for (size_t d = 0; d < dims.size(); ++d)
      if (const auto name = dims[d].as_name(); name && sizes.try_emplace(*name, shape[d]).first->second != shape[d])
        misfit(i);
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t d = 0; d < inputs[i].second.size(); ++d)
      if (inputs[i].second[d].eval(sizes) != arguments[i].second[d]) misfit(i);
  return sizes;
}

std::vector<int64_t> bind_grid(const CallSignature& k, const DimValues& dims) {
  std::vector<int64_t> grid;
  for (size_t i = 0; i < k.grid.size(); ++i) {
    const Extent& e = *k.grid[i];
    const auto place = [&] { return "grid axis " + std::to_string(i); };
    const int64_t n = evaluate(k, place, e, dims, k.loc);
    const auto is = [&] {
      return std::string(k.name) + ": " + place() + " is " + std::to_string(n) +
             (e.is_static() ? "" : ", from " + to_string(e) + bindings({e}, dims));
    };
    if (n < 0) throw SpecError(is(), k.loc, "grid sizes must not be negative");
    if (n > std::numeric_limits<int32_t>::max())
      throw SpecError(is(), k.loc, "program ids are i32, so a grid axis has at most 2147483647 programs");
    grid.push_back(n);
  }
  return grid;
}

int64_t bind_extent(std::string_view kernel, Loc loc, const Extent& size, const DimValues& dims) {
  const CallSignature k{kernel, loc, {}, 0, {}, {}};
  return evaluate(k, [] { return std::string("the kernel"); }, size, dims, loc);
}

int32_t bind_size(std::string_view kernel, Loc loc, const Extent& size, const DimValues& dims) {
  const int64_t n = bind_extent(kernel, loc, size, dims);
  if (n < std::numeric_limits<int32_t>::min() || n > std::numeric_limits<int32_t>::max())
    throw SpecError(std::string(kernel) + ": " + to_string(size) + " is " + std::to_string(n) +
                        " but the kernel counts it in 32 bits",
                    loc);
  return static_cast<int32_t>(n);
}

DimValues bind_dims(const CallSignature& k, const std::vector<std::pair<DType, Shape>>& inputs,
                    const DimValues& given) {
  const auto wanted = k.num_inputs;
  if (inputs.size() != wanted)
    throw SpecError(std::string(k.name) + ": takes " + plural(wanted, "argument") + " but " +
                        std::to_string(inputs.size()) + (inputs.size() == 1 ? " was given" : " were given"),
                    k.loc);
  const std::vector<std::string>& names = k.sizes;
  for (const auto& [name, value] : given) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      std::string list;
      for (const std::string& n : names) list += (list.empty() ? "" : ", ") + n;
      throw SpecError(std::string(k.name) + ": a size \"" + name + "\" was given but the kernel has none of that name",
                      k.loc, names.empty() ? "all its sizes are fixed" : "its sizes are " + list);
    }
    if (value < 0)
      throw SpecError(std::string(k.name) + ": the size " + name + " was given as " + std::to_string(value), k.loc,
                      "sizes must not be negative");
  }

  DimValues dims = given;
  std::map<std::string, size_t> source;  // the argument that gave a name
  for (size_t i = 0; i < wanted; ++i) {
    const CallSignature::Arg& b = k.args[i];
    const auto& [dtype, shape] = inputs[i];
    const auto place = [&] { return std::string(k.name) + ": argument " + std::to_string(i) + ": "; };
    if (dtype != b.dtype)
      throw SpecError(
          place() + "dtype is " + std::string(name(dtype)) + " but the kernel takes " + std::string(name(b.dtype)),
          b.loc);
    if (shape.size() != b.shape.size())
      throw SpecError(place() + "shape " + to_string(shape) + " has " + plural(shape.size(), "dim") +
                          " but the kernel takes " + to_string(b.shape) + " with " + std::to_string(b.shape.size()),
                      b.loc);
    for (size_t d = 0; d < shape.size(); ++d) {
      const Extent& e = b.shape[d];
      if (const auto fixed = e.value(); fixed && *fixed != shape[d])
        throw SpecError(place() + "shape is " + to_string(shape) + " but the kernel takes " + to_string(b.shape),
                        b.loc);
      const auto name = e.as_name();
      if (!name) continue;
      const auto [it, fresh] = dims.try_emplace(*name, shape[d]);
      if (fresh) source[*name] = i;
      else if (it->second != shape[d]) {
        const std::string other = source.contains(*name)
                                      ? source[*name] == i
                                            ? "but it has " + *name + " = "
                                            : "but argument " + std::to_string(source[*name]) + " has " + *name + " = "
                                      : "but the call gives " + *name + " = ";
        throw SpecError(place() + "shape " + to_string(shape) + " has " + *name + " = " + std::to_string(shape[d]) +
                            " " + other + std::to_string(it->second),
                        b.loc, "the kernel takes " + to_string(b.shape) + " here; equal names are equal sizes");
      }
    }
  }
  for (size_t i = 0; i < k.args.size(); ++i) {
    const Shape bound = bind_shape(k, i, dims);
    const CallSignature::Arg& b = k.args[i];
    if (i < wanted && bound != inputs[i].second)
      throw SpecError(std::string(k.name) + ": argument " + std::to_string(i) + ": shape is " +
                          to_string(inputs[i].second) + " but the kernel takes " + to_string(b.shape) + ", which is " +
                          to_string(bound) + bindings(b.shape, dims),
                      b.loc);
  }
  bind_grid(k, dims);
  return dims;
}

}  // namespace tessera
