#include "tests/support/generator/control.h"

#include <algorithm>
#include <functional>
#include <string>

#include "tests/support/generator/random.h"
#include "tests/support/generator/text_case.h"

namespace tessera::fuzz {
namespace {
std::string dec(int64_t n) { return std::to_string(n); }

/// Writes the kernel as text. All numbers are integers that wrap, so answers are exact.
class Control {
 public:
  explicit Control(uint64_t seed) : random_(seed ^ 0x636f6e74726f6c21u) {}

  Case run() {
    type_ = random_.pick<std::string>({"i32", "i32", "i16", "u8", "i8", "u32", "i64"});
    programs_ = random_.in(1, 3);
    n_ = random_.pick<int64_t>({1, 3, 5, 8, 17, 40, 70});
    parallel_ = random_.chance(0.4);
    line("%zero = constant 0 : i32[]");
    line("%one = constant 1 : i32[]");
    line("%g = program_id axis 0");
    scalars_ = {"%zero", "%one", "%g", let("load %y[0]"), let("load %y[%g]")};
    line("%first = eq %g, %zero");
    const int64_t form = random_.in(0, parallel_ ? 2 : 4);
    // What a copy is under way to, from one program to the next, is not filled again.
    const bool once = form >= 3 || (!parallel_ && random_.chance(0.4));
    if (once) open("if %first {");
    fill("%s"), fill("%buf[0"), fill("%buf[1");
    for (int i = 0; i < 4; ++i) line("store %c[" + dec(i) + "], " + scalar());
    if (once) close("}");
    fill("%p");
    for (int i = 0; i < 8; ++i) line("store %o[" + dec(i) + "], " + scalar());
    if (form >= 3) slots_over_programs();
    else if (form == 2) slots_over_iterations();
    else some(3, 7);
    for (const char* v : {"%s", "%p"}) line("store %p[0:" + dec(n_) + "], " + mixed(v));
    for (int i = 0; i < 4; ++i) line("store %o[" + dec(i) + "], " + let("load %c[" + dec(i) + "]"));
    for (int i = 4; i < 8; ++i) line("store %o[" + dec(i) + "], " + scalar());
    return made();
  }

 private:
  using Names = std::vector<std::string>;
  Random random_;
  std::string type_, body_, indent_ = "  ";
  int64_t programs_ = 1, n_ = 1;
  bool parallel_ = false, busy_ = false;  // busy: a copy to %s is under way
  int names_ = 0, depth_ = 0, long_ones_ = 0;
  Names scalars_, counters_;  // i32, in scope; counters_: 0 to 4, as loops have left them

  // Each makes at most one line after all lines that it needs: arguments of one call are made in variables.
  void line(const std::string& s) { body_ += indent_ + s + "\n"; }
  std::string name() { return "%v" + dec(names_++); }
  std::string let(const std::string& op) {
    const std::string v = name();
    line(v + " = " + op);
    return v;
  }
  void open(const std::string& s) { line(s), indent_ += "  "; }
  void close(const std::string& s) { indent_.resize(indent_.size() - 2), line(s); }
  /// What is made inside goes out of scope behind.
  void scope(const Names& more, const std::function<void()>& inside) {
    const Names outer = scalars_, counters = counters_;
    scalars_.insert(scalars_.end(), more.begin(), more.end());
    indent_ += "  ", ++depth_;
    inside();
    indent_.resize(indent_.size() - 2), --depth_;
    scalars_ = outer, counters_ = counters;
  }
  void some(int64_t least, int64_t most) {
    for (int64_t n = random_.in(least, most); n-- > 0;) statement();
  }

