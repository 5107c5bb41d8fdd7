// Matrices of a warp, by mma.sync of 16x8x16 (elements of 16 bits) or 16x8x32 (of 8). A matrix of the lane level
// consists of several of those; a lane's part of it is a value of several registers (Function::several). All factors
// are taken in words: of 16 rows and 8 words of k, lane l has in register r the row l / 4 + 8 (r % 2) and the word
// l % 4 + 4 (r / 2); of a right factor's 8 columns and 8 words of k, column l / 4 and word l % 4 + 4 r. A product's
// 16x8 sums lie there as l / 4 + 8 (e / 2), 2 (l % 4) + e % 2.
#include <algorithm>

#include "codegen/nvidia/emitter.h"
#include "engine/base/error.h"
#include "engine/ir/walk.h"

namespace tessera::nvidia {

using ir::Attr;
using ir::MatrixUse;
using ir::Opcode;

namespace {
constexpr int64_t kMmaRows = 16, kMmaColumns = 8, kMmaWords = 8;  // of one mma

MatrixUse use_of(const ir::Op& load) { return static_cast<MatrixUse>(load.attr(Attr::kind)); }
bool is_factor(const ir::Op& op) { return op.code == Opcode::matrix_load && use_of(op) != MatrixUse::accumulator; }

/// Of a factor: whether what follows each other in memory does so in k.
bool lies_along_k(const ir::Op& load) {
  return (use_of(load) == MatrixUse::left) != (load.attr_or(Attr::reverse, 0) != 0);
}
bool in_pieces(const ir::Op& op) { return op.attr_or(Attr::pieces, 0) != 0; }
bool is_swizzled(const ir::Op& op) { return op.attr_or(Attr::pieces, 0) == 2; }

const char* type_name(DType t) {
  switch (t) {
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::i8: return "s8";
    case DType::u8: return "u8";
    case DType::f8e4m3fn: return "e4m3";
    case DType::f8e5m2: return "e5m2";
    default: return nullptr;
  }
}
bool is_f8(DType t) { return is_narrow_float(t) && size_bytes(t) == 1; }

/// The free elements (rows of the left factor, columns of the right one) and the words of k.
struct FactorSize {
  int64_t free, words;
};
FactorSize factor_size(const ir::Type& t, MatrixUse use) {
  const size_t free = use == MatrixUse::left ? 0 : 1;
  return {t.shape.at(free), t.shape.at(1 - free) * size_bytes(t.dtype) / 4};
}
}  // namespace

/// A power of two that divides the number of the word of shared memory where an access begins.
int64_t Emitter::divisor_of_place(const ir::Op& op) {
  using Residue = passes::Divisors::Residue;
  Residue words;
  if (ir::is_matrix(op.code)) words = divisors_.residue(op.operands.back());
  else if (const ir::Index& i = op.index.at(0); i.is_static()) words = Residue::of(i.constant());
  else words = divisors_.residue(op.operand_of(i));
  const ir::Op* d = k_.def(op.operands.at(0));
  for (; d && d->code == Opcode::view; d = k_.def(d->operands[0])) words = words + divisors_.residue(d->operands[1]);
  if (!d || !d->has(Attr::offset)) return 1;
  return (words + Residue::of(d->attr(Attr::offset) / 4)).power();
}

Emitter::Access Emitter::access_of(const ir::Op& op) {
  const int64_t stride = op.attr(Attr::stride);
  const bool reversed = op.attr_or(Attr::reverse, 0) != 0;
  if (!is_factor(op)) return {reversed ? LanePlaces::sums_by_columns : LanePlaces::sums, stride, 4};
  const bool left = use_of(op) == MatrixUse::left;
  // Whether what follows each other in memory does so in k.
  const bool by_k = left != reversed;
  const int64_t size = size_bytes(k_.type(op.results.at(0)).dtype);
  const bool rows_aligned = stride % 4 == 0 && divisor_of_place(op) % 4 == 0;
  if (rows_aligned && (by_k || size == 2))
    return {left == by_k ? LanePlaces::rows_of_matrices_down : LanePlaces::rows_of_matrices_across, stride, 0};
  return {by_k ? LanePlaces::words : LanePlaces::elements, stride, by_k ? 0 : size};
}

/// Once, before everything else: they are the same for all tiles of one form.
void Emitter::place_lanes() {
  ir::each_op(k_, k_.body, [&](ir::OpId id) {
    const ir::Op& op = k_.op(id);
    if (!ir::is_matrix_access(op.code) || in_pieces(op)) return;
    const Access a = access_of(op);
    V& place = lane_places_[a];
    if (place.id) return;
    const auto row = static_cast<uint32_t>(4 * a.stride);
    const V quad = lane_id_ >> 2, in_quad = lane_id_ & 3, half = lane_id_ >> 4;
    switch (a.places) {
      case LanePlaces::rows_of_matrices_down: {
        const V rows = (lane_id_ & 15) * row;
        place = arena_ + (rows + (half << 4));
        break;
      }
      case LanePlaces::rows_of_matrices_across: {
        const V up = lane_id_ & 7, down = half << 3, beside = ((lane_id_ >> 3) & 1) << 4;
        place = arena_ + ((up + down) * row + beside);
        break;
      }
      case LanePlaces::words:
      case LanePlaces::sums: {
        const V along = in_quad << (a.places == LanePlaces::sums ? 3 : 2);
        place = arena_ + (quad * row + along);
        break;
      }
      case LanePlaces::sums_by_columns: {
        const V down = quad << 2, across = in_quad * (2 * row);
        place = arena_ + (down + across);
        break;
      }
      case LanePlaces::elements: {
        const V k = in_quad * (row * static_cast<uint32_t>(4 / a.element));
        place = arena_ + (k + quad * static_cast<uint32_t>(a.element));
        break;
      }
    }
  });
}

void Emitter::emit_matrix(const ir::Op& op) {
  switch (ir::Matrix(op.code)) {
    case ir::Matrix::pack: return;
    case ir::Matrix::matrix_fill: return emit_fill(op);
    case ir::Matrix::warpgroup_multiply_add: return emit_warpgroup(op);
    case ir::Matrix::warpgroup_wait:
      f_.line("wgmma.wait_group.sync.aligned " + std::to_string(op.attr(Attr::count)));
      for (size_t i = 0; i < op.results.size(); ++i) set(op.results[i], get(op.operands[i]));
      return;
    case ir::Matrix::matrix_load:
      if (in_pieces(op)) return;  // a product reads it where it is
      return is_factor(op) ? emit_matrix_load(op) : emit_sums(op, {}, false);
    case ir::Matrix::matrix_store: return emit_sums(op, get(op.operands.at(1)), true);
    case ir::Matrix::matrix_multiply_add: return emit_multiply_add(op);
    case ir::Matrix::matrix_multiply: return emit_multiply(op);
    case ir::Matrix::matrix_elements: return emit_elements(op);
    case ir::Matrix::matrix_of: return emit_matrix_of(op);
  }
}

std::string Emitter::matrix_place(const ir::Op& op, const Access& a, int64_t more_bytes) {
  return in_arena(lane_places_.at(a), ref(op.operands.at(0)), op.operands.back(), 0, more_bytes);
}

// -- factors

/// One register, from the `row`-th free element and the `k`-th word on, of a tile that ldmatrix does not take.
V Emitter::factor_register(const ir::Op& op, const Access& a, int64_t row, int64_t k) {
  const V word = f_.fresh(Reg::u32);
  if (a.places == LanePlaces::words) {
    f_.line("ld.shared.b32 " + f_.operand(word) + ", " + matrix_place(op, a, 4 * (row * a.stride + k)));
    return word;
  }
  V all;
  const int64_t per = 4 / a.element;
  for (int64_t e = 0; e < per; ++e) {
    const V one = f_.fresh(Reg::u32);
    const std::string from = matrix_place(op, a, 4 * (k * per + e) * a.stride + row * a.element);
    f_.line(std::string("ld.shared.u") + std::to_string(8 * a.element) + " " + f_.operand(one) + ", " + from);
    const V part = e ? one << static_cast<uint32_t>(8 * a.element * e) : one;
    all = e ? all | part : part;
  }
  f_.move(word, all);
  return word;
}

// Registers: by 16 rows or 8 columns, then by 8 words of k, then as one mma takes them.
void Emitter::emit_matrix_load(const ir::Op& op) {
  const ir::Type& t = k_.type(op.results.at(0));
  const MatrixUse use = use_of(op);
  const auto [free, words] = factor_size(t, use);
  if (!type_name(t.dtype) || free % (use == MatrixUse::left ? kMmaRows : kMmaColumns) != 0 || words % kMmaWords != 0)
    throw InternalError(k_.name + ": nvidia: no matrices of " + to_string(t), op.loc);
  const V out = f_.fresh(f_.several(Reg::u32, static_cast<uint32_t>(free * words / 32)));
  set(op.results[0], out);
  const std::vector<V>& parts = f_.parts(out);
  const Access a = access_of(op);
  const bool by_k = lies_along_k(op);
  const int64_t blocks = words / kMmaWords, step = use == MatrixUse::left ? kMmaRows : kMmaColumns;
  const auto at = [&](int64_t i, int64_t k) {  // the first register of a block
    return static_cast<size_t>((i / step * blocks + k / kMmaWords) * (use == MatrixUse::left ? 4 : 2));
  };
  if (a.places == LanePlaces::words || a.places == LanePlaces::elements) {
    for (int64_t i = 0; i < free; i += step)
      for (int64_t k = 0; k < words; k += kMmaWords)
        for (int64_t r = 0; r < (use == MatrixUse::left ? 4 : 2); ++r) {
          const int64_t down = use == MatrixUse::left ? r % 2 : 0, along = use == MatrixUse::left ? r / 2 : r;
          f_.move(parts[at(i, k) + static_cast<size_t>(r)], factor_register(op, a, i + 8 * down, k + 4 * along));
        }
    return;
  }
  // Of memory's rows, which are of k where not by_k.
  const auto place = [&](int64_t i, int64_t k) {
    return matrix_place(op, a, by_k ? 4 * (i * a.stride + k) : 4 * (2 * k * a.stride) + 2 * i);
  };
  for (int64_t i = 0; i < free; i += kMmaRows)
    for (int64_t k = 0; k < words; k += kMmaWords) {
      const bool half = i + kMmaColumns == free;  // the last eight columns
      std::string names;
      for (size_t r = 0; r < (half ? 2 : 4); ++r) {
        const size_t first = use == MatrixUse::left ? at(i, k) + r : at(i + (r < 2 ? 0 : kMmaColumns), k) + r % 2;
        names += (r ? ", " : "") + f_.operand(parts[first]);
      }
      f_.line(std::string("ldmatrix.sync.aligned.m8n8.") + (half ? "x2" : "x4") + (by_k ? "" : ".trans") +
              ".shared.b16 {" + names + "}, " + place(i, k));
    }
}

// -- sums

void Emitter::emit_fill(const ir::Op& op) {
  const ir::Type& t = k_.type(op.results.at(0));
  const V element = get(op.operands.at(0));
  const V out = f_.fresh(f_.several(reg_of(t.dtype), static_cast<uint32_t>(num_elements(t.shape) / 32)));
  for (const V part : f_.parts(out)) f_.move(part, element);
  set(op.results[0], out);
}

// By 16 rows, then by 8 columns. Two neighbours at once, where they are aligned.
void Emitter::emit_sums(const ir::Op& op, V sums, bool store) {
  const ir::Type& t = k_.type(store ? op.operands.at(1) : op.results.at(0));
  const int64_t rows = t.shape.at(0), cols = t.shape.at(1);
  if (size_bytes(t.dtype) != 4 || rows % kMmaRows != 0 || cols % kMmaColumns != 0)
    throw InternalError(k_.name + ": nvidia: no sums of " + to_string(t), op.loc);
  if (!store) set(op.results[0], sums = f_.fresh(f_.several(reg_of(t.dtype), static_cast<uint32_t>(rows * cols / 32))));
  const std::vector<V>& parts = f_.parts(sums);
  const Access a = access_of(op);
  const bool by_columns = a.places == LanePlaces::sums_by_columns;
  const bool pairs = !by_columns && a.stride % 2 == 0 && divisor_of_place(op) % 2 == 0;
  size_t next = 0;
  for (int64_t i = 0; i < rows; i += kMmaRows)
    for (int64_t j = 0; j < cols; j += kMmaColumns)
      for (int64_t down = 0; down < kMmaRows; down += 8, next += 2)
        for (size_t e = 0; e < 2; e += pairs ? 2 : 1) {
          const int64_t row = i + down, col = j + static_cast<int64_t>(e);
          const std::string place = matrix_place(op, a, 4 * (by_columns ? col * a.stride + row : row * a.stride + col));
          const std::string names = pairs ? "{" + f_.operand(parts[next]) + ", " + f_.operand(parts[next + 1]) + "}"
                                          : f_.operand(parts[next + e]);
          const std::string type = std::string(pairs ? "v2." : "") + bits_type(parts[next].reg) + " ";
          if (store) f_.line("st.shared." + type + place + ", " + names);
          else f_.line("ld.shared." + type + names + ", " + place);
        }
}

// Element by element, of sums: whatever a lane holds of one it holds of the other.
void Emitter::emit_multiply(const ir::Op& op) {
  const std::vector<V> a = f_.parts(get(op.operands.at(0))), b = f_.parts(get(op.operands.at(1)));
  const V out = f_.fresh(get(op.operands[0]).reg);
  const std::vector<V>& products = f_.parts(out);
  for (size_t i = 0; i < products.size(); ++i) f_.move(products[i], a[i] * b[i]);
  set(op.results.at(0), out);
}

// The registers of a lane are in the order of those ops. Copies: what a loop carries is written again.
void Emitter::emit_elements(const ir::Op& op) {
  const std::vector<V> parts = f_.parts(get(op.operands.at(0)));
  for (size_t i = 0; i < op.results.size(); ++i) {
    const V element = f_.fresh(parts.at(i).reg);
    f_.move(element, parts[i]);
    set(op.results[i], element);
  }
}
void Emitter::emit_matrix_of(const ir::Op& op) {
  const ir::Type& t = k_.type(op.results.at(0));
  const bool left = static_cast<MatrixUse>(op.attr(Attr::kind)) == MatrixUse::left;
  const V out = f_.fresh(f_.several(left ? Reg::u32 : reg_of(t.dtype), static_cast<uint32_t>(op.operands.size())));
  for (size_t i = 0; i < op.operands.size(); ++i) f_.move(f_.parts(out)[i], get(op.operands[i]));
  set(op.results[0], out);
}

void Emitter::emit_multiply_add(const ir::Op& op) {
  const ir::Type &a = k_.type(op.operands.at(0)), &b = k_.type(op.operands.at(1)), &c = k_.type(op.operands.at(2));
  const std::vector<V> left = f_.parts(get(op.operands[0])), right = f_.parts(get(op.operands[1])),
                       sums = f_.parts(get(op.operands[2]));
  const bool f8 = is_f8(a.dtype);
  const std::string sum = is_int(c.dtype) ? "s32" : "f32";
  if (is_int(a.dtype) != is_int(c.dtype) || size_bytes(a.dtype) != size_bytes(b.dtype) ||
      (a.dtype != b.dtype && is_float(a.dtype) && !f8) || (f8 && !f_.converts(a.dtype)))
    throw InternalError(k_.name + ": nvidia: no product of " + to_string(a) + " and " + to_string(b), op.loc);
  multiplies_f8_ = multiplies_f8_ || f8;
  const std::string code = std::string("mma.sync.aligned.m16n8k") + (size_bytes(a.dtype) == 2 ? "16" : "32") +
                           ".row.col." + sum + "." + type_name(a.dtype) + "." + type_name(b.dtype) + "." + sum + " ";
  const auto list = [&](const std::vector<V>& all, size_t first, size_t n) {
    std::string s = "{";
    for (size_t i = 0; i < n; ++i) s += (i ? ", " : "") + f_.operand(all[first + i]);
    return s + "}";
  };
  const V out = f_.fresh(get(op.operands[2]).reg);
  const std::vector<V>& results = f_.parts(out);
  const size_t blocks = static_cast<size_t>(factor_size(a, MatrixUse::left).words / kMmaWords),
               down = static_cast<size_t>(c.shape.at(0) / kMmaRows),
               across = static_cast<size_t>(c.shape.at(1) / kMmaColumns);
  for (size_t i = 0; i < down; ++i)
    for (size_t j = 0; j < across; ++j)
      for (size_t k = 0; k < blocks; ++k) {
        const size_t at = 4 * (i * across + j);
        f_.line(code + list(results, at, 4) + ", " + list(left, 4 * (i * blocks + k), 4) + ", " +
                list(right, 2 * (j * blocks + k), 2) + ", " + list(k ? results : sums, at, 4));
      }
  set(op.results.at(0), out);
}

// -- products of four warps

// A factor as wgmma's descriptor has it, without swizzling. Pieces of 16 bytes of eight rows lie behind each other (a
// core matrix), and so do the core matrices down the rows. Those along a row are the load's stride apart. If elements
// along k follow each other, that stride is the leading offset and 128 bytes the other one, else the reverse (PTX ISA,
// "Matrix descriptor format").
V Emitter::descriptor(const ir::Op& load) {
  const bool by_k = lies_along_k(load);
  constexpr uint64_t kGroup = 128;  // bytes
  const auto pieces = static_cast<uint64_t>(4 * load.attr(Attr::stride));
  const uint64_t leading = by_k ? pieces : kGroup, strided = by_k ? kGroup : pieces;
  // Swizzled: eight rows of 128 bytes are 1024. The leading offset, to what lies beside them, counts across k alone.
  constexpr uint64_t kSwizzle = uint64_t{1} << 62, kEightRows = 1024;
  const uint64_t constant = is_swizzled(load) ? kSwizzle | kEightRows >> 4 << 32 | (by_k ? 1 : pieces >> 4) << 16
                                              : leading >> 4 << 16 | strided >> 4 << 32;
  if (pieces % 16 != 0 || divisor_of_place(load) % (is_swizzled(load) ? passes::Divisors::kMost : 4) != 0)
    throw InternalError(k_.name + ": nvidia: a factor of four warps does not lie at multiples of 16 bytes", load.loc);
  const V index = get(load.operands.back()), base = ref(load.operands.at(0)).base;
  const V words = to_uint(index, Reg::u32) + base;
  const V address = (arena_ + (words << 2)) >> 4;
  const V wide = f_.op("cvt.u64.u32", Reg::u64, {address});
  return wide | f_.make(Reg::u64, constant);
}

// Whether the op stands in the region itself, not in one inside of it.
bool Emitter::stands_in(const ir::Region& r, const ir::Op* op) const {
  return std::any_of(r.ops.begin(), r.ops.end(), [&](ir::OpId id) { return &k_.op(id) == op; });
}

// Where the product adds to. With attr late the registers stay those of the accumulator: nothing may touch them while
// it is under way. A loop's carries are such, and what is made by another product.
V Emitter::sums_of_product(const ir::Op& op, ir::Value sums) {
  const ir::Op* made = k_.def(sums);
  const auto late = [](const ir::Op* o) { return o->attr_or(Attr::late, 0) != 0; };
  const bool under_way = made && made->code == Opcode::warpgroup_multiply_add && late(made),
             alone = uses_[sums.index] == 1;
  if (under_way && !(late(&op) && alone))
    throw InternalError(k_.name + ": nvidia: sums are used while products are under way", op.loc);
  // In a loop inside, the product runs several times for one value of a carry, and each has to add to that.
  const auto in_its_region = [&] { return stands_in(k_.region(k_.value(sums).region), &op); };
  if (late(&op) && alone && (under_way || (!made && in_its_region()))) return get(sums);
  const std::vector<V>& parts = f_.parts(get(sums));
  const V out = f_.fresh(get(sums).reg);
  for (size_t j = 0; j < parts.size(); ++j) f_.move(f_.parts(out)[j], parts[j]);
  return out;
}

// ptxas 13.0 loses a left factor that was made before the loop around the product: it uses the registers for something
// else behind the product, and the next iteration reads them (seen with 64 x 128 halves). So each iteration has a copy,
// and ptxas does not know that it is one.
std::vector<V> Emitter::left_of_iteration(const ir::Op& op, ir::Value left) {
  const std::vector<V>& parts = f_.parts(get(left));
  const auto made_beside = [&](const ir::Region& r) { return stands_in(r, &op) && stands_in(r, k_.def(left)); };
  if (std::any_of(k_.regions.begin(), k_.regions.end(), made_beside)) return parts;
  std::vector<V> own;
  for (const V part : parts) own.push_back(f_.op("xor.b32", part.reg, {part, zero_}));
  return own;
}

bool Emitter::is_zeros(ir::Value sums) const {
  const ir::Op* fill = k_.def(sums);
  return fill && fill->code == Opcode::matrix_fill && ir::constant_bits(k_, fill->operands.at(0)) == uint64_t{0};
}

void Emitter::emit_warpgroup(const ir::Op& op) {
  const auto lefts = static_cast<size_t>(op.attr(Attr::count));
  const ir::Op &right = *k_.def(op.operands.at(0)), *left = k_.def(op.operands.at(1));
  const ir::Type &b = k_.type(op.operands[0]), &a = k_.type(op.operands[1]), &sum = k_.type(op.results.at(0));
  const int64_t size = size_bytes(a.dtype), step = 32 / size;  // elements of k in one wgmma
  const bool whole = in_pieces(*left), halves = size == 2;
  const size_t steps = static_cast<size_t>(b.shape[0] / step), rows = whole ? lefts : lefts / steps,
               across = op.results.size() / rows;
  if (b.shape[0] % step != 0 || (!whole && a.shape[1] != step) || size_bytes(b.dtype) != size || sum.shape[0] != 16 ||
      sum.shape[1] % kMmaColumns != 0)
    throw InternalError(k_.name + ": nvidia: no product of " + to_string(a) + " and " + to_string(b), op.loc);
  // Rows of sums that begin at zero: the first product is taken as it is.
  std::vector<bool> empty(rows, true);
  for (size_t i = 0; i < op.results.size(); ++i)
    if (!is_zeros(op.operands[1 + lefts + i])) empty[i / across] = false;
  std::vector<V> results;
  for (size_t i = 0; i < op.results.size(); ++i) {
    const ir::Value sums = op.operands[1 + lefts + i];
    results.push_back(empty[i / across] ? f_.fresh(get(sums).reg) : sums_of_product(op, sums));
  }
  // By 16 bytes, which is what a descriptor counts in.
  const auto stepped = [&](const ir::Op& load, V first, size_t k) {
    int64_t sixteens = static_cast<int64_t>(k) * (lies_along_k(load) ? 2 * load.attr(Attr::stride) / 4 : step);
    if (is_swizzled(load)) {
      const int64_t along = static_cast<int64_t>(k) * 2;  // eight make a row of 128 bytes
      sixteens =
          lies_along_k(load) ? along / 8 * load.attr(Attr::stride) / 4 + along % 8 : static_cast<int64_t>(k) * step * 8;
    }
    return k ? first + f_.make(Reg::u64, static_cast<uint64_t>(sixteens)) : first;
  };
  const V first_right = descriptor(right);
  std::vector<V> first_left;
  for (size_t r = 0; whole && r < rows; ++r) first_left.push_back(descriptor(*k_.def(op.operands[1 + r])));
  const V adds = f_.boolean(true), takes = f_.boolean(false);
  const std::string code = "wgmma.mma_async.sync.aligned.m64n" + std::to_string(b.shape[1]) + "k" +
                           std::to_string(step) + (is_int(sum.dtype) ? ".s32." : ".f32.") + type_name(a.dtype) + "." +
                           type_name(b.dtype) + " ";
  const auto names = [&](const std::vector<V>& parts) {
    std::string s;
    for (const V part : parts) s += (s.empty() ? "" : ", ") + f_.operand(part);
    return s;
  };
  std::vector<std::vector<V>> lefts_here;
  for (size_t i = 0; !whole && i < lefts; ++i) lefts_here.push_back(left_of_iteration(op, op.operands[1 + i]));
  f_.line("wgmma.fence.sync.aligned");
  for (size_t k = 0; k < steps; ++k)
    for (size_t r = 0; r < rows; ++r) {
      std::string s = code + "{";
      for (size_t c = 0; c < across; ++c) s += (c ? ", " : "") + names(f_.parts(results[r * across + c]));
      const V place = stepped(right, first_right, k);
      if (whole) s += "}, " + f_.in_register(stepped(*k_.def(op.operands[1 + r]), first_left[r], k));
      else s += "}, {" + names(lefts_here[r * steps + k]) + "}";
      s += ", " + f_.in_register(place) + ", " + f_.in_register(k == 0 && empty[r] ? takes : adds);
      if (!is_int(sum.dtype)) s += ", 1, 1";
      if (halves && whole) s += lies_along_k(*left) ? ", 0" : ", 1";
      if (halves) s += lies_along_k(right) ? ", 0" : ", 1";
      f_.line(s);
    }
  f_.line("wgmma.commit_group.sync.aligned");
  if (!op.attr_or(Attr::late, 0)) f_.line("wgmma.wait_group.sync.aligned 0");
  for (size_t i = 0; i < results.size(); ++i) set(op.results[i], results[i]);
}

}  // namespace tessera::nvidia
