#include "engine/front/debug.h"

#include <algorithm>
#include <numeric>

#include "engine/base/print_text.h"
#include "engine/front/trace.h"

namespace tessera::debug {
namespace {
using ir::Attr;
using ir::Opcode;

// Appends what the format takes to op, which then refers to a text whose placeholders have no names.
void append(Emit& e, ir::Op op, const Format& format, const std::vector<Argument>& arguments) {
  if (!e.trace().index_map_origin().empty()) e.fail("an index map cannot print");
  std::string problem;
  const std::vector<FormatPiece> pieces = cut_format(format.text, problem);
  std::vector<std::string> names;
  for (const Argument& a : arguments) names.push_back(a.name);
  const std::vector<int> at = problem.empty() ? placeholders(pieces, names, problem) : std::vector<int>{};
  if (!problem.empty()) e.fail(problem);
  const auto doubled = [](const std::string& s) {
    std::string out;
    for (const char c : s) out += (c == '{' || c == '}' ? std::string(2, c) : std::string(1, c));
    return out;
  };
  std::vector<int> in_order(at.size());
  std::iota(in_order.begin(), in_order.end(), 0);
  std::string text;
  size_t next = 0;
  for (const FormatPiece& p : pieces) {
    text += doubled(p.text);
    if (!p.has_field) continue;
    text +=
        "{" + (at == in_order ? std::string() : std::to_string(at[next])) + (p.spec.empty() ? "" : ":" + p.spec) + "}";
    ++next;
  }
  std::vector<std::pair<DType, Shape>> types;
  for (const Argument& a : arguments) {
    const ir::Value v = e.as_is(a.value);
    op.operands.push_back(v);
    types.emplace_back(e.trace().kernel().type(v).dtype, e.trace().kernel().type(v).shape);
  }
  if (problem = format_problem(text, types); !problem.empty()) e.fail(problem);
  std::vector<std::string>& texts = e.trace().kernel().texts;
  const auto known = std::find(texts.begin(), texts.end(), text);
  op.set(Attr::text, known - texts.begin());
  if (known == texts.end()) texts.push_back(text);
  e.builder().append(std::move(op));
}
}  // namespace

void print(const Format& format, std::vector<Argument> arguments) {
  Emit e("debug_print", format.loc);
  append(e, {.code = Opcode::debug_print}, format, arguments);
}

void check(const Operand& condition, const Format& format, std::vector<Argument> arguments) {
  Emit e("check", format.loc);
  if (e.dtype(condition) != DType::boolean)
    e.fail("the condition is " + std::string(name(e.dtype(condition))) + ", not bool");
  ir::Value holds = e.as_is(condition);
  if (const size_t rank = e.trace().kernel().type(holds).shape.size(); rank > 0) {
    ir::Op all{.code = Opcode::reduce_and, .operands = {holds}};
    std::vector<int64_t> axes(rank);
    std::iota(axes.begin(), axes.end(), 0);
    all.set(Attr::axes, std::move(axes));
    holds = e.builder().one(std::move(all));
  }
  append(e, {.code = Opcode::check, .operands = {holds}}, format, arguments);
}

}  // namespace tessera::debug
