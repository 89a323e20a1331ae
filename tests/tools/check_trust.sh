#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_trust.sh PAGEFUSE: the comparison of a rewritten decoder with its export, as a user meets it. Run in the top folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
export XDG_CACHE_HOME=$out/cache
model=models/gemma3_B18/model.onnx
ask="generate $model --prompt-ids 1,2,3,4,5 --max-new-tokens 6 --json"
verdicts=$XDG_CACHE_HOME/pagefuse/verdicts
tokens() { grep -o '"tokens":\[[^]]*\]' "$out/printed" | head -1; }

# A graph that is right, once.
expect 0 '"verdict":"the logits of [0-9]+ probes are those of the graph as it was exported' $ask
right=$(tokens)
[ "$(ls "$verdicts" | wc -l)" -eq 1 ] || fail "expected one verdict"
sed -i 's/"probes": [0-9]*/"probes": 4321/' "$verdicts"/*.json
expect 0 '"verdict":"the logits of 4321 probes' $ask
# A file that is broken is written anew.
echo '{' >"$(ls "$verdicts"/*.json)"
expect 0 '"verdict":"the logits of [0-9]+ probes' $ask
grep -q '"outcome": "equal"' "$verdicts"/*.json || fail "the verdict is still broken"
# Another question has another answer.
expect 0 '' $ask --kv-cache bf16
[ "$(ls "$verdicts" | wc -l)" -eq 2 ] || fail "expected two verdicts"
expect 0 '"verdict":"the logits of [0-9]+ probes' $ask --check-paging always
expect 0 '' $ask --check-paging never
! grep -q '"verdict"' "$out/printed" || fail "compared though never was asked for"
# A folder that nothing can be written into is no matter.
XDG_CACHE_HOME=/proc/nothing expect 0 '"verdict":"the logits of [0-9]+ probes' $ask
expect 1 'check of paging: expected once, always or never, got "sometimes"' $ask --check-paging sometimes

# A rule that is wrong.
cat >"$out/wrong.rules.txt" <<'RULE'
# rule: lost-sign
# before: rms-norm
(x) => (y) { y = Neg (x) }
# ---- after
(x) => (y) { y = Abs (x) }
RULE
expect 0 '' opt $model --rules "$out/wrong.rules.txt" -o "$out/wrong.onnx" --no-function-bodies --check-paging never
expect 0 'NOT EQUAL: rewrite [0-9]+, pass wrong, rule lost-sign at "neg": the logits of prompts of 4 and 2 tokens in one batch .* expected .*; the graph runs without that rewrite' \
  opt $model --rules "$out/wrong.rules.txt" -o "$out/mended.onnx" --no-function-bodies
expect 0 'NOT EQUAL: .*lost-sign' opt $model --rules "$out/wrong.rules.txt" -o "$out/again.onnx" --no-function-bodies
cmp "$out/mended.onnx" "$out/again.onnx" || fail "a verdict that is known gives another file"
expect 0 '' opt $model -o "$out/right.onnx" --no-function-bodies
expect 0 '^same$' diff "$out/mended.onnx" "$out/right.onnx"
expect 1 '' diff "$out/wrong.onnx" "$out/right.onnx"
# The written file has the tokens of the export.
expect 0 '' generate "$out/mended.onnx" --prompt-ids 1,2,3,4,5 --max-new-tokens 6 --json
[ "$(tokens)" = "$right" ] || fail "the mended file gives $(tokens), not $right"
