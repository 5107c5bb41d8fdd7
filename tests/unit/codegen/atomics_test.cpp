// Atomics of programs that run at once: which axes they leave parallel, the lane level, SPIR-V and the device, every
// dtype and kind.
#include "codegen/compile.h"
#include "codegen/lane/interpreter.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "tests/support/sanitizer.h"
#include "tests/unit/codegen/spirv_support.h"

namespace atomics_test {
using namespace tessera;

namespace {
ir::Kernel parse(const std::string& text) {
  ir::Kernel k = ir::parse("tir 1\n" + text, "k.tir");
  ir::check(k);
  return k;
}
std::string explained(const ir::Kernel& k, const Target& t = lavapipe_target()) { return compile(k, t).explain; }
bool says(const std::string& text, const std::string& line) {
  return text.find("\n  " + line + "\n") != std::string::npos;
}

Array filled(DType t, Shape shape, double v) {
  Array a(std::move(shape), t);
  for (int64_t i = 0; i < a.size(); ++i) a.set_element_bits(i, reference::from_double(t, v));
  return a;
}

/// 40 programs combine y[i] with o[x[i]], and with two neighbours from o[x[i]] on; `result` is what becomes of the old
/// value.
ir::Kernel scatter(DType t, const std::string& kind, const std::string& axis, bool used) {
  const std::string d(name(t));
  const auto op = [&](const std::string& place, const std::string& v) {
    return kind == "cas" ? "atomic_cas " + place + ", " + v + " compare " + v
                         : "atomic_rmw " + place + ", " + v + " kind " + kind;
  };
  return parse("kernel @scatter\ngrid (" + axis + ")\nin i32[40] block (squeezed) map (%i) { yield %i }\nin " + d +
               "[40] block (squeezed) map (%i) { yield %i }\nout " + d + "[13] whole\nout " + d +
               "[40] block (squeezed) map (%i) { yield %i }\nbody (%x, %y, %o, %p) {\n  %a = load %x[]\n  %v = load "
               "%y[]\n  %r = " +
               op("%o[%a]", "%v") + "\n  %w = broadcast %v dims [] : " + d +
               "[2]\n  %s = " + op("%o[ds(%a, 2)]", "%w") + "\n  store %p[], " + (used ? "%r" : "%v") + "\n}\n");
}

struct Answer {
  std::vector<Array> outputs;
  std::string from;
};
/// The outputs of every form, target and device, all starting from zeros.
std::vector<Answer> answers(const ir::Kernel& k, const std::vector<Array>& inputs) {
  std::vector<Answer> all;
  for (const bool general : {false, true})
    for (Target t :
         {lavapipe_target(), minimum_target(), test::device() ? test::device()->target() : lavapipe_target()}) {
      t.int8 = t.int16 = t.int64 = t.float16 = t.float64 = t.storage8 = t.storage16 = t.int64_atomics = true;
      t.max_loop_iterations = 0;
      CompileOptions options;
      options.general = general;
      ir::Kernel lanes;
      options.dump = [&](std::string_view, const ir::Kernel& now, bool) {
        if (now.level == ir::Level::lane) lanes = now;
      };
      const Program p = compile(k, t, options);
      CHECK(test::validate(p.spirv) == "");
      const std::string from = (general ? "general/" : "fast/") + t.name;
      std::vector<Array> arrays = inputs;
      for (size_t i = inputs.size(); i < k.blocks.size(); ++i)
        arrays.push_back(filled(k.blocks[i].dtype, bind_shape(k, static_cast<int>(i), {}), 0));
      for (uint64_t seed = 0; seed < 3; ++seed) {
        lane::RunOptions run;
        run.seed = seed;
        run.subgroup_size = t.subgroup_size;
        const lane::RunResult r = lane::run(lanes, arrays, k.num_inputs, {}, run);
        for (const std::string& report : r.reports) FAIL_CHECK(from << ": " << report << "\n" << ir::print(lanes));
        all.push_back({r.outputs, from + " lanes"});
      }
      if (!test::device() || p.scratch_bytes > 0) continue;
      const Target& own = test::device()->target();  // whose subgroups may have another size than t's
      const int32_t size = p.required_subgroup_size;
      if (size && (size < own.min_subgroup_size || size > own.max_subgroup_size)) continue;
      std::vector<std::vector<std::byte>> memory;
      for (const Array& a : arrays) {
        memory.emplace_back(a.bytes(), a.bytes() + a.nbytes());
        memory.back().resize((memory.back().size() + 3) / 4 * 4);  // whole words
      }
      test::Dispatch d;
      for (auto& m : memory) d.buffers.push_back(&m);
      d.workgroups[0] = static_cast<uint32_t>(p.num_units.eval({}));
      d.subgroup_size = static_cast<uint32_t>(p.required_subgroup_size);
      d.indirect_table = p.indirect_table;
      test::device()->run(p.spirv, d);
      std::vector<Array> outputs;
      for (size_t i = inputs.size(); i < arrays.size(); ++i) {
        Array out = arrays[i];
        std::memcpy(out.bytes(), memory[i].data(), static_cast<size_t>(out.nbytes()));
        outputs.push_back(std::move(out));
      }
      all.push_back({outputs, from + " device"});
    }
  return all;
}

#if defined(TESSERA_ADDRESS_SANITIZER)  // ten times as slow: one dtype of each size and kind
const std::vector<DType> kNumbers{DType::i4,     DType::u8,   DType::i16, DType::i32, DType::u64,
                                  DType::f8e5m2, DType::bf16, DType::f32, DType::f64};
#else
const std::vector<DType> kNumbers{DType::i4,  DType::u4,   DType::i8,  DType::u8,  DType::i16,      DType::u16,
                                  DType::i32, DType::u32,  DType::i64, DType::u64, DType::f8e4m3fn, DType::f8e5m2,
                                  DType::f16, DType::bf16, DType::f32, DType::f64};
#endif
std::vector<Array> scatter_inputs(DType t) {
  Array x({40}, DType::i32), y({40}, t);
  for (int i = 0; i < 40; ++i) {
    x.set_element_bits(i, static_cast<uint64_t>(i * 7 % 11));
    y.set_element_bits(i, reference::from_double(t, t == DType::boolean ? i % 3 == 0
                                                    : is_float(t) && size_bytes(t) == 1
                                                        ? i % 3 - 1
                                                        : i % 5 - (is_float(t) || is_signed_int(t) ? 2 : 0)));
  }
  return {x, y};
}
}  // namespace

TEST_CASE(
    "atomics: updates that commute leave the axis parallel, on every dtype, lane level and device as the interpreter") {
  for (const DType t : kNumbers)
    for (const char* kind : {"add", "add unordered 1", "max", "min", "and", "or", "xor"}) {
      if (is_float(t) ? std::string(kind) == "and" || std::string(kind) == "or" || std::string(kind) == "xor"
                      : std::string(kind) == "add unordered 1")
        continue;
      const ir::Kernel k = scatter(t, kind, "40", false);
      CAPTURE(name(t));
      CAPTURE(kind);
      if (is_float(t) && std::string(kind) == "add")
        CHECK(says(explained(k),
                   "grid axis 0: sequential: out_specs[0] is not proved to be touched only once along it; its atomic "
                   "updates keep their order"));
      else
        CHECK(says(explained(k),
                   "grid axis 0: parallel, proved: what programs that differ in it both update, they update "
                   "atomically, in no order that shows"));
      const std::vector<Array> inputs = scatter_inputs(t),
                               wanted = interpret(k, inputs, {.uninitialised = Uninitialised::zero});
      for (const Answer& a : answers(k, inputs))
        for (size_t o = 0; o < wanted.size(); ++o)
          for (int64_t i = 0; i < wanted[o].size(); ++i)
            CHECK_MESSAGE(reference::to_double(t, a.outputs[o].element_bits(i)) ==
                              reference::to_double(t, wanted[o].element_bits(i)),
                          a.from, " output ", o, " element ", i);
    }
  test::quiet();
}

TEST_CASE("atomics: bools") {
  for (const char* kind : {"and", "or", "xor"}) {
    const ir::Kernel k = scatter(DType::boolean, kind, "40", false);
    CAPTURE(kind);
    const std::vector<Array> inputs = scatter_inputs(DType::boolean),
                             wanted = interpret(k, inputs, {.uninitialised = Uninitialised::zero});
    for (const Answer& a : answers(k, inputs))
      for (int64_t i = 0; i < wanted[0].size(); ++i)
        CHECK_MESSAGE(a.outputs[0].element_bits(i) == wanted[0].element_bits(i), a.from, " element ", i);
  }
}

TEST_CASE("atomics: a result that is used, an exchange and a compare-and-swap bind the axis") {
  const std::string bound = "grid axis 0: sequential: out_specs[0] is not proved to be touched only once along it";
  for (const DType t : {DType::i32, DType::u8, DType::f32}) {
    for (const auto& form :
         {std::pair<std::string, bool>{"max", true}, {"swap", false}, {"cas", false}, {"cas", true}}) {
      const std::string kind = form.first;
      const bool used = form.second;
      const ir::Kernel k = scatter(t, kind, "40", used);
      CAPTURE(kind);
      CHECK(says(explained(k), bound));
      const std::vector<Array> inputs = scatter_inputs(t),
                               wanted = interpret(k, inputs, {.uninitialised = Uninitialised::zero});
      for (const Answer& a : answers(k, inputs))
        for (size_t o = 0; o < wanted.size(); ++o)
          for (int64_t i = 0; i < wanted[o].size(); ++i)
            CHECK_MESSAGE(a.outputs[o].element_bits(i) == wanted[o].element_bits(i), a.from, " output ", o, " element ",
                          i);
    }
  }
  test::quiet();
}

// Declared parallel: each program gets a ticket of its own, one of them is the first to see a zero, and an exchange
// loses nothing.
TEST_CASE("atomics: on an axis that is declared parallel their order is anybody's") {
  for (const DType t : {DType::i32, DType::i64, DType::u16, DType::f16, DType::f32, DType::f64}) {
    const std::string d(name(t));
    const ir::Kernel k =
        parse("kernel @tickets\ngrid (40 parallel)\nout " + d + "[3] whole\nout " + d + "[40] whole\nout " + d +
              "[40] whole\nout " + d +
              "[40, 3] block (squeezed, 3) map (%i) {\n  %0 = constant 0 : i32[]\n  yield %i, %0\n}\nbody (%o, %p, %q, "
              "%r) {\n  %i = program_id axis 0\n  %one = constant " +
              (is_float(t) ? "1.0" : "1") + " : " + d + "[]\n  %zero = constant " + (is_float(t) ? "0.0" : "0") +
              " : " + d + "[]\n  %n = convert %i : " + d +
              "[]\n  %m = add %n, %one\n  %a = atomic_rmw %o[0], %one kind add unordered 1\n  store %p[%i], %a\n" +
              "  %b = atomic_cas %o[1], %m compare %zero\n  %c = atomic_rmw %o[2], %m kind swap\n  store %q[%i], %c\n  "
              "%u = broadcast %b dims [] : " +
              d + "[3]\n  store %r[0:3], %u\n}\n");
    ir::Kernel whole = k;
    if (is_int(t))
      whole = ir::parse([&] {
        std::string s = ir::print(k);
        for (size_t at; (at = s.find(" unordered 1")) != std::string::npos;) s.erase(at, 12);
        return s;
      }());
    CHECK(says(explained(whole), "grid axis 0: parallel, declared"));
    CAPTURE(name(t));
    for (const Answer& a : answers(whole, {})) {
      CAPTURE(a.from);
      const auto number = [&](size_t o, int64_t i) { return reference::to_double(t, a.outputs[o].element_bits(i)); };
      std::vector<int> tickets(40, 0), held(41, 0);
      for (int i = 0; i < 40; ++i) {
        REQUIRE(number(1, i) >= 0);
        REQUIRE(number(1, i) < 40);
        ++tickets[static_cast<size_t>(number(1, i))];
        ++held[static_cast<size_t>(number(2, i))];
      }
      ++held[static_cast<size_t>(number(0, 2))];
      CHECK(tickets == std::vector<int>(40, 1));
      CHECK(held == std::vector<int>(41, 1));
      CHECK(number(0, 0) == 40);
      int first = 0;
      for (int i = 0; i < 40; ++i) {
        CHECK((number(3, 3 * i) == 0 || number(3, 3 * i) == number(0, 1)));
        CHECK(number(3, 3 * i + 2) == number(3, 3 * i));
        first += number(3, 3 * i) == 0;
      }
      CHECK(first == 1);
    }
  }
  test::quiet();
}

TEST_CASE("atomics: what keeps a declared axis sequential all the same") {
  const std::string kept =
      "grid axis 0: sequential: out_specs[0] is not proved to be touched only once along it; its atomic updates keep "
      "their order, although it is declared parallel";
  CHECK(says(explained(scatter(DType::f32, "add", "40 parallel", false)), kept));
  CHECK(
      says(explained(scatter(DType::f32, "add unordered 1", "40 parallel", true)), "grid axis 0: parallel, declared"));
  Target t = lavapipe_target();
  t.int64_atomics = false;
  CHECK(says(explained(scatter(DType::i64, "max", "40", false), t),
             "grid axis 0: sequential: out_specs[0] is not proved to be touched only once along it; its atomic updates "
             "keep their order"));
  CHECK(says(explained(scatter(DType::f64, "max", "40 parallel", false), t), kept));
  CHECK(says(explained(scatter(DType::i32, "max", "40", false), t),
             "grid axis 0: parallel, proved: what programs that differ in it both update, they update atomically, in "
             "no order that shows"));
}

TEST_CASE("atomics: loads and other kinds beside the updates bind the axis") {
  const auto with = [](const std::string& op) {
    return parse(
        "kernel @mixed\ngrid (40)\nout i32[13] whole\nout i32[40] block (1) map (%i) { yield %i }\nbody (%o, %p) {\n  "
        "%one = constant 1 : i32[]\n  %v = constant 3 : i32[1]\n  %a = atomic_rmw %o[2], %one kind add\n  " +
        op + "\n}\n");
  };
  const std::string bound = "grid axis 0: sequential: out_specs[0] is not proved to be touched only once along it";
  CHECK(says(explained(with("%b = atomic_rmw %o[3], %one kind xor\n  store %p[0:1], %v")), bound));
  CHECK(says(explained(with("%b = load %o[3:4]\n  store %p[0:1], %b")), bound));
  CHECK(says(explained(with("store %o[1:2], %v\n  store %p[0:1], %v")), bound));
  CHECK(says(explained(with("%b = atomic_rmw %o[3], %one kind add\n  store %p[0:1], %v")),
             "grid axis 0: parallel, proved: what programs that differ in it both update, they update atomically, in "
             "no order that shows"));
}

namespace {
/// 8 programs combine five values each with o at an index array: some twice, some outside; and three at the places that
/// are left under a mask. `bits`: as numbers of that dtype. `scratch`: o is filled by the last program from scratch.
ir::Kernel by_arrays(DType t, const std::string& kind, const std::string& axis, bool used,
                     const std::string& space = "out") {
  const std::string d(name(t));
  const auto op = [&](const std::string& place, const std::string& v, const std::string& mask) {
    return kind == "cas" ? "atomic_cas " + place + ", " + v + " compare " + v + mask
                         : "atomic_rmw " + place + ", " + v + mask + " kind " + kind;
  };
  const bool scratch = space == "scratch";
  return parse(
      "kernel @arrays\ngrid (" + axis + ")\nin i32[40] block (5) map (%i) { yield %i }\nin " + d +
      "[40] block (5) map (%i) { yield %i }\nout " + d + "[7, 2] whole\nout " + d +
      "[40] block (5) map (%i) { yield %i }\nout " + d + "[24] block (3) map (%i) { yield %i }\n" +
      (scratch ? "scratch ref<vmem, " + d + "[7, 2]>\n" : "") + "body (%x, %y, %o, %p, %q" + (scratch ? ", %s" : "") +
      ") {\n" +
      (scratch ? "  %id = program_id axis 0\n  %c0 = constant 0 : i32[]\n  %c7 = constant 7 : i32[]\n  %first = eq "
                 "%id, %c0\n  %last = eq %id, %c7\n  if %first {\n    %z = constant " +
                     std::string(t == DType::boolean ? "false"
                                 : is_float(t)       ? "0.0"
                                                     : "0") +
                     " : " + d + "[7, 2]\n    store %s[0:7, 0:2], %z\n  }\n"
               : "") +
      "  %a = load %x[0:5]\n  %v = load %y[0:5]\n  %r = " +
      op(std::string(scratch ? "%s" : "%o") + "[%a, 1]", "%v", "") +
      "\n  %b = slice %a[1:4]\n  %w = slice %v[0:3]\n  %n = constant 5 : i32[3]\n" +
      "  %m = lt %b, %n\n  %e = " + op(std::string(scratch ? "%s" : "%o") + "[%b, 0]", "%w", " mask %m other %w") +
      "\n  store %p[0:5], " + (used ? "%r" : "%v") + "\n  store %q[0:3], " + (used ? "%e" : "%w") + "\n" +
      (scratch ? "  if %last {\n    %all = load %s[0:7, 0:2]\n    store %o[0:7, 0:2], %all\n  }\n" : "") + "}\n");
}
std::vector<Array> array_inputs(DType t) {
  std::vector<Array> r = scatter_inputs(t);
  for (int i = 0; i < 40; ++i)
    r[0].set_element_bits(i, static_cast<uint32_t>(i % 11 == 3   ? 9
                                                   : i % 11 == 5 ? -20
                                                   : i % 3 == 1  ? -(i % 7)
                                                                 : i * i % 5));
  return r;
}
void check_arrays(const ir::Kernel& k, DType t) {
  const std::vector<Array> inputs = array_inputs(t),
                           wanted = interpret(k, inputs, {.uninitialised = Uninitialised::zero});
  for (const Answer& a : answers(k, inputs))
    for (size_t o = 0; o < wanted.size(); ++o)
      for (int64_t i = 0; i < wanted[o].size(); ++i)
        CHECK_MESSAGE(
            reference::to_double(t, a.outputs[o].element_bits(i)) == reference::to_double(t, wanted[o].element_bits(i)),
            a.from, " output ", o, " element ", i);
}
}  // namespace

TEST_CASE("atomics: at index arrays, on every dtype and kind, lane level and device as the interpreter") {
  std::vector<DType> all = kNumbers;
  all.push_back(DType::boolean);
  size_t n = 0;
  for (const DType t : all)
    for (const std::string kind : {"add", "add unordered 1", "max", "min", "and", "or", "xor", "swap", "cas"}) {
      if (is_float(t) ? kind == "and" || kind == "or" || kind == "xor" : kind == "add unordered 1") continue;
      if (t == DType::boolean && (kind == "add" || kind == "max" || kind == "min")) continue;
      if (!test::sampled(n++)) continue;
      CAPTURE(name(t));
      CAPTURE(kind);
      // every form of these; of the others what differs by dtype
      const bool alone = t == DType::i32 || t == DType::f32;
      if (alone || kind != "swap") check_arrays(by_arrays(t, kind, "8", false), t);
      if (alone || kind == "cas") check_arrays(by_arrays(t, kind, "8", true), t);
      if (t == DType::i32 || (kind == "max" && size_bytes(t) < 4))
        check_arrays(by_arrays(t, kind, "8", true, "scratch"), t);
      if (alone || t == DType::u32 || (kind == "add" && size_bytes(t) < 4))
        check_arrays(by_arrays(t, kind, "8", false, "scratch"), t);
    }
  CHECK(says(explained(by_arrays(DType::i32, "max", "8", false)),
             "grid axis 0: parallel, proved: what programs that differ in it both update, they update atomically, in "
             "no order that shows"));
  test::quiet();
}

// What lavapipe makes of a 64-bit instruction there ends the process, on some CPUs: the modules have none.
TEST_CASE("atomics: of 64 bits that an operation of doubles has made are loops") {
  const auto module = [](const std::string& operand, const std::string& kind) {
    const std::string op = kind == "cas" ? "atomic_cas %o[0], " + operand + " compare " + operand
                                         : "atomic_rmw %o[0], " + operand + " kind " + kind;
    Target t = lavapipe_target();
    t.max_loop_iterations = 0;
    return spirv::disassemble(
        compile(parse("kernel @k\ngrid (40 parallel)\nin f64[40] block (squeezed) map (%i) { yield %i }\nout " +
                      std::string(operand == "%v" ? "f64" : "i64") +
                      "[40] whole\nbody (%x, %o) {\n  %i = program_id axis 0\n  %f = load %x[]\n  %v = add %f, %f\n  "
                      "%b = bitcast %v : i64[]\n  %m = convert %i : i64[]\n" +
                      "  %yes = gt %f, %v\n  %s = select %yes, %m, %b\n  %r = " + op + "\n}\n"),
                t)
            .spirv);
  };
  for (const std::string kind : {"add", "max", "min", "and", "or", "xor", "swap", "cas"})
    for (const std::string operand : {"%v", "%b", "%s", "%m"}) {
      if (operand == "%v" && (kind == "and" || kind == "or" || kind == "xor")) continue;
      CAPTURE(kind);
      CAPTURE(operand);
      const std::string text = module(operand, kind);
      const bool loop = text.find("OpLoopMerge") != std::string::npos;
      CHECK(loop == (operand != "%m"));
      for (const char* native : {"OpAtomicIAdd", "OpAtomicSMax", "OpAtomicSMin", "OpAtomicAnd", "OpAtomicOr",
                                 "OpAtomicXor", "OpAtomicExchange"})
        if (loop) CHECK(text.find(native) == std::string::npos);
    }
}

// Each program's five tickets are in their order; nobody knows that of the programs.
TEST_CASE("atomics: at index arrays on an axis that is declared parallel") {
  const ir::Kernel k = parse(
      "kernel @tickets\ngrid (8 parallel)\nin i32[40] block (5) map (%i) { yield %i }\nout i32[3] whole\nout i32[40] "
      "block (5) map (%i) { yield %i }\nbody (%x, %o, %p) {\n"
      "  %a = load %x[0:5]\n  %v = constant 1 : i32[5]\n  %r = atomic_rmw %o[%a], %v kind add\n  store %p[0:5], "
      "%r\n}\n");
  CHECK(says(explained(k), "grid axis 0: parallel, declared"));
  Array x({40}, DType::i32);
  for (int i = 0; i < 40; ++i) x.set_element_bits(i, static_cast<uint32_t>(i % 5 == 3 ? -30 : i % 2));
  for (const Answer& a : answers(k, {x})) {
    CAPTURE(a.from);
    std::vector<int> tickets[2] = {std::vector<int>(40, 0), std::vector<int>(40, 0)};
    int counts[2] = {0, 0};
    for (int p = 0; p < 8; ++p) {
      int before[2] = {-1, -1};
      for (int i = 5 * p; i < 5 * p + 5; ++i) {
        if (i % 5 == 3) continue;
        const int bin = i % 2, ticket = static_cast<int>(a.outputs[1].element_bits(i));
        REQUIRE(ticket < 40);
        CHECK(ticket > before[bin]);
        before[bin] = ticket;
        ++tickets[bin][static_cast<size_t>(ticket)];
        ++counts[bin];
      }
    }
    for (int bin = 0; bin < 2; ++bin) {
      CHECK(static_cast<int>(a.outputs[0].element_bits(bin)) == counts[bin]);
      for (int i = 0; i < 40; ++i) CHECK(tickets[bin][static_cast<size_t>(i)] == (i < counts[bin] ? 1 : 0));
    }
  }
  test::quiet();
}

TEST_CASE("atomics: the bits of one dtype as another") {
  size_t n = 0;
  for (const std::string axis : {"40", "40 parallel"})
    for (const auto& [memory, as] : {std::pair{DType::f32, DType::i32},
                                     {DType::f32, DType::u32},
                                     {DType::i32, DType::f32},
                                     {DType::f16, DType::i16},
                                     {DType::i64, DType::f64},
                                     {DType::u8, DType::f8e5m2},
                                     {DType::i4, DType::u4}})
      for (const std::string kind : {"max", "min", "xor", "add unordered 1"}) {
        if (is_float(as) ? kind == "xor" : kind == "add unordered 1") continue;
        if (!test::sampled(n++)) continue;
        const std::string d(name(memory)), t(name(as));
        const ir::Kernel k = parse(
            "kernel @bits\ngrid (" + axis + ")\nin i32[40] block (squeezed) map (%i) { yield %i }\nin " + t +
            "[40] block (1) map (%i) { yield %i }\nout " + d + "[13] whole\nbody (%x, %y, %o) {\n" +
            "  %a = load %x[]\n  %v = load %y[0:1]\n  %r = atomic_rmw %o[ds(%a, 1)], %v kind " + kind + " bits 1\n}\n");
        CAPTURE(d);
        CAPTURE(t);
        CAPTURE(kind);
        CHECK(says(explained(k),
                   "grid axis 0: parallel, proved: what programs that differ in it both update, they update "
                   "atomically, in no order that shows"));
        const std::vector<Array> inputs = scatter_inputs(as),
                                 wanted = interpret(k, inputs, {.uninitialised = Uninitialised::zero});
        for (const Answer& a : answers(k, inputs))
          for (int64_t i = 0; i < wanted[0].size(); ++i)
            CHECK_MESSAGE(a.outputs[0].element_bits(i) == wanted[0].element_bits(i), a.from, " element ", i);
        const ir::Kernel sequential =
            parse("kernel @bits\nin i32[40] whole\nin " + t + "[40] whole\nout " + d + "[13] whole\nout " + t +
                  "[40] whole\nbody (%x, %y, %o, %p) {\n" +
                  "  %a = load %x[0:40]\n  %v = load %y[0:40]\n  %r = atomic_rmw %o[%a], %v kind " + kind +
                  " bits 1\n  store %p[0:40], %r\n}\n");
        const std::vector<Array> both = interpret(sequential, inputs, {.uninitialised = Uninitialised::zero});
        for (const Answer& a : answers(sequential, inputs))
          for (size_t o = 0; o < 2; ++o)
            for (int64_t i = 0; i < both[o].size(); ++i)
              CHECK_MESSAGE(a.outputs[o].element_bits(i) == both[o].element_bits(i), a.from, " output ", o, " element ",
                            i);
      }
  test::quiet();
}

}  // namespace atomics_test
