#include "tests/support/generator/threads.h"

#include <algorithm>
#include <functional>
#include <string>

#include "tests/support/generator/random.h"
#include "tests/support/generator/text_case.h"

namespace tessera::fuzz {
namespace {

std::string str(int64_t n) { return std::to_string(n); }
/// The parts of a list are made from the left to the right, those of a sum in any order.
std::string cat(std::initializer_list<std::string> parts) {
  std::string s;
  for (const std::string& p : parts) s += p;
  return s;
}

/// Writes the kernel as text. Numbers stay small, so that every dtype holds them exactly.
class Threads {
 public:
  explicit Threads(uint64_t seed) : random_(seed ^ 0x7468726561647321u) {}

  Case run() {
    type_ = random_.pick<std::string>({"f32", "f32", "i32", "f16", "bf16", "i16", "u8", "i8"});
    groups_ = random_.in(1, 3), cluster_ = random_.in(1, 3);
    tile_ = {random_.in(2, 6), random_.in(3, 10)};
    from_ = {tile_[0] + random_.in(0, 8), tile_[1] + random_.in(0, 10)};
    to_ = {random_.in(2, 8), random_.in(3, 12)};
    if (random_.chance(0.5)) return team();
    begin();
    for (int64_t n = random_.in(2, 5); n-- > 0;) statement();
    flush();
    if (multiplies_) multiply();
    return made();
  }

 private:
  using Size = std::vector<int64_t>;
  Random random_;
  std::string type_, body_, indent_ = "  ";
  int64_t groups_ = 1, cluster_ = 1;
  Size tile_, from_, to_, left_, right_;
  bool multiplies_ = false;
  int names_ = 0;
  std::vector<std::string> starts_, shared_;  // i32 values; shared: the same in all programs of a cluster

  void line(const std::string& s) { body_ += indent_ + s + "\n"; }
  std::string let(const std::string& op) {
    const std::string v = "%v" + str(names_++);
    line(v + " = " + op);
    return v;
  }

  void begin() {
    line("%g = program_id axis 0");
    line("%c = program_id axis 1");
    line("%zero = constant 0 : i32[]");
    line("%one = constant 1 : i32[]");
    const std::string clusters = let("constant " + str(cluster_) + " : i32[]"), first = let("mul %g, " + clusters);
    line("%program = add " + first + ", %c");
    shared_ = {"%g", let("mul %g, " + let("constant " + str(random_.in(-2, 5)) + " : i32[]")),
               let("load %starts[" + str(random_.in(0, 5)) + "]")};
    starts_ = shared_;
    starts_.insert(starts_.end(), {"%c", "%program", let("load %starts[%c]"),
                                   let("mul %c, " + let("constant " + str(random_.in(1, 4)) + " : i32[]"))});
    if (random_.chance(0.3)) line("set_max_registers count 40 decrease 1");
    for (const char* tile : {"%s0", "%s1"}) {
      const std::string bar = barrier();
      line("copy_gmem_to_smem %x[0:" + str(tile_[0]) + ", ds(%g, " + str(tile_[1]) + ")] to " + tile +
           "[0:" + str(tile_[0]) + ", 0:" + str(tile_[1]) + "] with " + bar);
      line("barrier_wait " + bar);
    }
    multiplies_ = random_.chance(0.4);
  }
  std::string barrier() { return "%full[" + str(random_.in(0, 1)) + "]"; }
  std::string tile() { return random_.chance(0.5) ? "%s0" : "%s1"; }

  /// A window of n elements along a dim, 0: a position. The text between the brackets.
  std::string along(int64_t extent, int64_t n, const std::vector<std::string>& starts) {
    const int64_t size = std::max<int64_t>(n, 1);
    const int64_t most = size == 1 ? 1 : (extent - 1) / (size - 1),
                  step = random_.chance(0.7) ? 1 : random_.in(1, most);
    const int64_t span = (size - 1) * step + 1;
    if (!starts.empty() && random_.chance(0.5)) {
      const std::string start = random_.pick(starts);
      return n == 0 ? start : "ds(" + start + ", " + str(n) + (step > 1 ? ", " + str(step) : "") + ")";
    }
    const int64_t first = random_.in(0, extent - span);
    if (n == 0) return str(first);
    return str(first) + ":" + str(first + span) + (step > 1 ? ":" + str(step) : "");
  }
  std::string window(const Size& of, const Size& shape, const std::vector<std::string>& starts) {
    return cat({"[", along(of[0], shape[0], starts), ", ", along(of[1], shape[1], starts), "]"});
  }
  /// Of at most both; a first size of 0: a row.
  Size shape(const Size& a, const Size& b) {
    return {random_.chance(0.2) ? 0 : random_.in(1, std::min(a[0], b[0])), random_.in(1, std::min(a[1], b[1]))};
  }

