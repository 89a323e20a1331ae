#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares the engine with ONNX Runtime on a graph of Gemma 3 1B dimensions with random weights, in turns on the same machine.
#
#   bench/peer_1b.sh BUILD_DIR WORK_DIR [ROUNDS]
#
# BUILD_DIR has fill_weights and pagefuse. WORK_DIR (6 GB) gets the weights, ONNX Runtime and the reports.
# PREFILL, CONTEXTS, STEPS and THREADS may be set in the environment; LOOPS (0) is a number of endless loops that run beside both.
set -eu
[ $# -ge 2 ] || { echo "usage: peer_1b.sh BUILD_DIR WORK_DIR [ROUNDS]" >&2; exit 1; }
build=$1
work=$2
rounds=${3:-3}
here=$(cd "$(dirname "$0")" && pwd)
model=$work/gemma3_1b/model.onnx
prefill=${PREFILL:-512}
contexts=${CONTEXTS:-512}
steps=${STEPS:-8}
threads=${THREADS:-2}

[ -f "$model.data" ] || "$build/fill_weights" "$here/../models/gemma3_1b_graph" "$work/gemma3_1b"
[ -f "$work/ort_peer/peer.js" ] || "$here/ort_peer/install.sh" "$work/ort_peer"

pids=
trap '[ -z "$pids" ] || kill $pids 2>/dev/null' EXIT
trap 'exit 1' INT TERM
loop=0
while [ "$loop" -lt "${LOOPS:-0}" ]; do
  sh -c 'while :; do :; done' &
  pids="$pids $!"
  loop=$((loop + 1))
done

reports=$work/reports.jsonl
: > "$reports"
round=0
while [ "$round" -lt "$rounds" ]; do
  node "$work/ort_peer/peer.js" "$model" --prefill="$prefill" --contexts="$contexts" \
    --steps="$steps" --threads="$threads" --repeats=1 >> "$reports"
  "$build/pagefuse" bench "$model" -p "$prefill" -n "$steps" -d "$contexts" -r 1 \
    --threads "$threads" --weights float32,bf16 --format json | tr -d '\n' >> "$reports"
  echo >> "$reports"
  round=$((round + 1))
done
node "$here/ort_peer/table.js" < "$reports"
