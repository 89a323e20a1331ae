#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_batch.sh PAGEFUSE: a file of requests is answered as serve and generate answer them, whole after any number of kills and in
# shards, and what is no request has a line that says so. Run in the top folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
command -v python3 >/dev/null || { echo 'python3 is not installed'; exit 77; }
model=models/gemma3_recall
children=()
trap 'kill -KILL "${children[@]}" 2>/dev/null || true; wait; rm -rf "$out"' EXIT
look() { python3 "$(dirname "$0")/batch_lines.py" "$@" >"$out/printed" 2>&1 || fail "$*"; }
count() { wc -l <"$1"; }

# One run over all.
python3 "$(dirname "$0")/batch_lines.py" make 160 24 >"$out/in"
expect 0 '' batch $model "$out/in" -o "$out/whole"
[ "$(count "$out/whole")" -eq 160 ] || fail "160 requests have $(count "$out/whole") answers"
look same "$out/whole" "$out/whole"

# The same again runs nothing: the graph is not even read.
mkdir "$out/unread"
cp $model/*.json $model/chat_template.jinja "$out/unread"
echo 'no graph' >"$out/unread/model.onnx"
cp "$out/whole" "$out/again"
expect 0 '' batch "$out/unread" "$out/in" -o "$out/again"
cmp -s "$out/whole" "$out/again" || fail 'a second run changed the answers'

# The answers are those of generate, and of a server.
question='The tin cup holds 7 keys. What does the tin cup hold?
'
answer=$("$pagefuse" generate $model --prompt "$question" --max-new-tokens 24 --ignore-end --json \
  --weights "$(python3 -c 'print("bf16" if "amx_bf16" in open("/proc/cpuinfo").read() else "float32")')" 2>/dev/null |
  python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)["completions"][0]["text"]))')
grep '"custom_id":"r7"' "$out/whole" | grep -qF "\"text\":$answer" || fail "r7: expected the text $answer"
"$pagefuse" serve $model --port 0 --log none >"$out/served" 2>"$out/printed" &
children+=($!)
for _ in $(seq 300); do
  ! grep -q '^serving ' "$out/served" || break
  kill -0 "${children[-1]}" 2>/dev/null || fail 'serve ended'
  sleep 0.1
done
url=$(sed -n 's/^serving .* at //p' "$out/served")
head -n 24 "$out/in" >"$out/some"
echo '{"custom_id": "bad", "method": "POST", "url": "/v1/completions", "body": {"prompt": 5}}' >>"$out/some"
expect 1 '^pagefuse: 1 of 25 lines have no answer' batch $model "$out/some" -o "$out/some_answers"
look serve "$url" "$out/some" "$out/some_answers"
kill -TERM "${children[-1]}"
wait "${children[-1]}" || fail 'serve did not end with 0'

# Killed ten times, at any moment after a first new line, and then run to the end: no line is lost, and none is there twice.
# grows_from N: the file has more lines than before, or the run is over.
grows_from() {
  for _ in $(seq 1200); do
    [ "$(count "$out/killed")" -le "$1" ] || return 0
    kill -0 "${children[-1]}" 2>/dev/null || return 0
    sleep 0.02
  done
  fail 'no line came'
}
touch "$out/killed"
hit=0
for round in $(seq 10); do
  before=$(count "$out/killed")
  "$pagefuse" batch $model "$out/in" -o "$out/killed" --max-sequences 2 --max-tokens-per-step 16 --drafts off --prefix-reuse off >"$out/printed" 2>&1 &
  children+=($!)
  grows_from "$before"
  sleep "0.0$((RANDOM % 10))"
  kill -KILL "${children[-1]}" 2>/dev/null && hit=$((hit + 1))
  wait "${children[-1]}" 2>/dev/null || true
  look whole "$out/killed"
done
[ "$hit" -ge 5 ] || fail "only $hit of 10 runs were there to be killed"
kept=$(head -n 1 "$out/killed")
expect 0 '' batch $model "$out/in" -o "$out/killed"
look same "$out/whole" "$out/killed"
[ "$(head -n 1 "$out/killed")" = "$kept" ] || fail 'a line that was there is another one'

# Half a line at the end is cut off; one in the middle, or what is no answer, is not touched.
head -c -30 "$out/whole" >"$out/half"
expect 0 '' batch $model "$out/in" -o "$out/half"
look same "$out/whole" "$out/half"
printf 'a text that somebody named by mistake' >"$out/text"
expect 1 '"[^"]*/text", line 1: expected an answer of a batch, got something else' batch $model "$out/in" -o "$out/text"
[ "$(cat "$out/text")" = 'a text that somebody named by mistake' ] || fail 'a text was changed'
expect 1 ', line 1: expected an answer of a batch' batch $model "$out/in" -o "$out/in"
(cat "$out/whole"; head -n 1 "$out/whole") >"$out/twice"
expect 1 'line 161: expected an answer that is not there yet, got it twice' batch $model "$out/in" -o "$out/twice"

