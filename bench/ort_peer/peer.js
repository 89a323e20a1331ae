// Times a decoder graph with past/present tensors in ONNX Runtime, and prints one JSON object.
//
//   node peer.js MODEL [--prefill=512] [--contexts=512,2048] [--steps=8] [--repeats=3] [--threads=2]
//
// prefill: one run of that many tokens without a past, the shortest of `repeats`. contexts: one-token runs on a past of that length
// with random contents, the mean of `steps` of them after one that is not counted.
'use strict';

const fs = require('fs');
const ort = require('onnxruntime-node');

function parseArguments(argv) {
  const options = {prefill: 512, contexts: [512], steps: 8, repeats: 3, threads: 2};
  for (const argument of argv) {
    const match = /^--(\w+)=(.*)$/.exec(argument);
    if (!match) {
      options.model = argument;
    } else if (match[1] === 'contexts') {
      options.contexts = match[2].split(',').filter((s) => s).map(Number);
    } else if (match[1] in options) {
      options[match[1]] = Number(match[2]);
    } else {
      throw new Error(`unknown option --${match[1]}`);
    }
  }
  if (!options.model) throw new Error('no model given');
  return options;
}

const seconds = () => Number(process.hrtime.bigint()) * 1e-9;

function peakBytes() {
  const status = fs.readFileSync('/proc/self/status', 'utf8');
  return Number(/VmHWM:\s+(\d+) kB/.exec(status)[1]) * 1024;
}

function int64Tensor(values, dims) {
  return new ort.Tensor('int64', BigInt64Array.from(values, BigInt), dims);
}

// Dims of a past tensor [batch, heads, past, head_dim], from the session's metadata.
function pastDims(session, name, past) {
  const metadata = session.inputMetadata.find((entry) => entry.name === name);
  const shape = metadata.shape.map((dim, axis) => (typeof dim === 'number' && dim > 0 ? dim : axis === 0 ? 1 : past));
  shape[2] = past;
  return shape;
}

// Feeds for `tokens` new tokens behind a past of `past` tokens.
function makeFeeds(session, tokens, past, pasts) {
  const feeds = {...pasts};
  feeds.input_ids = int64Tensor(Array.from({length: tokens}, (_, i) => 2 + (i * 37) % 1000), [1, tokens]);
  feeds.attention_mask = int64Tensor(new Array(past + tokens).fill(1), [1, past + tokens]);
  if (session.inputNames.includes('position_ids')) {
    feeds.position_ids = int64Tensor(Array.from({length: tokens}, (_, i) => past + i), [1, tokens]);
  }
  return feeds;
}

function randomPasts(session, past) {
  const pasts = {};
  for (const name of session.inputNames.filter((n) => n.startsWith('past'))) {
    const dims = pastDims(session, name, past);
    const size = dims.reduce((a, b) => a * b, 1);
    const values = new Float32Array(size);
    for (let i = 0; i < size; ++i) values[i] = ((i * 2654435761) % 1024) / 512 - 1;
    pasts[name] = new ort.Tensor('float32', values, dims);
  }
  return pasts;
}

function presentsAsPasts(session, results) {
  const pasts = {};
  for (const name of session.inputNames.filter((n) => n.startsWith('past'))) {
    pasts[name] = results[name.replace(/^past_key_values/, 'present')];
  }
  return pasts;
}

async function timePrefill(session, tokens, repeats) {
  let best = Infinity;
  for (let i = 0; i < repeats; ++i) {
    const feeds = makeFeeds(session, tokens, 0, randomPasts(session, 0));
    const start = seconds();
    await session.run(feeds);
    best = Math.min(best, seconds() - start);
  }
  return best;
}

async function timeDecode(session, context, steps) {
  let pasts = randomPasts(session, context);
  let total = 0;
  for (let i = -1; i < steps; ++i) {
    const feeds = makeFeeds(session, 1, context + i + 1, pasts);
    const start = seconds();
    const results = await session.run(feeds);
    if (i >= 0) total += seconds() - start;
    pasts = presentsAsPasts(session, results);
  }
  return total / steps;
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
  const report = {program: 'onnxruntime', version: ort.env.versions.node, session_seconds: seconds() - start};
  if (options.prefill > 0) {
    report.prefill_tokens = options.prefill;
    await timePrefill(session, options.prefill, 1);
    report.first_token_seconds = seconds() - start;
    report.prefill_seconds = await timePrefill(session, options.prefill, options.repeats);
  }
  report.decode = [];
  for (const context of options.contexts) {
    report.decode.push({context, seconds_per_token: await timeDecode(session, context, options.steps)});
  }
  report.peak_rss_bytes = peakBytes();
  console.log(JSON.stringify(report));
}

main().catch((error) => {
  console.error(`peer: ${error.message}`);
  process.exit(1);
});
