// Products by the matrices of a subgroup (Target::matrices), for GPUs. Chunks of both operands go through shared
// memory, packed, each row (of the left operand) and each column (of the right one) with its k behind each other: an
// operand whose memory has them otherwise is transposed on its way, so no operand is copied for its order. Where the
// device transposes them as it loads matrices (Target::transposes_matrices), they lie in the tile as in memory. The
// next chunk is on its way into registers while one is multiplied, and sums stay matrices until all chunks are done, or
// longer (matrix_sums.h): the rows of a matrix lie on the lanes of the subgroup that made it (plan_matrix_dot).
#include <algorithm>
#include <limits>
#include <numeric>

#include "codegen/lower/dot_staged.h"
#include "codegen/plan/matrices.h"
#include "engine/ir/walk.h"

namespace tessera::lowering {
using ir::Attr;
using ir::MatrixUse;
using ir::Opcode;

namespace {
constexpr int64_t kPiece = 4;         // words of a row that warpgroups take at once
constexpr int kSubgroups = 4;         // of a warpgroup
constexpr int64_t kMostTiles = 4;     // of an operand, which chunks use one after another
constexpr int64_t kTensorRow = 32;    // words of a box's rows, as they are swizzled
constexpr int64_t kTensorPart = 256;  // words: rows are swizzled alike from one to the next

// Words of a row of a left operand's own tile, which has all of k.
int64_t own_stride(const DotShape& d, const MatrixShape& s) { return d.depth * size_bytes(s.a) / 4 + kRowPad; }

class MatrixDot : public ChunkedDot {
 public:
  MatrixDot(Emission& e, ir::OpId id, const DotShape& d, const MatrixForm& form, const DotEmitter::Sink& sink)
      : ChunkedDot(e, id, d, sink, e.dots.matrix_depth(d, form)),
        id_(id),
        form_(form),
        m_(form.shape),
        kept_left_(d.left.empty() ? e.dots.kept_left(id) : &d.left),
        down_(e.sums.down(form)),
        wave_rows_(int64_t{form.shape.m} * (s_.group / s_.subgroup)),
        warpgroups_(e.dots.by_warpgroups(form)) {}
  // All left matrices: k by k, for each register of the rows.
  Values left_matrices() {
    warpgroups_ = false;
    wave_ = b_.leaf(Opcode::subgroup_id);
    deal(lhs_, dots_.matrix_share(d_, form_, 0));
    const Values words = fetch(lhs_, b_.i32(0));
    lhs_.tile = arena_.temporary(DType::u32, tile_words(lhs_));
    put(words, 0, b_.i32(0));
    const Value start = own_rows({});
    Values all;
    for (int64_t k = 0; k < tk_; k += m_.k)
      for (int64_t r = 0; r < down_; ++r) all.push_back(left(start, b_.i32(0), r, k));
    arena_.free(lhs_.tile);
    return all;
  }
  // This invocation's share of the right operand, which is one chunk.
  Values right_words() {
    deal(rhs_, dots_.matrix_share(d_, form_, 1));
    return fetch(rhs_, b_.i32(0));
  }
  /// `start`: matrices to start from, or null: d.start_at. `keep` gets the sums, or null: sink does, one by one.
  void run(const Values* start, Values* keep) {
    start_ = start, keep_ = keep;
    wave_ = b_.leaf(Opcode::subgroup_id);
    rhs_.ahead = dots_.take_ahead(id_);
    if (rhs_.ahead.empty()) plan_tensors();
    if (!fetches_left()) lhs_.early = nullptr;
    else if (!tensors_) deal(lhs_, dots_.matrix_share(d_, form_, 0));
    if (!tensors_) deal(rhs_, dots_.matrix_share(d_, form_, 1));
    nests_.each_strip(d_.result_axes, strip_, [&] { one_strip(); });
  }

