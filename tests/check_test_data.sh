#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_test_data.sh CMAKE MODULE: pack.sh gives the same bytes for the same files, and pagefuse_unpack of MODULE takes an archive once, and again
# when what is in it changed.
set -euo pipefail
pack=$(dirname "$0")/pack.sh
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

fail() {
  echo "$1" >&2
  exit 1
}

mkdir -p "$out/cases/a" "$out/cases/b"
echo 1 >"$out/cases/b/model"
echo 2 >"$out/cases/a/model"
"$pack" "$out/cases.tar.xz" "$out/cases"
cp "$out/cases.tar.xz" "$out/first.tar.xz"
cp -r "$out/cases" "$out/copy"
touch -d 2001-01-01 "$out/copy/a/model"
chmod u+x "$out/copy/b/model"
"$pack" "$out/cases.tar.xz" "$out/copy"
cmp "$out/first.tar.xz" "$out/cases.tar.xz" || fail "the same files are packed into other bytes"
"$pack" "$out/part.tar.xz" "$out/cases" 'b*'
[ "$(tar -tf "$out/part.tar.xz")" = b/model ] || fail "more is packed than what was named"

configure() { "$1" -S "$out" -B "$out/build" >"$out/printed" 2>&1 || fail "$(cat "$out/printed")"; }
cat >"$out/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(unpacks NONE)
include($2)
pagefuse_unpack(\${PROJECT_BINARY_DIR}/data \${PROJECT_SOURCE_DIR}/cases.tar.xz)
END
configure "$1"
diff -r "$out/cases" "$out/build/data" || fail "other files are unpacked than were packed"
touch "$out/build/data/mine" "$out/cases.tar.xz"
configure "$1"
[ -e "$out/build/data/mine" ] || fail "an archive of the same contents is unpacked again"
rm -r "$out/cases/b"
echo 3 >"$out/cases/a/model"
"$pack" "$out/cases.tar.xz" "$out/cases"
configure "$1"
diff -r "$out/cases" "$out/build/data" || fail "an archive of other contents does not replace what was unpacked"