  void statement() {
    switch (random_.in(0, 6)) {
      case 0: return bring();
      case 1: return cluster_ > 1 ? share() : bring();
      case 2: return flush();
      case 3: {
        const std::string most = let("constant " + str(random_.in(1, 3)) + " : i32[]"), k = "%k" + str(names_++);
        return inside("for " + k + " = %zero to " + most + " step %one {", {k});
      }
      case 4: {
        const std::string some = let("ge " + random_.pick(starts_) + ", %one");
        return inside("if " + some + " {", {});
      }
      default: return compute();
    }
  }
  void inside(const std::string& head, const std::vector<std::string>& more) {
    line(head);
    const std::vector<std::string> starts = starts_;
    starts_.insert(starts_.end(), more.begin(), more.end());
    indent_ += "  ";
    for (int64_t n = random_.in(1, 2); n-- > 0;)
      random_.chance(0.5) ? compute() : random_.chance(0.6) ? bring() : flush();
    indent_.resize(indent_.size() - 2);
    starts_ = starts;
    line("}");
  }
  void bring() {
    const Size s = shape(from_, tile_);
    const std::string bar = barrier();
    line(cat(
        {"copy_gmem_to_smem %x", window(from_, s, starts_), " to ", tile(), window(tile_, s, starts_), " with ", bar}));
    line("barrier_wait " + bar);
  }
  /// The programs of a cluster bring a part each to all of them, when all are done with what was there.
  void share() {
    Size s = shape(from_, tile_);
    s[0] = std::min(from_[0], tile_[0]) / cluster_ * cluster_;
    if (s[0] == 0) return bring();
    const std::string bar = barrier();
    line("barrier_arrive %together[0]");
    line("barrier_wait %together[0]");
    line(cat({"copy_gmem_to_smem %x", window(from_, s, shared_), " to ", tile(), window(tile_, s, {}), " with ", bar,
              " axes [1]"}));
    line("barrier_wait " + bar);
  }
  void compute() {
    const Size s = shape(tile_, tile_);
    const std::string a = let(cat({"load ", tile(), window(tile_, s, starts_)}));
    const std::string b = let(cat({"load ", tile(), window(tile_, s, starts_)}));
    const std::string v = let(cat({random_.pick<std::string>({"max ", "min ", "max ", "add "}), a, ", ", b}));
    line(cat({"store ", tile(), window(tile_, s, starts_), ", ", v}));
  }
  void flush() {
    const Size s = shape(tile_, to_);
    const std::string source = cat({tile(), window(tile_, s, starts_)}), target = window(to_, s, starts_);
    const auto copy = [&](const std::string& more) {
      line("commit_smem");
      line("copy_smem_to_gmem " + source + " to %o[%program, " + target.substr(1) + more);
      line("commit_smem_to_gmem_group");
      line("wait_smem_to_gmem count 0");
    };
    copy("");
    if ((type_ == "f32" || type_ == "i32") && random_.chance(0.3))
      copy(random_.pick<std::string>({" kind add", " kind max", " kind min"}));
  }
  void multiply() {
    const int64_t m = random_.in(1, 8), k = random_.in(1, 8), n = random_.in(1, 8);
    const bool a_turned = random_.chance(0.3), b_turned = random_.chance(0.3);
    left_ = a_turned ? Size{k, m} : Size{m, k}, right_ = b_turned ? Size{n, k} : Size{k, n};
    product_ = {m, n};
    const auto all_of = [](const Size& s) { return "[0:" + str(s[0]) + ", 0:" + str(s[1]) + "]"; };
    line("copy_gmem_to_smem %y" + window({9, 9}, left_, starts_) + " to %a" + all_of(left_) + " with %full[0]");
    line("copy_gmem_to_smem %y" + window({9, 9}, right_, starts_) + " to %b" + all_of(right_) + " with %full[1]");
    line("barrier_wait %full[0]");
    line("barrier_wait %full[1]");
    for (int64_t times = random_.in(1, 2); times-- > 0;)
      line("wgmma %a" + all_of(left_) + " with %b" + all_of(right_) + " to %acc" + all_of(product_) + " transposed [" +
           str(a_turned) + ", " + str(b_turned) + "]");
    line("wgmma_wait count 0");
    line("store %stage" + all_of(product_) + ", " + let("load %acc" + all_of(product_)));
    line("commit_smem");
    line("copy_smem_to_gmem %stage" + all_of(product_) + " to %p[%program, " + all_of(product_).substr(1));
    line("commit_smem_to_gmem_group");
    line("wait_smem_to_gmem count 0");
  }
  Size product_;

