#include "tests/support/judge/judge.h"

#include <algorithm>
#include <cstring>
#include <spirv/unified1/spirv.hpp>
#include <utility>

#include "engine/base/error.h"
#include "tests/support/judge/machine.h"
#ifdef TESSERA_SPIRV_OPT
#include <spirv-tools/optimizer.hpp>
#endif

namespace tessera::judge {
namespace {

constexpr uint64_t kMostMemory = uint64_t{3} << 28;  // of all that a run needs

// As many workgroups as a call launches.
uint32_t launched(const Program& p, int64_t units, const Options& o) {
  if (units < 0 || units > INT32_MAX) throw SpecError(p.name + ": num_units is " + std::to_string(units), p.loc);
  if (p.max_workgroups > 0) units = std::min<int64_t>(units, p.max_workgroups);
  if (p.max_workgroups > 0 && o.max_workgroups > 0) units = std::min<int64_t>(units, o.max_workgroups);
  return static_cast<uint32_t>(units);
}

/// Folds the workgroups over the dispatch's dims, with some too many where that may happen.
void fold(Dispatch& d, const Program& p, uint32_t n, const Options& o, Random& random) {
  d.groups[0] = n;
  const std::optional<int64_t> known = p.num_units.value();
  if (known && *known <= o.max_workgroup_count) return;
  if (random.below(3) == 0) d.groups[1] = 1 + random.below(3), d.groups[2] = 1 + random.below(2);
  const uint32_t others = d.groups[1] * d.groups[2];
  d.groups[0] = (n + others - 1) / others;
}

// One run: the memory of the call, its dispatches, and what is checked afterwards.
class Run {
 public:
  Run(const Program& p, const std::vector<Array>& arrays, const DimValues& dims, const Options& options)
      : p_(p),
        arrays_(arrays),
        dims_(dims),
        options_(options),
        subgroup_size_(static_cast<uint32_t>(p.required_subgroup_size > 0 ? p.required_subgroup_size
                                                                          : std::max(1, options.subgroup_size))),
        m_(decode(p.spirv, subgroup_size_)),
        size_(m_.local_size[0] * m_.local_size[1] * m_.local_size[2]) {}

  Result run() {
    check_module();
    units_ = p_.num_units.eval(dims_);
    workgroups_ = launched(p_, units_, options_);
    d_.inexact = options_.inexact;
    d_.max_steps = options_.max_steps;
    d_.subgroup_size = subgroup_size_;
    fold(d_, p_, workgroups_, options_, random_);
    groups_ = uint64_t{d_.groups[0]} * d_.groups[1] * d_.groups[2];
    for (const Instr& i : m_.code)
      if (i.code == Code::load || i.code == Code::store) narrowest_ = std::min<uint32_t>(narrowest_, i.width / 8);
    if (needed_memory() > kMostMemory) {
      result_.unfinished = true;
      return std::move(result_);
    }
    add_arguments();
    if (p_.scratch_bytes > 0) add_scratch();
    if (p_.report_bytes > 0) add_report();
    if (p_.indirect_table) {
      table_ = &memory_.add("the table of arguments", static_cast<uint64_t>(p_.push_bytes()), 16, random_.next());
      table_->may_write = false;
    }
    memory_.sort();
    cut();
    dispatch();
    if (options_.loops && workgroups_ > 0 && !result_.unfinished && reports_.all.empty()) check_loops();
    take_outputs();
    result_.reports = std::move(reports_.all);
    return std::move(result_);
  }

 private:
  void wrong(const std::string& what) {
    reports_.add(Kind::module, static_cast<uint32_t>(reports_.all.size()), 0, [&] { return what; });
  }

