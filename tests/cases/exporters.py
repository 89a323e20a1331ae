#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/exporters.md: which exports of other tools page, what fuses, over which caches, and why others do not.

usage: exporters.py PAGEFUSE FOLDER... >docs/exporters.md
       exporters.py --check PAGEFUSE FOLDER...     whether the exports do what docs/exporters.md says of their families, and
                                                   whether the table of README.md is the one of that page

A FOLDER holds a folder for each export with model.onnx, greedy.json (prompt, prompt2; greedy, greedy2: tokens of the framework that
it was exported from) and meta.json (architecture, exporter, cache, attention, opset, weights, after). Of the bundled exports,
models/, names say what meta.json would.
Exit status: 1 if an export gives other tokens, or with --check if something differs.
"""
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys

CACHES = ["bf16", "fp8_per_tensor", "fp8_per_token_head", "int8_per_token_head", "int4_per_token_head", "turboquant_k8v4",
          "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc", "fp8"]
EXPORTERS = {"torch.onnx.export(dynamo=True)": "PyTorch, dynamo", "torch.onnx.export(dynamo=False)": "PyTorch, TorchScript",
             "onnxruntime_genai.models.builder": "GenAI's builder", "transformers.exporters OnnxExporter": "transformers"}
# The first family one of whose beginnings a name has; the last one has all others.
FAMILIES = [
    ("DeepSeek V2, V3, V3.2, V4", ("deepseek",)),
    ("Gemma 1 to 4", ("gemma", "vaultgemma")),
    ("Llama, Mistral, Phi", ("llama", "mistral", "ministral", "phi3", "smollm", "arcee", "apertus", "seed_oss", "mimo")),
    ("Qwen", ("qwen",)),
    ("gpt-oss, Mixtral and other experts", ("gpt_oss", "mixtral", "olmoe", "phimoe", "dots1", "jetmoe", "minimax", "solar_open", "hy_v3")),
    ("Cohere, EXAONE, Falcon, GLM, Granite, OLMo", ("cohere", "exaone", "falcon", "glm", "granite", "olmo")),
    ("GPT-2, GPT-J, GPT-NeoX, OPT, BLOOM, MPT", ("gpt", "opt", "openai-gpt", "bloom", "mpt", "codegen")),
    ("others", ("",))]
# Rounding to 16 bits, and to int8 by the runtime that made the tokens, may turn a choice of two that lie so close.
NEAR = {"f32": 2e-3, "f16": 4e-3, "bf16": 5e-2}


def read(folder, name):
    with open(os.path.join(folder, name), encoding="utf8") as file:
        return json.load(file)


def meta_of(folder):
    if os.path.exists(os.path.join(folder, "meta.json")):
        return read(folder, "meta.json")
    name = os.path.basename(folder)
    builder = "_D_" in name
    return {"architecture": read(folder, "config.json")["model_type"], "reference": "", "weights": "bf16" if builder else "f32",
            "exporter": "onnxruntime_genai.models.builder" if builder else "torch.onnx.export(dynamo=True)",
            "cache": "none" if "_A" in name else "past in, present out", "opset": 23 if name.endswith("23") else 18,
            "attention": "eager", "after": ""}


def family_of(architecture):
    return next(name for name, starts in FAMILIES if architecture.startswith(starts))


def generate(pagefuse, folder, prompt, count, options=()):
    command = [pagefuse, "generate", os.path.join(folder, "model.onnx"), "--ignore-end", "--json", "--max-new-tokens", str(count),
               "--prompt-ids", ",".join(map(str, prompt))] + list(options)
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, errors="replace")
    if process.returncode != 0:
        told = [line for line in process.stderr.strip().splitlines() if not line.startswith("hint: ")]
        return None, told[-1]
    made = json.loads(process.stdout)
    made = {**made, **made["completions"][0]}
    # Of a graph that pages up to some length.
    for line in process.stderr.splitlines():
        if " runs as the graph was exported: " in line:
            made.update(paged=False, why_not_paged=line.split(": ", 2)[2])
    return made, ""


def same_tokens(got, wanted, gaps, near):
    first = next((i for i, token in enumerate(wanted) if i >= len(got) or got[i] != token), None)
    return first is None or gaps[first] < near


def look_at(pagefuse, folder, with_caches):
    meta, greedy = meta_of(folder), read(folder, "greedy.json")
    near = 0 if meta["reference"].startswith("torch, float32") else NEAR.get(meta["weights"], 2e-3)
    row = {"architecture": meta["architecture"], "meta": meta, "paged": True, "equal": True, "why": "", "caches": [], "fused": set()}
    for prompt, tokens, gaps in (("prompt", "greedy", "top2_gap"), ("prompt2", "greedy2", "top2_gap2")):
        if prompt not in greedy:
            continue
        made, error = generate(pagefuse, folder, greedy[prompt], len(greedy[tokens]))
        if made is None:
            row.update(paged=False, equal=False, why=error)
            return row
        row["equal"] = row["equal"] and same_tokens(made["tokens"], greedy[tokens], greedy[gaps], near)
        row["fused"] |= set(made["fused"])
        if not made["paged"]:
            row.update(paged=False, why=made["why_not_paged"])
    if row["paged"] and with_caches:
        row["caches"] = [cache for cache in CACHES
                         if generate(pagefuse, folder, greedy["prompt"], 1,
                                     ["--require-paged", "--check-paging", "never", "--kv-cache", cache])[0]]
    return row


def how(meta):
    parts = [EXPORTERS[meta["exporter"]], "opset %d" % meta["opset"], meta["attention"]]
    parts += ["with a past"] if meta["cache"] != "none" else []
    parts += [meta["weights"]] if meta["weights"] != "f32" else []
    parts += [meta["after"]] if meta["after"] else []
    return ", ".join(parts)


def caches_of(names):
    if set(CACHES[:-1]) <= set(names):
        return "all"
    return ", ".join(names) or "that of the export"


def by_family(rows):
    """The lines of the table, by the name of the family: exports that page of those that were tried, ops, formats of the cache."""
    exporters = sorted({EXPORTERS[row["meta"]["exporter"]] for row in rows})
    lines = {"": "| family | " + " | ".join(exporters) + " | attention becomes | cache formats |\n|---" + "|---" * (len(exporters) + 2) + "|"}
    for family, _ in FAMILIES:
        of = [row for row in rows if family_of(row["architecture"]) == family]
        cells = []
        for exporter in exporters:
            tried = [row for row in of if EXPORTERS[row["meta"]["exporter"]] == exporter]
            cells.append("%d of %d" % (sum(row["paged"] for row in tried), len(tried)) if tried else "")
        paged = [row for row in of if row["paged"]]
        fused = sorted({op for row in paged for op in row["fused"] if "Attention" in op})
        formats = collections.Counter(caches_of(row["caches"]) for row in paged).most_common()
        if len(formats) > 1 and formats[0][0] == "all":
            text = "all of %d exports, fewer of %d" % (formats[0][1], sum(count for _, count in formats[1:]))
        else:
            text = "; ".join(name for name, _ in formats)
        lines[family] = "| %s | %s | %s | %s |" % (family, " | ".join(cells), ", ".join("`%s`" % op for op in fused), text)
    return lines


def matrix(rows):
    columns = sorted({(EXPORTERS[r["meta"]["exporter"]], r["meta"]["cache"] != "none") for r in rows})
    titles = ["%s%s" % (exporter, ", past" if past else "") for exporter, past in columns]
    print("| architecture | " + " | ".join(titles) + " |\n|---" + "|---" * len(titles) + "|")
    cells = collections.defaultdict(list)
    for row in rows:
        column = (EXPORTERS[row["meta"]["exporter"]], row["meta"]["cache"] != "none")
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


def folders_below(tops):
    return sorted(os.path.join(top, name) for top in tops for name in os.listdir(top)
                  if all(os.path.exists(os.path.join(top, name, file)) for file in ("model.onnx", "greedy.json")))


def look_at_all(pagefuse, tops, with_caches):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda folder: look_at(os.path.abspath(pagefuse), folder, with_caches), folders_below(tops)))


def check(rows):
    """What the page says must not be worse than what the exports that are here do; README.md shows its table."""
    wrong = ["%s gives other tokens: %s" % (row["architecture"], row["why"]) for row in rows if not row["equal"]]
    with open("docs/exporters.md", encoding="utf8") as file:
        page = file.read()
    table = page.split("## By family\n")[1].split("\n\n")[1]
    with open("README.md", encoding="utf8") as file:
        readme = file.read()
    if table.strip() not in readme:
        wrong.append("README.md does not show the table of docs/exporters.md")
    if "[%s architectures]" % re.search(r"made of (\d+) architectures", page).group(1) not in readme:
        wrong.append("README.md tells another number of architectures than docs/exporters.md")
    header, _, *lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.strip().splitlines()]
    told = {line[0]: dict(zip(header, line)) for line in lines}
    for row in rows:
        line = told[family_of(row["architecture"])]
        if row["paged"] == (line[EXPORTERS[row["meta"]["exporter"]]].split(" of ")[0] in ("", "0")):
            wrong.append("%s, %s: paged or not, the page says otherwise" % (row["architecture"], how(row["meta"])))
        for op in row["fused"] if row["paged"] else ():
            if "Attention" in op and op not in line["attention becomes"]:
                wrong.append("%s: the page does not name %s" % (row["architecture"], op))
    print("\n".join(wrong) or "%d exports do what docs/exporters.md says" % len(rows))
    return 1 if wrong else 0


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--check"]
    if len(arguments) < 2:
        sys.exit(__doc__)
    rows = look_at_all(arguments[0], arguments[1:], "--check" not in sys.argv)
    if "--check" in sys.argv:
        sys.exit(check(rows))
    paged, equal = sum(row["paged"] for row in rows), sum(row["equal"] for row in rows)
    print("# Exports of other tools\n")
    print("Written by `tests/cases/exporters.py` from %d small exports with random weights that the usual tools made of %d architectures."
          % (len(rows), len({row["architecture"] for row in rows})))
    print("%d page, and %d give the tokens of the framework that they were exported from, those that do not page as they were exported."
          % (paged, equal))
    print("The bundled exports in `models/` are among them, and a test holds them to the first table. The others are 10 MB and not part of the "
          "repository; what pages of each kind, the pass cases of `tests/passes/insert_paged_cache` show in small.\n")
    print("## By family\n\nExports that page, of those that were tried. \"all\" are all formats of `--kv-cache` for heads of keys and values "
          "([kv_cache.md](kv_cache.md)).\n")
    print("\n".join(by_family(rows).values()))
    print("\n## By architecture\n")
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