  // -- programs of several threads. Between two meetings of all threads a tile belongs to one thread, which may store
  // to it, or to none, and then all may read it.
  int64_t threads_ = 2;
  bool aligned_ = false;        // rows of tiles, and where copies find them, so that vectors may be copied
  std::vector<int64_t> owner_;  // of each tile, -1: none
  std::string all(const Size& s) const {
    std::string text;
    for (const int64_t n : s) text += (text.empty() ? "0:" : ", 0:") + str(n);
    return text;
  }
  std::string smem(const Size& s, const std::string& type) const {
    std::string sizes;
    for (const int64_t n : s) sizes += (sizes.empty() ? "" : ", ") + str(n);
    return "ref<smem, " + type + "[" + sizes + "]>";
  }
  static std::string tile_name(size_t t) { return "%s" + std::to_string(t); }

  Case team() {
    threads_ = random_.in(2, random_.chance(0.2) ? 4 : 3), cluster_ = random_.in(1, 2);
    aligned_ = random_.chance(0.3);
    if (aligned_) {
      const int64_t columns = random_.pick<int64_t>({16, 32});
      tile_ = {512 / columns * random_.in(1, 2), columns}, from_ = {tile_[0] + random_.in(0, 5), 32};
    }
    owner_.assign(static_cast<size_t>(threads_) + 1, -1);
    begin_team();
    for (int64_t n = random_.in(1, 3); n-- > 0;) {
      switch (random_.in(0, 3)) {
        case 0: ring(); break;
        case 1: in_loop([&] { exchange(), meeting(); }); break;
        default: exchange(), meeting();
      }
    }
    for (size_t t = 0; t < owner_.size(); ++t) owner_[t] = -1;
    each_thread([&](int64_t t) { flush_tile(t, static_cast<size_t>(t)); });
    if (multiplies_) multiply_together();
    return made_of_team();
  }

  void begin_team() {
    line("%g = program_id axis 0");
    line("%c = program_id axis 1");
    line("%wg = program_id axis 2");
    line("%zero = constant 0 : i32[]");
    line("%one = constant 1 : i32[]");
    const std::string clusters = let("constant " + str(cluster_) + " : i32[]"), first = let("mul %g, " + clusters);
    line("%program = add " + first + ", %c");
    starts_ = {
        "%g", "%c", "%wg", "%program", let("load %starts[" + str(random_.in(0, 5)) + "]"), let("load %starts[%wg]")};
    multiplies_ = random_.chance(0.3);
    for (size_t t = 0; t < owner_.size(); ++t) owner_[t] = static_cast<int64_t>(t) % threads_;
    each_thread([&](int64_t t) {
      for (size_t i = 0; i < owner_.size(); ++i)
        if (owner_[i] == t) bring_tile(t, i, true);
    });
    meeting();
  }
  void block(const std::string& head, const std::function<void()>& body) {
    line(head);
    const std::vector<std::string> starts = starts_;
    indent_ += "  ";
    body();
    indent_.resize(indent_.size() - 2);
    starts_ = starts;
    line("}");
  }
  void in_loop(const std::function<void()>& body) {
    const std::string most = let("constant " + str(random_.in(1, 3)) + " : i32[]"), k = "%k" + str(names_++);
    block("for " + k + " = %zero to " + most + " step %one {", [&] {
      starts_.push_back(k);
      body();
    });
  }
  /// What each thread does: each in a branch of its own.
  void each_thread(const std::function<void(int64_t)>& body) {
    for (int64_t t = 0; t < threads_; ++t) {
      const std::string mine = let("eq %wg, " + let("constant " + str(t) + " : i32[]"));
      block("if " + mine + " {", [&] { body(t); });
    }
  }
  /// All threads: at a barrier with as many arrivals, or at the beginning of memory that they share.
  void meeting() {
    if (random_.chance(0.3)) {
      const std::string t = "%t" + str(names_++), b = "%b" + str(names_++);
      block("run_scoped (" + t + ": " + smem(tile_, type_) + ", " + b + ": ref<barrier, i32[1], arrivals " +
                str(threads_) + ">) {",
            [&] {
              line("barrier_arrive " + b + "[0]");
              if (random_.chance(0.5)) line("barrier_wait " + b + "[0]");
            });
      return;
    }
    line("barrier_arrive %meet[0]");
    line("barrier_wait %meet[0]");
  }
  std::string barrier_of(int64_t t) { return random_.chance(0.5) ? "%full[" + str(t) + "]" : "%full[%wg]"; }

