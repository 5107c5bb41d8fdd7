// The product of tests/bench/gpu/kernels/matmul_f16_4096x4096x4096.tir written by hand: what nvcc's code for the same
// tile is compared with in codegen/nvidia/products.md. Tiles of 128x128x32, four warps of 64x64, two tiles in turn
// through cp.async. It needs no header: nvcc -arch=sm_80 -O3 -cubin.
using Word = unsigned;
using Half = unsigned short;  // its bits

constexpr int kSize = 4096, kDepth = 32, kTile = 128, kPad = 8;
constexpr int kLeftRow = kDepth + kPad, kRightRow = kTile + kPad;

__device__ __forceinline__ Word shared(const void* p) { return static_cast<Word>(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ void copy(Word to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}

extern "C" __global__ void __launch_bounds__(128)
    matmul(const Half* __restrict__ left, const Half* __restrict__ right, Half* __restrict__ out) {
  __shared__ __align__(16) Half a[2][kTile * kLeftRow], b[2][kDepth * kRightRow];
  const int me = threadIdx.x, warp = me / 32, lane = me % 32;
  const int row0 = blockIdx.y * kTile, col0 = blockIdx.x * kTile, my_row = warp % 2 * 64, my_col = warp / 2 * 64;
  float sums[4][8][4] = {};
  const auto fetch = [&](int chunk, int turn) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = me / 4 + 32 * i, k = me % 4 * 8;
      copy(shared(&a[turn][r * kLeftRow + k]), left + static_cast<long>(row0 + r) * kSize + chunk * kDepth + k);
      const int q = me / 16 + 8 * i, c = me % 16 * 8;
      copy(shared(&b[turn][q * kRightRow + c]), right + static_cast<long>(chunk * kDepth + q) * kSize + col0 + c);
    }
    asm volatile("cp.async.commit_group;");
  };
  fetch(0, 0);
  for (int chunk = 0; chunk < kSize / kDepth; ++chunk) {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    if (chunk + 1 < kSize / kDepth) fetch(chunk + 1, (chunk + 1) % 2);
    const int turn = chunk % 2;
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      Word x[4][4], y[8][2];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(x[i][0]), "=r"(x[i][1]), "=r"(x[i][2]), "=r"(x[i][3])
                     : "r"(shared(&a[turn][(my_row + 16 * i + lane % 16) * kLeftRow + k + 8 * (lane / 16)])));
#pragma unroll
      for (int j = 0; j < 4; ++j)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(y[2 * j][0]), "=r"(y[2 * j][1]), "=r"(y[2 * j + 1][0]), "=r"(y[2 * j + 1][1])
                     : "r"(shared(&b[turn][(k + lane % 16) * kRightRow + my_col + 16 * j + 8 * (lane / 16)])));
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j)
          asm volatile(
              "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
              : "+f"(sums[i][j][0]), "+f"(sums[i][j][1]), "+f"(sums[i][j][2]), "+f"(sums[i][j][3])
              : "r"(x[i][0]), "r"(x[i][1]), "r"(x[i][2]), "r"(x[i][3]), "r"(y[j][0]), "r"(y[j][1]));
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int down = 0; down < 2; ++down) {
        Word pair;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(sums[i][j][2 * down + 1]), "f"(sums[i][j][2 * down]));
        const int r = row0 + my_row + 16 * i + lane / 4 + 8 * down, c = col0 + my_col + 8 * j + lane % 4 * 2;
        *reinterpret_cast<Word*>(&out[static_cast<long>(r) * kSize + c]) = pair;
      }
}
