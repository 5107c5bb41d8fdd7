// Structured control flow, scopes, and what is for people. A switch is a chain of ifs.
#include <algorithm>

#include "codegen/tpu/emitter.h"
#include "engine/base/error.h"

namespace tessera::tpu {
using ir::Attr;
using ir::Opcode;

void Emitter::fail(const ir::Op& op, const std::string& what, const std::string& note) const {
  throw CompileError(
      k_.name + ": " + std::string(ir::name(op.code)) + ": target tpu:" + std::string(chip_.name) + ": " + what,
      op.loc ? op.loc : k_.loc, note);
}

const Val& Emitter::value(ir::Value v) const {
  const auto at = values_.find(v.index);
  if (at == values_.end()) throw InternalError(k_.name + ": a value is used before it is emitted");
  return at->second;
}
const Memory& Emitter::memory(ir::Value ref) const {
  const auto at = memories_.find(ref.index);
  if (at == memories_.end()) throw InternalError(k_.name + ": a Ref is used that was not emitted");
  return at->second;
}

void Emitter::check_type(const ir::Op& op, const ir::Type& t) const {
  if (t.is_ref && ir::is_semaphore(t.space)) return;
  if (const std::string why = lacks(chip_, t.dtype); !why.empty()) fail(op, why);
  if (num_elements(t.shape) == 0) fail(op, "it has no vectors of no elements");
}

std::vector<Val> Emitter::region(ir::RegionId r) {
  const std::vector<ir::OpId> ops = k_.region(r).ops;
  for (size_t i = 0; i + 1 < ops.size(); ++i) op(k_.op(ops[i]));
  std::vector<Val> yielded;
  for (const ir::Value v : k_.terminator(r).operands) yielded.push_back(value(v));
  return yielded;
}

void Emitter::op(const ir::Op& o) {
  for (const ir::Value v : o.results) check_type(o, k_.type(v));
  switch (ir::family(o.code)) {
    case ir::Family::elementwise: elementwise(o); break;
    case ir::Family::source: source(o); break;
    case ir::Family::move: move(o); break;
    case ir::Family::contract: dot(o); break;
    case ir::Family::reduce: reduce(o); break;
    case ir::Family::argreduce: argreduce(o); break;
    case ir::Family::scan: scan(o); break;
    case ir::Family::rearrange:
      if (o.code != Opcode::gather) fail(o, "it has no " + std::string(ir::name(o.code)));
      gather(o);
      break;
    case ir::Family::grid: grid(o); break;
    case ir::Family::memory: access(o); break;
    case ir::Family::print: print(o); break;
    case ir::Family::control: control(o); break;
    case ir::Family::async: async(o); break;
    case ir::Family::thread: fail(o, "it has no threads of mosaic_gpu");
    case ir::Family::report: fail(o, "it has no report to the host");
    case ir::Family::end:
    case ir::Family::launch:
    case ir::Family::ref:
    case ir::Family::packed:
    case ir::Family::matrix:
    case ir::Family::group: throw InternalError(k_.name + ": an op of the lane level in a tile-level kernel");
  }
  if (o.results.size() == 1 && !k_.type(o.results[0]).is_ref && !ir::is_control(o.code))
    ranges_.set(o.results[0], ranges_.compute(o, k_.type(o.results[0])));
}

void Emitter::control(const ir::Op& op) {
  switch (ir::Control(op.code)) {
    case ir::Control::for_: return for_loop(op);
    case ir::Control::while_: return while_loop(op);
    case ir::Control::if_:
    case ir::Control::switch_: return branches(op, value(op.operands[0]), 0);
    case ir::Control::run_scoped: return run_scoped(op);
  }
}

// "" or " -> (TYPES)", and the name of the results as one: "%3:2 = ".
std::string Emitter::results(const ir::Op& op, std::string* name) {
  name->clear();
  if (op.results.empty()) return "";
  *name = t_.fresh();
  std::string s;
  for (const ir::Value v : op.results) s += (s.empty() ? "" : ", ") + value_type(k_.type(v).dtype, k_.type(v).shape);
  return s;
}

void Emitter::set_results(const ir::Op& op, const std::string& name) {
  for (size_t i = 0; i < op.results.size(); ++i) {
    const ir::Type& t = k_.type(op.results[i]);
    bind(op.results[i], Val{op.results.size() == 1 ? name : name + "#" + std::to_string(i), t.dtype, t.shape});
  }
}

void Emitter::yield(const std::string& by, const std::vector<Val>& vs) {
  t_.line(vs.empty() ? by : by + " " + names(vs) + " : " + types(vs));
}

namespace {
std::string given_name(const std::string& name, size_t n) {
  return name.empty() ? "" : name + (n > 1 ? ":" + std::to_string(n) : "") + " = ";
}
}  // namespace

void Emitter::for_loop(const ir::Op& op) {
  const Val &lower = value(op.operands[0]), &upper = value(op.operands[1]), &step = value(op.operands[2]);
  const ir::Region& body = k_.region(op.regions[0]);
  std::string name;
  const std::string types_of_results = results(op, &name);
  const std::string counter = t_.fresh();
  std::string carries;
  for (size_t i = 1; i < body.args.size(); ++i) {
    const ir::Type& t = k_.type(body.args[i]);
    const Val carried{t_.fresh(), t.dtype, t.shape};
    bind(body.args[i], carried);
    carries += (carries.empty() ? "" : ", ") + carried.name + " = " + value(op.operands[i + 2]).name;
  }
  bind(body.args[0], Val{counter, DType::i32, {}});
  const Interval all{INT32_MIN, INT32_MAX};
  const Interval from = ranges_.of(op.operands[0]).value_or(all), to = ranges_.of(op.operands[1]).value_or(all);
  ranges_.set(body.args[0], counter_bounds(from, to));
  t_.open(given_name(name, op.results.size()) + "scf.for " + counter + " = " + lower.name + " to " + upper.name +
          " step " + step.name + (carries.empty() ? "" : " iter_args(" + carries + ") -> (" + types_of_results + ")") +
          " : i32 {");
  const std::vector<Val> yielded = region(op.regions[0]);
  yield("scf.yield", yielded);
  t_.close("}");
  set_results(op, name);
}

void Emitter::while_loop(const ir::Op& op) {
  const ir::Region &before = k_.region(op.regions[0]), &after = k_.region(op.regions[1]);
  std::string name;
  const std::string types_of_results = results(op, &name);
  std::string carries, arguments;
  std::vector<Val> first;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const Val& init = value(op.operands[i]);
    const Val a{t_.fresh(), init.dtype, init.shape}, b{t_.fresh(), init.dtype, init.shape};
    bind(before.args[i], a);
    bind(after.args[i], b);
    first.push_back(a);
    carries += (i ? ", " : "") + a.name + " = " + init.name;
    arguments += (i ? ", " : "") + b.name + ": " + type_of(b);
  }
  t_.open(given_name(name, op.results.size()) + "scf.while (" + carries + ") : (" + types_of_results + ") -> (" +
          types_of_results + ") {");
  const Val goes_on = region(op.regions[0]).at(0);
  t_.line("scf.condition(" + goes_on.name + ")" + (first.empty() ? "" : " " + names(first) + " : " + types(first)));
  t_.next("} do {");
  if (!arguments.empty()) t_.next("^bb0(" + arguments + "):");
  const std::vector<Val> next = region(op.regions[1]);
  yield("scf.yield", next);
  t_.close("}");
  set_results(op, name);
}

