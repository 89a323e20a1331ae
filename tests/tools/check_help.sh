#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_help.sh PAGEFUSE: help, its examples, completions, manual pages, hints and what is told on a terminal. Run in the top folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
root=$PWD
pagefuse=$(realpath "$pagefuse")
model=$root/models/gemma3_recall

expect 0 '^pagefuse [0-9]+\.[0-9]+\.[0-9]+$' --version
expect 0 '^commit: [0-9a-f]{12}(-dirty)?$|^commit: unknown$' --version
expect 0 '^build: [A-Z]' --version
expect 0 '^SIMD targets: .*; used here: [A-Z0-9_]+$' --version

# No line is wider than the terminal; without one it is 100 columns.
for command in '' $("$pagefuse" completion bash | sed -n "s/.*compgen -W '\(.*\) -h --help.*/\1/p"); do
  "$pagefuse" $command --help >"$out/printed"
  # Examples are told as they are typed.
  grep -vE '^  ([^ -].*)?pagefuse ' "$out/printed" | awk 'length > 100 { print; found = 1 } END { exit found }' >"$out/wide" ||
    fail "$command --help has wide lines: $(cat "$out/wide")"
  [ "$(sed -n '/^Examples:$/,/^$/p' "$out/printed" | grep -c '^  [^ ]')" -eq 2 ] || fail "$command --help has not two examples"
  expect 0 "^.TH \"pagefuse" man $command
done
expect 0 '^Exit status:$' --help
expect 0 '^Sampling:$' generate --help
expect 0 '^pagefuse generate: ' --help-all
narrow=$(script -qec "stty cols 60; $pagefuse generate --help" /dev/null </dev/null | sed '/^Examples/,$d' | tr -d '\r' |
  awk 'length > 60 && $0 !~ /^ +[^ ]+$/' | head -n 3)
[ -z "$narrow" ] || fail "wider than a terminal of 60 columns: $narrow"
expect 1 '^Usage: pagefuse COMMAND'

# Examples do what they say, with a model for FOLDER.
mkdir "$out/work" "$out/work/CASES" "$out/work/EXPECTATIONS"
cd "$out/work"
cp -r "$model" FOLDER
printf 'What does the red box hold?\n12 pins.\n' >text
printf '1,2,3\n4,5\n' >PROMPTS
echo 'the-key' >KEYS
printf '<ir_version: 10, opset_import: ["" : 24]> g (float[T] x) => (float[T] y) { z = Mul (x, x) y = Add (z, x) }' >GRAPH
printf '\x08\x03\x10\x01\x42\x01x\x4a\x0c\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40' >X.pb
printf '{"custom_id": "%s", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Hello", "max_tokens": 4}}\n' a b >REQUESTS
cp -r "$2/models/gemma3_A18" CASES
cp "$root"/tests/expect/stays_without_pages.onnxtxt EXPECTATIONS
mkdir bin && ln -s "$pagefuse" bin/pagefuse
"$pagefuse" --help-all | sed -n '/^Examples:$/,/^$/s/^  \([^ ].*\)$/\1/p' | sort -u >examples
[ "$(wc -l <examples)" -ge 38 ] || fail "few examples: $(cat examples)"
# serves EXAMPLE: a server comes, at a port that is free, answers the client of the example beside it, and ends when it is told to.
serves() {
  : >"$out/serving"
  PATH=$PWD/bin:$PATH bash -c "exec ${1/8080/0}" >"$out/serving" 2>"$out/printed" </dev/null &
  local server=$! url=
  for _ in $(seq 600); do
    url=$(sed -n 's/^serving .* at \(http.*\)$/\1/p' "$out/serving")
    if [ -n "$url" ] || ! kill -0 $server 2>/dev/null; then break; fi
    sleep 0.1
  done
  [ -n "$url" ] || { kill -KILL $server; fail "$1: no server"; }
  local client
  client=$(grep -- 'chat --url' examples)
  [[ $1 == *KEYS* ]] || PATH=$PWD/bin:$PATH bash -c "${client/http:\/\/127.0.0.1:8080/$url}" >"$out/printed" 2>&1 </dev/null ||
    { kill -KILL $server; fail "$client: no success"; }
  kill -TERM $server
  wait $server || fail "$1: status $?"
}
while IFS= read -r example; do
  case $example in *libonnxruntime*|*libmine*|*'chat --url'*) continue ;; esac
  [[ $example != 'pagefuse serve '* ]] || { serves "$example"; continue; }
  status=0
  PATH=$PWD/bin:$PATH bash -c "$example" >"$out/printed" 2>&1 </dev/null || status=$?
  # bisect finds nothing to blame in a graph that is right.
  [ "$status" -eq 0 ] || fail "$example: status $status"
