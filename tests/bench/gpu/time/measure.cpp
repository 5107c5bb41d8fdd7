#include "tests/bench/gpu/time/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>

#include "codegen/program/program.h"
#include "engine/base/error.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"

namespace tessera::bench {
namespace {

using nlohmann::json;

template <class T, class F> Loaded<T> attempt(F make) {
  Loaded<T> l;
  const auto start = std::chrono::steady_clock::now();
  try {
    l.program = make();
  } catch (const std::exception& e) {
    l.error = e.what();
  }
  l.ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return l;
}

constexpr const char* kLittle =
    "tir 1\nkernel @little\ngrid (1)\nin f32[64] block (64) map (%i) { yield %i }\nout f32[64] block (64) map (%i) { "
    "yield %i }\nbody (%x, %o) {\n  %a = load %x[0:64]\n  store %o[0:64], %a\n  yield\n}\n";

json times(const Samples& s) {
  return {{"median", s.median()},    {"min", s.part(0)},      {"max", s.part(1)},
          {"quarter", s.part(0.25)}, {"three", s.part(0.75)}, {"samples", s.seconds.size()},
          {"repeats", s.repeats}};
}

/// The greatest of the outputs' differences, as text where it is no number that JSON has.
json difference_of(const std::vector<Array>& a, const std::vector<Array>& b) {
  double most = a.size() == b.size() ? 0 : HUGE_VAL;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) most = std::max(most, difference(a[i], b[i]));
  return most < HUGE_VAL ? json(most) : json("inf");
}
bool too_far(const json& difference, double tolerance) {
  return difference.is_string() || (difference.is_number() && difference.get<double>() > tolerance);
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

/// A way to compute the kernel: what is said of it, and what runs it.
struct Machine::Line {
  json says;
  std::unique_ptr<Contender> runs;
  std::vector<Array> outputs;
};

Machine::Machine(const MeasureOptions& options) : options_(options) {
  try {
    vulkan_ = std::make_unique<VulkanTimer>(DeviceOptions{});
  } catch (const std::exception& e) {
    vulkan_error_ = e.what();
  }
  if (!options.cuda) return;
  try {
    cuda_ = CudaTimer::open(options.cuda_library, vulkan_ ? vulkan_->device().info().name : "");
    if (!cuda_) cuda_error_ = "there is no driver of CUDA, or no GPU";
  } catch (const std::exception& e) {
    cuda_error_ = e.what();
  }
}

json Machine::describe() const {
  json out;
  if (vulkan_) {
    const DeviceInfo& info = vulkan_->device().info();
    out["vulkan"] = {{"device", info.name},
                     {"driver", info.driver},
                     {"api", info.api_version},
                     {"memory_bytes", info.memory_bytes},
                     {"shared_bytes", info.target.shared_bytes},
                     {"subgroup", info.target.subgroup_size},
                     {"compute_units", info.target.compute_units}};
    for (const MatrixShape& m : info.target.matrices) out["vulkan"]["matrices"].push_back(to_string(m));
  } else {
    out["vulkan"] = {{"error", vulkan_error_}};
  }
  if (cuda_)
    out["cuda"] = {{"device", cuda_->name()},
                   {"driver", cuda_->driver_version()},
                   {"chip", cuda_->target().chip},
                   {"ptx", cuda_->target().ptx_version},
                   {"clock", cuda_->clock()}};
  else out["cuda"] = {{"error", cuda_error_}};
  return out;
}

int64_t Machine::memory() const {
  return vulkan_ ? vulkan_->device().info().memory_bytes : cuda_ ? cuda_->memory_bytes() : 0;
}

json Machine::ceilings() {
  json out;
  TimeOptions time = options_.time;
  time.seconds = 0.2;
  time.max_samples = 20;
  const auto add = [&](const char* name, double scale, const std::unique_ptr<Contender>& c) {
    if (!c) return;
    const Samples s = time_in_turns({c.get()}, time)[0];
    out[name] = times(s);
    if (scale > 0) out[name]["gb_per_s"] = scale * 1e-9 / s.median();
  };
  const int64_t bytes = std::min(int64_t{512} << 20, memory() / 32 / 4096 * 4096);
  const ir::Kernel little = ir::parse(kLittle, "little");
  const std::vector<Array> inputs{random_array({64}, DType::f32, 1)};
  const auto guarded = [&](const char* name, const auto& f) {
    try {
      f();
    } catch (const std::exception& e) {
      out[std::string(name) + "_error"] = first_line(e.what());
    }
  };
  if (vulkan_) {
    guarded("vulkan_copy", [&] { add("vulkan_copy", 2.0 * static_cast<double>(bytes), vulkan_->copy(bytes)); });
    guarded("vulkan_little", [&] {
      const VulkanArrays arrays = vulkan_->arrays(little, inputs, 1);
      add("vulkan_little", 0, vulkan_->contender(vulkan_->load(little), arrays));
    });
  }
  if (cuda_) {
    guarded("cuda_copy", [&] { add("cuda_copy", 2.0 * static_cast<double>(bytes), cuda_->copy(bytes)); });
    guarded("cuda_little", [&] { add("cuda_little", 0, cuda_->contender(cuda_->load(little), little, inputs, 1)); });
  }
  return out;
}

Ready Machine::load(const SuiteEntry& entry) const {
  Ready r;
  r.kernel = ir::parse(read_file(entry.kernel_path), entry.kernel_path);
  if (vulkan_) {
    r.ours = attempt<const Program>([&] { return vulkan_->load(r.kernel); });
    int best = -1;
    for (const ShaderRow& row : entry.shaders) best = std::max(best, rank_of(row, vulkan_->device().target()));
    for (const ShaderRow& row : entry.shaders) {
      const int rank = rank_of(row, vulkan_->device().target());
      if (rank < 0 || !r.ours.program || (rank != best && !(rank == 0 && options_.all_shaders))) continue;
      r.shaders.emplace_back(&row, attempt<const Program>([&] { return vulkan_->load(*r.ours.program, row); }));
    }
  }
  if (cuda_) r.ptx = attempt<CudaLoaded>([&] { return cuda_->load(r.kernel); });
  if (options_.dump.empty()) return r;
  const std::string file = options_.dump + "/" + entry.name;
  if (r.ours.program) {
    const Program& p = *r.ours.program;
    std::ofstream(file + ".spv", std::ios::binary)
        .write(reinterpret_cast<const char*>(p.spirv.data()),
               static_cast<std::streamsize>(p.spirv.size() * sizeof p.spirv[0]));
    std::ofstream(file + ".explain.txt") << p.explain;
  }
  if (r.ptx.program) std::ofstream(file + ".ptx") << CudaTimer::code(*r.ptx.program).ptx;
  return r;
}

json Machine::on_vulkan(const SuiteEntry& entry, const Ready& ready, const std::vector<Array>& inputs, int sets,
                        std::vector<Array>& reference, std::string& reference_name) {
  const VulkanArrays arrays = vulkan_->arrays(ready.kernel, inputs, sets);
  std::vector<Line> lines;
  const auto add = [&](json says, const Loaded<const Program>& loaded) {
    Line line{std::move(says), nullptr, {}};
    line.says["compile_ms"] = loaded.ms;
    if (!loaded.program) {
      line.says["error"] = first_line(loaded.error);
    } else {
      try {
        line.runs = vulkan_->contender(loaded.program, arrays);
        line.outputs = line.runs->outputs();
      } catch (const std::exception& e) {
        line.runs = nullptr;
        line.says["error"] = first_line(e.what());
      }
    }
    lines.push_back(std::move(line));
  };
  add({{"who", "ours"}}, ready.ours);
  if (ready.ours.program) {
    const Program& p = *ready.ours.program;
    lines[0].says["workgroup_size"] = p.workgroup_size;
    lines[0].says["shared_bytes"] = p.shared_bytes;
    lines[0].says["scratch_bytes"] = p.scratch_bytes;
    lines[0].says["spirv_words"] = p.spirv.size();
  }
  for (const auto& [row, loaded] : ready.shaders)
    add({{"who", "shader"}, {"shader", row->shader}, {"defines", row->defines}, {"class", row->device_class}}, loaded);
  std::vector<Contender*> contenders;
  std::vector<size_t> of;
  // A shader for any device is what others are compared with; ours where there is none.
  for (const Line& line : lines)
    if (line.runs && (reference.empty() || (reference_name == "ours" && line.says.value("class", "") == "any"))) {
      reference = line.outputs;
      reference_name = line.says["who"] == "ours" ? "ours" : line.says["shader"].get<std::string>();
    }
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].runs) continue;
    lines[i].says["difference"] = difference_of(lines[i].outputs, reference);
    lines[i].says["wrong"] = too_far(lines[i].says["difference"], entry.tolerance);
    contenders.push_back(lines[i].runs.get());
    of.push_back(i);
  }
  if (!contenders.empty()) {
    const std::vector<Samples> samples = time_in_turns(contenders, options_.time);
    for (size_t i = 0; i < of.size(); ++i) lines[of[i]].says.update(times(samples[i]));
  }
  json out = json::array();
  for (Line& line : lines) out.push_back(std::move(line.says));
  return out;
}

