// The parser of the text form (grammar: engine/language.md), by recursive descent with one token of lookahead. Ops end
// with their line; brackets and commas carry on to the next. Types come from infer(); a type in the text must agree
// with it.
#include <charconv>

#include "engine/ir/builder.h"
#include "engine/ir/lexer.h"
#include "engine/ir/text.h"

namespace tessera::ir {
namespace {

constexpr int kMaxDepth = 200;  // of regions, so that no text exhausts the stack

class Parser {
 public:
  Parser(std::string_view text, std::string_view file) : lexer_(text, file), b_(k_) { advance(); }

  Kernel run() {
    header();
    while (!token_.is("body")) clause();
    body();
    if (token_.kind != Token::Kind::end) expected("the end of the file");
    return std::move(k_);
  }

 private:
  struct Name {
    Value value;
    uint32_t line;
  };
  Lexer lexer_;
  Token token_;
  Kernel k_;
  Builder b_;
  std::unordered_map<std::string_view, Name> names_;
  std::vector<std::string_view> scope_;  // names in order of definition, for leaving a region
  int depth_ = 0;
  bool outputs_ = false;

  // -- tokens
  void advance() { token_ = lexer_.next(); }
  [[noreturn]] void fail(const std::string& what) const { lexer_.fail(token_.offset, what); }
  [[noreturn]] void expected(const std::string& what) const {
    fail("expected " + what + " but found " + lexer_.shown(token_));
  }
  bool take(std::string_view s) {
    if (!token_.is(s)) return false;
    advance();
    return true;
  }
  void expect(std::string_view s) {
    if (!take(s)) expected("'" + std::string(s) + "'");
  }
  bool same_line() const { return !token_.first_on_line; }
  std::string word(const char* what) {
    if (token_.kind != Token::Kind::word) expected(what);
    const std::string s(token_.text);
    advance();
    return s;
  }
  int64_t integer(const char* what, int64_t least = INT64_MIN, int64_t most = INT64_MAX) {
    if (token_.kind != Token::Kind::number) expected(what);
    int64_t v = 0;
    const char *begin = token_.text.data(), *end = begin + token_.text.size();
    const auto [at, error] = std::from_chars(begin, end, v);
    if (error == std::errc::result_out_of_range)
      fail("the number " + std::string(token_.text.substr(0, 40)) + " does not fit 64 bits");
    if (at != end) expected(what);
    if (v < least || v > most)
      fail("expected " + std::string(what) + " from " + std::to_string(least) + " to " + std::to_string(most) +
           " but found " + std::to_string(v));
    advance();
    return v;
  }
  /// A word as it stands or a quoted string with its escapes undone.
  std::string text(const char* what) {
    if (token_.kind != Token::Kind::string) return word(what);
    std::string s;
    for (size_t i = 0; i < token_.text.size(); ++i) {
      char c = token_.text[i];
      if (c == '\\' && i + 1 < token_.text.size()) c = token_.text[++i] == 'n' ? '\n' : token_.text[i];
      s += c;
    }
    advance();
    return s;
  }
  template <class F> void list(const char* open, const char* close, F item) {
    expect(open);
    if (take(close)) return;
    do item();
    while (take(","));
    if (!take(close)) expected(std::string("',' or '") + close + "'");
  }
  Extent extent() {
    std::string_view rest = lexer_.rest(token_.offset);
    const size_t before = rest.size();
    try {
      Extent e = parse_extent(rest);
      lexer_.seek(token_.offset + before - rest.size());
      advance();
      return e;
    } catch (const Error& e) {  // rest begins where it was found
      lexer_.fail(token_.offset + before - rest.size(), e.what());
    }
  }

