// Times a graph in ONNX Runtime on the feeds of graph_bench, and prints one JSON object.
//
//   node graph.js MODEL --run=prefill:batch=1,sequence=512,past_sequence=0 [--run=...] [--repeats=3] [--threads=2]
//
// Times are of the fastest of `repeats` runs after one that is not counted.
'use strict';

const fs = require('fs');
const ort = require('onnxruntime-node');

function parseRun(text) {
  const [name, list] = text.split(':');
  const sizes = new Map(list.split(',').filter((s) => s).map((part) => [part.split('=')[0], Number(part.split('=')[1])]));
  return {name, sizes};
}

function parseArguments(argv) {
  const options = {runs: [], repeats: 3, threads: 2};
  for (const argument of argv) {
    const match = /^--(\w+)=(.*)$/.exec(argument);
    if (!match) {
      options.model = argument;
    } else if (match[1] === 'run') {
      options.runs.push(parseRun(match[2]));
    } else if (match[1] === 'repeats' || match[1] === 'threads') {
      options[match[1]] = Number(match[2]);
    } else {
      throw new Error(`unknown option --${match[1]}`);
    }
  }
  if (!options.model || options.runs.length === 0) throw new Error('no model or no run given');
  return options;
}

const seconds = () => Number(process.hrtime.bigint()) * 1e-9;

function peakBytes() {
  const status = fs.readFileSync('/proc/self/status', 'utf8');
  return Number(/VmHWM:\s+(\d+) kB/.exec(status)[1]) * 1024;
}

function integer(input, sizes, i) {
  if (input === 'attention_mask') return 1;
  if (input === 'position_ids') return (sizes.get('first') ?? 0) + i;
  return 2 + (i * 37) % ((sizes.get('ids') ?? 1002) - 2);
}

function makeFeed(input, sizes) {
  const dims = input.shape.map((dim) => {
    if (typeof dim === 'number' && dim >= 0) return dim;
    if (!sizes.has(dim)) throw new Error(`input "${input.name}": no size for "${dim}"`);
    return sizes.get(dim);
  });
  const size = dims.reduce((a, b) => a * b, 1);
  if (input.type === 'int64') {
    const values = new BigInt64Array(size);
    for (let i = 0; i < size; ++i) values[i] = BigInt(integer(input.name, sizes, i));
    return new ort.Tensor('int64', values, dims);
  }
  if (input.type !== 'float32') throw new Error(`input "${input.name}": type ${input.type}`);
  const values = new Float32Array(size);
  for (let i = 0; i < size; ++i) values[i] = ((i * 2654435761) % 1024) / 512 - 1;
  return new ort.Tensor('float32', values, dims);
}

async function timeRun(session, sizes, repeats) {
  const feeds = Object.fromEntries(session.inputMetadata.map((input) => [input.name, makeFeed(input, sizes)]));
  let best = Infinity;
  for (let i = -1; i < repeats; ++i) {
    const start = seconds();
    await session.run(feeds);
    if (i >= 0) best = Math.min(best, seconds() - start);
  }
  return best;
}

async function main() {
  const options = parseArguments(process.argv.slice(2));
  const start = seconds();
  const session = await ort.InferenceSession.create(options.model, {
    intraOpNumThreads: options.threads,
    interOpNumThreads: 1,
    executionMode: 'sequential',
    graphOptimizationLevel: 'all',
  });
  const report = {program: 'onnxruntime', version: ort.env.versions.node, session_seconds: seconds() - start, runs: []};
  for (const run of options.runs) {
    report.runs.push({name: run.name, seconds: await timeRun(session, run.sizes, options.repeats)});
  }
  report.peak_rss_bytes = peakBytes();
  console.log(JSON.stringify(report));
}

main().catch((error) => {
  console.error(`graph: ${error.message}`);
  process.exit(1);
});
