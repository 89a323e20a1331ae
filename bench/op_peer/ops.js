// Times the models of op_peer_cases in ONNX Runtime, and prints a table: our time, ONNX Runtime's, and how many times faster we are.
//
//   node ops.js FOLDER [--threads=2] [--seconds=0.5]
//
// Every case runs in a process of its own, so that one that ends badly takes no other with it; a case that cannot run says why.
//
// Where float8 is at work, ONNX Runtime computes with uint8 in its place and its time is a lower bound (runtime_body.h).
'use strict';

const childProcess = require('child_process');
const fs = require('fs');
const path = require('path');
const {once} = require('events');

const ARRAYS = {
  float32: Float32Array,
  int64: BigInt64Array,
  int32: Int32Array,
  uint32: Uint32Array,
  uint16: Uint16Array,
  int8: Int8Array,
  uint8: Uint8Array,
  bool: Uint8Array,
};

function parseArguments(argv) {
  const options = {threads: 2, seconds: 0.5};
  for (const argument of argv) {
    const match = /^--(\w+)=(.*)$/.exec(argument);
    if (!match) {
      options.folder = argument;
    } else if (match[1] === 'threads' || match[1] === 'seconds') {
      options[match[1]] = Number(match[2]);
    } else if (match[1] === 'only') {
      options.only = match[2];
    } else {
      throw new Error(`unknown option --${match[1]}`);
    }
  }
  if (!options.folder && !options.only) throw new Error('no folder given');
  return options;
}

const now = () => Number(process.hrtime.bigint()) * 1e-9;

const readManifest = (folder) => JSON.parse(fs.readFileSync(path.join(folder, 'manifest.json'), 'utf8'));

function readTensor(ort, folder, input) {
  const bytes = fs.readFileSync(path.join(folder, input.file));
  const memory = new ArrayBuffer(bytes.length);  // aligned, as typed arrays need it
  new Uint8Array(memory).set(bytes);
  return new ort.Tensor(input.type, new ARRAYS[input.type](memory), input.dims);
}

// Memory for an output.
function makeTensor(ort, output) {
  const size = output.dims.reduce((product, dim) => product * dim, 1);
  return new ort.Tensor(output.type, new ARRAYS[output.type](size), output.dims);
}

// Seconds of the fastest run: three of them at least, more until `seconds` have passed.
async function timeCase(folder, options) {
  const ort = require('onnxruntime-node');
  const manifest = readManifest(folder);
  const session = await ort.InferenceSession.create(path.join(folder, 'model.onnx'), {
    executionProviders: ['cpu'],
    intraOpNumThreads: options.threads,
    interOpNumThreads: 1,
    graphOptimizationLevel: 'all',
    logSeverityLevel: 4,
  });
  const feeds = {};
  for (const input of manifest.inputs) {
    if (session.inputNames.includes(input.name)) feeds[input.name] = readTensor(ort, folder, input);
  }
  const fetches = {};
  for (const name of session.outputNames) {
    const known = manifest.outputs.find((output) => output.name === name);
    fetches[name] = feeds[manifest.in_place[name]] ?? (known ? makeTensor(ort, known) : null);
  }
  await session.run(feeds, fetches);
  let best = Infinity;
  const end = now() + options.seconds;
  for (let runs = 0; runs < 3 || now() < end; ++runs) {
    const start = now();
    await session.run(feeds, fetches);
    best = Math.min(best, now() - start);
  }
  return best;
}

// The report of a child process for one case: {seconds} or {error}.
async function runCase(folder, options) {
  const child = childProcess.spawn(
      process.execPath,
      [__filename, `--only=${folder}`, `--threads=${options.threads}`, `--seconds=${options.seconds}`],
      {stdio: ['ignore', 'pipe', 'pipe']});
  let out = '';
  let errors = '';
  child.stdout.on('data', (data) => out += data);
  child.stderr.on('data', (data) => errors += data);
  const [code, signal] = await once(child, 'close');
  const line = out.split('\n').find((text) => text.startsWith('{'));
  if (line) return JSON.parse(line);
  return {error: `the process ended with ${signal ?? code}: ${errors.trim().split('\n').pop()}`};
}

function caseFolders(folder) {
  return fs.readdirSync(folder)
      .map((name) => path.join(folder, name))
      .filter((name) => fs.existsSync(path.join(name, 'manifest.json')))
      .sort();
}

const COLUMNS = [['case', 36], ['size', 28], ['kernel', 11], ['pagefuse us', 13], ['onnxruntime us', 16], ['ratio', 9], ['aim', 5]];

function printRow(cells) {
  const row = cells.map((cell, i) => i < 3 ? cell.padEnd(COLUMNS[i][1]) : cell.padStart(COLUMNS[i][1]));
  console.log(row.join(' ').trimEnd());
}

async function printTable(options) {
  const counts = {reached: 0, missed: [], failed: []};
  printRow(COLUMNS.map(([title]) => title));
  for (const folder of caseFolders(options.folder)) {
    const manifest = readManifest(folder);
    const report = await runCase(folder, options);
    const ours = (manifest.seconds * 1e6).toFixed(1);
    if (report.error) {
      counts.failed.push(manifest.name);
      printRow([manifest.name, manifest.size, manifest.kernel, ours, 'cannot run: ' + report.error, '', '']);
      continue;
    }
    const aim = manifest.aim;
    const ratio = report.seconds / manifest.seconds;
    if (ratio >= aim) {
      ++counts.reached;
    } else {
      counts.missed.push(manifest.name);
    }
    printRow([
      manifest.name, manifest.size, manifest.kernel, ours, (report.seconds * 1e6).toFixed(1), ratio.toFixed(2) + 'x', aim + 'x',
    ]);
  }
  console.log(`\n${counts.reached} reach their aim, ${counts.missed.length} do not, ${counts.failed.length} cannot run`);
  for (const name of counts.missed) console.log(`below its aim: ${name}`);
  for (const name of counts.failed) console.log(`cannot run: ${name}`);
}

async function main() {
  const options = parseArguments(process.argv.slice(2));
  if (!options.only) return printTable(options);
  try {
    console.log(JSON.stringify({seconds: await timeCase(options.only, options)}));
  } catch (error) {
    console.log(JSON.stringify({error: error.message.split('\n')[0]}));
  }
}

main();
