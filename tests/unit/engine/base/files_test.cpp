// Files and folders that somebody else has touched: links, pipes, devices, folders in the place of files, files without
// an end. Nothing waits, nothing outside is read or written.
#include <doctest/doctest.h>

#include <filesystem>
#ifndef _WIN32
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#endif

#include "engine/base/npy.h"
#include "engine/base/platform.h"
#include "engine/base/read_file.h"
#include "engine/base/write_file.h"
#include "engine/graph/graph.h"
#include "engine/graph/write.h"
#include "tests/support/process.h"

namespace files_test {
using namespace tessera;
using namespace tessera::test;
namespace fs = std::filesystem;

namespace {

template <class F> std::string error_of(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

const char* kAdd =
    "tir 1\nkernel @add\nin f32[4] whole\nin f32[4] whole\nout f32[4] whole\nbody (%x, %y, %o) {\n  %a = load "
    "%x[0:4]\n  %b = load %y[0:4]\n  %c = add %a, %b\n  store %o[0:4], %c\n  yield\n}\n";
const char* kGraph =
    "tessera graph 1\nin %0 f32[4]\nconst %1 f32[4] \"tens.npy\"\n%2 = call \"add.tir\"(%0, %1) : f32[4]\nout %2\n";

struct GraphFolder : TemporaryFolder {
  GraphFolder() : TemporaryFolder("files") {
    write("graph.txt", kGraph);
    write("add.tir", kAdd);
    write_npy(at("tens.npy"), Array({4}, std::vector<float>(4, 10)));
  }
};
const std::string kOutside =
    ": is a symbolic link\n  note: put the file itself there (cp -L): nothing outside the folder is read";

}  // namespace

TEST_CASE("files: what is no file is told without waiting for it") {
  const TemporaryFolder folder("files");
  CHECK(error_of([&] { InputFile(folder.at("none")); }) == folder.at("none") + ": no such file");
  CHECK(error_of([&] { InputFile(folder.path.string()); }) == folder.path.string() + ": not a regular file");
  folder.write("text", "0123456789");
  CHECK(InputFile(folder.at("text")).rest() == "0123456789");
  CHECK(error_of([&] { InputFile(folder.at("text")).rest(9); }) ==
        folder.at("text") + ": has 10 bytes, and at most 9 are read");
  InputFile parts(folder.at("text"));
  char four[4];
  parts.read(four, 4);
  CHECK(std::string(four, 4) + parts.rest() == "0123456789");
  CHECK(error_of([&] { parts.read(four, 1); }) == folder.at("text") + ": cannot be read");
  InputFile shorter(folder.at("text"));
  fs::resize_file(folder.at("text"), 3);
  CHECK(error_of([&] { shorter.rest(); }) == folder.at("text") + ": cannot be read");
}

TEST_CASE("files: one is put in place as a whole, or not at all") {
  const TemporaryFolder folder("files");
  CHECK(put_file(folder.at("a"), {"one", "", "two"}));
  CHECK(folder.read("a") == "onetwo");
  CHECK(put_file(folder.at("a"), {"three"}));
  CHECK(folder.read("a") == "three");
  CHECK_FALSE(put_file(folder.at("none/a"), {"x"}));
  fs::create_directory(folder.path / "b");
  CHECK_FALSE(put_file(folder.at("b"), {"x"}));
  CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 2);  // nothing is left of what was tried
  CHECK(platform::create_file(folder.at("a"), true) == nullptr);
  const std::string longest = file_stem(std::string(1000, 'k'));  // JAX's libraries write all options into names
  CHECK(longest == std::string(160, 'k'));
  CHECK(put_file(folder.at(longest + ".tir"), {"x"}));
  CHECK(file_stem("a b/../c-d") == "a_b____c-d");
  CHECK(file_stem("") == "kernel");
}

#ifndef _WIN32  // it has no such pipes, and links only for administrators
TEST_CASE("files: links, pipes and devices") {
  const TemporaryFolder folder("files");
  using Links = InputFile::Links;
  folder.write("real", "text");
  fs::create_symlink("real", folder.path / "link");
  fs::create_symlink("loop", folder.path / "loop");
  fs::create_symlink("none", folder.path / "dangling");
  fs::create_symlink("/dev/zero", folder.path / "zero");
  REQUIRE(mkfifo(folder.at("pipe").c_str(), 0600) == 0);
  CHECK(InputFile(folder.at("link")).rest() == "text");
  CHECK(error_of([&] { InputFile(folder.at("loop")); }) == folder.at("loop") + ": cannot be opened");
  CHECK(error_of([&] { InputFile(folder.at("dangling")); }) == folder.at("dangling") + ": no such file");
  CHECK(error_of([&] { InputFile(folder.at("zero")); }) == folder.at("zero") + ": not a regular file");
  for (const char* name : {"link", "loop", "dangling", "zero"})
    CHECK(error_of([&] { InputFile(folder.at(name), Links::refused); }) == folder.at(name) + kOutside);
  for (const Links links : {Links::followed, Links::refused})
    CHECK(error_of([&] { InputFile(folder.at("pipe"), links); }) == folder.at("pipe") + ": not a regular file");
  CHECK(error_of([&] { read_npy(folder.at("pipe")); }) == folder.at("pipe") + ": not a regular file");
  for (const char* name : {"link", "loop", "dangling", "pipe"}) {
    CHECK(platform::create_file(folder.at(name), true) == nullptr);
    CHECK(put_file(folder.at(name), {"new"}));
    CHECK(fs::is_regular_file(fs::symlink_status(folder.at(name))));
  }
  CHECK(folder.read("real") == "text");
  CHECK_FALSE(fs::exists(folder.at("none")));
}

TEST_CASE("files: others' files, and those that others may write") {
  const TemporaryFolder folder("files");
  folder.write("mine", "text");
  const auto foreign = [&](fs::perms p) {
    fs::permissions(folder.at("mine"), p);
    const platform::Opened o = platform::open_file(folder.at("mine"), false);
    REQUIRE(o.stream);
    std::fclose(o.stream);
    return o.foreign;
  };
  CHECK_FALSE(foreign(fs::perms{0600}));
  CHECK_FALSE(foreign(fs::perms{0644}));
  CHECK(foreign(fs::perms{0664}));
  CHECK(foreign(fs::perms{0646}));
  const mode_t before = umask(0);
  CHECK(put_file(folder.at("for all"), {"x"}));
  CHECK(put_file(folder.at("ours"), {"x"}, false));
  umask(before);
  CHECK(fs::status(folder.at("for all")).permissions() == fs::perms{0666});
  CHECK(fs::status(folder.at("ours")).permissions() == fs::perms{0644});
}

TEST_CASE("files: a disk that is full leaves nothing") {
  const TemporaryFolder folder("files");
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit little = before;
  little.rlim_cur = 4096;
  setrlimit(RLIMIT_FSIZE, &little);
  const bool put = put_file(folder.at("large"), {std::string(100000, 'x')});
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK_FALSE(put);
  CHECK(fs::is_empty(folder.path));
}

TEST_CASE("files: a graph's folder with a link, pipe or folder in a file's place") {
  for (const auto& [file_name, line] :
       {std::pair{"graph.txt", ""}, std::pair{"add.tir", "4"}, std::pair{"tens.npy", "3"}}) {
    const GraphFolder folder;
    const std::string name = file_name;
    CAPTURE(name);
    const std::string file = folder.at(name), where = *line ? folder.at("graph.txt") + ":" + line + ": " + file : file,
                      elsewhere = folder.path.string() + ".elsewhere";
    const auto error = [&] { return error_of([&] { read_graph(folder.path.string()); }); };
    CHECK(error() == "");
    fs::rename(file, elsewhere);
    CHECK(error() == where + ": no such file");
    const std::string up = "../" + fs::path(elsewhere).filename().string();
    for (const std::string& target :
         {elsewhere, up, std::string(name), std::string("/dev/zero"), std::string("/nowhere")}) {
      fs::create_symlink(target, file);
      CHECK(error() == where + kOutside);
      fs::remove(file);
    }
    fs::create_directory(file);
    CHECK(error() == where + ": not a regular file");
    fs::remove(file);
    REQUIRE(mkfifo(file.c_str(), 0600) == 0);
    CHECK(error() == where + ": not a regular file");
    fs::remove(file);
    fs::copy_file(elsewhere, file);
    if (geteuid() != 0) {
      fs::permissions(file, fs::perms::none);
      CHECK(error() == where + ": cannot be opened");
      fs::remove(file);
      fs::copy_file(elsewhere, file);
    }
    // A file of 1 TB that takes no room on the disk.
    fs::permissions(file, fs::perms::owner_all);
    const uintmax_t size = fs::file_size(file);
    fs::resize_file(file, uintmax_t{1} << 40);
    if (std::string(name) == "tens.npy")
      CHECK(error() == where + ": " + std::to_string((uintmax_t{1} << 40) - size) +
                           " bytes too many: f32 (4,) needs 16 after the header");
    else CHECK(error() == where + ": has 1099511627776 bytes, and at most 268435456 are read");
    fs::remove(elsewhere);
  }
}

TEST_CASE("files: a constant of another type is told before it is read") {
  const GraphFolder folder;
  write_npy(folder.at("tens.npy"), Array({4}, DType::i32));
  CHECK(error_of([&] { read_graph(folder.path.string()); }) ==
        folder.at("graph.txt") + ":3: " + folder.at("tens.npy") + " holds i32[4] but f32[4] is expected");
  // 4 TB, by its own account and the file system's.
  std::string header = npy_header(Array({4}, DType::f32));
  header.replace(header.find("(4,)"), 4, "(1099511627776,)").erase(header.find_last_of(' ') - 11, 12);
  folder.write("tens.npy", header);
  fs::resize_file(folder.at("tens.npy"), header.size() + (uintmax_t{4} << 40));
  CHECK(error_of([&] { read_graph(folder.path.string()); }) ==
        folder.at("graph.txt") + ":3: " + folder.at("tens.npy") + " holds f32[1099511627776] but f32[4] is expected");
}

TEST_CASE("files: a graph is written over links, and not through them") {
  const GraphFolder folder, outside;
  const Graph g = read_graph(folder.path.string());
  const TemporaryFolder to("files");
  for (const char* name : {"graph.txt", "add.tir", "constant_0.npy"})
    fs::create_symlink(outside.path / "mine", to.path / name);
  outside.write("mine", "mine");
  write_graph(g, to.path.string());
  CHECK(outside.read("mine") == "mine");
  CHECK(interpret(read_graph(to.path.string()), {Array({4}, std::vector<float>{1, 2, 3, 4})}).at(0).at(3) == 14);
}
#endif

}  // namespace files_test
