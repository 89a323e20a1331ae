#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_run.sh PAGEFUSE: inputs of `run` from files of ONNX and NumPy, from the command line and made up; outputs as both. Run in the
# top folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
cat >"$out/sum.onnxtxt" <<'END'
<ir_version: 8, opset_import: ["" : 17]>
sum (float[N, 3] x, float[N, 3] y, int64 k) => (float[N, 3] z, int64[1] n) {
  z = Add (x, y)
  axes = Constant <value = int64[1] {0}> ()
  n = Unsqueeze (k, axes)
}
END
model=$out/sum.onnxtxt

# Lists, a number that fills an input, and what the outputs are.
expect 0 '^z: float\[2, 3\] min 1.5 max 6.5 mean 4$' run "$model" -i 'x=[[1,2,3],[4,5,6]]' -i y=0.5 -i k=7 -o "$out/all.npz"
expect 0 '^n: int64\[1\] min 7 max 7 mean 7$' run "$model" -i 'x=[[1,2,3],[4,5,6]]' -i y=0.5 -i k=7
# What was written is what is read.
printf 'import zipfile, sys\nfor one in zipfile.ZipFile(sys.argv[1]).infolist():\n print(one.filename, one.file_size)\n' >"$out/list.py"
[ "$(python3 "$out/list.py" "$out/all.npz")" = $'z.npy 152\nn.npy 136' ] || fail "the file holds $(python3 "$out/list.py" "$out/all.npz")"
expect 1 'the model has no input "z"' run "$model" -i "$out/all.npz"
printf '<ir_version: 8, opset_import: ["" : 17]>\ninverse (float[N] x) => (float[N] z) { z = Reciprocal (x) }' >"$out/inverse.onnxtxt"
expect 0 '^z: float\[3\] min 0.5 max 0.5 mean 0.5, 2 not finite$' run "$out/inverse.onnxtxt" -i 'x=[2,0,0]'
cat >"$out/one.onnxtxt" <<'END'
<ir_version: 8, opset_import: ["" : 17]>
one (float[N, 3] x) => (float[N, 3] z) { z = Neg (x) }
END
expect 1 'expected one array, got 2' run "$out/one.onnxtxt" -i "x=$out/all.npz"
expect 0 '^z: float\[2, 3\] min -6 max -1 mean -3.5$' run "$out/one.onnxtxt" -i 'x=[[1,2,3],[4,5,6]]' -o "$out/z.npy"
expect 0 '^z: float\[2, 3\] min 1 max 6 mean 3.5$' run "$out/one.onnxtxt" -i "$out/z.npy" -o "$out/folder"
expect 0 '^z: float\[2, 3\] min -6 max -1 mean -3.5$' run "$out/one.onnxtxt" -i "x=$out/folder/output_0.pb"

# A file of NumPy 2's savez_compressed, as its format says: an array in Fortran's order.
python3 - "$out/fortran.npz" <<'END'
import struct, sys, zipfile
header = b"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }"
header += b" " * (-(len(header) + 11) % 64) + b"\n"
array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack("<6f", 1, 4, 2, 5, 3, 6)
with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED) as file:
    with file.open("x.npy", "w", force_zip64=True) as entry:
        entry.write(array)
END
expect 0 '^z: float\[2, 3\] min 1 max 6 mean 3.5$' run "$model" -i "$out/fortran.npz" -i y=0 -i k=1 -o "$out/rows.npz"
expect 0 '' run "$model" -i 'x=[[1,2,3],[4,5,6]]' -i y=0 -i k=1 -o "$out/expected.npz"
python3 - "$out/rows.npz" "$out/expected.npz" <<'END' || fail 'the order of Fortran is read wrongly'
import sys, zipfile
rows, expected = (zipfile.ZipFile(path).read("z.npy") for path in sys.argv[1:])
assert rows == expected
END

# Made up: the same for a seed, of the sizes of what is given.
expect 0 '^z: float\[5, 3\] min ' run "$model" --random 3 -i 'x=[[1,2,3],[1,2,3],[1,2,3],[1,2,3],[1,2,3]]' -o "$out/a.npz"
expect 0 '' run "$model" --random 3 -i 'x=[[1,2,3],[1,2,3],[1,2,3],[1,2,3],[1,2,3]]' -o "$out/b.npz"
cmp "$out/a.npz" "$out/b.npz" || fail 'a seed gives other numbers'
expect 0 '' run "$model" --random 4 -i 'x=[[1,2,3],[1,2,3],[1,2,3],[1,2,3],[1,2,3]]' -o "$out/b.npz"
! cmp -s "$out/a.npz" "$out/b.npz" || fail 'another seed gives the same numbers'
expect 0 '^logits: float\[[0-9]+, [0-9]+, 256\] min -[0-9.]+ max ' run models/gemma3_A18/model.onnx --random 1

# Refused.
expect 1 'input "x" float\[N, 3\] is not given: use -i x=..., or --random SEED to make it up' run "$model"
expect 1 'input "k" int64.*: expected numbers of type int64, got 1.5' run "$model" -i k=1.5
expect 1 'input "x" .*: expected numbers of type float, got 1e\+300' run "$model" -i 'x=[[1,2,1e300]]'
expect 1 'input "x" .*: expected numbers in lists of equal lengths, got \[\[1,2\],\[3\]\]' run "$model" -i 'x=[[1,2],[3]]'
expect 1 'input "y" float\[N, 3\]: expected a list, as nothing tells how many times 1' run "$model" -i y=1
expect 1 'the model has no input "input_idz"; similar names: "input_ids"' run models/gemma3_A18/model.onnx -i input_idz=1
expect 1 'input "k" is given twice' run "$model" -i k=1 -i k=2
expect 1 'expected one output, got 2: use a .npz file' run "$model" --random 1 -o "$out/z.npy"
expect 1 '-i: expected \[NAME=\]FILE or NAME=VALUE, got "x="' run "$model" -i x=
head -c 140 "$out/z.npy" >"$out/cut.npy"
expect 1 'cut.npy": expected 24 bytes of elements, got 12' run "$out/one.onnxtxt" -i "$out/cut.npy"
head -c 200 "$out/a.npz" >"$out/cut.npz"
expect 1 'cut.npz": expected arrays of NumPy in a zip file' run "$model" -i "$out/cut.npz"
printf '<ir_version: 8, opset_import: ["" : 17]>\ncast (float[N] x) => (bfloat16[N] z) { z = Cast <to = 16> (x) }' >"$out/cast.onnxtxt"
expect 1 '"z" is bfloat16, which NumPy.s files do not hold: expected a folder' run "$out/cast.onnxtxt" -i 'x=[1]' -o "$out/cast.npy"
[ ! -e "$out/cast.npy" ] || fail 'a file was left'
