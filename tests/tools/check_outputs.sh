#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_outputs.sh PAGEFUSE DATA: what cannot be written is said, whatever command writes it; JSON is UTF-8 whatever a
# model calls its values. DATA is where test data is unpacked. Run in the top folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
defects=$2/went_wrong
model=$out/doubled.onnxtxt
cat >"$model" <<'END'
<ir_version: 10, opset_import: ["" : 24]>
doubled (float[T] x) => (float[T] y) {
  two = Constant <value_float = 2.0> ()
  y = Mul (x, two)
}
END
printf '\x08\x03\x10\x01\x42\x01x\x4a\x0c\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40' >"$out/x.pb"  # x = [1, 2, 3]

# A file where a folder would have to be, and a folder where a file would.
: >"$out/file"
mkdir "$out/folder"
for place in "$out/file/inside" "$out/folder"; do
  expect 1 "cannot (write|create) \"$place\": " opt "$model" -o "$place"
  expect 1 "cannot (write|create) \"$place\": " opt "$model" --emit text -o "$place"
  expect 1 "cannot (write|create) \"$place\": " opt "$model" --emit dot -o "$place"
  expect 1 "cannot (write|create) \"$place\": " run "$model" -i "$out/x.pb" --trace "$place"
  expect 1 "cannot (write|create) \"$place\": " generate models/gemma3_A18/model.onnx --prompt-ids 1 --max-new-tokens 1 \
    --trace "$place"
  expect 1 "cannot (write|create) \"$place\": " check "$2/models/gemma3_A18" --report "$place"
done
expect 1 "cannot make the folder \"$out/file/inside\": " run "$model" -i "$out/x.pb" -o "$out/file/inside"
expect 1 "cannot make the folder \"$out/file\": " run "$model" -i "$out/x.pb" -o "$out/file"
mkdir -p "$out/taken/output_0.pb"
expect 1 "cannot (write|create) \"$out/taken/output_0.pb\": " run "$model" -i "$out/x.pb" -o "$out/taken"
expect 0 '' run "$model" -i "$out/x.pb" -o "$out/new/folder" --trace "$out/trace.json"
[ -s "$out/new/folder/output_0.pb" ] || fail "run -o wrote nothing"
[ -s "$out/trace.json" ] || fail "run --trace wrote nothing"

# What cannot be finished leaves nothing, and what was there before stays.
mkdir "$out/kept"
{
  echo '<ir_version: 10, opset_import: ["" : 24]>'
  echo 'large (float[T] x) => (float[T, 400000] y)'
  echo "<float[400000] w = {$(yes 1.5 | head -n 400000 | paste -sd,)}> {"
  echo '  one = Constant <value_ints = [-1, 1]> ()'
  echo '  column = Reshape (x, one)'
  echo '  y = Mul (column, w)'
  echo '}'
} >"$out/large.onnxtxt"
echo older >"$out/kept/model.onnx"
echo older >"$out/kept/model.onnx.data"
echo older >"$out/kept/trace.json"
unfinished() {
  status=0
  (ulimit -f 1 && exec "$pagefuse" "$@") >"$out/printed" 2>&1 || status=$?
  [ $status -eq 1 ] && grep -q "^pagefuse: cannot write \"$out/kept/" "$out/printed" || fail "pagefuse $* ended with $status"
}
unfinished opt "$out/large.onnxtxt" -o "$out/kept/model.onnx"
unfinished opt "$out/large.onnxtxt" -o "$out/kept/new.onnx"
unfinished opt "$out/large.onnxtxt" --emit text --max-elements -1 -o "$out/kept/model.onnx"
unfinished run "$out/large.onnxtxt" -i "$out/x.pb" -o "$out/kept/folder"
unfinished generate models/gemma3_A18/model.onnx --prompt-ids 1 --max-new-tokens 4 --trace "$out/kept/trace.json"
unfinished report models/gemma3_A18/model.onnx -o "$out/kept/page.html"
[ "$(cd "$out/kept" && find . -type f | sort | tr '\n' ' ')" = "./model.onnx ./model.onnx.data ./trace.json " ] ||
  fail "something is left of files that could not be written: $(find "$out/kept")"
for file in model.onnx model.onnx.data trace.json; do
  [ "$(cat "$out/kept/$file")" = older ] || fail "$file was replaced by a file that could not be written"
