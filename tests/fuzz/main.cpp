// The fuzzer's driver: makes cases by seed, checks them (check.h), shrinks and prints what fails. Without arguments: a
// short run for the test suite, over the kernels in tests/tir and tests/data/pallas too. The seed alone repeats a
// failure.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>
#include <tuple>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "engine/base/npy.h"
#include "engine/base/platform.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/reference.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/coverage.h"
#include "tests/fuzz/devices.h"
#include "tests/fuzz/rewrite.h"
#include "tests/fuzz/shrink.h"
#include "tests/fuzz/workers.h"
#include "tests/support/generator/random.h"

using namespace tessera;
using namespace tessera::fuzz;

namespace {
constexpr const char* kUsage =
    "fuzz [--seed N] [--count N] [--seconds S] [--codegen general|fast|both] [--target "
    "minimum|lavapipe|gpu|matrix|nvidia|cut|random|all|none] [--orders N]\n"
    "     [--device vulkan|minimum|gpu|cuda|cuda:N|none] [--patience SECONDS] [--no-passes] [--targets N] [--judge N] "
    "[--steps N] [--optimised] "
    "[--delete-barriers] [--shrink SECONDS] [--out DIR] [--print] [--coverage] [--verbose] [--pattern NAME] "
    "[--rewrite NAME|any] [--rewritings N] [FILE.tir ...]\n"
    "  --seed, --count   the cases N, N + 1, ...      --seconds   stop after so long\n"
    "  --targets N       random targets of another kind for each kernel\n"
    "  --judge N         orders of the SPIR-V judge per form and target (1); 0: leave it out\n"
    "  --steps N         how far the lane-level interpreter and the judge follow each run (134217728 and 67108864)\n"
    "  --optimised       also judge, and give the device, what spirv-opt makes of the modules\n"
    "  --delete-barriers  also delete each barrier once and count how often that is reported\n"
    "  --shrink 0        do not shrink                --out       write failing kernels to DIR/fuzz_SEED.tir\n"
    "  --device minimum  the Vulkan device, by code for the least that Vulkan promises; gpu: by code that takes it for "
    "a GPU; cuda: an NVIDIA GPU, through NVIDIA's driver\n"
    "  --patience N      a case that keeps the device for more than N seconds has failed (120)\n"
    "  --print           print the kernels' text instead of checking them\n"
    "  --coverage        run on the interpreter only, and tell which ops, dtypes and shapes the kernels have\n"
    "  --pattern NAME    only kernels of this form (tests/support/generator/generator.h); none: only those without "
    "one\n"
    "  --rewrite NAME    check each kernel rewritten so that it computes the same (tests/fuzz/rewrite.cpp); any: by "
    "one "
    "to three rewritings\n"
    "  --rewritings N    so many of each kernel (1), each at other places\n"
    "  FILE.tir          check these kernels, on the inputs of their comments (tests/README.md) or random ones, "
    "instead of generated ones\n";

struct Arguments {
  uint64_t seed = 1;
  int64_t count = 400;
  double seconds = 1e9, shrink_seconds = 40, patience = 120;
  DeviceChoice device;
  bool print = false, coverage = false, verbose = false;
  std::string out;
  std::optional<Pattern> pattern;
  std::string rewrite;  // empty: kernels as they are
  int64_t rewritings = 1;
  std::vector<std::string> files;
  bool suite = false;  // no arguments: tests/tir too
  CheckOptions check;
};

[[noreturn]] void usage(const std::string& what) {
  std::cerr << "fuzz: " << what << "\n" << kUsage;
  std::exit(2);
}

Arguments parse_arguments(int argc, char** argv) {
  Arguments a;
  a.suite = argc == 1;
  if (a.suite && std::getenv("TESSERA_TESTS_ALL"))
    a.count = 10'000, a.seconds = 1200, a.device = {DeviceChoice::Kind::vulkan};
  a.check.few_general = a.suite && !std::getenv("TESSERA_TESTS_ALL");
  for (int i = 1; i < argc; ++i) {
    const std::string s = argv[i];
    const auto next = [&]() -> std::string {
      if (i + 1 >= argc) usage(s + " wants a value");
      return argv[++i];
    };
    const auto one_of = [&](const std::string& x, const std::string& y) {
      const std::string v = next();
      if (v != x && v != y && v != "both") usage(s + " " + v + ": " + x + ", " + y + " or both are wanted");
      return std::pair{v != y, v != x};
    };
    if (s == "--seed") a.seed = std::strtoull(next().c_str(), nullptr, 10);
    else if (s == "--count") a.count = std::strtoll(next().c_str(), nullptr, 10);
    else if (s == "--seconds") a.seconds = std::strtod(next().c_str(), nullptr), a.count = INT64_MAX;
    else if (s == "--codegen") std::tie(a.check.general, a.check.fast) = one_of("general", "fast");
    else if (s == "--target") {
      const std::string v = next();
      if (v != "minimum" && v != "lavapipe" && v != "gpu" && v != "matrix" && v != "cut" && v != "random" &&
          v != "nvidia" && v != "all" && v != "none")
        usage("--target " + v + ": minimum, lavapipe, gpu, matrix, nvidia, cut, random, all or none are wanted");
      a.check.minimum = v == "minimum" || v == "all";
      a.check.lavapipe = v == "lavapipe" || v == "all";
      a.check.cut = v == "cut" || v == "all";
      a.check.gpu = v == "gpu" || v == "all";
      a.check.matrix = v == "matrix" || v == "all";
      a.check.random = v == "random" || v == "all";
      a.check.nvidia = v == "nvidia" || v == "all";
    } else if (s == "--steps") a.check.max_steps = a.check.judge_steps = std::strtoll(next().c_str(), nullptr, 10);
    else if (s == "--orders") a.check.orders = static_cast<int>(std::strtol(next().c_str(), nullptr, 10));
    else if (s == "--device") {
      const std::string v = next();
      const std::optional<DeviceChoice> choice = device_choice(v);
      if (!choice) usage("--device " + v + ": vulkan, minimum, gpu, cuda, cuda:N or none are wanted");
      a.device = *choice;
    } else if (s == "--no-passes") a.check.passes = false;
    else if (s == "--judge")
      a.check.judge_orders = static_cast<int>(std::strtol(next().c_str(), nullptr, 10)),
      a.check.judge = a.check.judge_orders > 0;
    else if (s == "--targets") a.check.random_target = std::strtoull(next().c_str(), nullptr, 10);
    else if (s == "--optimised") a.check.optimised = true;
    else if (s == "--delete-barriers") a.check.delete_barriers = true;
    else if (s == "--patience") a.patience = std::strtod(next().c_str(), nullptr);
    else if (s == "--shrink") a.shrink_seconds = std::strtod(next().c_str(), nullptr);
    else if (s == "--out") a.out = next();
    else if (s == "--pattern") {
      const std::string v = next();
      const auto at = std::find(std::begin(kPatternNames), std::end(kPatternNames), v);
      if (at == std::end(kPatternNames)) usage("--pattern " + v + ": there is none of this name");
      a.pattern = static_cast<Pattern>(at - std::begin(kPatternNames));
    } else if (s == "--rewrite") {
      a.rewrite = next();
      const std::vector<std::string>& names = rewritings();
      if (a.rewrite != "any" && std::find(names.begin(), names.end(), a.rewrite) == names.end())
        usage("--rewrite " + a.rewrite + ": there is none of this name");
    } else if (s == "--rewritings") a.rewritings = std::strtoll(next().c_str(), nullptr, 10);
    else if (s == "--print") a.print = true;
    else if (s == "--coverage") a.coverage = true, a.check.general = a.check.fast = a.check.passes = false;
    else if (s == "--verbose") a.verbose = true;
    else if (s == "--help") {
      std::cout << kUsage;
      std::exit(0);
    } else if (s[0] == '-') usage("unknown option " + s);
    else a.files.push_back(s);
  }
  if (a.check.optimised && a.device.kind == DeviceChoice::Kind::cuda)
    usage("--optimised is for SPIR-V, which --device cuda does not run");
  return a;
}

// A file's comments `// chk: in 0: iota` (0, 1, 2, ...), `// chk: in 0: fill 7`, `// chk: in 0: 1 2 3` (all elements,
// as literals of the text form) and
// `// chk: dim n: 40`: "in" or "dim", which one, and the values; `// chk: ulps 0: 2 of 8`, how far output 0 may be off
// (Tolerance), where it need not be what the interpreter has, and behind that why; or `// chk: relaxed`
// (Case::relaxed).
struct Given {
  std::string what, which;
  std::vector<std::string> values;
};
std::vector<Given> given_in(const std::string& text) {
  std::vector<Given> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string slashes, chk;
    if (!(words >> slashes >> chk) || slashes != "//" || chk != "chk:") continue;
    Given g;
    words >> g.what >> g.which;
    if (g.what == "relaxed") continue;
    if ((g.what != "in" && g.what != "dim" && g.what != "ulps") || g.which.size() < 2 || g.which.back() != ':')
      usage(line + ": \"in NUMBER: VALUES\", \"dim NAME: SIZE\" or \"ulps NUMBER: N of X\" is wanted");
    g.which.pop_back();
    for (std::string word; words >> word;) g.values.push_back(word);
    if (g.what == "dim" && g.values.size() != 1) usage(line + ": one size is wanted");
    if (g.what == "ulps" && (g.values.size() < 3 || g.values[1] != "of"))
      usage(line + ": so many ulps are wanted, \"of\", a number, and why");
    found.push_back(std::move(g));
  }
  return found;
}

