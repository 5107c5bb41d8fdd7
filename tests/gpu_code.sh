#!/usr/bin/env bash
# The machine code that this machine's AMD driver makes of the kernels of tests/bench/gpu spills no more, and is no
# longer, than bounds.tsv there says; no GPU is needed, and nothing is executed. And the programs that read machine code
# read that of tests. TESSERA_BLESS=1 rewrites the bounds of the driver's version that there is.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
export PYTHONDONTWRITEBYTECODE=1
passed=0 failed=0
run() {
  local out p f
  out=$(python3 "$@" 2>&1)
  printf '%s\n' "$out"
  read -r p f <<< "$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' <<< "$out" | tail -n 1)"
  if [ -z "${p:-}" ]; then p=0 f=1; fi
  passed=$((passed + p)) failed=$((failed + f))
}
run tests/bench/gpu/analyse_test.py
run tests/bench/gpu/bounds.py --build "${TESSERA_BUILD_DIR:-build}"
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