  std::string number(int64_t v) { return let("constant " + dec(v) + " : i32[]"); }
  std::string scalar() {
    if (random_.chance(0.15)) return number(random_.chance(0.2) ? INT32_MIN + random_.in(0, 3) : random_.in(-4, 9));
    const size_t n = scalars_.size();
    return random_.chance(0.5) ? scalars_[n - 1 - random_.below(std::min<size_t>(n, 3))] : random_.pick(scalars_);
  }
  /// 0 to most.
  std::string up_to(int64_t most) {
    const std::string m = number(most + 1), r = let("rem " + scalar() + ", " + m);
    return let("abs " + r);
  }
  std::string condition() {
    const std::string a = scalar(), b = scalar();
    return let(random_.pick<std::string>({"lt ", "ge ", "eq ", "ne "}) + a + ", " + b);
  }
  std::string compute() {
    const std::string a = scalar(), b = scalar();
    if (random_.chance(0.15)) return let("select " + condition() + ", " + a + ", " + b);
    return let(random_.pick<std::string>({"add ", "sub ", "mul ", "xor ", "min ", "max "}) + a + ", " + b);
  }
  /// An i32 in memory, at a position of any kind.
  std::string place(bool to_write) {
    const int64_t which = random_.in(to_write ? 0 : -1, 2), size = which < 0 ? 6 : which == 0 ? 4 : 8;
    const std::string at = random_.chance(0.5)   ? dec(random_.in(0, size - 1))
                           : random_.chance(0.9) ? up_to(size - 1)
                                                 : scalar();
    return (which < 0 ? "%y[" : which == 0 ? "%c[" : "%o[") + at + "]";
  }
  std::string loaded() { return let("load " + place(false)); }

  std::string tile(const std::string& ref) {
    return ref + (ref.ends_with("[0") || ref.ends_with("[1") ? ", 0:" : "[0:") + dec(n_) + "]";
  }
  std::string vector_of(const std::string& type) { return type + "[" + dec(n_) + "]"; }
  std::string spread(const std::string& x) {
    const std::string t = type_ == "i32" ? x : let("convert " + x + " : " + type_ + "[]");
    return let("broadcast " + t + " dims [] : " + vector_of(type_));
  }
  std::string iota() {
    const std::string i = let("iota axis 0 : " + vector_of("i32"));
    return type_ == "i32" ? i : let("convert " + i + " : " + vector_of(type_));
  }
  void fill(const std::string& ref) {
    const std::string a = iota(), b = spread(scalar()), v = let("xor " + a + ", " + b);
    line("store " + tile(ref) + ", " + v);
  }
  std::string readable() { return busy_ || random_.chance(0.4) ? "%p" : "%s"; }
  std::string mixed(const std::string& ref) {
    const std::string a = let("load " + tile(ref)), b = random_.chance(0.4) ? iota() : spread(scalar());
    const std::string v = let(random_.pick<std::string>({"add ", "xor ", "max ", "mul "}) + a + ", " + b);
    return random_.chance(0.2) ? let("cumsum " + v + " axis 0 reverse " + dec(random_.in(0, 1))) : v;
  }
  std::string summed(const std::string& v) {
    const std::string s = let(random_.pick<std::string>({"reduce_sum ", "reduce_max "}) + v + " axes [0]");
    return type_ == "i32" ? s : let("convert " + s + " : i32[]");
  }
  void update() {
    const std::string ref = readable();
    if (random_.chance(0.5)) return line("store " + tile(ref) + ", " + mixed(readable()));
    if (random_.chance(0.3)) return line("addupdate " + tile(ref) + ", " + mixed(readable()));
    // at positions that may meet, or be outside
    const std::string shift = random_.chance(0.4)
                                  ? let("constant " + dec(random_.in(-2, n_ + 2)) + " : " + vector_of("i32"))
                                  : let("broadcast " + scalar() + " dims [] : " + vector_of("i32"));
    const std::string i = let("iota axis 0 : " + vector_of("i32")),
                      few = let("constant " + dec(random_.in(1, 5)) + " : " + vector_of("i32"));
    const std::string spot = let("rem " + i + ", " + few),
                      at = random_.chance(0.3) ? shift : let("add " + spot + ", " + shift);
    const std::string v = mixed(readable());
    const std::string old =
        let("atomic_rmw " + ref + "[" + at + "], " + v + " kind " + random_.pick<std::string>({"add", "max", "xor"}));
    if (random_.chance(0.6)) scalars_.push_back(summed(old));
  }

