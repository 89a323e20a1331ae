#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_cost.sh PAGEFUSE FOLDER...: what the comparison at load (docs/trust.md) adds to the time until the first token, for each folder with a
# model.onnx: the fastest of five runs with and without, and what was compared. A table in Markdown.
set -euo pipefail
pagefuse=$1
shift

# seconds WHEN MODEL: the fastest of five.
seconds() {
  local best=
  for _ in 1 2 3 4 5; do
    local start end
    start=$(date +%s%N)
    "$pagefuse" generate "$2" --prompt-ids 1,2,3 --max-new-tokens 1 --check-paging "$1" --json >"$answer" 2>/dev/null
    end=$(date +%s%N)
    local taken=$((end - start))
    [ -n "$best" ] && [ "$best" -le "$taken" ] || best=$taken
  done
  awk "BEGIN { printf \"%.2f\", $best / 1e9 }"
}

answer=$(mktemp)
trap 'rm -f "$answer"' EXIT
echo '| model | without, s | with, s | probes |'
echo '|---|---|---|---|'
for folder in "$@"; do
  model=$folder
  [ ! -f "$folder/model.onnx" ] || model=$folder/model.onnx
  without=$(seconds never "$model")
  with=$(seconds always "$model")
  verdict=$(grep -o '"verdict":"[^"]*' "$answer" | cut -d'"' -f4)
  probes=$(sed -E 's/^the logits of ([0-9]+) probes.*no time for ([0-9]+) more/\1, \2 skipped/; s/^the logits of ([0-9]+) probes are.*/\1/' <<<"$verdict")
  echo "| $(basename "$folder") | $without | $with | $probes |"
done
