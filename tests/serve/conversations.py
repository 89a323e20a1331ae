# SPDX-License-Identifier: Apache-2.0
"""Conversations with servers behind a proxy, for nginx.sh. Each prints what of the prompts was known, and where it was answered.

conversations.py URL [--name NAME] [--drain PID]: 20 conversations of 5 turns each, several at a time; NAME is part of what they say and
of their keys. --drain: in the third turn, when some have it, some are at it and some have not begun, the process gets SIGTERM. Exit
status 1 if a request fails or an answer is no text.
"""
import argparse
import concurrent.futures
import json
import os
import signal
import sys
import urllib.request

CONVERSATIONS, TURNS, AT_A_TIME = 20, 5, 8


def ask(url, key, messages, stream):
    body = {"messages": messages, "max_tokens": 8, "temperature": 0, "stream": stream}
    if stream:
        body["stream_options"] = {"include_usage": True}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json", "X-Prefix-Key": key})
    with urllib.request.urlopen(request, timeout=60) as reply:
        server = reply.headers.get("X-Served-By", "").split(", ")[-1]
        if not stream:
            found = json.load(reply)
            return found["choices"][0]["message"]["content"], found["usage"], server
        events = [line[len("data: "):] for line in reply.read().decode().split("\n") if line.startswith("data: ")]
    assert events[-1] == "[DONE]", f"a stream ends with {events[-1]}"
    chunks = [json.loads(event) for event in events[:-1]]
    assert not any("error" in chunk for chunk in chunks), f"a stream has an error: {events}"
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    return text, chunks[-1]["usage"], server


class Conversation:
    def __init__(self, url, name, number):
        self.url, self.key, self.number = url, f"{name}-{number}", number
        # What is said first is long enough for pages of its own.
        things = " ".join(f"The {name} box {number} of {i} holds {number + i} pins." for i in range(5))
        self.messages = [{"role": "system", "content": things}]
        self.servers, self.cached, self.prompt = [], 0, 0

    def turn(self, turn):
        self.messages.append({"role": "user", "content": f"What does box {self.number} of {turn} hold?"})
        text, usage, server = ask(self.url, self.key, self.messages, stream=turn % 2 == 1)
        assert text, "an answer is empty"
        self.messages.append({"role": "assistant", "content": text})
        self.servers.append(server)
        self.cached += usage["prompt_tokens_details"]["cached_tokens"]
        self.prompt += usage["prompt_tokens"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--name", default="red")
    parser.add_argument("--drain", type=int)
    options = parser.parse_args()
    all_of_them = [Conversation(options.url, options.name, number) for number in range(CONVERSATIONS)]
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        for turn in range(TURNS):
            turns = [pool.submit(one.turn, turn) for one in all_of_them]
            if options.drain and turn == 2:
                concurrent.futures.wait(turns[:4])
                os.kill(options.drain, signal.SIGTERM)
            for one in turns:
                one.result()
    servers = sorted({server for one in all_of_them for server in one.servers})
    print(json.dumps({
        "conversations": len(all_of_them),
        "requests": sum(len(one.servers) for one in all_of_them),
        "servers": servers,
        "by_server": {server: sum(one.servers.count(server) for one in all_of_them) for server in servers},
        "moved": sum(len(set(one.servers)) > 1 for one in all_of_them),
        "cached_tokens": sum(one.cached for one in all_of_them),
        "prompt_tokens": sum(one.prompt for one in all_of_them),
    }))


if __name__ == "__main__":
    try:
        main()
    except (OSError, AssertionError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
