#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_packages.sh FOLDER [ROOT]: the .tar.gz and the .deb in FOLDER run on a bare Debian 12. That is made by debootstrap, in ROOT or a
# folder that goes with the script, and entered by chroot: run as root. Run in the top folder. Exit status 3 if there is no Debian.
set -euo pipefail
packages=$(realpath "$1")
root=${2:-}
if [ -z "$root" ]; then
  root=$(mktemp -d)
  trap 'rm -rf "$root"' EXIT
fi
[ -x "$root/bin/sh" ] || debootstrap --variant=minbase bookworm "$root" >"$packages/debootstrap.log" 2>&1 ||
  { tail -n 3 "$packages/debootstrap.log"; echo "a bare Debian cannot be made"; exit 3; }

fail() {
  echo "$1" >&2
  exit 1
}

# inside COMMAND...: in the bare system, with its own environment. The loader needs /proc for the folder that a program lies in.
inside() {
  unshare --mount sh -c 'mount --bind /proc "$0/proc" && exec chroot "$0" env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin "$@"' "$root" "$@"
}
inside true 2>/dev/null || { echo "there is no leave to mount /proc in $root"; exit 3; }

# answers PROGRAM: the program in the bare system reads a model's folder and answers.
answers() {
  inside "$1" --version | grep -q . || fail "$1 does not run"
  inside "$1" generate /root/gemma3_recall --prompt-file /root/gemma3_recall/demo.txt --kv-cache fp8_per_token_head >"$packages/answer" 2>&1 ||
    { cat "$packages/answer"; fail "$1 does not generate"; }
  grep -q '^86 nails\.$' "$packages/answer" || fail "$1 gives another answer"
}

! inside test -e /usr/lib/x86_64-linux-gnu/libprotobuf.so.32 || fail "$root is not bare"
cp -r models/gemma3_recall "$root/root/"

mkdir -p "$root/opt/pagefuse"
tar -C "$root/opt/pagefuse" --strip-components 1 -xf "$packages"/pagefuse-*.tar.gz
answers /opt/pagefuse/bin/pagefuse
! inside ldd /opt/pagefuse/lib/libpagefuse_ort.so | grep 'not found' || fail "a library of libpagefuse_ort.so is missing"
inside ls /opt/pagefuse/share/doc/pagefuse >"$packages/files"
grep -q '^copyright.libprotobuf' "$packages/files" || fail "the licence of a library is missing"
echo "the archive runs on a bare Debian"

cp "$packages"/pagefuse_*.deb "$packages"/pagefuse-dev_*.deb "$root/root/"
cp /etc/resolv.conf "$root/etc/"
inside sh -c 'DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends /root/pagefuse_*.deb' >"$packages/apt.log" 2>&1 ||
  { tail -n 5 "$packages/apt.log"; fail "the .deb cannot be installed"; }
answers /usr/bin/pagefuse
dpkg-deb -c "$packages"/pagefuse-dev_*.deb >"$packages/files"
grep -q '/usr/lib/cmake/pagefuse/pagefuse-config.cmake$' "$packages/files" || fail "pagefuse-dev has no CMake package"
inside apt-get remove --autoremove -y -qq pagefuse >/dev/null 2>&1
! inside test -e /usr/bin/pagefuse || fail "the .deb is not removed"
echo "the .deb installs, runs and goes on a bare Debian"
