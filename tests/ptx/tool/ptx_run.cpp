// ptx_run FILE.ptx: runs an entry in the emulator, on buffers that the command line describes.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

#include "tests/ptx/emulator.h"
#include "tests/ptx/numbers.h"

namespace {

using namespace tessera::ptx;

constexpr const char* kHelp =
    R"(usage: ptx_run FILE.ptx [--entry NAME] [--grid X[,Y[,Z]]] [--block X[,Y[,Z]]] [--shared BYTES] [--seed N] [--seeds COUNT]
               [--no-races] [--exact] [--resident N] [--print] [PARAMETER ...]
A parameter: TYPE[N]        a buffer that nobody has written
             TYPE[N]=VALUE  a buffer full of VALUE, or of: iota, random (small whole numbers)
             TYPE=VALUE     a number
Without parameters and without a grid it only decodes the entries.
--seeds COUNT runs it so many times, in other orders. --print writes the buffers at the end.
)";

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "ptx_run: %s\n", what.c_str());
  std::exit(2);
}
void three(const std::string& text, uint32_t* n) {
  std::stringstream s(text);
  std::string part;
  for (int i = 0; i < 3 && std::getline(s, part, ','); ++i) n[i] = static_cast<uint32_t>(std::stoul(part));
}
uint64_t encode(Type t, const std::string& text) {
  if (!is_float(t)) return static_cast<uint64_t>(std::stoll(text, nullptr, 0));
  return narrow(t, std::stod(text), Round::even);
}

struct Parameter {
  Type type = Type::b32;
  std::string text;
  bool is_buffer = false, written = true;
  std::vector<std::byte> bytes;
};
Parameter parameter(const std::string& s) {
  Parameter p;
  p.text = s;
  const size_t bracket = s.find('['), equals = s.find('=');
  p.type = type_of(s.substr(0, std::min(bracket, equals)));
  if (p.type == Type::none) fail("\"" + s + "\" is no parameter");
  const size_t w = width_of(p.type) / 8;
  const std::string value = equals == std::string::npos ? "" : s.substr(equals + 1);
  p.is_buffer = bracket != std::string::npos;
  const size_t n = p.is_buffer ? std::stoul(s.substr(bracket + 1)) : 1;
  p.bytes.resize(n * w);
  p.written = !value.empty();
  if (!p.written && !p.is_buffer) fail("\"" + s + "\" has no value");
  Random random{7};
  for (size_t k = 0; k < n && p.written; ++k) {
    const std::string number = value == "iota"     ? std::to_string(k)
                               : value == "random" ? std::to_string(static_cast<int>(random.below(17)) - 8)
                                                   : value;
    const uint64_t bits = encode(p.type, number);
    std::memcpy(p.bytes.data() + k * w, &bits, w);
  }
  return p;
}
void print(const Parameter& p) {
  const size_t w = width_of(p.type) / 8;
  std::printf("%s:", p.text.c_str());
  for (size_t at = 0; at < p.bytes.size(); at += w) {
    uint64_t bits = 0;
    std::memcpy(&bits, p.bytes.data() + at, w);
    if (is_float(p.type)) std::printf(" %.9g", widen(p.type, bits));
    else if (is_signed(p.type)) std::printf(" %lld", static_cast<long long>(signed_of(bits, width_of(p.type))));
    else std::printf(" %llu", static_cast<unsigned long long>(bits));
  }
  std::printf("\n");
}

int main_(int argc, char** argv) {
  std::string file;
  Launch launch;
  std::vector<Parameter> parameters;
  uint64_t seeds = 1;
  bool prints = false, given = false;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const auto value = [&]() -> std::string {
      if (++i == argc) fail(a + " takes a value");
      return argv[i];
    };
    if (a == "--help" || a == "-h") return std::fputs(kHelp, stdout), 0;
    if (a == "--entry") launch.entry = value();
    else if (a == "--grid") three(value(), launch.grid), given = true;
    else if (a == "--block") three(value(), launch.block), given = true;
    else if (a == "--shared") launch.dynamic_shared = std::stoull(value());
    else if (a == "--seed") launch.seed = std::stoull(value());
    else if (a == "--seeds") seeds = std::stoull(value());
    else if (a == "--resident") launch.resident = static_cast<uint32_t>(std::stoul(value()));
    else if (a == "--no-races") launch.races = false;
    else if (a == "--exact") launch.inexact = false;
    else if (a == "--print") prints = true;
    else if (a[0] == '-') fail("unknown option " + a);
    else if (file.empty()) file = a;
    else parameters.push_back(parameter(a)), given = true;
  }
  std::ifstream in(file);
  if (!in) fail("cannot read \"" + file + "\"");
  std::stringstream text;
  text << in.rdbuf();
  const Module module = parse(text.str());
  if (!given) {
    for (const Function& f : module.functions) {
      if (!f.entry) continue;
      check(module, f.name);
      std::printf("%s: ok\n", f.name.c_str());
    }
    return 0;
  }
  std::vector<Parameter> at_work;
  for (uint64_t k = 0; k < seeds; ++k) {
    at_work = parameters;
    Launch l = launch;
    l.seed += k;
    for (Parameter& p : at_work) {
      if (p.is_buffer) l.buffer({.name = p.text, .bytes = p.bytes, .initialised = p.written, .may_hold_poison = true});
      else l.place(p.bytes.data(), p.bytes.size(), p.bytes.size());
    }
    const Result r = run(module, l);
    if (!r.ok()) return std::printf("seed %llu: %s\n", static_cast<unsigned long long>(l.seed), r.text.c_str()), 1;
    if (k == 0) std::printf("ok: %llu instructions\n", static_cast<unsigned long long>(r.instructions));
  }
  for (const Parameter& p : at_work)
    if (prints && p.is_buffer) print(p);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return main_(argc, argv);
  } catch (const std::exception& e) {
    fail(e.what());
  }
}
