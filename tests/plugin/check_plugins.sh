#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_plugins.sh PAGEFUSE OBJECTS: plug-ins on the command line; OBJECTS has those of tests/plugin/objects.
set -euo pipefail
. "$(dirname "$0")/../tools/expect.sh"
objects=$2
acme=$objects/acme.so

expect 0 '^acme 0.1, plug-in ABI 1.0$' plugin "$acme"
expect 0 '^  op         acme.Scale   kernels: plain \(10\), body$' plugin "$acme"
expect 0 '^  rule       acme-scale   before: fuse-elementwise$' plugin "$acme"
expect 0 '^  condition  divides$' plugin "$objects/probe.so"

# Wrong objects: one line, status 1, and no op more than before.
"$pagefuse" ops --plugin "$acme" >"$out/ops"
[ "$(grep -c '^acme' "$out/ops")" = 1 ] || fail 'ops --plugin lists no acme.Scale'
printf 'int main;\n' >"$out/text.so"
cp "$acme" "$out/machine.so"
printf '\026\000' | dd of="$out/machine.so" bs=1 seek=18 conv=notrunc status=none
for wrong in "$out/text.so" "$out/machine.so" "$objects"/wrong_*.so; do
  expect 1 "^pagefuse: $wrong: " ops --plugin "$acme" --plugin "$wrong"
  [ "$(wc -l <"$out/printed")" = 1 ] || fail "$wrong: more than one line"
  PAGEFUSE_PLUGINS=$acme expect 1 "^pagefuse: $wrong: " plugin "$wrong"
done
expect 1 'wrong_abi.so: plug-in ABI 9.0, this pagefuse takes 1.0 to 1.0$' plugin "$objects/wrong_abi.so"
expect 1 'wrong_symbol.so: has no symbol pagefuse_plugin or RegisterCustomOps$' plugin "$objects/wrong_symbol.so"
expect 1 'none.so: No such file or directory$' ops --plugin "$out/none.so"
"$pagefuse" ops --plugin "$acme" >"$out/again"
cmp "$out/ops" "$out/again" || fail 'the ops are others than before'

# The rule fires on a model, its op is computed by its kernel, and what comes out is the same.
model=models/gemma3_B18/model.onnx
expect 0 '^acme-scale: [1-9]' opt $model --no-page --plugin "$acme" --stats -o "$out/scaled.onnx"
PAGEFUSE_PLUGINS=$acme expect 0 '^acme-scale: [1-9]' opt $model --stats -o "$out/paged.onnx"
expect 0 'rewrites: [0-9]* equal, 0 differ' verify $model --plugin "$acme"
cat >"$out/scale.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 24]>
g (float[R, 4] x) => (float[R, 4] y) <float[4] b = {1, 2, 3, 4}> {
  three = Constant <value_float: float = 3.0> ()
  s = Mul (x, three)
  y = Add (s, b)
}
END
x=plugin/example/cases/scale/test_data_set_0/input_0.pb
expect 0 '^node "y" \(acme.Scale\): plain$' run "$out/scale.onnxtxt" --fuse --print-kernels --plugin "$acme" -i $x -o "$out/fused"
expect 0 '' run "$out/scale.onnxtxt" --fuse --kernel Scale=plain --plugin "$acme" -i $x
expect 1 'op "Scale" has no kernel "fast"; it has plain$' run "$out/scale.onnxtxt" --fuse --kernel Scale=fast --plugin "$acme" -i $x
expect 0 '' run "$out/scale.onnxtxt" -i $x -o "$out/plain"
cmp "$out/fused/output_0.pb" "$out/plain/output_0.pb" || fail 'the fused graph gives other numbers'

# Its own tests.
expect 0 '^1 passed, 0 failed' check plugin/example/cases --plugin "$acme"
expect 0 '^2 passed, 0 failed$' expect plugin/example/expect --plugin "$acme"

# A file with bodies needs no plug-in, and is what it was where there is one.
expect 0 '^bodies: Scale 2 \(5 nodes\); opset 21, IR 10$' opt plugin/example/cases/scale/model.onnx --plugin "$acme" -o "$out/bodies.onnx"
expect 0 '' run "$out/bodies.onnx" -i $x -i plugin/example/cases/scale/test_data_set_0/input_1.pb -o "$out/by_bodies"
for i in 0 1; do
  cmp "$out/by_bodies/output_$i.pb" plugin/example/cases/scale/test_data_set_0/output_$i.pb || fail "output $i by bodies"
done
expect 0 '^node "z" \(acme.Scale\): plain$' run "$out/bodies.onnx" --print-kernels --plugin "$acme" -i $x \
  -i plugin/example/cases/scale/test_data_set_0/input_1.pb
expect 0 '^same$' diff "$out/bodies.onnx" plugin/example/cases/scale/model.onnx --plugin "$acme"

# Text alone, beside an expectation that names it.
mkdir "$out/shop"
cat >"$out/shop/shop.txt" <<'END'
# op: shop.Twice
Twice (x) => (y) { y = Add (x, x) }
# rule: shop-twice
(x) => (y) { two = Constant <value_float: float = 2.0> ()  y = Mul (x, two) }
# ---- after
(x) => (y) { y = shop.Twice (x) }
END
cat >"$out/shop/twice.onnxtxt" <<'END'
# Products with two.
# plugin: shop.txt
# expect: shop.Twice x1
# numbers: y within 1e-6
<ir_version: 10, opset_import: ["" : 24]>
g (float[N, 4] x) => (float[N, 4] y) {
  two = Constant <value_float: float = 2.0> ()
  y = Mul (x, two)
}
END
expect 0 '^1 passed, 0 failed$' expect "$out/shop"
expect 0 '^shop, text$' plugin "$out/shop/shop.txt"
sed -i 's/Add (x, x)/Addd (x, x)/' "$out/shop/shop.txt"
expect 1 'shop.txt:2:20: node "y" .Addd.: no op "Addd" in domain "" at version 28$' expect "$out/shop"
# A rule that is wrong is found, and its test names the plug-in.
cat >"$out/bad.txt" <<'END'
# rule: bad-tanh
# before: rms-norm
(x) => (y) { y = Tanh (x) }
# ---- after
(x) => (y) { s = Sin (x)  c = Constant <value_float: float = 0.99> ()  y = Mul (s, c) }
END
expect 1 '^first bad rewrite .*, rule bad-tanh ' bisect $model --no-page --plugin "$out/bad.txt" -o "$out/found"
grep -qx '# plugin: ../bad.txt' "$out/found/bad-tanh.onnxtxt" || fail 'the test that bisect wrote names no plug-in'
expect 1 'a pass changed the graph' expect "$out/found/bad-tanh.onnxtxt"
expect 1 "an op is declared where rules alone are read" opt "$out/scale.onnxtxt" --rules "$out/shop/shop.txt"

# Bodies of an old opset, without types, with two outputs and in each other.
expect 0 '^1 passed, 0 failed$' expect tests/plugin/texts
norm="--plugin tests/plugin/texts/norm.txt"
expect 0 '^bodies: Doubled 1, Norm 2 ' opt tests/plugin/texts/norm.onnxtxt --no-page $norm -o "$out/norm.onnx"
expect 0 '' run "$out/norm.onnx" -i $x
IFS=: read -ra libraries <<< "${PAGEFUSE_ORT_LIBS:-}"
for library in "${libraries[@]}"; do
  [ -n "$library" ] || continue
  expect 0 '^6 steps, 24 outputs equal' ort "$out/norm.onnx" --ort "$library" --no-library $norm
done
