#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_report.sh PAGEFUSE: the page of `pagefuse report` holds its data, and needs nothing else. Run in the top folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
model=models/gemma3_B18/model.onnx

expect 0 'report.html: [0-9.]+ KiB$' report $model --kv-cache fp8_per_token_head -o "$out/report.html"
page=$out/report.html
[ "$(stat -c %s "$page")" -lt 5242880 ] || fail "the page has more than 5 MiB"
! grep -oE '(src|href)="[^#"]' "$page" | grep -q . || fail "the page asks for something from outside"
! sed 's|http://www.w3.org/2000/svg||g' "$page" | grep -qE 'https?://' || fail "the page names an address"
[ "$(grep -c '<script' "$page")" -eq 1 ] || fail "there is a script besides the data"

# The data in the page.
sed -nE 's|.*<script type="application/json" id="report">(.*)</script>.*|\1|p' "$page" >"$out/report.json"
python3 - "$out/report.json" <<'END' || fail "the data of the page is not what the model is"
import json, sys
report = json.load(open(sys.argv[1]))
assert len(report["layers"]) == 6
assert report["cache"]["bytes_per_token_of_all_rows"] == 432
assert report["leftovers"] == [] and report["missing"] == []
assert report["facts"]["nodes_before"] == 753
assert " 0 differ" in report["verify"]
norms = [rule for rule in report["rewrites"] if rule["rule"] == "rms-norm"]
assert norms[0]["rewrites"] == norms[0]["equal"] == 37
for run in ("prefill", "decode"):
    assert abs(sum(op["share"] for op in report["times"][run]["ops"]) - 1) < 1e-6
attention = [op for op in report["times"]["decode"]["ops"] if "PagedAttention" in op["op"]]
assert attention[0]["nodes"] == 6 and attention[0]["cache_bytes_written"] == 0
# One layer of six keeps all 514 rows of 72 bytes, the others the last 16.
assert attention[0]["cache_bytes_read"] == 72 * 514 + 5 * 72 * 16
for run, tokens in ("prefill", 512), ("decode", 1):
    insert = [op for op in report["times"][run]["ops"] if "Insert" in op["op"]]
    assert insert[0]["cache_bytes_written"] == 432 * tokens and insert[0]["cache_bytes_read"] == 0
END

# Every link leads to something.
grep -oE 'href="#[^"]+"' "$page" | sed 's/href="#//; s/"//' | sort -u >"$out/links"
grep -oE 'id="[^"]+"' "$page" | sed 's/id="//; s/"//' | sort -u >"$out/ids"
[ -z "$(comm -23 "$out/links" "$out/ids")" ] || fail "a link leads nowhere"

# A layer that did not fuse is among what is left, with its condition.
mutated_export "$out/changed.onnxtxt"
expect 0 '"failed": ".*expected Reciprocal, got [^"]*"' report "$out/changed.onnxtxt" --json --no-times
expect 0 'RMSNorm written out' report "$out/changed.onnxtxt" --json --no-times
# Without weights the graph is told, and nothing is measured.
expect 0 '"refused": ".*data was left out' report models/gemma3_1b_graph/model.onnx --json
expect 1 'report needs -o FILE or --json' report $model
