#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_chat.sh PAGEFUSE: a conversation's commands, from a pipe and on a terminal; tokens of texts and back; progress on a terminal
# and nowhere else. Run in the top folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
model=models/gemma3_recall
facts='The red box holds 12 pins. The tin cup holds 45 keys.'

# chat LINES...: a conversation over a pipe; the answers in $answers, what is told in $out/told.
chat() {
  printf '%s\n' "$@" >"$out/lines"
  answers=$("$pagefuse" generate "${folder:-$model}" --chat --system "$facts" <"$out/lines" 2>"$out/told") || answers+=$'\n[failed]'
  cp "$out/told" "$out/printed"
}
answered() { [ "$answers" = "$1" ] || fail "the answers are \"$answers\" instead of \"$1\""; }
told() { grep -qF -- "$1" "$out/told" || fail "nothing tells \"$1\""; }

# What is taken back is forgotten; a conversation that is saved and loaded goes on.
chat 'What does the red box hold?' 'What does the tin cup hold?' /undo "/save $out/talk.json"
answered $'12 pins.\n45 keys.'
told 'pagefuse: took back "What does the tin cup hold?"'
told "pagefuse: saved 1 turn to \"$out/talk.json\""
python3 - "$out/talk.json" "$facts" <<'END' || fail "the saved conversation is another one"
import json, sys
messages = json.load(open(sys.argv[1]))["messages"]
assert messages == [{"role": "system", "content": sys.argv[2]},
                    {"role": "user", "content": "What does the red box hold?"},
                    {"role": "assistant", "content": "12 pins.\n"}], messages
END
chat '/system The tin cup holds 31 keys.' 'What does the tin cup hold?' "/load $out/talk.json" 'What does the tin cup hold?'
answered $'31 keys.\n45 keys.'
told "pagefuse: loaded 1 turn from \"$out/talk.json\""
chat /help
told '/undo         takes the last question and its answer back'

# What is wrong is told in a line, and ends a pipe.
chat /und; answered $'\n[failed]'; told 'unknown command "/und"; similar names: "/undo"; /help lists all of them'
chat /undo; told 'there is nothing to undo'
chat '/clear all'; told '/clear: expected nothing behind it, got "all"'
chat /save; told '/save: expected FILE, got ""'
echo 'my only copy' >"$out/mine.txt"
chat "/save $out/mine.txt"; told 'mine.txt" is there and holds no conversation: expected another name'
[ "$(cat "$out/mine.txt")" = 'my only copy' ] || fail 'a file was lost'
chat "/load $out/mine.txt"; told 'mine.txt": expected JSON with a list of messages'
echo '[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]' >"$out/wrong.json"
chat "/load $out/wrong.json"; told 'wrong.json": message 1: expected the role assistant, got "user"'
chat "/load $out/nowhere.json"; told 'nowhere.json'

# At the end of its context a conversation loses its oldest turns, and goes on with the others.
folder=$out/short
mkdir "$folder"
cp $model/*.json $model/chat_template.jinja $model/model.onnx $model/weights.data "$folder"
sed -i 's/8192/160/' "$folder/config.json"
chat 'What does the red box hold?' 'What does the tin cup hold?' 'What does the red box hold?' 'What does the tin cup hold?' 'What does the red box hold?'
answered $'12 pins.\n45 keys.\n12 pins.\n45 keys.\n12 pins.'
told 'pagefuse: the conversation is at the end of its context of 160 tokens: dropped its oldest '
chat "$(printf 'x%.0s' {1..400})"; told 'tokens: expected less than 160, the positions of the model'
folder=

# Tokens of a text, and back.
expect 0 '^ +84  "T" +54$' tokenize $model 'The é'
expect 0 '^ +2  <bos>$' tokenize $model 'The é'
expect 0 '^6 tokens$' tokenize $model 'Thé' --no-special --chat
expect 0 '^\{"ids":\[84,195,169\],"tokens":\[\{"token":84,"text":"T","bytes":\[84\]\},\{"token":195,"text":"�","bytes":\[195\]\}' \
  tokenize $model 'Té' --no-special --json
ids=$(printf 'T\xc3\xa9\n' | "$pagefuse" tokenize $model --no-special --ids)
[ "$ids" = 84,195,169,10 ] || fail "the ids are $ids"
[ "$("$pagefuse" detokenize $model "$ids")" = 'Té' ] || fail 'the text does not come back'
echo "$ids" >"$out/ids"
[ "$("$pagefuse" detokenize $model "@$out/ids")" = 'Té' ] || fail 'the text of a file of ids does not come back'
[ "$("$pagefuse" detokenize $model 2,84 --special)" = '<bos>T' ] || fail 'no name of a special token'
expect 0 '^\{"ids":\[2,84\],"text":"T","tokens":\[\{"token":2,"text":"<bos>","bytes":\[\],"special":true\}' detokenize $model 2,84 --json
mkdir "$out/texts"
cp $model/tokenizer*.json "$out/texts"
expect 0 '"T"' tokenize "$out/texts" T
expect 0 '"T"' tokenize "$out/texts/tokenizer.json" T
expect 1 'token 999 is outside the vocabulary: expected 0 to 255' detokenize $model 999
expect 1 '"x" is no token id; expected numbers with commas' detokenize $model 1,x
expect 1 'gemma3_A18": expected tokenizer.json, got none' tokenize models/gemma3_A18 a
expect 1 '--chat: expected a chat template in ' tokenize "$out/texts" a --chat
expect 1 'expected UTF-8, byte 1 is not part of a character' tokenize $model $'a\xff'

python3 "$(dirname "$0")/on_terminal.py" "$pagefuse" "$model" "$facts" >"$out/printed" || fail 'it is otherwise on a terminal'