  // -- types
  DType dtype() {
    if (token_.kind == Token::Kind::word)
      if (const auto t = dtype_from_name(token_.text)) {
        advance();
        return *t;
      }
    expected("a dtype");
  }
  std::optional<MemorySpace> space() const {
    for (MemorySpace s : {MemorySpace::any, MemorySpace::vmem, MemorySpace::smem, MemorySpace::global,
                          MemorySpace::shared, MemorySpace::semaphore, MemorySpace::dma_semaphore, MemorySpace::barrier,
                          MemorySpace::cluster_barrier, MemorySpace::accumulator})
      if (token_.is(name(s))) return s;
    return std::nullopt;
  }
  Type type() {
    if (!take("ref")) return array_type(false);
    expect("<");
    const auto s = space();
    if (!s) expected("a memory space");
    advance();
    expect(",");
    Type t = array_type(true);
    if (token_.is(",")) t.traits = thread_traits();
    expect(">");
    t.is_ref = true;
    t.space = *s;
    return t;
  }
  std::shared_ptr<const ThreadTraits> thread_traits() {
    ThreadTraits more;
    const auto numbers = [&](std::vector<int64_t>& to) {
      list("[", "]", [&] { to.push_back(integer("a number", 0)); });
    };
    while (take(",")) {
      if (take("arrivals")) more.arrivals = integer("a number of arrivals", 1, INT32_MAX);
      else if (take("axes")) numbers(more.axes);
      else if (take("tiling")) numbers(more.tiling);
      else if (take("swizzle")) more.swizzle = integer("a swizzle", 0, 128);
      else expected("'arrivals', 'axes', 'tiling' or 'swizzle'");
    }
    return std::make_shared<const ThreadTraits>(std::move(more));
  }
  Type array_type(bool unknown_length) {
    const size_t start = token_.offset;
    Type t = Type::array(dtype());
    if (!token_.is("[")) return t;
    list("[", "]", [&] {
      if (unknown_length && take("?")) t.shape.push_back(-1);
      else t.shape.push_back(integer("a size", 0));
    });
    if (!within_limits(t.shape))
      lexer_.fail(start, "the type is too large: at most 32 dims and 2^40 elements are allowed");
    return t;
  }

  // -- values
  Value use() {
    if (token_.kind != Token::Kind::value) expected("a value");
    const auto it = names_.find(token_.text);
    if (it == names_.end()) fail("%" + std::string(token_.text) + " is not defined here");
    advance();
    return it->second.value;
  }
  Token new_name() {
    if (token_.kind != Token::Kind::value) expected("a new value");
    const Token t = token_;
    advance();
    return t;
  }
  void define(const Token& t, Value v) {
    const auto [it, fresh] = names_.try_emplace(t.text, Name{v, t.line});
    if (!fresh)
      lexer_.fail(t.offset,
                  "%" + std::string(t.text) + " is already defined on line " + std::to_string(it->second.line));
    scope_.push_back(t.text);
  }
  void leave(size_t scope) {
    for (; scope_.size() > scope; scope_.pop_back()) names_.erase(scope_.back());
  }

