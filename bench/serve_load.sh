#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The server beside the engine: tokens a second of 32 streams over HTTP and in `pagefuse bench`, whose generate figures both are of
# steps in which all sequences write; the same while 1000 requests wait; and the time between tokens of 16 streams while a prompt of
# 4096 tokens is read. Runs take turns.
# Usage: bench/serve_load.sh MODEL [WEIGHTS [ROUNDS [NEW_TOKENS [LONG]]]]
set -euo pipefail
cd "$(dirname "$0")/.."
model=$1 weights=${2:-bf16} rounds=${3:-2} new=${4:-128} long=${5:-4096}
out=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$out"' EXIT

for _ in $(seq "$rounds"); do
  build/release/pagefuse bench "$model" -p 64 -n "$new" -b 32 --weights "$weights" -r 1 --json >"$out/bench.json"
  python3 - "$out/bench.json" <<'END'
import json, sys
rows = json.load(open(sys.argv[1]))["rows"]
row = [row for row in rows if "generate" in row["test"]][0]
print(f"32 sequences in the engine: {row['mean_tokens_per_second']:.1f} tokens a second")
END
  build/release/pagefuse serve "$model" --port 0 --weights "$weights" --max-sequences 32 --log none >"$out/said" 2>"$out/errors" &
  server=$!
  until grep -q ' at http' "$out/said"; do
    kill -0 "$server" || { cat "$out/errors"; exit 1; }
    sleep 0.2
  done
  node bench/serve_load.mjs "$(sed 's/.* at //' "$out/said")" 32 "$new" 64 1000 "$long"
  kill "$server"
  wait "$server" || true
done
