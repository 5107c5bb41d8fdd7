#include "tests/support/emulate/emulate.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/ptx/emulator.h"

namespace tessera::emulated {

namespace {
constexpr int64_t kMostMemory = int64_t{1} << 28, kMostStatic = 48 << 10;

/// `memory`: of each argument, the report's last.
void take_outputs(const Program& p, const std::vector<Array>& arrays, const std::vector<std::vector<std::byte>>& memory,
                  Result& result) {
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (!p.args[i].is_output) continue;
    Array a(arrays[i].shape(), arrays[i].dtype());
    if (a.nbytes()) std::memcpy(a.bytes(), memory[i].data(), static_cast<size_t>(a.nbytes()));
    result.outputs.push_back(std::move(a));
  }
  if (p.report_bytes > 0) {
    result.report_words.resize(memory.back().size() / 4);
    std::memcpy(result.report_words.data(), memory.back().data(), memory.back().size());
  }
}
/// Buffers are those of the arrays that have memory, in order.
void place_tensors(const Program& p, const std::vector<Array>& arrays, ptx::Launch& launch) {
  if (p.tensors.empty()) return;
  launch.parameters.resize(static_cast<size_t>(p.push_bytes()));
  for (size_t i = 0; i < p.tensors.size(); ++i) {
    const ProgramTensor& t = p.tensors[i];
    const auto array = static_cast<size_t>(t.array);
    const DType dtype = arrays[array].dtype();
    ptx::TensorMap map;
    for (size_t j = 0; j < array; ++j) map.buffer += arrays[j].nbytes() > 0 && !p.args[j].by_value;
    map.type = dtype == DType::f16 ? ptx::Type::f16 : dtype == DType::bf16 ? ptx::Type::bf16 : ptx::Type::u8;
    uint64_t bytes = static_cast<uint64_t>(size_bytes(dtype));
    const Shape& shape = arrays[array].shape();
    for (size_t d = shape.size(); d-- > 0;) {
      map.dims.push_back(static_cast<uint64_t>(shape[d]));
      map.box.push_back(static_cast<uint32_t>(t.box[d]));
      bytes *= map.dims.back();
      if (d > 0) map.strides.push_back(bytes);
    }
    map.swizzle = ptx::TensorMap::b128;
    launch.tensors.push_back(
        {static_cast<uint64_t>(p.tensors_at() + static_cast<int64_t>(i) * Program::kTensorBytes), std::move(map)});
  }
}
}  // namespace

Result run(const Program& p, const std::vector<Array>& arrays, const DimValues& dims, const Options& options) {
  Result result;
  int64_t workgroups = p.num_units.eval(dims);
  if (p.max_workgroups > 0) workgroups = std::min<int64_t>(workgroups, p.max_workgroups);
  if (p.max_workgroups > 0 && options.max_workgroups > 0)
    workgroups = std::min<int64_t>(workgroups, options.max_workgroups);
  const int64_t scratch_bytes = p.scratch_bytes * workgroups;
  const int64_t room = p.prints.empty() ? 0 : options.print_bytes / 4 * 4;
  int64_t needed = scratch_bytes + p.shared_bytes * std::min<int64_t>(workgroups, 4);
  for (const Array& a : arrays) needed += a.nbytes();
  if (needed > kMostMemory) {
    result.unfinished = true;
    return result;
  }

  ptx::Launch launch;
  launch.grid[0] = static_cast<uint32_t>(workgroups);
  launch.block[0] = static_cast<uint32_t>(p.workgroup_size);
  launch.dynamic_shared = p.shared_bytes > kMostStatic ? static_cast<uint64_t>(p.shared_bytes) : 0;
  launch.seed = options.seed;
  launch.inexact = p.relaxed;
  launch.max_instructions = static_cast<uint64_t>(options.max_instructions);
  std::vector<std::vector<std::byte>> memory;
  memory.reserve(arrays.size() + 2);
  // Memory of whole words, so that atomics may take the word around an element.
  const auto buffer = [&](const std::string& name, int64_t bytes, const std::byte* from) -> ptx::Buffer {
    auto& m = memory.emplace_back(static_cast<size_t>((bytes + 3) / 4 * 4));
    if (from && bytes) std::memcpy(m.data(), from, static_cast<size_t>(bytes));
    ptx::Buffer b;
    b.name = name;
    b.bytes = m;
    return b;
  };
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].nbytes() == 0 || p.args[i].by_value) {
      memory.emplace_back();
      launch.scalar(p.args[i].by_value ? arrays[i].element_bits(0) : uint64_t{0});
      continue;
    }
    ptx::Buffer b = buffer(p.args[i].origin, arrays[i].nbytes(), std::as_const(arrays[i]).bytes());
    b.may_write = p.args[i].written;
    b.may_hold_poison = !options.all_defined;
    launch.buffer(std::move(b));
  }
  if (p.scratch_bytes > 0) {
    ptx::Buffer b = buffer("scratch", scratch_bytes, nullptr);
    b.initialised = false;
    b.may_hold_poison = true;
    launch.buffer(std::move(b));
  }
  if (p.report_bytes > 0) {
    ptx::Buffer b = buffer("the report", p.report_bytes + room, nullptr);
    const auto words = static_cast<uint32_t>(room / 4);
    if (room) std::memcpy(&memory.back()[4 * PrintReport::kCapacity], &words, 4);
    b.may_hold_poison = !options.all_defined;
    launch.buffer(std::move(b));
  }
  for (const bool wide : {true, false})
    for (size_t i = 0; i < p.extents.size(); ++i) {
      if (p.extent_is_64.at(i) != wide) continue;
      const int64_t v = p.extents[i].eval(dims);
      if (wide) launch.scalar(v);
      else launch.scalar(static_cast<int32_t>(v));
    }

  place_tensors(p, arrays, launch);
  if (workgroups > 0) {
    try {
      const ptx::Result r = ptx::run(ptx::parse(p.ptx), launch);
      result.instructions = static_cast<int64_t>(r.instructions);
      result.unfinished = r.fault == ptx::Fault::hang && r.instructions >= launch.max_instructions;
      result.fault = r.text;
    } catch (const ptx::Error& e) {
      result.fault = e.what();
    }
  }
  take_outputs(p, arrays, memory, result);
  return result;
}

}  // namespace tessera::emulated