  void check_module() {
    for (const std::string& s : m_.problems) wrong(s);
    if (size_ != static_cast<uint32_t>(p_.workgroup_size))
      wrong("the module has " + std::to_string(size_) + " invocations, its Program " +
            std::to_string(p_.workgroup_size));
    if (m_.shared_bytes > static_cast<uint64_t>((p_.shared_bytes + 3) / 4 * 4))
      wrong("the module has " + std::to_string(m_.shared_bytes) + " bytes of shared memory, its Program " +
            std::to_string(p_.shared_bytes));
    if (const auto pushed = static_cast<uint64_t>(p_.indirect_table ? 8 : p_.push_bytes()); m_.push_bytes > pushed)
      wrong("the module reads " + std::to_string(m_.push_bytes) + " bytes of push constants, its Program has " +
            std::to_string(pushed));
  }

  uint64_t needed_memory() const {
    const uint64_t apart = m_.waits || m_.has_atomics ? size_ * (m_.has_atomics ? 3u : 1u) : 1;
    const uint64_t scratch_cells = static_cast<uint64_t>(p_.scratch_bytes) * groups_ / narrowest_;
    uint64_t needed =
        apart * m_.slots.size() * sizeof(Slot) + scratch_cells * sizeof(Cell) + m_.shared_bytes / 4 * sizeof(Cell);
    for (size_t i = 0; i < arrays_.size(); ++i)
      needed += static_cast<uint64_t>(arrays_[i].nbytes()) * 2 +
                (p_.args[i].written ? static_cast<uint64_t>(arrays_[i].size()) * 2 * sizeof(Cell) : 0);
    return needed;
  }

  static void make_cells(Object& o) { o.cells.resize((o.bytes.size() + o.granule - 1) / o.granule); }
  void fill(Object& o) {
    for (std::byte& b : o.bytes) b = static_cast<std::byte>(random_.next() >> 32);
  }

  void add_arguments() {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      Object& o = memory_.add(p_.args[i].origin, static_cast<uint64_t>(arrays_[i].nbytes()),
                              static_cast<uint64_t>(p_.alignment), random_.next());
      fill(o);
      if (o.size) std::memcpy(o.bytes.data(), std::as_const(arrays_[i]).bytes(), o.size);
      o.element = static_cast<uint32_t>(size_bytes(arrays_[i].dtype()));
      o.granule = std::min(o.element, 4u);
      o.may_read = p_.args[i].read, o.may_write = p_.args[i].written;
      if (o.may_write) make_cells(o);
      args_.push_back(&o);
      addresses_.push_back(p_.args[i].by_value ? arrays_[i].element_bits(0) : o.base);
      behind_.emplace_back(o.bytes.begin() + static_cast<std::ptrdiff_t>(o.size), o.bytes.end());
    }
  }

  void add_scratch() {
    Object& o = memory_.add("scratch", static_cast<uint64_t>(p_.scratch_bytes) * groups_, 64, random_.next());
    fill(o);
    std::fill(o.poison.begin(), o.poison.end(), uint8_t{0xff});
    o.slice = static_cast<uint64_t>(p_.scratch_bytes);
    o.element = o.granule = narrowest_;
    make_cells(o);
    addresses_.push_back(o.base);
  }

  void add_report() {
    const uint64_t room = p_.prints.empty() ? 0 : static_cast<uint64_t>(std::max<int64_t>(options_.print_bytes / 4, 0));
    report_ = &memory_.add("the report", static_cast<uint64_t>(p_.report_bytes) + 4 * room, 64, random_.next());
    if (room) {
      const auto words = static_cast<uint32_t>(room);
      std::memcpy(&report_->bytes[4 * PrintReport::kCapacity], &words, 4);
    }
    make_cells(*report_);
    addresses_.push_back(report_->base);  // code that tests whether loops were cut relies on its lowest bits
  }

