#!/usr/bin/env bash
# run.sh [--seconds N] [--only LIST] [--jobs N]: what tests/nvidia/run packs, on a machine with an NVIDIA GPU: every
# suite, in N seconds at most (200), as many at once as there are processors. The last lines are a line per suite and "N
# passed, N failed". $OUT (out, beside this file) receives logs.tar.gz and summary.txt.
#   --only LIST    of these, with commas between them; all of them without it:
#     properties   what the drivers say of the GPU
#     suites       the test programs that use a device
#     vulkan, cuda the kernels of tests/tir and tests/data/pallas, in both forms
#     random       random kernels, on both, for the rest of the time
#   --seed N       of the random kernels (the time)
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(realpath -m "${OUT:-$here/out}")
cd "$here" || exit 1
seconds=200 only=properties,suites,vulkan,cuda,random jobs=$(nproc) seed=$(date +%s)
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=$2; shift ;;
    --only) only=$2; shift ;;
    --jobs) jobs=$2; shift ;;
    --seed) seed=$2; shift ;;
    *) echo "run.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift
done
wanted() { [[ ,$only, == *,$1,* ]]; }
# Milliseconds since the beginning; bash's SECONDS counts whole seconds.
begun=$(date +%s%N)
now() { echo $((($(date +%s%N) - begun) / 1000000)); }
work=$(mktemp -d) logs=$(mktemp -d)
mkdir -p "$out"
cleanup() { [ -z "${link:-}" ] || rm -f "$link"; rm -rf "$work" "$logs"; }
trap cleanup EXIT

# Where the repository was built: programs look for others there.
root=$(cat root) link=""
if [ ! -e "$root" ] && mkdir -p "$(dirname "$root")" && ln -s "$here" "$root"; then link=$root; fi
# Of the libraries that came along, those that the machine has not.
mkdir "$work/lib" "$work/bin" "$work/home"
for library in lib/*; do
  name=${library##*/}
  ldconfig -p 2>/dev/null | grep -qF "$name " || ln -s "$here/$library" "$work/lib/$name"