  /// A window of the array.
  std::string source(const Size& s) {
    if (!aligned_ || s[1] != tile_[1]) return window(from_, s, starts_);
    const int64_t first = 16 * random_.in(0, (from_[1] - s[1]) / 16);
    const std::string rows = along(from_[0], s[0], random_.chance(0.3) ? starts_ : std::vector<std::string>());
    return cat({"[", rows, ", ", str(first), ":", str(first + s[1]), "]"});
  }
  void bring_tile(int64_t t, size_t tile, bool whole) {
    const Size s = whole ? tile_ : shape(from_, tile_);
    const std::string bar = barrier_of(t), to = whole ? "[" + all(tile_) + "]" : window(tile_, s, starts_);
    line(cat({"copy_gmem_to_smem %x", source(s), " to ", tile_name(tile), to, " with ", bar}));
    line("barrier_wait " + bar);
  }
  void flush_tile(int64_t t, size_t tile) {
    const Size s = shape(tile_, to_);
    const std::string source = tile_name(tile) + window(tile_, s, starts_), target = window(to_, s, starts_);
    line("commit_smem");
    line("copy_smem_to_gmem " + source + " to %o[%program, " + str(t) + ", " + target.substr(1));
    line("commit_smem_to_gmem_group");
    line("wait_smem_to_gmem count 0");
  }
  void exchange() {
    for (size_t i = 0; i < owner_.size(); ++i) owner_[i] = random_.chance(0.4) ? -1 : random_.in(0, threads_ - 1);
    each_thread([&](int64_t t) {
      std::vector<size_t> mine, readable;
      for (size_t i = 0; i < owner_.size(); ++i) {
        if (owner_[i] == t) mine.push_back(i);
        if (owner_[i] == t || owner_[i] < 0) readable.push_back(i);
      }
      for (int64_t n = random_.in(0, 2); n-- > 0 && !readable.empty();) {
        const size_t from = readable[static_cast<size_t>(random_.in(0, static_cast<int64_t>(readable.size()) - 1))];
        if (mine.empty() || random_.chance(0.2)) {
          flush_tile(t, from);
          continue;
        }
        const size_t to = mine[static_cast<size_t>(random_.in(0, static_cast<int64_t>(mine.size()) - 1))];
        if (random_.chance(0.3)) bring_tile(t, to, false);
        else combine_tiles(from, to);
      }
    });
  }
  void combine_tiles(size_t from, size_t to) {
    const Size s = shape(tile_, tile_);
    const std::string a = let(cat({"load ", tile_name(from), window(tile_, s, starts_)}));
    const std::string b = let(cat({"load ", tile_name(to), window(tile_, s, starts_)}));
    const std::string v = let(cat({random_.pick<std::string>({"max ", "min ", "max ", "add "}), a, ", ", b}));
    line(cat({"store ", tile_name(to), window(tile_, s, starts_), ", ", v}));
  }
  /// The first thread fills slots, the others take what is in them: each has its own tile for the result.
  void ring() {
    const int64_t slots = random_.in(1, 3), copies = random_.in(1, 2), steps = random_.in(1, 5);
    const std::string n = str(names_++), ring = "%ring" + n, ready = "%ready" + n, free = "%free" + n;
    const Size part = tile_;
    const auto scope = [&] {
      block("run_scoped (" + ring + ": " + smem({slots, copies, part[0], part[1]}, type_) + ", " + ready +
                ": ref<barrier, i32[" + str(slots) + "], arrivals " + str(copies) + ">, " + free +
                ": ref<barrier, i32[" + str(slots) + "], arrivals " + str(threads_ - 1) + ">) {",
            [&] {
              const std::string end = let("constant " + str(steps) + " : i32[]"),
                                size = let("constant " + str(slots) + " : i32[]");
              block("if " + let("eq %wg, %zero") + " {", [&] { produce(ring, ready, free, end, size, copies); });
              block("if " + let("ne %wg, %zero") + " {", [&] { consume(ring, ready, free, end, size, copies); });
            });
    };
    if (random_.chance(0.4)) in_loop(scope);
    else scope();
    meeting();
  }
  void produce(const std::string& ring, const std::string& ready, const std::string& free, const std::string& end,
               const std::string& size, int64_t copies) {
    const std::string k = "%k" + str(names_++);
    block("for " + k + " = %zero to " + end + " step %one {", [&] {
      starts_.push_back(k);
      const std::string slot = let("rem " + k + ", " + size), reused = let("ge " + k + ", " + size);
      block("if " + reused + " {", [&] { line("barrier_wait " + free + "[" + slot + "]"); });
      for (int64_t i = 0; i < copies; ++i)
        line(cat({"copy_gmem_to_smem %x", source(tile_), " to ", ring, "[", slot, ", ", str(i), ", ", all(tile_),
                  "] with ", ready, "[", slot, "]"}));
    });
  }
  void consume(const std::string& ring, const std::string& ready, const std::string& free, const std::string& end,
               const std::string& size, int64_t copies) {
    Size s = shape(tile_, tile_);
    s[0] = std::max<int64_t>(s[0], 1);
    const std::string type = type_ + "[" + str(s[0]) + ", " + str(s[1]) + "]", n = str(names_++), k = "%k" + n,
                      start = let("constant " + std::string(type_[0] == 'u' || type_[0] == 'i' ? "0" : "0.0") + " : " +
                                  type);
    const std::string from = window(tile_, s, starts_), to = window(tile_, s, starts_);
    block("%sum" + n + " = for " + k + " = %zero to " + end + " step %one carry (%carry" + n + " = " + start + ") {",
          [&] {
            const std::string slot = let("rem " + k + ", " + size);
            line("barrier_wait " + ready + "[" + slot + "]");
            std::string v = "%carry" + n;
            for (int64_t i = 0; i < copies; ++i) {
              const std::string x = let("load " + ring + "[" + slot + ", " + str(i) + ", " + from.substr(1));
              v = let(random_.pick<std::string>({"max ", "min ", "add "}) + v + ", " + x);
            }
            line("barrier_arrive " + free + "[" + slot + "]");
            line("yield " + v);
          });
    for (int64_t t = 1; t < threads_; ++t) {
      const std::string mine = let("eq %wg, " + let("constant " + str(t) + " : i32[]"));
      block("if " + mine + " {", [&] { line("store " + tile_name(static_cast<size_t>(t)) + to + ", %sum" + n); });
    }
  }
  /// One thread brings the factors, all multiply.
  void multiply_together() {
    const int64_t m = random_.in(1, 8), k = random_.in(1, 8), n = random_.in(1, 8);
    left_ = {m, k}, right_ = {k, n}, product_ = {m, n};
    block("if " + let("eq %wg, %zero") + " {", [&] {
      line("copy_gmem_to_smem %y" + window({9, 9}, left_, starts_) + " to %a[" + all(left_) + "] with %factors[0]");
      line("copy_gmem_to_smem %y" + window({9, 9}, right_, starts_) + " to %b[" + all(right_) + "] with %factors[0]");
    });
    line("barrier_wait %factors[0]");
    for (int64_t times = random_.in(1, 2); times-- > 0;)
      line("wgmma %a[" + all(left_) + "] with %b[" + all(right_) + "] to %acc[" + all(product_) + "]");
    line("wgmma_wait count 0");
    line("store %stage[%wg, " + all(product_) + "], " + let("load %acc[" + all(product_) + "]"));
    line("commit_smem");
    line("copy_smem_to_gmem %stage[%wg, " + all(product_) + "] to %p[%program, %wg, " + all(product_) + "]");
    line("commit_smem_to_gmem_group");
    line("wait_smem_to_gmem count 0");
  }
  Case made_of_team() {
    const auto sizes = [](const Size& s) {
      std::string text;
      for (const int64_t n : s) text += (text.empty() ? "" : ", ") + str(n);
      return "[" + text + "]";
    };
    const int64_t programs = groups_ * cluster_;
    std::string text = "tir 1\nkernel @threads\ngrid (g: " + str(groups_) + " parallel, c: " + str(cluster_) +
                       " cluster, wg: " + str(threads_) + " thread)\nin i32[6] whole\nin " + type_ + sizes(from_) +
                       " whole\n";
    if (multiplies_) text += "in f16[9, 9] whole\n";
    text += "out " + type_ + sizes({programs, threads_, to_[0], to_[1]}) + " whole\n";
    if (multiplies_) text += "out f32" + sizes({programs, threads_, product_[0], product_[1]}) + " whole\n";
    std::string names = std::string("%starts, %x, ") + (multiplies_ ? "%y, " : "") + "%o" + (multiplies_ ? ", %p" : "");
    for (size_t t = 0; t < owner_.size(); ++t) {
      text += "scratch " + smem(tile_, type_) + "\n";
      names += ", " + tile_name(t);
    }
    text += "scratch ref<barrier, i32[" + str(threads_) + "]>\nscratch ref<barrier, i32[1], arrivals " + str(threads_) +
            ">\n";
    names += ", %full, %meet";
    if (multiplies_) {
      text += "scratch ref<barrier, i32[1], arrivals 2>\nscratch " + smem(left_, "f16") + "\nscratch " +
              smem(right_, "f16") + "\nscratch " + smem({threads_, product_[0], product_[1]}, "f32") +
              "\nscratch ref<accumulator, f32" + sizes(product_) + ">\n";
      names += ", %factors, %a, %b, %stage, %acc";
    }
    return with_inputs(text + "body (" + names + ") {\n" + body_ + "}\n");
  }

