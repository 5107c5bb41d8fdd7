#!/usr/bin/env bash
# Another project uses Tessera: installed in a prefix and found by find_package, and as a subdirectory of its own tree.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${TESSERA_BUILD_DIR:-$root/build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

passed=0 failed=0
# try "what" command...: one test; its output is shown when it fails.
try() {
  local what=$1
  shift
  if "$@" > "$work/log" 2>&1; then
    echo "ok: $what"
    passed=$((passed + 1))
  else
    printf 'FAILED: %s\n' "$what"
    tail -n 40 "$work/log" | sed 's/^/  /'
    failed=$((failed + 1))
  fi
}
options=(-DCMAKE_BUILD_TYPE=None -DTESSERA_UNITY=ON)  # what is tested is the package: no optimisation
command -v ninja >/dev/null && options+=(-G Ninja)
command -v ccache >/dev/null && options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
version=$(sed -n 's/^project(Tessera VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")

# The program is the README's first one, and its last comment is what it prints.
awk '/^```cpp/ { inside = 1; next } /^```/ { if (inside) exit } inside' "$root/README.md" > "$work/main.cpp"
expected=$(sed -n 's/.*std::cout << z.*\/\/ //p' "$work/main.cpp")

try "cmake --install" cmake --install "$build" --prefix "$work/prefix"
try "the installed files name no path of the source tree" \
  bash -c "! grep -rIlF '$root/' '$work/prefix/lib' '$work/prefix/include'"
try "find_package finds it in the prefix" cmake -S "$root/tests/consumer" -B "$work/found" "${options[@]}" \
  -DMAIN="$work/main.cpp" -DCMAKE_PREFIX_PATH="$work/prefix"
try "programs that use the package build" cmake --build "$work/found" --parallel "$(nproc)"
try "the README's program prints what the README says" \
  bash -c "[ -n '$expected' ] && '$work/found/consumer' | tee /dev/stderr | grep -qxF '$expected'"
try "a program that uses the engine alone gives the right answer" "$work/found/consumer_engine"
try "kernels compiled ahead of time run in a program without a compiler" \
  bash -c "[ \"\$('$work/found/consumer_ahead')\" = 'f32[3] [3 6 9]
f32[3] [9 18 27]' ]"
try "and in one in C" \
  bash -c "[ \"\$('$work/found/plain/consumer_c' \"\$(cat '$work/found/bundle.txt')\")\" = '3 6 9' ]"
try "kernels in C++ run in a program in C++, with numbers and sizes" \
  bash -c "[ \"\$('$work/found/consumer_traced')\" = 'f32[3] [4 5.5 7]
f32[3] [0 2.5 5]
i32[2, 3] [[10 11 12] [13 14 15]]
f32[3] [3 6 9]' ]"
try "and in one in C" bash -c "[ \"\$('$work/found/plain/consumer_traced_c')\" = '-2.5 5 170; 10 15
count: the bundle'\\''s kernel is (i32 by value) -> (i32[h, w]) but the header was made for (f32[n]) -> (f32[n])
  at filters.cpp:31
  note: use the header that tessera bundle wrote with the bundle' ]"
try "a bundle and its header name no folder of the machine" bash -c "
  find '$work/found/kernels' -name '*.tir' | grep -q . &&
  ! grep -rlE --include=*.tsb --include=*.hpp --include=*.h --include=*.tir '$root/|$work/' '$work/found/kernels'"
try "nothing is compiled again while nothing has changed" bash -c "
  cmake --build '$work/found' | tee /dev/stderr | grep -qE 'no work to do|Built target' &&
  ! cmake --build '$work/found' | grep -q 'Compiling kernels'"
try "a kernel that has changed is" bash -c "
  cp -r '$root/tests/consumer' '$work/changed' &&
  cmake -S '$work/changed' -B '$work/changed/build' ${options[*]} -DMAIN='$work/main.cpp' \
    -DCMAKE_PREFIX_PATH='$work/prefix' &&
  cmake --build '$work/changed/build' --target consumer_c && sed -i 's/3.0/5.0/' '$work/changed/scale.tir' &&
  cmake --build '$work/changed/build' --target consumer_c &&
  [ \"\$('$work/changed/build/plain/consumer_c' \"\$(cat '$work/changed/build/bundle.txt')\")\" = '5 10 15' ]"
try "so is one in C++ when a header of its source has changed, and only then" bash -c "
  cmake --build '$work/changed/build' --target consumer_traced_c &&
  cmake --build '$work/changed/build' --target consumer_traced_c | tee /dev/stderr |
    grep -cE 'Tracing|Compiling' | grep -qx 0 &&
  sed -i 's/= 2/= 4/' '$work/changed/strength.h' &&
  cmake --build '$work/changed/build' --target consumer_traced_c | tee /dev/stderr |
    grep -cF 'Tracing kernels: filters.cpp' | grep -qx 1 &&
  '$work/changed/build/plain/consumer_traced_c' | tee /dev/stderr | grep -qxF -e '-2.5 11 308; 10 15'"
! command -v make >/dev/null ||
  try "make, unlike Ninja, makes no folders; the headers that are generated get theirs" bash -c "
  cmake -S '$root' -B '$work/make' -G 'Unix Makefiles' -DTESSERA_TESTS=OFF &&
  make -C '$work/make' tessera_headers && [ -s '$work/make/image_shaders/pack_2.h' ]"
include=$work/prefix/include
# alone HEADER...: each compiles with nothing before it, without a warning.
alone() {
  for header in "$@"; do
    echo "#include <tessera/$header>" | ${CXX:-c++} -std=c++20 -Wall -Wextra -Wshadow -Werror -fsyntax-only \
      -I "$include" -x c++ - || return 1
  done
}
try "the include folder holds tessera alone" bash -c "[ \"\$(ls '$include')\" = tessera ]"
try "installed headers include what is installed, by <tessera/...>" bash -c "
  cd '$include' && grep -rhoE '#include \"[^\"]*\"' . | sort -u | sed -E 's/.*\"(.*)\"/\1/' |
    while read -r f; do [ -f \"\$f\" ] || { echo \"\$f\"; exit 1; }; done"
try "the public headers compile by themselves, without a warning" alone tessera.hpp runtime.hpp vulkan.hpp ir.hpp \
  jax.hpp ahead.hpp tessera.h tessera_vulkan.h version.h
ls "$include/tessera/kernels" | sed 's/.*/#include <tessera\/kernels\/&>/' > "$include/tessera/all_kernels"
try "so do the kernels" alone all_kernels
# After the macros of Qt and X11.
{ printf '#define %s\n' 'emit' 'slots' 'signals public' 'foreach(a, b) for (a : b)' 'forever for (;;)' 'None 0L' \
  'Bool int' 'Status int' 'True 1' 'False 0' 'Always 2' 'Success 0' \
    'Above 0' 'Complex 0' 'Unsorted 0' 'CursorShape 0' 'KeyPress 2' 'FocusIn 9'
  printf '#include <tessera/%s.hpp>\n' tessera runtime vulkan jax ahead; } > "$include/tessera/after_macros"
try "and all of them after the macros of Qt and X11" alone after_macros
# With MSVC's extensions of the language and its templates that are parsed when they are used; the standard library is
# g++'s.
as_for_msvc() { CXX="clang++ -fms-extensions -fdelayed-template-parsing" alone "$@"; }
if command -v clang++ > /dev/null; then
  try "clang parses them as for MSVC, without a warning" as_for_msvc tessera.hpp runtime.hpp vulkan.hpp ir.hpp jax.hpp \
    ahead.hpp tessera.h tessera_vulkan.h
fi
# The options of MSVC's driver that CMakeLists.txt has are options that clang-cl knows.
options_for_msvc() {
  cat > "$work/options.cmake" << END
set(MSVC ON)
include($root/runtime/cmake/options.cmake)
foreach(option \${always} \${warnings} \${c_warnings} \${for_size} \${for_once} \${for_the_build}
    \${for_frames} \${for_loops} \${unoptimised} \${without_traps} \${map_paths}a=b \${own_sections})
  string(REGEX REPLACE "^.*>:(.*)>$" "\\\\1" option "\${option}")
  message("\${option}")
endforeach()
END
  cmake -P "$work/options.cmake" 2>&1
}
clang_cl=$(command -v clang-cl || find /usr/bin -name 'clang-cl-*' | sort | head -n 1)
if [ -n "$clang_cl" ]; then
  try "clang-cl knows the options for MSVC's driver" bash -c "
    options=\"$(options_for_msvc | tr '\n' ' ')\"
    [[ \$options = *' /O1 '*' /clang:-O3 '* ]] || { echo \"\$options\"; exit 1; }
    echo 'int f() { return 1; }' > '$work/f.cpp' &&
    for o in \$options; do
      '$clang_cl' \$o /c /std:c++20 -Werror=unknown-argument -Werror=unused-command-line-argument '/Fo$work/f.obj' \
        '$work/f.cpp' || exit 1
    done"
fi
# A host with files of the names that Tessera has inside.
mkdir -p "$work/host/runtime" "$work/host/engine/base"
echo 'struct Mine {};' | tee "$work/host/runtime/device.h" > "$work/host/engine/base/array.h"
printf '#include <tessera/tessera.hpp>\n#include <tessera/vulkan.hpp>\n#include "runtime/device.h"\nMine mine;\n' \
  > "$work/host/main.cpp"
try "a program with a runtime/device.h of its own gets that one" "${CXX:-c++}" -std=c++20 -fsyntax-only \
  -I "$work/host" -I "$include" "$work/host/main.cpp"
if command -v pkg-config > /dev/null; then
  lib=$(dirname "$(find "$work/prefix" -name tessera.pc)")
  try "pkg-config's flags build the README's program" bash -c "
    export PKG_CONFIG_PATH='$lib' &&
    '${CXX:-c++}' -std=c++20 '$work/main.cpp' -o '$work/by_pkg_config' \
      \$(PKG_CONFIG_PATH='$lib' pkg-config --cflags --libs tessera) &&
    '$work/by_pkg_config' | grep -qxF '$expected'"
fi
try "the man page has the options of every command" bash -c "
  grep -qF -- '\\-\\-uninitialised' '$work/prefix/share/man/man1/tessera.1' &&
  grep -qF '.SH BUNDLE' '$work/prefix/share/man/man1/tessera.1'"
# completed WORD... : what bash offers for the last word.
completed() { bash -c '. "$0" && COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) && _tessera && echo "${COMPREPLY[*]}"' \
  "$work/prefix/share/bash-completion/completions/tessera" "$@"; }
try "bash completes commands, options and their values" bash -c "$(declare -p work); $(declare -f completed)
  [ \"\$(completed tessera comp)\" = compile ] && [ \"\$(completed tessera run --ra)\" = --races ] &&
  [ \"\$(completed tessera explain --lint '')\" = 'off warn error' ]"
try "the licence is installed" bash -c "[ -n \"\$(find '$work/prefix/share' -name LICENSE)\" ]"
# found COMPONENTS...: configures a project that asks for these alone, where SPIRV-Tools cannot be found.
found() {
  mkdir -p "$work/parts"
  printf '%s\n' 'cmake_minimum_required(VERSION 3.20)' 'project(parts LANGUAGES CXX)' \
    "find_package(Tessera REQUIRED COMPONENTS $*)" 'add_executable(parts main.cpp)' \
    "target_link_libraries(parts PRIVATE Tessera::$1)" > "$work/parts/CMakeLists.txt"
  printf '#include <tessera/runtime.hpp>\nint main() { return tessera::list_devices().empty(); }\n' \
    > "$work/parts/main.cpp"
  rm -rf "$work/parts/build"
  cmake -S "$work/parts" -B "$work/parts/build" "${options[@]}" -DCMAKE_PREFIX_PATH="$work/prefix" \
    -DCMAKE_DISABLE_FIND_PACKAGE_SPIRV-Tools=ON
}
try "the component runtime needs no SPIRV-Tools" bash -c "$(declare -p options work); $(declare -f found)
  found runtime && cmake --build '$work/parts/build'"
try "a component that is not there is refused by name" bash -c "$(declare -p options work); $(declare -f found)
  found nothing 2>&1 | tr -s ' \n' ' ' | tee /dev/stderr |
    grep -qF 'Tessera has no component nothing: there are base, program, engine, codegen, runtime, tessera, \
kernels, jax, c, cli'"
# said STATEMENT SENTENCE: what the compiler says of a statement in a kernel, an error or a warning.
said() {
  cat > "$work/said.cpp" << END
#include <cmath>
#include <tessera/tessera.hpp>
void kernel(tessera::Ref x, tessera::Ref o) { using tessera::all; tessera::Value v = x[all]; $1; }
END
  "${CXX:-c++}" -std=c++20 -fsyntax-only -I "$work/prefix/include" "$work/said.cpp" 2>&1 | tee /dev/stderr |
    grep -qF "$2"
}
try "the compiler says what is wrong with o = x" said 'o = x' \
  'o = x stores nothing: o[all] = x[all] stores the elements of x in o'
try "with o = a value" said 'o = v' 'a Ref is not assigned to: o[all] = x stores x in the elements of o'
try "with std::sqrt of a read" said 'o[all] = std::sqrt(x[all])' \
  "std::sqrt takes numbers, and a kernel's Values are none while it is traced: call tessera::sqrt"
try "with std::pow of a Value" said 'o[all] = std::pow(2.0, v)' \
  "std::pow takes numbers, and a kernel's Values are none while it is traced: call tessera::pow"
# refused CODE SENTENCE: what tessera_add_kernels says, lines joined.
refused() {
  cmake -S "$root/tests/consumer" -B "$work/refused" "${options[@]}" -DMAIN="$work/main.cpp" \
    -DCMAKE_PREFIX_PATH="$work/prefix" -DMISTAKE="$1" 2>&1 | tr -s ' \n' ' ' | tee /dev/stderr |
    grep -qF "(message): $2 Call Stack"
}
try "kernels for no target are refused" refused 'tessera_add_kernels(nobody scale.tir)' \
  'tessera_add_kernels: there is no target nobody'
try "no kernels are" refused 'tessera_add_kernels(consumer EMBED)' \
  'tessera_add_kernels(consumer): no kernels (.tir files, C++ sources or folders of graphs) are given'
try "two bundles of one name for a target are" refused 'tessera_add_kernels(consumer_ahead scale.tir)' \
  'tessera_add_kernels(consumer_ahead): it has kernels called consumer_ahead_kernels already: give all files to one call, or these another NAME'
try "a target that compiles nothing is" refused 'tessera_add_kernels(Tessera::engine scale.tir)' \
  'tessera_add_kernels(Tessera::engine): that target compiles nothing here: give the executable or library whose sources include the header'
try "a keyword without a value is" refused 'tessera_add_kernels(consumer scale.tir NAMESPACE)' \
  'tessera_add_kernels(consumer): there is no value after NAMESPACE'
try "libraries for no C++ source are" refused 'tessera_add_kernels(consumer scale.tir LIBRARIES m)' \
  'tessera_add_kernels(consumer): LIBRARIES are given but no C++ source that they could be linked to: leave them out'
try "a C++ source is where what is built does not run" refused 'set(CMAKE_CROSSCOMPILING ON)
  tessera_add_kernels(consumer filters.cpp)' \
  "tessera_add_kernels(consumer): filters.cpp is compiled and run during the build, and a program for $(uname -s) on \
$(uname -m) does not run here: set CMAKE_CROSSCOMPILING_EMULATOR, or build for this machine first and give the .tir \
files that it writes to kernels/consumer of the build folder instead of filters.cpp"
# traced STATEMENTS SENTENCE: what the build says, lines joined, of a source with these statements in tessera_kernels().
mkdir -p "$work/traced"
cat > "$work/traced/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.20)
project(traced LANGUAGES CXX)
find_package(Tessera REQUIRED)
add_library(traced STATIC traced.cpp)
target_link_libraries(traced PRIVATE Tessera::runtime)
tessera_add_kernels(traced kernels.cpp copy.tir TARGETS minimum)
END
echo '#include <traced_kernels.hpp>' > "$work/traced/traced.cpp"
touch "$work/traced/kernels.cpp"
sed 's/@scale/@copy/' "$root/tests/consumer/scale.tir" > "$work/traced/copy.tir"
traced() {
  # Messages name these lines: the kernel's body is on 5, the statements on 7.
  cat > "$work/traced/kernels.cpp" << END
#include <stdexcept>
#include <tessera/ahead.hpp>
namespace ts = tessera; using ts::Ref, ts::all;
ts::PallasCall copy(const char* name, ts::ShapeDtypes in = ts::ShapeDtype{{8}, ts::f32}) { return ts::pallas_call(
  [](Ref x, Ref o) { o[all] = x[all]; }, {.out_shape = {{{8}, ts::f32}}, .name = name, .in_shape = in}); }
void tessera_kernels([[maybe_unused]] ts::KernelList& kernels) {
  $1
}
END
  cmake --build "$work/traced/build" 2>&1 | tr -s ' \n' ' ' | tee /dev/stderr | grep -qF "kernels.cpp: error: $2"
}
try "kernels in C++ configure alone" cmake -S "$work/traced" -B "$work/traced/build" "${options[@]}" \
  -DCMAKE_PREFIX_PATH="$work/prefix"
try "an error of tracing ends the build, with kernel and line" traced \
  'kernels.add(copy("wrong", ts::ShapeDtype{{9}, ts::f32}));' \
  'wrong: store: shape (9,) does not broadcast to (8,) at kernels.cpp:5 note: counted from the last dim, sizes must be equal or 1'
try "so does an exception of the source" traced 'throw std::runtime_error("no weights");' 'no weights'
try "and what is no exception" traced 'throw 1;' 'tessera_kernels() threw something that is no std::exception'
try "and a source without kernels" traced '' \
  'tessera_kernels() adds no kernel note: kernels.add(call, {"x", "y"}) adds one'
try "a kernel that is added twice names both lines" traced 'kernels.add(copy("a")); kernels.add(copy("a"));' \
  'a: a kernel of this name was added at kernels.cpp:7 at kernels.cpp:7 note: kernels of a bundle are found by name: give one of them another .name'
try "one that another file has names both files" bash -c "$(declare -p work); $(declare -f traced)
  traced 'kernels.add(copy(\"copy\"));' nothing 2>&1 | tr -s ' \n' ' ' | tee /dev/stderr |
    grep -qF 'error: copy.tir: the kernel is called copy, as is that of kernels.cpp at copy.tir:2 note: kernels of a \
bundle are found by name: give one of them another name'"
try "and fixed it builds" bash -c "$(declare -p work); $(declare -f traced)
  traced 'kernels.add(copy(\"other\"));' nothing
  [ -f '$work/traced/build/kernels/traced/traced_kernels.tsb' ] && cmake --build '$work/traced/build'"
try "the header, the command line and the changelog agree on the version" bash -c "
  [ \"\$('$work/found/consumer_engine' --version)\" = '$version' ] &&
  [ \"\$('$work/prefix/bin/tessera' --version)\" = 'tessera $version' ] &&
  grep -m1 '^## ' '$root/CHANGELOG.md' | grep -qF '## $version'"
try "a version that is not there is refused" \
  bash -c "! cmake -S '$root/tests/consumer' -B '$work/refused' ${options[*]} \
  -DCMAKE_PREFIX_PATH='$work/prefix' -DMAIN='$work/main.cpp' -DTESSERA_WANTED=9.0"
try "add_subdirectory configures, with tests and samples off" bash -c "
  cmake -S '$root/tests/consumer' -B '$work/sub' ${options[*]} -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
    -DMAIN='$work/main.cpp' -DTESSERA_SOURCE='$root' &&
  ! cmake --build '$work/sub' --target help | grep -qE '(test_engine|sample_)'"
target=consumer_engine
[ -z "${TESSERA_TESTS_ALL:-}" ] || target=all  # compiles all of Tessera once more
try "a program in the same build tree builds" cmake --build "$work/sub" --parallel "$(nproc)" --target "$target"
try "and gives the right answer" "$work/sub/consumer_engine"
[ "$target" != all ] || try "and kernels in C++ run there too" \
  bash -c "'$work/sub/consumer_traced' && '$work/sub/plain/consumer_traced_c'"
try "and its include paths hold <tessera/...> alone" bash -c "
  grep -A1 -F '\"command\"' '$work/sub/compile_commands.json' | grep -F consumer_engine.dir |
    tee /dev/stderr | grep -qF '/public' &&
  ! grep -F consumer_engine.dir '$work/sub/compile_commands.json' | grep -qE -- '-(I|isystem) ?$root '"

printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
