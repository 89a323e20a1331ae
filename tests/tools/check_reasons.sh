#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_reasons.sh PAGEFUSE DATA: what got no pages and what did not fuse is said unasked, in a line for each reason, by
# every command that fuses; --explain says the rest. DATA is where test data is unpacked. Run in the top folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
defects=$2/went_wrong
paged=models/gemma3_A18/model.onnx

# A graph that fuses whole leaves nothing to be said.
expect 0 'PagedAttention' opt $paged
unlike '^pagefuse: not '
expect 0 '^tokens: ' generate $paged --prompt-ids 1,2 --max-new-tokens 1
unlike '^pagefuse: not '
expect 0 '^  PagedAttention  .* x6$' inspect $paged
unlike '^would leave'

# One node that mixes tokens: no attention is paged, in one line.
reason='attention without pages at node ".*" \(Attention\), 6 of them; nearest is insert-paged-cache: node ".*" \(Conv\)'
expect 0 "^pagefuse: not fused: $reason" opt "$defects/A_conv.onnx"
[ "$(grep -c '^pagefuse: not ' "$out/printed")" -eq 1 ] || fail "more than one line for one reason"
expect 0 '^would leave:$' inspect "$defects/A_conv.onnx"
expect 0 '^  attention without pages  .*x6  first node .*; nearest is insert-paged-cache: node .*Conv' inspect "$defects/A_conv.onnx"
expect 0 '"rule": "insert-paged-cache"' inspect --json "$defects/A_conv.onnx"
expect 0 '^pagefuse: NOT PAGED: .*\(Conv\)' generate "$defects/A_conv.onnx" --prompt-ids 1,2 --max-new-tokens 1
unlike '^pagefuse: not fused: attention'
expect 0 '^pagefuse: not paged: .*\(Conv\)' opt "$defects/A_conv.onnx" --disable-pass unfused-places

# An attention that no rule takes: the nearest, and what it met.
odd=$out/odd.onnxtxt
cat >"$odd" <<'END'
<ir_version: 10, opset_import: ["" : 24]>
odd (float[1, 2, 3, 4] q, float[1, 2, 3, 4] k, float[1, 2, 3, 4] v, float[2, 1, 1] half) => (float[1, 2, 3, 4] y) {
  kt = Transpose <perm = [0, 1, 3, 2]> (k)
  scores = MatMul (q, kt)
  scaled = Mul (scores, half)
  [soft] p = Softmax <axis = -1> (scaled)
  y = MatMul (p, v)
}
END
reason='attention written out at node "soft" \(Softmax\); nearest is attention[a-z-]*: "half": expected a constant, got an input'
expect 0 "^pagefuse: not fused: $reason" opt "$odd"
expect 0 "^pagefuse: not fused: $reason" opt --no-page "$odd"
expect 0 '^  attention written out  .*x1  first node "soft"' inspect "$odd"

# --explain: each place once, and something to be said of what there is nothing of.
expect 0 '^attention[a-z-]* at "y" \([0-9]+ nodes matched\): ' opt "$odd" --explain attention
[ "$(grep -c '^attention-unmasked at "y"' "$out/printed")" -le 1 ] || fail "a place is told twice"
expect 0 '^nothing in the graph resembled rope, rope-shared, rope-halves, rope-by-position$' opt "$odd" --explain rope
expect 0 '^did not run: .*rope' opt "$odd" --explain rope --passes cse
expect 0 '^cse fired .*, and nothing else resembled it$' opt $paged --explain cse
expect 0 '^nothing in the graph resembled ' opt "$odd" --explain '*'

# Every command that runs passes takes their options.
for command in "opt $paged" "inspect $paged" "generate $paged --prompt-ids 1 --max-new-tokens 1" \
  "run --fuse $odd"; do
  expect 1 'there is no pass option "logit"; similar names: "logits"|--option: .*"logit"' $command --option logit=all
  expect 1 '^pagefuse: --option: expected name=value, got "logits"|--option: expected name=value, got "logits"' \
    $command --option logits
done
expect 0 '^tokens: ' generate $paged --prompt-ids 1,2 --max-new-tokens 1 --option block_size=8

# A node that inference refuses cannot run, and inspect does not say that it can.
wrong=$out/wrong.onnxtxt
cat >"$wrong" <<'END'
<ir_version: 10, opset_import: ["" : 24]>
wrong (float[1, 2, 3, 4] x, float[1, 3, 2] c, float[1, 3, 2] s) => (float[1, 2, 3, 4] y) {
  y = RotaryEmbedding <interleaved = 2> (x, c, s)
}
END
expect 0 '^runnable: .*"interleaved": expected 0 or 1, got 2' inspect "$wrong"

# Every near miss of the corpus: a rule of an op that it nearly is, and the condition that failed.
negatives=0
for case in "$2"/corpus/*_neg_*/; do
  ops=$(python3 -c 'import json, sys; print("\n".join(json.load(open(sys.argv[1])).get("near_miss_of", [])))' "$case/expect.json")
  [ -n "$ops" ] || continue
  negatives=$((negatives + 1))
  rules=$(sed -E 's/pagefuse\.//; s/^(PagedAttention)$/fuse-paged-attention/; s/^SparseMlaAttention$/fuse-sparse-mla/
    s/^TopKSlots$/fuse-topk-slots/; s/^([A-Z])/fuse-\1/' <<< "$ops" | paste -sd '|')
  expect 0 "^near: ($rules) at \"[^\"]*\"( and [0-9]+ places? like it)? \([0-9]+ nodes matched\): ." explain "$case/model.onnx"
done
[ "$negatives" -eq 13 ] || fail "$negatives near misses in the corpus"
