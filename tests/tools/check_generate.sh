#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_generate.sh PAGEFUSE: generate runs what cannot be paged as it was exported and says so, ends at the
# end-of-sequence tokens, and knows how many positions a model has. Run in the top folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"

# Paged, or over the graph's own past, and from the first token again.
for form in deepseek_v3_A18 deepseek_v3_B18 deepseek_v32_A18 deepseek_v32_B18; do
  model=models/$form/model.onnx
  prompt=$(sed -n 's/.*"prompt": \[\([^]]*\)\].*/\1/p' models/$form/greedy.json | tr -d ' ')
  tokens=$(sed -n 's/.*"greedy": \[\([^]]*\)\].*/\1/p' models/$form/greedy.json | tr -d ' ')
  expect 0 "^\{.*\"tokens\":\[$tokens\]" generate $model --prompt-ids "$prompt" --json
  if grep -q '"paged":false' "$out/printed"; then
    grep -q '^pagefuse: NOT PAGED: .*node "' "$out/printed" || fail "$form: nothing says why it is not paged"
    expect 1 'insert-paged-cache did not rewrite it: node "' generate $model --prompt-ids 1 --require-paged
    expect 1 'insert-paged-cache did not rewrite it: node "' generate $model --prompt-ids 1 --kv-cache none
  fi
done

# What is paged says nothing of the kind.
mkdir "$out/export"
ln -s "$PWD/models/gemma3_A18/model.onnx" "$out/export/model.onnx"
model=$out/export/model.onnx
expect 0 '"tokens":\[7,7,221,221,' generate "$model" --prompt-ids 15,186,80,234,31 --max-new-tokens 8 --json
unlike 'NOT PAGED'

# Ids in a file.
printf '15,186\n80\n234 31\n' > "$out/ids"
expect 0 '"tokens":\[7,7,221,221,' generate "$model" --prompt-ids "@$out/ids" --max-new-tokens 8 --json
printf '15,x\n' > "$out/ids"
expect 1 '^pagefuse: --prompt-ids: ".*/ids": "x" is no token id; expected numbers with commas' generate "$model" --prompt-ids "@$out/ids"
expect 1 '^pagefuse: --prompt-ids: .*no_ids' generate "$model" --prompt-ids "@$out/no_ids"

# The end of an answer: config.json beside the graph or around its folder, unless it is ignored.
echo '{"eos_token_id": [221]}' >"$out/export/config.json"
expect 0 '"tokens":\[7,7,221\]' generate "$model" --prompt-ids 15,186,80,234,31 --max-new-tokens 8 --json
expect 0 '"tokens":\[7,7,221,221,' generate "$model" --prompt-ids 15,186,80,234,31 --max-new-tokens 8 --json --ignore-end
mv "$out/export/config.json" "$out/config.json"
expect 0 '"tokens":\[7,7,221\]' generate "$model" --prompt-ids 15,186,80,234,31 --max-new-tokens 8 --json
echo '{"eos_token_id": "end"}' >"$out/config.json"
expect 1 'config.json": eos_token_id: expected token ids, got "end"' generate "$model" --prompt-ids 1

# Positions.
echo '{"max_position_embeddings": 10}' >"$out/config.json"
expect 0 '"tokens":\[[0-9]+(,[0-9]+){4}\]' generate "$model" --prompt-ids 15,186,80,234,31 --json
expect 1 'a prompt of 5 tokens and 6 new ones: expected 10 at most, the positions of the model \(.*config.json, max_position_embeddings\)' \
  generate "$model" --prompt-ids 15,186,80,234,31 --max-new-tokens 6
expect 1 'a prompt of 10 tokens: expected less than 10' generate "$model" --prompt-ids 1,2,3,4,5,6,7,8,9,10

