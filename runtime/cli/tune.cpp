// tessera tune: measures a handful of ScheduleChoices for each kernel on a device, and writes what is faster than the
// cost model's to a tuning file (runtime/call/tuning.h).
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>

#include "engine/base/npy.h"
#include "engine/base/number.h"
#include "engine/base/plural.h"
#include "engine/base/splitmix64.h"
#include "engine/interpreter/interpreter.h"
#include "runtime/call/call.h"
#include "runtime/call/graph.h"
#include "runtime/call/tuning.h"
#include "runtime/cli/commands.h"

namespace tessera::cli {
namespace {
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using reference::from_double;
using reference::to_double;

constexpr double kWorthIt = 0.97;  // of the cost model's time: less is noise
constexpr int kFewest = 5, kMost = 101;

double median(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g ms", 1e3 * seconds);
  return text;
}

/// One ahead of the other, of the numbers that are alone worth a try.
std::vector<ScheduleChoices> single_choices(bool gpu) {
  std::vector<ScheduleChoices> all;
  const auto add = [&](int32_t ScheduleChoices::* which, std::initializer_list<int32_t> values) {
    for (const int32_t v : values) all.emplace_back().*which = v;
  };
  if (gpu) {
    add(&ScheduleChoices::workgroup, {32, 64, 128, 256, 512, 1024});
    add(&ScheduleChoices::smaller, {1, 2});
    add(&ScheduleChoices::registers, {1, 2});
    add(&ScheduleChoices::spread, {-2, 2});
  }
  add(&ScheduleChoices::work, {-2, -1, 1, 2});
  return all;
}
/// a, and where it says nothing b.
ScheduleChoices both(ScheduleChoices a, const ScheduleChoices& b) {
  for (const auto which : {&ScheduleChoices::workgroup, &ScheduleChoices::smaller, &ScheduleChoices::registers,
                           &ScheduleChoices::work, &ScheduleChoices::spread})
    if (a.*which == 0) a.*which = b.*which;
  return a;
}

/// Numbers that kernels of any kind can do with: floats from -1 to 1, integers from 0 to 3.
Array contents(DType t, const Shape& shape, SplitMix64& random) {
  Array a(shape, t);
  for (int64_t i = 0; i < a.size(); ++i) {
    const double v = is_float(t) ? static_cast<double>(random.below(2001)) / 1000 - 1
                                 : static_cast<double>(random.below(t == DType::boolean ? 2 : 4));
    a.set_element_bits(i, t == DType::boolean ? static_cast<uint64_t>(v) : from_double(t, v));
  }
  return a;
}

/// Whether two schedules computed the same: to the bit, but of floats, whose sums may come in another order, to a
/// hundredth of the largest number in the array.
bool agree(const std::vector<Array>& a, const std::vector<Array>& b) {
  for (size_t n = 0; n < a.size(); ++n) {
    const DType t = a[n].dtype();
    double largest = 0;
    if (is_float(t))
      for (int64_t i = 0; i < a[n].size(); ++i)
        if (const double v = std::abs(to_double(t, a[n].element_bits(i))); std::isfinite(v))
          largest = std::max(largest, v);
    for (int64_t i = 0; i < a[n].size(); ++i) {
      const uint64_t x = a[n].element_bits(i), y = b[n].element_bits(i);
      if (x == y) continue;
      if (!is_float(t)) return false;
      const double v = to_double(t, x), w = to_double(t, y);
      if (std::isnan(v) && std::isnan(w)) continue;
      if (!(std::abs(v - w) <= 0.01 * largest)) return false;
    }
  }
  return true;
}

/// The search for one kernel.
class Search {
 public:
  Search(const Device& device, const ir::Kernel& kernel, const std::vector<Array>& inputs, const DimValues& dims,
         const TuneArguments& a)
      : device_(device), kernel_(kernel), graph_(graph_of(kernel, inputs, dims)), a_(a) {
    for (const Array& x : inputs) inputs_.emplace_back(device, x);
  }

