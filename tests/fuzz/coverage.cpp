#include "tests/fuzz/coverage.h"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "codegen/compile.h"
#include "engine/passes/passes.h"

namespace tessera::fuzz {
namespace {
using ir::Attr, ir::Op, ir::Opcode;

bool is_prime(int64_t n) {
  for (int64_t d = 2; d * d <= n; ++d)
    if (n % d == 0) return false;
  return n > 1;
}
std::string count(const std::string& what, size_t n, size_t most) {
  return what + " " + (n >= most ? std::to_string(most) + " or more" : std::to_string(n));
}
}  // namespace

void Coverage::see_op(const ir::Kernel& k, const Op& op, int depth) {
  const std::string op_name(ir::name(op.code));
  const auto type = [&](ir::Value v) { return k.type(v); };
  // The dtype that the work is done in: what a comparison or an arg-reduction reads, what a store stores.
  if (!op.operands.empty() && op.code != Opcode::select && !type(op.operands[0]).is_ref)
    ++ops_[op_name][type(op.operands[0]).dtype];
  else if (!op.operands.empty()) ++ops_[op_name][type(op.operands[op.code == Opcode::select ? 1 : 0]).dtype];
  else if (!op.results.empty()) ++ops_[op_name][type(op.results[0]).dtype];
  else ops_[op_name];  // without values: commit_smem, say
  if (op.code == Opcode::convert) ++ops_["convert to"][type(op.results[0]).dtype];
  for (const ir::Value v : op.results) {
    const ir::Type& t = type(v);
    see(count("value of rank", t.shape.size(), 5));
    for (const int64_t n : t.shape) {
      if (n == 0) see("dim of size 0");
      if (n == 1) see("dim of size 1");
      if (n > 7 && is_prime(n)) see("dim of prime size above 7");
      if (n > 256) see("dim above 256");
      if (n > 4096) see("dim above 4096");
    }
    if (num_elements(t.shape) * size_bytes(t.dtype) > 16384) see("value above 16 KiB");
    if (num_elements(t.shape) * size_bytes(t.dtype) > 49152) see("value above 48 KiB");
  }
  switch (op.code) {
    case Opcode::load:
    case Opcode::store:
    case Opcode::swap:
    case Opcode::addupdate:
    case Opcode::atomic_rmw:
    case Opcode::atomic_cas: {
      const int arg = static_cast<int>(k.value(op.operands[0]).number), blocks = static_cast<int>(k.blocks.size());
      const std::string where = arg >= blocks ? " scratch" : k.is_output(arg) ? " output" : " input";
      see(op_name + where);
      if (op.code == Opcode::atomic_rmw)
        see(op_name + " " + std::string(ir::name(static_cast<Opcode>(op.attr(Attr::kind)))));
      if (op.attr_or(Attr::bits, 0)) see(op_name + " of bits");
      if (op.has_mask()) see(op_name + where + " masked");
      if (op.has_other()) see(op_name + " with other");
      for (const ir::Index& x : op.index) {
        if (x.is_array())
          see(op_name + " by an index array of rank " +
              std::to_string(std::min<size_t>(ir::access_dims(k, op).array_rank, 3)));
        else if (x.is_integer()) see(op_name + (x.is_static() ? " at an integer" : " at a dynamic integer"));
        else if (!x.is_static()) see(op_name + " of a dynamic slice" + (x.slice()->step > 1 ? " with steps" : ""));
        else if (x.slice()->step > 1) see(op_name + " of a slice with steps");
      }
      break;
    }
    case Opcode::dot:
      see(count("dot contracting", op.ints(Attr::lhs_contract).size(), 2));
      see(count("dot with batch dims", op.ints(Attr::lhs_batch).size(), 2));
      if (type(op.results[0]).dtype != type(op.operands[0]).dtype) see("dot to another dtype");
      if (num_elements(type(op.results[0]).shape) >= 1024) see("dot of 1024 results or more");
      break;
    case Opcode::program_id: see(count("program_id at depth", static_cast<size_t>(depth), 2)); break;
    case Opcode::for_:
    case Opcode::while_:
    case Opcode::if_:
    case Opcode::switch_:
      see(op_name + count(" at depth", static_cast<size_t>(depth), 2));
      see(op_name + count(" with results", op.results.size(), 2));
      for (const ir::Value v : op.results)
        if (!type(v).is_scalar()) see(op_name + " with a tile result");
      break;
    case Opcode::gather:
    case Opcode::scatter:
      see(count(op_name + " by indices", op.operands.size() - (op.code == Opcode::gather ? 1 : 2), 2));
      if (op.code == Opcode::scatter) see(op.has(Attr::kind) ? "scatter that combines" : "scatter that replaces");
      break;
    case Opcode::sort: see(count("sort by keys", static_cast<size_t>(op.attr(Attr::keys)), 2)); break;
    case Opcode::concatenate: see(count("concatenate parts", op.operands.size(), 3)); break;
    default: break;
  }
  if (ir::is_scan(op.code)) see(op_name + (op.attr_or(Attr::reverse, 0) ? " reverse" : " forward"));
  for (const ir::RegionId r : op.regions) see_region(k, r, depth + 1);
}

void Coverage::see_region(const ir::Kernel& k, ir::RegionId r, int depth) {
  for (const ir::OpId id : k.region(r).ops) see_op(k, k.op(id), depth), ++ops_seen_;
}

void Coverage::add_steps(const Case& c) {
  std::set<std::string> steps;
  CompileOptions options;
  options.dump = [&](std::string_view step, const ir::Kernel&, bool changed) {
    if (changed) steps.insert("step " + std::string(step));
  };
  try {
    compile(c.kernel, gpu_target(), options);
  } catch (const CompileError&) {
    steps.insert("refused for a GPU");
  }
  for (const std::string& step : steps) ++features_[step];
}

void Coverage::add(const Case& c) {
  ir::Kernel k = c.kernel;
  passes::optimize(k);  // what reaches lowering
  ++cases_;
  now_.clear();
  see(count("grid of rank", k.grid.size(), 5));
  int64_t programs = 1;
  for (const ir::GridAxis& a : k.grid) {
    const int64_t n = a.size.eval(c.dims);
    programs *= n;
    if (!a.size.is_static()) see("grid axis of run-time size");
    if (a.parallel) see("grid axis declared parallel");
    if (a.vmapped) see("grid axis of vmap");
  }
  if (programs == 0) see("empty grid");
  if (programs > 64) see("grid of more than 64 programs");
  if (programs > 1000) see("grid of more than 1000 programs");
  see(count("inputs", static_cast<size_t>(k.num_inputs - k.num_prefetch), 3));
  see(count("scalar-prefetch operands", static_cast<size_t>(k.num_prefetch), 2));
  see(count("outputs", static_cast<size_t>(k.num_outputs()), 3));
  for (size_t i = 0; i < k.blocks.size(); ++i) {
    const ir::BlockMapping& m = k.blocks[i];
    const std::string which = k.is_output(static_cast<int>(i)) ? "output" : "input";
    see(count(which + " of rank", m.array_shape.size(), 5));
    if (m.alias >= 0) see("output aliased to an input");
    if (m.alias >= 0 && k.shares_at_once(m.alias)) see("output aliased to an input, both in memory space any");
    if (!k.is_output(static_cast<int>(i)) && k.aliased_output(static_cast<int>(i)) < 0 &&
        k.is_stored(static_cast<int>(i)))
      see("input that is stored to");
    if (m.is_whole()) {
      see(static_cast<int>(i) < k.num_prefetch ? "scalar prefetch whole" : which + " whole");
      continue;
    }
    const auto& map = k.region(m.index_map()).ops;
    if (std::any_of(map.begin(), map.end(), [&](ir::OpId o) { return k.op(o).code == Opcode::load; }))
      see(which + " block that depends on data");
    int64_t elements = 1;
    for (size_t d = 0; d < m.block().size(); ++d) {
      const int64_t extent = m.array_shape[d].eval(c.dims);
      if (!m.array_shape[d].is_static()) see(which + " of run-time size");
      if (extent == 0) see(which + " without elements");
      if (!m.block()[d].seen()) {
        see(which + " squeezed");
        continue;
      }
      elements *= m.block()[d].size();
      if (m.block()[d].is_element())
        see(which + (m.block()[d].low() || m.block()[d].high() ? " of elements, padded" : " of elements"));
      if (m.block()[d].is_bounded()) see(which + " bounded");
      if (const auto* halo = m.block()[d].halo()) see(which + " with a halo, " + std::string(ir::name(halo->edge)));
      if (extent < m.block()[d].size()) see(which + " smaller than its block");
      if (m.block()[d].size() > 0 && extent % m.block()[d].size() != 0) see(which + " overhanging");
    }
    if (elements * size_bytes(m.dtype) > 16384) see(which + " block above 16 KiB");
    if (elements * size_bytes(m.dtype) > 49152) see(which + " block above 48 KiB");
  }
  for (const ir::Type& t : k.scratch) {
    see(count("scratch of rank", t.shape.size(), 3));
    if (num_elements(t.shape) * size_bytes(t.dtype) > 16384) see("scratch above 16 KiB");
  }
  see_region(k, k.body, 0);
  for (const std::string& f : now_) ++features_[f];
}

std::string Coverage::text() const {
  std::ostringstream s;
  s << cases_ << " cases with " << ops_seen_ / std::max<int64_t>(cases_, 1)
    << " ops each after the passes; cases with each feature:\n";
  for (const auto& [feature, n] : features_) s << "  " << n << "\t" << feature << "\n";
  s << "uses of each op by dtype:\n";
  for (const auto& [op, uses] : ops_) {
    s << "  " << op << ":";
    for (const auto& [t, n] : uses) s << " " << name(t) << " " << n;
    s << "\n";
  }
  for (const std::string& op : never()) s << "  " << op << ": NEVER\n";
  return s.str();
}

std::vector<std::string> Coverage::never() const {
  std::vector<std::string> missing;
  for (int i = 0; i < ir::kNumOpcodes; ++i) {
    const ir::OpInfo& op = ir::info(static_cast<Opcode>(i));
    const auto code = static_cast<Opcode>(i);
    if (op.tile && code != Opcode::yield && code != Opcode::report && code != Opcode::threads_meet &&
        !ops_.count(std::string(op.name)))
      missing.emplace_back(op.name);
  }
  return missing;
}

}  // namespace tessera::fuzz
