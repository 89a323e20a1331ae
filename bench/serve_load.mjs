// SPDX-License-Identifier: Apache-2.0
// Streams of a server: tokens a second of many at one time, of the same while others wait, and the time between tokens while a
// long prompt is read.
//   node serve_load.mjs URL STREAMS NEW_TOKENS PROMPT WAITING LONG
import assert from 'node:assert/strict';

const [url, streams, newTokens, promptTokens, waiting, long] = process.argv.slice(2).map((value, i) => (i === 0 ? value : Number(value)));

let draw = 88172645463325252n;
const random = (most) => {
  draw ^= draw << 13n & 0xffffffffffffffffn; draw ^= draw >> 7n; draw ^= draw << 17n & 0xffffffffffffffffn;
  return Number(draw % BigInt(most));
};
const prompt = (length) => Array.from({ length }, () => 3 + random(240));

// Calls `onToken` with the time of each token. Resolves to the status.
async function stream(ids, max, onToken, signal) {
  const reply = await fetch(`${url}/v1/completions`, {
    method: 'POST', headers: { 'content-type': 'application/json' }, signal,
    body: JSON.stringify({ prompt: ids, max_tokens: max, temperature: 0, ignore_eos: true, stream: true, return_token_ids: true }),
  });
  if (reply.status !== 200) { await reply.text(); return reply.status; }
  let rest = '';
  for await (const piece of reply.body.pipeThrough(new TextDecoderStream())) {
    rest += piece;
    const events = rest.split('\n\n');
    rest = events.pop();
    for (const event of events) {
      const count = event.startsWith('data: {') ? JSON.parse(event.slice(6)).choices[0]?.token_ids.length ?? 0 : 0;
      for (let i = 0; i < count; ++i) onToken(performance.now());
    }
  }
  return 200;
}

// Tokens a second from when all streams write until the first ends.
async function together(count, max) {
  const times = Array.from({ length: count }, () => []);
  const statuses = await Promise.all(times.map((own) => stream(prompt(promptTokens), max, (time) => own.push(time))));
  assert.ok(statuses.every((status) => status === 200));
  const begin = Math.max(...times.map((own) => own[0])), end = Math.min(...times.map((own) => own.at(-1)));
  const tokens = times.flat().filter((time) => time > begin && time <= end).length;
  return tokens / (end - begin) * 1000;
}

const quiet = await together(streams, newTokens);
console.log(`${streams} streams: ${quiet.toFixed(1)} tokens a second`);

// Others wait meanwhile, as many as may; the rest is told to come again.
const leave = new AbortController();
const busy = together(streams, newTokens);
await new Promise((done) => setTimeout(done, 300));
let refused = 0;
const others = Array.from({ length: waiting }, () => stream(prompt(promptTokens), newTokens, () => {}, leave.signal)
  .then((status) => { refused += status === 429 ? 1 : 0; }, () => {}));
const loaded = await busy;
leave.abort();
await Promise.all(others);
console.log(`the same while ${waiting} wait: ${loaded.toFixed(1)} tokens a second, ratio ${(loaded / quiet).toFixed(3)}; ${refused} told to come again`);

if (long > 0) {
  const gaps = [];
  const count = 16, tokens = Math.max(newTokens, 256);
  let reads = false, done = false;
  const writers = Array.from({ length: count }, () => {
    let last = 0;
    return stream(prompt(promptTokens), tokens, (time) => {
      if (reads && !done && last > 0) gaps.push(time - last);
      last = time;
    });
  });
  await new Promise((ready) => setTimeout(ready, 1500));
  reads = true;
  const begin = performance.now();
  assert.equal(await stream(prompt(long), 1, () => { done = true; }), 200);
  const seconds = (performance.now() - begin) / 1000;
  await Promise.all(writers);
  gaps.sort((a, b) => a - b);
  const at = (share) => gaps[Math.floor(share * (gaps.length - 1))]?.toFixed(0);
  console.log(`${count} streams while ${long} tokens are read in ${seconds.toFixed(1)} s: between tokens ${at(0.5)} ms, 95 % ${at(0.95)} ms, most ${at(1)} ms (${gaps.length} of them)`);
}
