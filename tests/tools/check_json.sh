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

# What is known of earlier prompts stands in the usage of a prompt, and not in its completion, which is that of the prompt alone.
base = "The red box holds 12 pins. The tin cup holds 45 keys.\nWhat does the "
prompts = [base + "red box hold? ", base + "tin cup hold? "]
answers = ["generate", model, "--json", "--max-new-tokens", "12", "--n", "2"]
both = checked(run(*answers, *[part for prompt in prompts for part in ("--prompt", prompt)]))
for place, prompt in enumerate(prompts):
    alone = checked(run(*answers, "--prompt", prompt))
    assert alone["completions"] == both["completions"][2 * place : 2 * place + 2], "a prompt has another completion beside others"
    (own,), usage = alone["usage"], both["usage"][place]
    cached = 64 if place else 0  # whole blocks of what both begin with
    assert own["prompt_tokens_details"] == {"cached_tokens": 0} and usage["prompt_tokens_details"] == {"cached_tokens": cached}, usage
    assert own["prompt_tokens"] == usage["prompt_tokens"] == len(prompt) + 1
    assert usage["completion_tokens"] == own["completion_tokens"] == sum(len(one["tokens"]) for one in alone["completions"])
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
assert len(both["usage"]) == 2 and both["shared_tokens"] == 64

# The schema refuses what is not of it.
for broken in ({**one, "more": 1}, {**one, "command": "chat"}, {**one, "completions": [{"tokens": [-1], "prompt_tokens": 1, "finish": "stop"}]}):
    assert not validator.is_valid(broken), broken
END