// The branches from `first` on: of an if the first is taken where the choice holds; of a switch where it is at most
// `first`, and the last one otherwise.
void Emitter::branches(const ir::Op& op, const Val& choice, size_t first) {
  const bool is_if = op.code == Opcode::if_;
  if (op.regions.size() == 1 && !is_if) {
    const std::vector<Val> only = region(op.regions[0]);
    for (size_t i = 0; i < only.size(); ++i) bind(op.results[i], only[i]);
    return;
  }
  const Val taken = is_if ? choice : t_.compare("sle", choice, t_.integer(DType::i32, static_cast<int64_t>(first)));
  std::string name;
  const std::string types_of_results = results(op, &name);
  t_.open(given_name(name, op.results.size()) + "scf.if " + taken.name +
          (op.results.empty() ? "" : " -> (" + types_of_results + ")") + " {");
  const std::vector<Val> yes = region(op.regions[first]);
  yield("scf.yield", yes);
  if (is_if && op.results.empty() && (op.regions.size() < 2 || k_.region(op.regions[1]).ops.size() == 1)) {
    t_.close("}");
    return;
  }
  t_.next("} else {");
  if (is_if || first + 2 == op.regions.size()) {
    const std::vector<Val> no = region(op.regions[first + 1]);
    yield("scf.yield", no);
  } else {
    branches(op, choice, first + 1);
    std::vector<Val> inner;
    for (const ir::Value v : op.results) inner.push_back(value(v));
    yield("scf.yield", inner);
  }
  t_.close("}");
  set_results(op, name);
}

