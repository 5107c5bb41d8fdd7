#!/usr/bin/env bash
# The kernels of tests/tir and tests/data/pallas and some random ones through runtime/cuda.h, in both forms, against the
# interpreter, on the libcuda that runs PTX on the emulator (tests/support/cuda); tests/nvidia/run does the same on a
# GPU. And what the fuzzer does about a device that is lost to its process.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
build=${TESSERA_BUILD_DIR:-build}
export LD_LIBRARY_PATH=$build/tests/fake_cuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
passed=0 failed=0
fuzz() { "$build/tests/fuzz" --target none --no-passes --device cuda "$@" 2>&1; }
run() {
  local out
  out=$(FAKE_CUDA_UNWRITTEN=1 fuzz "$@")
  printf '%s\n' "$out"
  read -r p f <<< "$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' <<< "$out" | tail -n 1)"
  if [ -z "${p:-}" ]; then p=0 f=1; fi
  passed=$((passed + p)) failed=$((failed + f))
}
run tests/tir/*.tir tests/data/pallas/*.tir
run --seed 1 --count 60

# This kernel's atomics take words of which nobody has written every byte, and the emulator ends it there.
out=$(fuzz tests/tir/add.tir tests/tir/atomics_beside_stores.tir tests/tir/iota.tir)
want="2 passed, 1 failed"
if [ "$(tail -n 1 <<< "$out")" = "$want" ] &&
    grep -q 'atomics_beside_stores.tir FAILED in general/device' <<< "$out"; then passed=$((passed + 1))
else failed=$((failed + 1)); printf 'FAILED: a lost device costs one case and no more ("%s"):\n%s\n' "$want" "$out"; fi
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
