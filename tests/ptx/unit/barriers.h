// Programs with CUDA's own barriers and bulk copies, whose PTX NVIDIA wrote: the emulator must find nothing wrong with
// it. Only CUDA's compiler reads this. Read next: nvcc_test.cpp.
#pragma once
#ifdef __CUDACC__
#include <cuda/barrier>

using Barrier = cuda::barrier<cuda::thread_scope_block>;

/// out[i] = in[i] + 1, by 256 words to a block that a bulk copy brings and another takes away.
extern "C" __global__ void increment(const int* in, int* out) {
  namespace experimental = cuda::device::experimental;
  __shared__ alignas(128) int words[256];
  __shared__ Barrier full;
  if (threadIdx.x == 0) {
    init(&full, blockDim.x);
    experimental::fence_proxy_async_shared_cta();
  }
  __syncthreads();
  if (threadIdx.x == 0) cuda::memcpy_async(words, in + blockIdx.x * 256, cuda::aligned_size_t<16>(sizeof(words)), full);
  full.wait(full.arrive());
  words[threadIdx.x] += 1;
  experimental::fence_proxy_async_shared_cta();
  __syncthreads();
  if (threadIdx.x != 0) return;
  experimental::cp_async_bulk_shared_to_global(out + blockIdx.x * 256, words, sizeof(words));
  experimental::cp_async_bulk_commit_group();
  experimental::cp_async_bulk_wait_group_read<0>();
}

/// Every word goes to its mirror image, again and again: two barriers take turns.
extern "C" __global__ void mirror(const int* in, int* out) {
  __shared__ Barrier written, read;
  __shared__ int words[256];
  if (threadIdx.x == 0) {
    init(&written, blockDim.x);
    init(&read, blockDim.x);
  }
  __syncthreads();
  int x = in[blockIdx.x * 256 + threadIdx.x];
  for (int k = 0; k < 5; ++k) {
    words[threadIdx.x] = x;
    written.arrive_and_wait();
    x = words[255 - threadIdx.x] + 1;
    read.arrive_and_wait();
  }
  out[blockIdx.x * 256 + threadIdx.x] = x;
}
#endif
