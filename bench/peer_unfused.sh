#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares the engine, running graphs as they came, with ONNX Runtime, in turns on the same machine.
#
#   bench/peer_unfused.sh BUILD_DIR WORK_DIR [ROUNDS]
#
# Graphs of published widths with random weights: Gemma 3 1B (4 GB), one decode step of DeepSeek-V4 (11 GB), and its prefill (11 GB),
# which ONNX Runtime is not asked for: its copies of expert matrices, one for each token and choice, need more than 50 GB.
# BUILD_DIR has fill_weights and graph_bench. WORK_DIR (26 GB, 5 GB for gemma alone) gets the weights, ONNX Runtime and the reports. One
# program runs at a time; 16 GB of free memory are needed. In the environment: MODELS (a choice of "gemma v4_decode v4_prefill"),
# PREFILL, CONTEXT, V4_PREFILL, REPEATS and THREADS.
set -eu
[ $# -ge 2 ] || { echo "usage: peer_unfused.sh BUILD_DIR WORK_DIR [ROUNDS]" >&2; exit 1; }
build=$1
work=$2
rounds=${3:-3}
here=$(cd "$(dirname "$0")" && pwd)
graphs=${GRAPHS:-$here/../models}
models=${MODELS:-gemma v4_decode v4_prefill}
prefill=${PREFILL:-512}
context=${CONTEXT:-512}
v4_prefill=${V4_PREFILL:-136}
repeats=${REPEATS:-3}
threads=${THREADS:-2}

mkdir -p "$work"
[ -d "$work/ort_peer/node_modules" ] || "$here/ort_peer/install.sh" "$work/ort_peer"
cp "$here/ort_peer/graph.js" "$work/ort_peer/graph.js"

# fill FOLDER OF GRAPHS' -> OF WORK'S
fill() {
  [ -f "$work/$2/model.onnx.data" ] || "$build/fill_weights" "$graphs/$1" "$work/$2"
}

ours() {
  "$build/graph_bench" "$@" --threads "$threads" --repeats "$repeats"
}

# compare MODEL RUN...: both programs in turns.
compare() {
  model=$1
  shift
  reports=$(dirname "$model")/reports.jsonl
  : > "$reports"
  round=0
  while [ "$round" -lt "$rounds" ]; do
    # shellcheck disable=SC2046
    node "$work/ort_peer/graph.js" "$model" --threads="$threads" --repeats="$repeats" $(printf -- '--run=%s ' "$@") >> "$reports"
    # shellcheck disable=SC2046
    ours "$model" $(printf -- '--run %s ' "$@") >> "$reports"
    round=$((round + 1))
  done
  node "$here/ort_peer/table.js" < "$reports"
}

for name in $models; do
  echo "== $name"
  case $name in
    gemma)
      fill gemma3_1b_graph gemma3_1b
      compare "$work/gemma3_1b/model.onnx" \
        "prefill-$prefill:batch=1,sequence=$prefill,past_sequence=0,total_sequence=$prefill" \
        "decode-$context:batch=1,sequence=1,past_sequence=$context,total_sequence=$((context + 1)),first=$context" ;;
    v4_decode)
      fill deepseek_v4_wide_graph_decode_open deepseek_v4_wide_graph_decode_open
      compare "$work/deepseek_v4_wide_graph_decode_open/model.onnx" \
        "decode-136:batch=1,total_sequence=137,first=136,csa_buffered=0,csa_entries=34,hca_buffered=8" ;;
    v4_prefill)
      fill deepseek_v4_wide_graph_prefill deepseek_v4_wide_graph_prefill
      ours "$work/deepseek_v4_wide_graph_prefill/model.onnx" \
        --run "prefill-$v4_prefill:batch=1,sequence=$v4_prefill" > "$work/deepseek_v4_wide_graph_prefill/reports.jsonl"
      node "$here/ort_peer/table.js" < "$work/deepseek_v4_wide_graph_prefill/reports.jsonl" ;;
    *) echo "peer_unfused.sh: unknown model $name" >&2; exit 1 ;;
  esac
done
