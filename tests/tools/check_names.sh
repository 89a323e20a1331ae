#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_names.sh PAGEFUSE DATA: names that are not there are refused, with similar ones where there are any; lists take one
# value each, so that the model behind them is the model. DATA is where test data is unpacked. Run in the top folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
model=$out/doubled.onnxtxt
cat >"$model" <<'END'
<ir_version: 10, opset_import: ["" : 24]>
doubled (float[T] x) => (float[T] y) {
  two = Constant <value_float = 2.0> ()
  same = Identity (x)
  y = Mul (same, two)
}
END
# x = [1, 2, 3]
printf '\x08\x03\x10\x01\x42\x01x\x4a\x0c\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40' >"$out/x.pb"

# Every option that takes names of passes, rules or options.
expect 1 'there is no pass "csx"; similar names: "cse"' opt "$model" --passes csx
expect 1 'there is no pass "csx"; similar names: "cse"' opt "$model" --disable-pass csx
expect 1 'there is no pass "csx"; similar names: "cse"' run "$model" --disable-pass csx
expect 1 'there is no pass "csx"; similar names: "cse"' generate models/gemma3_A18/model.onnx --prompt-ids 1 --disable-pass csx
expect 1 'there is no pass "csx"; similar names: "cse"' opt "$model" --print-after csx
expect 1 'there is no rule or pass "atention"; similar names: "attention"' opt "$model" --explain atention
expect 1 'there is no pass option "blok_size"; similar names: "block_size"' opt "$model" --option blok_size=8
expect 1 'option logits: expected last, all, got "al"' opt "$model" --option logits=al
expect 1 'option absorb_mla: expected off, on, got "yes"' opt "$model" --option absorb_mla=yes
expect 1 'option block_size: expected a number, got "x"' opt "$model" --option block_size=x
expect 1 'option k_scale: expected a number, got "big"' opt "$model" --option k_scale=big
expect 1 'option kv_cache: expected none, .*, got "fp9"' opt models/gemma3_A18/model.onnx --kv-cache fp9
expect 1 'option kv_cache: expected none, .*, got "fp9"' generate models/gemma3_A18/model.onnx --prompt-ids 1 --kv-cache fp9
expect 1 'expected name=value, got "logits"' opt "$model" --option logits
expect 1 'there is no op "PagedAtention"; similar names: "PagedAttention"' ops PagedAtention
expect 1 'no such op has kernels; similar names: "MatMul"' run "$model" --kernel MatMull=reference
expect 1 'op "MatMul" has no kernel "refrence"; it has .*reference' run "$model" --kernel MatMul=refrence
expect 1 '--emit: expected text, onnx or dot, got "pdf"' opt "$model" --emit pdf
expect 1 '--weights: expected float32, bf16, int8, int4, got "int5"; similar names: "int4", "int8"' run "$model" --weights int5
expect 1 'the model has no input "q"; inputs: x' run "$model" -i "q=$out/x.pb" -i "x=$out/x.pb"

# Options and commands of the command line themselves.
expect 1 'unknown option "--max-new-tokns"; similar names: "--max-new-tokens"' generate "$model" --max-new-tokns 3
expect 1 'unknown option "--explan"; similar names: "--explain"' opt "--explan=x" "$model"
expect 1 'unknown option "--zzzz"$' run "$model" --zzzz
expect 1 'unknown command "generat"; similar names: "generate"' generat "$model"
expect 1 'unknown command "zzzz"$' zzzz

# What is like nothing is not compared with anything.
expect 1 'there is no pass "zzzz"$' opt "$model" --passes zzzz
expect 1 'there is no op "zzzz"$' ops zzzz

# Lists do not eat what follows, whichever way they are spelled.
for flag in --passes=cse --disable-pass=cse --print-after=cse --explain=swish --option=logits=all; do
  expect 0 '^  y = Mul' opt "$flag" "$model"
  expect 0 '^  y = Mul' opt "${flag%%=*}" "${flag#*=}" "$model"
done
for flag in --disable-pass=cse --kernel=MatMul=reference "--input=x=$out/x.pb"; do
  case $flag in --input=*) feed=() ;; *) feed=(--input "x=$out/x.pb") ;; esac
  expect 0 '^y: float' run "$flag" "${feed[@]}" "$model"
  expect 0 '^y: float' run "${flag%%=*}" "${flag#*=}" "${feed[@]}" "$model"
done
for flag in --disable-pass=cse --kernel=MatMul=reference; do
  expect 0 '^1 passed' check "${flag%%=*}" "${flag#*=}" "$2/models/gemma3_A18"
  expect 0 '^tokens: ' generate "${flag%%=*}" "${flag#*=}" models/gemma3_A18/model.onnx --prompt-ids 1,2 --max-new-tokens 1
done
expect 0 '^# after simplify-shapes$' opt --print-after simplify-shapes,cse "$model"
expect 0 '^# after cse$' opt --print-after simplify-shapes,cse "$model"

# A pass stands for its rules where misses are asked for.
silu=tests/passes/swish/keeps_sigmoid_of_another_value.onnxtxt
expect 0 '^swish at "y" .* are not the same value' opt --explain swish $silu
expect 0 '' opt --explain attention $silu
unlike '^swish at'
