#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a decoded token costs at growing contexts: the step, and in it attention and the choice of rows by index scores. For graphs
# whose attention does not read all of the context: DeepSeek V3.2 and V4.
#
#   CONTEXTS=1024,4096,16384 bench/contexts.sh BUILD_DIR MODEL [OPTIONS OF GENERATE...]
#
# MODEL is a graph with weights, or a folder with initializers.json, which is filled with random ones under TMPDIR first (10 GB for
# models/deepseek_v4_wide_graph_prefill). A row a context; milliseconds a token, of STEPS (16) of them. Token ids are below IDS
# (1000).
set -eu
[ $# -ge 2 ] || { echo "usage: contexts.sh BUILD_DIR MODEL [OPTIONS...]" >&2; exit 1; }
build=$(cd "$1" && pwd)
model=$2
shift 2
contexts=${CONTEXTS:-1024,4096}
steps=${STEPS:-16}
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
if [ -f "$model/initializers.json" ]; then
  "$build/fill_weights" "$model" "$work/filled"
  model=$work/filled/model.onnx
fi

# ms OP: of the decode part of the profile, a step.
ms() {
  awk -v op="$1" -v steps="$steps" '/^decode:/ {on = 1} /^prefill:/ {on = 0} on && $5 == op {sum += $1} END {printf "%.3f", sum / steps}' "$work/profile"
}

echo "| context | step, ms | SparseMlaAttention, ms | PagedIndexerTopK, ms |"
echo "|---|---|---|---|"
for context in $(echo "$contexts" | tr ',' ' '); do
  awk -v n="$context" 'BEGIN {for (i = 0; i < n; ++i) print (i * 37 + 11) % '"${IDS:-1000}"'}' > "$work/ids"
  "$build/pagefuse" generate "$model" --prompt-ids "@$work/ids" --max-new-tokens $((steps + 1)) --ignore-end --require-paged --json --profile \
    "$@" > "$work/figures" 2> "$work/profile"
  rate=$(grep -o '"decode_tokens_per_second":[0-9.e+]*' "$work/figures" | cut -d: -f2)
  step=$(awk -v rate="$rate" 'BEGIN {printf "%.1f", 1000 / rate}')
  echo "| $context | $step | $(ms SparseMlaAttention) | $(ms PagedIndexerTopK) |"
done
