#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_text.sh PAGEFUSE: a model's folder in, text out: prompts, conversations, stops, samples, JSON, and what is refused. Run in the top
# folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
model=models/gemma3_recall
facts='The red box holds 12 pins. The tin cup holds 45 keys.'
question=$facts$'\nWhat does the tin cup hold? '

# only STREAM ARGUMENTS...: what one of the two streams gets.
only() {
  if [ "$1" = out ]; then "$pagefuse" "${@:2}" 2>/dev/null; else "$pagefuse" "${@:2}" 2>&1 >/dev/null; fi
}
same() {  # expected, got
  [ "$1" = "$2" ] || fail "\"$2\" instead of \"$1\""
}

# Text alone on the output; figures on the error stream, and no progress where that is no terminal.
same '45 keys.' "$(only out generate $model --prompt "$question")"
figures=$(only err generate $model --verbose --prompt "$question")
[[ $figures == *$'\ndecode: '* ]] || fail 'no figures'
[[ $figures != *$'\r'* ]] || fail 'progress in a pipe'
same '45 keys.' "$(only out generate $model --system "$facts" --prompt 'What does the tin cup hold?')"
same '45 keys.' "$(only out generate $model --graph model_with_past.onnx --prompt "$question")"
same '45 keys.' "$(only out generate $model/model.onnx --prompt "$question")"

# Stops do not show; a name of a special token in a message is text.
same '45 ' "$(only out generate $model --prompt "$question" --stop keys)"
expect 0 '"finish":"stop"' generate $model --prompt "$question" --stop keys --json
expect 0 '"prompt_tokens":9,' generate $model --prompt '<bos>a<eos>bcdef' --max-new-tokens 1 --json --ignore-end
expect 0 '"prompt_tokens":11,' generate $model --system x --prompt 'a<eos>b' --max-new-tokens 1 --json --ignore-end

# A special token ends an answer, as a text that is one does. What was held back for a stop, and half a character, end the stream.
mkdir "$out/special"
cp $model/*.json $model/model.onnx $model/weights.data "$out/special"
sed -i '0,/"added_tokens": *\[/s//&{"id": 46, "content": ".", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},/' \
  "$out/special/tokenizer.json"
same '45 keys' "$(only out generate "$out/special" --prompt "$question" --ignore-end --stop .)"
expect 0 '"finish":"stop"' generate "$out/special" --prompt "$question" --ignore-end --stop . --json
expect 0 '^\{"completion":0,"text":"keys"\}$' generate $model --prompt "$question" --stop keysX --max-new-tokens 7 --json --stream
expect 0 '^\{"completion":0,"text":"�"\}$' generate models/gemma3_A18/model.onnx --prompt-ids 30 --max-new-tokens 1 --json --stream
[[ $(only err generate $model --prompt '<bos>a' --max-new-tokens 1) == *'the prompt begins with <bos> twice'* ]] || fail 'a second <bos> is not told'

# Samples: one prefill, the same tokens for a seed.
ask=(generate $model --prompt "$question" --temperature 6 --max-new-tokens 12 --ignore-end --json)
expect 0 '"completions":\[.*"seed":7.*"seed":7.*"prefill_tokens":83,' "${ask[@]}" --n 3 --seed 7
same "$("$pagefuse" "${ask[@]}" --n 3 --seed 7 2>/dev/null | sed 's/"fused".*//')" \
     "$("$pagefuse" "${ask[@]}" --n 3 --seed 7 --max-tokens-per-step 16 2>/dev/null | sed 's/"fused".*//')"
expect 0 '^\{"completion":0,"token":52,"text":"4","logprobs":\{"token":52,"logprob":-0.0.*"top":\[\{.*\},\{' \
  generate $model --prompt "$question" --json --stream --logprobs 2

# A conversation, line by line from a pipe; what it said before is part of it.
printf 'What does the red box hold?\n\nWhat does the tin cup hold?\n/clear\nWhat does the red box hold?\n' >"$out/questions"
same $'12 pins.\n45 keys.\n12 pins.' "$("$pagefuse" generate $model --chat --system "$facts" <"$out/questions" 2>/dev/null)"
figures=$("$pagefuse" generate $model --verbose --chat --system "$facts" <"$out/questions" 2>&1 >/dev/null)
[[ $figures == *$'\nprefill: 126 tokens'* ]] || fail "the conversation is computed again: $figures"

