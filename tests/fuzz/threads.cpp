#include "tests/fuzz/threads.h"

#include <algorithm>
#include <string>

#include "engine/ir/reference.h"
#include "engine/ir/text.h"
#include "tests/fuzz/random.h"

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
    Case c;
    c.kernel = ir::parse(text, "threads.tir");
    for (int i = 0; i < c.kernel.num_inputs; ++i) {
      const DType t = c.kernel.blocks[static_cast<size_t>(i)].dtype;
      Shape shape;
      for (const Extent& e : c.kernel.blocks[static_cast<size_t>(i)].array_shape) shape.push_back(*e.value());
      Array a(shape, t);
      const int64_t least = i == 0 ? -2 : is_unsigned_int(t) ? 0 : -3, most = i == 0 ? from_[0] + 1 : 3;
      for (int64_t e = 0; e < a.size(); ++e)
        a.set_element_bits(e, reference::from_double(t, static_cast<double>(random_.in(least, most))));
      c.inputs.push_back(std::move(a));
    }
    c.tolerance.assign(static_cast<size_t>(c.kernel.num_outputs()), 0);
    return c;
  }
};

}  // namespace

Case threads(uint64_t seed) { return Threads(seed).run(); }

}  // namespace tessera::fuzz
