#!/usr/bin/env bash
# The layout that the whole repository keeps: the top level, the direction of includes, the length of files, and what no
# file may name.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

. tests/support/checks.sh

if git rev-parse --git-dir >/dev/null 2>&1; then
  mapfile -t files < <(git ls-files --cached --others --exclude-standard |
    while read -r f; do [ -f "$f" ] && echo "$f"; done)
else
  mapfile -t files < <(find . -type f -not -path './build*' -not -path './.*/*' | sed 's|^\./||')
fi
[ ${#files[@]} -gt 20 ] || { echo "structure.sh: only ${#files[@]} files found"; echo "0 passed, 1 failed"; exit 1; }
of() { printf '%s\n' "${files[@]}" | grep -E "$1"; }                       # files whose path matches
lines() { of "$1" | xargs -r -d '\n' grep -nE "$2" /dev/null; }            # lines that match in those files

check "the top level holds the six folders and the few files of the design" "$(
  printf '%s\n' "${files[@]}" | cut -d/ -f1 | sort -u |
    grep -vxE -e 'engine|codegen|shaders|runtime|tests|samples|CMakeLists\.txt|CMakePresets\.json' \
      -e '(README|CONTRIBUTING|CHANGELOG)\.md|LICENSE|\..*')"

cxx='\.(h|cpp|def)$'
check "engine includes nothing of codegen, runtime, samples or Vulkan" \
  "$(lines "^engine/.*$cxx" '#include *[<"](codegen|runtime|samples|tests|vulkan|spirv)')"
check "codegen includes nothing of runtime, samples or Vulkan" \
  "$(lines "^codegen/.*$cxx" '#include *[<"](runtime|samples|tests|vulkan)')"
check "runtime includes nothing of samples or tests" "$(lines "^runtime/.*$cxx" '#include *[<"](samples|tests)')"
check "outside runtime/call, runtime/cli and runtime/python, runtime sees only plain data of codegen and no IR" "$(
  lines "^runtime/.*$cxx" '#include *"(codegen/|engine/(ir|front|passes|interpreter)/)' |
    grep -vE '^runtime/(call|cli|python)/' | grep -vE '"codegen/program/')"
check "samples include only the public header and their own helpers" "$(
  lines "^samples/.*$cxx" '#include *"' | grep -vE '#include *"samples/')"

# Folders and what they include, as pairs; tsort finds a circle.
folders() { of '^(engine|codegen|runtime)/.*\.(h|cpp|def)$' | xargs -r -d '\n' dirname | sort -u; }
check "no folder includes in a circle" "$(
  for f in $(of '^(engine|codegen|runtime)/.*\.(h|cpp|def)$'); do
    sed -nE 's|^#include "((engine\|codegen\|runtime)(/[^"]*)?)/[^"/]*".*|\1|p' "$f" |
      awk -v from="$(dirname "$f")" '$0 != from { print from, $0 }'
  done | sort -u | tsort 2>&1 >/dev/null)"
check "runtime/ itself holds headers that include none of its folders" \
  "$(of '^runtime/[^/]*\.cpp$'; lines '^runtime/[^/]*\.h$' '#include "runtime/[^"]*/')"
check "every folder has a README" "$(for d in $(folders); do [ -f "$d/README.md" ] || echo "$d"; done)"
check "the README of a folder is a screen, at most 40 lines; what is more stands on pages beside it" "$(
  of '^(engine|codegen|runtime|shaders)(/.*)?/README\.md$' | xargs -r -d '\n' wc -l |
    awk '$2 != "total" && $1 > 40 { print $2, $1 }')"
check "no folder has more than 20 modules (a header and its source are one)" "$(
  for d in $(folders); do
    n=$(of "^$d/[^/]*\.(h|cpp|def)$" | sed -E 's/\.(h|cpp|def)$//' | sort -u | wc -l); [ "$n" -le 20 ] || echo "$d: $n"
  done)"

check "one place reads TESSERA_DEVICE" "$(
  lines '^(engine|codegen|runtime)/.*\.(h|cpp|py)$' '(getenv\(|environ).*"TESSERA_DEVICE"' | sed 1d)"
check "no switch over ops has a default, but for three that say why" \
  "$(printf '%s\n' "${files[@]}" | python3 tests/support/opcode_switches.py)"
check "comments and pages name files and folders that are there" \
  "$(printf '%s\n' "${files[@]}" | python3 tests/support/named_files.py)"

check "no source file is longer than 800 lines" "$(
  of '\.(h|cpp|def|sh|py|comp|cmake|txt)$|/run$' | grep -vE '^tests/.*/data/' | xargs -r -d '\n' wc -l |
    awk '$2 != "total" && $1 > 800 { print $2, $1 }')"
check "no function is longer than 80 lines, but for test cases, tables and switches over ops" \
  "$(printf '%s\n' "${files[@]}" | python3 tests/support/long_functions.py)"
check "no function of engine, codegen and runtime has more than six parameters" \
  "$(printf '%s\n' "${files[@]}" | python3 tests/support/many_parameters.py)"
check "a file of tests is a namespace of its name, so that files can be compiled together" "$(
  for f in $(of '_test\.cpp$'); do n=${f##*/}; grep -qE "^namespace (tessera::)?${n%.cpp} \{" "$f" || echo "$f"; done)"
check "every header has #pragma once" "$(of '\.h$' | xargs -r -d '\n' grep -L '#pragma once')"
check "every header begins with a comment that says what it is" "$(
  for f in $(of '\.h$'); do head -n 1 "$f" | grep -q '^//' || echo "$f"; done)"

text='\.(h|cpp|def|sh|py|comp|glsl|cmake|in|txt|json|md|tir)$|/run$'
# The name of SVG's namespace, which every SVG file has to have, is no place that anything is fetched from.
check "no file names a host to download from" "$(
  lines "$text" '[a-z]://[a-z0-9.-]+\.[a-z]|(deb|ftp)\.[a-z]+\.(org|com)' |
    grep -v 'xmlns=..http://www.w3.org/2000/svg')"
check "no file holds a path of one machine" "$(
  lines "$text" '(^|[^[:alnum:]_.$}*])/(home|root|work|Users|mnt)/[a-z]'
  lines "$text" "$(printf '%s' "$PWD" | sed 's/[.+]/\\&/g')/")"
check "no line admits to unfinished work" "$(lines "$cxx" '\b(TODO|FIXME|XXX|HACK)\b')"

printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
