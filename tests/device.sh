#!/usr/bin/env bash
# The kernels of tests/tir and tests/data/pallas and some random ones on the Vulkan device, in both forms, against the
# interpreter; with the device's features, and with code for the least that Vulkan promises: 16 KiB of shared memory,
# 128 invocations, no subgroup operations, types of 32 bits. The suite `fuzz` runs more of them, on the lane-level
# interpreter; drivers have bugs of their own. On an empty cache of shaders nearly all of the time is lavapipe's
# compiler, and most of that the general form, which is large and has many barriers. So the general form of a file is
# run once: of every other file with the device's features, of the rest for the least that Vulkan promises. It and code
# for that least are compiled without LLVM's optimisations. Both forms of every file for both, with optimisations: under
# TESSERA_TESTS_ALL, and on a newer lavapipe by tests/vendors/run (.ci/run).
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
fuzz=${TESSERA_BUILD_DIR:-build}/tests/fuzz
passed=0 failed=0
run() {
  local out
  out=$("$fuzz" --device vulkan --target none "$@" 2>&1)
  printf '%s\n' "$out"
  read -r p f <<< "$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' <<< "$out" | tail -n 1)"
  if [ -z "${p:-}" ]; then p=0 f=1; fi
  passed=$((passed + p)) failed=$((failed + f))
}
plain() { GALLIVM_PERF=nopt run "$@"; }  # another driver does not know the variable
files=(tests/tir/*.tir) pallas=(tests/data/pallas/*.tir)
if [ "${TESSERA_TESTS_ALL:-0}" = 1 ]; then
  run "${files[@]}" "${pallas[@]}" --no-passes
  run --device minimum "${files[@]}" --no-passes
  run --target all --seed 1 --count 600
  run --device minimum --seed 1000 --count 300 --no-passes
  run --seed 2000 --count 150 --no-passes --optimised
else
  # Most compiled for the device once: the suite `fuzz` has the passes and the lane-level interpreter for these.
  even=() odd=()
  for i in "${!files[@]}"; do if ((i % 2)); then odd+=("${files[i]}"); else even+=("${files[i]}"); fi; done
  run "${files[@]}" "${pallas[@]}" --no-passes --codegen fast
  plain "${even[@]}" "${pallas[@]}" --no-passes --codegen general
  plain --device minimum "${files[@]}" --no-passes --codegen fast
  plain --device minimum "${odd[@]}" --no-passes --codegen general
  run --seed 1 --count 30 --no-passes
  run --seed 31 --count 270 --no-passes --codegen fast
  plain --device minimum --seed 1000 --count 10 --no-passes
  run --seed 2000 --count 6 --no-passes --codegen fast --optimised
fi
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