Array given_array(const Given& g, const Shape& shape, DType t) {
  Array a(shape, t);
  const auto element = [&](const std::string& literal) {
    const auto bits = ir::parse_literal(t, t != DType::boolean || literal.size() > 1 ? literal
                                           : literal == "0"                          ? "false"
                                                                                     : "true");
    if (!bits) usage("in " + g.which + ": " + literal + " is no " + std::string(name(t)));
    return *bits;
  };
  const bool iota = g.values == std::vector<std::string>{"iota"}, fill = g.values.size() == 2 && g.values[0] == "fill";
  if (!iota && !fill && static_cast<int64_t>(g.values.size()) != a.size())
    usage("in " + g.which + ": " + std::to_string(g.values.size()) + " values for " + std::to_string(a.size()) +
          " elements");
  for (int64_t e = 0; e < a.size(); ++e)
    a.set_element_bits(e, iota ? reference::from_double(t, static_cast<double>(e))
                               : element(g.values[fill ? 1 : static_cast<size_t>(e)]));
  return a;
}

// A kernel from a file on the inputs that it gives, else on small whole numbers. Its outputs are the interpreter's, bit
// for bit, where the file does not say that they may be off.
Case from_file(const std::string& path) {
  std::ifstream in(path);
  if (!in) usage("cannot read " + path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  Case c;
  try {
    c.kernel = ir::parse(text, path);
  } catch (const Error& e) {
    std::cerr << e.what() << "\n";
    std::exit(2);
  }
  Random random(1);
  for (const std::string& name : c.kernel.dim_names()) c.dims[name] = random.in(5, 20);
  const std::vector<Given> given = given_in(text);
  c.relaxed = text.find("// chk: relaxed\n") != std::string::npos;
  for (const Given& g : given)
    if (g.what == "dim" && c.dims.count(g.which)) c.dims[g.which] = std::stoll(g.values[0]);
  for (int i = 0; i < c.kernel.num_inputs; ++i) {
    const DType t = c.kernel.blocks[static_cast<size_t>(i)].dtype;
    Shape shape;
    try {
      shape = bind_shape(c.kernel, i, c.dims);
    } catch (const Error& e) {
      usage(path + ": " + e.what() + "\n`// chk: dim NAME: SIZE` gives a size");
    }
    Array a(shape, t);
    for (int64_t e = 0; e < a.size(); ++e)
      a.set_element_bits(e, t == DType::boolean
                                ? random.next() & 1
                                : reference::from_double(
                                      t, static_cast<double>(is_unsigned_int(t) ? random.in(0, 8) : random.in(-8, 8))));
    c.inputs.push_back(std::move(a));
  }
  for (const Given& g : given) {
    if (g.what != "in") continue;
    const auto i = static_cast<size_t>(std::stoul(g.which));
    c.inputs.at(i) = given_array(g, c.inputs.at(i).shape(), c.inputs.at(i).dtype());
  }
  c.tolerance.resize(static_cast<size_t>(c.kernel.num_outputs()));
  for (const Given& g : given)
    if (g.what == "ulps") c.tolerance.at(std::stoul(g.which)) = {0, std::stod(g.values[0]), std::stod(g.values[2])};
  return c;
}

std::string first_lines(const std::string& text, size_t n) {
  std::istringstream in(text);
  std::string line, out;
  for (size_t i = 0; i < n && std::getline(in, line); ++i) out += line + "\n";
  return out;
}

Outcome run_check(const Case& c, const Arguments& a) {
  return a.device || a.coverage ? check(c, a.check) : check_apart(c, a.check, 60);
}

// What kind of failure it is, so that shrinking keeps it: its stage, and what its message begins with.
std::string kind(const Failure& f) {
  std::string s = f.stage + " " + f.message.substr(0, f.message.find_first_of("0123456789%"));
  return s.substr(0, f.stage.size() + 40);
}

void report(const Case& c, const Failure& failure, const std::string& name, const Arguments& a, bool lost) {
  const bool shrinks = a.shrink_seconds > 0 && !lost && failure.stage != "rewriting";
  std::cout << name << " FAILED in " << failure.stage << "\n" << first_lines(failure.message, a.verbose ? 100000 : 12);
  Case small = c;
  Failure last = failure;
  if (shrinks)
    small = shrink(
        c,
        [&](const Case& x) {
          const Outcome o = run_check(x, a);
          const bool same = o.failure && kind(*o.failure) == kind(failure);
          if (same) last = *o.failure;
          return same;
        },
        a.shrink_seconds);
  const std::string text = ir::print(small.kernel);
  if (shrinks) std::cout << "shrunk to:\n" << text << "which says: " << first_lines(last.message, 4) << std::endl;
  if (a.out.empty()) return;
  std::string word = name.substr(name.starts_with("seed ") ? 5 : name.rfind('/') + 1);
  for (char& x : word)
    if (!std::isalnum(static_cast<unsigned char>(x)) && x != '.') x = '_';
  const std::string file = a.out + "/fuzz_" + word;
  std::ofstream(file + ".tir") << text;
  for (size_t i = 0; i < small.inputs.size(); ++i) write_npy(file + "." + std::to_string(i) + ".npy", small.inputs[i]);
}

// Checks cases and counts what comes of them: those of files, then generated ones.
class Session {
 public:
  Session(Arguments& a, Devices& devices)
      : a_(a), devices_(devices), files_(a.files), shared_(*new(shared_memory(sizeof(Shared))) Shared) {
    if (a_.suite) suite_files();
  }

  void run() {
    if (a_.print || a_.coverage || a_.suite || !a_.device) {
      if (a_.device) std::cout << "device: " << devices_.name() << "\n";
      cases();
    } else if (!run_in_workers(
                   progress_, a_.patience, [&] { return work(); }, [&](const std::string& why) { died(why); })) {
      ++counts_.done, ++counts_.failures;
    }
    if (a_.suite) missing_ops();
  }

  int summary() const {
    const Counts& n = counts_;
    if (!a_.print)
      std::cout << "fuzz: " << n.done << " cases from seed " << a_.seed << ", " << n.failures << " failed, "
                << n.refusals << " refused by a target, " << n.unfinished << " runs too long, "
                << (n.with_output ? std::lround(100 * n.share / static_cast<double>(n.with_output)) : 0)
                << "% of a case's output elements defined on average, none in " << n.nothing_defined << " cases, "
                << n.judged << " modules judged (" << n.judge_steps << " instructions, " << n.unjudged
                << " of them too long), "
                << (n.another ? std::to_string(n.another) + " not the same kernel any more, " : "") << elapsed()
                << " s\n";
    if (a_.coverage) std::cout << coverage_.text() << n.defined << " of " << n.elements << " output elements defined\n";
    if (a_.check.delete_barriers)
      std::cout << n.needed << " of " << n.barriers << " barriers are missed when deleted\n";
    if (!a_.print) std::cout << n.done - n.failures << " passed, " << n.failures << " failed\n";
    return n.failures ? 1 : 0;
  }

 private:
  using Clock = std::chrono::steady_clock;
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  void suite_files() {
    // the latter's answers are JAX's on other inputs: answers_test
    for (const char* folder : {"tests/tir", "tests/data/pallas"})
      if (std::filesystem::is_directory(folder))
        for (const auto& entry : std::filesystem::directory_iterator(folder))
          if (entry.path().extension() == ".tir") files_.push_back(entry.path().string());
  }

  // The cases from progress_.next on, in this process; until the device is lost.
  void cases() {
    const bool strict = a_.check.strict;
    const auto files = static_cast<int64_t>(files_.size());
    for (int64_t& i = progress_.next; i < files && !devices_.lost(); ++i) {
      // the tolerance of files is for code that rounds as the interpreter does
      a_.check.strict = true;
      const std::string& path = files_[static_cast<size_t>(i)];
      one(from_file(path), path);
    }
    if (a_.suite) rewritten_files();
    a_.check.strict = strict;
    if (!a_.files.empty()) return;
    for (int64_t& i = progress_.next; i - files < a_.count && elapsed() < a_.seconds && !devices_.lost(); ++i)
      generated(a_.seed + static_cast<uint64_t>(i - files));
  }

  // The suite's: each file in one other form, on two targets. A soak has more.
  void rewritten_files() {
    const CheckOptions before = a_.check;
    a_.check.general = a_.check.passes = a_.check.matrix = a_.check.cut = a_.check.random = a_.check.nvidia = false;
    a_.check.minimum = std::getenv("TESSERA_TESTS_ALL");
    a_.check.orders = 1;
    a_.rewrite = "any";
    for (const std::string& path : files_) one(from_file(path), path);
    a_.rewrite.clear();
    a_.check = before;
  }

  void generated(uint64_t seed) {
    if (a_.suite) {  // shares, for the suite is to take minutes
      const bool every = std::getenv("TESSERA_TESTS_ALL");
      a_.check.judge = every || seed % 3 == 0;
      a_.check.random = every || seed % 2 == 0;
      a_.check.optimised = seed % (every ? 2 : 12) == 0;
    }
    const std::string name = "seed " + std::to_string(seed);
    std::optional<Case> c;
    try {
      c = generate(seed, a_.pattern.value_or(pattern_of(seed)));
    } catch (const Error& e) {
      ++counts_.done, ++counts_.failures;
      std::cout << name << " FAILED in the generator, whose kernel is refused\n" << e.what() << std::endl;
    }
    if (c) one(*c, name);
    if (platform::prints_to_terminal() && (seed - a_.seed) % 10 == 0)
      std::cerr << "\r" << seed - a_.seed << " " << std::flush;
  }

  // What a worker does, and its exit status.
  int work() {
    try {
      const std::string name = devices_.name();
      if (!progress_.announced) std::cout << "device: " << name << std::endl;
      progress_.announced = true;
    } catch (const Error& e) {
      std::cout << "fuzz: " << e.what() << "\n";
      return kNoDevice;
    }
    a_.check.on_stage = [this](const std::string& stage) { progress_.begin_stage(stage); };
    cases();
    return devices_.lost() ? kDeviceLost : kDone;
  }

  void died(const std::string& why) {
    ++counts_.done, ++counts_.failures;
    std::cout << progress_.name.data() << " FAILED in " << progress_.stage.data() << "\n" << why << std::endl;
  }

  // What these few cases lack must come with later seeds.
  void missing_ops() {
    for (uint64_t seed = a_.seed + static_cast<uint64_t>(a_.count); seed < a_.seed + 6000 && !coverage_.never().empty();
         ++seed)
      coverage_.add(generate(seed));
    for (const std::string& op : coverage_.never()) {
      ++counts_.done, ++counts_.failures;
      std::cout << op << " FAILED: no kernel of these has the op; teach the generator in tests/fuzz to make it\n";
    }
  }

  // The case, or as many of its rewritings as there are to be.
  void one(const Case& c, const std::string& name) {
    if (a_.rewrite.empty()) return checked(c, name);
    for (int64_t i = 0; i < a_.rewritings; ++i) {
      const std::string known = name.substr(name.rfind('/') + 1);  // the same wherever it is run
      const uint64_t seed = std::accumulate(known.begin(), known.end(), a_.seed + static_cast<uint64_t>(i) * 1000003,
                                            [](uint64_t s, char x) { return s * 131 + static_cast<unsigned char>(x); });
      const std::optional<Rewritten> r = rewrite(c, a_.rewrite == "any" ? "" : a_.rewrite, seed);
      if (!r) continue;
      a_.check.first = &c;
      a_.check.original = r->original;
      a_.check.perhaps_another = r->perhaps_another;
      checked(r->c, name + " (" + std::to_string(i) + ": " + r->what + ")");
      a_.check.first = nullptr;
    }
  }

  void checked(const Case& c, const std::string& name) {
    progress_.begin_case(name);
    if (ir::find_problems(c.kernel).empty()) {  // a file's kernel may have some, which the check reports
      coverage_.add(c);
      if (a_.coverage) coverage_.add_steps(c);
    }
    if (a_.print) {
      std::cout << "// " << name << "\n" << ir::print(c.kernel);
      return;
    }
    const double begin = elapsed();
    const std::clock_t used = std::clock();  // of all threads, so that other processes do not count
    const Outcome o = run_check(c, a_);
    count(o);
    if (a_.verbose)
      std::cout << name << ": " << elapsed() - begin << " s, "
                << static_cast<double>(std::clock() - used) / CLOCKS_PER_SEC << " s of processors, " << o.defined
                << " of " << o.elements << " elements defined" << std::endl;
    if (!o.failure) return;
    ++counts_.failures;
    const std::string what = kind(*o.failure);
    if (++seen_[what] > 2) {
      std::cout << name << " FAILED as others: " << what << std::endl;
      return;
    }
    a_.check.first = nullptr;  // a shrunk kernel is no rewriting of it
    report(c, *o.failure, name, a_, devices_.lost());
  }

  void count(const Outcome& o) {
    Counts& n = counts_;
    ++n.done;
    n.refusals += o.compile_errors;
    n.another += o.another;
    n.unfinished += o.unfinished;
    n.defined += o.defined, n.elements += o.elements;
    if (o.elements > 0) {
      ++n.with_output;
      n.share += static_cast<double>(o.defined) / static_cast<double>(o.elements);
      n.nothing_defined += o.defined == 0;
    }
    n.barriers += o.barriers, n.needed += o.needed;
    n.judged += o.judged, n.unjudged += o.unjudged, n.judge_steps += o.judge_steps;
  }

  struct Counts {
    int64_t done = 0, failures = 0, refusals = 0, unfinished = 0, defined = 0, elements = 0, barriers = 0, needed = 0,
            judged = 0, unjudged = 0, judge_steps = 0, another = 0, nothing_defined = 0, with_output = 0;
    double share = 0;
  };
  struct Shared {  // with workers
    Progress progress;
    Counts counts;
  };

  Arguments& a_;
  Devices& devices_;
  std::vector<std::string> files_;
  Shared& shared_;
  Progress& progress_ = shared_.progress;
  Counts& counts_ = shared_.counts;
  const Clock::time_point start_ = Clock::now();
  std::map<std::string, int> seen_;  // kinds of failures
  Coverage coverage_;
};
}  // namespace

int main(int argc, char** argv) {
#ifdef __GLIBC__  // memory is kept: what the runs of a case want is alike, and pages that are given back and taken
                  // again are a tenth of the time
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
  Arguments a = parse_arguments(argc, argv);
  Devices devices(a.device);
  if (a.device)
    a.check.device = [&](const Case& c, bool general, bool little_room, std::vector<std::string>& lines) {
      const bool strict = a.check.strict && !c.relaxed;
      return devices.run(c, {general, strict, a.check.optimised, little_room}, lines);
    };
  Session session(a, devices);
  session.run();
  return session.summary();
}
