#!/usr/bin/env bash
# check_transcripts.sh PAGEFUSE: the commands that docs/authoring.md and docs/plugins.md show print what is shown, numbers aside,
# which change with the passes. With PAGEFUSE_UPDATE_DOCS=1 the pages are written anew. Run in the top folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
docs=$PWD/docs
ln -s "$PWD/models" "$PWD/tests" "$PWD"/plugin/example/* "$out"
export CPATH=$PWD/plugin/include  # as where the package is installed
mkdir "$out/bin"
ln -s "$(realpath "$pagefuse")" "$out/bin/pagefuse"
PATH=$out/bin:$PATH
cd "$out"

# A page, with what the commands in its blocks of ```console print now.
replay() {
  local line inside=
  while IFS= read -r line; do
    case $inside$line in
      '```console') inside=' ' && echo "$line" ;;
      ' ```') inside= && echo "$line" ;;
      ' $ '*) echo "$line" && { bash -c "${line#\$ }" 2>&1 </dev/null || true; } ;;
      ' '*) if [ -z "$inside" ]; then echo "$line"; fi ;;
      *) echo "$line" ;;
    esac
  done <"$1" | sed -E 's/ +$//'
}

# As many steps as it takes to find a rewrite.
without_numbers() { sed -E 's/(; 1-[0-9]+ (equal|differ))+//; s/[0-9]+(\.[0-9]+)?(e-[0-9]+)?/N/g'; }

for name in authoring plugins; do
  page=$docs/$name.md
  replay "$page" >"$out/replayed.md"
  if [ "${PAGEFUSE_UPDATE_DOCS:-}" = 1 ]; then
    cp "$out/replayed.md" "$page"
  fi
  diff <(without_numbers <"$page") <(without_numbers <"$out/replayed.md") >"$out/printed" ||
    fail "docs/$name.md shows other lines than the commands print"
done