done
ln -sf "$work/lib/libvulkan.so.1" "$work/lib/libvulkan.so" 2>/dev/null
export LD_LIBRARY_PATH=$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export HOME=$work/home XDG_RUNTIME_DIR=$work CUDA_CACHE_DISABLE=1 __GL_SHADER_DISK_CACHE_PATH=$work
# The GPU, and no other Vulkan device. A driver whose file for the loader is missing gets one.
if ! ls /etc/vulkan/icd.d/*nvidia* /usr/share/vulkan/icd.d/*nvidia* /usr/local/share/vulkan/icd.d/*nvidia* \
    > /dev/null 2>&1; then
  for library in libGLX_nvidia.so.0 libEGL_nvidia.so.0; do
    ldconfig -p | grep -qF "$library" || continue
    printf '{"file_format_version": "1.0.1", "ICD": {"library_path": "%s", "api_version": "1.4.0"}}\n' "$library" \
      > "$work/nvidia_icd.json"
    export VK_DRIVER_FILES=$work/nvidia_icd.json VK_ICD_FILENAMES=$work/nvidia_icd.json
    build/tessera devices 2> /dev/null | grep -q NVIDIA && break
  done
fi
# Validation by the layer that came along, else by the machine's.
if [ -d layers ]; then
  export VK_LAYER_PATH=$here/layers
  TESSERA_VALIDATION=1 build/tests/test_runtime -tc='the default device is one device' > "$logs/layers.log" 2>&1 ||
    unset VK_LAYER_PATH
fi
# A layer that is older than the driver says of each device that it does not know an extension's structure (the first
# two) or name (the next two), and of the loader that it asks for a function of instances (the last).
export VK_LAYER_MESSAGE_ID_FILTER=VUID-VkDeviceCreateInfo-pNext-pNext,0x901f59ec,0x79de34d4,0x297ec5be,0x22b1fbac
if [ -x glslang/program ]; then  # on its own C library
  printf '#!/bin/sh\nexec "%s"/glslang/ld-linux-x86-64.so.2 --library-path "%s/glslang" "%s/glslang/program" "$@"\n' \
    "$here" "$here" "$here" > "$work/bin/glslangValidator"
  chmod +x "$work/bin/glslangValidator"
  "$work/bin/glslangValidator" --version > /dev/null 2>&1 || rm "$work/bin/glslangValidator"
fi
export PATH=$work/bin:$PATH

names=()
# Waits until fewer than --jobs run.
free_slot() { while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done; }
# begin NAME SECONDS COMMAND...: beside others; its log ends with the exit status and the time.
begin() {
  local name=$1 limit=$2 left
  shift 2
  free_slot
  left=$((seconds - $(now) / 1000))
  [ "$limit" -le "$left" ] || limit=$left
  names+=("$name")
  if [ "$left" -lt 2 ]; then echo "exit status none: no time was left" > "$logs/$name.log"; return; fi
  {
    local t
    t=$(now)
    timeout -k 5 "$limit" "$@"
    echo "exit status $? after $((($(now) - t) / 1000)) s of $limit"
  } > "$logs/$name.log" 2>&1 < /dev/null &
}
# fuzz NAME DEVICE ARGUMENTS...: each kernel in both forms; without the passes and the lane-level interpreter, which
# need no GPU.
fuzz() {
  local name=$1 device=$2
  shift 2
  begin "$name" 170 build/tests/fuzz --target none --no-passes --device "$device" --patience 40 --verbose "$@"
}
if wanted properties; then
  begin machine 30 sh -c 'nvidia-smi; nvidia-smi -q -d MEMORY,CLOCK,ECC | head -60; uname -a; ldd --version | head -n 1
    ls /etc/vulkan/icd.d /usr/share/vulkan/icd.d; build/tessera devices'
  begin properties 60 build/tests/nvidia
fi
if wanted suites; then
  begin test_runtime 170 build/tests/test_runtime -tce='faults: *'
  begin test_runtime_faults 170 build/tests/test_runtime -tc='faults: *'  # which may crash a driver
  # the files whose cases run on a device
  begin test_codegen_expand 170 build/tests/test_codegen -sf='*expand*'
  begin test_codegen_spirv 170 build/tests/test_codegen -sf='*atomics_test*,*cut_test*,*loops_test*,*spirv*'
  for suite in ops kernels transformer c_api changed_programs; do begin "$suite" 170 "build/tests/$suite"; done
  begin gpu_suite 120 build/tests/gpu_suite
fi
files=(tests/tir/*.tir tests/tir/ptx/*.tir tests/data/pallas/*.tir)
# parts DEVICE N: the files, in N processes.
parts() {
  local device=$1 n=$2 i j part
  for ((i = 0; i < n; ++i)); do
    part=()
    for ((j = i; j < ${#files[@]}; j += n)); do part+=("${files[j]}"); done
    fuzz "${device}_files_$i" "$device" --shrink 10 "${part[@]}"
  done
}
if wanted vulkan; then
  parts vulkan 4
  parts minimum 2
fi
if wanted cuda; then parts cuda 4; fi
if wanted random; then
  # Each for a share of the time that is left when it begins, so that all of them run.
  kinds=(any sums reshapes bytes columns threads revisits none) count=0
  for kind in "${kinds[@]}" "${kinds[@]}"; do
    for device in vulkan cuda; do
      free_slot
      left=$((seconds - $(now) / 1000 - 12)) rest=$((4 * ${#kinds[@]} - count))
      share=$((left * jobs / (rest > jobs ? rest : jobs)))
      if [ "$share" -lt 4 ]; then continue; fi
      options=(--seed $(((seed % 100000 * 100 + count) * 100000)) --seconds "$share" --shrink 8)
      [ "$kind" = any ] || options+=(--pattern "$kind")
      fuzz "random_${device}_${kind}_$count" "$device" "${options[@]}"
      count=$((count + 1))
    done
  done
fi
wait

passed=0 failed=0
report() {
  local name log p f
  for name in "${names[@]}"; do
    log=$logs/$name.log
    [ "$name" != machine ] || continue
    read -r p f <<< "$(sed -n \
      -e 's/^\[doctest\] test cases: *[0-9]* *| *\([0-9]*\) passed *| *\([0-9]*\) failed.*/\1 \2/p' \
      -e 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$log" | tail -n 1)"
    if [ -z "${p:-}" ]; then p=0 f=1; fi
    [ "$f" -ne 0 ] || grep -q '^exit status 0 ' "$log" || f=1
    printf '%-28s %6d passed, %3d failed  %s\n' "$name" "$p" "$f" "$(grep '^exit status' "$log" | tail -n 1)"
    passed=$((passed + p)) failed=$((failed + f))
  done
  printf '%d passed, %d failed\n' "$passed" "$failed"
}
report > "$out/summary.txt"
(cd "$logs" && tar -cz -f "$out/logs.tar.gz" .)
# The output's end is what is kept of it: what failed, briefly, then the summary.
for name in "${names[@]}"; do
  grep -hE 'FAILED|ERROR:|^fuzz: [^0-9]' "$logs/$name.log" 2> /dev/null | cut -c1-150 | sort | uniq -c | sort -rn |
    head -n 3 | sed "s/^/$name: /"
done | tail -n 60
cat "$out/summary.txt"
[ "$(tail -n 1 "$out/summary.txt" | sed 's/.*, \([0-9]*\) failed/\1/')" -eq 0 ]