done
# The data of a model is not replaced where the model cannot be.
rm "$out/kept/model.onnx" && mkdir "$out/kept/model.onnx"
expect 1 "cannot write \"$out/kept/model.onnx\": " opt "$out/large.onnxtxt" -o "$out/kept/model.onnx"
[ "$(cat "$out/kept/model.onnx.data")" = older ] || fail "the data was replaced without its model"
rm "$out/kept/model.onnx.data"
expect 1 "cannot write \"$out/kept/model.onnx\": " opt "$out/large.onnxtxt" -o "$out/kept/model.onnx"
[ "$(ls "$out/kept")" = "folder
model.onnx
trace.json" ] || fail "data without its model was left"

# A full screen is an error too.
for arguments in --help --version "inspect $model" "opt $model" "ops" "run $model -i $out/x.pb"; do
  ! "$pagefuse" $arguments >/dev/full 2>"$out/printed" || fail "pagefuse $arguments >/dev/full succeeded"
  grep -q 'cannot write to standard output' "$out/printed" || fail "pagefuse $arguments >/dev/full gave no reason"
done

# What a pass cannot do can be done again from what it left.
cat >"$out/bad.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 24]>
bad (float[2] x, float[3] z) => (float[2] y) { y = Add (x, z) }
END
expect 1 "to repeat it, run sh $out/it's/cse.sh" opt "$out/bad.onnxtxt" --passes cse --option logits=all --reproducer "$out/it's"
reason=$(sed 's/; to repeat it.*//' "$out/printed")
status=0
PAGEFUSE=$pagefuse sh "$out/it's/cse.sh" >"$out/printed" 2>&1 || status=$?
[ $status -eq 1 ] && [ "$(cat "$out/printed")" = "$reason" ] || fail "the reproducer gives another error than: $reason"
expect 1 'no reproducer could be written' opt "$out/bad.onnxtxt" --passes cse --reproducer "$out/file/inside"

# Names that are no UTF-8: of producers, nodes, inputs, outputs, functions and folders.
replacement=$(printf '\xef\xbf\xbd')
is_json() {
  iconv -f UTF-8 -t UTF-8 "$1" >/dev/null || fail "$1 is no UTF-8"
  grep -q "$replacement" "$1" || fail "$1 has no replaced character"
}
expect 0 '"producer"' inspect --json "$defects/utf8_prod.onnx"
is_json "$out/printed"
printf '\x08\x02\x10\x01\x42\x01x\x4a\x08\0\0\x80\x3f\0\0\0\x40' >"$out/x2.pb"  # x = [1, 2]
for file in utf8 utf8_node utf8_prod; do
  expect 0 '' inspect --json "$defects/$file.onnx"
  expect 0 '' inspect "$defects/$file.onnx"
  expect 0 '^y: float\[2\]' run "$defects/$file.onnx" -i "$out/x2.pb" --trace "$out/trace.json"
done
expect 0 '' run "$defects/utf8_node.onnx" -i "$out/x2.pb" --trace "$out/trace.json"
is_json "$out/trace.json"
bad=$(printf '\xff\xfe')
cat >"$out/names.onnxtxt" <<END
<ir_version: 10, opset_import: ["" : 24, "$bad" : 1], metadata_props: ["$bad": "$bad"]>
"$bad" (float["$bad"] "in$bad") => (float["$bad"] "out$bad") { ["$bad"] "out$bad" = "$bad".Twice ("in$bad") }
<domain: "$bad", opset_import: ["" : 24]>
Twice (x) => (y) { y = Add (x, x) }
END
expect 0 '"nodes"' inspect --json "$out/names.onnxtxt"
is_json "$out/printed"
expect 0 '^functions: ' inspect "$out/names.onnxtxt"
cp -r "$2/models/gemma3_A18" "$out/$bad"
expect 0 '"passed": 1' check --json "$out/$bad"
is_json "$out/printed"
prompt=$(sed -n 's/.*"prompt": \[\(.*\)\],.*/\1/p' tests/data/went_wrong/expect.json | tr -d ' ')
LC_ALL=C sed 's/token_type_ids/token_type_\xff\xfe\xff/g' "$defects/A_tt.onnx" >"$out/types.onnx"
expect 0 '^tokens: \[134,213,213,213\]$' generate "$out/types.onnx" --max-new-tokens 4 --prompt-ids "$prompt"
expect 0 '' opt "$out/types.onnx" -o "$out/paged.onnx"
expect 0 '^tokens: \[134,213,213,213\]$' generate "$out/paged.onnx" --max-new-tokens 4 --prompt-ids "$prompt"
