#include "runtime/compiled_kernel.h"

#include <algorithm>

#include "runtime/launch.h"
#include "runtime/record.h"

namespace tessera {

std::vector<DeviceArray> CompiledKernel::operator()(const std::vector<DeviceArray>& inputs,
                                                    const DimValues& dims) const {
  return launch(device_, *program_, inputs, dims);
}

PreparedKernel CompiledKernel::prepare(const PrepareOptions& options) const {
  return PreparedKernel(device_, program_, options);
}

std::vector<Array> CompiledKernel::run(const std::vector<Array>& inputs, const DimValues& dims) const {
  std::vector<std::pair<DType, Shape>> shapes;
  for (const Array& a : inputs) shapes.emplace_back(a.dtype(), a.shape());
  bind_dims(*program_, shapes, dims);  // before anything is uploaded
  std::vector<DeviceArray> arguments;
  for (const Array& a : inputs) {
    if (program_->args[arguments.size()].by_value) arguments.emplace_back(Scalar::of(a));
    else arguments.emplace_back(device_, a);
  }
  for (size_t i = 0; i < program_->args.size(); ++i) {  // no other call uses them
    const ProgramArg& a = program_->args[i];
    if (a.alias >= 0) arguments[static_cast<size_t>(a.alias)] = donate(arguments[static_cast<size_t>(a.alias)]);
    else if (i < arguments.size() && a.written) arguments[i] = donate(arguments[i]);
  }
  std::vector<Array> outputs;
  for (const DeviceArray& o : (*this)(arguments, dims)) outputs.push_back(o.download());
  if (!program_->prints.empty()) device_.wait();  // for a kernel that stores to no output, too
  return outputs;
}

}  // namespace tessera
