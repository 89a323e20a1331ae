#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# walk.sh BUILD DOCUMENT...: does what the documents say, one after the other, in a copy of the tree. Of the blocks that begin with
#
#   ```cpp FILE    writes the file; text as well
#   ```diff FILE   changes it: lines with ' ' and '-' must stand in it, once, and become those with ' ' and '+'
#   ```sh          runs the commands
#   ```text        the commands before it must have printed each line, or a longer one that holds it
#
# others are for the reader. Objects that the changes leave as they are come from BUILD, so that only what is new is compiled.
set -euo pipefail
build=$(realpath "$1")
shift
here=$(realpath "$(dirname "$0")")
source=$PWD

fail() {
  echo "$document, line $line: $1" >&2
  exit 1
}

tree=$(mktemp -d)
trap 'rm -rf "$tree" "$tree".*' EXIT
git ls-files -co --exclude-standard | tar --create --files-from=- --ignore-failed-read 2>/dev/null |
  tar --extract --directory="$tree"

export WALK_TREE=$tree WALK_SOURCE=$source WALK_BUILD=$build WALK_CHANGED=$tree.changed WALK_COMPILED=$tree.compiled WALK_USED=$tree.of
export CMAKE_CXX_COMPILER_LAUNCHER=$here/reuse_objects.sh CMAKE_CUDA_COMPILER_LAUNCHER=$here/reuse_objects.sh
: >"$WALK_CHANGED"
: >"$WALK_COMPILED"

# Sources stay compiled with those that BUILD has beside them.
(cd "$build" && find . -name '*.unity' -print0 | tar --create --null --files-from=-) |
  { mkdir -p "$tree/build/release" && tar --extract --directory="$tree/build/release"; }

# The objects of BUILD with the files of the tree that they were made of, one a line, under their names in the tree.
ninja -C "$build" -t deps | awk '/^[^ ]/ { sub(/:$/, "", $1); object = $1 } /^    / { print object, $1 }' >"$tree.used"
cut -d' ' -f2 "$tree.used" | sort -u >"$tree.names"
(cd "$build" && xargs realpath -m <"$tree.names") | paste -d' ' "$tree.names" - |
  awk -v root="$source/" 'NR == FNR { if (index($2, root) == 1) name[$1] = substr($2, length(root) + 1); next }
    $2 in name { print $1, name[$2] }' - "$tree.used" >"$tree.deps"

# The same as a file for each object, which reuse_objects.sh finds without a search.
mkdir "$tree.of"
awk -v folder="$tree.of" -v tree="$tree" '{
    if ($1 != object) { if (object != "") close(file); object = $1; file = object; gsub("/", "%", file); file = folder "/" file }
    print tree "/" $2 >file
  }' "$tree.deps"

# True for a header that only gets declarations of functions: objects that do not use the new name are the same without it, and who
# uses it has changed too.
only_declares() { [[ $1 == *.h ]] && ! grep '^[-+]' <<<"$2" | grep -qvE '^\+[A-Za-z_:<>]+( [A-Za-z_:<>]+)* [A-Za-z_]+\([^()]*\);$'; }

# Objects that were made of the file are compiled again.
mark_changed() { awk -v name="$1" '$2 == name { print $1 }' "$tree.deps" >>"$WALK_CHANGED"; }

write_file() {
  mkdir -p "$tree/$(dirname "$1")"
  [ ! -e "$tree/$1" ] || fail "$1 is there already"
  printf '%s\n' "$2" >"$tree/$1"
}

# The lines of a diff that begin with one of the two signs, without them. An empty line is one of context.
side() { sed -n "s/^\$/ /; s/^[ $1]//p" <<<"$2"; }

change_file() {
  local before after file=$tree/$1
  [ -f "$file" ] || fail "there is no $1"
  before=$(side - "$2") after=$(side + "$2")
  BEFORE=$'\n'$before$'\n' AFTER=$'\n'$after$'\n' awk '
    { text = text "\n" $0 }
    END {
      text = text "\n"
      at = index(text, ENVIRON["BEFORE"])
      if (at == 0 || index(substr(text, at + 1), ENVIRON["BEFORE"]) > 0) exit 1
      text = substr(text, 1, at - 1) ENVIRON["AFTER"] substr(text, at + length(ENVIRON["BEFORE"]))
      printf "%s", substr(text, 2)
    }' "$file" >"$tree.new" || fail "$1 does not hold these lines, or more than once"
  cp "$tree.new" "$file"
  only_declares "$1" "$2" || mark_changed "$1"
}

run() {
  (cd "$tree" && bash -euo pipefail -c "$1") >"$tree.output" 2>&1 || { cat "$tree.output"; fail "a command failed"; }
}

expect() {
  local wanted
  while read -r wanted; do
    grep -qF -- "$wanted" "$tree.output" || { cat "$tree.output"; fail "nothing printed holds: $wanted"; }
  done <<<"$1"
}

act() {  # language, file, body
  case "$1" in
    sh) run "$3" ;;
    text) if [ -n "$2" ]; then write_file "$2" "$3"; else expect "$3"; fi ;;
    diff) [ -z "$2" ] || change_file "$2" "$3" ;;
    *) [ -z "$2" ] || write_file "$2" "$3" ;;
  esac
}

for document in "$@"; do
  line=0 inside=false blocks=0
  while IFS= read -r text; do
    line=$((line + 1))
    if [[ $text != '```'* ]]; then
      if $inside; then body+=${body:+$'\n'}$text; fi
      continue
    fi
    if $inside; then
      inside=false
      act "$language" "$file" "$body"
      blocks=$((blocks + 1))
    else
      inside=true body=
      read -r language file <<<"${text#\`\`\`}" || true
    fi
  done <"$source/$document"
  [ "$blocks" -gt 0 ] || fail "nothing to do in it"
  echo "$document: $blocks blocks"
done
echo "compiled: $(sort -u "$WALK_COMPILED" | tr '\n' ' ')"
