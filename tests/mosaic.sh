#!/usr/bin/env bash
# The TPU backend without a TPU: kernels of tests/tir as Mosaic modules, which jaxlib's MLIR parses and verifies and an
# evaluator computes (tests/mosaic). jaxlib comes from the machine's package index, into the environment that jax.sh
# makes if it is there; without an index or a Python of 3.11 or later, the suite says so and tests nothing.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${TESSERA_BUILD_DIR:-$root/build}
python=${TESSERA_PYTHON:-python3}

skip() { printf 'skipped: %s\n0 passed, 0 failed\n' "$1"; exit 0; }
[ -x "$build/tessera" ] || skip "this build has no command line"
"$python" -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null ||
  skip "$python is missing or older than 3.11"
venv=$build/jax/venv-0.10.2
if [ ! -f "$venv/complete" ]; then
  venv=$build/mosaic/venv
  if [ ! -f "$venv/complete" ]; then
    mkdir -p "$build/mosaic"
    rm -rf "$venv"
    "$python" -m venv "$venv" > "$build/mosaic/log" 2>&1 ||
      skip "$python cannot make a virtual environment (Debian: python3-venv)"
    timeout 400 "$venv/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 15 "jax==0.10.2" \
      > "$build/mosaic/log" 2>&1 ||
      skip "pip could not install jax 0.10.2: $(grep -v '^ *$' "$build/mosaic/log" | tail -n 1)"
    touch "$venv/complete"
  fi
fi
JAX_PLATFORMS=cpu exec "$venv/bin/python" "$root/tests/mosaic/check.py" "$build/tessera" "$root" "$@"