# A signal ends it soon, with what is whole, and says how to go on.
python3 "$(dirname "$0")/batch_lines.py" make 400 200 >"$out/long"
touch "$out/killed.long"
"$pagefuse" batch $model "$out/long" -o "$out/killed.long" --max-sequences 8 >"$out/printed" 2>&1 &
children+=($!)
for _ in $(seq 1200); do
  [ "$(count "$out/killed.long")" -eq 0 ] || break
  sleep 0.02
done
kill -TERM "${children[-1]}"
status=0
wait "${children[-1]}" || status=$?
[ "$status" -eq 1 ] || fail "SIGTERM: status $status instead of 1"
grep -qE '^pagefuse: stopped with [0-9]+ answers in "[^"]*"; the same command goes on behind them$' "$out/printed" || fail 'SIGTERM: nothing says how to go on'
look whole "$out/killed.long"
grep -q '"status_code":503' "$out/killed.long" && fail 'what was cut short stands as an answer'

# Shards are the whole.
for shard in 0 1 2; do expect 0 '' batch $model "$out/in" -o "$out/shard.$shard" --shard $shard/3; done
[ "$(count "$out/shard.0")" -eq 54 ] || fail 'the first of 3 shards of 160 lines has not 54'
look same "$out/whole" "$out/shard.0" "$out/shard.1" "$out/shard.2"
for shard in 3/3 -1/3 1 a/b 0/0; do expect 1 '^pagefuse: --shard: expected I/N with 0 <= I < N' batch $model "$out/in" -o "$out/no" "--shard=$shard"; done
[ ! -e "$out/no" ] || fail 'a wrong command left a file'

# Lines that are no request, and requests that are refused.
cat >"$out/bad" <<'END'
{"custom_id": "good", "method": "POST", "url": "/v1/completions", "body": {"prompt": "a", "max_tokens": 1}}

