#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares fused and paged DeepSeek exports with the same exports as they came, here and in ONNX Runtime, in turns on the same machine.
#
#   bench/peer_deepseek.sh BUILD_DIR WORK_DIR [ROUNDS]
#
# V3 has the published cache rows and a small hidden size; V3.2 and V4 have the published widths and random weights (16 and 11 GB,
# under WORK_DIR). V4's export has no cache, so that unfused each token is computed from the first on. BUILD_DIR has fill_weights,
# graph_bench and pagefuse. In the environment: MODELS (a choice of "v3 v32 v4"), GRAPHS (the folder of the graphs), PREFILL, CONTEXT,
# V4_CONTEXT, STEPS, REPEATS and THREADS. ONNX Runtime copies V4's experts for each token and choice: 54 GB of memory at 136 tokens.
set -eu
[ $# -ge 2 ] || { echo "usage: peer_deepseek.sh BUILD_DIR WORK_DIR [ROUNDS]" >&2; exit 1; }
build=$1
work=$2
rounds=${3:-3}
here=$(cd "$(dirname "$0")" && pwd)
graphs=${GRAPHS:-$here/../models}
prefill=${PREFILL:-512}
context=${CONTEXT:-512}
v4=${V4_CONTEXT:-136}
steps=${STEPS:-8}
repeats=${REPEATS:-2}
threads=${THREADS:-2}

mkdir -p "$work"
[ -d "$work/ort_peer/node_modules" ] || "$here/ort_peer/install.sh" "$work/ort_peer"
cp "$here/ort_peer/graph.js" "$work/ort_peer/graph.js"

# fill FOLDER -> the model with weights
fill() {
  if [ -f "$graphs/$1/initializers.json" ]; then
    [ -f "$work/$1/model.onnx.data" ] || "$build/fill_weights" "$graphs/$1" "$work/$1" >&2
    echo "$work/$1/model.onnx"
  else
    echo "$graphs/$1/model.onnx"
  fi
}

# compare MODEL PROMPT DEPTH RUN...: three programs in turns; PROMPT and DEPTH are of the fused graph, RUN of the others.
compare() {
  model=$1; prompt=$2; depth=$3
  shift 3
  reports=$work/reports.jsonl
  : > "$reports"
  round=0
  while [ "$round" -lt "$rounds" ]; do
    # shellcheck disable=SC2046
    node "$work/ort_peer/graph.js" "$model" --threads="$threads" --repeats="$repeats" $(printf -- '--run=%s ' "$@") >> "$reports" ||
      echo "ONNX Runtime did not run $model" >&2
    # shellcheck disable=SC2046
    "$build/graph_bench" "$model" --threads "$threads" --repeats "$repeats" $(printf -- '--run %s ' "$@") >> "$reports"
    "$build/pagefuse" bench "$model" -p "$prompt" -n "$steps" -d "$depth" -r "$repeats" --threads "$threads" --format json |
      sed 's/"weights": "float32"/"weights": "fused, paged"/' | tr -d '\n' >> "$reports"
    echo >> "$reports"
    round=$((round + 1))
  done
  node "$here/ort_peer/table.js" < "$reports"
}

# cached MODEL IDS: a graph with past and present.
cached() {
  compare "$1" "$prefill" "$context" \
    "prefill-$prefill:ids=$2,batch=1,sequence=$prefill,past_sequence=0,total_sequence=$prefill" \
    "decode-$context:ids=$2,batch=1,sequence=1,past_sequence=$context,total_sequence=$((context + 1)),first=$context"
}

for name in ${MODELS:-v3 v32 v4}; do
  echo "== $name"
  case $name in
    v3) model=$(fill deepseek_v3p_B18); cached "$model" 128 ;;
    v32) model=$(fill deepseek_v32_wide_graph); cached "$model" 1002 ;;
    v4)
      model=$(fill deepseek_v4_wide_graph_prefill)
      compare "$model" "$v4" "$v4" "prefill-$v4:batch=1,sequence=$v4" "decode-$v4:batch=1,sequence=$((v4 + 1))" ;;
    *) echo "peer_deepseek.sh: unknown model $name" >&2; exit 1 ;;
  esac
done