  void statement() {
    const int64_t roll = random_.in(0, depth_ < 3 ? 99 : 59);
    if (roll < 15) return scalars_.push_back(compute());
    if (roll < 28) return scalars_.push_back(loaded());
    if (roll < 42) {
      const std::string v = compute(), to = place(true);
      return line("store " + to + ", " + v);
    }
    if (roll < 55) return update();
    if (roll < 60) return scalars_.push_back(summed(mixed(readable())));
    if (roll < 74) return loop();
    if (roll < 80) return repeat();
    if (roll < 88) return branch();
    if (roll < 92) return choice();
    return random_.chance(0.5) && !busy_ ? copied() : counted();
  }

  void loop() { loop(depth_ < 2 && long_ones_ < 2 && random_.chance(0.4)); }
  void loop(bool long_one) {
    std::string to;
    if (random_.chance(0.6)) {
      const std::string m = random_.chance(0.7) ? loaded() : scalar(),
                        most = number(long_one ? random_.in(500, 4000) : 5), r = let("rem " + m + ", " + most);
      to = let("abs " + r);
    } else {
      to = number(long_one ? random_.in(500, 4000) : random_.in(0, 4));
    }
    const std::string k = name(), carried = random_.chance(0.5) ? name() : "", result = name(), start = scalar();
    line((carried.empty() ? "" : result + " = ") + "for " + k + " = %zero to " + to + " step %one" +
         (carried.empty() ? "" : " carry (" + carried + " = " + start + ")") + " {");
    scope(carried.empty() ? Names{k} : Names{k, carried}, [&] {
      if (long_one) {
        ++long_ones_;
        const std::string at = place(true), v = let("load " + at), by = random_.chance(0.6) ? k : scalar(),
                          sum = let("add " + v + ", " + by);
        line("store " + at + ", " + sum);
        if (random_.chance(0.3)) inner_loop();
      } else {
        some(1, 3);
      }
      if (!carried.empty()) line("yield " + compute());
    });
    line("}");
    if (!carried.empty()) scalars_.push_back(result);
  }
  void inner_loop() {
    const std::string to = up_to(4), k = name();
    line("for " + k + " = %zero to " + to + " step %one {");
    scope({k}, [&] {
      const std::string at = place(true), v = let("load " + at), sum = let("xor " + v + ", " + k);
      line("store " + at + ", " + sum);
    });
    line("}");
  }
  /// A while whose test may store.
  void repeat() {
    const std::string most = !counters_.empty() && random_.chance(0.4) ? random_.pick(counters_) : up_to(4),
                      result = name(), i = name(), j = name();
    line(result + " = while (" + i + " = %zero) {");
    scope({i}, [&] {
      if (random_.chance(0.4)) some(1, 2);
      std::string go = let("lt " + i + ", " + most);
      if (random_.chance(0.3)) go = let("and " + go + ", " + condition());
      line("yield " + go);
    });
    line("} do (" + j + ") {");
    scope({j}, [&] {
      some(1, 3);
      line("yield " + let("add " + j + ", %one"));
    });
    line("}");
    scalars_.push_back(result);
    counters_.push_back(result);
  }
  void region(const std::string& value) {
    scope({}, [&] {
      some(random_.chance(0.2) ? 0 : 1, 3);
      if (!value.empty()) line("yield " + compute());
    });
  }
  /// A branch that is done long before what is beside it, or behind it.
  void unequal() {
    const bool behind = random_.chance(0.5);
    line("if " + condition() + " {");
    scope({}, [&] {
      some(0, 1);
      loop(false);
      some(0, 1);
    });
    if (!behind) line("} else {"), scope({}, [&] { loop(true); });
    line("}");
    if (behind) loop(true);
  }
  void branch() {
    if (depth_ < 2 && long_ones_ < 2 && random_.chance(0.3)) return unequal();
    const std::string c = condition(), result = random_.chance(0.5) ? name() : "";
    line((result.empty() ? "" : result + " = ") + "if " + c + " {");
    region(result);
    if (!result.empty() || random_.chance(0.5)) line("} else {"), region(result);
    line("}");
    if (!result.empty()) scalars_.push_back(result);
  }
  void choice() {
    const std::string selector = random_.chance(0.3) ? scalar() : up_to(3), result = name();
    for (int64_t n = random_.in(2, 4), i = 0; i < n; ++i) {
      line((i == 0 ? result + " = switch " + selector : std::string("}")) + " case " + dec(i) + " {");
      region(result);
    }
    line("}");
    scalars_.push_back(result);
  }

