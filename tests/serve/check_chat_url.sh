#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_chat_url.sh PAGEFUSE: `pagefuse chat --url` has the conversation that `pagefuse chat MODEL` has, tells what is wrong with a server, and
# gives the server's pages back at Ctrl-C. Run in the top folder.
set -euo pipefail
. "$(dirname "$0")/served.sh"
model=models/gemma3_recall
facts='The red box holds 12 pins. The tin cup holds 45 keys.'

# same LINES...: a conversation here and over the server prints the same answers, and tells the same.
same() {
  printf '%s\n' "$@" >"$out/lines"
  local here=0 there=0
  "$pagefuse" chat $model --quiet --system "$facts" "${flags[@]}" <"$out/lines" >"$out/here" 2>"$out/here_told" || here=$?
  "$pagefuse" chat --url "$url" --quiet --system "$facts" "${flags[@]}" <"$out/lines" >"$out/there" 2>"$out/there_told" || there=$?
  cat "$out/there_told" >"$out/printed"
  cmp "$out/here" "$out/there" >&2 || fail "\"$1\" has other answers over the server: $(cat "$out/there") instead of $(cat "$out/here")"
  cmp "$out/here_told" "$out/there_told" >&2 || fail "\"$1\" tells something else over the server"
  [ "$here" -eq "$there" ] || fail "\"$1\": status $there over the server, $here here"
}

# refused PATTERN ARGUMENTS...: the command fails and says why.
refused() {
  local status=0
  "$pagefuse" chat "${@:2}" </dev/null >"$out/printed" 2>&1 || status=$?
  [ "$status" -eq 1 ] || fail "pagefuse chat ${*:2}: status $status instead of 1"
  grep -qE -- "$1" "$out/printed" || fail "pagefuse chat ${*:2}: nothing like \"$1\""
}

start $model
flags=()
same 'What does the red box hold?' 'What does the tin cup hold?' /undo 'What does the red box hold?' "/save $out/talk.json"
grep -q '12 pins' "$out/there" || fail 'no answer'
same "/load $out/talk.json" 'What does the tin cup hold?' '/system The tin cup holds 31 keys.' 'What does the tin cup hold?'
same /und
flags=(--max-new-tokens 40 --ignore-end); same 'What does the red box hold?' 'And the tin cup?'
flags=(--stop pins); same 'What does the red box hold?'
flags=(--temperature 1.5 --seed 7 --top-k 20 --max-new-tokens 30); same 'What does the red box hold?' 'What does the tin cup hold?'
for address in "$url/" "$url/v1" "$url/v1/"; do
  [ "$(echo 'What does the red box hold?' | "$pagefuse" chat --url "$address" --system "$facts")" = '12 pins.' ] || fail "no answer at $address"
done

# What is wrong is told in a line.
refused '^pagefuse: --url: expected the address of a server or the folder of a model, got neither$'
refused '^pagefuse: model: expected a folder with tokenizer.json and a chat template' models/gemma3_A18
refused '^pagefuse: --url: expected no model beside it' $model --url "$url"
refused '^pagefuse: --api-key-file: a server' $model --api-key-file "$out/lines"
refused '^pagefuse: --url "ftp://a": expected http://HOST\[:PORT\], got "ftp://a' --url ftp://a
refused '^pagefuse: --url "http://127.0.0.1:1": 127.0.0.1 port 1: Connection refused$' --url http://127.0.0.1:1
refused '^pagefuse: --url ".*/nowhere": expected a server of OpenAI.s API, got one that has no /v1/models$' --url "$url/nowhere"
refused '^pagefuse: --url: expected none of --chat-template' --url "$url" --require-paged
status=0
echo 'What?' | "$pagefuse" chat --url "$url" --max-new-tokens 10000000 >"$out/printed" 2>&1 || status=$?
[ "$status" -eq 1 ] && grep -q '^pagefuse: the server refused this: .*10000000 new ones: expected 8192 tokens at most' "$out/printed" ||
  fail 'too many tokens are not refused'

# Ctrl-C ends an answer, and not the conversation.
python3 -B "$(dirname "$0")/chat_on_terminal.py" "$pagefuse" "$url" "$facts" >"$out/printed" || fail 'it is otherwise on a terminal'

# At the end of its context a conversation loses its oldest turns.
folder=$out/short
mkdir "$folder"
cp $model/*.json $model/chat_template.jinja $model/model.onnx $model/weights.data "$folder"
sed -i 's/8192/160/' "$folder/config.json"
start "$folder"
model=$folder flags=()
same 'What does the red box hold?' 'What does the tin cup hold?' 'What does the red box hold?' 'What does the tin cup hold?' 'What does the red box hold?'
grep -q 'dropped its oldest' "$out/there_told" || fail 'nothing was dropped'

# A key, and a model without a chat template.
printf 'first-key\nsecond-key\n' >"$out/keys"
start models/gemma3_recall --api-key-file "$out/keys"
refused '^pagefuse: --url ".*": expected a key that the server knows, by --api-key-file or PAGEFUSE_API_KEY$' --url "$url"
"$pagefuse" chat --url "$url" --api-key-file "$out/keys" </dev/null 2>"$out/printed" || fail 'a key of a file is refused'
PAGEFUSE_API_KEY=second-key "$pagefuse" chat --url "$url" </dev/null 2>"$out/printed" || fail 'a key of the environment is refused'
start models/gemma3_A18
refused '^pagefuse: --url ".*": the server refused this: messages: this model has no chat template' --url "$url"
