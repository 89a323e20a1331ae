#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares the engine with llama.cpp at Gemma 3 1B dimensions with random weights, in turns on the same machine: int4 beside Q4_0,
# int8 beside Q8_0, bf16 beside BF16.
#
#   bench/peer_llama.sh BUILD_DIR WORK_DIR [ROUNDS]
#
# BUILD_DIR has fill_weights and pagefuse. WORK_DIR (9 GB) gets the weights, llama.cpp and the reports.
# In the environment: PREFILL, CONTEXTS, STEPS, THREADS; SEQUENCES, how many decode at once ("1,8,32"); PAIRS, of formats.
set -eu
[ $# -ge 2 ] || { echo "usage: peer_llama.sh BUILD_DIR WORK_DIR [ROUNDS]" >&2; exit 1; }
build=$1
work=$2
rounds=${3:-3}
here=$(cd "$(dirname "$0")" && pwd)
model=$work/gemma3_1b/model.onnx
peer=$work/llama_peer
prefill=${PREFILL:-512}
contexts=${CONTEXTS:-512}
steps=${STEPS:-32}
threads=${THREADS:-2}
sequences=${SEQUENCES:-1}
pairs=${PAIRS:-int4:q4_0 int8:q8_0 bf16:bf16}

[ -f "$model.data" ] || "$build/fill_weights" "$here/../models/gemma3_1b_graph" "$work/gemma3_1b"
[ -f "$peer/peer.mjs" ] || "$here/llama_peer/install.sh" "$peer"
for pair in $pairs; do
  type=${pair#*:}
  [ -f "$work/$type.gguf" ] || node "$peer/gguf.js" "$type" "$work/$type.gguf"
done

# Rows of `pagefuse bench` for the weights $1, as one line.
measure() {
  weights=$1
  shift
  "$build/pagefuse" bench "$model" -r 1 --threads "$threads" --weights "$weights" --format json "$@" | tr -d '\n'
  echo
}

reports=$work/llama_reports.jsonl
: > "$reports"
round=0
while [ "$round" -lt "$rounds" ]; do
  for pair in $pairs; do
    [ "$prefill" = 0 ] || measure "${pair%:*}" -p "$prefill" -n 0 >> "$reports"
    measure "${pair%:*}" -p 0 -n "$steps" -d "$contexts" -b "$sequences" >> "$reports"
    node "$peer/peer.mjs" "$work/${pair#*:}.gguf" "${pair#*:}" --prefill="$prefill" \
      --contexts="$contexts" --sequences="$sequences" --steps="$steps" --threads="$threads" >> "$reports"
  done
  round=$((round + 1))
done
node "$here/ort_peer/table.js" < "$reports"
