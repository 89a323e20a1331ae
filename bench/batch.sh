#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Requests a second of `pagefuse batch` beside the engine's own: the same requests in one call of `pagefuse generate`, which counts
# the seconds of the engine's steps alone. Runs take turns, and of each the best one counts.
# Usage: bench/batch.sh [MODEL_FOLDER [LINES [ROUNDS]]]
set -euo pipefail
cd "$(dirname "$0")/.."
model=${1:-models/gemma3_recall}
lines=${2:-2000}
rounds=${3:-3}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

python3 - "$lines" "$out" <<'END'
import json, random, sys
random.seed(5)
lines, out = int(sys.argv[1]), sys.argv[2]
with open(out + "/in", "w") as requests, open(out + "/arguments", "w") as arguments:
    for i in range(lines):
        ids = [random.randrange(3, 250) for _ in range(64)]
        body = {"prompt": ids, "max_tokens": 64, "ignore_eos": True, "temperature": 0}
        requests.write(json.dumps({"custom_id": f"r{i}", "method": "POST", "url": "/v1/completions", "body": body}) + "\n")
        arguments.write("--prompt-ids\n" + ",".join(map(str, ids)) + "\n")
END

for _ in $(seq "$rounds"); do
  # One call for all: xargs would make several of what is longer than its own limit.
  xargs -x -s 2000000 -a "$out/arguments" build/release/pagefuse generate "$model" --weights float32 --temperature 0 --max-new-tokens 64 --ignore-end \
    --json >"$out/generated" 2>"$out/errors" || { tail -n 3 "$out/errors"; exit 1; }
  python3 - "$out/generated" "$lines" >>"$out/engine" <<'END'
import json, sys
figures = json.load(open(sys.argv[1]))
seconds = sum(figures[f"{part}_tokens"] / figures[f"{part}_tokens_per_second"] for part in ("prefill", "decode"))
print(f"{int(sys.argv[2]) / seconds:.1f}")
END
  rm -f "$out/answers"
  build/release/pagefuse batch "$model" "$out/in" -o "$out/answers" --weights float32 --temperature 0 --verbose 2>"$out/errors" || { tail -n 3 "$out/errors"; exit 1; }
  sed -n 's/^.* lines in .* s, \([0-9.]*\) a second; .*/\1/p' "$out/errors" >>"$out/batch"
  [ "$(wc -l <"$out/answers")" -eq "$lines" ]
done
python3 - "$out" "$lines" <<'END'
import sys
engine, batch = (max(map(float, open(f"{sys.argv[1]}/{name}"))) for name in ("engine", "batch"))
print(f"{sys.argv[2]} requests of 64 tokens and 64 new ones: engine {engine:.1f} a second, batch {batch:.1f} a second, ratio {batch / engine:.3f}")
END