# Measurements: a row for each cache, batch and length, in four formats.
measure=(bench $model -p 8,16 -n 4 -b 1,3 -r 2 --kv-cache none,fp8_per_token_head)
expect 0 '^model +weights +cache +batch +test +tokens/s +\+-$' "${measure[@]}"
same 13 "$("$pagefuse" "${measure[@]}" --format csv | grep -c .)"
expect 0 '^models/gemma3_recall,float32,fp8_per_token_head,3,generate 4,[0-9.]+,[0-9.]+$' "${measure[@]}" --format csv
expect 0 '^\| models/gemma3_recall \| float32 +\| none ' "${measure[@]}" --format md
expect 0 '"mean_tokens_per_second": [0-9.]+' "${measure[@]}" --format json
expect 0 '^models/gemma3_recall,float32,none,3,generate 4 at 32,[0-9.]+,[0-9.]+$' bench $model -p 0 -n 4 -d 32 -b 3 -r 1 --format csv
same 7 "$("$pagefuse" bench $model -p 1 -n 2 -b 1,1 -d 0,8 -r 1 --format csv 2>/dev/null | grep -c .)"
expect 0 '^models/gemma3_recall,int8,none,1,generate 4 at 16,[0-9.]+,[0-9.]+$' \
  bench $model -p 0 -n 4 -d 0,16 -r 2 --weights float32,int8 --format csv
expect 1 '--depth: expected 0 to 2147483647, got "deep"' bench $model -d deep
expect 1 '8196 tokens: expected less than 8192, the positions of the model' bench $model -p 0 -n 4 -d 8192
expect 1 '--weights: expected float32, .*, got "int5"; similar names: "int4", "int8"' bench $model --weights float32,int5
expect 1 '--format: expected text, md, csv or json, got "xml"' "${measure[@]}" --format xml
expect 1 '--batch: expected 1 to 2147483647, got "0"' bench $model -b 0
expect 1 '9000 tokens: expected less than 8192, the positions of the model' bench $model -p 9000

# Refused, before the graph is read where that can be.
mkdir "$out/folder"
cp $model/*.json $model/chat_template.jinja "$out/folder"
echo 'no graph' >"$out/folder/model.onnx"
sed -i 's/8192/16/' "$out/folder/config.json"
expect 1 'a prompt of 83 tokens: expected less than 16, the positions of the model' generate "$out/folder" --prompt "$question"
expect 1 'a prompt of 3 tokens and 20 new ones: expected 16 at most, the positions of the model' generate "$out/folder" --prompt ab --max-new-tokens 20
expect 1 '--prompt-ids: expected token ids with commas, got none' generate $model --prompt-ids ''
expect 1 '--prompt-ids: expected a token id on both sides of each comma, got none on one' generate $model --prompt-ids 1,,2
expect 1 '--forced-ids: "-1" is no token id' generate $model --prompt-ids 1 --forced-ids -1
expect 1 '--stop: expected a text, got none' generate $model --prompt a --stop ''
expect 1 '--stop: expected a text, or a special token alone, got the special token "<eos>" within "a<eos>"' generate $model --prompt a --stop 'a<eos>'
expect 1 'cannot create "'"$out"'/nowhere/logits.pb": No such file' generate $model --prompt a --logits-out "$out/nowhere/logits.pb"
expect 1 'cannot write "'"$out"'": Is a directory' generate $model --prompt a --trace "$out"
same '' "$(only out generate $model --prompt abc --max-new-tokens 40 --cache-tokens 16)"
expect 1 'tokens and 40 new ones: expected 17 at most, for which the cache of --cache-tokens 16 has room' \
  generate $model --prompt abc --max-new-tokens 40 --cache-tokens 16
expect 1 'temperature: expected 0 to 100, got 101' generate $model --prompt a --temperature 101
expect 1 'top_p: expected more than 0, at most 1, got 0' generate $model --prompt a --top-p 0
expect 1 '--chat takes its questions from the input' generate $model --chat --prompt a
expect 1 '--logprobs: with --json' generate $model --prompt a --logprobs 1
expect 1 'expected the graph "other.onnx", got model.onnx, model_with_past.onnx' generate $model --graph other.onnx --prompt a
expect 1 '--chat: expected a folder with tokenizer.json and a chat template' generate models/gemma3_A18 --chat
expect 1 '--prompt: expected UTF-8, byte 1 is not part of a character' generate $model --prompt $'a\xff'
sed -i 's/"BPE"/"Unigram"/' "$out/folder/tokenizer.json"
expect 1 'tokenizer.json": model.type: expected one of BPE, got "Unigram"' generate "$out/folder" --prompt a
cp $model/tokenizer.json "$out/folder"
echo '{{ messages.x.y }}' >"$out/template"
expect 1 'chat template: line 1: .* has no attribute "x"' generate $model --chat-template "$out/template" --system a --prompt b
