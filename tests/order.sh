#!/usr/bin/env bash
# Generated code does not depend on the C++ compiler that built Tessera (tests/support/one_order.py). Reading C++ takes
# libclang, from the machine's package index, and the headers of a clang that is installed; where one of them is
# missing, the suite says so and tests nothing.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=18.1.1
venv=${TESSERA_BUILD_DIR:-$root/build}/libclang-$version
. "$root/tests/support/checks.sh"

end() { printf '%d passed, %d failed\n' "$passed" "$failed"; [ "$failed" -eq 0 ]; exit; }
skip() { printf 'skipped: %s\n' "$1"; end; }

headers=$(clang -print-resource-dir 2> /dev/null) || skip "there is no clang"
if ! "$venv/bin/python" -c 'import clang.cindex' 2> /dev/null; then
  python3 -m venv "$venv" > /dev/null 2>&1 ||
    skip "python3 cannot make a virtual environment (Debian: python3-venv)"
  timeout 200 "$venv/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 15 \
    "libclang==$version" 2> "$venv/log" || skip "pip could not install libclang $version: $(tail -n 1 "$venv/log")"
fi

cd "$root" || exit 1
check "no two arguments of one call, or operands of one operator, both make ops or instructions" "$(
  "$venv/bin/python" tests/support/one_order.py "$headers" 2>&1)"
end