  /// What to write into the file; none: nothing is faster.
  std::optional<TunedKernel> run() {
    if (!add({})) return std::nullopt;  // it says why
    for (const ScheduleChoices& c : single_choices(device_.target().kind == Target::Kind::gpu)) add(c);
    measure(a_.seconds / 2);
    std::vector<ScheduleChoices> ahead;  // the fastest first
    std::sort(candidates_.begin() + 1, candidates_.end(),
              [](const Candidate& x, const Candidate& y) { return x.time() < y.time(); });
    for (size_t i = 1; i < candidates_.size() && ahead.size() < 4; ++i)
      if (candidates_[i].time() < kWorthIt * candidates_[0].time()) ahead.push_back(candidates_[i].choices);
    candidates_.resize(std::min<size_t>(candidates_.size(), 1 + ahead.size()));
    for (size_t i = 1; i < ahead.size(); ++i)
      if (const ScheduleChoices c = both(ahead[0], ahead[i]); c != ahead[0]) add(c);
    for (Candidate& c : candidates_) c.times.clear();
    if (candidates_.size() > 1) measure(a_.seconds / 2);
    const auto best = std::min_element(candidates_.begin(), candidates_.end(),
                                       [](const Candidate& x, const Candidate& y) { return x.time() < y.time(); });
    if (candidates_.size() == 1 || best->time() >= kWorthIt * candidates_[0].time()) return std::nullopt;
    return TunedKernel{kernel_.name, best->choices, candidates_[0].time(), best->time()};
  }
  size_t tried() const { return tried_; }

 private:
  struct Candidate {
    ScheduleChoices choices;
    std::unique_ptr<CompiledGraph> graph;
    std::vector<double> times;  // seconds of the device
    double time() const { return times.empty() ? INFINITY : median(times); }
  };

  void say(const ScheduleChoices& c, const std::string& what) const {
    std::cerr << kernel_.name << ": " << to_string(c) << ": " << what.substr(0, what.find('\n')) << "\n";
  }

  /// Compiles and calls it once; false if it is no candidate, which it says unless its code is another one's.
  bool add(const ScheduleChoices& c) {
    Tuning one;
    one.at(device_.info())[tuning_digest(kernel_)] = {kernel_.name, c};
    use_tuning(device_, one);
    try {
      const Program& p = load(device_, kernel_).program();
      std::string code(reinterpret_cast<const char*>(p.spirv.data()), p.spirv.size() * sizeof(p.spirv[0]));
      if (!seen_.insert(std::move(code)).second) return false;
      ++tried_;
      Candidate made{c, std::make_unique<CompiledGraph>(load(device_, graph_, {.timestamps = true})), {}};
      std::vector<Array> results;
      for (const DeviceArray& x : (*made.graph)(inputs_)) results.push_back(x.download());
      if (candidates_.empty()) results_ = std::move(results);
      else if (!agree(results_, results)) {
        say(c, "computes something else than the cost model's choice; it is left out");
        return false;
      }
      candidates_.push_back(std::move(made));
      return true;
    } catch (const Error& e) {
      say(c, std::string("left out: ") + e.what());
      return false;
    }
  }

  /// Calls all candidates in turns for about so many seconds.
  void measure(double seconds) {
    const auto start = Clock::now();
    for (int round = 0; round < kMost; ++round) {
      for (Candidate& c : candidates_) {
        const auto before = Clock::now();
        (*c.graph)(inputs_);
        double end = 0;
        for (const TimedCommand& t : c.graph->trace()) end = std::max(end, 1e-9 * t.end);
        c.times.push_back(end > 0 ? end : std::chrono::duration<double>(Clock::now() - before).count());
      }
      if (round + 1 >= kFewest && std::chrono::duration<double>(Clock::now() - start).count() > seconds) return;
    }
  }