done <examples
cd "$root"

# Completions are scripts that their shells take, and bash completes with its own.
"$pagefuse" completion bash >"$out/completion"
completed=$(bash -c ". '$out/completion'; COMP_WORDS=(pagefuse generate --promp); COMP_CWORD=2; _pagefuse; echo \"\${COMPREPLY[@]}\"")
[ "$completed" = '--prompt-ids --prompt --prompt-file' ] || fail "completed: $completed"
completed=$(bash -c ". '$out/completion'; COMP_WORDS=(pagefuse insp); COMP_CWORD=1; _pagefuse; echo \"\${COMPREPLY[@]}\"")
[ "$completed" = inspect ] || fail "completed: $completed"
for shell in zsh fish; do
  "$pagefuse" completion $shell >"$out/completion"
  grep -q -- prompt-file "$out/completion" || fail "$shell completes no options"
  ! command -v $shell >/dev/null || $shell -n "$out/completion" || fail "$shell does not take its completion"
done
expect 1 'completion: expected bash, zsh or fish, got "tcsh"' completion tcsh
expect 0 '' man -o "$out/man1"
[ -s "$out/man1/pagefuse.1" ] && [ -s "$out/man1/pagefuse-generate.1" ] || fail 'no manual pages'
! command -v groff >/dev/null || [ -z "$(groff -man -ww -z "$out"/man1/*.1 2>&1)" ] || fail 'groff warns of manual pages'

# An error is one line, then a hint.
expect 1 '^pagefuse: unknown option "--promt"; similar names: ".*--prompt".*$' generate "$model" --promt x
expect 1 '^hint: pagefuse generate --help lists what it takes$' generate "$model" --promt x
expect 1 '^hint: pagefuse opt --list-passes lists them$' opt "$model" --passes csx
expect 1 '^hint: a model is a folder' inspect "$out/nowhere"

# On a terminal one line of figures, or none, or all; in a pipe none unless they are asked for.
ask=(generate "$model" --prompt-file "$model/demo.txt" --kv-cache fp8_per_token_head)
terminal() { TERM=xterm script -qec "$(printf '%q ' "$pagefuse" "${ask[@]}" "$@") >/dev/null" /dev/null </dev/null | tr -d '\r' >"$out/printed"; }
terminal
grep -qE $'\e\\[2m10 tokens, [0-9]+(\\.[0-9])? a second, the first after [0-9.]+ m?s\e\\[0m$' "$out/printed" || fail 'no line of figures'
unlike '^prefill: '
terminal --quiet
unlike ' a second'
unlike ' is used'
terminal --verbose
grep -q '^prefill: 957 tokens' "$out/printed" || fail 'no figures with --verbose'
[ -z "$("$pagefuse" "${ask[@]}" --graph model.onnx 2>&1 >/dev/null)" ] || fail 'figures in a pipe'

# Prompts from a pipe, from - and from a file are one; what is none is refused before the model is looked at.
question=$(cat "$model/demo.txt")
answer=$("$pagefuse" generate "$model" --prompt "$question" 2>/dev/null)
[ "$answer" = '86 nails.' ] || fail "the answer is $answer"
[ "$(echo "$question" | "$pagefuse" generate "$model" 2>/dev/null)" = "$answer" ] || fail 'a pipe gives another answer'
[ "$(echo "$question" | "$pagefuse" generate "$model" --prompt-file - 2>/dev/null)" = "$answer" ] || fail '- gives another answer'
expect 1 '^pagefuse: --prompt: expected a text, got none$' generate "$out/nowhere" --prompt ''
expect 1 '^pagefuse: prompt from standard input: expected a text, got none$' generate "$out/nowhere" --prompt-file - </dev/null
expect 1 '^pagefuse: prompt from standard input: expected a text, got none$' generate "$out/nowhere" </dev/null
expect 1 '^pagefuse: prompt from standard input: expected UTF-8, byte 1 is not part of a character$' generate "$out/nowhere" < <(printf 'a\xff')
expect 1 'standard input has the model' generate - --prompt-file - <models/gemma3_A18/model.onnx
