#!/usr/bin/env bash
# The kernels of tests/tir and tests/data/pallas and some random ones on the Vulkan device, in both forms, against the interpreter; with the device's features, and with code
# for the least that Vulkan promises: 16 KiB of shared memory, 128 invocations, no subgroup operations, types of 32 bits. The suite `fuzz` runs more of them, on
# the lane-level interpreter; drivers have bugs of their own.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
fuzz=${TESSERA_BUILD_DIR:-build}/tests/fuzz
passed=0 failed=0
run() {
  local out
  out=$("$fuzz" --device vulkan "$@" 2>&1)
  printf '%s\n' "$out"
  read -r p f <<< "$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' <<< "$out" | tail -n 1)"
  if [ -z "${p:-}" ]; then p=0 f=1; fi
  passed=$((passed + p)) failed=$((failed + f))
}
run tests/tir/*.tir tests/data/pallas/*.tir --target none --no-passes
run --device minimum tests/tir/*.tir --target none --no-passes
if [ "${TESSERA_TESTS_ALL:-0}" = 1 ]; then
  run --seed 1 --count 600
  run --device minimum --seed 1000 --count 300 --target none --no-passes
  run --seed 2000 --count 150 --target none --no-passes --optimised
else  # most compiled for the device once; the suite `fuzz` has the passes and the lane-level interpreter for these files and seeds
  run --seed 1 --count 30 --target none --no-passes
  run --seed 31 --count 270 --target none --no-passes --codegen fast
  run --device minimum --seed 1000 --count 10 --target none --no-passes
  run --seed 2000 --count 6 --target none --no-passes --codegen fast --optimised
fi
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