  // -- the kernel
  void header() {
    if (!token_.is("tir")) expected("'tir " + std::to_string(kTextVersion) + "' on the first line");
    advance();
    const Token version = token_;
    if (integer("a version number") != kTextVersion)
      lexer_.fail(version.offset, "version " + std::string(version.text) +
                                      " of the text form is not known: this build reads version " +
                                      std::to_string(kTextVersion));
    if (take("lane")) k_.level = Level::lane;
    const uint32_t line = token_.line;
    expect("kernel");
    expect("@");
    k_.name = text("the kernel's name");
    k_.loc = lexer_.location(line);
  }
  bool lane_size() {
    LaneInfo& l = k_.lane;
    return lane_number("workgroup_size", 1, l.workgroup_size) || lane_number("subgroup_size", 0, l.subgroup_size) ||
           lane_number("shared_bytes", 0, l.shared_bytes) || lane_number("scratch_bytes", 0, l.scratch_bytes) ||
           lane_number("report_bytes", 0, l.report_bytes) || lane_number("threads", 1, l.threads) ||
           lane_number("program_bytes", 0, l.program_bytes) || lane_number("max_workgroups", 0, l.max_workgroups);
  }
  void clause() {
    if (take("grid")) list("(", ")", [&] { axis(); });
    else if (token_.is("metadata") || token_.is("cost_estimate") || token_.is("compiler_params")) call_info();
    else if (token_.is("prefetch") || token_.is("in") || token_.is("out")) block();
    else if (take("scratch")) scratch();
    else if (token_.is("text") && k_.level == Level::tile) {
      advance();
      if (token_.kind != Token::Kind::string) expected("a string");
      k_.texts.push_back(text("a text"));
    } else if (token_.is("sizes") && k_.level == Level::tile) {
      advance();
      list("(", ")", [&] { k_.sizes.push_back(extent()); });
    } else if (lane_size()) {
      return;
    } else if (lane_number("steps_extent", 0, k_.lane.steps_extent)) {
      k_.lane.open_ended = take("open_ended");
    } else if (int32_t arrivals = 0; lane_number("mbarrier", 1, arrivals)) {
      k_.lane.barriers.push_back(arrivals);
    } else if (lane_word("num_units")) {
      k_.lane.num_units = extent();
      k_.lane.exact = take("exact");
    } else if (lane_word("tensor")) {
      TensorBox t;
      t.array = static_cast<int32_t>(integer("a number", 0, INT32_MAX));
      expect("box");
      list("(", ")", [&] { t.box.push_back(integer("a number of elements", 1, INT32_MAX)); });
      k_.lane.tensors.push_back(std::move(t));
    } else if (lane_word("extents")) list("(", ")", [&] { lane_extent(); });
    else
      expected(
          "'metadata', 'cost_estimate', 'compiler_params', 'grid', 'prefetch', 'in', 'out', 'scratch', 'sizes', "
          "'text'" +
          std::string(k_.level == Level::lane ? ", a lane-level clause" : "") + " or 'body'");
  }
  void call_info() {
    if (k_.level == Level::lane) fail("'" + std::string(token_.text) + "' belongs to tile-level kernels");
    CallInfo& c = k_.call;
    if (take("metadata")) {
      list("(", ")", [&] {
        const Token key = token_;
        std::string k = text("a key");
        expect(":");
        if (!c.metadata.emplace(std::move(k), text("a string")).second)
          lexer_.fail(key.offset, "the key is given twice");
      });
    } else if (token_.is("cost_estimate")) {
      if (c.cost_estimate) fail("cost_estimate is given twice");
      advance();
      CostEstimate& e = c.cost_estimate.emplace();
      list("(", ")", [&] {
        Extent* field = token_.is("flops")                      ? &e.flops
                        : token_.is("transcendentals")          ? &e.transcendentals
                        : token_.is("bytes_accessed")           ? &e.bytes_accessed
                        : token_.is("remote_bytes_transferred") ? &e.remote_bytes_transferred
                                                                : nullptr;
        if (!field) expected("flops, transcendentals, bytes_accessed or remote_bytes_transferred");
        advance();
        expect(":");
        const size_t at = token_.offset;
        *field = extent();
        if (field->is_static() && *field->value() < 0)
          lexer_.fail(at, "a cost of " + to_string(*field) + " is negative");
      });
    } else {
      advance();
      const std::string backend = text("a backend");
      list("(", ")", [&] {
        const Token name = token_;
        CompilerParam p{backend, text("a compiler parameter"), {}};
        expect(":");
        if (token_.kind == Token::Kind::number) {
          p.value = token_.text;
          advance();
        } else p.value = text("a value");
        if (const auto wrong = problem(p)) lexer_.fail(name.offset, *wrong);
        if (c.compiler_param(p.backend, p.name))
          lexer_.fail(name.offset, "compiler parameter " + p.name + " of " + p.backend + " is given twice");
        c.compiler_params.push_back(std::move(p));
      });
    }
  }
  void scratch() {
    const size_t start = token_.offset;
    k_.scratch.push_back(ref_type());
    if (take("private")) ++k_.num_private_scratch;
    else if (k_.num_private_scratch > 0) lexer_.fail(start, "private scratch comes after the other scratch");
  }
  bool lane_word(const char* s) {
    if (!token_.is(s)) return false;
    if (k_.level != Level::lane) fail("'" + std::string(s) + "' belongs to lane-level kernels");
    advance();
    return true;
  }
  template <class T> bool lane_number(const char* s, int64_t least, T& into) {
    if (!lane_word(s)) return false;
    into = static_cast<T>(integer("a number", least, sizeof(T) == 4 ? INT32_MAX : INT64_MAX));
    return true;
  }
  void lane_extent() {
    k_.lane.extents.push_back(extent());
    bool wide = false;
    if (take(":")) {
      if (!token_.is("i32") && !token_.is("i64")) expected("'i32' or 'i64'");
      wide = token_.is("i64");
      advance();
    }
    k_.lane.extent_is_64.push_back(wide);
  }
  Type ref_type() {
    const size_t start = token_.offset;
    Type t = type();
    if (!t.is_ref) lexer_.fail(start, "expected a ref type but found " + to_string(t));
    return t;
  }
  void axis() {
    GridAxis g;
    Lexer ahead = lexer_;
    if (token_.kind == Token::Kind::string || (token_.kind == Token::Kind::word && ahead.next().is(":"))) {
      g.name = text("an axis");
      expect(":");
    }
    const size_t at = token_.offset;
    g.size = extent();
    if (g.size.is_static() && *g.size.value() < 0)
      lexer_.fail(at, "grid axis " + std::to_string(k_.grid.size()) + ": size " + to_string(g.size) + " is negative");
    for (;;) {
      if (take("parallel")) g.parallel = true;
      else if (take("vmapped")) g.vmapped = true;
      else if (take("cluster")) g.role = GridAxis::Role::cluster;
      else if (take("thread")) g.role = GridAxis::Role::thread;
      else break;
    }
    k_.grid.push_back(std::move(g));
  }
  void block() {
    BlockMapping m;
    const uint32_t line = token_.line;
    const bool output = token_.is("out"), prefetch = token_.is("prefetch");
    if (!output && outputs_) fail("inputs come before outputs");
    if (prefetch && k_.num_prefetch < k_.num_inputs) fail("scalar-prefetch operands come before inputs");
    outputs_ |= output;
    k_.num_prefetch += prefetch;
    k_.num_inputs += !output;
    advance();
    if (token_.kind == Token::Kind::string) m.origin = text("an origin");
    else m.origin = k_.usual_origin(static_cast<int>(k_.blocks.size()));
    m.dtype = dtype();
    list("[", "]", [&] { m.array_shape.push_back(extent()); });
    if (output && take("alias")) m.alias = static_cast<int>(integer("an input's position", 0, INT32_MAX));
    if (take("value")) {
      m.what = BlockMapping::ByValue{};
    } else if (take("whole")) {
      m.what = BlockMapping::Whole{};
    } else if (take("block")) {
      const size_t start = token_.offset;
      Shape sizes;
      list("(", ")", [&] {
        m.block().push_back(block_dim());
        sizes.push_back(m.block().back().size());
      });
      if (!within_limits(sizes))
        lexer_.fail(start, "the block is too large: at most 32 dims and 2^40 elements are allowed");
    } else {
      expected("'whole', 'value' or 'block'");
    }
    if (m.is_by_value()) {
      m.space = MemorySpace::smem;
    } else if (const auto s = space()) {
      m.space = *s;
      advance();
    }
    if (prefetch) m.space = MemorySpace::smem;
    if (take("buffered")) buffering(m.buffering);
    if (!m.is_whole() && take("map")) {
      const size_t start = token_.offset, ids = k_.grid.size(),
                   refs = prefetch ? 0 : static_cast<size_t>(k_.num_prefetch);
      m.index_map() = top_region([&](size_t i) {
        return std::optional(i < ids || i >= ids + refs ? Type::array(DType::i32) : block_type(i - ids, start));
      });
    }
    m.loc = lexer_.location(line);
    k_.blocks.push_back(std::move(m));
  }
  BlockDim block_dim() {
    constexpr int64_t kMost = int64_t{1} << 30;  // positions are i32
    if (take("squeezed")) return {BlockDim::Squeezed{}};
    if (take("element")) {
      expect("(");
      BlockDim::Element d{integer("a block size", 0)};
      if (take(",")) {
        d.low = integer("the padding before the array", 0, kMost);
        expect(",");
        d.high = integer("the padding behind the array", 0, kMost);
      }
      expect(")");
      return {d};
    }
    if (take("bounded")) {
      expect("(");
      const BlockDim::BoundedSlice d{integer("a block size", 0)};
      expect(")");
      return {d};
    }
    if (take("halo")) {
      expect("(");
      BlockDim::Halo d{integer("a block size", 0, kMost)};
      expect(",");
      d.low = integer("the elements before the block", 0, kMost);
      expect(",");
      d.high = integer("the elements behind the block", 0, kMost);
      expect(",");
      d.edge = edge();
      expect(")");
      return {d};
    }
    return {BlockDim::Blocked{integer("a block size, 'squeezed', 'element', 'bounded' or 'halo'", 0)}};
  }
  Edge edge() {
    for (const Edge e : {Edge::clamp, Edge::zero, Edge::reflect, Edge::symmetric, Edge::wrap})
      if (take(name(e))) return e;
    expected("'clamp', 'zero', 'reflect', 'symmetric' or 'wrap'");
  }
  void buffering(Buffering& b) {
    b.count = integer("a number of buffers", 1);
    b.lookahead = take("lookahead");
    if (!take("revisit")) return;
    if (!token_.is("any") && !token_.is("immediate")) expected("'any' or 'immediate'");
    b.revisit = token_.is("any") ? Buffering::Revisit::any : Buffering::Revisit::immediate;
    advance();
  }
  void body() {
    expect("body");
    const size_t start = token_.offset;
    size_t given = 0;
    const size_t wanted = k_.blocks.size() + k_.scratch.size();
    k_.body = top_region([&](size_t i) -> std::optional<Type> {
      given = i + 1;
      if (i >= wanted) return std::nullopt;
      if (i >= k_.blocks.size()) return k_.scratch[i - k_.blocks.size()];
      if (k_.level == Level::lane) return Type::ref(k_.blocks[i].dtype, {-1}, MemorySpace::global);
      return block_type(i, start);
    });
  }
  Type block_type(size_t i, size_t offset) {
    try {
      return k_.block_ref_type(static_cast<int>(i));
    } catch (const Error& e) {
      lexer_.fail(offset, e, k_.name);
    }
  }
  /// Arguments and ops of a region that sees no outer values. `usual` gives the type of argument i where the text has
  /// none.
  template <class F> RegionId top_region(F usual) {
    const RegionId r = b_.new_region({});
    size_t i = 0;
    list("(", ")", [&] {
      const Token t = new_name();
      const size_t at = i++;
      Type arg;
      if (take(":")) arg = type();
      else if (const auto known = usual(at)) {
        if (!within_limits(known->shape))
          lexer_.fail(t.offset, "the type is too large: at most 32 dims and 2^40 elements are allowed");
        arg = *known;
      } else
        lexer_.fail(t.offset,
                    "%" + std::string(t.text) + " needs a type: the kernel has fewer inputs, outputs and scratch refs");
      define(t, b_.add_arg(r, arg));
    });
    braces(r);
    leave(0);
    return r;
  }

