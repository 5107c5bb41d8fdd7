#include "tests/unit/runtime/support.h"

namespace order_test {
using namespace tessera;
using namespace tessera::test;

namespace {

const AddressRange kA{100, 200}, kB{200, 300};

LogEntry command(std::string what, std::vector<AddressRange> reads, std::vector<AddressRange> writes,
                 Stage stage = Stage::compute) {
  return {.event = LogEntry::Command{.stage = stage, .reads = std::move(reads), .writes = std::move(writes)},
          .what = std::move(what)};
}
LogEntry barrier(StageMask from, StageMask to) { return {.event = LogEntry::Barrier{from, to}, .what = "barrier"}; }
LogEntry submit(uint64_t v) { return {.event = LogEntry::Submit{v}, .what = "call"}; }
LogEntry completed(uint64_t v) { return {.event = LogEntry::Completed{v}, .what = "wait"}; }
template <class Event>
LogEntry host(AddressRange r) {
  return {.event = Event{r}, .what = "the host"};
}
constexpr StageMask kCompute = mask(Stage::compute), kTransfer = mask(Stage::transfer), kHost = mask(Stage::host);
using Reports = std::vector<std::string>;

// Every barrier of the log towards one of the stages `to`, taken out by itself, must be missed.
void delete_each_barrier(const CommandLog& log, StageMask to) {
  int barriers = 0;
  for (size_t i = 0; i < log.size(); ++i) {
    if (!log[i].barrier() || !(log[i].barrier()->to & to)) continue;
    ++barriers;
    CommandLog without = log;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    CAPTURE(i);
    CHECK_FALSE(find_unordered(without).empty());
  }
  CHECK(barriers > 0);
}

DeviceOptions options(bool stage) {
  DeviceOptions o;
  o.validation = kValidation, o.log_commands = true;
  o.always_stage = stage;
  return o;
}

}  // namespace

TEST_CASE("accesses that conflict need a barrier" * without_device) {
  CHECK(find_unordered({command("f", {}, {kA}), command("g", {kA}, {})}) ==
        Reports{"g reads bytes [100, 200) that f writes, and no barrier orders them"});
  CHECK(find_unordered({command("f", {kA}, {}), command("g", {}, {{150, 151}})}) ==
        Reports{"g writes bytes [150, 151) that f reads, and no barrier orders them"});
  CHECK(find_unordered({command("f", {}, {kA}), command("g", {}, {kA})}).size() == 1);
  CHECK(find_unordered({command("f", {kA}, {}), command("g", {kA}, {})}).empty());
  CHECK(find_unordered({command("f", {}, {kA}), command("g", {}, {kB})}).empty());
  CHECK(find_unordered({command("f", {}, {kA}), barrier(kCompute, kCompute), command("g", {kA}, {})}).empty());
}

TEST_CASE("a barrier orders the stages it names, and barriers chain" * without_device) {
  const LogEntry f = command("f", {}, {kA}), copy = command("copy", {kA}, {}, Stage::transfer),
                 g = command("g", {kA}, {});
  CHECK(find_unordered({f, barrier(kCompute, kCompute), copy}).size() == 1);
  CHECK(find_unordered({f, barrier(kTransfer, kTransfer), copy}).size() == 1);
  CHECK(find_unordered({f, barrier(kCompute, kTransfer), copy}).empty());
  CHECK(find_unordered({f, barrier(kCompute, kTransfer), barrier(kTransfer, kCompute), g}).empty());
  CHECK(find_unordered({f, barrier(kTransfer, kCompute), barrier(kCompute, kTransfer), g}).size() == 1);
  CHECK(find_unordered({barrier(kCompute, kCompute), f, g}).size() == 1);
}

TEST_CASE("what a dispatch is sized by is read before its shaders run" * without_device) {
  constexpr StageMask kIndirect = mask(Stage::indirect);
  const LogEntry f = command("f", {}, {kA}), over = command("h", {}, {kA});
  LogEntry g = command("g", {}, {kB});
  g.command()->indirect = {{110, 122}};
  CHECK(find_unordered({f, g}) == Reports{"g is sized by bytes [110, 122) that f writes, and no barrier orders them"});
  CHECK(find_unordered({f, barrier(kCompute, kCompute), g}).size() == 1);
  CHECK(find_unordered({f, barrier(kCompute, kCompute | kIndirect), g}).empty());
  CHECK(find_unordered({g, over}) == Reports{"h writes bytes [100, 200) that g reads, and no barrier orders them"});
  CHECK(find_unordered({g, barrier(kTransfer, kCompute), over}).size() == 1);
  // waiting for the shaders is waiting for what comes before them
  CHECK(find_unordered({g, barrier(kCompute, kCompute), over}).empty());
  CHECK(find_unordered({g, barrier(kIndirect, kCompute), over}).empty());
}

TEST_CASE("the host reads after a wait for the submission that holds the barrier towards it" * without_device) {
  const LogEntry f = command("f", {}, {kA}), show = barrier(kCompute, kHost), read = host<LogEntry::HostRead>(kA);
  CHECK(find_unordered({f, show, submit(1), completed(1), read}).empty());
  CHECK(find_unordered({f, show, submit(1), read}) ==
        Reports{"the host reads bytes [100, 200) that f writes, and nothing has waited for that"});
  CHECK(find_unordered({f, submit(1), completed(1), read}) ==
        Reports{"the host reads bytes [100, 200) that f writes, and no barrier has made it visible to the host"});
  CHECK(find_unordered({f, submit(1), show, submit(2), completed(1), read}).size() == 1);
  CHECK(find_unordered({f, submit(1), show, submit(2), completed(2), read}).empty());
  CHECK(find_unordered({f, barrier(kTransfer, kHost), submit(1), completed(1), read}).size() == 1);
}

TEST_CASE("the host overwrites and frees memory only after the device is done with it" * without_device) {
  const LogEntry f = command("f", {kA}, {}), write = host<LogEntry::HostWrite>(kA),
                 release = host<LogEntry::Release>(kA);
  CHECK(find_unordered({f, submit(1), write}) ==
        Reports{"the host writes bytes [100, 200) that f reads, and nothing has waited for that"});
  CHECK(find_unordered({f, submit(1), release}) ==
        Reports{"the host frees bytes [100, 200) that f reads, and nothing has waited for that"});
  CHECK(find_unordered({f, release}).size() == 1);
  const LogEntry g = command("g", {}, {kA});
  CHECK(find_unordered({f, submit(1), completed(1), release, g}).empty());
  // other calls rely on barriers, not on what the host has seen
  CHECK(find_unordered({f, submit(1), completed(1), g}).size() == 1);
}

TEST_CASE("deleting any barrier between dependent calls is noticed") {
  for (const bool read_each : {true, false}) {
    CAPTURE(read_each);
    const Device d(options(false));
    std::vector<DeviceArray> outs;
    auto result = [&](const DeviceArray& o) {
      if (read_each) o.download();
      outs.push_back(o);
    };
    DeviceArray x(d, ramp(1000));
    result(launch(d, busy(), {x}).at(0));
    result(launch(d, scale(), {outs[0]}).at(0));  // reads what the call before wrote
    result(launch(d, add(), {outs[0], outs[1]}).at(0));
    result(launch(d, scratch(), {outs[2]}).at(0));
    result(outs[3].copy());                                // a copy reads what a call wrote
    result(launch(d, table(), {outs[4], outs[0]}).at(0));  // a call reads what a copy wrote
    result(launch(d, busy(), {x}).at(0));
    x.write(outs[5]);  // a copy overwrites what a call reads
    x.download();
    check_clean(d);
    // With everything in flight at once, the last barrier towards the host covers the earlier calls too.
    delete_each_barrier(d.command_log(), read_each ? kCompute | kTransfer | kHost : kCompute | kTransfer);
  }
}

TEST_CASE("deleting any barrier is noticed where all transfers are staged") {
  const Device d(options(true));
  DeviceArray x(d, ramp(1000));
  const DeviceArray y = launch(d, busy(), {x}).at(0);
  x.write(ramp(1000, 7));
  CHECK(floats(launch(d, scale(), {x}).at(0))[0] == 15);
  CHECK(floats(launch(d, scale(), {y}).at(0)) == scaled_ramp(1000, 2));
  check_clean(d);
  delete_each_barrier(d.command_log(), kCompute | kTransfer | kHost);
}

TEST_CASE("random calls, copies, writes and frees stay ordered") {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    const Device d(options(seed % 2 == 1));
    uint64_t state = seed * 2654435761u + 1;
    auto random = [&](size_t n) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<size_t>(state >> 33) % n;
    };
    constexpr int64_t n = 300;
    std::vector<DeviceArray> arrays;
    std::vector<float> expect;  // every array is constant over its elements
    auto constant = [](float v) { return Array({n}, std::vector<float>(n, v)); };
    for (int i = 0; i < 4; ++i) {
      arrays.emplace_back(d, constant(static_cast<float>(i)));
      expect.push_back(static_cast<float>(i));
    }
    for (int step = 0; step < 60; ++step) {
      const size_t i = random(4), j = random(4);
      switch (random(7)) {
        case 0:
          arrays[i] = launch(d, scale(), {arrays[j]}).at(0);
          expect[i] = 2 * expect[j] + 1;
          break;
        case 1:
          arrays[i] = launch(d, add(), {arrays[i], arrays[j]}).at(0);
          expect[i] += expect[j];
          break;
        case 2:
          arrays[i] = launch(d, scratch(), {arrays[j]}).at(0);
          expect[i] = 3 * expect[j];
          break;
        case 3:
          arrays[i].write(arrays[j]);
          expect[i] = expect[j];
          break;
        case 4:
          arrays[i].write(constant(static_cast<float>(step)));
          expect[i] = static_cast<float>(step);
          break;
        case 5:
          arrays[i] = arrays[j].copy();
          expect[i] = expect[j];
          break;
        case 6: CHECK(floats(arrays[i]) == std::vector<float>(n, expect[i])); break;
      }
      for (float& e : expect)
        if (e > 1e5f) {  // keeps every number exact
          const size_t k = static_cast<size_t>(&e - expect.data());
          arrays[k] = DeviceArray(d, constant(1));
          e = 1;
        }
    }
    for (size_t i = 0; i < 4; ++i) CHECK(floats(arrays[i]) == std::vector<float>(n, expect[i]));
    check_clean(d);
  }
}

}  // namespace order_test
