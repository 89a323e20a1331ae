#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_json.sh PAGEFUSE DATA: what commands write with --json is of docs/results.schema.json, and lines of a stream, joined, are what
# comes without it. DATA is where test data is unpacked. Run in the top folder. Exit status 77 without jsonschema.
set -euo pipefail
python3 -c 'import jsonschema' 2>/dev/null || exit 77
exec python3 - "$@" <<'END'
import json, subprocess, sys
import jsonschema

pagefuse, data = sys.argv[1:]
model = "models/gemma3_recall"
with open("docs/results.schema.json", encoding="utf8") as file:
    schema = json.load(file)
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)


def run(*arguments):
    return subprocess.run([pagefuse, *arguments], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout


def checked(text):
    result = json.loads(text)
    validator.validate(result)
    return result


def without_times(result):
    return {k: v for k, v in result.items() if not k.endswith(("_per_second", "_bytes")) and "seconds" not in k}


ask = ["generate", model, "--json", "--max-new-tokens", "12", "--ignore-end", "--logprobs", "2", "--temperature", "6", "--seed", "7",
       "--n", "2", "--prompt", "What does the tin cup hold?", "--prompt", "The red box"]
whole = checked(run(*ask))
assert len(whole["completions"]) == 4
*lines, last = map(json.loads, run(*ask, "--stream").splitlines())
validator.validate(last)
assert without_times(last) == without_times(whole), "a stream ends with another result"
for number, result in enumerate(whole["completions"]):
    own = [line for line in lines if line["completion"] == number]
    assert [line["token"] for line in own if "token" in line] == result["tokens"]
    assert "".join(line.get("text", "") for line in own) == result["text"]
    assert [line["logprobs"] for line in own if "logprobs" in line] == result["logprobs"]

one = checked(run("generate", "models/gemma3_A18/model.onnx", "--prompt-ids", "1,2", "--max-new-tokens", "2", "--json"))
assert one["models"] == ["models/gemma3_A18/model.onnx"] and len(one["completions"]) == 1
assert one["completions"][0].items() <= one.items() and "tokens" not in whole, "a single answer stands beside the list, several do not"
checked(run("bench", model, "-p", "8", "-n", "4", "-r", "2", "--json"))
assert checked(run("check", f"{data}/models/gemma3_A18", "--json"))["passed"] == 1
assert checked(run("inspect", model, "--json"))["runnable"] == "yes"

# The schema refuses what is not of it.
for broken in ({**one, "more": 1}, {**one, "command": "chat"}, {**one, "completions": [{"tokens": [-1], "prompt_tokens": 1, "finish": "stop"}]}):
    assert not validator.is_valid(broken), broken
END
