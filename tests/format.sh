#!/usr/bin/env bash
# tests/format.sh [--fix]: every C and C++ file is as .clang-format says; --fix makes it so. Formatters of different
# versions differ, so one of them, from the machine's package index, is what counts; where pip cannot get it, the suite
# says so and tests nothing. TESSERA_CLANG_FORMAT names that version's program where it is there already.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=19.1.7
venv=${TESSERA_BUILD_DIR:-$root/build}/clang-format-$version
. "$root/tests/support/checks.sh"

end() { printf '%d passed, %d failed\n' "$passed" "$failed"; [ "$failed" -eq 0 ]; exit; }
skip() { printf 'skipped: %s\n' "$1"; end; }

formatter=${TESSERA_CLANG_FORMAT:-$venv/bin/clang-format}
if [ ! -x "$formatter" ]; then
  python3 -m venv "$venv" > /dev/null 2>&1 ||
    skip "python3 cannot make a virtual environment (Debian: python3-venv)"
  timeout 200 "$venv/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 15 \
    "clang-format==$version" 2> "$venv/log" || skip "pip could not install clang-format $version: $(tail -n 1 \
    "$venv/log")"
fi
case $("$formatter" --version) in
  *" $version"*) ;;
  *) skip "$formatter is not clang-format $version" ;;
esac

cd "$root" || exit 1
sources() {  # not ops.def and its like, whose rows are tables
  if git rev-parse --git-dir > /dev/null 2>&1; then
    git ls-files --cached --others --exclude-standard | while read -r f; do [ -f "$f" ] && echo "$f"; done
  else
    find . -type f -not -path './build*' -not -path './.*/*' | sed 's|^\./||'
  fi | grep -E '\.(h|hpp|c|cpp)$'
}
[ "${1:-}" = --fix ] && sources | xargs -d '\n' -P 2 -n 40 "$formatter" -i
check "every C and C++ file is formatted (tests/format.sh --fix)" "$(
  sources | xargs -d '\n' -P 2 -n 40 "$formatter" --dry-run -Werror 2>&1 | sed -n 's/: error: .*//p' | cut -d: -f1 |
    sort -u)"
end