 private:
  // The left operand is in a tile already, which its share is no part of (to_tile).
  bool own() const { return d_.lhs_tile.offset >= 0; }
  bool fetches_left() const { return !own() && !kept_left_; }
  std::vector<MemoryRange> tiles() const {
    std::vector<MemoryRange> ranges;
    for (const Operand* o : {&lhs_, &rhs_})
      if (o->tile.offset >= 0) ranges.push_back(o->tile.range);
    return ranges;
  }
  // A tile has words: free elements by k. A share's item is `width` elements that are neighbours in memory, for each of
  // which (by free) or of all (by k) words come. A tile in memory's order has k by words of free elements, and its
  // items come as they are.
  bool in_order(const Operand& o) const { return !o.by_k && dots_.keeps_order(form_); }
  bool whole(const Operand& o) const { return o.by_k || in_order(o); }  // the words of an item lie behind each other
  int64_t words_of(const Operand& o) const { return whole(o) ? o.width / per_ : o.width; }
  // Elements along what is contiguous in the tile, and rows of those.
  int64_t along(const Operand& o) const { return in_order(o) ? o.plan->cover() : tk_; }
  int64_t down(const Operand& o) const { return in_order(o) ? tk_ : o.plan->cover(); }
  // Words from row to row; in pieces, from piece to piece: then neighbours in the group store to different banks, too.
  int64_t stride(const Operand& o) const {
    if (tensors_) return down(o) * kTensorRow;
    if (!warpgroups_) return along(o) / per_ + kRowPad;
    return down(o) * kPiece + kPiece * std::max<int64_t>(8 / pieces(o), 1);
  }
  int64_t pieces(const Operand& o) const { return along(o) / (kPiece * per_); }
  int64_t tile_words(const Operand& o) const {
    if (tensors_) return boxes(o) * stride(o);
    return (warpgroups_ ? pieces(o) : down(o)) * stride(o);
  }
  // Where item `i` of a row lies, of so many words.
  Value word_at(const Operand& o, Value i, int64_t words, Value row) {
    const Value rows = b_.mul(row, b_.i32(warpgroups_ ? kPiece : stride(o)));
    if (!warpgroups_) return b_.add(rows, b_.mul(i, b_.i32(words)));
    const int64_t items = kPiece / words;  // in a piece
    const Value pieces = b_.div(i, items), in_piece = b_.rem(i, items);
    const Value piece = b_.mul(pieces, b_.i32(stride(o))), word = b_.mul(in_piece, b_.i32(words));
    return b_.add(b_.add(rows, piece), word);
  }
  // From a word of an item to the next.
  int64_t step(const Operand& o) const { return whole(o) ? 1 : warpgroups_ ? kPiece : stride(o); }
  // Of the tile that this chunk uses, the first word; nothing where there is one tile (dot_staged.cpp, in_tile).
  Value tile_start(const Operand& o, Value chunk) {
    if (tensors_) {
      const Value tile = b_.mul(buffer_, b_.i32(tile_words(o)));
      return b_.add(tile, b_.i32(to_kilobyte(o)));
    }
    if (tiles_each_ == 1) return {};
    const Value buffer = buffer_ ? buffer_ : b_.rem(chunk, int64_t{tiles_each_});
    return b_.mul(buffer, b_.i32(tile_words(o)));
  }
  size_t values_of(const Operand& o) const override { return static_cast<size_t>(words_of(o)); }
  void deal(Operand& o, const DotEmitter::MatrixShare& mine) {
    o.by_k = mine.by_k;
    o.width = mine.width;
    const int64_t n = mine.items;
    for (int64_t r = 0; r < cdiv(n, int64_t{s_.group}); ++r) {
      Fetched x;
      const Value e = item(r, n, x);
      // Neighbours in the group write neighbours in a row: no two of them one bank.
      const int64_t pieces = in_order(o) ? o.plan->cover() / o.width : o.by_k ? tk_ / o.width : tk_ / per_;
      const Value piece = b_.rem(e, pieces), across = b_.div(e, pieces);
      if (in_order(o)) {
        x.k = across;
        x.free = b_.mul(piece, b_.i32(o.width));
        x.index = word_at(o, piece, o.width / per_, across);
        o.share.push_back(x);
        continue;
      }
      x.k = b_.mul(piece, b_.i32(o.by_k ? o.width : per_));
      x.free = b_.mul(across, b_.i32(o.by_k ? 1 : o.width));
      x.index = word_at(o, piece, o.by_k ? o.width / per_ : 1, x.free);
      o.share.push_back(x);
    }
  }
  // The element `k_back` and `free_back` behind the first of an item; zero behind the last k, so that nothing is added.
  Value element(const Operand& o, const Coords& base, Value free0, Value k0, int64_t free_back, int64_t k_back) {
    Coords c = base;
    const int64_t n = d_.result[o.dim];
    if (overhangs(o)) c[o.dim] = {at_most(free0, free_back, o.by_k ? 1 : o.width, n)};
    else c[o.dim] = {b_.add(free0, b_.i32(free_back))};
    Value k, inside;
    if (k_ends()) {
      const Value own = b_.add(k0, b_.i32(k_back)), depth = b_.i32(d_.depth);
      inside = b_.lt(own, depth);
      k = at_most(k0, k_back, o.by_k ? o.width : 1, d_.depth);
    } else {
      k = b_.add(k0, b_.i32(k_back));
    }
    const Value e = element_at(o, std::move(c), k);
    return inside ? b_.select(inside, e, b_.zero(k_.type(o.value).dtype)) : e;
  }
  Values fetch(const Operand& o, Value chunk) override {
    Values words;
    const Value start = strip_start(o);
    const Coords base = base_coords();
    const Value chunk_k = b_.mul(chunk, b_.i32(tk_));
    for (const Fetched& x : o.share) {
      const Value free0 = b_.add(start, x.free), k0 = b_.add(chunk_k, x.k);
      // Element by element in the order of memory, then packed.
      const int64_t lines = whole(o) ? 1 : per_;
      std::vector<Values> all(static_cast<size_t>(lines));
      for (int64_t l = 0; l < lines; ++l)
        for (int64_t i = 0; i < o.width; ++i)
          all[static_cast<size_t>(l)].push_back(element(o, base, free0, k0, o.by_k ? 0 : i, o.by_k ? i : l));
      for (int64_t w = 0; w < words_of(o); ++w) {
        Values parts;
        for (int64_t i = 0; i < per_; ++i)
          parts.push_back(whole(o) ? all[0][static_cast<size_t>(w * per_ + i)]
                                   : all[static_cast<size_t>(i)][static_cast<size_t>(w)]);
        words.push_back(b_.pack(std::move(parts)));
      }
    }
    return words;
  }
  void meanwhile() override { dots_.load_ahead(id_); }
  void before_chunks() override {
    if (tiles_each_ > 1) arena_.order({}, tiles());
  }
  void put(const Values& in, size_t from, Value chunk) override {
    if (tiles_each_ == 1) arena_.order({}, tiles());
    put_words(in, from, chunk, false);
    if (tiles_each_ > 1) return arena_.barrier();
    std::vector<MemoryRange> reads = tiles();
    if (own()) reads.push_back(d_.lhs_tile.range);
    arena_.order(reads, {});
  }
  void put_words(const Values& in, size_t from, Value chunk, bool late) {
    for (const Operand* o : {&lhs_, &rhs_}) {
      const Value tile = tile_start(*o, chunk);
      for (const Fetched& x : o->share) {
        const int64_t n = words_of(*o);
        const Value index = tile ? b_.add(x.index, tile) : x.index;
        b_.when(x.valid, [&] {
          for (int64_t w = 0; w < n; ++w) {
            const Value at = b_.add(index, b_.i32(w * step(*o)));
            const Value word = in[from + static_cast<size_t>(w)];
            b_.store(o->tile.ref, at, word, late);
          }
        });
        from += static_cast<size_t>(n);
      }
    }
  }

