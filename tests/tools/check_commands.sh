#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_commands.sh PAGEFUSE DATA: every command as a user calls it, on bundled exports. DATA is where test data is unpacked. Run in the top folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
model=models/gemma3_A18/model.onnx
case=$2/models/gemma3_A18

expect 0 '^pagefuse [0-9]+\.[0-9]+\.[0-9]+$' --version
expect 0 '^nodes: 695$' inspect $model
expect 0 '^  Softmax: 6$' inspect $model
expect 0 '"nodes": 695' inspect --json $model
expect 1 'expected a folder or a graph, got nothing' inspect "$out/missing.onnx"
expect 0 'PagedAttention' opt $model
expect 0 '^insert-paged-cache: ' opt --list-passes
expect 1 'there is no pass "insert-paged-cash"' opt --passes insert-paged-cash $model
expect 0 'PagedAttention' opt $model --verify
expect 0 '^verify: rewrite [0-9]+ of [0-9]+, pass insert-paged-cache at "logits": not compared: inputs or outputs changed$' opt $model --verify
expect 0 '^verify: [0-9]+ rewrites: [0-9]+ equal, 0 differ, 2 not compared$' opt $model --verify
expect 0 '^digraph ' opt $model --emit dot
expect 0 '' opt $model -o "$out/fused.onnx"
expect 0 '^  pagefuse.PagedAttention: 6$' inspect "$out/fused.onnx"
expect 0 '^logits: float\[' run $model -i "$case/test_data_set_0/input_0.pb" \
  -i "$case/test_data_set_0/input_1.pb" -i "$case/test_data_set_0/input_2.pb"
expect 0 '^1 passed, 0 failed, 0 skipped$' check "$case"
expect 1 '^0 passed, 1 failed, 0 skipped$' check "$case" --rtol 0 --atol 1e-12
expect 0 '"tokens":\[37,80,233,43,43,233,120,208\]' generate $model --max-new-tokens 8 --kv-cache none --json --prompt-ids \
  65,59,23,234,218,152,35,130,160,194,21,65,186,48,84,119,19,230,74,132,195,238,194,46,206,125,75,223,113,135,44,223,207,170,207,120,59,145,74,110
expect 0 '^pagefuse.PagedAttention since 1: reference, hwy' ops PagedAttention

# Every command takes a model's folder for its graph, and of two graphs the one that can be paged.
folder=$out/two
mkdir "$folder"
cp $model models/gemma3_A18/config.json "$folder"
cp $model "$folder/other.onnx"
printf '<ir_version: 10, opset_import: ["" : 24]> g (float x) => (float y) { y = Relu (x) }' >"$folder/model.onnx"
cat >"$out/folder.expect" <<END
# model: $folder
# expect: pagefuse.PagedAttention x6
END
chosen='of the 2 graphs in ".*/two" other.onnx is used, the first that can be paged \(--graph takes another: model.onnx\)$'
printf '1,2,3\n4,5\n' >"$out/prompts"
for command in inspect opt explain verify "diff $folder" bisect "report --json --no-times" "calibrate --prompts $out/prompts" \
  "check --fuse" "bench -p 4 -n 2 -r 1" "generate --prompt-ids 1,2 --max-new-tokens 2"; do
  expect 0 "$chosen" $command "$folder"
done
expect 0 "$chosen" expect "$out/folder.expect"
expect 0 '^ok ' expect "$out/folder.expect"
expect 0 '^nodes: 1$' inspect "$folder" --graph model.onnx
unlike 'is used'
expect 1 'expected the graph "x.onnx", got model.onnx, other.onnx' inspect "$folder" --graph x.onnx
expect 0 'paged, the logits of [0-9]+ probes are those of the graph as it was exported$' check --fuse $model
expect 1 "\"$out/none\" is empty" inspect "$(mkdir "$out/none" && echo "$out/none")"
printf 'version https://git-lfs.github.com/spec/v1\n' >"$out/none/model.onnx"
expect 1 'model.onnx" is a Git-LFS pointer, not the file itself: git -C ".*/none" lfs pull fetches it$' generate "$out/none" --prompt a

# From standard input; what is wrong with a text is what the text parser says.
expect_from() {
  "${@:4}" >"$out/input"
  expect "$1" "$2" $3 <"$out/input"
}
expect_from 0 '^nodes: 695$' 'inspect -' cat $model
expect_from 0 'PagedAttention' 'opt -' cat $model
expect_from 0 '^  y = Relu \(x\)$' 'opt --passes cse -' printf '%s' '<ir_version: 10, opset_import: ["" : 24]> g (float x) => (float y) { y = Relu (x) }'
expect_from 1 '^pagefuse: standard input: line 2, column 5: expected "=", got "\+"$' 'opt -' \
  printf '%s\n' 'g (float x) => (float y) {' '  y + Relu (x) }'
expect_from 1 '^pagefuse: standard input: the file is empty$' 'opt -' true
expect_from 0 '^tokens: ' "generate - --prompt-ids 1,2 --max-new-tokens 1" cat $model
