// Waits for semaphores on the device: satisfied ones, and one that data makes impossible, which is an error of the
// call's results.
#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "tests/unit/runtime/support.h"

namespace waits_test {
using namespace tessera;
using namespace tessera::test;

namespace {
// Signals x[0], waits for 2, and for the rest.
constexpr const char* kWait = R"(tir 1
kernel @wait
in i32[1] whole
out i32[1] whole
scratch ref<semaphore, i32[2]>
body (%x, %o, %s) {
  %two = constant 2 : i32[]
  %n = load %x[0]
  semaphore_signal %s[1], %n
  semaphore_wait %s[1], %two
  %r = semaphore_read %s[1]
  store %o[0], %r
  semaphore_wait %s[1], %r
}
)";
}  // namespace

TEST_CASE("a wait that nothing can satisfy is an error of what the call wrote") {
  const ir::Kernel k = ir::parse(kWait, "wait.tir");
  for (const bool general : {false, true}) {
    CompileOptions options;
    options.general = general;
    const CompiledKernel wait = load(device(), k, options);
    const auto run = [&](int32_t n) {
      return wait({DeviceArray(device(), Array({1}, std::vector<int32_t>{n}))}).at(0);
    };
    CHECK(run(5).download().element_bits(0) == 3);
    const DeviceArray bad = run(1);
    std::string message;
    try {
      bad.download();
    } catch (const DeviceError& e) {
      message = e.what();
    }
    CHECK(message ==
          "wait: semaphore_wait: waits for 2 in scratch_shapes[0][1], which holds 1\n  at wait.tir:10\n"
          "  note: nothing that is under way can bring that: signal or start the copy before waiting, on the same "
          "semaphore");
    CHECK(run(2).download().element_bits(0) == 0);
  }
  check_clean(device());
}

}  // namespace waits_test