  // -- ops
  /// "{ ops }" into r; the builder is back where it was afterwards. A missing yield is an empty one.
  void braces(RegionId r) {
    if (!token_.is("{")) expected("'{'");
    if (++depth_ > kMaxDepth) fail("regions are nested more than " + std::to_string(kMaxDepth) + " deep");
    advance();
    const RegionId outer = b_.region();
    const size_t scope = scope_.size();
    b_.set_region(r);
    while (!token_.is("}")) {
      if (token_.kind == Token::Kind::end) expected("an op or '}'");
      const bool last = token_.is("yield");
      op();
      if (last && !token_.is("}")) expected("'}' after the yield");
    }
    if (k_.region(r).ops.empty() || k_.terminator(r).code != Opcode::yield) {
      b_.set_loc(lexer_.location(token_.line));
      b_.yield({});
    }
    advance();
    leave(scope);
    b_.set_region(outer);
    --depth_;
  }
  void op() {
    std::vector<Token> results;
    const uint32_t line = token_.line;
    if (token_.kind == Token::Kind::value) {
      do results.push_back(new_name());
      while (take(","));
      expect("=");
    }
    const Token start = token_;
    if (token_.kind != Token::Kind::word) expected("an op");
    const auto code = opcode_from_name(token_.text);
    if (!code) fail("there is no op '" + std::string(token_.text.substr(0, 40)) + "'");
    advance();
    Op o{.code = *code};
    Type requested;
    size_t type_offset = 0;
    bool typed = false;
    std::string_view literal_text;
    size_t literal_offset = 0;
    if (*code == Opcode::for_) for_loop(o);
    else if (*code == Opcode::while_) while_loop(o);
    else if (*code == Opcode::if_) if_else(o);
    else if (*code == Opcode::switch_) switch_case(o);
    else if (*code == Opcode::run_scoped) run_scoped(o);
    else {
      if (is_copy(*code) || num_thread_places(*code) > 0) copy(o);
      else if (accesses_ref(*code) || is_semaphore_op(*code)) memory(o);
      else if (*code == Opcode::constant) {
        literal_offset = token_.offset;
        if (!same_line() || (token_.kind != Token::Kind::number && token_.kind != Token::Kind::word))
          expected("a number");
        literal_text = token_.text;
        advance();
      } else plain(o);
      if (same_line() && take(":")) {
        typed = true;
        type_offset = token_.offset;
        requested = type();
      } else if (needs_type(*code)) expected("':' and the result's type");
    }
    if (*code == Opcode::constant) {
      const auto bits = requested.is_ref ? std::nullopt : parse_literal(requested.dtype, literal_text);
      if (!bits)
        lexer_.fail(literal_offset, "'" + std::string(literal_text.substr(0, 40)) + "' is not a constant of " +
                                        std::string(name(requested.dtype)));
      o.set(Attr::bits, static_cast<int64_t>(*bits));
    }
    if (same_line() && !token_.is("}")) expected("the end of the line");
    o.loc = lexer_.location(line);
    const OpId id = [&] {
      try {
        return b_.append(std::move(o), requested);
      } catch (const TraceError& e) {
        lexer_.fail(start.offset, e, k_.name);
      }
    }();
    const std::vector<Value>& made = k_.op(id).results;
    if (made.size() != results.size())
      lexer_.fail(start.offset, std::string(name(*code)) + " has " + std::to_string(made.size()) +
                                    (made.size() == 1 ? " result" : " results") + " but " +
                                    std::to_string(results.size()) + (results.size() == 1 ? " is" : " are") + " named");
    if (typed && made.empty()) lexer_.fail(type_offset, std::string(name(*code)) + " has no result");
    if (typed && k_.type(made[0]) != requested)
      lexer_.fail(type_offset, "the result is " + to_string(k_.type(made[0])) + ", not " + to_string(requested));
    for (size_t i = 0; i < made.size(); ++i) define(results[i], made[i]);
  }
  static bool needs_type(Opcode c) {
    return info(c).result == ResultRule::other || is_source(c) || is_argreduce(c) || is_alloc(c) || c == Opcode::dot ||
           c == Opcode::broadcast || c == Opcode::reshape || c == Opcode::extent;
  }
  void plain(Op& o) {
    if (same_line() && token_.kind == Token::Kind::value) {
      do o.operands.push_back(use());
      while (take(","));
    }
    if (o.code == Opcode::slice && same_line() && token_.is("[")) {
      std::vector<int64_t> start, limit, stride;
      list("[", "]", [&] {
        start.push_back(integer("a start"));
        expect(":");
        limit.push_back(integer("a limit"));
        stride.push_back(take(":") ? integer("a stride") : 1);
      });
      o.set(Attr::start, std::move(start));
      o.set(Attr::limit, std::move(limit));
      o.set(Attr::stride, std::move(stride));
    }
    while (same_line() && token_.kind == Token::Kind::word) attribute(o);
  }
  void attribute(Op& o) {
    int a = 0;
    while (a < kNumAttrs && name(static_cast<Attr>(a)) != token_.text) ++a;
    if (a == kNumAttrs) expected("an attribute, ':' or the end of the line");
    const Attr key = static_cast<Attr>(a);
    if (o.has(key)) fail("attribute " + std::string(name(key)) + " is given twice");
    advance();
    std::vector<int64_t> ints;
    if (token_.is("[")) list("[", "]", [&] { ints.push_back(integer("a number")); });
    else if (key == Attr::kind && token_.kind == Token::Kind::word) {
      const auto kind = opcode_from_name(token_.text);
      if (!kind) expected("an op");
      ints.push_back(static_cast<int64_t>(*kind));
      advance();
    } else ints.push_back(integer("a number or '['"));
    o.set(key, std::move(ints));
  }