  // -- tiles that are filled while others are read

  // An operand whose share comes in whole pieces, as it lies in an array that nobody writes.
  bool streams(const Operand& o) const {
    const ir::Op* load = k_.def(o.value);
    return load && load->code == Opcode::load && !load->has_mask() && placement_.kind(o.value) == Kind::lazy &&
           !refs_.written(ref_position(k_, load->operands[0])) && !o.early && whole(o) &&
           o.width * size_bytes(m_.a) == 4 * kPiece &&
           std::none_of(o.share.begin(), o.share.end(), [](const Fetched& x) { return bool(x.valid); });
  }
  // As many as leave room for a second workgroup, where the operands come without registers on their way. Not where
  // warpgroups multiply: the fence that shows them the tiles waits for all that is on its way (an H200 takes 2.8 times
  // as long with it).
  int ring() const {
    if (warpgroups_ || !target_.async_stores || chunks_ == 1 || k_ends() || !streams(rhs_) ||
        (fetches_left() && !streams(lhs_)))
      return 0;
    const int64_t bytes = 4 * (tile_words(rhs_) + (fetches_left() ? tile_words(lhs_) : 0));
    const int64_t fit = std::min<int64_t>({kMostTiles, target_.shared_bytes * 7 / 16 / bytes, chunks_ + 1});
    return fit > 2 ? static_cast<int>(fit) : 0;
  }
  void put_late(Value chunk, Value buffer) {
    buffer_ = buffer;
    Values words;
    for (const Operand* o : {&lhs_, &rhs_}) {
      if (o->share.empty()) continue;
      const Values more = fetch(*o, chunk);
      words.insert(words.end(), more.begin(), more.end());
    }
    put_words(words, 0, chunk, true);
  }
  // One barrier for each chunk: behind it all of the chunk is there, and the tile of the chunk before is free.
  Values over_ring(Values sums) {
    const int ahead = tiles_each_ - 1;
    arena_.order({}, tiles());
    for (int c = 0; c < ahead; ++c) {
      const Value first = b_.i32(c);
      put_late(first, first);
      if (c + 1 < ahead) b_.async_wait(tiles_each_);
    }
    sums.push_back(b_.i32(0));  // the chunk's tile
    sums = nests_.counted(chunks_, sums, [&](Value chunk, const Values& in) {
      b_.async_wait(ahead - 1);
      arena_.barrier();
      const Value buffer = in.back(), last = b_.i32(ahead), none = b_.i32(0), one = b_.i32(1);
      const Value at_first = b_.eq(buffer, none), less = b_.sub(buffer, one), before = b_.select(at_first, last, less);
      const Value next = b_.add(chunk, last), all = b_.i32(chunks_);
      b_.when(b_.lt(next, all), [&] { put_late(b_.min(next, b_.i32(chunks_ - 1)), before); });
      Values out(in.begin(), in.end() - 1);
      buffer_ = buffer;
      multiply(out, chunk);
      const Value at_last = b_.eq(buffer, last), more = b_.add(buffer, one);
      out.push_back(b_.select(at_last, none, more));
      return out;
    });
    buffer_ = {};
    sums.pop_back();
    return sums;
  }

  // -- tiles that arrive as boxes of arrays (Target::tensor_copies)

