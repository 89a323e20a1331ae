#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the passes make of every graph that the project has, as hashes: one line a graph and variant.

    sameness.py [--build build/release] [-j 2] [--only TEXT] [--exports FOLDER]... [--quick] [--twice] [--names FILE] [--fired FILE] > FILE

A move or a rename changes no graph: run it before and after, and `diff` tells. A line is

    GRAPH TOLD EXIT GROUP/NAME VARIANT

GRAPH hashes what `pagefuse opt` gives: the text of the graph (tensors of up to 64 elements by value), or, for the variants `file` and
`bodies`, the bytes of the ONNX file, weights and function bodies included. TOLD hashes what it says: how often each rule fired, what was
refused and why. EXIT is the status, `late` where it took more than a minute, `gone` where the graph is not there.

--exports FOLDER: the graphs of that folder too, as decoders, each under its folder's name (once a folder). --quick: models and the corpus,
two caches. --twice: runs everything twice and fails where the two differ, since only stable hashes can
show sameness. --names FILE: lines `old new`; whole words `old` are read as `new` before hashing, so that a run before a rename is comparable
with one behind it. --fired FILE: writes `graphs times rule` and the rules of docs/passes.md that fired on none.
Needs a built `pagefuse` and Python's library. Exit status 1: nothing to run, or two runs differ."""
import argparse, collections, concurrent.futures, hashlib, os, re, subprocess, sys, tempfile

CACHES = ['none', 'fp8_per_token_head', 'int8_per_token_head', 'int4_per_token_head', 'turboquant_4bit_nc']
LIMIT = 60
RULE = re.compile(rb'"pkg\.pagefuse\.rule": "[^"]*"')  # which rule made a node is told, not part of the graph

# A group: where its graphs lie (in the checkout, or unpacked in the build folder), and what is made of them.
DECODERS, PARTS, CASES = 'decoders', 'parts', 'cases'
GROUPS = {
    'models': ('models', DECODERS), 'deepseek': ('{data}/deepseek', DECODERS), 'gpt2': ('{data}/gpt2', DECODERS),
    'decoders': ('tests/data/decoders', DECODERS), 'went_wrong': ('{data}/went_wrong', DECODERS), 'corpus': ('{data}/corpus', PARTS),
    'other_exporters': ('{data}/other_exporters', PARTS), 'passes': ('tests/passes', PARTS), 'golden': ('{data}/golden', CASES),
    'microsoft_ops': ('{data}/microsoft_ops', CASES), 'older_opsets': ('{data}/older_opsets', CASES), 'onnx_node': ('{data}/onnx_node', CASES),
}
QUICK = ('models', 'corpus')


def variants(kind, quick):
    """(name, flags, written as a file)"""
    if kind == CASES: return [('plain', [], False)]
    if kind == PARTS: return [('plain', [], False), ('no-page', ['--no-page', '--option', 'absorb_mla=on'], False), ('bodies', [], True)]
    caches = CACHES[:2] if quick else CACHES
    out = [('cache=' + c, ['--kv-cache', c], False) for c in caches]
    if quick: return out
    return out + [('plain', [], False), ('no-page', ['--no-page'], False), ('file', ['--no-function-bodies'], True), ('bodies', [], True),
                  ('latent=fp8', ['--kv-cache', 'fp8', '--indexer-cache', 'fp8'], False),
                  ('weights=bf16', ['--weights', 'bf16', '--no-function-bodies'], True),
                  ('weights=int4', ['--weights', 'int4', '--no-function-bodies'], True)]


def graphs(build, only, quick, exports):
    """(group, kind, name, path), each graph once, by name"""
    groups = {group: g for group, g in GROUPS.items() if not quick or group in QUICK}
    groups |= {os.path.basename(os.path.normpath(folder)): (folder, DECODERS) for folder in exports}
    for group, (place, kind) in groups.items():
        found = {}
        root = place.format(data=os.path.join(build, 'test_data'))
        for folder, _, names in os.walk(root):
            for name in names:
                if not name.endswith(('.onnx', '.onnxtxt')): continue
                path = os.path.join(folder, name)
                key = os.path.relpath(path, root).removesuffix('/model.onnx').removesuffix('.onnx')
                found.setdefault(key, path)
        for key in sorted(found):
            if only in f'{group}/{key}': yield group, kind, key, found[key]


def digest(data): return hashlib.sha256(data).hexdigest()[:16]