  // What a dispatch pushes: of the units and steps that it runs.
  std::vector<std::byte> push(int64_t first, int64_t end, int64_t first_step, int64_t end_step) {
    std::vector<std::byte> block;
    const auto put = [&](const auto& v) {
      const size_t at = block.size();
      block.resize(at + sizeof v);
      std::memcpy(&block[at], &v, sizeof v);
    };
    for (size_t i = 0; i < addresses_.size(); ++i)
      put(addresses_[i] -
          (p_.scratch_bytes > 0 && i == args_.size() ? static_cast<uint64_t>(first * p_.scratch_bytes) : 0));
    for (const bool wide : {true, false})
      for (size_t i = 0; i < p_.extents.size(); ++i) {
        if (p_.extent_is_64.at(i) != wide) continue;
        const auto at = static_cast<int>(i);
        const bool steps = p_.steps_extent >= 0 && (at == p_.steps_extent || at == p_.steps_extent + 1);
        const int64_t v = steps                   ? (at == p_.steps_extent ? first_step : end_step)
                          : at == p_.units_extent ? end
                                                  : p_.extents[i].eval(dims_);
        if (wide) put(v);
        else put(static_cast<int32_t>(v));
      }
    if (table_) {
      std::copy(block.begin(), block.end(), table_->bytes.begin());
      block.clear();
      put(table_->base);
    }
    return block;
  }

  // In one dispatch, or cut as a launch cuts what takes too long: each part runs some of the units, with workgroups
  // numbered from a base. Where loops are cut, in dispatches of some steps each.
  void cut() {
    const auto groups = static_cast<int64_t>(groups_);
    parts_ = p_.units_extent >= 0 && units_ > groups && random_.below(2) ? 2 + random_.below(2) : 1;
    units_of_part_ = parts_ == 1 ? units_ : cdiv(cdiv(units_, parts_), groups) * groups;
    if (p_.steps_extent < 0) return;
    all_steps_ = p_.extents[static_cast<size_t>(p_.steps_extent) + 1].eval(dims_);
    steps_ =
        std::clamp<int64_t>(options_.steps > 0 ? options_.steps : steps_at_once(p_, all_steps_, &dims_), 1, all_steps_);
  }

  // Whether there are steps from this one on; an open-ended program reports it.
  bool steps_left(int64_t step) {
    if (!p_.open_ended) return step < all_steps_;
    uint32_t bits;
    std::memcpy(&bits, report_->bytes.data(), sizeof bits);
    const bool unfinished = (bits & Program::kUnfinished) != 0;
    bits &= ~Program::kUnfinished;
    std::memcpy(report_->bytes.data(), &bits, sizeof bits);
    return step == 0 || unfinished;
  }

  void dispatch() {
    for (int64_t first = 0; first < units_ && workgroups_ > 0 && !result_.unfinished; first += units_of_part_) {
      if (parts_ > 1)
        d_.groups[0] = static_cast<uint32_t>(groups_), d_.groups[1] = d_.groups[2] = 1,
        d_.base[1] = static_cast<uint32_t>(first / static_cast<int64_t>(groups_));
      for (int64_t step = 0; !result_.unfinished && steps_left(step); step += steps_) {
        const int64_t begin = !p_.open_ended ? step : Program::kTells | (step > 0 ? Program::kGoesOn : 0);
        d_.push = push(first, parts_ == 1 && p_.units_extent < 0 ? units_ : std::min(first + units_of_part_, units_),
                       begin, p_.open_ended ? steps_ : std::min(step + steps_, all_steps_));
        Machine machine(m_, memory_, reports_, random_, d_);
        machine.run();
        memory_.forget();
        result_.steps += machine.steps;
        result_.unfinished = machine.stopped;
        result_.most_iterations = std::max(result_.most_iterations, machine.most_iterations);
      }
    }
  }

