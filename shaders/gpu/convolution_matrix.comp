// A convolution of 3 x 3 taps, f16 [IMAGES, H + 2, W + 2, C] by [3, 3, C, N] to [IMAGES, H, W, N], by cooperative
// matrices of FM x FM x FM: a fragment's rows are FM neighbours in a row of pixels, which lie in shared memory once for
// all nine taps. A workgroup of four subgroups of WAVE computes 8 x FM pixels x CHANNELS channels, a subgroup two rows
// of pixels. Strips of 16 channels; filters are turned on their way to shared memory. The next strip is fetched
// meanwhile. H is a multiple of 8, W of FM, N of CHANNELS, C of 16.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#define KIND 1
#include "matrix.glsl"
const uint lanes = 4 * WAVE;
layout(local_size_x = 4 * WAVE) in;
layout(push_constant) uniform Arguments { uint64_t x, filters, o; };

// an item is a piece of two channels of a tap
const uint width = FM + 2, pixel_pieces = 10 * width * 2, items = 9 * CHANNELS;
const uint pixel_rounds = (pixel_pieces + lanes - 1) / lanes, filter_rounds = (items + lanes - 1) / lanes;
const uint line = 3;                       // 16 channels and padding, in pieces
// a row of results, and padding
const uint across = CHANNELS / FM, out_pieces = CHANNELS / 8, out_line = out_pieces + 1;
const uint tile_size = 10 * width * line, filter_size = 9 * CHANNELS * line;
shared uvec4 stage[tile_size + filter_size];

struct Strip {
  uvec4 x[pixel_rounds], f[filter_rounds][2];
};

void fetch(uint from, uint group, uint c0, out Strip s) {
  const uint t = gl_LocalInvocationIndex;
  [[unroll]] for (uint i = 0; i < pixel_rounds; ++i) {
    const uint n = min(i * lanes + t, pixel_pieces - 1), pixel = n / 2;
    s.x[i] = load_piece(x, (pixel / width * (W + 2) + pixel % width) * (C / 8) + n % 2, from + c0 / 8);
  }
  [[unroll]] for (uint i = 0; i < filter_rounds; ++i)
    [[unroll]] for (uint d = 0; d < 2; ++d) {
      const uint n = min(i * lanes + t, items - 1), tap = n / CHANNELS, c = n % 8 * 2 + d, k = n / 8 % out_pieces;
      s.f[i][d] = load_piece(filters, (tap * C + c) * (N / 8) + k, (c0 * N + group) / 8);
    }
}

void put(Strip s) {
  const uint t = gl_LocalInvocationIndex;
  [[unroll]] for (uint i = 0; i < pixel_rounds; ++i) {
    const uint n = min(i * lanes + t, pixel_pieces - 1);
    stage[n / 2 * line + n % 2] = s.x[i];
  }
  [[unroll]] for (uint i = 0; i < filter_rounds; ++i) {
    const uint n = min(i * lanes + t, items - 1), c = n % 8, k = n / 8 % out_pieces * 8, tap = n / CHANNELS;
    uvec4 two[2];
    uint words[8];
    two[0] = s.f[i][0], two[1] = s.f[i][1];
    turn(two, words);
    [[unroll]] for (uint e = 0; e < 8; ++e)
      stage[tile_size + (tap * CHANNELS + k + e) * line + c / 4][c % 4] = words[e];
  }
}

void main() {
  const uint columns = W / FM, rows = H / 8, groups = N / CHANNELS;
  const uint group = gl_WorkGroupID.x % groups * CHANNELS, column = gl_WorkGroupID.x / groups % columns * FM;
  const uint row = gl_WorkGroupID.x / (groups * columns) % rows * 8,
             image = gl_WorkGroupID.x / (groups * columns * rows);
  const uint from = ((image * (H + 2) + row) * (W + 2) + column) * (C / 8), mine = gl_SubgroupID * 2;
  coopmat<float, gl_ScopeSubgroup, FM, FM, gl_MatrixUseAccumulator> sum[2][across];
  [[unroll]] for (uint i = 0; i < 2; ++i)
    [[unroll]] for (uint j = 0; j < across; ++j)
      sum[i][j] = coopmat<float, gl_ScopeSubgroup, FM, FM, gl_MatrixUseAccumulator>(0.0);
  Strip next;
  fetch(from, group, 0, next);
  [[dont_unroll]] for (uint c0 = 0; c0 < C; c0 += 16) {
    barrier();
    put(next);
    barrier();
    fetch(from, group, min(c0 + 16, C - 16), next);
    [[dont_unroll]] for (uint c = 0; c < 16; c += FM)
      [[dont_unroll]] for (uint dx = 0; dx < 3; ++dx) {
        coopmat<float16_t, gl_ScopeSubgroup, FM, FM, gl_MatrixUseA> a[4];
        [[unroll]] for (uint r = 0; r < 4; ++r)
          coopMatLoad(a[r], stage, ((mine + r) * width + dx) * line + c / 8, line, gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint dy = 0; dy < 3; ++dy)
          [[unroll]] for (uint j = 0; j < across; ++j) {
            coopmat<float16_t, gl_ScopeSubgroup, FM, FM, gl_MatrixUseB> b;
            coopMatLoad(b, stage, tile_size + ((dy * 3 + dx) * CHANNELS + j * FM) * line + c / 8, line,
                        gl_CooperativeMatrixLayoutColumnMajor);
            [[unroll]] for (uint i = 0; i < 2; ++i) sum[i][j] = coopMatMulAdd(a[dy + i], b, sum[i][j]);
          }
      }
  }
  barrier();
  const uint own = gl_SubgroupID * FM * out_line;
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    [[unroll]] for (uint j = 0; j < across; ++j) {
      const coopmat<float16_t, gl_ScopeSubgroup, FM, FM, gl_MatrixUseAccumulator> result =
          coopmat<float16_t, gl_ScopeSubgroup, FM, FM, gl_MatrixUseAccumulator>(sum[i][j]);
      coopMatStore(result, stage, own + j * FM / 8, out_line, gl_CooperativeMatrixLayoutRowMajor);
    }
    subgroupMemoryBarrierShared();
    subgroupBarrier();
    [[unroll]] for (uint n = 0; n < FM * out_pieces; n += WAVE) {
      const uint item = n + gl_SubgroupInvocationID;
      store_piece(o, item / out_pieces * (N / 8) + item % out_pieces,
                  (((image * H + row + mine + i) * W + column) * N + group) / 8,
                  stage[own + item / out_pieces * out_line + item % out_pieces]);
    }
    subgroupMemoryBarrierShared();
    subgroupBarrier();
  }
}