  void memory(Op& o) {
    o.operands.push_back(use());
    std::vector<Value> starts;
    list("[", "]", [&] { o.index.push_back(index(starts)); });
    if (o.value_position() >= 0) {
      expect(",");
      o.operands.push_back(use());
      while (k_.level == Level::lane && same_line() && take(",")) o.operands.push_back(use());  // a vector store's
    }
    if (o.code == Opcode::atomic_cas) {
      expect("compare");
      o.operands.push_back(use());
    }
    if (same_line() && take("mask")) {
      o.operands.push_back(use());
      o.set(Attr::mask, 1);
    }
    if (same_line() && take("other")) {
      o.operands.push_back(use());
      o.set(Attr::other, 1);
    }
    const auto of_store = [&] { return token_.text == name(Attr::unordered) || token_.text == name(Attr::late); };
    while ((is_atomic(o.code) || (o.code == Opcode::store && of_store())) && same_line() &&
           token_.kind == Token::Kind::word)
      attribute(o);
    for (Index& x : o.index) x.shift(static_cast<ptrdiff_t>(o.operands.size()));
    o.operands.insert(o.operands.end(), starts.begin(), starts.end());
  }
  /// The index of the last operand, counted here: whose index an entry is follows from the refs' ranks.
  void place_index(Op& o, std::vector<Value>& starts) {
    const size_t at = token_.offset, first = o.index.size(), rank = k_.type(o.operands.back()).shape.size();
    list("[", "]", [&] { o.index.push_back(index(starts)); });
    if (const size_t n = o.index.size() - first; n != rank)
      lexer_.fail(at, "the index has " + std::to_string(n) + (n == 1 ? " entry" : " entries") + " but " +
                          to_string(k_.type(o.operands.back())) + " has " + std::to_string(rank) +
                          (rank == 1 ? " dim" : " dims"));
  }
  void copy(Op& o) {
    constexpr const char* kBefore[] = {"", "to", "with"};
    const bool product = o.code == Opcode::wgmma;  // lhs with rhs to accumulator, and lhs may be a value
    std::vector<Value> starts;
    const int places = is_copy(o.code) ? 3 : num_thread_places(o.code);
    for (int i = 0; i < places; ++i) {
      if (i > 0) expect(kBefore[product ? 3 - i : i]);
      o.operands.push_back(use());
      if (k_.type(o.operands.back()).is_ref || !product || i > 0) place_index(o, starts);
    }
    for (Index& x : o.index) x.shift(places);
    o.operands.insert(o.operands.end(), starts.begin(), starts.end());
    while (same_line() && token_.kind == Token::Kind::word) attribute(o);
  }
  /// Its operand is the position in `starts` for now.
  Index index(std::vector<Value>& starts) {
    const auto dynamic = [&] {
      starts.push_back(use());
      return Index::Dynamic{starts.size() - 1};
    };
    if (token_.kind == Token::Kind::value) {
      const Index::Dynamic at = dynamic();
      const Type& t = k_.type(starts.back());
      return t.is_ref || t.shape.empty() ? Index::at(at) : Index::array(at.operand);
    }
    if (take("ds")) {
      expect("(");
      Index::Slice x{0, 1};
      if (token_.kind == Token::Kind::value) x.start = dynamic();
      else x.start = integer("a start");
      expect(",");
      x.size = integer("a size");
      if (take(",")) x.step = integer("a step");
      expect(")");
      return {x};
    }
    const size_t at = token_.offset;
    const int64_t start = integer("an index");
    if (!take(":")) return Index::at(start);
    const int64_t stop = integer("a stop"), step = take(":") ? integer("a step") : 1;
    int64_t span = 0;
    if (step < 1 || __builtin_sub_overflow(stop, start, &span) || span < 0)
      lexer_.fail(at, "a slice start:stop:step needs start <= stop and a step of at least 1");
    return {Index::Slice{start, span / step + (span % step != 0), step}};
  }

