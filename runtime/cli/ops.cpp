// tessera ops: the op table (engine/ir/ops.def) for reading on a terminal.
#include <algorithm>
#include <iostream>

#include "runtime/cli/commands.h"

namespace tessera::cli {
namespace {
using ir::OpInfo;

std::string operands(const OpInfo& row) {
  const auto rule = [&] {
    switch (row.operands) {
      case ir::OperandRule::num: return "integers or floats";
      case ir::OperandRule::flt: return "floats";
      case ir::OperandRule::int_: return "integers";
      case ir::OperandRule::ibl: return "integers or bool";
      case ir::OperandRule::any: return "any dtype";
      case ir::OperandRule::select: return "a bool, then two of any dtype";
      case ir::OperandRule::none: break;
    }
    return "";
  };
  if (row.operands == ir::OperandRule::select) return "takes " + std::string(rule());
  return "takes " + std::to_string(row.arity) + (row.arity == 1 ? " value, " : " values of one dtype, ") + rule();
}
std::string result(const OpInfo& row) {
  switch (row.result) {
    case ir::ResultRule::same: return "gives their dtype";
    case ir::ResultRule::pred: return "gives bool";
    case ir::ResultRule::other: return "gives the dtype stated";
    case ir::ResultRule::structured: break;
  }
  return "";
}
std::string level(const OpInfo& row) {
  return row.tile && row.lane ? "tile and lane level" : row.tile ? "tile level" : "lane level";
}
std::string effect(const OpInfo& row) {
  switch (row.effect) {
    case ir::Effect::pure: return "pure";
    case ir::Effect::reads: return "reads its Ref";
    case ir::Effect::writes: return "writes its Ref";
    case ir::Effect::ordered: return "keeps its place";
  }
  return "";
}
std::string number(double d) {
  std::string s = std::to_string(d);
  s.erase(s.find_last_not_of('0') + 1);
  if (s.back() == '.') s.pop_back();
  return s;
}

/// Changes of one letter between two names.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

void one(const std::string& name) {
  const auto code = ir::opcode_from_name(name);
  if (!code) {
    std::string close;
    for (int i = 0; i < ir::kNumOpcodes; ++i) {
      const std::string_view other = ir::name(static_cast<ir::Opcode>(i));
      if (distance(name, other) <= std::max<size_t>(1, name.size() / 3) ||
          (name.size() > 2 && other.find(name) != std::string_view::npos))
        close += (close.empty() ? "" : ", ") + std::string(other);
    }
    throw UsageError("there is no op \"" + name + "\"", {},
                     close.empty() ? "tessera ops lists them" : "perhaps " + close);
  }
  const OpInfo& row = ir::info(*code);
  std::cout << row.name << ": " << row.doc << "\n";
  if (!ir::is_elementwise(*code)) {
    std::cout << "  " << ir::name(row.family) << ": " << level(row) << ", " << effect(row) << "\n";
    return;
  }
  std::cout << "  elementwise: " << operands(row) << "; " << result(row) << "; " << level(row) << "\n";
  std::string properties;
  for (const auto& [has, word] : {std::pair{row.commutative, "commutative"},
                                  {row.associative, "associative"},
                                  {row.idempotent, "idempotent"},
                                  {row.transcendental, "dear: tens of instructions"}})
    if (has) properties += (properties.empty() ? "  " : ", ") + std::string(word);
  if (!properties.empty()) std::cout << properties << "\n";
  if (row.operands == ir::OperandRule::flt || row.operands == ir::OperandRule::num) {
    const auto within = [](double ulp) {
      return ulp == 0 ? std::string("exact") : "within " + number(ulp) + " units in the last place";
    };
    std::cout << "  floats on devices: " << within(row.ulp);
    if (row.relaxed_ulp != row.ulp || !row.relaxed_doc.empty())
      std::cout << "; on GPUs, unless strict: " << within(row.relaxed_ulp)
                << (row.relaxed_doc.empty() ? "" : ", " + std::string(row.relaxed_doc));
    std::cout << "\n";
  }
}
}  // namespace

void ops(const std::string& name) {
  if (!name.empty()) return one(name);
  const auto column = [](std::string_view word, size_t width) {
    return std::string(word) + std::string(std::max(width, word.size() + 1) - word.size(), ' ');
  };
  const auto both = [](const OpInfo& r) { return r.family == ir::Family::elementwise && r.tile; };
  const auto list = [&](const char* title, auto belongs) {
    std::cout << title << "\n";
    for (int i = 0; i < ir::kNumOpcodes; ++i) {
      const OpInfo& row = ir::info(static_cast<ir::Opcode>(i));
      if (belongs(row))
        std::cout << "  " << column(row.name, 26) << (both(row) ? "" : column(ir::name(row.family), 11)) << row.doc
                  << "\n";
    }
  };
  list("elementwise, on both levels", both);
  list("\nstructured, for kernels over blocks (tile level; some on lane level too), and their families",
       [&](const OpInfo& r) { return r.tile && !both(r); });
  list("\nmade by the compiler (lane level)", [](const OpInfo& r) { return !r.tile; });
  std::cout << "\ntessera ops NAME says more about one.\n";
}

}  // namespace tessera::cli
