// The lane-level verifier's messages: a kernel that is right, and for each rule the same with one thing wrong.
#include <doctest/doctest.h>

#include <functional>

#include "codegen/lane/interpreter.h"
#include "codegen/lane/verify.h"
#include "engine/ir/text.h"

namespace verify_lane_test {
using namespace tessera;
using ir::Attr, ir::Kernel, ir::Op, ir::Opcode, ir::Type, ir::Value;

namespace {

Kernel right() {
  return ir::parse(R"(tir 1
lane kernel @k
workgroup_size 8 subgroup_size 4 shared_bytes 64 scratch_bytes 64 report_bytes 64
num_units 1 exact
extents (n, m: i64)
prefetch i32[8] whole
in f32[8] whole
out i32[8] whole
body (%x: ref<global, i32[?]>, %y: ref<global, f32[?]>, %o: ref<global, i32[?]>) {
  %l = local_index : i32[]
  %0 = constant 0 : i32[]
  %1 = constant 1 : i32[]
  %w = constant 0 : i64[]
  %p = lt %l, %1 : bool[]
  %n = extent index 0 : i32[]
  %m = extent index 1 : i64[]
  %s = alloc_shared offset 0 : ref<shared, i32[8]>
  %g = alloc_scratch offset 0 : ref<global, i32[8]>
  %v = view %x, %w : ref<global, i32[?]>
  %a = load %v[%l] mask %p other %0 : i32[]
  %b = load %y[%l] : f32[]
  store %s[%l], %a
  store %g[%l], %a
  barrier
  %r = subgroup_reduce %a kind add : i32[]
  %q = subgroup_shuffle %a, %0 : i32[]
  %t = atomic_rmw %o[%l], %r kind add : i32[]
  %u = atomic_cas %o[%l], %q compare %t : i32[]
  report %p mask 1
  store %o[%l], %u
}
)",
                   "k.tir");
}

Op& op(Kernel& k, Opcode c) {
  for (Op& o : k.ops)
    if (o.code == c) return o;
  FAIL("there is no such op");
  return k.ops[0];
}

// The messages of the kernel after `spoil`, joined.
std::string said(const std::function<void(Kernel&)>& spoil) {
  Kernel k = right();
  spoil(k);
  std::string s;
  for (const ir::Problem& p : lane::find_lane_problems(k)) s += (s.empty() ? "" : "; ") + p.message;
  return s;
}

}  // namespace

TEST_CASE("the lane verifier: what is right") {
  CHECK(said([](Kernel&) {}) == "");
}

TEST_CASE("the lane verifier: tables") {
  CHECK(said([](Kernel& k) { k.level = ir::Level::tile; }) == "level is tile, but lane is wanted");
  CHECK(said([](Kernel& k) { k.body = {static_cast<uint32_t>(k.regions.size())}; }) == "there is no body");
  CHECK(said([](Kernel& k) { op(k, Opcode::lt).operands[0] = {static_cast<uint32_t>(k.values.size())}; }) ==
        "names a value that does not exist");
  CHECK(said([](Kernel& k) { op(k, Opcode::lt).results[0] = {static_cast<uint32_t>(k.values.size())}; }) ==
        "names a value that does not exist");
  CHECK(said([](Kernel& k) { op(k, Opcode::lt).regions = {{static_cast<uint32_t>(k.regions.size())}}; }) ==
        "names a region that does not exist");
  CHECK(said([](Kernel& k) { k.regions[k.body.index].ops[0] = {static_cast<uint32_t>(k.ops.size())}; }) ==
        "a region names an op that does not exist");
  CHECK(said([](Kernel& k) { k.regions[k.body.index].ops.pop_back(); }) == "region 0 does not end with a yield");
}

