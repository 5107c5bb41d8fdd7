// The primitives that do something beside computing: messages, random numbers with a state of their own. And those that
// have no meaning here, each with what to do instead.
#include "engine/front/debug.h"
#include "engine/jax/primitives.h"

namespace tessera::jax {
namespace {
/// The exporter has numbered the format's placeholders and written static arguments into it.
debug::Format format(const Equation& e) { return {e.params.at("fmt").string(), e.loc}; }
std::vector<debug::Argument> arguments(const Equation& e, size_t first) {
  std::vector<debug::Argument> all;
  for (size_t i = first; i < e.size(); ++i) all.emplace_back(e.value(i));
  return all;
}
Values print(Equation& e) {
  debug::print(format(e), arguments(e, 0));
  return {};
}
/// The operand says that the check failed.
Values check_of(Equation& e) {
  const Value holds = ~e.x(0);
  debug::check(Operand(holds, e.loc), format(e), arguments(e, 1));
  return {};
}

/// The scalars of an array, in order.
std::vector<Operand> scalars(const Equation& e, const Value& v) {
  const int64_t n = num_elements(v.shape());
  const Value flat = reshape(Operand(v, e.loc), {n});
  std::vector<Operand> all;
  for (int64_t i = 0; i < n; ++i) {
    const Value one = slice(Operand(flat, e.loc), {i}, {i + 1});
    all.emplace_back(reshape(Operand(one, e.loc), {}), e.loc);
  }
  return all;
}
/// Seeds are integers, or a key of the generator, which is its words.
Values seed(Equation& e) {
  std::vector<Operand> seeds;
  for (size_t i = 0; i < e.size(); ++i)
    for (const Operand& o : scalars(e, e.value(i))) seeds.push_back(o);
  random::prng_seed(std::move(seeds));
  return {};
}
Values split_key(Equation& e) {
  Values all;
  for (const Operand& o : scalars(e, e.value(0))) all.push_back(*o.value());
  return all;
}
Values join_key(Equation& e) {
  const Value words = stack(e.operands());
  return {reshape(Operand(words, e.loc), e.out(0).shape)};
}

Values callback(Equation& e) {
  e.fail("kernels cannot call Python", "pl.debug_print prints from inside a kernel; or call Python outside of it");
}
Values assembly(Equation& e) { e.fail("assembly is one vendor's", "write the computation with jax.numpy or jax.lax"); }
Values matrix_unit(Equation& e) { e.fail("explicit steps of a TPU's matrix unit have no counterpart", "use jnp.dot"); }
Values pipeline(Equation& e) {
  e.fail("pipelines are read as the loops that JAX makes of them, not as one primitive",
         "leave JAX's option jax_use_emit_pipeline_primitive off");
}
Values barrier_semaphore(Equation& e) { e.fail("there are no other devices to meet", "kernels run on one device"); }
}  // namespace

const std::vector<Row>& effect_rows() {
  static const std::vector<Row> rows{
      {"check", -1, check_of},
      {"debug_print", -1, print},
      {"prng_join", -1, join_key},
      {"prng_random_bits", 0,
       [](Equation& e) { return Values{random::prng_random_bits(e.params.at("shape").shape(), e.loc)}; }},
      {"prng_seed", -1, seed},
      {"prng_split", 1, split_key},

      // refused
      {"debug_callback", -1, callback},
      {"elementwise_inline_asm", -1, assembly},
      {"emit_pipeline", -1, pipeline},
      {"get_barrier_semaphore", -1, barrier_semaphore},
      {"io_callback", -1, callback},
      {"matmul_acc_lhs", -1, matrix_unit},
      {"matmul_lhs_fifo", -1, matrix_unit},
      {"matmul_pop", -1, matrix_unit},
      {"matmul_pop_fifo", -1, matrix_unit},
      {"matmul_push_rhs", -1, matrix_unit},
      {"pure_callback", -1, callback},
  };
  return rows;
}

}  // namespace tessera::jax