  const Device& device_;
  const ir::Kernel& kernel_;
  Graph graph_;
  const TuneArguments& a_;
  std::vector<DeviceArray> inputs_;
  std::vector<Candidate> candidates_;  // first the cost model's
  std::vector<Array> results_;         // of that
  std::set<std::string> seen_;         // code
  size_t tried_ = 0;
};

std::vector<std::string> kernel_files(const std::vector<std::string>& names) {
  std::vector<std::string> files;
  for (const std::string& name : names) {
    if (!fs::is_directory(name)) {
      files.push_back(name);
      continue;
    }
    std::vector<std::string> inside;
    for (const auto& entry : fs::directory_iterator(name))
      if (entry.path().extension() == ".tir") inside.push_back(entry.path().string());
    if (inside.empty()) throw UsageError(name + ": the folder has no .tir files");
    std::sort(inside.begin(), inside.end());
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}
/// What the file has of other devices and kernels. One of another build begins anew, with a line.
Tuning known(const std::string& file) {
  if (!fs::exists(file)) return {};
  try {
    return read_tuning(file);
  } catch (const SpecError& e) {
    if (!is_tuning(file))
      throw UsageError(std::string(e.what()), {}, "it is not overwritten: name another file with -o");
    std::cerr << "note: " << e.what() << "; it is written anew\n";
    return {};
  }
}
}  // namespace

void tune(const TuneArguments& a) {
  if (interpreter_selected(a.device) || cuda_selected(a.device))
    throw UsageError("tessera tune times Vulkan's devices, and " +
                     (a.device.empty() ? device_in_environment() : a.device) + " is none");
  const std::vector<std::string> files = kernel_files(a.files);
  if (!a.in.empty() && files.size() != 1)
    throw UsageError("--in gives the inputs of one kernel, but there are " + std::to_string(files.size()));
  const DimValues dims = parse_dims(a.dims);
  DeviceOptions options;
  options.select = a.device;
  const Device device(options);
  Tuning tuning = known(a.output);
  Tuning::Kernels& tuned = tuning.at(device.info());
  std::vector<ir::Kernel> kernels;  // all are read first: what is wrong with one is said at once
  for (const std::string& file : files) kernels.push_back(read_kernel(file));
  size_t faster = 0, done = 0;
  for (const ir::Kernel& k : kernels) {
    std::vector<Array> inputs;
    SplitMix64 random{1};
    if (!a.in.empty() && a.in.size() != static_cast<size_t>(k.num_inputs))
      throw UsageError(k.name + " takes " + plural(static_cast<size_t>(k.num_inputs), "input") + " but --in names " +
                       std::to_string(a.in.size()));
    for (int i = 0; i < k.num_inputs; ++i) {
      const DType t = k.blocks[static_cast<size_t>(i)].dtype;
      inputs.push_back(a.in.empty() ? contents(t, bind_shape(k, i, dims), random)
                                    : read_npy(a.in[static_cast<size_t>(i)], t));
    }
    Search search(device, k, inputs, dims, a);
    const std::optional<TunedKernel> best = search.run();
    ++done;
    tuned.erase(tuning_digest(k));
    if (best) tuned[tuning_digest(k)] = *best, ++faster;
    std::cout << "[" << done << "/" << kernels.size() << "] " << k.name << ": ";
    if (best)
      std::cout << milliseconds(best->before) << " to " << milliseconds(best->after) << " by "
                << to_string(best->choices);
    else std::cout << "nothing is faster than the cost model's choice";
    std::cout << ", of " << plural(search.tried(), "schedule") << std::endl;
    write_tuning(a.output, tuning);  // what is known so far, should someone stop this
  }
  std::cout << a.output << ": " << plural(faster, "kernel") << " of " << done << " faster on " << device.info().name
            << "; TESSERA_TUNING=" << a.output << " has programs use it\n";
}

}  // namespace tessera::cli