TEST_CASE("the lane verifier: the header") {
  CHECK(said([](Kernel& k) { k.lane.workgroup_size = 0; }) == "workgroup_size is 0, but at least 1 is wanted");
  CHECK(said([](Kernel& k) { k.lane.workgroup_size = 6; }) ==
        "needs full subgroups, but workgroup_size 6 is no multiple of subgroup_size 4; needs full subgroups, but "
        "workgroup_size 6 is no multiple of subgroup_size 4");
  CHECK(said([](Kernel& k) { k.lane.subgroup_size = -1; }) == "subgroup_size is -1, but at least 0 is wanted");
  CHECK(said([](Kernel& k) { k.lane.subgroup_size = 0; }) == "");
  CHECK(said([](Kernel& k) {
          k.lane.shared_bytes = -1;
        }).find("shared_bytes -1 and scratch_bytes 64 must not be negative") == 0);
  CHECK(said([](Kernel& k) {
          k.lane.scratch_bytes = -4;
        }).find("shared_bytes 64 and scratch_bytes -4 must not be negative") == 0);
  CHECK(said([](Kernel& k) { k.lane.extents.emplace_back(1); }) == "3 extents, but 2 widths");
  CHECK(said([](Kernel& k) { k.blocks.pop_back(); }) == "the body has 3 args, but there are 2 inputs and outputs");
  CHECK(said([](Kernel& k) { k.blocks[1].dtype = DType::i32; }) ==
        "arg 1 is ref<global, f32[?]>, but in_specs[0] has dtype i32");
  const auto arg = [](const Type& t) {
    return said([&](Kernel& k) { k.values[k.region(k.body).args[1].index].type = t; });
  };
  CHECK(arg(Type::ref(DType::f32, {8}, ir::MemorySpace::global)) ==
        "arg 1 is ref<global, f32[8]>, but a global Ref of unknown length is wanted");
  CHECK(arg(Type::ref(DType::f32, {-1}, ir::MemorySpace::shared))
            .find("arg 1 is ref<shared, f32[?]>, but a global Ref of unknown length is wanted") == 0);
  CHECK(arg(Type::ref(DType::f32, {-1, 2}, ir::MemorySpace::global))
            .find("; %1 has type ref<global, f32[?, 2]>, but lane-level Refs have rank 1") != std::string::npos);
  CHECK(arg(Type::ref(DType::f32, {-1}, ir::MemorySpace::vmem))
            .find("; %1 has type ref<vmem, f32[?]>, but lane-level Refs are global or shared") != std::string::npos);
}

TEST_CASE("the lane verifier: accesses") {
  const auto element = [](Kernel& k, Opcode c, size_t operand, DType t) {
    k.values[op(k, c).operands[operand].index].type = Type::array(t);
  };
  CHECK(said([](Kernel& k) { op(k, Opcode::store).operands[0] = op(k, Opcode::lt).results[0]; }) ==
        "operand 0 is not a Ref");
  CHECK(said([](Kernel& k) { op(k, Opcode::lt).operands[0] = k.region(k.body).args[0]; }) ==
        "operand %0 is a Ref: only memory ops and view take one");
  CHECK(said([](Kernel& k) { op(k, Opcode::store).operands[1] = op(k, Opcode::lt).results[0]; }) ==
        "the stored value is bool[], but i32[] is wanted");
  CHECK(said([](Kernel& k) { op(k, Opcode::atomic_cas).operands[2] = op(k, Opcode::lt).results[0]; }) ==
        "what the element is compared with is bool[], but i32[] is wanted");
  CHECK(said([](Kernel& k) {
          op(k, Opcode::atomic_rmw).operands[1] = op(k, Opcode::lt).results[0];
        }).find("the value is bool[], but i32[] is wanted") == 0);
  CHECK(said([&](Kernel& k) {
          element(k, Opcode::load, static_cast<size_t>(op(k, Opcode::load).mask_position()), DType::i32);
        }).find("the mask is i32[], but bool[] is wanted") != std::string::npos);
  CHECK(said([](Kernel& k) {
          op(k, Opcode::load).operands[static_cast<size_t>(op(k, Opcode::load).other_position())] =
              op(k, Opcode::lt).results[0];
        }) == "other is bool[], but i32[] is wanted");
  CHECK(said([](Kernel& k) { op(k, Opcode::load).operands.back() = op(k, Opcode::lt).results[0]; }) ==
        "the index is bool[], but i32[] is wanted");
  CHECK(said([](Kernel& k) { *op(k, Opcode::load).index[0].operand() = 4; }) == "has no the index");
  CHECK(said([](Kernel& k) { op(k, Opcode::load).index.push_back(op(k, Opcode::load).index[0]); }) ==
        "wants one integer index");
  CHECK(said([](Kernel& k) { op(k, Opcode::load).index[0] = ir::Index::at(-1); }) == "index -1 is negative");
  CHECK(said([](Kernel& k) { op(k, Opcode::load).index[0] = ir::Index::at(0); }) == "");
  CHECK(said([](Kernel& k) { op(k, Opcode::load).index[0] = ir::Index::all(1); }) ==
        "a vector access takes 4, 8 or 16 bytes of global memory, or 2 or 4 words of shared memory, and no mask");
  CHECK(said([](Kernel& k) {
          k.values[op(k, Opcode::load).results[0].index].type = Type::array(DType::u32);
        }).find("the result is not i32[]") == 0);
  CHECK(said([](Kernel& k) {
          Op& o = op(k, Opcode::atomic_rmw);
          o.operands.insert(o.operands.begin() + 2, op(k, Opcode::lt).results[0]);
          *o.index[0].operand() = 3;
          o.set(Attr::mask, 1);
        }) == "an atomic takes no mask");
  CHECK(said([](Kernel& k) { op(k, Opcode::atomic_rmw).operands[0] = op(k, Opcode::alloc_shared).results[0]; }) == "");
  CHECK(said([](Kernel& k) { op(k, Opcode::atomic_cas).operands[0] = op(k, Opcode::alloc_shared).results[0]; }) ==
        "an atomic of anything but 32-bit integers updates args and the report only");
  CHECK(said([](Kernel& k) { op(k, Opcode::atomic_rmw).operands[0] = k.region(k.body).args[0]; }) ==
        "stores to a scalar-prefetch operand");
  CHECK(said([](Kernel& k) { op(k, Opcode::store).operands[0] = op(k, Opcode::view).results[0]; }) ==
        "stores to a scalar-prefetch operand");
  // Views of views that end nowhere, and of nothing.
  for (const Opcode c : {Opcode::load, Opcode::store, Opcode::atomic_rmw, Opcode::atomic_cas}) {
    CHECK(said([&](Kernel& k) {
            op(k, c).operands[0] = op(k, Opcode::view).operands[0] = op(k, Opcode::view).results[0];
          }) != "");
    CHECK(said([&](Kernel& k) {
            op(k, c).operands[0] = op(k, Opcode::view).results[0], op(k, Opcode::view).operands.clear();
          }).find("wants a Ref and an i64 offset") == 0);
  }
  CHECK(said([](Kernel& k) { op(k, Opcode::view).operands[1] = op(k, Opcode::lt).operands[0]; }) ==
        "wants a Ref and an i64 offset");
  CHECK(said([](Kernel& k) { k.lane.report_bytes = 3; }) ==
        "needs a report of at least 4 bytes, but report_bytes is 3");
  CHECK(said([](Kernel& k) { k.lane.report_bytes = 4; }) == "");
}

