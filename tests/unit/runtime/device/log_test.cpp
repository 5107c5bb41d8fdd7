// What goes to stderr goes through callbacks where there are some: the process' (set_log) or a device's own.
#include "runtime/log.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "runtime/submit/context.h"
#include "runtime/submit/pipeline.h"
#include "tests/unit/runtime/cache_folder.h"
#include "tests/unit/runtime/support.h"

namespace log_test {
using namespace tessera;
using namespace tessera::test;

namespace {
using Messages = std::vector<std::pair<Severity, std::string>>;
struct Logged {  // set_log while it lives
  Messages messages;
  Logged() {
    set_log([this](Severity s, const std::string& m) { messages.emplace_back(s, m); });
  }
  ~Logged() { set_log({}); }
};
constexpr const char* kText =
    "tir 1\nkernel @twice\nin f32[4] whole\nout f32[4] whole\nbody (%x, %o) {\n  %a = load %x[0:4]\n  %b = add %a, "
    "%a\n  store %o[0:4], %b\n}\n";

// Validation complains: push constants for a stage that the kernel does not have, in commands that are never submitted.
void provoke(const Device& d) {
  const Program p = scale();
  const auto& pipeline = d.context()->pipeline(p);
  const std::lock_guard lock(d.context()->mutex());
  struct Never {};
  CHECK_THROWS_AS(d.context()->recorder().submit(p.name,
                                                 [&] {
                                                   const uint32_t zero = 0;
                                                   d.context()->vk().vkCmdPushConstants(
                                                       d.context()->recorder().commands(), pipeline.layout(),
                                                       VK_SHADER_STAGE_VERTEX_BIT, 0, sizeof zero, &zero);
                                                   throw Never{};
                                                 }),
                  Never);
}
}  // namespace

TEST_CASE("log: a damaged file of the cache is a warning") {
  const Cache cache;
  const ir::Kernel k = ir::parse(kText);
  load(Device(), k);
  const auto files = cache.all_but_pipelines();
  REQUIRE(files.size() == 1);
  std::ofstream(files[0], std::ios::binary) << "nothing";
  {
    Stderr quiet;
    const Logged log;
    load(Device(), k);
    CHECK(log.messages == Messages{{Severity::warning, "tessera: TESSERA_CACHE: " + files[0].string() +
                                                           " is broken or none of ours: it is ignored, and replaced"}});
    CHECK(quiet.text() == "");
  }
  std::ofstream(files[0], std::ios::binary) << "nothing";
  Stderr loud;
  load(Device(), k);
  CHECK(loud.text() ==
        "tessera: TESSERA_CACHE: " + files[0].string() + " is broken or none of ours: it is ignored, and replaced\n");
}

TEST_CASE("log: a device's validation messages go to its own callback, and to no other" * under_validation) {
  Logged process;
  Messages own;
  DeviceOptions o;
  o.validation = kValidation;
  o.log = [&](Severity s, const std::string& m) { own.emplace_back(s, m); };
  const Device d(o);
  provoke(d);
  REQUIRE(!own.empty());
  CHECK(own[0].first == Severity::error);
  CHECK(own[0].second == d.validation_messages()[0]);
  CHECK(process.messages.empty());
  // With TESSERA_VALIDATION=1 alone they go to the process' callback.
  set_environment("TESSERA_VALIDATION", "1");
  const Device loud;
  set_environment("TESSERA_VALIDATION", nullptr);
  provoke(loud);
  REQUIRE(!process.messages.empty());
  CHECK(process.messages[0].first == Severity::error);
}

TEST_CASE("log: a callback may log" * without_device) {
  std::vector<std::string> order;
  set_log([&](Severity, const std::string& m) {
    order.push_back(m);
    if (m == "first") log(Severity::info, "second");
  });
  log(Severity::warning, "first");
  set_log({});
  CHECK(order == std::vector<std::string>{"first", "second"});
}

}  // namespace log_test
