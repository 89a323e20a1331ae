#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_elided.sh PAGEFUSE DATA: a graph that was printed without its large tensors says so, reads back, goes through the
# passes, and does not run. DATA is where test data is unpacked. Run in the top folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
model=models/gemma3_A18/model.onnx

expect 0 '^# [0-9]+ tensors are left out' opt $model --passes cse
cp "$out/printed" "$out/plain.onnxtxt"
expect 0 '' opt "$out/plain.onnxtxt" --passes cse
grep -av '^pagefuse: note: ' "$out/printed" | diff "$out/plain.onnxtxt" - >/dev/null || fail "the text of a text is another one"
expect 0 '^runnable: initializer .* and [0-9]+ others: the data was left out' inspect "$out/plain.onnxtxt"
expect 0 '^  y|PagedAttention' opt "$out/plain.onnxtxt"
expect 0 'RopeCacheInsert' opt "$out/plain.onnxtxt" --stats
[ "$(grep -ac '= pagefuse.PagedAttention' "$out/printed")" -eq 6 ] || fail "not every layer is paged without data"
expect 1 'the data was left out' run "$out/plain.onnxtxt" -i "$2/models/gemma3_A18/test_data_set_0/input_0.pb"
expect 1 'the data was left out' generate "$out/plain.onnxtxt" --prompt-ids 1
expect 1 'the data was left out' opt "$out/plain.onnxtxt" -o "$out/plain.onnx"
[ ! -e "$out/plain.onnx" ] || fail "a model without data was written"
expect 0 '^verify: .* not compared: .*the data of a tensor that it reads was left out$' opt "$out/plain.onnxtxt" --verify

# The same after a pass, on the error stream.
"$pagefuse" opt $model --print-after-changed >/dev/null 2>"$out/printed"
grep -q '^# after insert-paged-cache$' "$out/printed" || fail "nothing was printed after insert-paged-cache"
[ "$(stat -c %s "$out/printed")" -lt 20000000 ] || fail "--print-after-changed prints tensors whole"
"$pagefuse" opt $model --print-after-changed --max-elements 100000 >/dev/null 2>"$out/more"
[ "$(stat -c %s "$out/more")" -gt "$(stat -c %s "$out/printed")" ] || fail "--max-elements changes nothing"

# Nothing left out, nothing said.
expect 0 '' opt $model --passes cse --max-elements -1
unlike '^# .* left out'

# A graph whose file of weights is not there.
expect 0 '^pagefuse: note: .*its file is not there' opt models/gemma3_1b_graph/model.onnx --stats
[ "$(grep -ac '= pagefuse.PagedAttention' "$out/printed")" -eq 26 ] || fail "not every layer is paged without its file"
expect 0 '^runnable: .*its file is not there' inspect models/gemma3_1b_graph/model.onnx
expect 1 'No such file' generate models/gemma3_1b_graph/model.onnx --prompt-ids 1
