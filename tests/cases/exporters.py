#!/usr/bin/env python3
"""Writes docs/exporters.md: which exports of other tools page, over which caches, and why others do not.

usage: exporters.py PAGEFUSE FOLDER >docs/exporters.md

FOLDER holds a folder for each export with model.onnx, greedy.json (prompt, prompt2; greedy, greedy2: tokens of the framework that
it was exported from) and meta.json (architecture, exporter, cache, attention, opset, weights, after).
Exit status: 1 if an export gives other tokens.
"""
import collections
import concurrent.futures
import json
import os
import subprocess
import sys

CACHES = ["bf16", "fp8_per_tensor", "fp8_per_token_head", "int8_per_token_head", "int4_per_token_head", "turboquant_k8v4",
          "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc", "fp8"]
EXPORTERS = {"torch.onnx.export(dynamo=True)": "PyTorch, dynamo", "torch.onnx.export(dynamo=False)": "PyTorch, TorchScript"}
# Rounding to 16 bits, and to int8 by the runtime that made the tokens, may turn a choice of two that lie so close.
NEAR = {"f32": 2e-3, "f16": 4e-3, "bf16": 5e-2}


def read(folder, name):
    with open(os.path.join(folder, name), encoding="utf8") as file:
        return json.load(file)


def generate(pagefuse, folder, prompt, count, options=()):
    command = [pagefuse, "generate", os.path.join(folder, "model.onnx"), "--ignore-end", "--json", "--max-new-tokens", str(count),
               "--prompt-ids", ",".join(map(str, prompt))] + list(options)
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, errors="replace")
    if process.returncode != 0:
        told = [line for line in process.stderr.strip().splitlines() if not line.startswith("hint: ")]
        return None, told[-1]
    made = json.loads(process.stdout)
    made = {**made["figures"], **made["results"][0]}
    # Of a graph that pages up to some length.
    for line in process.stderr.splitlines():
        if " runs as the graph was exported: " in line:
            made.update(paged=False, why_not_paged=line.split(": ", 2)[2])
    return made, ""


def same_tokens(got, wanted, gaps, near):
    first = next((i for i, token in enumerate(wanted) if i >= len(got) or got[i] != token), None)
    return first is None or gaps[first] < near


def look_at(pagefuse, folder):
    meta, greedy = read(folder, "meta.json"), read(folder, "greedy.json")
    near = 0 if meta["reference"].startswith("torch, float32") else NEAR.get(meta["weights"], 2e-3)
    row = {"architecture": meta["architecture"], "meta": meta, "paged": True, "equal": True, "why": "", "caches": []}
    for prompt, tokens, gaps in (("prompt", "greedy", "top2_gap"), ("prompt2", "greedy2", "top2_gap2")):
        made, error = generate(pagefuse, folder, greedy[prompt], len(greedy[tokens]))
        if made is None:
            row.update(paged=False, equal=False, why=error)
            return row
        row["equal"] = row["equal"] and same_tokens(made["tokens"], greedy[tokens], greedy[gaps], near)
        if not made["paged"]:
            row.update(paged=False, why=made["why_not_paged"])
    if row["paged"]:
        row["caches"] = [cache for cache in CACHES
                         if generate(pagefuse, folder, greedy["prompt"], 1,
                                     ["--require-paged", "--check-paging", "never", "--kv-cache", cache])[0]]
    return row


def how(meta):
    parts = [EXPORTERS.get(meta["exporter"], meta["exporter"]), "opset %d" % meta["opset"], meta["attention"]]
    parts += ["with a past"] if meta["cache"] != "none" else []
    parts += [meta["weights"]] if meta["weights"] != "f32" else []
    parts += [meta["after"]] if meta["after"] else []
    return ", ".join(parts)


def matrix(rows):
    columns = sorted({(EXPORTERS.get(r["meta"]["exporter"], "other"), r["meta"]["cache"] != "none") for r in rows})
    titles = ["%s%s" % (exporter, ", past" if past else "") for exporter, past in columns]
    print("| architecture | " + " | ".join(titles) + " |\n|---" * 1 + "|---" * len(titles) + "|")
    cells = collections.defaultdict(list)
    for row in rows:
        column = (EXPORTERS.get(row["meta"]["exporter"], "other"), row["meta"]["cache"] != "none")
        cells[row["architecture"], column].append("paged" if row["paged"] else "as exported" if row["equal"] else "refused")
    for architecture in sorted({row["architecture"] for row in rows}):
        print("| %s | %s |" % (architecture, " | ".join(", ".join(cells[architecture, c]) for c in columns)))


def caches(rows):
    sets = collections.defaultdict(list)
    for row in rows:
        if row["paged"]:
            sets[tuple(row["caches"])].append(row["architecture"])
    print("| caches | exports |\n|---|---|")
    for names, who in sorted(sets.items(), key=lambda item: -len(item[1])):
        text = "all that are for heads of keys and values" if list(names) == CACHES[:-1] else ", ".join(names) or "none but that of the export"
        print("| %s | %s |" % (text, "%d" % len(who) if len(who) > 12 else ", ".join(sorted(set(who)))))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    pagefuse, top = os.path.abspath(sys.argv[1]), sys.argv[2]
    folders = sorted(os.path.join(top, name) for name in os.listdir(top) if os.path.exists(os.path.join(top, name, "meta.json")))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = list(pool.map(lambda folder: look_at(pagefuse, folder), folders))
    paged, equal = sum(row["paged"] for row in rows), sum(row["equal"] for row in rows)
    print("# Exports of other tools\n")
    print("Written by `tests/cases/exporters.py` from %d small exports with random weights that the usual tools made of %d architectures."
          % (len(rows), len({row["architecture"] for row in rows})))
    print("%d page, and %d give the tokens of the framework that they were exported from, those that do not page as they were exported."
          % (paged, equal))
    print("What pages of each kind, the pass cases of `tests/passes/insert_paged_cache` show in small; the exports are 10 MB and not part of the repository.\n")
    matrix(rows)
    print("\n## Over which caches\n\nWhat `--kv-cache` takes for those that page ([kv_cache.md](kv_cache.md)); "
          "`fp8` is for latent rows.\n")
    caches(rows)
    print("\n## What does not page\n\n| architecture | how it was exported | why |\n|---|---|---|")
    for row in rows:
        if not row["paged"]:
            print("| %s | %s | %s |" % (row["architecture"], how(row["meta"]), row["why"].replace("|", "\\|")[:400]))
    sys.exit(0 if equal == len(rows) else 1)


if __name__ == "__main__":
    main()
