#!/usr/bin/env bash
# check_authoring.sh PAGEFUSE: the tools for pass authors, on bundled exports. Run in the top folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
model=models/gemma3_B18/model.onnx

# Every rewrite of a pipeline has a number and a place, and one can stop behind any of them.
expect 0 '' opt $model --no-page --rewrite-log "$out/log" --stats
[ "$(grep -c '^rewrite ' "$out/log")" -gt 300 ] || fail "rewrites are missing from the log"
grep -qE '^rewrite [0-9]+, pass rms-norm at "type_as(_[0-9]+)?"$' "$out/log" || fail "no rms-norm in the log"
grep -qE '^  \+ .* = RMSNormalization ' "$out/log" || fail "no node made in the log"
expect 0 '' opt $model --no-page --rewrite-limit 3 --rewrite-log "$out/few"
diff "$out/few" <(sed -n '/^rewrite 4,/q;p' "$out/log") || fail "the first three rewrites are other ones"
expect 0 '^nodes: 753$' inspect $model
expect 0 '' opt $model --rewrite-limit 0 --emit text -o "$out/none.onnxtxt"
expect 0 '^nodes: 753$' inspect "$out/none.onnxtxt"

# Numbers before and after each of them, and of what paging changes.
expect 0 '^[0-9]+ rewrites: [0-9]+ equal, 0 differ, 0 not compared; [0-9.]+ s$' verify $model --no-page
expect 0 '^paging: logits of 2 sequences, 3 steps equal$' verify $model
expect 0 '^paging: logits of 2 sequences, 1 step equal$' verify models/deepseek_v3_A18/model.onnx
expect 0 ' equal, 0 differ, 0 not compared' verify $model --no-page --samples 3
expect 0 ' equal, 0 differ, 0 not compared' verify $model --no-page --data models/gemma3_B18
# Weights that are not there are made up.
expect 0 '' opt $model --passes cse -o "$out/plain.onnxtxt" --emit text
expect 0 ' equal, 0 differ, 0 not compared' verify "$out/plain.onnxtxt" --no-page
expect 1 'weights of [0-9]+ MiB are not there; up to 2048 MiB are made up' verify models/gemma3_1b_graph/model.onnx

# Names.
expect 1 'there is no pass "csx"; similar names: "cse"' verify $model --disable-pass csx
expect 1 'unknown option "--sample"; similar names: "--samples"' verify $model --sample 3
expect 1 'No such file' verify $model --data "$out/missing"
