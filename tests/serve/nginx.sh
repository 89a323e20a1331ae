#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# nginx.sh PAGEFUSE: two servers behind nginx, by docs/deploy/nginx.conf: conversations stay on one of them, as much of their prompts is known
# as on one server alone, and a server that is ended in the middle costs no request. Run in the top folder. Exit status 77 without nginx.
set -euo pipefail
pagefuse=$1
model=models/gemma3_recall
nginx=$(PATH=$PATH:/usr/sbin:/usr/local/sbin command -v nginx) || { echo 'nginx is not installed'; exit 77; }
command -v python3 >/dev/null || { echo 'python3 is not installed'; exit 77; }
out=$(mktemp -d)
chmod 711 "$out"  # nginx begun as root works as nobody
children=()
finish() {
  # The workers of nginx end with it when it is told to end, not when it is killed.
  if [ -n "${proxy:-}" ]; then
    kill -TERM "$proxy" 2>/dev/null || true
    wait "$proxy" || true
  fi
  for child in "${children[@]}"; do kill -TERM "$child" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$out"
}
trap finish EXIT

fail() {
  echo "$1" >&2
  tail -n 5 "$out"/*.errors "$out"/nginx.log 2>/dev/null >&2 || true
  exit 1
}

# await PID TEST...: until the test is true, while the process is there.
await() {
  for _ in $(seq 300); do
    ! "${@:2}" || return 0
    kill -0 "$1" 2>/dev/null || fail "process $1 ended"
    sleep 0.1
  done
  fail "not in 30 seconds: ${*:2}"
}

# serve NAME: a server; its address in $served.
serve() {
  : >"$out/$1"
  "$pagefuse" serve $model --port 0 --no-page --log json --cache-bytes 64MiB >"$out/$1" 2>"$out/$1.errors" &
  children+=($!)
  await $! grep -q '^serving ' "$out/$1"
  served=$(sed -n 's#^serving .* at http://##p' "$out/$1")
}

# figure NAME: of what the last conversations printed.
figure() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$out/talked" "$1"; }
talk() { python3 -B "$(dirname "$0")/conversations.py" "$@" >"$out/talked" || fail 'a request failed'; cat "$out/talked"; }

serve alone
talk "http://$served"
alone=$(figure cached_tokens)
kill -TERM "${children[0]}"

serve first
first=$served
serve second
second=$served
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
sed -e "s/127.0.0.1:8081/$first/; s/127.0.0.1:8082/$second/; s/127.0.0.1:8080/127.0.0.1:$port/" \
  -e "1i daemon off; pid $out/nginx.pid; error_log $out/nginx.log;" \
  -e "s#^http {#&\n  access_log off; client_body_temp_path $out/1; proxy_temp_path $out/2; fastcgi_temp_path $out/3; uwsgi_temp_path $out/4; scgi_temp_path $out/5;#" \
  -e 's/^worker_processes auto/worker_processes 1/' docs/deploy/nginx.conf >"$out/nginx.conf"
"$nginx" -p "$out" -c "$out/nginx.conf" -e "$out/nginx.log" 2>/dev/null &
proxy=$!
reaches() { python3 -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:$port/health')" 2>"$out/reached.errors"; }
await $proxy reaches

# As they were asked of one server.
talk "http://127.0.0.1:$port"
[ "$(figure moved)" -eq 0 ] || fail 'a conversation has moved'
[ "$(figure servers | tr -cd , | wc -c)" -eq 1 ] || fail "expected two servers, got $(figure servers)"
[ $(($(figure cached_tokens) * 10)) -ge $((alone * 9)) ] || fail "$(figure cached_tokens) tokens were known, less than 90 % of $alone"

# The first server ends meanwhile.
talk "http://127.0.0.1:$port" --name blue --drain "${children[1]}"
[ "$(figure requests)" -eq 100 ] || fail "$(figure requests) of 100 requests were answered"
[ "$(figure moved)" -gt 0 ] || fail 'the first server had no conversation, so that its end tells nothing'
wait "${children[1]}" || fail 'the server that was ended had an error'
talk "http://127.0.0.1:$port" --name green
[ "$(figure servers)" = "['$second']" ] || fail "expected answers of $second alone, got $(figure servers)"
