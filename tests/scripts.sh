#!/usr/bin/env bash
# samples/run, tests/run and tests/bench/run as a new user meets them: help, wrong arguments, packages that are missing,
# and a build folder in which an earlier configuration failed. Nothing is installed and Tessera is not built.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

passed=0 failed=0
# expect "what" STATUS "output" command...: the command's exit status and all that it prints.
expect() {
  local what=$1 status=$2 output=$3 got code
  shift 3
  got=$("$@" 2>&1)
  code=$?
  if [ $code = "$status" ] && [ "$got" = "$output" ]; then
    echo "ok: $what"
    passed=$((passed + 1))
  else
    printf 'FAILED: %s: exit status %d\n%s\ninstead of %d\n%s\n' "$what" $code "$got" "$status" "$output"
    failed=$((failed + 1))
  fi
}

for script in samples/run tests/run tests/bench/run; do
  usage=$(sed -n 's/.*"usage: \(.*\)" ;;$/\1/p' "$root/$script")
  expect "$script refuses an unknown option" 1 "FAILED: $script: unknown option --frob
  usage: $usage" "$root/$script" --frob
  for option in -h --help; do
    expect "$script $option prints what the script begins with" 0 \
      "$(sed -n '2,/^set -u/p' "$root/$script" | sed -n 's/^# \{0,1\}//p')" "$root/$script" $option
  done
  expect "$script says how it is called" 0 "$usage" bash -c "'$root/$script' --help | grep -oF '$usage' | head -1"
done

# What setup.sh says, with the machine's answers replaced.
missing() {  # the packages that are missing; whether apt knows the one of Debian 13
  (
    . "$root/tests/support/setup.sh"
    installed() { case " $absent " in *" $1 "*) return 1 ;; esac; }
    id() { echo 1000; }
    apt-cache() { return "$unknown"; }
    apt-get() { echo "apt-get must not run"; }
    absent=$1 unknown=$2
    install_missing
  )
}
vma=libvulkan-memory-allocator-dev
expect "without root, nothing is missing" 0 "" missing "" 1
expect "without root, packages of this Debian are missing" 1 \
  "FAILED: these packages are missing, and installing them takes root: glslang-tools ninja-build
  as root: apt-get install glslang-tools ninja-build
  to build with what is there: $0 --no-install" missing "ninja-build glslang-tools" 1
expect "without root, the package of Debian 13 is missing too" 1 \
  "FAILED: these packages are missing, and installing them takes root: ninja-build $vma
  as root: apt-get install ninja-build
  $vma is in Debian 13 and later: run this script as root to have it fetched from there, or install that .deb by hand
  to build with what is there: $0 --no-install" missing "$vma ninja-build" 1
expect "without root on Debian 13" 1 "FAILED: these packages are missing, and installing them takes root: $vma
  as root: apt-get install $vma
  to build with what is there: $0 --no-install" missing "$vma" 0

# A configuration that failed leaves a cache that names its generator; the next one may have another.
cp "$root/CMakePresets.json" "$work"
printf '%s\n' 'cmake_minimum_required(VERSION 3.20)' 'project(small LANGUAGES NONE)' "if(NOT EXISTS \"$work/good\")" \
  '  message(FATAL_ERROR "not yet")' 'endif()' > "$work/CMakeLists.txt"
configure_small() { (scripts=$root/tests/support; root=$work; . "$scripts/setup.sh"; configure) > /dev/null 2>&1; }
failed_once() { ! (cd "$work" && cmake --preset release -G "Unix Makefiles") > /dev/null 2>&1 &&
  [ -f "$work/build/CMakeCache.txt" ]; }
expect "a configuration fails" 0 "" failed_once
touch "$work/good"
if command -v ninja > /dev/null; then
  expect "a later one starts afresh, with ninja" 0 "" configure_small
  expect "and makes build files" 0 "" test -f "$work/build/build.ninja"
fi

printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
