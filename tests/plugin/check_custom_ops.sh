#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_custom_ops.sh PAGEFUSE LIBRARIES: libraries of custom ops for ONNX Runtime on the command line; LIBRARIES has those of
# tests/plugin/third_party. In every release that PAGEFUSE_ORT_LIBS names (paths with colons between them) they give the same.
set -euo pipefail
. "$(dirname "$0")/../tools/expect.sh"
library=$2/libthird_party_ort.so

expect 0 '^third_party_ort, custom ops for ONNX Runtime$' plugin "$library"
expect 0 '^  op         third.party.Total      kernels: libthird_party_ort.so \(0\)$' plugin "$library"
expect 0 'libthird_party_ort.so\(float, float\?\) \(0\), libthird_party_ort.so\(double, double\?\) \(0\)$' plugin "$library"

# The inputs of the graph of all kinds, then what it makes of them.
cat >"$out/inputs.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 21]>
inputs () => (float[3, 6] x, double[3] d, int64[3] i)
    <float[3, 6] a = {-2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, -9, -8, -7, -6, -5, -4}, double[3] b = {1, -2, 4}, int64[3] c = {7, 8, 9}> {
  x = Identity (a)  d = Identity (b)  i = Identity (c)
}
END
expect 0 '' run "$out/inputs.onnxtxt" -o "$out"
feeds=(-i "$out/output_0.pb" -i "$out/output_1.pb" -i "$out/output_2.pb")
graph=tests/data/third_party.onnxtxt
expect 0 '^scaled: float\[3, 6\] min -17.5 max 18.5' run $graph "${feeds[@]}" --plugin "$library"
expect 0 '^places: int64\[9\] min 3 max 11 mean 7$' run $graph "${feeds[@]}" --plugin "$library"
expect 0 'libthird_party_ort.so\(double, double\?\)' run $graph "${feeds[@]}" --plugin "$library" --print-kernels
expect 1 'no op "Scale" in domain "third.party" at version 1; no plug-in is loaded$' run $graph "${feeds[@]}"

# What is refused, in a sentence.
one() {  # OP
  printf '<ir_version: 10, opset_import: ["" : 21, "third.party" : 1]>\ng () => (float[1] y) <float[1] x = {1}> { y = third.party.%s (x) }\n' \
    "$1" >"$out/one.onnxtxt"
}
one Lacking
expect 1 '\(third.party.Lacking\): libthird_party_ort.so: function 131, CreateAllocator, of ONNX Runtime.s C API is not there for custom ops$' \
  run "$out/one.onnxtxt" --plugin "$library"
one Device
expect 1 'it is for CUDAExecutionProvider, expected CPUExecutionProvider$' run "$out/one.onnxtxt" --plugin "$library"
one Failing
expect 1 '\(third.party.Failing\): libthird_party_ort.so: this op always fails$' run "$out/one.onnxtxt" --plugin "$library"

# Libraries that are wrong: one line, status 1.
wrong() {  # WAY PATTERN
  expect 1 "^pagefuse: $2/libwrong_ort_$1.so: $3" ops --plugin "$2/libwrong_ort_$1.so"
  [ "$(wc -l <"$out/printed")" = 1 ] || fail "libwrong_ort_$1.so: more than one line"
}
wrong failure "$2" 'no licence for this machine$'
wrong declaration "$2" 'custom op "Wrong": version 99 of its declaration, expected 1 to 23$'
wrong null "$2" 'custom op "Wrong": a function that every op has is null$'
wrong variadic "$2" 'custom op "Wrong": input 0 is variadic, expected of the last one only$'
wrong rows "$2" 'custom op "Wrong": one row has 1 inputs, another 2$'
wrong domain "$2" "op Wrong: is in ONNX's own domain, expected one of its own$"
wrong function "$2" "function 3, CreateEnv, of ONNX Runtime's C API is not there for custom ops$"
wrong throw "$2" 'an exception of unknown type$'
# Sanitizers would answer the signal themselves.
export ASAN_OPTIONS=handle_segv=0:${ASAN_OPTIONS:-} TSAN_OPTIONS=handle_segv=0:${TSAN_OPTIONS:-}
wrong newer "$2" "ended the process that tried to load it: signal 11 .*it asks for version 24 of ONNX Runtime's C API, expected 1 to 23$"
expect 1 'op pagefuse[.a-z0-9]*\.[A-Za-z]*: it is an op already$' ops --plugin "$(dirname "$pagefuse")/libpagefuse_ort.so"

IFS=: read -ra releases <<< "${PAGEFUSE_ORT_LIBS:-}"
for release in "${releases[@]}"; do
  [ -n "$release" ] || continue
  expect 0 '' opt $graph --plugin "$library" -o "$out/third_party.onnx"
  expect 0 '^ONNX Runtime [0-9.]*, libthird_party_ort.so: 13 ops, 14 rows, registered in [0-9]* ms; 9 nodes$' \
    ort "$out/third_party.onnx" --plugin "$library" --library "$library" --ort "$release"
  expect 0 '11 outputs equal: floats within 0, ([0-9]*) of \1 bytes of codes identical$' \
    ort "$out/third_party.onnx" --plugin "$library" --library "$library" --ort "$release"
done
