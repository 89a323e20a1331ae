#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_cases.sh PAGEFUSE DATA: what `check` says of cases that are not as they should be. DATA is where test data is unpacked.
# Run in the top folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
defects=$2/went_wrong models=$2/models

# case_of NAME [FILE...]: a copy of a case of a bundled decoder in $out/NAME with these files of its first data set alone.
case_of() {
  mkdir -p "$out/$1/test_data_set_0"
  cp "$models/gemma3_A18/model.onnx" "$models/gemma3_A18/config.json" "$out/$1/"
  local file
  for file in "${@:2}"; do cp "$models/gemma3_A18/test_data_set_0/$file.pb" "$out/$1/test_data_set_0/"; done
}
inputs=(input_0 input_1 input_2)

# Nothing to compare with is nothing that passed.
case_of silent "${inputs[@]}"
expect 1 '^skipped .*/silent: it runs, but there are no output files to compare with$' check "$out/silent"
expect 1 '^0 passed, 0 failed, 1 skipped$' check "$out/silent"
expect 0 '^0 passed, 0 failed, 1 skipped$' check "$out/silent" --allow-refused
expect 1 '"result": "skipped"' check --json "$out/silent"
expect 1 '^0 passed, 0 failed, 1 skipped$' check "$out/silent" --fuse
expect 0 ' 1 had nothing to compare with' check "$out/silent" --allow-refused --report /dev/stdout
expect 1 '^failed .*: input ".*" was not fed$' check "$defects/check_fuse_2"
case_of half "${inputs[@]}" output_0
mkdir "$out/half/test_data_set_1"
for file in "${inputs[@]}"; do cp "$out/half/test_data_set_0/$file.pb" "$out/half/test_data_set_1/"; done
expect 0 '^passed .*test_data_set_1: no output files, nothing was compared$' check "$out/half"
expect 0 '^structure models/gemma3_1b_graph: ' check models/gemma3_1b_graph
expect 0 '^0 passed, 0 failed, 0 skipped, 1 by structure alone$' check models/gemma3_1b_graph

# Decoders whose data the paged path cannot take.
for i in 1 2 3 4 5 6 7; do
  expect 1 '^refused .*check_fuse_.: not checked through the paged cache: |^refused .*: the case contradicts itself: ' \
    check --fuse "$defects/check_fuse_$i"
  grep -q '^0 passed, 0 failed, 1 skipped$' "$out/printed" || fail "check_fuse_$i is not counted as skipped"
done

# Bundled decoders.
expect 0 '^3 passed, 0 failed, 0 skipped$' check --fuse "$models/gemma3_A18" "$models/gemma3_B18" "$models/gemma3_A23"
