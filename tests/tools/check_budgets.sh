#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_budgets.sh PAGEFUSE DATA: messages stay short whatever a file holds, any limit of memory is either enough or refused with what asked
# for more, and rules that write what does not exist are refused. DATA is where test data is unpacked. Run in the top folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"

# short STATUS PATTERN ARGUMENTS...: as expect, and what is printed has 4,000 bytes at most.
short() {
  expect "$@"
  [ "$(stat -c %s "$out/printed")" -le 4000 ] || fail "pagefuse ${*:3} printed $(stat -c %s "$out/printed") bytes"
}

list=$(seq -s ', ' 0 99999)
string=$(head -c 200000 /dev/zero | tr '\0' x)
name=$(head -c 100000 /dev/zero | tr '\0' n)
# model NODE: a graph of one node, which makes y of x.
model() {
  printf '<ir_version: 10, opset_import: ["" : 21]>\ng (float[2, 3] x) => (float[N, M] y) { %s }\n' "$1" >"$out/model.onnxtxt"
}
model "[the_node] y = Transpose <perm = [$list]> (x)"
short 0 'the_node.*bytes left out' inspect "$out/model.onnxtxt"
short 0 'the_node.*bytes left out' inspect --json "$out/model.onnxtxt"
short 1 'the_node.*bytes left out' opt "$out/model.onnxtxt"
short 1 'the_node.*bytes left out' run "$out/model.onnxtxt"
model "[the_node] y = Gelu <approximate = \"$string\"> (x)"
short 0 'the_node' inspect "$out/model.onnxtxt"
short 1 'the_node.*bytes left out' run "$out/model.onnxtxt"
model "[\"$name\"] y = Transpose <perm = [0, 7]> (x)"
short 1 'bytes left out.*Transpose' run "$out/model.onnxtxt"
model "[the_node] y = $name (x)"
short 1 'bytes left out' run "$out/model.onnxtxt"
short 0 'bytes left out' inspect "$out/model.onnxtxt"

# Memory of any size.
cat >"$out/constant.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 21]>
g (float[2] x) => (float[2] y, int64[4] z) {
  two = Constant <value_float = 2.0> ()
  z = Constant <value_ints = [1, 2, 3, 4]> ()
  y = Mul (x, two)
}
END
printf '\x08\x02\x10\x01\x42\x01x\x4a\x08\0\0\x80\x3f\0\0\0\x40' >"$out/x.pb"  # x = [1, 2]
for bytes in 1 2 4 7 8 15 16 31 32 33 63 64 100 1000 65536; do
  status=0
  "$pagefuse" run "$out/constant.onnxtxt" -i "$out/x.pb" --max-memory $bytes >"$out/printed" 2>&1 || status=$?
  [ $status -eq 0 ] || { [ $status -eq 1 ] && grep -q 'no memory for [0-9]* bytes' "$out/printed"; } || fail "--max-memory $bytes: status $status"
done
export XDG_CACHE_HOME=$out/cache  # nothing is known of any model
for bytes in 1 100 1000 10000 30000 100000 300000 1000000 3000000; do
  status=0
  "$pagefuse" generate models/gemma3_A18/model.onnx --prompt-ids 1,2 --max-new-tokens 2 --max-memory $bytes >"$out/printed" 2>&1 || status=$?
  [ $status -eq 0 ] || { [ $status -eq 1 ] && grep -q 'memory\|bytes' "$out/printed"; } || fail "--max-memory $bytes: status $status"
done
# That memory was short once says nothing of the rewrites, and is not kept as if it did.
expect 0 '^tokens: ' generate models/gemma3_A18/model.onnx --prompt-ids 1,2 --max-new-tokens 2 --max-memory 1GiB
unlike 'NOT (PAGED|EQUAL)'


# What a rule writes has to exist.
cat >"$out/mine.rules.txt" <<'END'
# rule: mine
(x) => (y) { y = Tanh (x) }
# ---- after
(x) => (y) { y = Sigmoyd (x) }
END
expect 1 'mine.rules.txt:4:14: .*no op "Sigmoyd" .*similar names: "Sigmoid"' verify models/gemma3_A18/model.onnx --rules "$out/mine.rules.txt"
expect 1 'mine.rules.txt:4:14: ' opt models/gemma3_A18/model.onnx --rules "$out/mine.rules.txt"