  void check_loops() {
    const LoopTotal counted = total_iterations(
        *options_.loops, p_.max_workgroups > 0 ? cdiv(units_, static_cast<int64_t>(groups_)) : 0, &dims_);
    // the loop that tests whether loops were cut
    const int64_t own = (p_.max_loop_iterations > 0 ? 3 : 0) + (p_.steps_extent >= 0 ? steps_ : 0);
    if (counted.at_most && result_.most_iterations > *counted.at_most + own)
      wrong("a subgroup runs " + std::to_string(result_.most_iterations) + " loop iterations, but at most " +
            std::to_string(*counted.at_most + own) + " are counted");
    if (parts_ == 1 && p_.steps_extent < 0 && result_.most_iterations < counted.at_least)
      wrong("no subgroup runs more than " + std::to_string(result_.most_iterations) +
            " loop iterations, but at least " + std::to_string(counted.at_least) + " are counted");
  }

  void take_outputs() {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const Object& o = *args_[i];
      if (!std::equal(behind_[i].begin(), behind_[i].end(), o.bytes.begin() + static_cast<std::ptrdiff_t>(o.size)))
        wrong("what lies behind " + o.name + " is changed");
      if (!p_.args[i].is_output) continue;
      Array a(arrays_[i].shape(), arrays_[i].dtype());
      if (o.size) std::memcpy(a.bytes(), o.bytes.data(), o.size);
      result_.outputs.push_back(std::move(a));
    }
    if (!report_) return;
    result_.report_words.resize(report_->bytes.size() / 4);
    std::memcpy(result_.report_words.data(), report_->bytes.data(), report_->bytes.size());
  }

  const Program& p_;
  const std::vector<Array>& arrays_;
  const DimValues& dims_;
  const Options& options_;
  const uint32_t subgroup_size_;
  const Module m_;
  const uint32_t size_;  // of a workgroup
  Reports reports_{m_, p_.name, options_.max_reports};
  Memory memory_{reports_};
  Random random_{Random{options_.seed}.next()};
  Result result_;
  Dispatch d_;
  int64_t units_ = 0;
  uint32_t workgroups_ = 0;
  uint64_t groups_ = 0;     // dispatched, folded over the dims
  uint32_t narrowest_ = 4;  // access, in bytes
  std::vector<Object*> args_;
  std::vector<uint64_t> addresses_;
  std::vector<std::vector<std::byte>> behind_;  // each argument: its bytes at first
  Object *report_ = nullptr, *table_ = nullptr;
  int64_t parts_ = 1, units_of_part_ = 0;
  int64_t all_steps_ = 1, steps_ = 1;  // of a dispatch
};

}  // namespace

Result run(const Program& p, const std::vector<Array>& arrays, const DimValues& dims, const Options& options) {
  if (arrays.size() != p.args.size())
    throw SpecError(
        p.name + ": " + std::to_string(arrays.size()) + " arrays for " + std::to_string(p.args.size()) + " arguments",
        p.loc);
  return Run(p, arrays, dims, options).run();
}

bool has_matrices(const std::vector<uint32_t>& spirv) {
  constexpr uint32_t kCooperativeMatrix = 6022;
  for (size_t at = 5; at + 1 < spirv.size() && (spirv[at] & 0xffff) == spv::OpCapability; at += spirv[at] >> 16)
    if (spirv[at + 1] == kCooperativeMatrix) return true;
  return false;
}

std::optional<std::vector<uint32_t>> optimised([[maybe_unused]] const std::vector<uint32_t>& spirv) {
#ifdef TESSERA_SPIRV_OPT
  if (has_matrices(spirv)) return std::nullopt;  // some systems' SPIRV-Tools do not know them
  spvtools::Optimizer optimizer(SPV_ENV_VULKAN_1_3);
  std::string log;
  optimizer.SetMessageConsumer([&](spv_message_level_t, const char*, const spv_position_t&, const char* message) {
    log += std::string(message) + "\n";
  });
  optimizer.RegisterPerformancePasses();
  std::vector<uint32_t> out;
  spvtools::OptimizerOptions options;
  options.set_run_validator(false);
  if (!optimizer.Run(spirv.data(), spirv.size(), &out, options)) throw InternalError("spirv-opt: " + log);
  return out;
#else
  return std::nullopt;
#endif
}

}  // namespace tessera::judge
