#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# pack.sh ARCHIVE FOLDER [NAME...]: packs the files of FOLDER, or of what NAME (a pattern) is in it, into ARCHIVE (.tar.xz). The same files
# give the same bytes: sorted by name, without owner, time or the executable bit. How a case is added or changed:
#
#   cmake --preset release                                    unpacks every archive below build/release/test_data, as tests/CMakeLists.txt says
#   ...                                                       the case is written, changed or removed there
#   tests/pack.sh tests/onnx_node/cases.tar.xz build/release/test_data/onnx_node
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: pack.sh ARCHIVE FOLDER [NAME...]" >&2; exit 1; }
archive=$(realpath "$1")
cd "$2"
shift 2
# Names are patterns.
# shellcheck disable=SC2086,SC2048
find ${*:-*} -type f | LC_ALL=C sort |
  tar --create --no-recursion --files-from - --format ustar --owner 0 --group 0 --numeric-owner --mode u=rw,go=r --mtime @0 |
  xz -9e -T1 >"$archive.new"
# Tensors, whose elements are four bytes, pack better by the place of a byte in its word than by the byte before it, texts do not.
xz -dc "$archive.new" | xz --lzma2=preset=9e,lc=0,lp=2 -T1 >"$archive.words"
if [ "$(wc -c <"$archive.words")" -lt "$(wc -c <"$archive.new")" ]; then mv "$archive.words" "$archive.new"; fi
rm -f "$archive.words"
mv "$archive.new" "$archive"
