# Sourced after setup.sh: a root of Debian 13 beside this system, for programs that want its newer drivers. Nothing is
# mounted, so such a folder can simply be removed.

# Drivers for GPUs that are not there (mesa-drm-shim), a glslang that knows cooperative matrices, and what the tests
# themselves use.
debian13_packages=(mesa-vulkan-drivers mesa-drm-shim glslang-tools vulkan-validationlayers)
debian13=${TESSERA_DEBIAN13:-$root/build/debian13}

# make_debian13: that root, with these packages, those of Mesa from the backports. True if it is there; else
# `why_no_root` says in a line why not.
make_debian13() {
  local root=$debian13 uri log
  set -- "${debian13_packages[@]}"
  log=$root.log
  mkdir -p "${root%/*}"
  [ -f "$root/made" ] && [ "$(cat "$root/made")" = "$*" ] && return
  if [ "$(id -u)" -ne 0 ]; then why_no_root="making one takes root"; return 1; fi
  if ! command -v mmdebstrap > /dev/null; then why_no_root="there is no mmdebstrap (Debian: mmdebstrap)"; return 1; fi
  uri=$(archive_uri)
  if [ -z "$uri" ]; then why_no_root="apt's sources on this machine name no Debian archive"; return 1; fi
  rm -rf --one-file-system "$root"
  if ! mmdebstrap --quiet --variant=apt --include=ca-certificates,libvulkan1,libstdc++6 trixie "$root" \
      "deb $uri trixie main" > "$log" 2>&1; then
    why_no_root="mmdebstrap failed: $(tail -n 1 "$log")"
    return 1
  fi
  # The backports are refused while a root is made; apt's own settings on this machine reach the archive.
  echo "deb $uri trixie-backports main" >> "$root/etc/apt/sources.list"
  cp /etc/resolv.conf "$root/etc/"
  cp /etc/apt/apt.conf.d/* "$root/etc/apt/apt.conf.d/"
  if ! { chroot "$root" apt-get -q update &&
      DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get -q -y --no-install-recommends -t trixie-backports install \
        "$@"; } >> "$log" 2>&1; then
    why_no_root="apt-get failed in it: $(tail -n 1 "$log")"
    return 1
  fi
  echo "$*" > "$root/made"
}

# in_debian13 FOLDER COMMAND...: runs a command in that folder of the root.
in_debian13() {
  local folder=$1
  shift
  mkdir -p "$debian13$folder" "$debian13/run/user"
  chroot "$debian13" env -C "$folder" XDG_RUNTIME_DIR=/run/user "$@"
}