  // What of an operand a box has: a load of consecutive elements of a whole array, of fixed sizes. Its last dim is
  // along what is contiguous, in rows of 128 bytes; one other has more than one element.
  struct Tensor {
    int ref = -1, index = -1;  // of LaneInfo::tensors
    const ir::Op* load = nullptr;
    std::vector<int64_t> box;
  };
  // The position in [result dims, k] of each dim of the array, or nothing where an index stands.
  std::vector<std::optional<size_t>> dims_of_array(const Operand& o, const Tensor& t, const ir::BlockMapping& m) const {
    const std::vector<size_t>& dims = &o == &lhs_ ? d_.lhs_dims : d_.rhs_dims;
    const ir::AccessDims form = ir::access_dims(k_, *t.load);
    std::vector<std::optional<size_t>> all;
    size_t d = 0;  // of the Ref
    for (size_t i = 0; i < m.array_shape.size(); ++i) {
      all.emplace_back();
      if (!m.seen(i)) continue;
      if (t.load->index[d].slice()) all.back() = dims[static_cast<size_t>(form.slice[d])];
      ++d;
    }
    return all;
  }
  // Outside of its array a box has zeros, other loads have the nearest elements: a program may see only one of them.
  bool others_see_overhang(const Tensor& t) const {
    const std::vector<Value>& limits = refs_.state(t.ref).limit;
    if (std::none_of(limits.begin(), limits.end(), [](Value v) { return bool{v}; })) return false;
    int others = -1;  // the load itself
    ir::each_op(k_, k_.body, [&](ir::OpId i) {
      for (auto v : k_.op(i).operands) others += v == t.load->operands[0] || (i != id_ && v == t.load->results[0]);
    });
    return others > 0;
  }
  std::optional<Tensor> tensor_of(const Operand& o) {
    constexpr size_t kMostDims = 5;
    constexpr int64_t kMostInBox = 256, kAlignment = 16;
    Tensor t;
    t.load = k_.def(o.value);
    if (!t.load || t.load->code != Opcode::load || t.load->has_mask() || placement_.kind(o.value) != Kind::lazy ||
        o.early)
      return {};
    t.ref = ref_position(k_, t.load->operands[0]);
    if (static_cast<size_t>(t.ref) >= k_.blocks.size() || refs_.written(t.ref)) return {};
    const RefState& r = refs_.state(t.ref);
    const ir::BlockMapping& m = k_.blocks[static_cast<size_t>(t.ref)];
    const ir::AccessDims form = ir::access_dims(k_, *t.load);
    const int64_t size = size_bytes(m_.a), rows = 4 * kTensorRow / size;
    if (!std::holds_alternative<std::monostate>(r.place) || r.dead || r.bounded ||
        r.begins.size() != m.array_shape.size() || r.begins.empty() || r.begins.size() > kMostDims || form.arrays ||
        form.per_element)
      return {};
    // The driver encodes no dim of 0, or of more than 2^32.
    for (const Extent& e : m.array_shape)
      if (!e.is_static() || *e.value() < 1 || *e.value() > std::numeric_limits<int32_t>::max()) return {};
    for (size_t d = 0; d < m.array_shape.size() && !m.is_whole(); ++d)
      if (const ir::BlockDim& dim = m.block()[d]; dim.halo() || dim.low() != 0 || dim.high() != 0) return {};
    for (const ir::Index& i : t.load->index)
      if (i.slice() && i.slice()->step != 1) return {};
    if (*m.array_shape.back().value() * size % kAlignment != 0) return {};
    const auto dims = dims_of_array(o, t, m);
    const size_t last = o.by_k ? rank_ : o.dim, other = o.by_k ? o.dim : rank_;
    if (dims.back() != last || std::count(dims.begin(), dims.end(), other) != 1 || down(o) > kMostInBox ||
        others_see_overhang(t))
      return {};
    t.box.assign(dims.size(), 1);
    for (size_t i = 0; i + 1 < dims.size(); ++i)
      if (dims[i] == other) t.box[i] = down(o);
    t.box.back() = rows;
    return t;
  }
  // Of an operand's rows, as wgmma takes them: along k, or elements of 16 bits across it.
  void plan_tensors() {
    if (!target_.tensor_copies || !s_.double_buffer || !warpgroups_ || k_.has_threads() || d_.k.size() != 1 || k_ends())
      return;
    for (Operand* o : {&lhs_, &rhs_}) o->by_k = dots_.matrix_share(d_, form_, o == &rhs_ ? 1 : 0).by_k;
    for (const Operand* o : {&lhs_, &rhs_}) {
      if (o == &lhs_ && !fetches_left()) continue;
      if (!o->by_k && !in_order(*o)) return;
      std::optional<Tensor>& t = o == &lhs_ ? left_tensor_ : right_tensor_;
      t = tensor_of(*o);
      if (!t) return;
    }
    // Rows along k are of whole boxes, but where there is one chunk.
    if ((lhs_.by_k || rhs_.by_k) && chunks_ > 1 && tk_ % (kTensorRow * per_) != 0) return;
    tensors_ = true;
    const int64_t words = tile_words(rhs_) + (fetches_left() ? tile_words(lhs_) : 0);
    // Room for a second workgroup, if there are registers for one.
    constexpr int64_t kRegisters = 65536, kOthers = 40;
    const bool alone = 2 * s_.group * (rows_.reg * cols_.cover() / 2 + kOthers) > kRegisters;
    const int64_t fit = (target_.shared_bytes * 7 / (alone ? 8 : 16) / 4 - 2 * kTensorPart) / words;
    tiles_each_ = static_cast<int>(std::min<int64_t>({kMostTiles, fit, chunks_}));
    tensors_ = tiles_each_ > 1 || tiles_each_ == chunks_;
  }
  // Boxes of a tile, side by side along what is contiguous.
  int64_t boxes(const Operand& o) const { return cdiv(along(o), kTensorRow * per_); }
  // Words from where the arena gives a tile to where rows are swizzled as the first.
  int64_t to_kilobyte(const Operand& o) const { return (kTensorPart - o.tile.offset / 4 % kTensorPart) % kTensorPart; }
  void begin_tensors() {
    ir::LaneInfo& lane = out_.lane;
    first_barrier_ = static_cast<int64_t>(lane.barriers.size());
    lane.barriers.insert(lane.barriers.end(), static_cast<size_t>(tiles_each_), fetches_left() ? 2 : 1);
    constexpr int64_t kBarrier = 8, kPart = 4 * kTensorPart;
    lane.program_bytes =
        std::max(lane.program_bytes, cdiv(kBarrier * static_cast<int64_t>(lane.barriers.size()), kPart) * kPart);
    for (std::optional<Tensor>* t : {&left_tensor_, &right_tensor_}) {
      if (!*t) continue;
      const ir::TensorBox box{memory_of(k_, (*t)->ref), (*t)->box};
      const auto known = std::find(lane.tensors.begin(), lane.tensors.end(), box);
      (*t)->index = static_cast<int>(known - lane.tensors.begin());
      if (known == lane.tensors.end()) lane.tensors.push_back(box);
    }
  }
  void begin_copies(Value chunk, Value buffer) {
    buffer_ = buffer;
    const Value barrier = b_.add(buffer, b_.i32(first_barrier_)), first_k = b_.mul(chunk, b_.i32(tk_));
    for (const Operand* o : {&lhs_, &rhs_}) {
      if (o == &lhs_ && !fetches_left()) continue;
      const Tensor& t = o == &lhs_ ? *left_tensor_ : *right_tensor_;
      const std::vector<size_t>& dims = o == &lhs_ ? d_.lhs_dims : d_.rhs_dims;
      Coords c = base_coords(), own;
      c[o->dim] = {strip_start(*o)};
      c[rank_] = {first_k};
      for (const size_t p : dims) own.push_back(c[p]);
      const ir::BlockMapping& m = k_.blocks[static_cast<size_t>(t.ref)];
      const Values at = refs_.array_position(refs_.state(t.ref), m, *t.load, own);
      const auto array = static_cast<size_t>(memory_of(k_, t.ref));
      ir::Op op{.code = Opcode::tensor_load,
                .operands = {out_.region(out_.body).args[array], o->tile.ref, tile_start(*o, chunk), barrier}};
      op.operands.insert(op.operands.end(), at.begin(), at.end());
      op.set(Attr::index, t.index);
      op.set(Attr::count, boxes(*o));
      b_.raw().append(std::move(op));
    }
  }
  Values wait_for_products(int64_t under_way, Values sums) {
    ir::Op op{.code = Opcode::warpgroup_wait, .operands = std::move(sums)};
    op.set(Attr::count, under_way);
    return out_.op(b_.raw().append(std::move(op))).results;
  }
  // As many chunks as there are tiles are on their way, but one where there are more of them: the products of a chunk
  // are done while those of the next are under way, and then its tile is free.
  Values over_tensors(Values sums) {
    const bool again = chunks_ > tiles_each_;
    const int ahead = again ? tiles_each_ - 1 : tiles_each_;
    arena_.order({}, tiles());
    begin_tensors();
    for (int c = 0; c < ahead; ++c) {
      const Value first = b_.i32(c);
      begin_copies(first, first);
    }
    sums.push_back(b_.i32(0));  // the chunk's tile
    sums = nests_.counted(chunks_, sums, [&](Value chunk, const Values& in) {
      const Value buffer = in.back(), none = b_.i32(0), one = b_.i32(1), last = b_.i32(tiles_each_ - 1);
      Values out(in.begin(), in.end() - 1);
      b_.raw().append({.code = Opcode::tensor_wait, .operands = {b_.add(buffer, b_.i32(first_barrier_))}});
      buffer_ = buffer;
      multiply(out, chunk);
      if (again) {
        if (fetches_left()) wait_for_products(1, {});
        ir::Op all{.code = Opcode::barrier};
        all.set(Attr::late, 1);
        b_.raw().append(std::move(all));
        const Value at_first = b_.eq(buffer, none), less = b_.sub(buffer, one),
                    before = b_.select(at_first, last, less);
        const Value next = b_.add(chunk, b_.i32(ahead));
        b_.when(b_.lt(next, b_.i32(chunks_)), [&] { begin_copies(next, before); });
      }
      const Value at_last = b_.eq(buffer, last), more = b_.add(buffer, one);
      out.push_back(b_.select(at_last, none, more));
      return out;
    });
    buffer_ = {};
    sums.pop_back();
    return fetches_left() ? wait_for_products(0, std::move(sums)) : sums;
  }

