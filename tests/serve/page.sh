#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# page.sh PAGEFUSE: the page of `pagefuse serve` as Chromium shows it (page.py). Run in the top folder; status 77 where there is no Chromium.
# With PAGEFUSE_SCREENSHOTS=DIR it leaves pictures there.
set -euo pipefail
here=$(dirname "$0")
. "$here/served.sh"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
  { echo "skipped: there is no Chromium; ./dev report installs it"; exit 77; }

[ "$(wc -l <serve/page.html)" -le 400 ] || fail 'the page has more than 400 lines'
start models/gemma3_recall
open_url=$url
echo the-key >"$out/keys"
start models/gemma3_recall --api-key-file "$out/keys"
key_url=$url
python3 -B "$here/page.py" "$browser" "$open_url" --with-key "$key_url" --key the-key ${PAGEFUSE_SCREENSHOTS:+--screenshots "$PAGEFUSE_SCREENSHOTS"} ||
  fail 'the page is not as it should be'

start models/gemma3_recall --no-page
for path in / /page.css /page.js /page.svg; do
  python3 - "$url$path" <<'END' || fail "with --no-page there is $path"
import sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(sys.argv[1])
except urllib.error.HTTPError as error:
    sys.exit(error.code != 404)
sys.exit(1)
END
done