  /// "(%a = %init: type, ...)": appends the inits to o's operands and the arguments to r.
  std::vector<Token> carries(Op& o, std::vector<Type>& types) {
    std::vector<Token> args;
    list("(", ")", [&] {
      args.push_back(new_name());
      expect("=");
      const Value init = use();
      if (take(":")) {
        const size_t at = token_.offset;
        if (const Type t = type(); t != k_.type(init))
          lexer_.fail(at, "the value carried in is " + to_string(k_.type(init)) + ", not " + to_string(t));
      }
      o.operands.push_back(init);
      types.push_back(k_.type(init));
    });
    return args;
  }
  void region(Op& o, const std::vector<Token>& args, const std::vector<Type>& types) {
    const RegionId r = b_.new_region(types);
    const size_t scope = scope_.size();
    for (size_t i = 0; i < args.size(); ++i) define(args[i], b_.arg(r, i));
    braces(r);
    leave(scope);
    o.regions.push_back(r);
  }
  void for_loop(Op& o) {
    std::vector<Token> args{new_name()};
    std::vector<Type> types{Type::array(DType::i32)};
    expect("=");
    o.operands.push_back(use());
    expect("to");
    o.operands.push_back(use());
    expect("step");
    o.operands.push_back(use());
    if (take("carry")) {
      const std::vector<Token> more = carries(o, types);
      args.insert(args.end(), more.begin(), more.end());
    }
    region(o, args, types);
  }
  void while_loop(Op& o) {
    std::vector<Type> types;
    std::vector<Token> args = carries(o, types);
    region(o, args, types);
    expect("do");
    args.clear();
    const size_t at = token_.offset;
    list("(", ")", [&] {
      args.push_back(new_name());
      if (!take(":")) return;
      const size_t type_at = token_.offset;
      const Type t = type();
      if (args.size() <= types.size() && t != types[args.size() - 1])
        lexer_.fail(type_at, "the value carried is " + to_string(types[args.size() - 1]) + ", not " + to_string(t));
    });
    if (args.size() != types.size())
      lexer_.fail(at, "while carries " + std::to_string(types.size()) + (types.size() == 1 ? " value" : " values") +
                          " but its body takes " + std::to_string(args.size()));
    region(o, args, types);
  }
  void if_else(Op& o) {
    o.operands.push_back(use());
    region(o, {}, {});
    if (take("else")) return region(o, {}, {});
    const RegionId outer = b_.region(), r = b_.new_region({});
    b_.set_region(r);
    b_.set_loc(lexer_.location(token_.line));
    b_.yield({});
    b_.set_region(outer);
    o.regions.push_back(r);
  }
  void run_scoped(Op& o) {
    std::vector<Token> args;
    std::vector<Type> types;
    list("(", ")", [&] {
      args.push_back(new_name());
      expect(":");
      types.push_back(ref_type());
    });
    region(o, args, types);
  }
  void switch_case(Op& o) {
    o.operands.push_back(use());
    while (take("case")) {
      const size_t at = token_.offset;
      if (integer("the case's number") != static_cast<int64_t>(o.regions.size()))
        lexer_.fail(at, "expected case " + std::to_string(o.regions.size()));
      region(o, {}, {});
    }
    if (o.regions.empty()) expected("'case'");
  }
};

}  // namespace

Kernel parse(std::string_view text, std::string_view file) { return Parser(text, file).run(); }

}  // namespace tessera::ir
