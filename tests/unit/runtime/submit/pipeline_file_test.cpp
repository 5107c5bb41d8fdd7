// The pipelines' files of TESSERA_CACHE: whatever lies there, a pipeline is made, and the file is put right.
#include "runtime/submit/pipeline_file.h"

#ifndef _WIN32
#include <sys/stat.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/base/npy.h"
#include "engine/ir/text.h"
#include "runtime/call/prewarm.h"
#include "runtime/device/faults.h"
#include "runtime/submit/cache_file.h"
#include "runtime/submit/context.h"
#include "tests/unit/runtime/cache_folder.h"
#include "tests/unit/runtime/support.h"

namespace pipeline_file_test {
using namespace tessera;
using namespace tessera::test;
namespace fs = std::filesystem;
using vulkan::PipelineFile;

namespace {

/// What a new process would do with scale().
PipelineCounts run_once() {
  const Device fresh;
  CHECK(floats(launch(fresh, scale(), {DeviceArray(fresh, ramp(70))})[0]) == scaled_ramp(70));
  return pipeline_counts(fresh);
}
void check_counts(const PipelineCounts& c, uint64_t made, uint64_t from_disk) {
  CHECK(c.made == made);
  CHECK(c.from_disk == from_disk);
}
std::string broken(const fs::path& file) {
  return "tessera: TESSERA_CACHE: " + file.string() + " is broken or none of ours: it is ignored, and replaced\n";
}

uint64_t number(const std::string& bytes, size_t at) {
  uint64_t v = 0;
  std::memcpy(&v, bytes.data() + at, sizeof v);
  return v;
}

std::string kernel_text(int i) {
  return "tir 1\nkernel @k" + std::to_string(i) +
         "\ngrid (cdiv(n, 4))\nin f32[n] block (4) map (%i) { yield %i }\nout f32[n] block (4) map (%i) { yield %i }\n"
         "body (%x, %o) {\n  %a = load %x[0:4]\n  %c = constant " +
         std::to_string(i + 1) + ".0 : f32[4]\n  %b = mul %a, %c\n  store %o[0:4], %b\n  yield\n}\n";
}

}  // namespace

TEST_CASE("pipelines on disk: made once per machine") {
  const Cache cache;
  check_counts(run_once(), 1, 0);
  REQUIRE(cache.pipelines().size() == 1);
  const std::string good = contents(cache.pipelines()[0]);
  check_counts(run_once(), 0, 1);
  CHECK(contents(cache.pipelines()[0]) == good);
  const Device d;
  prepare(d, add());
  CHECK(cache.pipelines().size() == 2);
}

TEST_CASE("pipelines on disk: a byte of each kind damaged, every length, somebody else's file") {
  const Cache cache;
  run_once();
  const fs::path file = cache.pipelines().at(0);
  const std::string good = contents(file);
  const std::string magic = "tessera pipeline 2\n";
  REQUIRE(good.substr(0, magic.size()) == magic);
  const size_t sum = magic.size(), key_size = sum + 8, key = key_size + 8, data = key + number(good, key_size);
  REQUIRE(data + 32 <= good.size());
  std::vector<std::string> bad{"", "somebody else's", good + "x", std::string(good.size(), '\0'),
                               std::string(good.size(), '\xff')};
  // The magic, the checksum, the key's size (low and high byte), the key, Vulkan's header (its size, version, vendor,
  // device, UUID), the driver's data.
  for (size_t at : {size_t{0}, magic.size() - 2, sum, sum + 7, key_size, key_size + 7, key, data - 1, data, data + 4,
                    data + 8, data + 12, data + 16, data + 31, good.size() - 1}) {
    std::string b = good;
    b[at] = static_cast<char>(b[at] ^ 0x40);
    bad.push_back(b);
  }
  for (size_t n : {size_t{1}, magic.size(), sum + 4, key_size, key_size + 4, key, key + 5, data, data + 1, data + 16,
                   data + 31, good.size() - 1})
    bad.push_back(good.substr(0, n));
  for (const std::string& b : bad) {
    CAPTURE(b.size());
    std::ofstream(file, std::ios::binary) << b;
    Stderr said;
    check_counts(run_once(), 1, 0);
    CHECK(said.text() == broken(file));
    CHECK(contents(file) == good);
  }
  check_counts(run_once(), 0, 1);
}

TEST_CASE("pipelines on disk: data whose checksum is right, but which is not this driver's") {
  const Cache cache;
  run_once();
  const fs::path file = cache.pipelines().at(0);
  const std::string good = contents(file);
  const size_t key_size = std::string("tessera pipeline 2\n").size() + 8, key = key_size + 8,
               data = key + number(good, key_size);
  const std::string its_key = good.substr(key, data - key), its_data = good.substr(data);
  CHECK(PipelineFile::fits(its_data, device().context()->probe().driver));
  std::vector<std::string> foreign{"", its_data.substr(0, 31)};
  for (size_t at : {0, 3, 4, 8, 12, 16, 31}) {  // the header's size, version, vendor, device, UUID
    std::string b = its_data;
    b[at] = static_cast<char>(b[at] ^ 0x41);
    foreign.push_back(b);
  }
  for (const std::string& b : foreign) {
    CAPTURE(b.size());
    CHECK_FALSE(PipelineFile::fits(b, device().context()->probe().driver));
    cache_file::write(cache.folder.string(), "pipeline", its_key, b, "");
    Stderr said;
    check_counts(run_once(), 1, 0);
    CHECK(said.text() == broken(file));
    CHECK(contents(file) == good);
  }
  // Of another driver: a file of its own.
  vulkan::DriverId other = device().context()->probe().driver;
  const std::string ours = PipelineFile::key(other, "code");
  for (auto change : {+[](vulkan::DriverId& d) { ++d.vendor; }, +[](vulkan::DriverId& d) { ++d.device; },
                      +[](vulkan::DriverId& d) { ++d.version; }, +[](vulkan::DriverId& d) { ++d.api; },
                      +[](vulkan::DriverId& d) { ++d.cache_uuid[7]; }, +[](vulkan::DriverId& d) { ++d.driver_uuid[7]; },
                      +[](vulkan::DriverId& d) { d.name += "'"; }}) {
    vulkan::DriverId d = other;
    change(d);
    CHECK(PipelineFile::key(d, "code") != ours);
  }
}

#ifndef _WIN32  // it has no such pipes, and links only for administrators
TEST_CASE("pipelines on disk: what is no file in a file's place") {
  const Cache cache;
  run_once();
  const fs::path file = cache.pipelines().at(0), elsewhere = cache.folder.string() + ".elsewhere";
  const std::string good = contents(file);
  const auto tried = [&](const std::string& what) {
    CAPTURE(what);
    Stderr said;
    check_counts(run_once(), 1, 0);
    return said.text();
  };
  fs::remove(file);
  fs::create_directory(file);
  CHECK(tried("a folder").starts_with(broken(file)));  // it stays there, and that is said once a process
  CHECK(fs::is_directory(file));
  fs::remove(file);
  REQUIRE(mkfifo(file.c_str(), 0600) == 0);
  CHECK(tried("a pipe, from which nothing would ever come") == broken(file));
  CHECK(contents(file) == good);
  fs::remove(file);
  fs::create_symlink("/dev/zero", file);
  CHECK(tried("a file without end") == broken(file));
  CHECK(contents(file) == good);
  fs::resize_file(file, uintmax_t{1} << 32);
  CHECK(tried("a file of 4 GB") == broken(file));
  CHECK(contents(file) == good);
  fs::remove(file);
  fs::create_symlink(file, file);
  CHECK(tried("a link to itself") == broken(file));
  CHECK(contents(file) == good);
  fs::rename(file, elsewhere);
  fs::create_symlink(elsewhere, file);
  CHECK(tried("a link to a good one") == broken(file));
  CHECK(contents(elsewhere) == good);
  fs::remove(file);
  fs::create_symlink(elsewhere, file);
  fs::remove(elsewhere);
  CHECK(tried("a link to nothing") == broken(file));
  CHECK(contents(file) == good);
  CHECK_FALSE(fs::exists(elsewhere));
  CHECK((fs::status(file).permissions() & (fs::perms::group_write | fs::perms::others_write)) == fs::perms::none);
  fs::permissions(file, fs::perms{0666});  // it may be anybody's by now, and a driver runs what is in it
  CHECK(tried("a file that others may write") ==
        "tessera: TESSERA_CACHE: " + file.string() +
            " belongs to another user, or others may write it: it is ignored, and replaced\n");
  CHECK(contents(file) == good);
  check_counts(run_once(), 0, 1);
}
#endif

TEST_CASE("pipelines on disk: a driver that will not take what it wrote") {
  const Cache cache;
  run_once();
  vulkan::Faults faults;
  faults.fail("vkCreatePipelineCache", 0, VK_ERROR_OUT_OF_HOST_MEMORY);
  check_counts(run_once(), 1, 0);
  CHECK(faults.failed());
  CHECK(faults.alive().empty());
}

TEST_CASE("pipelines on disk: several processes at once") {
  const Cache cache;
  const std::string kernel = cache.folder.string() + ".tir", x = cache.folder.string() + ".npy";
  std::ofstream(kernel) << kernel_text(0);
  write_npy(x, ramp(6));
  for (int round = 0; round < 2; ++round) {
    CHECK(run_at_once(3, TESSERA_CLI, "run '" + kernel + "' --in '" + x + "'") == std::vector<int>(3, 0));
    CHECK(cache.pipelines().size() == 1);
    CHECK(std::distance(fs::directory_iterator(cache.folder), {}) == 2);  // and the kernel; nothing temporary
  }
  fs::remove(kernel);
  fs::remove(x);
}

TEST_CASE("prewarm: all kernels on several threads, with progress") {
  const Cache cache;
  std::vector<ir::Kernel> kernels;
  for (int i = 0; i < 6; ++i) kernels.push_back(ir::parse(kernel_text(i), "k.tir"));
  kernels.push_back(kernels[0]);  // twice
  std::vector<size_t> done;
  std::vector<std::string> names;
  PrewarmOptions o;
  o.threads = 3;
  o.progress = [&](const Prewarmed& p) {
    CHECK(p.total == 7);
    done.push_back(p.done);
    names.push_back(p.kernel);
  };
  {
    const Device d;
    const std::vector<CompiledKernel> ready = prewarm(d, kernels, o);
    CHECK(done == std::vector<size_t>{1, 2, 3, 4, 5, 6, 7});
    std::sort(names.begin(), names.end());
    CHECK(names == std::vector<std::string>{"k0", "k0", "k1", "k2", "k3", "k4", "k5"});
    CHECK(pipeline_counts(d).made == 6);
    REQUIRE(ready.size() == 7);
    for (size_t i = 0; i < 6; ++i) CHECK(ready[i].run({ramp(9)})[0].at(8) == 8.0 * static_cast<double>(i + 1));
    CHECK(&load(d, kernels[3]).program() == &ready[3].program());
    check_counts(pipeline_counts(d), 6, 0);
  }
  const CompileCounts before = compile_counts();
  const Device d;
  CHECK(prewarm(d, kernels).size() == 7);
  check_counts(pipeline_counts(d), 0, 6);
  CHECK(compile_counts().compiled == before.compiled);
  CHECK(prewarm(d, {}).empty());

  // The first failure, a kernel's or the callback's, ends it.
  o.threads = -1;
  CHECK(error_of<SpecError>([&] { prewarm(d, kernels, o); }) == "PrewarmOptions::threads is -1, which is below 0");
  o.threads = 2;
  size_t calls = 0;
  o.progress = [&](const Prewarmed&) {
    ++calls;
    throw SpecError("enough");
  };
  CHECK(error_of<SpecError>([&] { prewarm(d, kernels, o); }) == "enough");
  CHECK(calls == 1);
}

}  // namespace pipeline_file_test
