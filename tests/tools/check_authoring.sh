#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_authoring.sh PAGEFUSE DATA: the tools for pass authors, on bundled exports. DATA is where test data is unpacked. Run in the top folder.
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
expect 0 '^paging: logits of [0-9]+ probes equal$' verify $model
expect 0 '^paging: logits of [0-9]+ probes equal$' verify models/deepseek_v3_A18/model.onnx
expect 0 ' equal, 0 differ, 0 not compared' verify $model --no-page --samples 3
expect 0 ' equal, 0 differ, 0 not compared' verify $model --no-page --data "$2/models/gemma3_B18"
# Every rewrite but those that change inputs or outputs, of exports of any kind: caches of GroupQueryAttention that are as long as a
# window, codes, windows of 128 tokens.
for one in gemma3_D_fp32 gemma3_D_kvint8 gemma3_D_windowed deepseek_v4p_A18; do
  expect 0 '^paging: logits of [0-9]+ probes equal$' verify models/$one/model.onnx
  grep -q ' 0 differ, 2 not compared;' "$out/printed" || fail "a rewrite of $one is not compared"
done
# Weights that are not there are made up.
expect 0 '' opt $model --passes cse -o "$out/plain.onnxtxt" --emit text
expect 0 ' equal, 0 differ, 0 not compared' verify "$out/plain.onnxtxt" --no-page
cat >"$out/huge.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 24]>
g (float[T, 1000000] x) => (float[T, 100000] y) <float[1000000, 100000] w = ...> { y = MatMul (x, w) }
END
expect 1 'weights of 381469 MiB are not there, and cannot be made up: half of the memory is [0-9]+ MiB' verify "$out/huge.onnxtxt"

# Names.
expect 1 'there is no pass "csx"; similar names: "cse"' verify $model --disable-pass csx
expect 1 'unknown option "--sample"; similar names: "--samples"' verify $model --sample 3
expect 1 'No such file' verify $model --data "$out/missing"

# Rules as text in place of a pass.
expect 0 '^acme-rms-norm: 37$' opt $model --rules tests/data/rms_norm.rules.txt --disable-pass rms-norm --stats
expect 0 '^acme-rms-norm: 37$' opt models/gemma3_A18/model.onnx --rules tests/data/rms_norm.rules.txt --disable-pass rms-norm --stats
expect 0 '^acme-rms-norm: 17$' opt models/deepseek_v3_A18/model.onnx --rules tests/data/rms_norm.rules.txt --disable-pass rms-norm --stats
for name in gemma3_A18 gemma3_B18 deepseek_v3_A18; do
  "$pagefuse" opt models/$name/model.onnx -o "$out/built_in.onnx" --no-function-bodies 2>/dev/null
  "$pagefuse" opt models/$name/model.onnx --rules tests/data/rms_norm.rules.txt --disable-pass rms-norm --no-function-bodies \
    -o "$out/in_text.onnx" 2>/dev/null
  expect 0 '^same$' diff "$out/built_in.onnx" "$out/in_text.onnx"
done
sed 's/^# before: /# befor: /' tests/data/wrong.rules.txt >"$out/typo.rules.txt"
expect 1 'typo.rules.txt:5:3: there is no key "befor"; similar names: "before"' opt $model --rules "$out/typo.rules.txt"
grep -qE '^  \^$' "$out/printed" || fail "no mark under the key"

