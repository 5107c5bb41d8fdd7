#include <bit>
#include <cctype>
#include <cstdlib>
#include <cstring>

#include "tests/ptx/syntax.h"
#include "tests/ptx/tokens.h"

namespace tessera::ptx {

namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // of a variable: more is a mistake in a test

struct Symbol {
  enum Kind : uint8_t { reg, variable } kind = reg;
  uint32_t index = 0;
};

class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text), tokens_(tokenise(text)) {}

  Module run() {
    if (!peek(".version")) fail("a module begins with .version");
    while (!at_end()) top();
    if (m_.target.empty()) fail("the module has no .target");
    return std::move(m_);
  }

 private:
  // ---- tokens
  bool at_end() const { return at_ == tokens_.size(); }
  const Token& token() const {
    static const Token kEnd{Token::end, "end of the text", 0, 0};
    return at_end() ? kEnd : tokens_[at_];
  }
  uint32_t line() const { return at_ < tokens_.size() ? tokens_[at_].line : tokens_.empty() ? 1 : tokens_.back().line; }
  [[noreturn]] void fail(const std::string& what) const { throw Error(line(), what); }
  bool peek(const char* text) const { return !at_end() && token().text == text && token().kind != Token::string; }
  bool take(const char* text) {
    if (!peek(text)) return false;
    ++at_;
    return true;
  }
  void expect(const char* text) {
    if (!take(text)) fail("expected \"" + std::string(text) + "\" before \"" + token().text + "\"");
  }
  std::string word() {
    if (token().kind != Token::word) fail("expected a name before \"" + token().text + "\"");
    return tokens_[at_++].text;
  }
  uint64_t number() {
    const Operand o = constant();
    if (o.kind != Operand::integer) fail("expected a whole number");
    return o.bits;
  }

  // ---- constants: numbers, with + - * / % & | ^ << >> and parentheses
  Operand constant() { return binary(0); }
  Operand binary(int level) {
    static const std::vector<std::vector<std::string>> kLevels = {{"|"},        {"^"},      {"&"},
                                                                  {"<<", ">>"}, {"+", "-"}, {"*", "/", "%"}};
    if (level == static_cast<int>(kLevels.size())) return unary();
    Operand a = binary(level + 1);
    for (bool more = true; more;) {
      more = false;
      for (const std::string& op : kLevels[static_cast<size_t>(level)]) {
        if (!take(op.c_str())) continue;
        const Operand b = binary(level + 1);
        if (a.kind != Operand::integer || b.kind != Operand::integer)
          fail("arithmetic on constants is of whole numbers");
        a.bits = fold(op, a.bits, b.bits);
        more = true;
        break;
      }
    }
    return a;
  }
  uint64_t fold(const std::string& op, uint64_t a, uint64_t b) {
    if (op == "|") return a | b;
    if (op == "^") return a ^ b;
    if (op == "&") return a & b;
    if (op == "<<") return b < 64 ? a << b : 0;
    if (op == ">>") return b < 64 ? a >> b : 0;
    if (op == "+") return a + b;
    if (op == "-") return a - b;
    if (op == "*") return a * b;
    if (b == 0) fail("a constant is divided by zero");
    const int64_t x = static_cast<int64_t>(a), y = static_cast<int64_t>(b);
    if (y == -1) return op == "/" ? 0 - a : 0;
    return static_cast<uint64_t>(op == "/" ? x / y : x % y);
  }
  Operand unary() {
    if (take("-")) {
      Operand o = unary();
      if (o.kind == Operand::integer) o.bits = 0 - o.bits;
      if (o.kind == Operand::real32) o.bits ^= 0x80000000u;
      if (o.kind == Operand::real64) o.bits ^= uint64_t{1} << 63;
      return o;
    }
    if (take("+")) return unary();
    if (take("~")) {
      Operand o = unary();
      o.bits = ~o.bits;
      return o;
    }
    if (take("(")) {
      const Operand o = constant();
      expect(")");
      return o;
    }
    if (token().kind != Token::number) fail("expected a number before \"" + token().text + "\"");
    Operand o = number_of(token());
    ++at_;
    return o;
  }
  static Operand number_of(const Token& t) {
    Operand o;
    o.name = t.text;
    const std::string& s = t.text;
    char* end = nullptr;
    if (s.size() > 2 && s[0] == '0' && (s[1] == 'f' || s[1] == 'F')) {
      if (s.size() != 10) throw Error(t.line, "\"" + s + "\": 0f takes eight digits");
      o.kind = Operand::real32, o.bits = std::strtoull(s.c_str() + 2, &end, 16);
    } else if (s.size() > 2 && s[0] == '0' && (s[1] == 'd' || s[1] == 'D')) {
      if (s.size() != 18) throw Error(t.line, "\"" + s + "\": 0d takes sixteen digits");
      o.kind = Operand::real64, o.bits = std::strtoull(s.c_str() + 2, &end, 16);
    } else if (s.size() > 2 && s[0] == '0' && (s[1] == 'b' || s[1] == 'B')) {
      o.kind = Operand::integer, o.bits = std::strtoull(s.c_str() + 2, &end, 2);
    } else if (s.find_first_of(".eE") != std::string::npos && !(s.size() > 1 && (s[1] == 'x' || s[1] == 'X'))) {
      o.kind = Operand::real64, o.bits = std::bit_cast<uint64_t>(std::strtod(s.c_str(), &end));
    } else {
      o.kind = Operand::integer, o.bits = std::strtoull(s.c_str(), &end, 0);
    }
    if (end && (*end == 'U' || *end == 'u') && o.kind == Operand::integer) ++end;
    if (!end || *end) throw Error(t.line, "\"" + s + "\" is no number");
    return o;
  }

  // ---- the module
  void top() {
    if (take(".version")) {
      m_.version = tokens_[at_++].text;
    } else if (take(".target")) {
      m_.target = word();
      while (take(",")) word();
    } else if (take(".address_size")) {
      if (number() != 64) fail("only .address_size 64 is known");
    } else if (peek(".file") || peek(".loc") || peek(".section")) {
      skip_debug();
    } else {
      declaration();
    }
  }
  void skip_debug() {
    if (take(".section")) {
      while (!peek("}")) {
        if (at_end()) fail("a .section does not end");
        ++at_;
      }
      ++at_;
      return;
    }
    const uint32_t l = line();
    while (!at_end() && line() == l) ++at_;
  }
  void declaration() {
    bool external = false;
    for (;;) {
      if (take(".visible") || take(".weak") || take(".common")) continue;
      if (!take(".extern")) break;
      external = true;
    }
    if (take(".entry")) return function(true);
    if (take(".func")) return function(false);
    const std::string space = word();
    if (space != ".global" && space != ".const" && space != ".shared") fail("\"" + space + "\" is not known here");
    variables(space == ".global" ? Space::global : space == ".const" ? Space::constant : Space::shared, external);
  }

  // ---- variables
  void variables(Space space, bool external) {
    do {
      declare(variable(space, external));
    } while (take(","));
    expect(";");
  }
  void declare(Variable v) {
    auto& scope = scopes_.back();
    const uint32_t index = static_cast<uint32_t>(m_.variables.size());
    const auto [found, is_new] = scope.insert({v.name, {Symbol::variable, index}});
    if (!is_new) {
      if (found->second.kind == Symbol::variable && m_.variables[found->second.index].external) {
        m_.variables[found->second.index] = std::move(v);
        return;
      }
      fail("\"" + v.name + "\" is declared twice");
    }
    m_.variables.push_back(std::move(v));
  }
  /// From after the space: .align 4 .b8 name[16] = {...}
  Variable variable(Space space, bool external) {
    Variable v;
    v.space = space, v.external = external, v.line = line();
    uint64_t lanes = 1;
    bool aligned = false;
    while (token().kind == Token::word && token().text[0] == '.') {
      const std::string w = word();
      if (w == ".align") {
        v.alignment = number(), aligned = true;
        if (!std::has_single_bit(v.alignment))
          fail("an alignment is a power of two, not " + std::to_string(v.alignment));
      } else if (w == ".v2" || w == ".v4") {
        lanes = w == ".v2" ? 2 : 4;
      } else if (w == ".ptr") {  // of what a parameter points to: a promise, for the compiler
        while (peek(".global") || peek(".shared") || peek(".const") || peek(".local")) word();
        if (take(".align")) number();
      } else if (w == ".managed" || w == ".attribute") {
        fail("\"" + w + "\" is not known");
      } else {
        v.type = type_of(w.substr(1));
        if (v.type == Type::none) fail("\"" + w + "\" is no type");
      }
    }
    v.name = word();
    const uint64_t bytes = width_of(v.type) / 8 * lanes;
    if (!aligned) v.alignment = bytes;
    uint64_t count = 1;
    bool counted = true;
    while (take("[")) {
      if (take("]")) {
        counted = false;
      } else {
        const uint64_t n = number();
        if (n > kMostBytes || count * n > kMostBytes) fail("\"" + v.name + "\" is too large here");
        count *= n;
        expect("]");
      }
    }
    if (take("=")) {
      initial(v, bytes);
      if (!counted) count = bytes ? v.initial.size() / bytes : 0, counted = true;
      if (v.initial.size() > count * bytes) fail("\"" + v.name + "\" has more initial values than elements");
      v.initial.resize(count * bytes);
    }
    if (!counted && !external) fail("\"" + v.name + "\" has no size and is not .extern");
    v.size = counted ? count * bytes : 0;
    return v;
  }
  void initial(Variable& v, uint64_t bytes) {
    if (take("{")) {
      while (!take("}")) {
        initial(v, bytes);
        if (!take(",") && !peek("}")) fail("expected \",\" or \"}\" before \"" + token().text + "\"");
      }
      return;
    }
    const size_t at = v.initial.size();
    v.initial.resize(at + bytes);
    if (token().kind == Token::word) {
      std::string name = word();
      if (name == "generic") {
        expect("(");
        name = word();
        expect(")");
      }
      v.addresses.push_back({at, name});
      return;
    }
    const Operand o = constant();
    uint64_t bits = o.bits;
    if (v.type == Type::f32 && o.kind == Operand::real64)
      bits = std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
    if (v.type == Type::f64 && o.kind == Operand::real32)
      bits = std::bit_cast<uint64_t>(static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits))));
    std::memcpy(v.initial.data() + at, &bits, bytes);
  }

  // ---- functions
  std::vector<uint32_t> params() {
    std::vector<uint32_t> all;
    if (!take("(")) return all;
    while (!take(")")) {
      const uint32_t index = static_cast<uint32_t>(m_.variables.size());
      if (take(".reg")) fail("parameters in registers are not known");
      expect(".param");
      declare(variable(Space::param, false));
      all.push_back(index);
      if (!take(",") && !peek(")")) fail("expected \",\" or \")\" before \"" + token().text + "\"");
    }
    return all;
  }
  void function(bool entry) {
    Function f;
    f.entry = entry, f.line = line();
    scopes_.emplace_back();
    if (!entry && peek("(")) f.results = params();
    f.name = word();
    f.params = params();
    for (const uint32_t p : f.params) {
      const Variable& v = m_.variables[p];
      f.param_bytes = (f.param_bytes + v.alignment - 1) / v.alignment * v.alignment;
      f.param_offsets.push_back(f.param_bytes);
      f.param_bytes += v.size;
    }
    while (!peek("{") && !peek(";")) directive(f);
    if (!take(";")) {
      f.body = true;
      f_ = &f;
      new_scope(kNone);
      expect("{");
      block(0);
      f_ = nullptr;
    }
    scopes_.pop_back();
    for (Function& g : m_.functions) {
      if (g.name != f.name) continue;
      if (g.body && f.body) fail("\"" + f.name + "\" is defined twice");
      if (f.body) g = std::move(f);
      return;
    }
    m_.functions.push_back(std::move(f));
  }
  void directive(Function& f) {
    const std::string d = word();
    const auto three = [&](uint32_t* n) {
      for (int i = 0; i < 3; ++i) n[i] = i == 0 || take(",") ? static_cast<uint32_t>(number()) : 1;
    };
    if (d == ".reqntid") return three(f.reqntid);
    if (d == ".maxntid") return three(f.maxntid);
    if (d == ".reqnctapercluster") return three(f.reqcluster);
    if (d == ".maxnreg") return void(f.maxnreg = static_cast<uint32_t>(number()));
    if (d == ".minnctapersm" || d == ".maxnctapersm" || d == ".maxclusterrank" || d == ".abi_preserve")
      return void(number());
    if (d == ".explicitcluster" || d == ".noreturn" || d == ".blocksareclusters") return;
    if (d == ".pragma") {
      ++at_;
      expect(";");
      return;
    }
    fail("\"" + d + "\" is not known here");
  }
  uint32_t new_scope(uint32_t parent) {
    f_->scope_parents.push_back(parent);
    f_->labels.emplace_back();
    f_->targets.emplace_back();
    return static_cast<uint32_t>(f_->scope_parents.size()) - 1;
  }
  void block(uint32_t scope) {
    scopes_.emplace_back();
    while (!take("}")) {
      if (at_end()) fail("a block does not end");
      if (take("{")) {
        block(new_scope(scope));
        continue;
      }
      if (take(";")) continue;
      if (take(".reg")) {
        registers();
      } else if (peek(".shared") || peek(".local") || peek(".global") || peek(".const") || peek(".param")) {
        const std::string s = word();
        variables(s == ".shared"   ? Space::shared
                  : s == ".local"  ? Space::local
                  : s == ".global" ? Space::global
                  : s == ".const"  ? Space::constant
                                   : Space::param,
                  false);
      } else if (peek(".loc") || peek(".file")) {
        skip_debug();
      } else if (take(".pragma")) {
        ++at_;
        expect(";");
      } else if (token().kind == Token::word && at_ + 1 < tokens_.size() && tokens_[at_ + 1].text == ":") {
        label(scope);
      } else {
        statement(scope);
      }
    }
    scopes_.pop_back();
  }
  void label(uint32_t scope) {
    const std::string name = word();
    expect(":");
    if (take(".branchtargets")) {
      std::vector<std::string> all;
      do all.push_back(word());
      while (take(","));
      expect(";");
      f_->targets[scope][name] = all;
      return;
    }
    if (peek(".callprototype") || peek(".calltargets")) fail("indirect calls are not known");
    if (!f_->labels[scope].insert({name, static_cast<uint32_t>(f_->code.size())}).second)
      fail("the label \"" + name + "\" is there twice");
  }
  void registers() {
    Type type = Type::none;
    while (token().kind == Token::word && token().text[0] == '.') {
      const std::string w = word();
      if (w == ".v2" || w == ".v4") fail("registers that are vectors are not known");
      type = type_of(w.substr(1));
      if (type == Type::none) fail("\"" + w + "\" is no type");
    }
    const auto add = [&](const std::string& name) {
      const uint32_t index = static_cast<uint32_t>(f_->registers.size());
      if (!scopes_.back().insert({name, {Symbol::reg, index}}).second) fail("\"" + name + "\" is declared twice");
      f_->registers.push_back({name, type});
    };
    do {
      const std::string name = word();
      if (!take("<")) {
        add(name);
        continue;
      }
      const uint64_t n = number();
      if (n > 1u << 20) fail("too many registers");
      expect(">");
      for (uint64_t i = 0; i < n; ++i) add(name + std::to_string(i));
    } while (take(","));
    expect(";");
  }

  // ---- statements
  const Symbol* find(const std::string& name) const {
    for (size_t i = scopes_.size(); i-- > 0;) {
      const auto found = scopes_[i].find(name);
      if (found != scopes_[i].end()) return &found->second;
    }
    return nullptr;
  }
  /// The text in one line.
  std::string between(size_t first, size_t last) const {
    std::string line;
    for (size_t i = first; i < last; ++i) {
      const bool space = std::isspace(static_cast<unsigned char>(text_[i])) != 0;
      if (!space) line += text_[i];
      else if (!line.empty() && line.back() != ' ') line += ' ';
    }
    return line;
  }
  void statement(uint32_t scope) {
    Statement s;
    s.line = line(), s.scope = scope;
    const size_t first = token().at;
    if (take("@")) {
      s.guard_negated = take("!");
      const std::string name = word();
      const Symbol* p = find(name);
      if (!p || p->kind != Symbol::reg) fail("\"" + name + "\" is no register");
      if (f_->registers[p->index].type != Type::pred) fail("the guard \"" + name + "\" is no predicate");
      s.guard = p->index;
    }
    std::string op = word();
    size_t dot = op.find('.');
    s.opcode = op.substr(0, dot);
    while (dot != std::string::npos) {
      const size_t next = op.find('.', dot + 1);
      s.words.push_back(op.substr(dot + 1, next == std::string::npos ? next : next - dot - 1));
      dot = next;
    }
    if (!peek(";")) {
      do s.operands.push_back(operand());
      while (take(","));
    }
    expect(";");
    s.text = between(first, tokens_[at_ - 1].at);
    f_->code.push_back(std::move(s));
  }
  Operand operand() {
    Operand o = single();
    if (peek("|")) {
      Operand p;
      p.kind = Operand::pair, p.parts.push_back(std::move(o));
      while (take("|")) p.parts.push_back(single());
      return p;
    }
    return o;
  }
  Operand list(Operand::Kind kind, const char* end) {
    Operand o;
    o.kind = kind;
    while (!take(end)) {
      o.parts.push_back(operand());
      if (!take(",") && !peek(end))
        fail("expected \",\" or \"" + std::string(end) + "\" before \"" + token().text + "\"");
    }
    return o;
  }
  Operand single() {
    if (take("{")) return list(Operand::vector, "}");
    if (take("[")) return list(Operand::address, "]");
    if (peek("(") && !constant_follows()) {
      take("(");
      return list(Operand::params, ")");
    }
    const bool negated = take("!");
    if (token().kind == Token::word) {
      Operand o = named(word());
      o.negated = negated;
      if (peek("+") || peek("-")) {
        const bool minus = take("-");
        if (!minus) take("+");
        const int64_t n = static_cast<int64_t>(number());
        o.offset = minus ? -n : n;
      }
      return o;
    }
    if (peek("-") && at_ + 1 < tokens_.size() && tokens_[at_ + 1].kind == Token::word) {
      take("-");
      Operand o = named(word());
      o.negated = true;
      return o;
    }
    return constant();
  }
  /// After "(": a number, not the parameters of a call.
  bool constant_follows() const {
    return at_ + 1 < tokens_.size() && (tokens_[at_ + 1].kind == Token::number || tokens_[at_ + 1].text == "-");
  }
  Operand named(const std::string& name) {
    Operand o;
    o.name = name;
    if (name == "_") return o;
    if (const Symbol* s = find(name)) {
      o.kind = s->kind == Symbol::reg ? Operand::reg : Operand::variable;
      o.index = s->index;
      return o;
    }
    if (special(name, o)) return o;
    if (name[0] == '%') fail("\"" + name + "\" is not declared");
    o.kind = Operand::label;
    return o;
  }
  static bool special(const std::string& name, Operand& o) {
    static const std::vector<std::pair<const char*, Special>> kNames = {
        {"%tid", Special::tid},
        {"%ntid", Special::ntid},
        {"%ctaid", Special::ctaid},
        {"%nctaid", Special::nctaid},
        {"%laneid", Special::laneid},
        {"%warpid", Special::warpid},
        {"%nwarpid", Special::nwarpid},
        {"%smid", Special::smid},
        {"%nsmid", Special::nsmid},
        {"%gridid", Special::gridid},
        {"%clock", Special::clock},
        {"%clock64", Special::clock64},
        {"%globaltimer", Special::globaltimer},
        {"%lanemask_eq", Special::lanemask_eq},
        {"%lanemask_lt", Special::lanemask_lt},
        {"%lanemask_le", Special::lanemask_le},
        {"%lanemask_gt", Special::lanemask_gt},
        {"%lanemask_ge", Special::lanemask_ge},
        {"WARP_SZ", Special::warp_size},
        {"%dynamic_smem_size", Special::dynamic_smem_size},
        {"%total_smem_size", Special::total_smem_size},
        {"%clusterid", Special::clusterid},
        {"%nclusterid", Special::nclusterid},
        {"%cluster_ctaid", Special::cluster_ctaid},
        {"%cluster_nctaid", Special::cluster_nctaid},
        {"%cluster_ctarank", Special::cluster_ctarank},
        {"%cluster_nctarank", Special::cluster_nctarank},
        {"%is_explicit_cluster", Special::is_explicit_cluster}};
    const size_t dot = name.find('.');
    for (const auto& [n, which] : kNames) {
      if (name.compare(0, dot, n) != 0) continue;
      o.kind = Operand::special, o.which = which;
      if (dot != std::string::npos) {
        static const std::string kComponents = "xyzw";
        const size_t c = dot + 2 == name.size() ? kComponents.find(name[dot + 1]) : std::string::npos;
        if (c == std::string::npos) return false;
        o.component = static_cast<uint8_t>(c);
      }
      return true;
    }
    return false;
  }

  const std::string& text_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  Module m_;
  Function* f_ = nullptr;
  std::vector<std::unordered_map<std::string, Symbol>> scopes_{1};
};

}  // namespace

uint32_t Function::find_label(const std::string& wanted, uint32_t scope) const {
  for (; scope != kNone; scope = scope_parents[scope]) {
    const auto found = labels[scope].find(wanted);
    if (found != labels[scope].end()) return found->second;
  }
  return kNone;
}

const Function* Module::find(const std::string& wanted) const {
  for (const Function& f : functions)
    if (f.name == wanted) return &f;
  return nullptr;
}

Module parse(const std::string& text) { return Parser(text).run(); }

}  // namespace tessera::ptx
