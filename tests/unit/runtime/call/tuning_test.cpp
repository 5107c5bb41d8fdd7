// Tuning files: what they say, what becomes of those that do not fit, and that kernels are compiled by them.
#include "runtime/call/tuning.h"

#include "codegen/make_bundle.h"
#include "engine/ir/text.h"
#include "runtime/bundle.h"
#include "runtime/call/call.h"
#include "tests/unit/runtime/support.h"

namespace tuning_test {
using namespace tessera;
using namespace tessera::test;

namespace {
const ir::Kernel& kernel() {
  static const ir::Kernel k = ir::parse(
      "tir 1\nkernel @twice\nin f32[65536] whole\nout f32[65536] whole\nbody (%x, %o) {\n  %a = load %x[0:65536]\n"
      "  %b = add %a, %a\n  store %o[0:65536], %b\n}\n",
      "twice.tir");
  return k;
}

/// A device of its own, which keeps what it logs.
struct Logged {
  std::vector<std::string> lines;
  Device device{options()};
  DeviceOptions options() {
    DeviceOptions o;
    o.log = [this](Severity, const std::string& s) { lines.push_back(s); };
    return o;
  }
  int64_t units() const { return load(device, kernel()).program().num_units.value().value(); }
};

struct File : TemporaryFolder {
  File() : TemporaryFolder("tuning") { set_environment("TESSERA_TUNING", path().c_str()); }
  ~File() { set_environment("TESSERA_TUNING", nullptr); }
  std::string path() const { return at("t.tuning"); }
  void write(const std::string& text) const { TemporaryFolder::write("t.tuning", text); }
  std::string text() const { return read("t.tuning"); }
};

DeviceInfo named(const std::string& name, const std::string& driver) {
  DeviceInfo i;
  i.name = name;
  i.driver = driver;
  return i;
}

/// Half the work to an invocation: twice the units.
Tuning half_the_work(const DeviceInfo& device) {
  Tuning t;
  t.at(device)[tuning_digest(kernel())] = {"twice", {.work = -1}, 0.25, 0.125};
  return t;
}
}  // namespace

TEST_CASE("tuning: what is written is read") {
  const File f;
  Tuning t = half_the_work(named("A\tdevice", "its\ndriver"));
  t.at(named("Another", "driver"))["0123"] = {"k", {.workgroup = 64, .smaller = 1}, 3, 1e-7};
  write_tuning(f.path(), t);
  const Tuning again = read_tuning(f.path());
  REQUIRE(again.devices.size() == 2);
  const Tuning::Kernels* first = again.of(named("A device", "its driver"));
  REQUIRE(first);
  const TunedKernel& k = first->at(tuning_digest(kernel()));
  CHECK(k.name == "twice");
  CHECK(k.choices == ScheduleChoices{.work = -1});
  CHECK(k.before == 0.25);
  CHECK(k.after == 0.125);
  CHECK(again.of(named("Another", "driver"))->at("0123").after == 1e-7);
  CHECK_FALSE(again.of(named("Another", "newer driver")));
  CHECK(is_tuning(f.path()));
  const std::string text = f.text();
  write_tuning(f.path(), again);
  CHECK(f.text() == text);
  // Of one kernel the same digest wherever its lines are.
  ir::Kernel moved = ir::parse("tir 1\n\n\n" + ir::print(kernel()).substr(6), "elsewhere.tir");
  CHECK(tuning_digest(moved) == tuning_digest(kernel()));
}

TEST_CASE("tuning: what is no tuning file, was changed, or is of another build") {
  const File f;
  const auto says = [&](const std::string& text) {
    f.write(text);
    return error_of<SpecError>([&] { read_tuning(f.path()); });
  };
  const std::string none = f.path() + ": is no tuning file: its first line is not \"tessera tuning 1\"",
                    changed = f.path() + ": is damaged, or was changed after it was written";
  CHECK(says("") == none);
  CHECK(says("kernel @k\n") == none);
  CHECK_FALSE(is_tuning(f.path()));
  write_tuning(f.path(), half_the_work(named("d", "e")));
  const std::string good = f.text();
  CHECK(says(good) == "");
  for (size_t i = good.find('\n') + 1; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    CAPTURE(i);
    CHECK(says(bad) == changed);
    CHECK(says(good.substr(0, i)) == changed);
  }
  CHECK(says(good + "x") == changed);
  CHECK(is_tuning(f.path()));
  CHECK(error_of<SpecError>([] { read_tuning("/nowhere/t.tuning"); }) == "/nowhere/t.tuning: no such file");
  CHECK_FALSE(is_tuning("/nowhere/t.tuning"));
}

TEST_CASE("tuning: TESSERA_TUNING decides what is compiled, and a device says in a line what it ignores") {
  const Logged untuned;
  const int64_t usual = untuned.units();
  const DeviceInfo& info = untuned.device.info();
  const File f;
  write_tuning(f.path(), half_the_work(info));
  {
    const Logged d;
    CHECK(d.units() == 2 * usual);
    CHECK(load(d.device, kernel()).run({ramp(65536)})[0].at(65535) == 131070);
    CompileOptions general;
    general.general = true;
    CHECK(load(d.device, kernel(), general).program().num_units.value() ==
          load(untuned.device, kernel(), general).program().num_units.value());
    CHECK(d.lines.empty());
  }
  {
    write_tuning(f.path(), half_the_work(named(info.name, "old driver")));
    const Logged d;
    CHECK(d.units() == usual);
    CHECK(d.units() == usual);
    REQUIRE(d.lines.size() == 1);
    CHECK(d.lines[0] == "tessera: TESSERA_TUNING: " + f.path() + ": it is for " + info.name +
                            " with the driver old driver, not for " + info.name + " with the driver " + info.driver +
                            "; kernels are compiled as without it");
  }
  {
    f.write("something else\n");
    const Logged d;
    CHECK(d.units() == usual);
    REQUIRE(d.lines.size() == 1);
    CHECK(d.lines[0] == "tessera: TESSERA_TUNING: " + f.path() +
                            ": is no tuning file: its first line is not \"tessera tuning 1\"; kernels are compiled as "
                            "without it");
  }
  set_environment("TESSERA_TUNING", nullptr);
  Logged d;
  CHECK(d.units() == usual);
  use_tuning(d.device, half_the_work(info));
  CHECK(d.units() == 2 * usual);
  use_tuning(d.device, {}, "my file");
  CHECK(d.units() == usual);
  REQUIRE(d.lines.size() == 1);
  CHECK(d.lines[0].starts_with("tessera: my file: it is for no device, not for "));
}

TEST_CASE("tuning: a bundle's variant for a device of this name is taken there") {
  const Device& d = device();
  Target own = d.target(), lacking = minimum_target();
  const Target targets[] = {lacking, gpu_target(), own};
  const BundleSource source{kernel(), {"x", "o"}};
  const auto choices = [&](const Target& t, const ir::Kernel&) {
    return t.name == own.name ? ScheduleChoices{.work = -1} : ScheduleChoices{};
  };
  const std::string bytes = bundle_to_bytes(make_bundle({&source, 1}, targets, 1, {}, false, choices).file);
  const Bundle b(std::as_bytes(std::span(bytes)), "k.tsb");
  CHECK(b.variant(d, "twice") == own.name);
  const CompiledKernel k = b.kernel(d, "twice");
  CHECK(k.run({ramp(65536)})[0].at(65535) == 131070);
  CHECK(k.program().num_units.value() == 2 * *load(Logged().device, kernel()).program().num_units.value());
}

}  // namespace tuning_test
