// Products of small matrices whose elements lie in the registers of a warp, and the loads that bring them there.
//
// Of a product of 16 x K and K x 8 (or 8 x K and K x 8), lane l has in its register r of A the row l / 4 + 8 (r % 2)
// and, with E elements to a register, the columns 4 E (r / 2) + E (l % 4) and on; of B the rows 4 E r + E (l % 4) and
// on, and column l / 4; of the result in element e the row l / 4 + 8 (e / 2), and column 2 (l % 4) + e % 2.
#include <cmath>
#include <cstring>

#include "tests/ptx/decode.h"

namespace tessera::ptx {

double accumulate(const Machine& m, Type into, double c, const double* a, const double* b, size_t n) {
  if (into == Type::f64) {
    for (size_t k = 0; k < n; ++k) c = std::fma(a[k], b[k], c);
    return c;
  }
  if (!m.launch.inexact || m.launch.seed % 2 == 0) {
    double sum = c;
    for (size_t k = 0; k < n; ++k) sum = odd_add(sum, a[k] * b[k]);
    return sum;
  }
  // each partial sum loses what f32 does not hold
  for (size_t k = 0; k < n; ++k) c = widen(Type::f32, narrow(Type::f32, odd_add(c, a[k] * b[k]), Round::zero));
  return c;
}

namespace {

struct Shape {
  uint32_t m, n, k;
};
/// imm packs the shape and, in bytes, the number of registers of A, B and C.
Shape shape_of(const Instr& i) {
  return {static_cast<uint32_t>(i.imm & 0xff), static_cast<uint32_t>(i.imm >> 8 & 0xff),
          static_cast<uint32_t>(i.imm >> 16 & 0xffff)};
}
enum Flags : uint16_t { kSaturate = 1 };

/// The elements of a matrix in registers, one after the other.
struct Matrix {
  uint32_t rows, columns;
  std::vector<double> real;
  std::vector<int64_t> whole;
  std::vector<uint8_t> poison;
  Matrix(uint32_t r, uint32_t c)
      : rows(r), columns(c), real(size_t{r} * c), whole(size_t{r} * c), poison(size_t{r} * c) {}
  void set(uint32_t r, uint32_t c, Type t, uint64_t bits, bool p) {
    const size_t at = size_t{r} * columns + c;
    if (is_float(t)) real[at] = widen(t, bits);
    else whole[at] = is_signed(t) ? signed_of(bits, width_of(t)) : static_cast<int64_t>(bits);
    poison[at] = p;
  }
};

template <class F>
void elements(const Slot& s, Type t, F&& f) {
  const uint32_t w = width_of(t) < 32 ? width_of(t) : width_of(t) == 64 ? 64 : 32, n = w < 32 ? 32 / w : 1;
  for (uint32_t e = 0; e < n; ++e) f(e, n, s.bits >> (e * w) & mask_of(w), (s.poison >> (e * w) & mask_of(w)) != 0);
}

void mma(Thread& t, const Instr& i) {
  Machine& m = *t.m;
  if (m.alive_lanes(t) != 0xffffffff) m.stop(Fault::divergence, t, i, "a warp of 32 threads is needed");
  const std::vector<Thread*> all = m.gather(t, i, 0xffffffff, true);
  if (all.empty()) return;
  const Shape shape = shape_of(i);
  const uint32_t na = i.imm >> 32 & 0xff, nb = i.imm >> 40 & 0xff, nc = i.imm >> 48 & 0xff;
  const uint32_t* list = m.code.lists.data() + i.list;
  const Type into = i.type, a_type = static_cast<Type>(i.kind & 0xff), b_type = static_cast<Type>(i.kind >> 8 & 0xff),
             c_type = i.source;
  Matrix a(shape.m, shape.k), b(shape.n, shape.k), c(shape.m, shape.n);  // b by columns
  const auto of_c = [&](uint32_t lane, uint32_t element) {
    return std::pair{lane / 4 + 8 * (element / 2), 2 * (lane % 4) + element % 2};
  };
  for (Thread* x : all) {
    const uint32_t group = x->lane / 4, in_group = x->lane % 4;
    for (uint32_t r = 0; r < na; ++r)
      elements(x->r[list[nc + r]], a_type, [&](uint32_t e, uint32_t n, uint64_t bits, bool p) {
        const uint32_t half = shape.m == 16 ? r % 2 : 0, chunk = shape.m == 16 ? r / 2 : r;
        a.set(group + 8 * half, chunk * 4 * n + in_group * n + e, a_type, bits, p);
      });
    for (uint32_t r = 0; r < nb; ++r)
      elements(x->r[list[nc + na + r]], b_type, [&](uint32_t e, uint32_t n, uint64_t bits, bool p) {
        b.set(group, r * 4 * n + in_group * n + e, b_type, bits, p);
      });
    uint32_t at = 0;
    for (uint32_t r = 0; r < nc; ++r)
      elements(x->r[list[nc + na + nb + r]], c_type, [&](uint32_t, uint32_t, uint64_t bits, bool p) {
        const auto [row, column] = of_c(x->lane, at++);
        c.set(row, column, c_type, bits, p);
      });
  }
  std::vector<Slot> d(size_t{shape.m} * shape.n);
  for (uint32_t row = 0; row < shape.m; ++row)
    for (uint32_t column = 0; column < shape.n; ++column) {
      const size_t at = size_t{row} * shape.n + column, from_a = size_t{row} * shape.k,
                   from_b = size_t{column} * shape.k;
      bool poison = c.poison[at];
      for (uint32_t k = 0; k < shape.k; ++k) poison = poison || a.poison[from_a + k] || b.poison[from_b + k];
      if (is_float(into)) {
        d[at].bits =
            narrow(into, accumulate(m, into, c.real[at], &a.real[from_a], &b.real[from_b], shape.k), Round::even);
      } else {
        int64_t sum = c.whole[at];
        for (uint32_t k = 0; k < shape.k; ++k) sum += a.whole[from_a + k] * b.whole[from_b + k];
        if (i.flags & kSaturate) sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
        d[at].bits = static_cast<uint64_t>(sum) & 0xffffffff;
      }
      if (poison) d[at].poison = mask_of(width_of(into));
    }
  for (Thread* x : all) {
    uint32_t at = 0;
    const uint32_t w = width_of(into), n = w < 32 ? 32 / w : 1;
    for (uint32_t r = 0; r < nc; ++r) {
      Slot s;
      for (uint32_t e = 0; e < n; ++e) {
        const auto [row, column] = of_c(x->lane, at++);
        const Slot& v = d[size_t{row} * shape.n + column];
        s.bits |= v.bits << (e * w), s.poison |= v.poison << (e * w);
      }
      x->r[list[r]] = s;
    }
  }
}

uint32_t number(const std::string& w, size_t& at) {
  uint32_t n = 0;
  for (++at; at < w.size() && std::isdigit(static_cast<unsigned char>(w[at])); ++at)
    n = n * 10 + static_cast<uint32_t>(w[at] - '0');
  return n;
}
/// "m16n8k16"
bool take_shape(Decoder& d, Shape& s) {
  for (const std::string& w : d.s->words) {
    if (w.size() < 6 || w[0] != 'm' || !std::isdigit(static_cast<unsigned char>(w[1]))) continue;
    size_t at = 0;
    s.m = number(w, at), s.n = at < w.size() && w[at] == 'n' ? number(w, at) : 0;
    s.k = at < w.size() && w[at] == 'k' ? number(w, at) : 0;
    return d.take(w);
  }
  return false;
}

/// The shapes that there are: of each type, with bits to an element, K.
bool is_known(const Shape& s, Type a, Type b, Type into, Type c) {
  const uint32_t w = width_of(a);
  const bool f8 = a == Type::e4m3 || a == Type::e5m2, i8 = a == Type::s8 || a == Type::u8,
             i4 = a == Type::s4 || a == Type::u4;
  const bool b_fits = f8   ? b == Type::e4m3 || b == Type::e5m2
                      : i8 ? b == Type::s8 || b == Type::u8
                      : i4 ? b == Type::s4 || b == Type::u4
                           : a == b;
  if (!b_fits || s.n != 8 || into != c) return false;
  if (a == Type::f64)
    return into == Type::f64 && ((s.m == 8 && s.k == 4) || (s.m == 16 && (s.k == 4 || s.k == 8 || s.k == 16)));
  if (i8 || i4)
    return into == Type::s32 && ((s.m == 8 && s.k == 128 / w) || (s.m == 16 && (s.k == 128 / w || s.k == 256 / w)));
  if (s.m != 16 || (s.k != 128 / w && s.k != 256 / w)) return false;
  if (a == Type::f16 || f8) return into == Type::f32 || into == Type::f16;
  return (a == Type::bf16 || a == Type::tf32) && into == Type::f32;
}

void decode_mma(Decoder& d) {
  Instr& i = *d.i;
  i.effects = true;
  if (!d.take("sync") || !d.take("aligned")) d.fail(".sync.aligned is missing");
  Shape s{};
  if (!take_shape(d, s)) d.fail("the shape is missing");
  if (!d.take("row") || !d.take("col")) d.fail(".row.col is missing");
  if (d.take("satfinite")) i.flags |= kSaturate;
  const Type into = d.need_type(), a = d.need_type(), b = d.need_type(), c = d.need_type();
  if (!is_known(s, a, b, into, c)) d.fail("this shape is not known for these types");
  d.need_operands(4);
  i.type = into, i.source = c, i.kind = static_cast<uint32_t>(a) | static_cast<uint32_t>(b) << 8;
  const uint32_t register_bits = a == Type::f64 ? 64 : 32;
  const uint64_t na = s.m * s.k * width_of(a) / 32 / register_bits, nb = s.n * s.k * width_of(b) / 32 / register_bits;
  const uint64_t nc = s.m * s.n * width_of(into) / 32 / register_bits;
  i.imm = s.m | s.n << 8 | uint64_t{s.k} << 16 | na << 32 | nb << 40 | nc << 48;
  const uint64_t counts[] = {nc, na, nb, nc};
  const Type word = register_bits == 64 ? Type::f64 : Type::b32;
  std::vector<uint32_t> slots;
  for (size_t k = 0; k < 4; ++k) {
    const Operand& o = d.operand(k);
    const bool one = o.kind != Operand::vector && counts[k] == 1;
    if (!one && (o.kind != Operand::vector || o.parts.size() != counts[k]))
      d.fail("operand " + std::to_string(k + 1) + " takes " + std::to_string(counts[k]) + " registers");
    for (size_t r = 0; r < counts[k]; ++r) {
      const Operand& part = one ? o : o.parts[r];
      const Type t = part.kind == Operand::real32 || part.kind == Operand::real64
                         ? (register_bits == 64 ? Type::f64 : Type::f32)
                         : word;
      slots.push_back(k == 0 ? d.result(part, word) : d.source(part, t));
    }
  }
  d.begin_list();
  for (const uint32_t slot : slots) d.append(slot);
  i.run = mma;
}

// ---- ldmatrix, stmatrix

enum MatrixFlags : uint16_t { kTransposed = 1, kStores = 2 };

/// Matrices of 8 x 8 elements of 16 bits; lanes 8 j and on have the addresses of the rows of matrix j.
void matrices(Thread& t, const Instr& i) {
  Machine& m = *t.m;
  if (m.alive_lanes(t) != 0xffffffff) m.stop(Fault::divergence, t, i, "a warp of 32 threads is needed");
  const std::vector<Thread*> all = m.gather(t, i, 0xffffffff, true);
  if (all.empty()) return;
  const bool stores = (i.flags & kStores) != 0;
  const uint32_t* list = m.code.lists.data() + i.list;
  for (uint32_t j = 0; j < i.n; ++j) {
    Access rows[8];
    for (uint32_t r = 0; r < 8; ++r) {
      Thread& x = *all[8 * j + r];
      const How how = stores ? How::write : How::read;
      rows[r] = m.reach(x, i, i.space, address_in(x, i, i.a, i.imm), 16, 16, how);
      if (rows[r].object != &x.block->shared)
        m.stop(Fault::bounds, x, i, "its address is not in the block's shared memory");
      m.touch(x, i, rows[r], 16, how, false);
    }
    for (Thread* x : all) {
      Slot& s = x->r[list[j]];
      if (!stores) s = {};
      for (uint32_t e = 0; e < 2; ++e) {
        uint32_t row = x->lane / 4, column = 2 * (x->lane % 4) + e;
        if (i.flags & kTransposed) std::swap(row, column);
        uint8_t* bytes = rows[row].bytes() + 2 * column;
        uint8_t* poison = rows[row].poison() + 2 * column;
        uint16_t half = 0, unknown = 0;
        if (stores) {
          half = static_cast<uint16_t>(s.bits >> (16 * e)), unknown = static_cast<uint16_t>(s.poison >> (16 * e));
          std::memcpy(bytes, &half, 2), std::memcpy(poison, &unknown, 2);
        } else {
          std::memcpy(&half, bytes, 2), std::memcpy(&unknown, poison, 2);
          s.bits |= uint64_t{half} << (16 * e), s.poison |= uint64_t{unknown} << (16 * e);
        }
      }
    }
  }
}

void decode_matrices(Decoder& d, bool stores) {
  Instr& i = *d.i;
  i.effects = true;
  if (!d.take("sync") || !d.take("aligned") || !d.take("m8n8")) d.fail(".sync.aligned.m8n8 is missing");
  i.n = static_cast<uint8_t>(d.take("x1") ? 1 : d.take("x2") ? 2 : d.take("x4") ? 4 : 0);
  if (i.n == 0) d.fail(".x1, .x2 or .x4 is missing");
  if (d.take("trans")) i.flags |= kTransposed;
  if (stores) i.flags |= kStores;
  i.space = d.space(Space::generic);
  if (d.need_type() != Type::b16) d.fail("it is of .b16");
  d.need_operands(2);
  d.address(stores ? 0 : 1);
  const Operand& o = d.operand(stores ? 1 : 0);
  std::vector<uint32_t> slots;
  if (o.kind != Operand::vector && i.n == 1) slots.push_back(stores ? d.source(o, Type::b32) : d.result(o, Type::b32));
  for (const Operand& part : o.parts) slots.push_back(stores ? d.source(part, Type::b32) : d.result(part, Type::b32));
  if (slots.size() != i.n) d.fail(std::to_string(i.n) + " registers are expected");
  d.begin_list();
  for (const uint32_t s : slots) d.append(s);
  d.accesses(2);
  i.run = matrices;
}

void movmatrix(Thread& t, const Instr& i) {
  const std::vector<Thread*> all = t.m->gather(t, i, 0xffffffff, true);
  if (all.empty()) return;
  Slot from[32];
  for (Thread* x : all) from[x->lane] = x->r[i.a];
  for (Thread* x : all) {
    Slot s;
    for (uint32_t e = 0; e < 2; ++e) {
      const uint32_t row = 2 * (x->lane % 4) + e, column = x->lane / 4;  // of what is transposed
      const Slot& f = from[row * 4 + column / 2];
      s.bits |= (f.bits >> (16 * (column % 2)) & 0xffff) << (16 * e);
      s.poison |= (f.poison >> (16 * (column % 2)) & 0xffff) << (16 * e);
    }
    x->r[i.d] = s;
  }
}

}  // namespace

void add_matrix_ops(Opcodes& o) {
  o["mma"] = decode_mma;
  o["ldmatrix"] = [](Decoder& d) { decode_matrices(d, false); };
  o["stmatrix"] = [](Decoder& d) { decode_matrices(d, true); };
  o["movmatrix"] = [](Decoder& d) {
    if (!d.take("sync") || !d.take("aligned") || !d.take("m8n8") || !d.take("trans"))
      d.fail(".sync.aligned.m8n8.trans is missing");
    d.need_type();
    d.need_operands(2);
    d.i->effects = true;
    d.i->d = d.result(0, Type::b32), d.i->a = d.source(1, Type::b32);
    d.i->run = movmatrix;
  };
}

}  // namespace tessera::ptx
