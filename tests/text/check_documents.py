#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_documents.py SCHEMA_DOCUMENTS SCHEMAS.json COUNT: documents that the program SCHEMA_DOCUMENTS draws for each schema are
valid as the package jsonschema judges. Exit 77, skipped, without that package."""
import collections
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "serve"))
try:
    from json_formats import judge
except ImportError:
    sys.exit(77)


def main(program, schemas, count):
    with open(schemas, encoding="utf-8") as file:
        entries = json.load(file)
    lines = subprocess.run([program, schemas, count], check=True, stdout=subprocess.PIPE).stdout.decode().splitlines()
    judges = [judge(entry["schema"]) for entry in entries]
    texts = collections.defaultdict(set)
    wrong = 0
    for line in lines:
        document = json.loads(line)
        index, text = document["schema"], document["text"]
        texts[index].add(text)
        errors = list(judges[index].iter_errors(json.loads(text)))
        for error in errors:
            print(f"{entries[index]['name']}: {text}: {error.message}", file=sys.stderr)
        wrong += bool(errors)
    distinct = sum(len(of_schema) for of_schema in texts.values())
    print(f"{len(lines)} documents of {len(texts)} schemas, {distinct} distinct, {wrong} wrong")
    if wrong or len(lines) != int(count) * len(entries) or distinct < len(lines) / 3:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
