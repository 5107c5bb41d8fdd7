#!/usr/bin/env bash
# The library behind the C interface: small, without the compiler, needing nothing but the C++ runtime, and showing the
# functions of tessera.h alone.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${TESSERA_BUILD_DIR:-$root/build}
library=$build/libtessera_c.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

. "$root/tests/support/checks.sh"
[ -f "$library" ] || { echo "library.sh: there is no $library"; echo "0 passed, 1 failed"; exit 1; }
setting() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

check "it exports the functions of tessera.h and nothing else" "$(diff \
  <(nm -D --defined-only "$library" | awk '{ print $3 }' | grep -v '@@\|^_\(init\|fini\)$' | sort) \
  <(grep -ohE 'TESSERA_API [^(]*[ *]tessera_[a-z_]+\(' "$root"/runtime/c/tessera*.h | grep -oE 'tessera_[a-z_]+\($' |
    tr -d '(' | sort) | head -n 20)"
check "each of them is called with NULLs in a test" "$(diff \
  <(nm -D --defined-only "$library" | awk '{ print $3 }' | grep '^tessera_' | sort) \
  <(grep -oE 'tessera_[a-z_]+\(' "$root/tests/c/nulls_test.c" | tr -d '(' | sort -u) | head -n 20)"
check "there is no compiler, interpreter or reader of kernels in it" "$(nm -C "$library" 2>&1 |
  grep -E -e 'tessera::(ir|passes|lane|lower|spirv|front|reference::eval|interpret|compile|make_bundle|parse_npy)' \
    -e 'tessera::load|spvtools|cblas' | head -n 20)"
check "it holds what it is for" "$(
  nm -C "$library" | grep -q 'tessera::launch' || echo "no tessera::launch: is it stripped?")"
check "it needs nothing but the C and C++ libraries" "$(
  readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
    grep -vE '^(libstdc\+\+|libm|libgcc_s|libc|libdl|ld-linux.*|lib[atlu]*san)\.so')"

check "the sample in C, which has no other library of Tessera, is right" "$(
  output=$("$build/samples/normalise" 2>&1) && [[ $output == "normalise: 1000 x 128 on "*": ok" ]] ||
    printf '%s\n' "$output")"
check "and says what is wrong" "$(
  output=$("$build/samples/normalise" "$root/README.md" 2>&1)
  [ "$output" = "normalise: $root/README.md: is no bundle of kernels: it does not begin with \"TESSERA\"
  note: tessera bundle makes bundles, of .tir files" ] || printf '%s\n' "$output")"

# Sanitizers and missing optimisation make anything large.
if [ "$(setting CMAKE_BUILD_TYPE)" = Release ]; then
  strip -o "$work/stripped.so" "$library"
  bytes=$(stat -c %s "$work/stripped.so")
  echo "stripped: $bytes bytes"
  check "it takes less than a megabyte" "$([ "$bytes" -lt 1000000 ] || echo "$bytes bytes")"
else
  echo "its size is not measured: this is no Release build"
fi

printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
