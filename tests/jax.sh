#!/usr/bin/env bash
# The Python package: built against the installed library of this build, installed in a virtual environment with a
# pinned JAX, and tested by tests/jax; once with the oldest JAX that it is made for, and once with the newest. Both come
# from the machine's package index; where that, or a Python of 3.11 or later, is missing, the suite says so and tests
# nothing. TESSERA_PYTHON names the Python to use. The newest JAX needs 3.12: where that Python is older, a newer one on
# the path or of pyenv is used for it. The newest JAX runs fewer random kernels, and not the tests of several processes,
# of the transformer and of TESSERA_CACHE, unless TESSERA_TESTS_ALL=1 asks for everything.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${TESSERA_BUILD_DIR:-$root/build}
passed=0 failed=0

end() { printf '%d passed, %d failed\n' "$passed" "$failed"; [ "$failed" -eq 0 ]; exit; }
skip() { printf 'skipped: %s\n' "$1"; }
broken() { printf 'FAILED: %s\n' "$1"; tail -n 40 "$build/jax/log" | sed 's/^/  /'; failed=$((failed + 1)); }
is_python() { "$1" -c "import sys; sys.exit(sys.version_info < (3, $2))" 2>/dev/null; }
newer_python() {
  local p
  for p in "$python" python3.14 python3.13 python3.12 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python3; do
    is_python "$p" 12 && { echo "$p"; return; }
  done
}
number() { local n; n=$(sed -n "s/.*\b\([0-9][0-9]*\) $1.*/\1/p" log | tail -n 1); printf "%d" "${n:-0}"; }

# JAX PYTHON [PYTEST'S OPTIONS]
suite() {
  local jax=$1 python=$2 venv=$build/jax/venv-$1 status now why
  shift 2
  if [ ! -f "$venv/complete" ]; then
    rm -rf "$venv"
    "$python" -m venv "$venv" > "$build/jax/log" 2>&1 ||
      { skip "$python cannot make a virtual environment (Debian: python3-venv)"; return; }
    timeout 400 "$venv/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 15 "jax==$jax" absl-py \
      flatbuffers pytest scikit-build-core > "$build/jax/log" 2>&1 ||
      { why=$(grep -v '^ *$' "$build/jax/log" | tail -n 1)
        skip "pip could not install jax $jax, absl-py, flatbuffers, pytest and scikit-build-core: $why"; return; }
    touch "$venv/complete"
  fi
  CMAKE_PREFIX_PATH=$build/jax/prefix "$venv/bin/pip" install --disable-pip-version-check --no-index \
    --no-build-isolation --no-deps --force-reinstall -C build-dir="$build/jax/package-$jax" "$root/runtime/python" \
    > "$build/jax/log" 2>&1 ||
    { broken "pip install ./runtime/python, with jax $jax"; return; }
  printf 'with jax %s:\n' "$jax"
  cd "$build/jax" || exit 1  # not the root: what is imported is what was installed
  TESSERA_FAKE_CUDA=$build/tests/fake_cuda JAX_PLATFORMS=cpu \
    "$venv/bin/python" -m pytest -q -p no:cacheprovider --rootdir "$root/tests/jax" "$root/tests/jax" "$@" 2>&1 |
    tee log
  status=${PIPESTATUS[0]}
  now=$(($(number failed) + $(number error)))
  [ "$status" -eq 0 ] || [ "$now" -gt 0 ] || now=1
  passed=$((passed + $(number passed))) failed=$((failed + now))
}

[ -f "$build/libtessera.a" ] || { skip "this build has no library tessera"; end; }
python=${TESSERA_PYTHON:-python3}
is_python "$python" 11 || { skip "$python is missing or older than 3.11"; end; }
mkdir -p "$build/jax"
cmake --install "$build" --prefix "$build/jax/prefix" > "$build/jax/log" 2>&1 || { broken "cmake --install"; end; }
suite 0.10.2 "$python"
newer=$(newer_python) fewer=()
[ -n "${TESSERA_TESTS_ALL:-}" ] || {
  export TESSERA_TEST_KERNELS=${TESSERA_TEST_KERNELS:-30}
  for name in distributed transformer cache; do fewer+=("--ignore=$root/tests/jax/test_$name.py"); done
}
if [ -n "$newer" ]; then suite 0.12.0.1 "$newer" "${fewer[@]}"
else skip "there is no Python of 3.12 or later for jax 0.12.0.1"; fi
end
