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

}  // namespace

Result run(const Program& p, const std::vector<Array>& arrays, const DimValues& dims, const Options& options) {
  if (arrays.size() != p.args.size())
    throw SpecError(
        p.name + ": " + std::to_string(arrays.size()) + " arrays for " + std::to_string(p.args.size()) + " arguments",
        p.loc);
  const auto subgroup_size = static_cast<uint32_t>(p.required_subgroup_size > 0 ? p.required_subgroup_size
                                                                                : std::max(1, options.subgroup_size));
  const Module m = decode(p.spirv, subgroup_size);
  Reports reports(m, p.name, options.max_reports);
  Memory memory(reports);
  Random random{Random{options.seed}.next()};
  Result result;

  const auto wrong = [&](const std::string& what) {
    reports.add(Kind::module, static_cast<uint32_t>(reports.all.size()), 0, [&] { return what; });
  };
  for (const std::string& s : m.problems) wrong(s);
  const uint32_t size = m.local_size[0] * m.local_size[1] * m.local_size[2];
  if (size != static_cast<uint32_t>(p.workgroup_size))
    wrong("the module has " + std::to_string(size) + " invocations, its Program " + std::to_string(p.workgroup_size));
  if (m.shared_bytes > static_cast<uint64_t>((p.shared_bytes + 3) / 4 * 4))
    wrong("the module has " + std::to_string(m.shared_bytes) + " bytes of shared memory, its Program " +
          std::to_string(p.shared_bytes));
  if (const auto pushed = static_cast<uint64_t>(p.indirect_table ? 8 : p.push_bytes()); m.push_bytes > pushed)
    wrong("the module reads " + std::to_string(m.push_bytes) + " bytes of push constants, its Program has " +
          std::to_string(pushed));

  Dispatch d;
  d.inexact = options.inexact;
  d.max_steps = options.max_steps;
  d.subgroup_size = subgroup_size;
  const int64_t units = p.num_units.eval(dims);
  const uint32_t workgroups = launched(p, units, options);
  fold(d, p, workgroups, options, random);
  const uint64_t groups = uint64_t{d.groups[0]} * d.groups[1] * d.groups[2];

  // The memory of the call.
  uint32_t narrowest = 4;
  for (const Instr& i : m.code)
    if (i.code == Code::load || i.code == Code::store) narrowest = std::min<uint32_t>(narrowest, i.width / 8);
  const uint64_t apart = m.waits || m.has_atomics ? size * (m.has_atomics ? 3u : 1u) : 1;
  const uint64_t scratch_cells = static_cast<uint64_t>(p.scratch_bytes) * groups / narrowest;
  uint64_t needed =
      apart * m.slots.size() * sizeof(Slot) + scratch_cells * sizeof(Cell) + m.shared_bytes / 4 * sizeof(Cell);
  for (size_t i = 0; i < arrays.size(); ++i)
    needed += static_cast<uint64_t>(arrays[i].nbytes()) * 2 +
              (p.args[i].written ? static_cast<uint64_t>(arrays[i].size()) * 2 * sizeof(Cell) : 0);
  if (needed > kMostMemory) {
    result.unfinished = true;
    return result;
  }
  const auto make_cells = [](Object& o) { o.cells.resize((o.bytes.size() + o.granule - 1) / o.granule); };
  const auto fill = [&](Object& o) {
    for (std::byte& b : o.bytes) b = static_cast<std::byte>(random.next() >> 32);
  };
  std::vector<Object*> args;
  std::vector<uint64_t> addresses;
  for (size_t i = 0; i < arrays.size(); ++i) {
    Object& o = memory.add(p.args[i].origin, static_cast<uint64_t>(arrays[i].nbytes()),
                           static_cast<uint64_t>(p.alignment), random.next());
    fill(o);
    if (o.size) std::memcpy(o.bytes.data(), std::as_const(arrays[i]).bytes(), o.size);
    o.element = static_cast<uint32_t>(size_bytes(arrays[i].dtype()));
    o.granule = std::min(o.element, 4u);
    o.may_read = p.args[i].read, o.may_write = p.args[i].written;
    if (o.may_write) make_cells(o);
    args.push_back(&o);
    addresses.push_back(o.base);
  }
  if (p.scratch_bytes > 0) {
    Object& o = memory.add("scratch", static_cast<uint64_t>(p.scratch_bytes) * groups, 64, random.next());
    fill(o);
    std::fill(o.poison.begin(), o.poison.end(), uint8_t{0xff});
    o.slice = static_cast<uint64_t>(p.scratch_bytes);
    o.element = o.granule = narrowest;
    make_cells(o);
    addresses.push_back(o.base);
  }
  Object* report = nullptr;
  if (p.report_bytes > 0) {
    const uint64_t room = p.prints.empty() ? 0 : static_cast<uint64_t>(std::max<int64_t>(options.print_bytes / 4, 0));
    report = &memory.add("the report", static_cast<uint64_t>(p.report_bytes) + 4 * room, 64, random.next());
    if (room) {
      const auto words = static_cast<uint32_t>(room);
      std::memcpy(&report->bytes[4 * PrintReport::kCapacity], &words, 4);
    }
    make_cells(*report);
    addresses.push_back(report->base);  // code that asks whether loops were cut relies on its lowest bits
  }
  Object* table = nullptr;
  if (p.indirect_table) {
    table = &memory.add("the table of arguments", static_cast<uint64_t>(p.push_bytes()), 16, random.next());
    table->may_write = false;
  }
  const auto push = [&](int64_t first, int64_t end, int64_t first_step, int64_t end_step) {
    std::vector<std::byte> block;
    const auto put = [&](const auto& v) {
      const size_t at = block.size();
      block.resize(at + sizeof v);
      std::memcpy(&block[at], &v, sizeof v);
    };
    for (size_t i = 0; i < addresses.size(); ++i)
      put(addresses[i] -
          (p.scratch_bytes > 0 && i == args.size() ? static_cast<uint64_t>(first * p.scratch_bytes) : 0));
    for (const bool wide : {true, false})
      for (size_t i = 0; i < p.extents.size(); ++i) {
        if (p.extent_is_64.at(i) != wide) continue;
        const auto at = static_cast<int>(i);
        const bool steps = p.steps_extent >= 0 && (at == p.steps_extent || at == p.steps_extent + 1);
        const int64_t v = steps                  ? (at == p.steps_extent ? first_step : end_step)
                          : at == p.units_extent ? end
                                                 : p.extents[i].eval(dims);
        if (wide) put(v);
        else put(static_cast<int32_t>(v));
      }
    if (table) {
      std::copy(block.begin(), block.end(), table->bytes.begin());
      block.clear();
      put(table->base);
    }
    return block;
  };
  std::vector<std::vector<std::byte>> before;
  for (const Object* o : args)
    before.emplace_back(o->bytes.begin() + static_cast<std::ptrdiff_t>(o->size), o->bytes.end());
  memory.sort();

  // In one dispatch, or cut as a launch cuts what takes too long: each part runs some of the units, with workgroups
  // numbered from a base.
  const int64_t parts =
      p.units_extent >= 0 && units > static_cast<int64_t>(groups) && random.below(2) ? 2 + random.below(2) : 1;
  const int64_t per =
      parts == 1 ? units : cdiv(cdiv(units, parts), static_cast<int64_t>(groups)) * static_cast<int64_t>(groups);
  // Where loops are cut, in dispatches of some steps each.
  const int64_t total = p.steps_extent >= 0 ? p.extents[static_cast<size_t>(p.steps_extent) + 1].eval(dims) : 1;
  const int64_t each =
      p.steps_extent < 0
          ? 1
          : std::clamp<int64_t>(options.steps > 0 ? options.steps : steps_at_once(p, total, &dims), 1, total);
  const auto left = [&](int64_t step) {
    if (!p.open_ended) return step < total;
    uint32_t bits;
    std::memcpy(&bits, report->bytes.data(), sizeof bits);
    const bool unfinished = (bits & Program::kUnfinished) != 0;
    bits &= ~Program::kUnfinished;
    std::memcpy(report->bytes.data(), &bits, sizeof bits);
    return step == 0 || unfinished;
  };
  for (int64_t first = 0; first < units && workgroups > 0 && !result.unfinished; first += per) {
    if (parts > 1)
      d.groups[0] = static_cast<uint32_t>(groups), d.groups[1] = d.groups[2] = 1,
      d.base[1] = static_cast<uint32_t>(first / static_cast<int64_t>(groups));
    for (int64_t step = 0; !result.unfinished && left(step); step += each) {
      const int64_t begin = !p.open_ended ? step : Program::kTells | (step > 0 ? Program::kGoesOn : 0);
      d.push = push(first, parts == 1 && p.units_extent < 0 ? units : std::min(first + per, units), begin,
                    p.open_ended ? each : std::min(step + each, total));
      Machine machine(m, memory, reports, random, d);
      machine.run();
      memory.forget();
      result.steps += machine.steps;
      result.unfinished = machine.stopped;
      result.most_iterations = std::max(result.most_iterations, machine.most_iterations);
    }
  }
  if (options.loops && workgroups > 0 && !result.unfinished && reports.all.empty()) {
    const LoopTotal counted =
        total_iterations(*options.loops, p.max_workgroups > 0 ? cdiv(units, static_cast<int64_t>(groups)) : 0, &dims);
    // that which asks whether loops were cut
    const int64_t own = (p.max_loop_iterations > 0 ? 3 : 0) + (p.steps_extent >= 0 ? each : 0);
    if (counted.at_most && result.most_iterations > *counted.at_most + own)
      wrong("a subgroup runs " + std::to_string(result.most_iterations) + " loop iterations, but at most " +
            std::to_string(*counted.at_most + own) + " are counted");
    if (parts == 1 && p.steps_extent < 0 && result.most_iterations < counted.at_least)
      wrong("no subgroup runs more than " + std::to_string(result.most_iterations) + " loop iterations, but at least " +
            std::to_string(counted.at_least) + " are counted");
  }
  for (size_t i = 0; i < arrays.size(); ++i) {
    const Object& o = *args[i];
    if (!std::equal(before[i].begin(), before[i].end(), o.bytes.begin() + static_cast<std::ptrdiff_t>(o.size)))
      wrong("what lies behind " + o.name + " is changed");
    if (!p.args[i].is_output) continue;
    Array a(arrays[i].shape(), arrays[i].dtype());
    if (o.size) std::memcpy(a.bytes(), o.bytes.data(), o.size);
    result.outputs.push_back(std::move(a));
  }
  if (report) {
    result.report_words.resize(report->bytes.size() / 4);
    std::memcpy(result.report_words.data(), report->bytes.data(), report->bytes.size());
  }
  result.reports = std::move(reports.all);
  return result;
}

bool has_matrices(const std::vector<uint32_t>& spirv) {
  constexpr uint32_t kCooperativeMatrix = 6022;
  for (size_t at = 5; at + 1 < spirv.size() && (spirv[at] & 0xffff) == spv::OpCapability; at += spirv[at] >> 16)
    if (spirv[at + 1] == kCooperativeMatrix) return true;
  return false;
}

std::optional<std::vector<uint32_t>> optimised(const std::vector<uint32_t>& spirv) {
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
  (void)spirv;
  return std::nullopt;
#endif
}

}  // namespace tessera::judge