  // -- matrices

  Value load(Value ref, Value index, int64_t stride, MatrixUse use, ir::Type type, bool by_columns) {
    ir::Op o{.code = Opcode::matrix_load, .operands = {ref, index}};
    o.set(Attr::stride, stride);
    o.set(Attr::kind, static_cast<int64_t>(use));
    if (by_columns) o.set(Attr::reverse, 1);
    return b_.raw().one(std::move(o), std::move(type));
  }
  ir::Type left_type() const { return ir::Type::array(m_.a, {m_.m, m_.k}); }
  ir::Type right_type() const { return ir::Type::array(m_.b, {m_.k, m_.n}); }
  int64_t words_to(const Operand& o, int64_t free) const { return in_order(o) ? free / per_ : free * stride(o); }
  // The matrix at `k` of a tile, `free` of its free elements behind the word `first`.
  Value factor(const Operand& o, Value first, int64_t free, int64_t k) {
    const bool left = &o == &lhs_, as_in_memory = in_order(o);
    const int64_t row = stride(o), more = words_to(o, free) + (as_in_memory ? k * row : k / per_);
    const Value at = first ? b_.add(first, b_.i32(more)) : b_.i32(more);
    return load(o.tile.ref, at, row, left ? MatrixUse::left : MatrixUse::right, left ? left_type() : right_type(),
                left == as_in_memory);
  }
  // Matrices of sums: rows[r] of a subgroup are those of its lanes' registers r; across the columns one by one.
  size_t count_across() const { return static_cast<size_t>(cols_.cover() / m_.n); }
  // Where this subgroup's rows of the left tile begin, which starts at the word `tile` (nothing: 0).
  Value own_rows(Value tile) {
    const Value rows = b_.mul(wave_, b_.i32(words_to(lhs_, m_.m)));
    return tile ? b_.add(tile, rows) : rows;
  }
  // The left matrix at `k` of a chunk, r-th of those under each other.
  Value left(Value start, Value chunk, int64_t r, int64_t k) {
    if (!own()) return factor(lhs_, start, r * wave_rows_, k);
    const int64_t stride = own_stride(d_, m_);
    const Value part = b_.mul(wave_, b_.i32(d_.lhs_tile.range.own / 4));
    const Value first = b_.add(part, b_.i32(r * m_.m * stride + k / per_));
    const Value at = b_.add(first, b_.mul(chunk, b_.i32(tk_ / per_)));
    return load(d_.lhs_tile.ref, at, stride, MatrixUse::left, left_type(), false);
  }
  void multiply(Values& sums, Value chunk) override {
    if (warpgroups_) return multiply_by_warpgroups(sums, chunk);
    const Value start = fetches_left() ? own_rows(tile_start(lhs_, chunk)) : Value{},
                first_right = tile_start(rhs_, chunk);
    for (int64_t k = 0; k < tk_; k += m_.k) {
      Values left;
      for (int64_t r = 0; r < down_; ++r)
        left.push_back(kept_left_ ? (*kept_left_)[static_cast<size_t>(k / m_.k * down_ + r)]
                                  : this->left(start, chunk, r, k));
      for (size_t c = 0; c < count_across(); ++c) {
        const Value right = factor(rhs_, first_right, static_cast<int64_t>(c) * m_.n, k);
        for (size_t r = 0; r < left.size(); ++r) {
          Value& sum = sums[r * count_across() + c];
          sum = b_.raw().one({.code = Opcode::matrix_multiply_add, .operands = {left[r], right, sum}});
        }
      }
    }
  }

