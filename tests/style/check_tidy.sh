#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_tidy.sh CLANG_TIDY BUILD: reads names of sources and headers, runs the checks of .clang-tidy over those of ir, ops,
# passes, plugin, python, runtime, text and tools, with the headers that they include, and fails on any finding. A header is
# seen through the source of its name, or one that includes it. What was clean is not looked at again until its source, one of
# the project's headers that it includes, its compile command or the checks change: BUILD/tidy has an empty file for every
# clean one, named by the hash of all that.
# Left out are kernels that are compiled once per SIMD target, by including themselves, and those for GPUs.
set -euo pipefail
tidy=$1 build=$2
mkdir -p "$build/tidy"

# Without the precompiled headers, which are GCC's, and which would hide that a source lacks an include.
sed -E 's/ -fpch-preprocess| -Winvalid-pch -include [^ ]*cmake_pch\.hxx//g' "$build/compile_commands.json" \
  >"$build/tidy/compile_commands.json"

# Bindings for Python where the build has them.
is_checked() {
  if [[ $1 =~ ^python/ ]]; then
    grep -q "\"file\": \".*/$1\"" "$build/tidy/compile_commands.json"
    return
  fi
  [[ $1 =~ ^(ir|ops|passes|plugin|runtime|text|tools)/ && ! $1 =~ (_(hwy|avx512|amx)\.cc|\.cu)$ ]]
}

# The sources to look at for the names that come in, each once.
sources() {
  local name source
  while read -r name; do
    source=$name
    if [[ $name == *.h ]]; then
      source=${name%.h}.cc
      [ -f "$source" ] || source=$(git grep -lF "$name\"" -- '*.cc' | grep -Ev '_(hwy|avx512|amx)\.cc$' | head -1 || true)
    fi
    if [ -n "$source" ] && is_checked "$source"; then echo "$source"; fi
  done | sort -u
}

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
    grep -B1 "\"file\": \".*/$file\"" "$build/tidy/compile_commands.json"
    with_headers "$file" | xargs sha256sum
  } | sha256sum | cut -d' ' -f1
}

check() {
  local file=$1 stamp=$2 findings
  if findings=$("$tidy" -p "$build/tidy" --quiet "$file" 2>/dev/null); then
    touch "$build/tidy/$stamp"
  else
    printf '%s:\n%s\n' "$file" "$findings"
    return 1
  fi
}
export -f check
export tidy build

sources |
  while read -r file; do
    stamp=$(stamp_of "$file")
    [ -e "$build/tidy/$stamp" ] || echo "$file $stamp"
  done |
  xargs -r -P "$(nproc)" -L 1 bash -c 'check "$0" "$1"'