# Sizes that cannot be are told before the graph is read: this one cannot be.
mkdir "$out/unread"
cp models/gemma3_recall/*.json models/gemma3_recall/chat_template.jinja "$out/unread"
echo 'no graph' >"$out/unread/model.onnx"
expect 1 'unread.*model.onnx' generate "$out/unread" --prompt abc
early() {
  local pattern=$1
  shift
  expect 1 "^pagefuse: .*$pattern" generate "$out/unread" "$@"
}
early 'a prompt of 4 tokens and 40 new ones: expected 17 at most, for which the cache of --cache-tokens 16 has room' \
  --prompt abc --max-new-tokens 40 --cache-tokens 16
early 'a prompt of 4 tokens: expected 3 at most' --prompt abc --cache-tokens 3
early 'a prompt of 4 tokens and 3 new ones: expected 6 at most' --prompt abc --forced-ids 1,2,3 --cache-tokens 5
early 'a prompt of 4 tokens and 9000 new ones: expected 8192 at most, the positions of the model' --prompt abc --max-new-tokens 9000
early 'max_sequences: expected 1 to 32, half of max_tokens_per_step, .* got 33' --prompt abc --max-tokens-per-step 64 --max-sequences 33
early '--logits-out: expected one answer, got 2' --prompt abc --n 2 --logits-out "$out/no.pb"
early 'a prompt of [0-9]+ tokens and 9000 new ones: expected 8192 at most' --chat --max-new-tokens 9000
early 'a prompt of [0-9]+ tokens: expected 16 at most' --chat --system 'The tin cup holds 31 keys.' --cache-tokens 16

# Tokens that are given, and the logits by which they would have been chosen.
model=models/gemma3_A18/model.onnx
expect 0 '"tokens":\[7,7,[0-9]+\]' generate $model --prompt-ids 15,186,80,234,31 --forced-ids 7,9,221 --json \
  --logits-out "$out/logits.pb"
# float32 [3, 256] and the name.
[ "$(stat -c %s "$out/logits.pb")" -ge $((3 * 256 * 4)) ] || fail 'logits.pb: expected 3 rows of 256 numbers'
# The reference is fed them too: int8 weights are near it, not off by what another token does.
expect 0 '"max_logit_error":0\.[0-9]' generate $model --prompt-ids 15,186,80,234,31 --forced-ids 7,9,221 --json \
  --weights int8 --logit-error
expect 1 '\-\-forced-ids: expected one prompt, got 2' generate $model --prompt-ids 1 --prompt-ids 2 --forced-ids 7
expect 1 '\-\-logits-out: expected one answer, got 2' generate $model --prompt-ids 1 --n 2 --logits-out "$out/no.pb"
expect 1 '\-\-forced-ids' generate $model --prompt-ids 1 --forced-ids 7,x
expect 1 'token 999 is outside the vocabulary' generate $model --prompt-ids 1 --forced-ids 999

# Of several prompts each is judged alone: what it needs, what there is, and the answers of the others.
ids=15,186,80,234,31
alone=$("$pagefuse" generate $model --prompt-ids $ids --max-new-tokens 3 --quiet 2>/dev/null | tr -d '\0')
expect 0 '^\[1\] ' generate $model --prompt-ids $ids --prompt-ids $ids --max-new-tokens 3 --quiet
expect 1 '^pagefuse: request 1: prompt: token 999 is outside the vocabulary: expected 0 to 255$' \
  generate $model --prompt-ids $ids --prompt-ids 7,999 --prompt-ids $ids --max-new-tokens 3
for place in 0 2; do
  grep -qaF "[$place] $alone" "$out/printed" || fail "answer $place is another one beside a prompt that is refused"
done
unlike '^\[1\]'
expect 1 '"tokens":\[7,7,221\],.*"tokens":\[\],.*"finish":"refused","error":"prompt: token 999 is outside the vocabulary: expected 0 to 255"' \
  generate $model --prompt-ids $ids --prompt-ids 7,999 --max-new-tokens 3 --json
expect 1 '^pagefuse: request 0: prompt: token 999 ' generate $model --prompt-ids 999 --prompt-ids $ids --prompt-ids 998 --max-new-tokens 3
grep -qa '^pagefuse: request 2: prompt: token 998 ' "$out/printed" || fail 'only one of two refusals is told'
# Too long for the model, or for the cache, beside one that is not.
model=$out/export/model.onnx
expect 1 '"tokens":\[7,7,221\],.*"finish":"refused","error":"a prompt of 10 tokens and 3 new ones: expected 10 at most' \
  generate "$model" --prompt-ids $ids --prompt-ids 1,2,3,4,5,6,7,8,9,10 --max-new-tokens 3 --json
model=models/gemma3_A18/model.onnx
expect 1 '"tokens":\[7,7,221\],.*"finish":"refused","error":"a prompt of 20 tokens and 3 new ones: expected 17 at most' \
  generate $model --prompt-ids $ids --prompt-ids 1,2,3,4,5,6,7,8,9,10,1,2,3,4,5,6,7,8,9,10 --max-new-tokens 3 --json --cache-tokens 16
