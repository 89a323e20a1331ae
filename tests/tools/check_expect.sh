#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_expect.sh PAGEFUSE: what `pagefuse expect` says of files that are right and wrong. Run in the top folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
model=$PWD/models/gemma3_A18/model.onnx

expect 0 '^3 passed, 0 failed$' expect tests/expect
expect 0 '^ok tests/passes/swish/' expect tests/passes/swish
expect 1 'No such file' expect "$out/missing"
mkdir "$out/empty"
expect 1 'no pass test and no expectation \(.onnxtxt, .expect\) below' expect "$out/empty"

# A count that is off comes with the place that no op took up.
cat >"$out/count.expect" <<END
# model: $model
# options: kv_cache=fp8_per_token_head
# expect: pagefuse.RopeCacheInsert x5, pagefuse.PagedAtention
# expect-not: pagefuse.GatedLinear
# expect-node: pagefuse.PagedAttention <sliding_window = 16> x4
# expect-input: "kv_cache.0.key" float[?, 16, 1, 32]
# expect-input: "kv_cache.0.kei" float
# nodes: at most 10
END
expect 1 '^  expected pagefuse.RopeCacheInsert x5, found x6$' expect "$out/count.expect"
expect 1 '^  expected pagefuse.PagedAtention, found x0; similar names: "pagefuse.PagedAttention"$' expect "$out/count.expect"
expect 1 '^  expected no pagefuse.GatedLinear, found 6$' expect "$out/count.expect"
expect 1 '^  expected pagefuse.PagedAttention <sliding_window = 16> x4, found x5 of 6$' expect "$out/count.expect"
expect 1 '^  input "kv_cache.0.key": expected float\[\?, 16, 1, 32\], found float8e4m3fn\[' expect "$out/count.expect"
expect 1 '^  expected an input "kv_cache.0.kei", found none; similar names: "kv_cache.0.key"' expect "$out/count.expect"
expect 1 '^  expected at most 10 nodes, found [0-9]+$' expect "$out/count.expect"
expect 1 '^0 passed, 1 failed$' expect "$out/count.expect" --junit "$out/junit.xml"
grep -q '<testsuite name="pagefuse" tests="1" failures="1">' "$out/junit.xml" || fail "no JUnit"
grep -q 'failure message="expected pagefuse.RopeCacheInsert x5, found x6"' "$out/junit.xml" || fail "no JUnit failure"

# A graph whose last layer has another activation: the count is off, and the place is told.
"$pagefuse" opt models/gemma3_A18/model.onnx --passes dead-code --max-elements -1 --emit text -o "$out/export.onnxtxt" 2>/dev/null
tanh=$(grep -aoE '[a-z_0-9]+ = Tanh' "$out/export.onnxtxt" | tail -1)
sed "s/$tanh/${tanh% = Tanh} = Softsign/" "$out/export.onnxtxt" >"$out/changed.onnxtxt"
printf '# model: changed.onnxtxt\n# expect: pagefuse.GatedLinear x6\n' >"$out/changed.expect"
expect 1 '^  expected pagefuse.GatedLinear x6, found x5$' expect "$out/changed.expect"
expect 0 '^updated ' expect "$out/changed.expect" --update
grep -q '^# expect: pagefuse.GatedLinear x5$' "$out/changed.expect" || fail "--update wrote another count"
expect 0 '^1 passed, 0 failed$' expect "$out/changed.expect"

# Numbers, against the graph before.
printf '# model: %s\n# numbers: logits within 1e-4\n' "$model" >"$out/numbers.expect"
expect 0 '^1 passed' expect "$out/numbers.expect"
printf '# model: %s\n# numbers: logits within 1e-30\n' "$model" >"$out/numbers.expect"
expect 1 '^  numbers: the logits of .* are not those of the graph as it was exported: ' expect "$out/numbers.expect"
printf '# model: %s\n# numbers: logit within 1e-4\n' "$model" >"$out/numbers.expect"
expect 1 '^  numbers: the graph has no output "logit"$' expect "$out/numbers.expect"

# Keys.
printf '# expct: Softmax\n# nodes: at most 1\n' >"$out/key.expect"
expect 1 'key.expect: line 1: there is no key "expct"; similar names: "expect"' expect "$out/key.expect"
printf '# expect: A x1\n# numbers: y in 3\n' >"$out/key.expect"
expect 1 'key.expect: line 2: expected OUTPUT within NUMBER' expect "$out/key.expect"
printf '# just a comment\n' >"$out/key.expect"
expect 1 'is no pass test .* and says nothing that it expects' expect "$out/key.expect"

# A pass test that fails, and what --update makes of it.
cat >"$out/pass.onnxtxt" <<'END'
# run: swish
<ir_version: 10, opset_import: ["" : 24]>
g (float[T] x) => (float[T] y) { s = Sigmoid (x) y = Mul (x, s) }
# ---- after: unchanged
END
expect 1 '^  a pass changed the graph$' expect "$out/pass.onnxtxt"
expect 0 '^updated ' expect "$out/pass.onnxtxt" --update
grep -q 'y = Swish (x)' "$out/pass.onnxtxt" || fail "--update wrote another graph"