TEST_CASE("the lane verifier: arenas and extents") {
  CHECK(said([](Kernel& k) { k.lane.shared_bytes = 31; }) ==
        "8 elements of 4 bytes at offset 0 do not fit the 31 bytes of shared memory");
  CHECK(said([](Kernel& k) { k.lane.shared_bytes = 32; }) == "");
  CHECK(said([](Kernel& k) { op(k, Opcode::alloc_shared).set(Attr::offset, 32); }) == "");
  CHECK(said([](Kernel& k) { op(k, Opcode::alloc_shared).set(Attr::offset, 36); }) ==
        "8 elements of 4 bytes at offset 36 do not fit the 64 bytes of shared memory");
  CHECK(said([](Kernel& k) { op(k, Opcode::alloc_shared).set(Attr::offset, -4); }) ==
        "8 elements of 4 bytes at offset -4 do not fit the 64 bytes of shared memory");
  CHECK(said([](Kernel& k) { op(k, Opcode::alloc_scratch).set(Attr::offset, 36); }) ==
        "8 elements of 4 bytes at offset 36 do not fit the 64 bytes of scratch");
  CHECK(said([](Kernel& k) { op(k, Opcode::alloc_scratch).set(Attr::offset, 2); }) ==
        "offset 2 is no multiple of the element distance 4");
  CHECK(said([](Kernel& k) { k.lane.scratch_bytes = 66; }) == "scratch_bytes 66 is no multiple of the element size 4");
  CHECK(said([](Kernel& k) { k.lane.shared_bytes = 66; }) == "");
  const auto shared = [](const Type& t) {
    return said([&](Kernel& k) { k.values[op(k, Opcode::alloc_shared).results[0].index].type = t; });
  };
  CHECK(shared(Type::ref(DType::i32, {0}, ir::MemorySpace::shared)) == "");
  CHECK(shared(Type::ref(DType::i32, {-1}, ir::MemorySpace::shared)) ==
        "is ref<shared, i32[?]>, but a shared Ref of static length is wanted");
  CHECK(shared(Type::ref(DType::i32, {8}, ir::MemorySpace::global)) ==
        "is ref<global, i32[8]>, but a shared Ref of static length is wanted");
  CHECK(said([](Kernel& k) { op(k, Opcode::extent).set(Attr::index, 1); }) == "is i32[], but extent 1 is i64[]");
  CHECK(said([](Kernel& k) { op(k, Opcode::extent).set(Attr::index, 2); }) == "index 2 names none of the 2 extents");
  CHECK(said([](Kernel& k) { op(k, Opcode::extent).set(Attr::index, -1); }) == "index -1 names none of the 2 extents");
}

