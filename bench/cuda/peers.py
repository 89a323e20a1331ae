# SPDX-License-Identifier: Apache-2.0
"""Times torch.topk at the sizes of cuda_bench's rows of IndexerTopK, in its way.

    python3 bench/cuda/peers.py [--json FILE] [--beside JSON_OF_CUDA_BENCH]

Sets of logits that are together larger than the cache take turns as nodes of a CUDA graph, 40 times; the
median counts, and of a sorted and an unsorted choice the faster one. With --beside: how many times as long
as the row of the same name in that run torch takes. Exit status 77 where there is no torch or no GPU.
"""

import argparse
import json
import sys

RUNS, WARM_UPS = 40, 4
GRAPH_MICROS = 1500
TOPK = 2048
SIZES = ((64, 32768), (1, 32768), (64, 131072))


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def open_torch():
    try:
        import torch
    except ImportError as error:
        skip(f"no torch: {error}")
    if not torch.cuda.is_available():
        skip("torch sees no GPU")
    return torch


def micros_of(torch, call):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def sets_for(torch, size):
    """As many sets of `size` bytes as are three times the cache."""
    cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 50 << 20)
    return min(max(3 * cache // size + 1, 2), 64)


def time_calls(torch, calls):
    """Microseconds of a call, and what nine tenths of the runs are within, as a share of it."""

    def round_of_all():
        for call in calls:
            call()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        round_of_all()
        round_of_all()
        side.synchronize()
        once = micros_of(torch, round_of_all)
        rounds = min(max(int(GRAPH_MICROS / max(once, 1)), 1), 4096 // len(calls) + 1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        for _ in range(rounds):
            round_of_all()
    times = [micros_of(torch, graph.replay) for _ in range(WARM_UPS + RUNS)][WARM_UPS:]
    times.sort()
    median, tail = times[RUNS // 2], RUNS // 20
    return median / (rounds * len(calls)), (times[RUNS - 1 - tail] - times[tail]) / median


def time_topk(torch, rows, keys, is_sorted):
    sets = []
    for seed in range(sets_for(torch, 4 * rows * (keys + TOPK))):
        random = torch.Generator(device="cuda").manual_seed(seed)
        logits = torch.empty(rows, keys, device="cuda").uniform_(-1, 1, generator=random)
        values = torch.empty(rows, TOPK, device="cuda")
        indices = torch.empty(rows, TOPK, device="cuda", dtype=torch.int64)
        sets.append((logits, (values, indices)))

    def call_of(logits, out):
        return lambda: torch.topk(logits, TOPK, dim=1, sorted=is_sorted, out=out)

    return time_calls(torch, [call_of(*one) for one in sets])


def measure(torch, rows, keys):
    (us, spread), way = min(
        (time_topk(torch, rows, keys, is_sorted), "sorted" if is_sorted else "unsorted")
        for is_sorted in (False, True)
    )
    name = f"IndexerTopK M{rows} N{keys} K{TOPK}"
    return {"row": name, "peer": f"torch.topk {way}", "us": us, "spread": spread}


def beside(path):
    """Microseconds of rows of a run of cuda_bench, by name."""
    if path is None:
        return {}
    with open(path, encoding="utf-8") as file:
        return {row["row"]: row["us"] for row in json.load(file)["rows"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the times to FILE")
    parser.add_argument("--beside", metavar="FILE", help="what cuda_bench --json wrote")
    arguments = parser.parse_args()
    ours = beside(arguments.beside)
    torch = open_torch()
    gpu = torch.cuda.get_device_name(0)
    print(f"{gpu}, torch {torch.__version__}\n")
    print("| row | peer | time | beside cuda_bench | spread |\n|---|---|---|---|---|")
    results = []
    for rows, keys in SIZES:
        result = measure(torch, rows, keys)
        if result["row"] in ours:
            result["ratio"] = result["us"] / ours[result["row"]]
        results.append(result)
        ratio = f"{result['ratio']:.2f} x" if "ratio" in result else "-"
        print(
            f"| {result['row']} | {result['peer']} | {result['us']:.1f} us | {ratio} "
            f"| {100 * result['spread']:.1f} % |",
            flush=True,
        )
    if arguments.json is not None:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"gpu": gpu, "torch": torch.__version__, "rows": results}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
