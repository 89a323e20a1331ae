#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The first hour: the commands that README.md shows with what they print, one after the other. The first one installs packages and
# builds. A test runs this script, and holds README.md to it.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/build/release:$PATH

./dev demo
pagefuse inspect models/gemma3_recall | sed -n '/^runnable/,$p'
pagefuse generate models/gemma3_recall --weights int8 --kv-cache fp8_per_token_head --prompt $'The tin cup holds 45 keys. The red box holds 12 pins.\nWhat does the tin cup hold? '
pagefuse bench models/gemma3_recall -p 512 -n 128 -b 1,8 --kv-cache none,fp8_per_token_head -r 3