class Runner:
    def __init__(self, build, names):
        self.program = os.path.join(build, 'pagefuse')
        words = [line.split() for line in open(names) if line.strip()] if names else []
        table = {old.encode(): new.encode() for old, new in words}
        self.table = table
        self.words = re.compile(rb'(?<![\w-])(' + b'|'.join(map(re.escape, sorted(table, key=len, reverse=True))) + rb')(?![\w-])') if table else None

    def plain(self, data, path, out):
        data = data.replace(os.path.abspath(path).encode(), b'GRAPH').replace(path.encode(), b'GRAPH').replace(out.encode(), b'OUT')
        return self.words.sub(lambda m: self.table[m[1]], data) if self.words else data

    def run(self, path, flags, as_file):
        """(line's first three fields, {rule: times})"""
        if not os.path.exists(path): return ('-' * 16, '-' * 16, 'gone'), {}
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, 'out.onnx')
            command = [self.program, 'opt', path, '--stats', *flags]
            command += ['-o', out] if as_file else ['--max-elements', '64']
            try:
                done = subprocess.run(command, capture_output=True, timeout=LIMIT)
            except subprocess.TimeoutExpired:
                return ('-' * 16, '-' * 16, 'late'), {}
            made = done.stdout
            if as_file:  # the model, and the weights beside it
                made = b''.join(open(os.path.join(folder, n), 'rb').read() for n in sorted(os.listdir(folder)))
            else:
                made = RULE.sub(b'', self.plain(made, path, out))
            told = self.plain(done.stderr, path, out)
            fired = {m[1].decode(): int(m[2]) for m in re.finditer(rb'(?m)^([\w-]+): (\d+)$', told)}
            return (digest(made), digest(told), str(done.returncode)), fired


def named_rules():
    try: page = open('docs/passes.md').read()
    except OSError: return []
    return re.findall(r'(?m)^- `([^`]+)`', page)


def write_fired(path, graph_count, times):
    rules = named_rules()
    silent = [r for r in rules if r not in graph_count]
    with open(path, 'w') as f:
        for rule in sorted(graph_count, key=lambda r: (-graph_count[r], r)): f.write(f'{graph_count[rule]:5} {times[rule]:6} {rule}\n')
        f.write(f'\n{len(silent)} of {len(rules)} named rules fire on no graph:\n' + ''.join(f'  {r}\n' for r in silent))
    print(f'{len(silent)} of {len(rules)} named rules fire on no graph', file=sys.stderr)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--build', default='build/release')
    p.add_argument('-j', type=int, default=2)
    p.add_argument('--only', default='')
    p.add_argument('--exports', action='append', default=[])
    p.add_argument('--quick', action='store_true')
    p.add_argument('--twice', action='store_true')
    p.add_argument('--names')
    p.add_argument('--fired')
    a = p.parse_args()
    missing = [folder for folder in a.exports if not os.path.isdir(folder)]
    if missing: sys.exit(f'sameness: no folder "{missing[0]}"')
    runner = Runner(a.build, a.names)
    if not os.access(runner.program, os.X_OK): sys.exit(f'sameness: no program "{runner.program}": build first')
    jobs = [(f'{group}/{key}', name, path, flags, as_file) for group, kind, key, path in graphs(a.build, a.only, a.quick, a.exports)
            for name, flags, as_file in variants(kind, a.quick)]
    if not jobs: sys.exit('sameness: no graphs')
    graph_count, times, unstable = collections.Counter(), collections.Counter(), 0
    fired_by = collections.defaultdict(set)
    with concurrent.futures.ThreadPoolExecutor(a.j) as pool:
        first = []
        for job, (line, fired) in zip(jobs, pool.map(lambda j: runner.run(*j[2:]), jobs)):
            print(*line, job[0], job[1], flush=True)
            first.append(line)
            for rule, n in fired.items(): fired_by[rule].add(job[0]); times[rule] += n
        if a.twice:
            second = list(pool.map(lambda j: runner.run(*j[2:])[0], jobs))
            for job, x, y in zip(jobs, first, second):
                if x != y: unstable += 1; print('differs between two runs:', job[0], job[1], file=sys.stderr)
    graph_count.update({rule: len(g) for rule, g in fired_by.items()})
    print(f'{len(jobs)} lines, {len(set(j[0] for j in jobs))} graphs', file=sys.stderr)
    if a.fired: write_fired(a.fired, graph_count, times)
    sys.exit(1 if unstable else 0)


if __name__ == '__main__': main()
