#!/usr/bin/env bash
# tests/format.sh [--fix]: every C and C++ file is as .clang-format says, every Python file as black makes it, and lines
# are at most 120 columns everywhere; --fix makes the first two so. Formatters of different versions differ, so one of
# each, from the machine's package index, is what counts; where pip cannot get one, the suite says so and leaves its
# test out. TESSERA_CLANG_FORMAT and TESSERA_BLACK name these versions' programs where they are there already.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${TESSERA_BUILD_DIR:-$root/build}
. "$root/tests/support/checks.sh"

# formatter PROGRAM VERSION PATH: puts the program into `formatter`: PATH, or else that of a virtual environment, which
# it makes. False where there is none; then it has said why.
formatter() {
  local name=$1 version=$2 venv=$build/$1-$2 why
  formatter=${3:-$venv/bin/$name}
  if [ ! -x "$formatter" ]; then
    python3 -m venv "$venv" > /dev/null 2>&1 ||
      { echo "skipped: python3 cannot make a virtual environment (Debian: python3-venv)"; return 1; }
    timeout 200 "$venv/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 15 "$name==$version" \
      2> "$venv/log" ||
      { why=$(tail -n 1 "$venv/log"); echo "skipped: pip could not install $name $version: $why"; return 1; }
  fi
  case $("$formatter" --version) in
    *" $version"*) ;;
    *) echo "skipped: $formatter is not $name $version"; return 1 ;;
  esac
}

cd "$root" || exit 1
if git rev-parse --git-dir > /dev/null 2>&1; then
  mapfile -t files < <(git ls-files --cached --others --exclude-standard |
    while read -r f; do [ -f "$f" ] && echo "$f"; done)
else
  mapfile -t files < <(find . -type f -not -path './build*' -not -path './.*/*' | sed 's|^\./||')
fi
of() { printf '%s\n' "${files[@]}" | grep -E "$1"; }  # files whose path matches
cxx='\.(h|hpp|c|cpp)$'  # not ops.def and its like, whose rows are tables

if formatter clang-format 19.1.7 "${TESSERA_CLANG_FORMAT:-}"; then
  [ "${1:-}" = --fix ] && of "$cxx" | xargs -d '\n' -P 2 -n 40 "$formatter" -i
  check "every C and C++ file is formatted (tests/format.sh --fix)" "$(
    of "$cxx" | xargs -d '\n' -P 2 -n 40 "$formatter" --dry-run -Werror 2>&1 | sed -n 's/: error: .*//p' |
      cut -d: -f1 | sort -u)"
fi
if formatter black 25.1.0 "${TESSERA_BLACK:-}"; then
  [ "${1:-}" = --fix ] && of '\.py$' | xargs -d '\n' "$formatter" -q --line-length 120
  check "every Python file is formatted (tests/format.sh --fix); tables stand between fmt: off and fmt: on" "$(
    of '\.py$' | xargs -d '\n' "$formatter" --check --line-length 120 2>&1 | grep -E '^(would reformat|error:) ')"
fi
check "lines are at most 120 columns, but for what tests/support/line_lengths.py lists" "$(
  printf '%s\n' "${files[@]}" | python3 tests/support/line_lengths.py)"
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