void Emitter::run_scoped(const ir::Op& op) {
  std::string name;
  const std::string types_of_results = results(op, &name);
  t_.open(given_name(name, op.results.size()) + "\"tpu.region\"() ({");
  for (const ir::Value v : k_.region(op.regions[0]).args) {
    const ir::Type& t = k_.type(v);
    check_type(op, t);
    Memory m{t_.fresh(), t.dtype, t.shape, {}, t.space};
    for (size_t d = 0; d < t.shape.size(); ++d) m.dims.push_back(static_cast<int>(d));
    if (ir::is_semaphore(t.space)) {
      t_.line(m.name + " = tpu.sem_alloc : " + memref_type(m));
    } else {
      if (m.shape.empty()) m.shape = {1}, m.dims = {-1};
      t_.line(m.name + " = memref.alloca() : " + memref_type(m));
    }
    bind(v, m);
  }
  const std::vector<Val> yielded = region(op.regions[0]);
  yield("tpu.yield", yielded);
  t_.close("}) : () -> (" + types_of_results + ")");
  set_results(op, name);
}

// tpu.log has "$0" where the kernel's text has "{}", for 32-bit integers; without a place, its operands follow the
// text.
void Emitter::print(const ir::Op& op) {
  const std::string& text = k_.texts[static_cast<size_t>(op.attr(Attr::text))];
  std::string quoted;
  size_t places = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '{' && i + 1 < text.size() && text[i + 1] == '}') quoted += "$" + std::to_string(places++), ++i;
    else if (c == '{' || c == '}') {
      if (i + 1 < text.size() && text[i + 1] == c) ++i, quoted += c;
      else fail(op, "its prints have no placeholders but {}");
    } else if (c == '\n') quoted += "\\0A";
    else if (c == '"' || c == '\\') quoted += std::string("\\") + c;
    else quoted += c;
  }
  if (op.code == Opcode::check) {
    if (op.operands.size() > 1) fail(op, "its checks print no values", "print them before");
    return t_.line("cf.assert " + value(op.operands[0]).name + ", \"" + quoted + "\"");
  }
  std::vector<Val> xs;
  for (const ir::Value v : op.operands) {
    xs.push_back(value(v));
    if (!xs.back().shape.empty() || bits(xs.back().dtype) != 32 || is_float(xs.back().dtype))
      fail(op, "it prints scalars, integers of 32 bits");
  }
  t_.line("tpu.log \"" + quoted + "\"" + (places ? " {formatted = true}" : "") +
          (xs.empty() ? "" : " : [" + names(xs) + "] : " + types(xs)));
}

}  // namespace tessera::tpu
