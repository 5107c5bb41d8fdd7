#include "tests/kernels/passes.h"

#include "codegen/compile.h"

namespace tessera::test {
namespace {

using Arguments = std::vector<Array>;

Arguments on_interpreter(const PallasCall& call, const Arguments& arguments) {
  const Arrays outputs = interpret(call, arguments, {.races = true});
  return {outputs.begin(), outputs.end()};
}

Arguments on_device(const Device& device, const PallasCall& call, const Arguments& arguments, bool general) {
  CompileOptions options;
  options.general = general;
  const Arguments outputs = load(device, call.trace_for(arguments), options).run(arguments);
  for (const std::string& message : device.validation_messages()) FAIL_CHECK(message);
  return outputs;
}

}  // namespace

std::vector<Way> ways(bool lanes, bool general) {
  const auto constant = [](const Array& table) { return table; };
  std::vector<Way> list = {{"interpreter", {on_interpreter, constant}}};
  for (const bool g : {false, true}) {
    if (g && !general) continue;
    const std::string form = g ? ", general form" : "";
    if (lanes)
      list.push_back(
          {"a GPU's code" + form,
           {[g](const PallasCall& call, const Arguments& a) { return on_lanes(call.trace_for(a), a, g); }, constant}});
    if (device())
      list.push_back(
          {"device" + form,
           {[g](const PallasCall& call, const Arguments& a) { return on_device(*device(), call, a, g); }, constant}});
  }
  return list;
}

void check_equal(const Array& got, const Array& expected) {
  REQUIRE(got.shape() == expected.shape());
  REQUIRE(got.dtype() == expected.dtype());
  int64_t wrong = 0, first = 0;
  for (int64_t i = 0; i < got.size(); ++i) {
    if (got.element_bits(i) == expected.element_bits(i) || (std::isnan(got.at(i)) && std::isnan(expected.at(i))))
      continue;
    if (wrong++ == 0) first = i;
  }
  CHECK_MESSAGE(wrong == 0, wrong, " of ", got.size(), " elements differ, first element ", first, ": ", got.at(first),
                ", expected ", expected.at(first));
}

}  // namespace tessera::test
