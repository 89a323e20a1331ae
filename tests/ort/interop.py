#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether files that `pagefuse opt -o` writes load in stock ONNX Runtime and give their logits there.

usage: interop.py PAGEFUSE LIBONNXRUNTIME FOLDER... [--caches] [--json FILE]

Every model.onnx below the folders is written with default options and without pages, and with --caches in every format of its
cache too. Each file then runs by function bodies alone, without a library of ours, on the steps of `pagefuse ort`; logits and
caches are compared with what they are here, within the rounding of their types.

 ok          all outputs are equal
 export      the export as it came does not run there, or gives other outputs: types without kernels (bfloat16), activations that
             are rounded to int8
 NO          anything else

Exit status: 1 if there is a NO.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile

CACHES = ["bf16", "fp8_per_tensor", "fp8_per_token_head", "int8_per_token_head", "int4_per_token_head", "turboquant_k8v4",
          "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc", "fp8"]


def models_below(folders):
    for top in folders:
        for folder, _, files in sorted(os.walk(top)):
            if "model.onnx" in files:
                yield os.path.relpath(folder, top) if folder != top else os.path.basename(folder), os.path.join(folder, "model.onnx")


def run(command):
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, errors="replace")
    lines = [line for line in process.stderr.splitlines() if line.startswith("pagefuse: ")] or [""]
    return process.returncode, process.stdout, lines[-1][len("pagefuse: "):]


def runs_equal(pagefuse, library, model):
    status, _, error = run([pagefuse, "ort", model, "--ort", library, "--no-library", "--json"])
    return status == 0, error


def try_mode(pagefuse, library, model, options, place):
    written = os.path.join(place, "written.onnx")
    status, _, error = run([pagefuse, "opt", model, "-o", written] + options)
    if status != 0:
        return None, error
    return runs_equal(pagefuse, library, written)


def try_model(arguments, name, model):
    pagefuse, library = arguments.pagefuse, arguments.library
    export = None
    rows = []
    modes = [("default", []), ("plain", ["--no-page"])]
    if arguments.caches:
        modes += [(cache, ["--kv-cache", cache]) for cache in CACHES]
    for mode, options in modes:
        with tempfile.TemporaryDirectory() as place:
            equal, error = try_mode(pagefuse, library, model, options, place)
        if equal is None:
            # A cache that the model cannot have; a model whose weights are not there.
            if mode not in CACHES and "its file is not there" not in error:
                rows.append((name, mode, "NO", "not written: " + error))
        elif equal:
            rows.append((name, mode, "ok", ""))
        elif "its file is not there" not in error:
            export = export or runs_equal(pagefuse, library, model)
            rows.append((name, mode, "NO" if export[0] else "export", error))
    return rows


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("pagefuse", type=os.path.abspath)
    parser.add_argument("library", type=os.path.abspath)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--caches", action="store_true")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    rows = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        tries = [pool.submit(try_model, arguments, name, model) for name, model in models_below(arguments.folders)]
        for made in tries:
            for row in made.result():
                rows.append(row)
                if row[2] != "ok":
                    print("%-50s %-20s %-9s %s" % row, flush=True)
    if not rows:
        sys.exit("interop.py: no model.onnx below " + ", ".join(arguments.folders))
    counts = collections.Counter(row[2] for row in rows)
    models = len({row[0] for row in rows})
    print("%d files of %d models: %s" % (len(rows), models, ", ".join("%d %s" % (n, k) for k, n in counts.most_common())))
    if arguments.json:
        with open(arguments.json, "w", encoding="utf8") as file:
            json.dump([dict(zip(("model", "mode", "result", "reason"), row)) for row in rows], file, indent=1)
    sys.exit(1 if counts["NO"] else 0)


if __name__ == "__main__":
    main()
