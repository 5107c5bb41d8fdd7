# Sourced by samples/run, tests/run and tests/bench/run (with `root` set to the repository): installs what is missing
# from the Debian archive that this machine's apt already uses, and builds into build/. It adds no apt source, and
# downloads from nowhere else.

build=$root/build
packages=(libvulkan1 libvulkan-dev mesa-vulkan-drivers vulkan-validationlayers glslang-tools spirv-tools spirv-headers
          doctest-dev libpng-dev
          libcli11-dev ninja-build libopenblas0-serial nlohmann-json3-dev libglfw3-dev xvfb)
# of samples/ffmpeg and samples/qt, which are left out without them
sample_packages=(pkg-config libavformat-dev libswscale-dev qt6-base-dev)
vma=libvulkan-memory-allocator-dev  # in Debian from 13 on; only headers, so it installs on 12 as well

say() { printf '== %s\n' "$*"; }
# Prints the comment that the script begins with: its help.
help() { sed -n -e '1d' -e '/^[^#]/q' -e 's/^# \{0,1\}//p' "$0"; exit 0; }
fail() { printf 'FAILED: %s\n' "$1" >&2; shift; for line in "$@"; do printf '  %s\n' "$line" >&2; done; exit 1; }

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Prints the packages that are not installed.
missing_packages() {
  local p missing=()
  for p in "${packages[@]}" $vma; do installed "$p" || missing+=("$p"); done
  printf '%s' "${missing[*]}"
}

# The archive's URI, as apt itself understands this machine's sources, whatever files and formats they are in.
archive_uri() {
  apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(RELEASE)|$(REPO_URI)' 'Identifier: Packages' 2>/dev/null |
    awk -F'|' '$1 == "Debian" && $2 == "Debian" && $3 !~ /-(updates|backports|proposed|security)/ { print $4; exit }'
}

# Fetches one package of Debian 13 with apt's own signature checks, in temporary state directories, and installs it.
install_from_trixie() {
  local package=$1 uri keyring=/usr/share/keyrings/debian-archive-keyring.gpg signed="" work
  uri=$(archive_uri)
  [ -n "$uri" ] || fail "cannot install $package: apt's sources on this machine name no Debian archive" \
    "install the package $package of Debian 13 by hand, then run this again"
  [ -f "$keyring" ] && signed="[signed-by=$keyring] "
  work=$(mktemp -d)
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
  chmod -R a+rX "$work"
  echo "deb ${signed}$uri trixie main" > "$work/sources.list"
  local options=(-o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=-
                 -o Dir::State::Lists="$work/lists"
                 -o Dir::Cache="$work/cache" -o Acquire::Languages=none -o APT::Sandbox::User=root
                 -o APT::Get::List-Cleanup=0
                 -o APT::Default-Release=trixie)
  say "fetching $package from the trixie suite of $uri"
  (cd "$work" && apt-get -q "${options[@]}" update && apt-get -q "${options[@]}" download "$package") ||
    { rm -rf "$work"; fail "cannot fetch $package from the trixie suite of $uri" "apt's message is above"; }
  dpkg -i "$work"/*.deb || { rm -rf "$work"; fail "dpkg could not install $package; its message is above"; }
  rm -rf "$work"
}

install_missing() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "this is not a Debian system: nothing is installed, building with what is there"
    return
  fi
  local missing
  missing=$(missing_packages)
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    local lines=() rest=$missing
    case " $missing " in *" $vma "*)
      if ! apt-cache show $vma >/dev/null 2>&1; then
        rest=$(printf '%s' "$missing" | sed "s/ *$vma//")
        lines=("$vma is in Debian 13 and later:")
        lines[0]+=" run this script as root to have it fetched from there, or install that .deb by hand"
      fi
    esac
    [ -z "$rest" ] || lines=("as root: apt-get install $rest" "${lines[@]}")
    fail "these packages are missing, and installing them takes root: $missing" "${lines[@]}" \
      "to build with what is there: $0 --no-install"
  fi
  say "installing from Debian's archive: $missing"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -q update || say "apt-get update reported errors (above); going on with the package lists there are"
  local wanted=() p
  for p in $missing; do
    if [ "$p" = $vma ] && ! apt-cache show "$p" >/dev/null 2>&1; then continue; fi
    wanted+=("$p")
  done
  if [ ${#wanted[@]} -gt 0 ]; then
    apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 install --no-install-recommends "${wanted[@]}" ||
      fail "apt-get could not install: ${wanted[*]}" \
        "its message is above; with the packages installed by hand, run $0 --no-install"
  fi
  installed $vma || install_from_trixie $vma
}

# Those of samples/ffmpeg and samples/qt, as root, as far as apt knows them: the samples are left out without them.
install_sample_packages() {
  local p wanted=() known=()
  [ "$(id -u)" -eq 0 ] && command -v dpkg-query >/dev/null && command -v apt-get >/dev/null || return 0
  for p in "${sample_packages[@]}"; do installed "$p" || wanted+=("$p"); done
  [ ${#wanted[@]} -gt 0 ] || return 0
  apt-cache show "${wanted[@]}" >/dev/null 2>&1 || apt-get -q update
  for p in "${wanted[@]}"; do ! apt-cache show "$p" >/dev/null 2>&1 || known+=("$p"); done
  [ ${#known[@]} -gt 0 ] || return 0
  say "installing from Debian's archive, for two of the samples: ${known[*]}"
  DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 install \
    --no-install-recommends "${known[@]}" ||
    say "apt-get could not install them (its message is above): the samples that need them are left out"
}

# Configures build/, or build-PRESET, unless that has been done.
configure() {
  local preset=${1:-release}
  [ "$preset" = release ] || build=$root/build-$preset
  command -v cmake >/dev/null || fail "cmake is missing"
  if [ ! -f "$build/build.ninja" ] && [ ! -f "$build/Makefile" ]; then
    local options=() missing
    rm -rf "$build/CMakeCache.txt" "$build/CMakeFiles"  # of a configuration that failed, perhaps for another generator
    command -v ninja >/dev/null && options+=(-G Ninja)
    command -v ccache >/dev/null && options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    # elsewhere each file by itself shows what it forgot to include
    [ "$preset" != release ] || options+=(-DTESSERA_UNITY=ON)
    say "configuring ${build##*/}/"
    (cd "$root" && cmake --preset "$preset" "${options[@]}") ||
      { missing=$(missing_packages)
        fail "cmake could not configure the build; its message is above" \
          ${missing:+"packages that are not installed: $missing"}; }
  fi
}

# Builds everything, or the targets named.
build_targets() {
  local start=$SECONDS targets=() t
  for t in "$@"; do targets+=(--target "$t"); done
  say "building in ${build##*/}/ with $(nproc) jobs"
  cmake --build "$build" --parallel "$(nproc)" "${targets[@]}" ||
    fail "the build failed; the compiler's message is above"
  say "built in $((SECONDS - start)) s"
}

now_ms() { local t=${EPOCHREALTIME/[.,]/}; printf '%s' "$((t / 1000))"; }
seconds_since() { local ms=$(($(now_ms) - $1)); printf '%d.%d' $((ms / 1000)) $((ms % 1000 / 100)); }