// Each part of each rule that the cases above leave whole, alone.
TEST_CASE("the lane verifier: one thing wrong at a time") {
  const auto drop = [](Op& o, Attr a) { std::erase_if(o.attrs, [&](const auto& x) { return x.first == a; }); };
  const auto typed = [](Kernel& k, Value v, const Type& t) { k.values[v.index].type = t; };
  const Type vector = Type::array(DType::i32, {2}), global = Type::ref(DType::i32, {-1}, ir::MemorySpace::global);
  // of the first view, arg or arena that `of` gives
  const auto vector_load = [&](Kernel& k, Opcode of, int64_t lanes) -> Op& {
    Op& o = op(k, Opcode::load);
    const Value ref = of == Opcode::load ? k.region(k.body).args[0] : op(k, of).results[0];
    o.operands = {ref, op(k, Opcode::local_index).results[0]};
    drop(o, Attr::mask), drop(o, Attr::other);
    o.index = {{ir::Index::Slice{ir::Index::Dynamic{1}, lanes}}};
    for (int64_t i = 1; i < lanes; ++i) {
      k.values.push_back(k.values[op(k, Opcode::load).results[0].index]);
      o.results.push_back({static_cast<uint32_t>(k.values.size()) - 1});
    }
    return o;
  };
  // A store of `width` times its value.
  const auto vector_store = [](Kernel& k, int64_t width) -> Op& {
    Op& o = op(k, Opcode::store);
    o.index[0] = {ir::Index::Slice{o.index[0].start(), width}};
    o.operands[0] = op(k, Opcode::alloc_scratch).results[0];
    o.operands.insert(o.operands.begin() + 1, static_cast<size_t>(width - 1), o.operands[1]);
    o.index[0].shift(width - 1);
    return o;
  };
  struct {
    const char* rule;
    std::function<void(Kernel&)> spoil;
    const char* says;
  } const all[] = {
      {"widths of extents", [](Kernel& k) { k.lane.extent_is_64.push_back(false); }, "2 extents, but 3 widths"},
      {"no bytes", [](Kernel& k) { k.lane.shared_bytes = k.lane.scratch_bytes = 0; },
       "8 elements of 4 bytes at offset 0 do not fit the 0 bytes of shared memory; 8 elements of 4 bytes at offset 0 "
       "do not fit the 0 bytes of scratch"},
      {"workgroup_size",
       [](Kernel& k) {
         k.lane.workgroup_size = -1;
         k.lane.subgroup_size = 0;
       },
       "workgroup_size is -1, but at least 1 is wanted"},
      {"workgroup_size 1",
       [](Kernel& k) {
         k.lane.workgroup_size = 1;
         k.lane.subgroup_size = 0;
       },
       ""},
      {"one subgroup", [](Kernel& k) { k.lane.subgroup_size = 8; }, ""},
      {"steps: below none", [](Kernel& k) { k.lane.steps_extent = -2; },
       "steps_extent is -2, but two extents of one width, of the 2, are wanted"},
      {"steps: none", [](Kernel& k) { k.lane.steps_extent = -1; }, ""},
      {"steps: of two widths", [](Kernel& k) { k.lane.steps_extent = 0; },
       "steps_extent is 0, but two extents of one width, of the 2, are wanted"},
      {"steps: of one width",
       [&](Kernel& k) {
         k.lane.steps_extent = 0;
         k.lane.extent_is_64 = {false, false};
         typed(k, k.ops[static_cast<size_t>(&op(k, Opcode::extent) - k.ops.data()) + 1].results[0],
               Type::array(DType::i32));
       },
       ""},
      {"steps: the last one", [](Kernel& k) { k.lane.steps_extent = 1; },
       "steps_extent is 1, but two extents of one width, of the 2, are wanted"},
      {"steps: beyond", [](Kernel& k) { k.lane.steps_extent = 2; },
       "steps_extent is 2, but two extents of one width, of the 2, are wanted"},
      {"a value is a scalar", [&](Kernel& k) { typed(k, op(k, Opcode::local_index).results[0], vector); }, nullptr},
      {"an op of tiles", [](Kernel& k) { op(k, Opcode::local_index).code = Opcode::program_id; },
       "is not a lane-level op"},
      {"a vector load", [&](Kernel& k) { vector_load(k, Opcode::view, 4); }, ""},
      {"a vector load of two", [&](Kernel& k) { vector_load(k, Opcode::load, 2); }, ""},
      {"a vector load, a result too few", [&](Kernel& k) { vector_load(k, Opcode::view, 4).results.pop_back(); },
       "the result is not i32[]"},
      {"a vector load of shared memory", [&](Kernel& k) { vector_load(k, Opcode::alloc_shared, 2); }, ""},
      {"a vector load of eight words of shared memory", [&](Kernel& k) { vector_load(k, Opcode::alloc_shared, 8); },
       "a vector access takes 4, 8 or 16 bytes of global memory, or 2 or 4 words of shared memory, and no mask"},
      {"a vector load of scratch", [&](Kernel& k) { vector_load(k, Opcode::alloc_scratch, 2); }, ""},
      {"a vector load, masked",
       [&](Kernel& k) {
         Op& o = vector_load(k, Opcode::view, 2);
         o.operands.insert(o.operands.begin() + 1, op(k, Opcode::lt).results[0]);
         *o.index[0].operand() = 2;
         o.set(Attr::mask, 1);
       },
       "a vector access takes 4, 8 or 16 bytes of global memory, or 2 or 4 words of shared memory, and no mask"},
      {"a vector store of one element", [&](Kernel& k) { vector_store(k, 1); },
       "a vector access takes 4, 8 or 16 bytes of global memory, or 2 or 4 words of shared memory, and no mask"},
      {"a vector store of two", [&](Kernel& k) { vector_store(k, 2); }, ""},
      {"a vector store of four", [&](Kernel& k) { vector_store(k, 4); }, ""},
      {"a vector store of three", [&](Kernel& k) { vector_store(k, 3); },
       "a vector access takes 4, 8 or 16 bytes of global memory, or 2 or 4 words of shared memory, and no mask"},
      {"a vector store, a value too few", [&](Kernel& k) { vector_store(k, 2).index[0].slice()->size = 4; },
       "has 4 operands, but a vector store of 4 elements has 6"},
      {"a vector store, its last value of another dtype",
       [&](Kernel& k) { vector_store(k, 4).operands[4] = op(k, Opcode::lt).results[0]; },
       "a stored value is bool[], but i32[] is wanted"},
      {"an index array", [](Kernel& k) { op(k, Opcode::load).index[0] = ir::Index::array(1); },
       "wants one integer index"},
      {"no index", [](Kernel& k) { op(k, Opcode::store).index.clear(); }, "wants one integer index"},
      {"a static index", [](Kernel& k) { op(k, Opcode::store).index[0] = ir::Index::at(7); }, ""},
      {"a static index below 0", [](Kernel& k) { op(k, Opcode::store).index[0] = ir::Index::at(-1); },
       "index -1 is negative"},
      {"the index of a store", [](Kernel& k) { op(k, Opcode::store).operands.back() = op(k, Opcode::lt).results[0]; },
       "the index is bool[], but i32[] is wanted"},
      {"the index of an atomic",
       [](Kernel& k) { op(k, Opcode::atomic_rmw).operands.back() = op(k, Opcode::lt).results[0]; },
       "the index is bool[], but i32[] is wanted"},
      {"the value of an atomic_cas",
       [](Kernel& k) { op(k, Opcode::atomic_cas).operands[1] = op(k, Opcode::lt).results[0]; },
       "the value is bool[], but i32[] is wanted"},
      {"an atomic of floats in shared memory",
       [&](Kernel& k) {
         typed(k, op(k, Opcode::alloc_shared).results[0], Type::ref(DType::f32, {8}, ir::MemorySpace::shared));
         const Value f = k.ops[static_cast<size_t>(&op(k, Opcode::load) - k.ops.data()) + 1].results[0];
         op(k, Opcode::store).operands[1] = op(k, Opcode::atomic_rmw).operands[1] = f;
         op(k, Opcode::atomic_rmw).operands[0] = op(k, Opcode::alloc_shared).results[0];
       },
       "an atomic of anything but 32-bit integers updates args and the report only"},
      {"an atomic_cas of scratch",
       [](Kernel& k) { op(k, Opcode::atomic_cas).operands[0] = op(k, Opcode::alloc_scratch).results[0]; },
       "an atomic of anything but 32-bit integers updates args and the report only"},
      {"an atomic of a prefetch operand by a view",
       [](Kernel& k) { op(k, Opcode::atomic_rmw).operands[0] = op(k, Opcode::view).results[0]; },
       "stores to a scalar-prefetch operand"},
      {"a store to the first input that is no prefetch",
       [](Kernel& k) {
         k.num_prefetch = 0;
         op(k, Opcode::store).operands[0] = k.region(k.body).args[0];
       },
       ""},
      {"a view of two values",
       [](Kernel& k) { op(k, Opcode::view).operands.push_back(op(k, Opcode::view).operands[1]); },
       "wants a Ref and an i64 offset"},
      {"a view of one", [](Kernel& k) { op(k, Opcode::view).operands.pop_back(); }, "wants a Ref and an i64 offset"},
      {"a view by an i32", [&](Kernel& k) { op(k, Opcode::view).operands[1] = op(k, Opcode::local_index).results[0]; },
       "wants a Ref and an i64 offset"},
      {"a report's words",
       [](Kernel& k) {
         Op& o = op(k, Opcode::report);
         o.operands.insert(o.operands.end(), 2, op(k, Opcode::local_index).results[0]);
         k.lane.report_bytes = 11;
       },
       "needs a report of at least 12 bytes, but report_bytes is 11"},
      {"a report's words, in room for them",
       [](Kernel& k) {
         Op& o = op(k, Opcode::report);
         o.operands.insert(o.operands.end(), 2, op(k, Opcode::local_index).results[0]);
         k.lane.report_bytes = 12;
       },
       ""},
      {"loops_cut without a report",
       [](Kernel& k) {
         Op& o = op(k, Opcode::lt);
         o.code = Opcode::loops_cut;
         o.operands.clear();
         op(k, Opcode::report).code = Opcode::barrier;
         k.lane.report_bytes = 3;
       },
       "needs a report of at least 4 bytes, but report_bytes is 3"},
      {"report_memory without a report",
       [&](Kernel& k) {
         Op& o = op(k, Opcode::alloc_scratch);
         o.code = Opcode::report_memory;
         op(k, Opcode::report).code = Opcode::barrier;
         k.lane.report_bytes = 0;
       },
       "needs a report of at least 4 bytes, but report_bytes is 0"},
      {"an arena without an offset", [&](Kernel& k) { drop(op(k, Opcode::alloc_shared), Attr::offset); },
       "has no offset"},
      {"scratch without an offset", [&](Kernel& k) { drop(op(k, Opcode::alloc_scratch), Attr::offset); },
       "has no offset"},
      {"an arena of two dims",
       [&](Kernel& k) {
         typed(k, op(k, Opcode::alloc_shared).results[0], Type::ref(DType::i32, {2, 4}, ir::MemorySpace::shared));
       },
       nullptr},
      {"an arena that is no Ref",
       [&](Kernel& k) { typed(k, op(k, Opcode::alloc_scratch).results[0], Type::array(DType::i32)); }, nullptr},
      {"scratch in shared memory",
       [&](Kernel& k) {
         typed(k, op(k, Opcode::alloc_scratch).results[0], Type::ref(DType::i32, {8}, ir::MemorySpace::shared));
       },
       "is ref<shared, i32[8]>, but a global Ref of static length is wanted"},
      {"an arena of very many",
       [&](Kernel& k) {
         typed(k, op(k, Opcode::alloc_shared).results[0],
               Type::ref(DType::i32, {INT64_MAX / 2}, ir::MemorySpace::shared));
       },
       "4611686018427387903 elements of 4 bytes at offset 0 do not fit the 64 bytes of shared memory"},
      {"an arena at the very end",
       [&](Kernel& k) {
         typed(k, op(k, Opcode::alloc_shared).results[0], Type::ref(DType::i32, {0}, ir::MemorySpace::shared));
         op(k, Opcode::alloc_shared).set(Attr::offset, 64);
       },
       ""},
      {"an arena of none beyond",
       [&](Kernel& k) {
         typed(k, op(k, Opcode::alloc_shared).results[0], Type::ref(DType::i32, {0}, ir::MemorySpace::shared));
         op(k, Opcode::alloc_shared).set(Attr::offset, 68);
       },
       "0 elements of 4 bytes at offset 68 do not fit the 64 bytes of shared memory"},
      {"an arena's offset", [](Kernel& k) { op(k, Opcode::alloc_shared).set(Attr::offset, 2); },
       "offset 2 is no multiple of the element distance 4"},
      {"an extent without an index", [&](Kernel& k) { drop(op(k, Opcode::extent), Attr::index); },
       "index -1 names none of the 2 extents"},
      {"an extent's type", [&](Kernel& k) { typed(k, op(k, Opcode::extent).results[0], Type::array(DType::i64)); },
       "is i64[], but extent 0 is i32[]"},
      {"an extent that is a vector", [&](Kernel& k) { typed(k, op(k, Opcode::extent).results[0], vector); }, nullptr},
      {"a reduction of no kind", [&](Kernel& k) { drop(op(k, Opcode::subgroup_reduce), Attr::kind); },
       "kind is no associative elementwise op"},
      {"a reduction of two kinds",
       [](Kernel& k) {
         op(k, Opcode::subgroup_reduce).set(Attr::kind, std::vector<int64_t>(2, static_cast<int64_t>(Opcode::add)));
       },
       "kind is no associative elementwise op"},
      {"a reduction of the last op",
       [](Kernel& k) { op(k, Opcode::subgroup_reduce).set(Attr::kind, int64_t{ir::kNumOpcodes} - 1); },
       "kind is no associative elementwise op"},
      {"a shuffle of one operand", [](Kernel& k) { op(k, Opcode::subgroup_shuffle).operands.pop_back(); },
       "wants a value and an i32 lane"},
      {"a shuffle by an i64",
       [](Kernel& k) { op(k, Opcode::subgroup_shuffle).operands[1] = op(k, Opcode::view).operands[1]; },
       "wants a value and an i32 lane"},
      {"a shuffle of three",
       [](Kernel& k) {
         op(k, Opcode::subgroup_shuffle).operands.push_back(op(k, Opcode::subgroup_shuffle).operands[1]);
       },
       "wants a value and an i32 lane"},
      {"a Ref is shuffled",
       [](Kernel& k) { op(k, Opcode::subgroup_shuffle).operands[0] = op(k, Opcode::view).results[0]; }, nullptr},
      {"an arg of a body too many",
       [&](Kernel& k) {
         k.values.push_back({global, {}, k.body, 3});
         k.region(k.body).args.push_back({static_cast<uint32_t>(k.values.size()) - 1});
       },
       "the body has 4 args, but there are 3 inputs and outputs"},
  };
  for (const auto& x : all) {
    CAPTURE(std::string(x.rule));
    if (x.says) CHECK(said(x.spoil) == x.says);
    else CHECK(said(x.spoil) != "");
  }
  // What stands in regions is looked at like the body.
  const auto inner = [](const std::function<void(Kernel&)>& spoil) {
    Kernel k = ir::parse(
        "tir 1\nlane kernel @k\nworkgroup_size 8\nnum_units 1 exact\nin i32[8] whole\nbody (%x: ref<global, i32[?]>) "
        "{\n  %0 = constant 0 : i32[]\n  %8 = constant 8 : i32[]\n  %1 = constant 1 : i32[]\n"
        "  %s = for %i = %0 to %8 step %1 carry (%c = %0: i32[]) {\n    %a = add %c, %i\n    yield %a\n  }\n}\n",
        "k.tir");
    spoil(k);
    std::string s;
    for (const ir::Problem& p : lane::find_lane_problems(k)) s += p.message + "; ";
    return s;
  };
  const auto body = [](Kernel& k) -> ir::Region& { return k.region(op(k, Opcode::for_).regions[0]); };
  CHECK(inner([](Kernel&) {}) == "");
  CHECK(inner([&](Kernel& k) {
          k.values[body(k).args[1].index].type = Type::array(DType::i32, {4});
        }).find("has type i32[4], but lane-level values are scalars") != std::string::npos);
  CHECK(inner([&](Kernel& k) {
          k.values[op(k, Opcode::add).results[0].index].type = Type::array(DType::i32, {4});
        }).find("has type i32[4], but lane-level values are scalars") != std::string::npos);
  CHECK(inner([&](Kernel& k) { body(k).ops.pop_back(); }).find("does not end with a yield") != std::string::npos);
  CHECK(inner([&](Kernel& k) { body(k).ops.clear(); }).find("does not end with a yield") != std::string::npos);
  CHECK(inner([&](Kernel& k) { op(k, Opcode::add).operands[0] = k.region(k.body).args[0]; }) ==
        "operand %0 is a Ref: only memory ops and view take one; ");
}

