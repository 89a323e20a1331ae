#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_browser.sh PAGEFUSE: pages of `pagefuse report`, `bench` and `inspect` as Chromium shows them. Run in the top folder; status 77 where there is no
# Chromium. With PAGEFUSE_SCREENSHOTS=DIR it leaves pictures of them there.
set -euo pipefail
. "$(dirname "$0")/expect.sh"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
  { echo "skipped: there is no Chromium; ./dev report installs it"; exit 77; }

mutated_export "$out/mutated.onnxtxt"
"$pagefuse" report models/gemma3_B18/model.onnx --kv-cache fp8_per_token_head -o "$out/gemma3.html" 2>/dev/null
"$pagefuse" report "$out/mutated.onnxtxt" -o "$out/mutated.html" 2>/dev/null
"$pagefuse" report models/deepseek_v4_A18/model.onnx -o "$out/deepseek.html" 2>/dev/null
"$pagefuse" inspect models/gemma3_recall/model.onnx --kv-cache fp8_per_token_head --html "$out/memory.html" >/dev/null
"$pagefuse" inspect models/deepseek_v4_A18/model.onnx --html "$out/memory_deepseek.html" >/dev/null
"$pagefuse" bench models/gemma3_recall -p 16,64 -n 4 -d 0,64,256 -b 1,2 -r 1 --kv-cache none,fp8_per_token_head --html "$out/speed.html" >/dev/null 2>&1
"$pagefuse" bench models/gemma3_recall -p 16 -n 0 -r 1 --html "$out/one_speed.html" >/dev/null 2>&1
mkdir -p "${PAGEFUSE_SCREENSHOTS:-$out}"
python3 "$(dirname "$0")/open_pages.py" "$browser" "$out"/{gemma3,mutated,deepseek,memory,memory_deepseek,speed,one_speed}.html ${PAGEFUSE_SCREENSHOTS:+--screenshots "$PAGEFUSE_SCREENSHOTS"} ||
  fail "a page is not as it should be"

# What the check would see: a page with each fault, and a page without any.
plain='<!DOCTYPE html><html lang="en"><title>t</title><meta name="color-scheme" content="light dark"><main><h1>t</h1>
<table><caption>c</caption><tr><th>r<td><a href="#a">a</a></table><p id="a">text'
faults=(
  '<script>console.log("said")</script>|console: log'
  '<script>missing()</script>|script: Uncaught'
  '<img src="missing.png" alt="">|asks for file:'
  '<div style="width: 3000px">wide</div>|px wider than the window'
  '<p style="color: #888; background: #999">hard</p>|contrast of 1'
  '<style>a:focus { outline: none }</style>|the focus on "a" does not show'
  '<h3>deep</h3>|h3 "deep" follows h1'
  '<table><tr><td>a<td>b</table>|a table has no caption'
  '<table><caption>c</caption><tr><td>a<td>b<tr><td>c<td>d</table>|a row of "c" has no title'
  '<svg width="9" height="9"></svg>|a picture has no name'
  '<p style="overflow-x: auto; width: 50px">cannotbebroken</p>|the keyboard cannot scroll P'
  '<main>twice</main>|expected one main part'
)
echo "$plain" >"$out/plain.html"
python3 "$(dirname "$0")/open_pages.py" "$browser" "$out/plain.html" || fail "a plain page is said to be wrong"
for fault in "${faults[@]}"; do
  echo "$plain${fault%|*}" >"$out/fault.html"
  ! python3 "$(dirname "$0")/open_pages.py" "$browser" "$out/fault.html" >"$out/said" || fail "not seen: $fault"
  grep -qF "${fault#*|}" "$out/said" || fail "$fault: got $(cat "$out/said")"
done
