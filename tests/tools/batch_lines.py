# SPDX-License-Identifier: Apache-2.0
"""Looks at the files of check_batch.sh.

batch_lines.py make COUNT TOKENS: requests r0, r1, ... for the output, completions and chats in turn.
batch_lines.py same OUT OUT...: exit status 1 unless the first file has the answers of all others together, each once.
batch_lines.py whole OUT: exit status 1 unless each line is JSON and no custom_id is there twice; half a line at the end may be.
batch_lines.py serve URL IN OUT: exit status 1 unless a server at URL answers each request as the line in OUT does.
"""
import json
import sys
import urllib.request


def make(count, tokens):
    for i in range(count):
        question = f"The tin cup holds {i} keys. What does the tin cup hold?"
        body = {"max_tokens": tokens, "ignore_eos": True}
        url = "/v1/completions" if i % 2 else "/v1/chat/completions"
        body |= {"prompt": question + "\n"} if i % 2 else {"messages": [{"role": "user", "content": question}]}
        print(json.dumps({"custom_id": f"r{i}", "method": "POST", "url": url, "body": body}))


def lines(path, may_end_early=False):
    text = open(path, encoding="utf-8", errors="replace").read()
    whole = text.split("\n")
    if whole.pop() and not may_end_early:
        sys.exit(f"{path} ends in half a line")
    return [json.loads(line) for line in whole]


def said(body):
    """What of an answer is the same each time: names, times and what was known of a prompt are not."""
    if "choices" not in body:
        return body
    return [body["choices"], body["model"], body["system_fingerprint"], body["usage"]["completion_tokens"]]


def key(line):
    response, error = line["response"], line["error"]
    answer = response and [response["status_code"], said(response["body"])]
    return json.dumps([line["custom_id"], answer, error])


def unique(found):
    assert len(set(line["id"] for line in found)) == len(found), "an id is there twice"
    ids = [line["custom_id"] for line in found if line["response"]]
    assert len(set(ids)) == len(ids), "a custom_id is there twice"


def same(first, *others):
    unique(lines(first))
    expected = sorted(key(line) for line in lines(first))
    found = sorted(key(line) for path in others for line in lines(path))
    assert len(expected) > 0
    for one, other in zip(expected, found):
        assert one == other, f"expected {one}, got {other}"
    assert len(expected) == len(found), f"expected {len(expected)} lines, got {len(found)}"


def serve(url, requests, answers):
    by_id = {line["custom_id"]: line["response"] for line in lines(answers)}
    for request in lines(requests):
        call = urllib.request.Request(url + request["url"], json.dumps(request["body"]).encode(),
                                      {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(call) as reply:
                status, body = reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            status, body = error.code, json.load(error)
        answer = by_id[request["custom_id"]]
        expected = [answer["status_code"], said(answer["body"])]
        assert [status, said(body)] == expected, f"expected {expected}, got {[status, body]}"


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "make":
        make(*map(int, arguments))
    elif command == "whole":
        unique(lines(*arguments, may_end_early=True))
    else:
        {"same": same, "serve": serve}[command](*arguments)