json Machine::on_cuda(const SuiteEntry& entry, const Ready& ready, const std::vector<Array>& inputs, int sets,
                      const std::vector<Array>& reference) {
  json says{{"who", "ptx"}, {"compile_ms", ready.ptx.ms}};
  if (!ready.ptx.program) {
    says["error"] = first_line(ready.ptx.error);
    return says;
  }
  const CudaCode code = CudaTimer::code(*ready.ptx.program);
  says["workgroup_size"] = code.threads;
  says["shared_bytes"] = code.shared_bytes;
  says["registers"] = code.registers;
  says["local_bytes"] = code.local_bytes;
  try {
    const auto contender = cuda_->contender(ready.ptx.program, ready.kernel, inputs, sets);
    const std::vector<Array> outputs = contender->outputs();
    if (!reference.empty()) {
      says["difference"] = difference_of(outputs, reference);
      says["wrong"] = too_far(says["difference"], entry.tolerance);
    }
    TimeOptions time = options_.time;
    time.seconds /= 3;
    says.update(times(time_in_turns({contender.get()}, time)[0]));
    says["graph"] = contender->by_graph();
  } catch (const std::exception& e) {
    cuda_broken_ = true;
    says["error"] = first_line(e.what());
  }
  return says;
}

json Machine::measure(const SuiteEntry& entry, const Ready& ready) {
  const Traffic traffic = traffic_of(ready.kernel);
  const int sets = sets_for(traffic.all(), options_.rotate_bytes, memory());
  json out{{"kernel", entry.name},         {"bytes", traffic.all()}, {"flops", entry.flops},
           {"tolerance", entry.tolerance}, {"sets", sets},           {"lines", json::array()}};
  std::vector<Array> inputs, reference;
  for (int i = 0; i < ready.kernel.num_inputs; ++i)
    inputs.push_back(random_array(bind_shape(ready.kernel, i, {}), ready.kernel.blocks[static_cast<size_t>(i)].dtype,
                                  static_cast<uint64_t>(i) + 1));
  std::string reference_name;
  if (vulkan_) {
    try {
      out["lines"] = on_vulkan(entry, ready, inputs, sets, reference, reference_name);
    } catch (const std::exception& e) {
      out["lines"].push_back({{"who", "ours"}, {"error", first_line(e.what())}});
    }
  }
  if (cuda_) out["lines"].push_back(on_cuda(entry, ready, inputs, sets, reference));
  out["reference"] = reference_name;
  return out;
}

Loader::Loader(const Machine& machine, const std::vector<SuiteEntry>& entries, int threads)
    : machine_(machine), entries_(entries), ready_(entries.size()) {
  for (int t = 0; t < threads; ++t)
    threads_.emplace_back([this] {
      std::unique_lock lock(mutex_);
      while (!stop_ && next_ < entries_.size()) {
        const size_t i = next_++;
        lock.unlock();
        auto made = std::make_unique<Ready>(machine_.load(entries_[i]));
        lock.lock();
        ready_[i] = std::move(made);
        changed_.notify_all();
      }
    });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  for (std::thread& t : threads_) t.join();
}

Ready Loader::take(size_t i) {
  if (threads_.empty()) return machine_.load(entries_[i]);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ready_[i] != nullptr; });
  return std::move(*std::exchange(ready_[i], nullptr));
}

}  // namespace tessera::bench
