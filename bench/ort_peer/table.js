// Reads the JSON lines of peer.js and pagefuse bench, or of graph.js and graph_bench (stdin, rounds in turns), and prints the best of
// each program and its ratio to ONNX Runtime: above 1 is faster or smaller than ONNX Runtime.
'use strict';

const fs = require('fs');

// A row of `pagefuse bench --format json` with the keys of peer.js.
function fromBench(row) {
  const report = {program: 'pagefuse', version: row.weights, session_seconds: row.load_seconds};
  const rate = Math.max(...row.tokens_per_second);
  if (row.test === 'prompt') {
    return {...report, prefill_tokens: row.tokens, prefill_seconds: row.tokens / rate};
  }
  return {...report, decode: [{context: row.depth, sequences: row.batch, seconds_per_token: row.batch / rate}]};
}

function reports(line) {
  const parsed = JSON.parse(line);
  return parsed.command === 'bench' ? parsed.rows.map((row) => ({...fromBench(row), peak_rss_bytes: parsed.peak_memory_bytes}))
                                    : [parsed];
}

// Runs of graph.js and graph_bench under the names of the rows of peer.js and pagefuse bench.
function addRun(run, add) {
  const [kind, tokens] = run.name.split('-');
  if (kind === 'prefill') {
    add(`prefill ${tokens} s`, run.seconds);
  } else {
    add(`${kind} at ${tokens} ms`, run.seconds * 1e3);
  }
}

function collect(lines) {
  const programs = new Map();
  for (const report of lines.flatMap(reports)) {
    const name = `${report.program} ${report.version}`;
    if (!programs.has(name)) programs.set(name, new Map());
    const best = programs.get(name);
    const add = (row, value) => {
      if (value !== undefined) best.set(row, Math.min(value, best.get(row) ?? Infinity));
    };
    add('session s', report.session_seconds);
    add('to first token s', report.first_token_seconds);
    if (report.prefill_tokens) add(`prefill ${report.prefill_tokens} s`, report.prefill_seconds);
    for (const run of report.runs ?? []) addRun(run, add);
    for (const entry of report.decode ?? []) {
      const who = (entry.sequences ?? 1) > 1 ? `${entry.sequences} decode` : 'decode';
      add(`${who} at ${entry.context} ms`, entry.seconds_per_token * 1e3);
    }
    if (report.peak_rss_bytes) add('peak GB', report.peak_rss_bytes / 1e9);
  }
  return programs;
}

function main() {
  const lines = fs.readFileSync(0, 'utf8').split('\n').filter((line) => /^[{[]/.test(line));
  const programs = collect(lines);
  const peer = [...programs.keys()].find((name) => name.startsWith('onnxruntime'));
  const names = [...programs.keys()];
  const rows = new Set([...programs.values()].flatMap((best) => [...best.keys()]));
  console.log(['', ...names].map((name) => name.padStart(24)).join(''));
  for (const row of rows) {
    const cells = names.map((name) => {
      const value = programs.get(name).get(row);
      if (value === undefined) return '-';
      const base = peer && programs.get(peer).get(row);
      return value.toFixed(3) + (base !== undefined ? ` (${(base / value).toFixed(2)}x)` : '');
    });
    console.log([row, ...cells].map((cell) => cell.padStart(24)).join(''));
  }
}

main();
