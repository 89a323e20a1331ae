#!/usr/bin/env bash
# check_tidy.sh CLANG_TIDY BUILD: runs the checks of .clang-tidy over the sources of ir, passes, runtime and tools, and
# over the headers that they include; fails on any finding. What was clean is not looked at again until its source, one
# of the project's headers that it includes, its compile command or the checks change: BUILD/tidy has an empty file for
# every clean one, named by the hash of all that.
# Ops are left out: their kernels are compiled once per SIMD target by including themselves.
set -euo pipefail
tidy=$1 build=$2
mkdir -p "$build/tidy"

# Writes a source and the project's headers that it includes, directly or not.
with_headers() {
  local queue=("$1") seen=" $1 " file name path
  while [ ${#queue[@]} -gt 0 ]; do
    file=${queue[0]}
    queue=("${queue[@]:1}")
    echo "$file"
    while read -r name; do
      path=${name#pagefuse/}
      [ -f "$path" ] || path=$(dirname "$file")/$name
      if [ -f "$path" ] && [[ $seen != *" $path "* ]]; then
        seen+="$path "
        queue+=("$path")
      fi
    done < <(sed -n 's/^#include "\(.*\)"/\1/p' "$file")
  done
}

common=$("$tidy" --version; cat .clang-tidy)

stamp_of() {
  local file=$1
  {
    echo "$common"
    grep -B1 "\"file\": \".*/$file\"" "$build/compile_commands.json"
    with_headers "$file" | xargs sha256sum
  } | sha256sum | cut -d' ' -f1
}

check() {
  local file=$1 stamp=$2 findings
  if findings=$("$tidy" -p "$build" --quiet "$file" 2>/dev/null); then
    touch "$build/tidy/$stamp"
  else
    printf '%s:\n%s\n' "$file" "$findings"
    return 1
  fi
}
export -f check
export tidy build

git ls-files 'ir/*.cc' 'passes/*.cc' 'runtime/*.cc' 'tools/*.cc' |
  while read -r file; do
    stamp=$(stamp_of "$file")
    [ -e "$build/tidy/$stamp" ] || echo "$file $stamp"
  done |
  xargs -r -P "$(nproc)" -L 1 bash -c 'check "$0" "$1"'