{"custom_id": "half",
{"custom_id": "good", "method": "POST", "url": "/v1/completions", "body": {"prompt": "b", "max_tokens": 1}}
{"method": "POST", "url": "/v1/completions", "body": {"prompt": "a"}}
[1]
{"custom_id": "get", "method": "GET", "url": "/v1/completions", "body": {}}
{"custom_id": "url", "method": "POST", "url": "/v1/embeddings", "body": {}}
{"custom_id": "reset", "method": "POST", "url": "/reset_prefix_cache", "body": {}}
{"custom_id": "body", "method": "POST", "url": "/v1/completions", "body": []}
{"custom_id": "more", "method": "POST", "url": "/v1/completions", "body": {}, "more": 1}
{"custom_id": "stream", "method": "POST", "url": "/v1/completions", "body": {"prompt": "a", "stream": true}}
{"custom_id": "type", "method": "POST", "url": "/v1/completions", "body": {"prompt": 5}}
{"custom_id": "model", "method": "POST", "url": "/v1/completions", "body": {"model": "other", "prompt": "a"}}
{"custom_id": "unknown", "method": "POST", "url": "/v1/completions", "body": {"prompt": "a", "max_tokens": 1, "foo": 1}}
END
printf '{"custom_id": "\xff"}\n' >>"$out/bad"
expect 1 '^pagefuse: 13 of 15 lines have no answer; "[^"]*" says why, and lines that are deleted there are run again$' batch $model "$out/bad" -o "$out/bad_answers"
grep -q '^pagefuse: not known, and ignored: foo ' "$out/printed" || fail 'nothing is said of a member that is not known'
told() { grep -qE -- "$1" "$out/bad_answers" || { cp "$out/bad_answers" "$out/printed"; fail "no line like $1"; }; }
told '"custom_id":"good","response":\{"status_code":200,.*"error":null\}$'
told '"custom_id":null,"response":null,"error":\{"code":"invalid_json",.*"line":3\}\}$'
told '"custom_id":"good","response":null,"error":\{"code":"duplicate_custom_id",.*"line":4\}\}$'
told '"custom_id":null,"response":null,"error":\{"code":"missing_custom_id",.*"line":5\}\}$'
told '"error":\{"code":"invalid_json","message":"expected an object, got a list".*"line":6\}\}$'
told '"custom_id":"get","response":null,"error":\{"code":"invalid_method"'
told '"custom_id":"url","response":null,"error":\{"code":"invalid_url"'
told '"custom_id":"reset","response":null,"error":\{"code":"invalid_url"'
told '"custom_id":"body","response":null,"error":\{"code":"invalid_body"'
told '"custom_id":"more","response":null,"error":\{"code":"unknown_member","message":"more: '
told '"custom_id":"stream","response":null,"error":\{"code":"stream_unsupported"'
told '"custom_id":"type","response":\{"status_code":400,.*"param":"prompt"'
told '"custom_id":"model","response":\{"status_code":404,.*"code":"model_not_found"'
told '"code":"invalid_json",.*"line":16\}\}$'
cp "$out/bad_answers" "$out/before"
expect 1 '^pagefuse: 13 of 15 lines have no answer' batch "$out/unread" "$out/bad" -o "$out/bad_answers"
cmp -s "$out/before" "$out/bad_answers" || fail 'lines that are no request have two answers'
# A line that is deleted is run again, and a duplicate is one in all shards.
grep -v '"code":"duplicate_custom_id"' "$out/before" >"$out/bad_answers"
expect 1 '' batch $model "$out/bad" -o "$out/bad_answers"
look same "$out/before" "$out/bad_answers"
for shard in 0 1; do expect 1 '' batch $model "$out/bad" -o "$out/bad.$shard" --shard $shard/2; done
look same "$out/before" "$out/bad.0" "$out/bad.1"
expect 1 '^pagefuse: 14 of 15 lines' batch $model "$out/bad" -o "$out/strict" --strict
grep -q '"custom_id":"unknown","response":{"status_code":400' "$out/strict" || fail '--strict answers what it does not know'

# Answers of other requests, of another model, and of a run beside.
expect 1 'expected answers of requests of the input, got custom_id "r[0-9]+", which it has not' batch $model "$out/bad" -o "$out/whole"
head -n 3 "$out/whole" >"$out/other"
expect 1 'expected answers of model "another", got one of "gemma3_recall"' batch $model "$out/in" -o "$out/other" --model-name another
expect 1 'expected answers of fingerprint "pf_[0-9a-f]+", got one of' batch $model "$out/in" -o "$out/other" --kv-cache fp8_per_token_head
[ "$(count "$out/other")" -eq 3 ] || fail 'answers of two models are in one file'
flock "$out/other" "$pagefuse" batch $model "$out/in" -o "$out/other" >"$out/printed" 2>&1 && fail 'two runs write one file'
grep -q 'expected a file of one run alone, got one that another writes' "$out/printed" || fail 'nothing is said of another run'
expect 1 'expected a file of requests, got nothing of that name' batch $model "$out/nowhere" -o "$out/no"
expect 1 'expected a file, which is read twice, got something else' batch $model /dev/stdin -o "$out/no" < <(cat "$out/in")
expect 1 '' batch $model "$out/in" -o "$out/nowhere/out"
: >"$out/empty"
expect 0 '' batch $model "$out/empty" -o "$out/none"
[ ! -s "$out/none" ] || fail 'no request has an answer'