TEST_CASE("the lane verifier: subgroups and barriers") {
  CHECK(said([](Kernel& k) { op(k, Opcode::subgroup_reduce).set(Attr::kind, static_cast<int64_t>(Opcode::sub)); }) ==
        "kind is no associative elementwise op");
  CHECK(said([](Kernel& k) { op(k, Opcode::subgroup_reduce).set(Attr::kind, int64_t{ir::kNumOpcodes}); }) ==
        "kind is no associative elementwise op");
  CHECK(said([](Kernel& k) { op(k, Opcode::subgroup_reduce).set(Attr::kind, -1); }) ==
        "kind is no associative elementwise op");
  CHECK(said([](Kernel& k) { op(k, Opcode::subgroup_shuffle).operands[1] = op(k, Opcode::lt).results[0]; }) ==
        "wants a value and an i32 lane");
  // The access moves into a branch for some: the barrier may not, nor what a subgroup does together.
  const auto under = [](const std::string& condition, const std::string& inside) {
    const Kernel k = ir::parse(
        std::string("tir 1\nlane kernel @k\nworkgroup_size 8 subgroup_size 4\nnum_units 1 exact\nin i32[8] whole\nout "
                    "i32[8] whole\nbody (%x: ref<global, i32[?]>, %o: ref<global, i32[?]>) {\n"
                    "  %l = local_index : i32[]\n  %s = subgroup_id : i32[]\n  %g = workgroup_index : i32[]\n  %0 = "
                    "constant 0 : i32[]\n  %in = load %x[0] : i32[]\n  %out = load %o[0] : i32[]\n"
                    "  %p = eq ") +
            condition + ", %0 : bool[]\n  if %p {\n    " + inside + "\n  }\n}\n",
        "k.tir");
    std::string s;
    for (const ir::Problem& p : lane::find_lane_problems(k)) s += p.message;
    return s;
  };
  CHECK(under("%g", "barrier") == "");
  CHECK(under("%in", "barrier") == "");
  CHECK(under("%s", "barrier") ==
        "stands under subgroup-uniform control, but a barrier needs every enclosing condition and loop bound "
        "workgroup-uniform");
  CHECK(under("%l", "barrier") ==
        "stands under varying control, but a barrier needs every enclosing condition and loop bound workgroup-uniform");
  CHECK(under("%s", "%r = subgroup_reduce %l kind add : i32[]") == "");
  CHECK(under("%l", "%r = subgroup_reduce %l kind add : i32[]") ==
        "stands under varying control, but a subgroup op needs every enclosing condition and loop bound "
        "subgroup-uniform");
  CHECK(under("%l", "%r = subgroup_shuffle %l, %0 : i32[]") ==
        "stands under varying control, but a subgroup op needs every enclosing condition and loop bound "
        "subgroup-uniform");
  // What comes from nowhere is not the same for all.
  Kernel k = ir::parse(
      "tir 1\nlane kernel @k\nworkgroup_size 8\nnum_units 1 exact\nin i32[8] whole\nbody (%x: ref<global, i32[?]>) {\n "
      " %w = constant 0 : i64[]\n  %0 = constant 0 : i32[]\n"
      "  %v = view %x, %w : ref<global, i32[?]>\n  %a = load %v[0] : i32[]\n  %p = eq %a, %0 : bool[]\n  if %p {\n    "
      "barrier\n  }\n}\n",
      "k.tir");
  CHECK(lane::find_lane_problems(k).empty());
  op(k, Opcode::view).code = Opcode::workgroup_index;
  op(k, Opcode::workgroup_index).operands.clear();
  std::string all;
  for (const ir::Problem& p : lane::find_lane_problems(k)) all += p.message + "\n";
  CHECK(all.find("does not come from an arg, alloc_shared or alloc_scratch by views alone\n") != std::string::npos);
  CHECK(all.find("stands under varying control, but a barrier needs") != std::string::npos);
}

