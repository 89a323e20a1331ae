#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_metrics.sh PAGEFUSE: Prometheus's own check of /metrics, behind some requests, says nothing but that names with ":" are meant
# for rules. Status 77 where there is no promtool or no curl.
set -euo pipefail
command -v promtool >/dev/null && command -v curl >/dev/null || { echo "skipped: promtool and curl are needed; ./dev serve installs them"; exit 77; }
out=$(mktemp -d)
touch "$out/said"
"$1" serve "$(dirname "$0")/../../models/gemma3_recall" --port 0 --log none >"$out/said" 2>"$out/log" &
server=$!
trap 'kill $server 2>/dev/null || true; rm -rf "$out"' EXIT
for ((i = 0; i < 600; ++i)); do
  grep -q serving "$out/said" && break
  sleep 0.1
done
url=$(sed 's/.* at //' "$out/said")
for body in '{"prompt": "a", "max_tokens": 5}' '{"prompt": "a", "n": 2, "max_tokens": 3, "stream": true}' '{"n": 0}'; do
  curl -s -H 'Content-Type: application/json' -d "$body" "$url/v1/completions" >/dev/null
done
curl -s "$url/metrics" >"$out/metrics"
promtool check metrics <"$out/metrics" >"$out/remarks" 2>&1 || true
if grep -v "metric names should not contain ':'" "$out/remarks"; then
  echo "that is what promtool says besides"
  exit 1
fi
grep -q '^pagefuse:request_success_total.* [1-9]' "$out/metrics" || { echo "no request was counted"; exit 1; }
kill $server
wait $server
