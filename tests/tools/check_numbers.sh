#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_numbers.sh PAGEFUSE: every option that takes a number says which ones it takes, and refuses others before
# anything runs. Run in the top folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
model=models/gemma3_A18/model.onnx

# refuses OPTION BELOW ABOVE COMMAND...: numbers outside, fractions and words.
refuses() {
  local option=$1 value
  for value in "$2" "$3" 99999999999999999999 1.5 many; do
    [ -z "$value" ] || expect 1 "^pagefuse: $option: expected .*, got \"$value\"" "${@:4}" "$option" "$value"
  done
}

for command in "run $model" "generate $model --prompt-ids 1" "check models/gemma3_A18"; do
  refuses --threads -1 1025 $command
done
expect 1 '^pagefuse: --threads: expected 0 to 1024, got "100000"' generate $model --prompt-ids 1 --threads 100000
refuses --iterations 0 2147483648 run $model
refuses --iterations -1 2147483648 run $model
refuses --block-size 0 1048577 opt $model
refuses --block-size -16 1048577 generate $model --prompt-ids 1
refuses --max-elements -2 '' opt $model
refuses --max-new-tokens -1 2147483648 generate $model --prompt-ids 1
refuses --max-tokens-per-step 3 2147483648 generate $model --prompt-ids 1
refuses --max-sequences 0 2147483648 generate $model --prompt-ids 1
refuses --cache-tokens -1 2147483648 generate $model --prompt-ids 1
for option in --rtol --atol; do
  for value in -1 nan inf small; do
    expect 1 "^pagefuse: $option: expected a number of 0 or more, got \"$value\"" check models/gemma3_A18 $option $value
  done
done

# The ends of the ranges are taken.
expect 0 '^tokens: \[[0-9]+\]$' generate $model --prompt-ids 1,2 --max-new-tokens 1 --threads 2 --block-size 1048576 \
  --max-tokens-per-step 2147483647 --max-sequences 1073741823
expect 0 '^tokens: \[\]$' generate $model --prompt-ids 1,2 --max-new-tokens 0

# Many prompts are no other than few.
prompts=()
for i in $(seq 5000); do prompts+=(--prompt-ids "$((i % 250)),2,3"); done
expect 0 '^tokens: ' generate $model "${prompts[@]}" --max-new-tokens 1
[ "$(grep -c '^tokens: ' "$out/printed")" -eq 5000 ] || fail "5000 prompts gave other than 5000 completions"
few=$(grep -m 3 '^tokens: ' "$out/printed")
expect 0 '^tokens: ' generate $model "${prompts[@]:0:6}" --max-new-tokens 1
[ "$(grep '^tokens: ' "$out/printed")" = "$few" ] || fail "many prompts change what few give"
expect 0 '^tokens: ' generate $model "${prompts[@]}" --max-new-tokens 1 --max-sequences 5000 --max-tokens-per-step 100000

# A prompt in a file may be long, empty or missing. No config.json beside the graph limits its positions.
ln -s "$PWD/$model" "$out/model.onnx"
head -c 20000 /dev/zero | tr '\0' 'a' >"$out/long.txt"
expect 0 '^tokens: ' generate "$out/model.onnx" --verbose --prompt-file "$out/long.txt" --max-new-tokens 1
: >"$out/empty.txt"
expect 1 '--prompt-file .*: expected a text, got none' generate $model --prompt-file "$out/empty.txt" --max-new-tokens 1
expect 1 'No such file' generate $model --prompt-file "$out/missing.txt"