// Whatever value, Ref or region stands in place of another one, the verifier says so or says nothing; it never follows
// what is not there. What it lets through the interpreter runs, or refuses.
TEST_CASE("the lane verifier: any value in place of any other") {
  const Kernel k = right();
  const auto values = static_cast<uint32_t>(k.values.size());
  int64_t let_through = 0, refused = 0;
  const auto tried = [&](const Kernel& other) {
    if (!lane::find_lane_problems(other).empty()) {
      ++refused;
      return;
    }
    ++let_through;
    const std::vector<Array> arrays{Array({8}, i32), Array({8}, f32), Array({8}, i32)};
    try {
      lane::run(other, arrays, 2, {{"n", 1}, {"m", 1}});
    } catch (const InternalError&) {  // of values that are used before they are there, which ir::verify finds
    }
  };
  for (size_t o = 0; o < k.ops.size(); ++o) {
    for (size_t i = 0; i < k.ops[o].operands.size(); ++i) {
      for (uint32_t v = 0; v <= values; ++v) {
        Kernel other = k;
        other.ops[o].operands[i] = {v};
        tried(other);
      }
      Kernel less = k;
      less.ops[o].operands.erase(less.ops[o].operands.begin() + static_cast<std::ptrdiff_t>(i));
      tried(less);
    }
    Kernel missing = k;
    missing.ops[o].operands.clear();
    tried(missing);
  }
  CHECK(refused > 300);
  CHECK(let_through > 50);
}

}  // namespace verify_lane_test
