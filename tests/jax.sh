#!/usr/bin/env bash
# The Python package: built against the installed library of this build, installed in a virtual environment with the pinned JAX, and tested by
# tests/jax. Both come from the machine's package index; where that, or a Python of 3.11 or later, is missing, the suite says so and tests nothing.
# TESSERA_PYTHON names the Python to use.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${TESSERA_BUILD_DIR:-$root/build}
python=${TESSERA_PYTHON:-python3}
jax=0.10.2
venv=$build/jax/venv-$jax

skip() { printf 'skipped: %s\n0 passed, 0 failed\n' "$1"; exit 0; }
broken() { printf 'FAILED: %s\n' "$1"; tail -n 40 "$build/jax/log" | sed 's/^/  /'; echo "0 passed, 1 failed"; exit 1; }

[ -f "$build/libtessera.a" ] || skip "this build has no library tessera"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || skip "$python is missing or older than 3.11"
mkdir -p "$build/jax"
if [ ! -f "$venv/complete" ]; then
  rm -rf "$venv"
  "$python" -m venv "$venv" > "$build/jax/log" 2>&1 || skip "$python cannot make a virtual environment (Debian: python3-venv)"
  timeout 400 "$venv/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 15 "jax==$jax" pytest scikit-build-core > "$build/jax/log" 2>&1 ||
    skip "pip could not install jax $jax, pytest and scikit-build-core: $(grep -v '^ *$' "$build/jax/log" | tail -n 1)"
  touch "$venv/complete"
fi
cmake --install "$build" --prefix "$build/jax/prefix" > "$build/jax/log" 2>&1 || broken "cmake --install"
CMAKE_PREFIX_PATH=$build/jax/prefix "$venv/bin/pip" install --disable-pip-version-check --no-index --no-build-isolation --no-deps --force-reinstall \
  -C build-dir="$build/jax/package" "$root/runtime/python" > "$build/jax/log" 2>&1 || broken "pip install ./runtime/python"

cd "$build/jax" || exit 1  # not the root: what is imported is what was installed
JAX_PLATFORMS=cpu "$venv/bin/python" -m pytest -q -p no:cacheprovider --rootdir "$root/tests/jax" "$root/tests/jax" 2>&1 | tee log
status=${PIPESTATUS[0]}
number() { local n; n=$(sed -n "s/.*\b\([0-9][0-9]*\) $1.*/\1/p" log | tail -n 1); printf "%d" "${n:-0}"; }
failed=$(($(number failed) + $(number error)))
[ "$status" -eq 0 ] || [ "$failed" -gt 0 ] || failed=1
printf '%d passed, %d failed\n' "$(number passed)" "$failed"
[ "$failed" -eq 0 ]
