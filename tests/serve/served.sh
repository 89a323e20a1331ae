# SPDX-License-Identifier: Apache-2.0
# Sourced by tests of servers, behind which PAGEFUSE is the first argument: `start`, `fail`, and a folder $out that goes with the script.
pagefuse=$1
out=$(mktemp -d)
servers=()
end_all() {
  for server in ${servers[@]+"${servers[@]}"}; do kill -KILL "$server" 2>/dev/null && wait "$server" 2>/dev/null || true; done
  rm -rf "$out"
}
trap end_all EXIT

fail() {
  printf '%.1000s\n' "$1" >&2
  [ ! -f "$out/printed" ] || head -c 20000 "$out/printed" >&2
  exit 1
}

# start ARGUMENTS...: `pagefuse serve` of them at a free port; its address in $url, its process in $server.
start() {
  : >"$out/serving"  # what the last one said is not read again
  "$pagefuse" serve "$@" --port 0 --log none >"$out/serving" 2>"$out/printed" &
  server=$!
  servers+=("$server")
  for _ in $(seq 600); do
    url=$(sed -n 's/^serving .* at \(http.*\)$/\1/p' "$out/serving")
    [ -z "$url" ] || return 0
    kill -0 "$server" 2>/dev/null || fail "pagefuse serve $* ended"
    sleep 0.1
  done
  fail "pagefuse serve $* does not come"
}