# A wrong rule is told at its first rewrite, found by halving, and cut out of the model.
wrong="--rules tests/data/wrong.rules.txt --disable-rule bad-norm,bad-swish --no-page"
expect 1 '^rewrite [0-9]+ of [0-9]+, pass wrong, rule bad-tanh at "val_386": element 0: expected 0.547038, got 0.570497 ' verify $model $wrong
expect 1 ' rewrites: [0-9]+ equal, 6 differ \(bad-tanh 6\), 0 not compared; ' verify $model $wrong
expect 1 'rewrite [0-9]+, pass wrong, rule bad-tanh at "val_386": element 0: ' opt $model $wrong --verify
expect 1 '^first bad rewrite [0-9]+, pass wrong, rule bad-tanh at "val_386"$' bisect $model $wrong -o "$out/found"
grep -qE '^[0-9]+ rewrites; all: "logits" differ; 1-[0-9]+ (equal|differ); .* \([0-9]+ runs, [0-9.]+ s\)$' "$out/printed" || fail "no history of the search"
grep -q 'bad-tanh.onnxtxt: 1 node before, 2 after; run: pagefuse expect ' "$out/printed" || fail "no pass test"
expect 1 '^  a pass changed the graph$' expect "$out/found/bad-tanh.onnxtxt"
expect 1 '^first bad rewrite .* rule bad-tanh ' bisect $model --rules tests/data/wrong.rules.txt --all --no-page --disable-rule bad-swish
expect 0 '^[0-9]+ rewrites; all: equal \(1 run, ' bisect $model --no-page
expect 0 '^[0-9]+ rewrites; all: equal \(1 run, ' bisect $model
expect 1 '^first bad rewrite [0-9]+, pass rms-norm at ' bisect $model --no-page --check "! '$pagefuse' inspect {} | grep -q RMSNormalization"
expect 1 'expected a command with \{\} for the model' bisect $model --check true
expect 1 'no_such_program' bisect $model --check 'no_such_program {}'

expect 0 '^753 nodes -> 1 node, 15 inputs -> 1 input, .* -> 0 bytes of constants; [0-9]+ checks, [0-9.]+ s; same reason: bad-tanh$' \
  reduce $model --verify $wrong -o "$out/small.onnxtxt"
grep -q 'y1 = Tanh (x0)' "$out/small.onnxtxt" || fail "another graph is left"
expect 0 '^753 nodes -> 1 node, ' reduce $model --check "'$pagefuse' inspect {} | grep -q Softmax && exit 1 || exit 0" -o "$out/small.onnx"
expect 0 '^  Softmax: 1$' inspect "$out/small.onnx"
expect 1 'the whole model passes the check' reduce $model --verify --no-page
expect 1 'reduce needs one of --check and --verify' reduce $model

# What is different, and what is not.
expect 0 '^same$' diff $model $model
expect 1 '^ops: .*Softmax 6 -> 0' diff $model "$out/built_in.onnx"
"$pagefuse" opt $model --no-page --emit text -o "$out/all.onnxtxt" --max-elements -1 2>/dev/null
"$pagefuse" opt $model --no-page --emit text -o "$out/less.onnxtxt" --max-elements -1 --disable-pass gated-mlp 2>/dev/null
expect 1 'pagefuse.GatedLinear 6 -> 0' diff "$out/all.onnxtxt" "$out/less.onnxtxt"
expect 1 '^numbers: equal$' diff "$out/all.onnxtxt" "$out/less.onnxtxt" --numbers
expect 1 '"same": false' diff "$out/all.onnxtxt" "$out/less.onnxtxt" --json

# What fused, and what did not.
expect 0 '^layers 0-5  GatedLinear, PagedAttention, RopeCacheInsert$' explain $model --strict
expect 1 'there is no rule or pass "rms-nrom"; similar names: "rms-norm"' explain $model --rule rms-nrom
expect 1 'there is no layer 9; the graph has 6' explain $model --layer 9
expect 0 '"leftovers": \[\]' explain $model --json
expect 0 '^rms-norm fired 37 times' explain $model --rule rms-norm
expect 0 '^ReduceMean "mean": RMSNorm written out; rms-norm \(form "pow sqrt-div"\) 6 of 6 nodes$' explain tests/data/norm.onnxtxt \
  --no-page --disable-rule rms-norm-unweighted
grep -q "^  failed: rank(weight) == 1: 2 and 1$" "$out/printed" || fail "no condition that failed"
grep -qE '^    y = Mul \(normed, weight\) +y = Mul \(normed, w\)$' "$out/printed" || fail "no pattern beside graph"
expect 1 'RMSNorm written out' explain tests/data/norm.onnxtxt --no-page --disable-rule rms-norm-unweighted --strict