  Case made() {
    const auto shaped = [](const Size& s) { return "[" + str(s[0]) + ", " + str(s[1]) + "]"; };
    const std::string programs = str(groups_ * cluster_);
    std::string text = "tir 1\nkernel @threads\ngrid (g: " + str(groups_) + " parallel, c: " + str(cluster_) +
                       " cluster, 1 thread)\nin i32[6] whole\nin " + type_ + shaped(from_) + " whole\n";
    if (multiplies_) text += "in f16[9, 9] whole\n";
    text += "out " + type_ + "[" + programs + ", " + shaped(to_).substr(1) + " whole\n";
    if (multiplies_) text += "out f32[" + programs + ", " + shaped(product_).substr(1) + " whole\n";
    for (int i = 0; i < 2; ++i) text += "scratch ref<smem, " + type_ + shaped(tile_) + ">\n";
    text += "scratch ref<barrier, i32[2]>\nscratch ref<cluster_barrier, i32[1], axes [1]>\n";
    if (multiplies_)
      text += "scratch ref<smem, f16" + shaped(left_) + ">\nscratch ref<smem, f16" + shaped(right_) +
              ">\nscratch ref<smem, f32" + shaped(product_) + ">\nscratch ref<accumulator, f32" + shaped(product_) +
              ">\n";
    text += std::string("body (%starts, %x, ") + (multiplies_ ? "%y, " : "") + "%o, " + (multiplies_ ? "%p, " : "") +
            "%s0, %s1, %full, %together" + (multiplies_ ? ", %a, %b, %stage, %acc" : "") + ") {\n" + body_ + "}\n";
    return with_inputs(text);
  }
  Case with_inputs(const std::string& text) {
    return exact_case(text, "threads.tir", [&](int i, DType t) {
      return random_.in(i == 0 ? -2 : is_unsigned_int(t) ? 0 : -3, i == 0 ? from_[0] + 1 : 3);
    });
  }
};

}  // namespace

Case threads(uint64_t seed) { return Threads(seed).run(); }

}  // namespace tessera::fuzz
