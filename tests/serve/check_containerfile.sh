#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_containerfile.sh [CONTAINERFILE [FOLDER]]: runs the steps of docs/deploy/Containerfile in bare Debians below FOLDER, made by debootstrap and
# entered by chroot, and asks the image that they make a question. Knows FROM, RUN, COPY, WORKDIR and ENV as that file uses them. It builds
# all of pagefuse, so run it by hand, as root, in the top folder; PACKAGES=build/release/packages in the environment takes what `./dev package`
# made in place of the first stage. Exit status 3 if there is no Debian.
set -euo pipefail
file=${1:-docs/deploy/Containerfile}
folder=${2:-}
if [ -z "$folder" ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
fi
[ -x "$folder/base/bin/sh" ] || debootstrap --variant=minbase bookworm "$folder/base" >"$folder.debootstrap.log" 2>&1 ||
  { tail -n 3 "$folder.debootstrap.log"; echo 'a bare Debian cannot be made'; exit 3; }

stage=0
root=
work=/
settings=()

# inside COMMAND...: in the stage, with what ENV said.
inside() {
  unshare --mount sh -c 'mount --bind /proc "$0/proc" && exec chroot "$0" env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin "$@"' \
    "$root" "${settings[@]}" "$@"
}

begin_stage() {
  stage=$((stage + 1))
  root=$folder/stage$stage
  work=/
  settings=()
  rm -rf "$root"
  cp -a "$folder/base" "$root"
  cp /etc/resolv.conf "$root/etc/"
  inside true 2>/dev/null || { echo "there is no leave to mount /proc in $root"; exit 3; }
}

# copy FROM TO, or copy --from=build FROM TO: that is the first stage, the only one before the last.
copy() {
  local target=$root${!#}
  mkdir -p "$target"
  case $1 in
    --from=build) [ -z "${PACKAGES:-}" ] || { mkdir -p "$folder/stage1$2"; cp "$PACKAGES"/*.deb "$folder/stage1$2"; }
                  cp -a "$folder/stage1$2/." "$target" ;;
    .) git archive HEAD | tar -x -C "$target" ;;
    *) echo "COPY $*: not known here"; exit 1 ;;
  esac
}

# Steps with their further lines, without comments.
sed -e '/^#/d' -e ':a' -e '/\\$/{N;s/\\\n//;ba' -e '}' "$file" >"$folder/steps"
while read -r name rest <&3; do
  case $stage-$name in 1-RUN|1-COPY) [ -z "${PACKAGES:-}" ] || continue ;; esac
  case $name in
    FROM) begin_stage ;;
    RUN) echo "stage $stage: ${rest:0:100}"
         inside sh -c "cd $work && $rest" >"$folder/log" 2>&1 </dev/null || { tail -n 20 "$folder/log"; exit 1; } ;;
    COPY) copy $rest ;;
    WORKDIR) work=$rest ;;
    ENV) settings+=("$rest") ;;
    USER) user=$rest ;;
    ''|EXPOSE|ENTRYPOINT|CMD) ;;
    *) echo "$name: not known here"; exit 1 ;;
  esac
done 3<"$folder/steps"

! inside sh -c 'command -v g++' || { echo 'the image has a compiler'; exit 1; }
cp -r models/gemma3_recall "$root/model"
answer=$(unshare --mount sh -c 'mount --bind /proc "$0/proc" && exec chroot --userspec="$1" "$0" env -i PATH=/usr/bin:/bin "$2" pagefuse generate /model --prompt-file /model/demo.txt' \
  "$root" "$user" "${settings[0]}" 2>"$folder/log") || { cat "$folder/log"; exit 1; }
[ "$answer" = '86 nails.' ] || { echo "the image answers: $answer"; exit 1; }
rm -rf "$root/model"
echo "the image answers as user $user; $(du -sxh --exclude=proc "$root" | cut -f1) with the Debian below it"