  // All columns at once, and the 64 rows of four subgroups: both factors as they lie in their tiles, or the left one's
  // matrices from registers.
  void multiply_by_warpgroups(Values& sums, Value chunk) {
    ir::Op o{.code = Opcode::warpgroup_multiply_add};
    o.operands = {in_pieces(rhs_, tile_start(rhs_, chunk), MatrixUse::right, {tk_, cols_.cover()})};
    const Value first = fetches_left() ? tile_start(lhs_, chunk) : Value{}, group = b_.div(wave_, int64_t{kSubgroups});
    for (int64_t r = 0; r < down_; ++r) {
      if (fetches_left()) {
        const Value of_group = b_.mul(group, b_.i32(words_to_rows(kSubgroups * m_.m)));
        const Value mine = b_.add(of_group, b_.i32(words_to_rows(r * wave_rows_)));
        o.operands.push_back(
            in_pieces(lhs_, first ? b_.add(first, mine) : mine, MatrixUse::left, {kSubgroups * m_.m, tk_}));
        continue;
      }
      for (int64_t k = 0; k < tk_; k += m_.k)
        o.operands.push_back(kept_left_ ? (*kept_left_)[static_cast<size_t>(k / m_.k * down_ + r)]
                                        : left({}, chunk, r, k));
    }
    o.set(Attr::count, static_cast<int64_t>(o.operands.size()) - 1);
    if (tensors_ && fetches_left()) o.set(Attr::late, 1);
    o.operands.insert(o.operands.end(), sums.begin(), sums.end());
    sums = out_.op(b_.raw().append(std::move(o))).results;
  }
  int64_t words_to_rows(int64_t rows) const {
    if (tensors_) return in_order(lhs_) ? rows / (kTensorRow * per_) * stride(lhs_) : rows * kTensorRow;
    return in_order(lhs_) ? rows / (kPiece * per_) * stride(lhs_) : rows * kPiece;
  }
  Value in_pieces(const Operand& o, Value first, MatrixUse use, Shape shape) {
    const bool left = use == MatrixUse::left;
    ir::Op load{.code = Opcode::matrix_load, .operands = {o.tile.ref, first ? first : b_.i32(0)}};
    load.set(Attr::stride, stride(o));
    load.set(Attr::kind, static_cast<int64_t>(use));
    if (left == in_order(o)) load.set(Attr::reverse, 1);
    load.set(Attr::pieces, tensors_ ? 2 : 1);
    return b_.raw().one(std::move(load), ir::Type::array(left ? m_.a : m_.b, std::move(shape)));
  }

  void one_strip() {
    // Zeros have no positions: the result's are computed after the loop, and hold no registers in it.
    Values start;
    if (!start_ && d_.start)
      each_register(counts(), [&](const std::vector<int>& regs) { start.push_back(d_.start_at(point(regs).c)); });
    Values sums = start_ ? *start_ : d_.start ? sums_.from_registers(form_, start) : sums_.filled(form_, 0);
    first_apart_ = target_.first_chunk_apart && !start_ && !d_.start;
    const int64_t words = tile_words(lhs_) + tile_words(rhs_);
    const bool two = chunks_ > 1 && fetches_left() && s_.double_buffer && 2 * 4 * words <= target_.shared_bytes * 3 / 8;
    const int many = tensors_ ? 0 : ring();
    if (!tensors_) tiles_each_ = many ? many : two ? 2 : 1;
    const int64_t more = tensors_ ? kTensorPart : 0;
    if (fetches_left()) lhs_.tile = arena_.temporary(DType::u32, tiles_each_ * tile_words(lhs_) + more);
    rhs_.tile = arena_.temporary(DType::u32, tiles_each_ * tile_words(rhs_) + more);
    sums = tensors_ ? over_tensors(std::move(sums)) : many ? over_ring(std::move(sums)) : over_chunks(std::move(sums));
    std::vector<MemoryRange> reads = tiles();
    if (own()) reads.push_back(d_.lhs_tile.range);
    if (tiles_each_ > 1 || tensors_) arena_.note(reads, {});
    arena_.free(lhs_.tile);
    arena_.free(rhs_.tile);
    if (keep_) {
      *keep_ = sums;
      return;
    }
    if (d_.any_order) {
      std::vector<std::vector<int>> registers;
      each_register(counts(), [&](const std::vector<int>& regs) { registers.push_back(regs); });
      if (!d_.in_loops || form_.lanes || overhangs(lhs_) || overhangs(rhs_))
        return sums_.hand_out(form_, sums, [&](size_t r, Value x) { sink_(point(registers[r]), x); });
      return sums_.hand_out_in_loops(form_, sums, [&](size_t r, Value behind, Value x) {
        NestPoint p = point(registers[r]);
        p.c[col_].v = b_.add(p.c[col_].v, behind);
        sink_(p, x);
      });
    }
    const Values results = sums_.to_registers(form_, sums);
    size_t result = 0;
    each_register(counts(), [&](const std::vector<int>& regs) {
      const NestPoint p = point(regs);
      sink_(p, results[result++]);
    });
  }

