# SPDX-License-Identifier: Apache-2.0
# Sourced by the command tests: `expect`, and a folder $out that goes with the script.
pagefuse=$1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

fail() {
  printf '%.1000s; it printed:\n' "$1" >&2
  head -c 20000 "$out/printed" >&2
  exit 1
}

# expect STATUS PATTERN ARGUMENTS...: what is printed has a line that matches, if there is a pattern.
expect() {
  local status=0
  "$pagefuse" "${@:3}" >"$out/printed" 2>&1 || status=$?
  [ "$status" -eq "$1" ] || fail "pagefuse ${*:3}: status $status instead of $1"
  [ -z "$2" ] || grep -qaE -- "$2" "$out/printed" || fail "pagefuse ${*:3}: nothing like \"$2\""
}

# unlike PATTERN: the last command printed no such line.
unlike() {
  ! grep -qaE -- "$1" "$out/printed" || fail "a line is like \"$1\""
}

# mutated_export FILE: an export of which one norm is not the one that fuses.
mutated_export() {
  "$pagefuse" opt models/gemma3_B18/model.onnx --passes dead-code --max-elements -1 --emit text -o "$out/export.onnxtxt" 2>/dev/null
  sed '0,/= Reciprocal (/s//= Neg (/' "$out/export.onnxtxt" >"$1"
}
