#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares the engine with llama.cpp at Gemma 3 1B dimensions with random weights of 4 and 8 bits, in turns on the same machine:
# int4 beside Q4_0, int8 beside Q8_0.
#
#   bench/peer_llama.sh BUILD_DIR WORK_DIR [ROUNDS]
#
# BUILD_DIR has fill_weights and pagefuse. WORK_DIR (7 GB) gets the weights, llama.cpp and the reports.
# PREFILL, CONTEXTS, STEPS and THREADS may be set in the environment.
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

[ -f "$model.data" ] || "$build/fill_weights" "$here/../models/gemma3_1b_graph" "$work/gemma3_1b"
[ -f "$peer/peer.mjs" ] || "$here/llama_peer/install.sh" "$peer"
for type in q4_0 q8_0; do
  [ -f "$work/$type.gguf" ] || node "$peer/gguf.js" "$type" "$work/$type.gguf"
done

reports=$work/llama_reports.jsonl
: > "$reports"
round=0
while [ "$round" -lt "$rounds" ]; do
  for pair in int4:q4_0 int8:q8_0; do
    "$build/pagefuse" bench "$model" -p "$prefill" -n "$steps" -d "$contexts" -r 1 \
      --threads "$threads" --weights "${pair%:*}" --format json | tr -d '\n' >> "$reports"
    echo >> "$reports"
    node "$peer/peer.mjs" "$work/${pair#*:}.gguf" "${pair#*:}" --prefill="$prefill" \
      --contexts="$contexts" --steps="$steps" --threads="$threads" >> "$reports"
  done
  round=$((round + 1))
done
node "$here/ort_peer/table.js" < "$reports"
