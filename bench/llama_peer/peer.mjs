// Times prefill and decode of a GGUF file in llama.cpp, and prints one JSON object with the keys of
// ort_peer/peer.js.
//
//   node peer.mjs FILE NAME [--prefill=512] [--contexts=512] [--sequences=1] [--steps=8] [--threads=2] [--repeats=1]
import {getLlama} from 'node-llama-cpp';

const [file, name, ...rest] = process.argv.slice(2);
const options = Object.fromEntries(rest.map(word => word.replace(/^--/, '').split('=')));
const number = (key, usual) => Number(options[key] ?? usual);
const prefill = number('prefill', 512), steps = number('steps', 8);
const threads = number('threads', 2), repeats = number('repeats', 1);
const numbers = (key, usual) => String(options[key] ?? usual).split(',').map(Number);
const contexts = numbers('contexts', 512), batches = numbers('sequences', 1);

const seconds = () => Number(process.hrtime.bigint()) * 1e-9;
const prompt = (count, which = 0) => Array.from({length: count}, (_, i) => 2 + (i * 37 + which * 131) % 1000);

const start = seconds();
const llama = await getLlama({gpu: false, maxThreads: threads, logLevel: 'error'});
const model = await llama.loadModel({modelPath: file, useMmap: true, checkTensors: false});
const longest = Math.max(prefill, ...contexts) + steps + 8;
const context = await model.createContext({
  contextSize: longest, sequences: Math.max(...batches), batchSize: 512,
  threads: {ideal: threads, min: threads},
});
const sequences = Array.from({length: Math.max(...batches)}, () => context.getSequence());
const report = {program: 'llama.cpp', version: name, session_seconds: seconds() - start, decode: []};

// Seconds of a prefill that gives one new token.
async function timePrefill(count) {
  await sequences[0].clearHistory();
  const begin = seconds();
  for await (const token of sequences[0].evaluate(prompt(count), {temperature: 0})) break;
  return seconds() - begin;
}

// Mean seconds of a step of `batch` sequences behind `count` tokens each, once all have their first.
async function timeDecode(count, batch) {
  let begin = 0, left = batch, open;
  const all = new Promise(resolve => open = resolve);
  const run = async (sequence, which) => {
    let made = 0;
    for await (const token of sequence.evaluate(prompt(count, which), {temperature: 0})) {
      if (made++ === 0) {
        if (--left === 0) {
          begin = seconds();
          open();
        }
        await all;
      }
      if (made > steps) break;
    }
  };
  const running = sequences.slice(0, batch);
  for (const sequence of running) await sequence.clearHistory();
  await Promise.all(running.map(run));
  return (seconds() - begin) / steps;
}

if (prefill > 0) {
  report.prefill_tokens = prefill;
  await timePrefill(prefill);
  report.first_token_seconds = seconds() - start;
  report.prefill_seconds = Infinity;
  for (let i = 0; i < repeats; ++i) {
    report.prefill_seconds = Math.min(report.prefill_seconds, await timePrefill(prefill));
  }
}
for (const batch of batches) {
  for (const count of contexts) {
    report.decode.push({context: count, sequences: batch, seconds_per_token: await timeDecode(count, batch)});
  }
}
report.peak_rss_bytes = process.resourceUsage().maxRSS * 1024;
console.log(JSON.stringify(report));
process.exit(0);
