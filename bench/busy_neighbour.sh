#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Decodes the demo model with default threads and with one, in turns: on the machine as it is, then beside endless loops.
#
#   bench/busy_neighbour.sh BUILD_DIR [ROUNDS]
#
# BUILD_DIR has pagefuse. Tokens a second, medians of ROUNDS (9); the ratio is that of the medians. Fails if beside the loops default
# threads reach less than 0.8 of what one thread does. In the environment: LOOPS (2), TOKENS (300) and MODEL, PROMPT, for others; with
# ORT_PEER, a folder made by ort_peer/install.sh, ONNX Runtime decodes in the same turns with as many threads as there are CPUs, behind
# CONTEXT (480) tokens, which is about the prompt; then less than 1.5 of its rate beside the loops fails too.
set -eu
[ $# -ge 1 ] || { echo "usage: busy_neighbour.sh BUILD_DIR [ROUNDS]" >&2; exit 1; }
build=$1
rounds=${2:-9}
loops=${LOOPS:-2}
tokens=${TOKENS:-300}
models=$(cd "$(dirname "$0")/../models" && pwd)
model=${MODEL:-$models/gemma3_recall/model_with_past.onnx}
prompt=${PROMPT:-$models/gemma3_recall/demo.txt}
work=$(mktemp -d)
pids=
finish() {
  [ -z "$pids" ] || kill $pids
  rm -r "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM

# decode THREADS -> tokens a second
decode() {
  "$build/pagefuse" generate "$model" --prompt-file "$prompt" --max-new-tokens "$tokens" --threads "$1" --verbose 2>&1 |
    sed -n 's/^decode: .*, \([0-9]*\) a second$/\1/p'
}

# ort -> tokens a second of ONNX Runtime
ort() {
  node "$ORT_PEER/peer.js" "$model" --prefill=0 --contexts="${CONTEXT:-480}" --steps="$tokens" --threads="$(nproc)" |
    sed -n 's/.*"seconds_per_token":\([0-9.e-]*\).*/\1/p' | awk '{ printf "%d\n", 1 / $1 }'
}

median() { sort -n "$1" | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }

# compare NAME: sets `ratio` and, with ORT_PEER, `peer_ratio`
compare() {
  : > "$work/all"; : > "$work/one"; : > "$work/ort"
  round=0
  while [ "$round" -lt "$rounds" ]; do
    decode 0 >> "$work/all"
    decode 1 >> "$work/one"
    [ -z "${ORT_PEER:-}" ] || ort >> "$work/ort"
    round=$((round + 1))
  done
  all=$(median "$work/all")
  one=$(median "$work/one")
  ratio=$(awk "BEGIN { printf \"%.2f\", $all / $one }")
  printf '%-22s default threads %6d   one thread %6d   ratio %s\n' "$1" "$all" "$one" "$ratio"
  [ -s "$work/ort" ] || return 0
  peer=$(median "$work/ort")
  peer_ratio=$(awk "BEGIN { printf \"%.2f\", $all / $peer }")
  printf '%-22s ONNX Runtime   %6d   default threads are %s of it\n' "" "$peer" "$peer_ratio"
}

echo "$(nproc) CPUs; tokens a second, medians of $rounds"
compare "as it is"
i=0
while [ "$i" -lt "$loops" ]; do
  sh -c 'while :; do :; done' &
  pids="$pids $!"
  i=$((i + 1))
done
compare "beside $loops loops"
awk "BEGIN { exit !($ratio >= 0.8) }" || { echo "ratio below 0.8" >&2; exit 1; }
[ -z "${ORT_PEER:-}" ] || awk "BEGIN { exit !($peer_ratio >= 1.5) }" || { echo "less than 1.5 of ONNX Runtime" >&2; exit 1; }
