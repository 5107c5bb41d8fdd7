#!/usr/bin/env bash
# NVIDIA's assembler accepts the PTX of every kernel of tests/tir, without advice (C7508: an ignored setmaxnreg) and
# without spilling a register, but where `spilled` says so, and without losing one (support/sass_registers.py): for
# three chips those in tests/tir itself and those of the benchmarks, for one chip the others. ptxas is that of a CUDA
# toolkit, or of the machine's package index; where there is neither, the suite says so and tests nothing.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${TESSERA_BUILD_DIR:-$root/build}
version=13.0.88
venv=$build/ptxas-$version
. "$root/tests/support/checks.sh"

end() { printf '%d passed, %d failed\n' "$passed" "$failed"; [ "$failed" -eq 0 ]; exit; }
skip() { printf 'skipped: %s\n' "$1"; end; }
packaged() { find "$venv" -name ptxas -type f 2> /dev/null | head -n 1; }

ptxas=$(command -v ptxas || ls /usr/local/cuda/bin/ptxas 2> /dev/null || packaged)
if [ -z "$ptxas" ]; then
  python3 -m venv "$venv" > /dev/null 2>&1 || skip "python3 cannot make a virtual environment (Debian: python3-venv)"
  timeout 200 "$venv/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 15 \
    "nvidia-cuda-nvcc==$version" \
    2> "$venv/log" || skip "pip could not install nvidia-cuda-nvcc $version: $(tail -n 1 "$venv/log")"
  ptxas=$(packaged)
  [ -n "$ptxas" ] || skip "nvidia-cuda-nvcc $version has no ptxas"
fi
disassembler=$(command -v nvdisasm || ls /usr/local/cuda/bin/nvdisasm 2> /dev/null ||
  find "$venv" -name nvdisasm -type f 2> /dev/null | head -n 1)
if [ -z "$disassembler" ]; then
  [ -d "$venv" ] || python3 -m venv "$venv" > /dev/null 2>&1
  timeout 200 "$venv/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 15 \
    nvidia-cuda-nvdisasm==13.2.51 2> "$venv/log"
  disassembler=$(find "$venv" -name nvdisasm -type f 2> /dev/null | head -n 1)
  [ -n "$disassembler" ] || printf 'left out: registers that ptxas loses, for there is no nvdisasm\n'
fi
[ -x "$build/tessera" ] || { echo "there is no $build/tessera"; echo "0 passed, 1 failed"; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root" || exit 1

# Bytes stored and loaded for registers that ptxas 13.0 spills, at most: CHIP:FILE:BYTES. All other kernels spill none.
spilled="sm_90a:tests/bench/gpu/kernels/flash_causal_f16_d64_4096.tir:16
  sm_80:tests/bench/gpu/kernels/convolution_f32_16x32x32x256x256.tir:12 sm_80:tests/tir/reduced_in_strips.tir:16
sm_80:tests/bench/gpu/kernels/convolution_f32_16x64x64x64x64.tir:48
sm_90a:tests/tir/attention_masks.tir:28 sm_100a:tests/tir/attention_masks.tir:16
sm_80:tests/bench/gpu/kernels/matmul_f16_8192x4096x64.tir:8
sm_90a:tests/bench/gpu/kernels/matmul_f16_8192x4096x64.tir:8
sm_80:tests/tir/attention_units.tir:16 sm_80:tests/tir/matrix_attention.tir:8
sm_90a:tests/tir/block_index_wraps.tir:16 sm_100a:tests/tir/block_index_wraps.tir:16"

# spills TEXT: the bytes of the kernel that spills most
spills() { sed -n 's/.* \([0-9]*\) bytes spill stores, \([0-9]*\) bytes spill loads.*/\1 \2/p' <<< "$1" |
  awk '{ n = $1 + $2; if (n > most) most = n } END { print most + 0 }'; }
# assemble CHIP FILE: what is wrong with the file's code, if anything
assemble() {
  local base="$work/$BASHPID" said
  if ! said=$("$build/tessera" compile "$2" --target "nvidia:$1" -o "$base.ptx" 2>&1); then
    printf '%s: %s\n' "$2" "$said"
  elif ! said=$("$ptxas" -arch="$1" -v "$base.ptx" -o "$base.cubin" 2>&1); then
    printf '%s: %s\n' "$2" "$(grep -v '^ptxas info' <<< "$said" | head -n 3)"
  elif grep -qE 'C7508|warning' <<< "$said"; then
    printf '%s: %s\n' "$2" "$(grep -E 'C7508|warning' <<< "$said" | head -n 1)"
  else
    local most=0 known
    for known in $spilled; do [[ $known != "$1:$2:"* ]] || most=${known##*:}; done
    [ "$(spills "$said")" -le "$most" ] || printf '%s: %s\n' "$2" "$(grep spill <<< "$said" | head -n 1)"
    if [ -n "$disassembler" ] && grep -q wgmma "$base.ptx"; then
      said=$("$disassembler" -c "$base.cubin" | python3 tests/support/sass_registers.py)
      [ -z "$said" ] || printf '%s: %s\n' "$2" "$said"
    fi
  fi
}
export -f assemble spills
export build ptxas disassembler work spilled
# all CHIP FILES...: the same of many, on as many processors as there are
all() {
  local chip=$1
  shift
  printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} bash -c 'assemble "$0" "$1"' "$chip" {}
}

mapfile -t files < <(find tests/tir tests/bench/gpu/kernels -maxdepth 1 -name '*.tir' | sort)
# Semaphores and scratch in gmem are not compiled (engine/front/mosaic_gpu.md).
mapfile -t others < <(find tests/tir -mindepth 2 -name '*.tir' -not -name spinning.tir -not -name gmem_scratch.tir \
  -not -name scoped_and_semaphores.tir -not -name reads_of_semaphores.tir |
  xargs grep -L '^lane kernel' | sort)
[ ${#files[@]} -gt 100 ] || { echo "ptxas.sh: only ${#files[@]} kernels found"; echo "0 passed, 1 failed"; exit 1; }
for chip in sm_80 sm_90a sm_100a; do
  check "ptxas takes the kernels of tests/tir and of the benchmarks for $chip, and spills nothing" \
    "$(all $chip "${files[@]}")"
done
check "ptxas takes those of the folders in tests/tir for sm_90a, and spills nothing" "$(all sm_90a "${others[@]}")"
end
