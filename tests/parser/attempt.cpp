#include "tests/parser/attempt.h"

#include <algorithm>
#include <vector>

#include "codegen/compile.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/passes/cost.h"
#include "engine/passes/passes.h"

namespace tessera::parser {
namespace {
using ir::Kernel;

constexpr int64_t kMostElements = 1 << 14;  // of one value, block or array
constexpr int64_t kMostWork = 1 << 20;      // elements computed by all programs, contracted ones too
constexpr size_t kMostOps = 300;

/// An upper bound of the elements that a region computes, or nothing: a loop whose length data decides.
std::optional<int64_t> work(const Kernel& k, ir::RegionId r) {
  int64_t sum = 0;
  for (const ir::OpId id : k.region(r).ops) {
    const ir::Op& o = k.op(id);
    int64_t n = 1, rounds = 1;
    for (const ir::Value v : o.results)
      if (const ir::Type& t = k.type(v); !t.is_ref) n = std::max(n, num_elements(t.shape));
    for (const ir::Value v : o.operands)
      if (const ir::Type& t = k.type(v); !t.is_ref) n = std::max(n, num_elements(t.shape));
    if (n > kMostElements) return std::nullopt;
    if (o.code == ir::Opcode::dot) {
      for (const int64_t d : o.ints(ir::Attr::lhs_contract))
        n *= std::min(k.type(o.operands[0]).shape[static_cast<size_t>(d)], kMostWork);
      if (o.ints(ir::Attr::lhs_contract).size() > 2) return std::nullopt;
    }
    if (o.code == ir::Opcode::while_) return std::nullopt;
    if (o.code == ir::Opcode::for_) {
      const auto from = ir::constant_int(k, o.operands[0]), to = ir::constant_int(k, o.operands[1]),
                 step = ir::constant_int(k, o.operands[2]);
      if (!from || !to || !step || *step < 1) return std::nullopt;
      rounds = std::min(std::max<int64_t>(*to - *from, 0) / *step + 1, kMostWork);
    }
    for (const ir::RegionId inner : o.regions) {
      const auto w = work(k, inner);
      if (!w) return std::nullopt;
      n += rounds * *w;
    }
    sum += n;
    if (sum > kMostWork) return std::nullopt;
  }
  return sum;
}

/// Zeros as inputs, if the kernel is small enough to run.
std::optional<std::vector<Array>> inputs(const Kernel& k, const DimValues& dims) {
  const auto one = work(k, k.body);
  if (!one) return std::nullopt;
  int64_t programs = 1;
  for (const int64_t n : bind_grid(k, dims)) {
    programs *= std::min<int64_t>(n, kMostWork);
    if (programs > kMostWork) return std::nullopt;
  }
  int64_t each = *one + 16 * static_cast<int64_t>(k.blocks.size()) + 1;
  std::vector<Array> arrays;
  for (size_t i = 0; i < k.blocks.size(); ++i) {
    const Shape shape = bind_shape(k, static_cast<int>(i), dims);
    if (!ir::within_limits(shape) || num_elements(shape) > kMostElements) return std::nullopt;
    if (!k.blocks[i].is_whole()) each += num_elements(k.block_ref_type(static_cast<int>(i)).shape);
    if (!k.is_output(static_cast<int>(i))) arrays.emplace_back(shape, k.blocks[i].dtype);
  }
  for (const ir::Type& t : k.scratch) each += num_elements(t.shape);
  if (each > kMostWork || programs * each > kMostWork) return std::nullopt;
  return arrays;
}

class Trier {
 public:
  Trier(std::string_view text, size_t compiles) : text_(text), compiles_(compiles) {}

  Attempt run() {
    try {
      go();
    } catch (const InternalError& e) {
      out_.bug = stage_ + ": InternalError: " + e.what();
    } catch (const Error& e) {
      // Refused in words; the text form alone must have none of these left after parse().
      if (printing_) out_.bug = stage_ + ": " + e.what();
    } catch (const std::exception& e) {
      out_.bug = stage_ + ": an exception that is not Tessera's: " + e.what();
    }
    return out_;
  }

 private:
  void round_trip(const Kernel& k, bool locations) {
    printing_ = true;
    stage_ = locations ? "reading back with source lines" : "reading back";
    const std::string first = ir::print(k, locations), second = ir::print(ir::parse(first, "printed"), locations);
    printing_ = false;
    if (first != second) out_.bug = "the text changes when it is read back:\n" + first + "\nthen\n" + second;
  }

  void go() {
    stage_ = "parse";
    const Kernel k = ir::parse(text_, "input");
    out_.reached = Reached::parsed;
    stage_ = "verify";
    if (!ir::find_problems(k).empty()) {
      ir::print(k, true);
      ir::check(k, text_, "input");  // throws, with lines and columns
      out_.bug = "check() accepts what find_problems() does not";
      return;
    }
    out_.reached = Reached::verified;
    round_trip(k, false);
    if (!out_.bug) round_trip(k, true);
    if (out_.bug || k.level != ir::Level::tile || k.ops.size() > kMostOps) return;
    stage_ = "estimate_cost";
    estimate_cost(k);
    for (const ir::ValueInfo& v : k.values)
      for (const int64_t d : v.type.shape)
        if (d > kMostElements) return;
    DimValues dims;
    for (const std::string& name : k.dim_names()) dims[name] = 5;
    stage_ = "bind";
    if (const auto arrays = inputs(k, dims)) {
      stage_ = "interpret";
      const auto unheard = [](const std::string&) {};
      interpret(k, *arrays, {.dims = dims, .print = unheard});
      interpret(k, *arrays, {.dims = dims, .uninitialised = Uninitialised::pattern, .seed = 7, .print = unheard});
      out_.reached = Reached::ran;
    }
    for (const ir::ValueInfo& v : k.values)
      if (!v.type.is_ref && num_elements(v.type.shape) > kMostElements) return;
    stage_ = "passes";
    Kernel optimized = k;
    passes::optimize(optimized);
    Target gpu = lavapipe_target();
    gpu.kind = Target::Kind::gpu;
    gpu.max_loop_iterations = 0;
    const Target targets[] = {minimum_target(), lavapipe_target(), gpu};
    size_t kind = text_.size();
    for (const Target& t : targets)
      for (const bool general : {false, true}) {
        if (kind++ % 6 >= compiles_) continue;
        stage_ = "compile for " + t.name + (general ? ", general form" : "");
        CompileOptions options;
        options.general = general;
        try {
          compile(k, t, options);
          out_.reached = Reached::compiled;
        } catch (const CompileError&) {
        }
      }
  }

  std::string_view text_;
  size_t compiles_;
  std::string stage_;
  bool printing_ = false;
  Attempt out_;
};
}  // namespace

Attempt attempt(std::string_view text, size_t compiles) { return Trier(text, compiles).run(); }

}  // namespace tessera::parser