  const ir::OpId id_;
  const MatrixForm& form_;
  const MatrixShape m_;
  const Values* start_ = nullptr;
  Values* keep_ = nullptr;
  const Values* kept_left_;
  const int64_t down_, wave_rows_;  // matrices under each other in a subgroup; rows of one in each of the subgroups
  const int64_t per_ = 4 / size_bytes(m_.a);  // elements in a word
  int tiles_each_ = 1;  // of both operands; chunks use one after another, with one barrier for each
  bool warpgroups_;     // tiles lie in pieces
  Value buffer_;        // the tile of those, where it is not the chunk's remainder
  Value wave_;
  bool tensors_ = false;  // tiles arrive as boxes of arrays
  std::optional<Tensor> left_tensor_, right_tensor_;
  int64_t first_barrier_ = 0;
};
}  // namespace

std::optional<MatrixForm> DotEmitter::matrix_form(const DotShape& d) const {
  if (!s_.matrix || s_.scratch_arena || !is_wide(d)) return std::nullopt;
  const auto shape = matrix_shape(target_, k_.type(d.lhs).dtype, k_.type(d.rhs).dtype, d.acc);
  if (!shape || !(*shape == *s_.matrix)) return std::nullopt;
  const auto lanes = matrix_lanes(*shape, s_.subgroup);
  const int i = d.result_axes[d.batch + d.rows - 1], j = d.result_axes.back();
  const AxisPlan &rows = plan(i), &cols = plan(j);
  if (!lanes) return std::nullopt;
  AxisPlan down = rows, across = cols;
  lay_out_rows(down, *shape, s_.subgroup, s_.group / s_.subgroup, 1, s_.matrix_lanes);
  lay_out_columns(across, *shape, s_.subgroup, cols.cover(), s_.matrix_lanes);
  const bool fits = rows.vec == 1 && rows.invocation_stride == down.invocation_stride &&
                    rows.invocations == down.invocations && rows.run == down.run && rows.between == down.between &&
                    cols.invocation_stride == 1 && cols.invocations == across.invocations &&
                    cols.cover() % shape->n == 0 && cols.reg % cols.vec == 0 &&
                    (!s_.matrix_lanes || cols.vec == across.vec);
  if (!fits) return std::nullopt;
  return MatrixForm{*shape, i, j, d.acc, s_.matrix_lanes};
}

bool DotEmitter::keeps_order(const MatrixForm& form) const {
  return target_.transposes_matrices && size_bytes(form.shape.a) == 2;
}

// Four subgroups together, with factors as they lie in their tiles. All sums of a wgmma are registers at once, which a
// large workgroup, or one of many threads, has not (ptxas then gives up).
bool DotEmitter::by_warpgroups(const MatrixForm& form) const {
  constexpr int64_t kRegisters = 65536, kOthers = 40;
  const MatrixShape& s = form.shape;
  const int64_t columns = plan(form.cols).cover(), threads = k_.has_threads() ? *k_.grid.back().size.value() : 1;
  return lowering::by_warpgroups(target_, s) && s_.subgroup == 32 && s_.group % (kSubgroups * 32) == 0 &&
         columns <= 256 && sums_.down(form) * columns / 2 + kOthers <= kRegisters / (s_.group * threads);
}

// All of them, where the tiles leave room for other workgroups: then a product needs no loop, and two barriers.
int64_t DotEmitter::matrix_depth(const DotShape& d, const MatrixForm& form) const {
  const MatrixShape& s = form.shape;
  const int64_t all = cdiv(d.depth, int64_t{s.k}) * s.k, row = all * size_bytes(s.a) + 4 * kRowPad;
  const int64_t right = row * plan(form.cols).cover(), both = right + row * plan(form.rows).cover();
  const bool fits = s_.whole_depth && all * size_bytes(s.a) <= 256 && right * 5 <= target_.shared_bytes * 2 &&
                    both * 4 <= target_.shared_bytes * 3;
  return fits ? all : std::min(matrix_chunk(target_, s, d.depth), all);
}

// Which dim of an operand is the fastest in memory decides how invocations are dealt to its tile: as many items for
// each, if there can be.
DotEmitter::MatrixShare DotEmitter::matrix_share(const DotShape& d, const MatrixForm& form, int operand) const {
  const std::vector<size_t>& dims = operand == 0 ? d.lhs_dims : d.rhs_dims;
  MatrixShare x;
  x.by_k = !dims.empty() && dims.back() >= d.result.size();
  const int axis = operand == 0 ? form.rows : form.cols, k = d.k.size() == 1 ? d.k_axes[0] : kNoAxis;
  const int along_axis = x.by_k ? k : axis;
  const bool wide = along_axis != kNoAxis && !s_.widths.empty() && s_.widths[static_cast<size_t>(along_axis)] > 1;
  const int64_t size = size_bytes(form.shape.a), per = 4 / size, tk = matrix_depth(d, form);
  const int64_t free = plan(axis).cover(), along = x.by_k ? tk : free, least = x.by_k || keeps_order(form) ? per : 1;
  const auto items = [&] {
    return x.by_k ? free * (tk / x.width) : free / x.width * (keeps_order(form) ? tk : tk / per);
  };
  x.width = wide ? 16 / size : least;
  while (x.width > least && (along % x.width != 0 || items() % s_.group != 0)) x.width /= 2;
  x.items = items();
  x.words = cdiv(x.items, int64_t{s_.group}) * (x.by_k || keeps_order(form) ? x.width / per : x.width);
  return x;
}

bool DotEmitter::left_stays(ir::OpId dot, const DotShape& d, const std::set<uint32_t>& changed) const {
  constexpr int64_t kMost = 16;  // matrices in registers, of all products together
  if (form_of(d) != DotForm::matrix || d.batch != 0 || prefetch_.of(dot, 0)) return false;
  const MatrixForm form = *matrix_form(d);
  const AxisPlan& rows = plan(form.rows);
  const int64_t depth = matrix_depth(d, form);
  int64_t held = sums_.down(form) * depth / form.shape.k;
  for (const auto& [other, matrices] : left_) held += static_cast<int64_t>(matrices.size());
  if (depth < d.depth || rows.strips() > 1 || d.rows != 1 || held > kMost) return false;
  const std::set<uint32_t> read = placement_.computed_for({d.lhs});
  return !placement_.reads_registers(d.lhs) &&
         std::none_of(read.begin(), read.end(), [&](uint32_t v) { return changed.count(v); });
}

void DotEmitter::keep_left(ir::RegionId body) {
  if (s_.wide_dot != DotForm::matrix) return;
  std::set<uint32_t> changed;
  const auto add = [&](const std::vector<Value>& values) {
    for (Value v : values) changed.insert(v.index);
  };
  add(k_.region(body).args);
  ir::each_op(k_, body, [&](ir::OpId id) {
    add(k_.op(id).results);
    for (ir::RegionId r : k_.op(id).regions) add(k_.region(r).args);
  });
  for (ir::OpId id : k_.region(body).ops) {
    const ir::Op& o = k_.op(id);
    if (o.code != Opcode::dot) continue;
    DotShape d = shape_of(o);
    if (!left_stays(id, d, changed)) continue;
    d.lhs_at = reader(d.lhs, d.lhs_dims, nullptr, k_.type(d.lhs).dtype);
    arena_.order(placement_.arena_reads({d.lhs}), {});
    const MatrixForm form = *matrix_form(d);
    Values matrices = MatrixDot(e_, id, d, form, {}).left_matrices();
    left_[id.index] = std::move(matrices);
  }
}
void DotEmitter::drop_left(ir::RegionId body) {
  for (ir::OpId id : k_.region(body).ops) left_.erase(id.index);
}
const Values* DotEmitter::kept_left(ir::OpId dot) const {
  const auto it = left_.find(dot.index);
  return it == left_.end() ? nullptr : &it->second;
}

Values DotEmitter::right_words(const Ahead& a, ir::RegionId body, Value counter) {
  std::vector<std::pair<Value, Place>> here;
  const auto keep = [&](Value v) { here.emplace_back(v, placement_.of(v)); };
  keep(k_.region(body).args[0]);
  placement_.of(k_.region(body).args[0]) = counter;
  for (ir::OpId id : k_.region(body).ops)
    if (a.scalars.count(id.index)) {
      keep(k_.op(id).results[0]);
      elements_.compute_scalar(id);
    }
  DotShape d = shape_of(k_.op(a.dot));
  d.rhs_at = reader(d.rhs, d.rhs_dims, nullptr, k_.type(d.rhs).dtype);
  const MatrixForm form = *matrix_form(d);
  Values words = elements_.in_another_step([&] { return MatrixDot(e_, a.dot, d, form, {}).right_words(); });
  for (auto& [v, place] : here) placement_.of(v) = std::move(place);
  return words;
}

// A left operand in registers, of which each subgroup has the rows that it multiplies, in whole words along k.
bool DotEmitter::own_rows(const DotShape& d) const {
  const MatrixForm form = *matrix_form(d);
  if (d.batch != 0 || d.rows != 1 || d.cols != 1 || d.k.size() != 1 || d.k_axes[0] == kNoAxis) return false;
  const AxisPlan &rows = plan(form.rows), &k = plan(d.k_axes[0]);
  return k.laid_out && rows.strips() == 1 && k.strips() == 1 && nests_.fits({form.rows, d.k_axes[0]}) &&
         k.cover() == d.depth && d.depth % matrix_depth(d, form) == 0 && k.vec % (4 / size_bytes(form.shape.a)) == 0;
}

// What a lane has of it is what it holds of the matrices, all of which one chunk takes.
bool DotEmitter::is_left_factor(const DotShape& d) const {
  const MatrixForm form = *matrix_form(d);
  const AxisPlan& k = plan(d.k_axes[0]);
  AxisPlan wanted = k;
  lay_out_columns(wanted, form.shape, s_.subgroup, d.depth, true);
  return form.lanes && matrix_depth(d, form) == d.depth && k.invocation_stride == wanted.invocation_stride &&
         k.invocations == wanted.invocations && k.vec == wanted.vec;
}

// This invocation's elements of the left operand.
Values DotEmitter::own_elements(const DotShape& d) {
  arena_.order(placement_.arena_reads({d.lhs}), {});
  Values elements;
  nests_.by_layout({d.result[0], d.depth}, {matrix_form(d)->rows, d.k_axes[0]}, false,
                   [&](const NestPoint& p) { elements.push_back(d.lhs_at({p.c[0], at(0), p.c[1]})); });
  return elements;
}

// Each subgroup stores the rows that it multiplies, so that only its own invocations have to wait for them.
Slot DotEmitter::to_tile(const DotShape& d) {
  const MatrixForm form = *matrix_form(d);
  const MatrixShape& m = form.shape;
  const AxisPlan &rows = plan(form.rows), &ks = plan(d.k_axes[0]);
  const int64_t stride = own_stride(d, m), per = 4 / size_bytes(m.a);
  // As sums that become registers have it (make_exchange), so that this may lie where they were.
  const int64_t part =
      std::max(sums_.down(form) * m.m * stride, int64_t{m.m} * (std::min(d.depth, kMostColumns) + kRowPad));
  const std::vector<int> axes{form.rows, d.k_axes[0]};
  const Values elements = own_elements(d);
  Slot tile = arena_.temporary(DType::u32, s_.group / s_.subgroup * part, 4 * part);
  arena_.order({}, {tile.range});
  const Value words = b_.i32(part), wave = b_.mul(b_.leaf(Opcode::subgroup_id), words);
  const Value row = sums_.own_row(form);
  const Value line = b_.add(wave, b_.mul(row, b_.i32(stride)));
  const Value first = b_.add(line, b_.div(nests_.invocation_start(ks), per));
  b_.when(nests_.first_invocation(nests_.invocation_bits(axes)), [&] {
    for (int r = 0; r < rows.reg; ++r)
      for (int c = 0; c < ks.reg; c += static_cast<int>(per)) {
        const auto from = elements.begin() + r * ks.reg + c;
        const Value word = b_.pack(Values(from, from + per));
        b_.store(tile.ref, b_.add(first, b_.i32(sums_.row_behind(form, r) * stride + ks.local(c) / per)), word);
      }
  });
  return tile;
}

void DotEmitter::by_matrices(ir::OpId id, const DotShape& d, Values* keep, const Sink& sink) {
  if (num_elements(d.result) == 0) return;
  const MatrixForm form = *matrix_form(d);
  const bool starts = d.start && sums_.from_matrices(d.start, form);
  const Values start = starts ? sums_.evaluate(d.start, form) : Values{};
  MatrixDot(e_, id, d, form, sink).run(starts ? &start : nullptr, keep);
}

}  // namespace tessera::lowering