  std::string third() {  // or the fourth
    const std::string n = up_to(1), two = number(2);
    return let("add " + n + ", " + two);
  }
  void copied() {
    const std::string row = random_.chance(0.5) ? dec(random_.in(0, programs_)) : up_to(programs_),
                      sem = random_.chance(0.5) ? dec(random_.in(2, 3)) : third();
    const std::string what = "%x[" + row + ", 0:" + dec(n_) + "] to " + tile("%s") + " with %sem[" + sem + "]";
    line("copy_start " + what);
    busy_ = true;
    some(0, 3);
    busy_ = false;
    line("copy_wait " + what);
  }
  void counted() {
    const std::string by = let("add " + up_to(2) + ", %one"),
                      at = "%cnt[" + (random_.chance(0.5) ? dec(random_.in(0, 1)) : up_to(1)) + "]";
    line("semaphore_signal " + at + ", " + by);
    scalars_.push_back(let("semaphore_read " + at));
    some(0, 2);
    line("semaphore_wait " + at + ", " + by);
  }
  /// One of two slots is read while the other is filled; `k` of `count`, the step of a loop or the program.
  void slots(const std::string& k, const std::string& count) {
    const std::string two = number(2), slot = let("rem " + k + ", " + two), next = let("add " + k + ", %one"),
                      other = let("rem " + next + ", " + two);
    const auto copy = [&](const std::string& row, const std::string& to) {
      return "%x[" + row + ", 0:" + dec(n_) + "] to %buf[" + to + ", 0:" + dec(n_) + "] with %sem[" + to + "]";
    };
    const std::string begins = let("eq " + k + ", %zero");
    line("if " + begins + " {"), line("  copy_start " + copy("%zero", "%zero")), line("}");
    const bool late = random_.chance(0.5);
    if (late) line("copy_wait " + copy(k, slot));
    const std::string more = let("lt " + next + ", " + count);
    line("if " + more + " {"), line("  copy_start " + copy(next, other)), line("}");
    some(0, 2);
    if (!late) line("copy_wait " + copy(k, slot));
    some(0, 2);
    const std::string here = let("load %buf[" + slot + ", 0:" + dec(n_) + "]");
    if (random_.chance(0.5)) scalars_.push_back(summed(here));
    line("addupdate " + tile(random_.chance(0.5) ? "%p" : "%s") + ", " + here);
    some(0, 2);
  }
  void slots_over_programs() {
    some(0, 2);
    slots("%g", number(programs_));
  }
  void slots_over_iterations() {
    some(0, 2);
    const std::string count = number(programs_ + 1), k = name();
    line("for " + k + " = %zero to " + count + " step %one {");
    scope({k}, [&] { slots(k, count); });
    line("}");
    some(0, 2);
  }

  Case made() {
    const std::string n = dec(n_), p = dec(programs_);
    const auto per_program = [&](const std::string& t, const std::string& size) {
      return "out " + t + "[" + p + ", " + size + "] block (squeezed, " + size +
             ") map (%i) {\n  %z = constant 0 : i32[]\n  yield %i, %z\n}\n";
    };
    const std::string text =
        "tir 1\nkernel @control\ngrid (" + p + (parallel_ ? " parallel" : "") + ")\nin i32[6] whole\nin " + type_ +
        "[" + dec(programs_ + 1) + ", " + n + "] whole\n" + per_program("i32", "8") + per_program(type_, n) +
        "scratch ref<smem, i32[4]>\nscratch ref<vmem, " + type_ + "[" + n + "]>\nscratch ref<vmem, " + type_ + "[2, " +
        n +
        "]>\nscratch ref<dma_semaphore, i32[4]>\nscratch ref<semaphore, i32[2]>\nbody (%y, %x, %o, %p, "
        "%c, %s, %buf, %sem, %cnt) {\n" +
        body_ + "}\n";
    return exact_case(text, "control.tir", [&](int i, DType t) {
      return random_.in(is_unsigned_int(t) ? 0 : i == 0 ? -700 : -5, i == 0 ? 700 : 7);
    });
  }
};
}  // namespace

Case control(uint64_t seed) { return Control(seed).run(); }

}  // namespace tessera::fuzz
