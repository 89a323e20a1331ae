// SPDX-License-Identifier: Apache-2.0
// 32 clients for a while, over a cache of 1.5 times the longest text, one in five leaves: no reply is 5xx, equal prompts get
// equal answers, no page is held at the end, and memory stays as it was from the second minute on.
//   node soak.mjs PAGEFUSE [--minutes N]
import assert from 'node:assert/strict';
import { Server, demo, events, main, sleep } from './server.mjs';

const flag = process.argv.indexOf('--minutes');
const minutes = flag > 0 ? Number(process.argv[flag + 1]) : 1 / 3;
const clients = 32, longest = 1600;

// The same numbers in each run.
let state = 1;
const random = (n) => {
  state = (state * 48271) % 2147483647;
  return state % n;
};

function request() {
  const kind = random(4), variant = random(8), tokens = 1 + random(60);
  const facts = demo.slice(0, 200 + 140 * variant);
  const sampled = kind === 2 ? { temperature: 0.8, seed: variant, n: 1 + variant % 3 } : {};
  if (kind === 3) return ['/v1/completions', { prompt: [facts, demo], max_tokens: 10 + variant }];
  const messages = [{ role: 'system', content: facts }, { role: 'user', content: `What does the ${['plain case', 'tin vase', 'blue bag'][variant % 3]} hold?` }];
  return ['/v1/chat/completions', { messages, max_tokens: kind === 1 ? tokens : 24, ignore_eos: kind === 1, ...sampled }];
}

const answers = new Map();
const seen = { whole: 0, left: 0, streams: 0 };

function compare(body, texts) {
  const key = JSON.stringify(body);
  const text = JSON.stringify(texts);
  if (!answers.has(key)) answers.set(key, text);
  assert.equal(text, answers.get(key), `another answer to ${key.slice(0, 100)}`);
}

async function read(response, choices) {
  const texts = Array(choices).fill('');
  for await (const event of events(response)) {
    assert.equal(event.error, undefined);
    for (const choice of event.choices) texts[choice.index] += choice.text ?? choice.delta.content ?? '';
  }
  return texts;
}

async function one(server) {
  const [route, body] = request();
  const stream = random(2) === 1, leaves = random(5) === 0, after = random(60);
  const choices = (body.n ?? 1) * (Array.isArray(body.prompt) ? 2 : 1);
  const control = new AbortController();
  if (leaves) setTimeout(() => control.abort(), after);
  try {
    const response = await server.post(route, { ...body, stream }, { signal: control.signal });
    assert.equal(response.status, 200, leaves ? undefined : await response.clone().text());
    const texts = stream ? await read(response, choices) : (await response.json()).choices.map((choice) => choice.text ?? choice.message.content);
    compare({ route, ...body }, texts);
    seen.whole += 1;
    seen.streams += stream ? 1 : 0;
  } catch (error) {
    if (error.name !== 'AbortError') throw error;
    seen.left += 1;
  }
}

await main(async () => {
  const server = await Server.start(['--cache-tokens', String(1.5 * longest)]);
  const start = Date.now();
  const end = start + 60000 * minutes;
  let least = Infinity, most = 0;
  const watch = (async () => {
    while (Date.now() < end) {
      if (Date.now() - start > 120000) {
        const bytes = server.residentBytes();
        least = Math.min(least, bytes);
        most = Math.max(most, bytes);
      }
      await sleep(500);
    }
  })();
  await Promise.all(Array.from({ length: clients }, async () => {
    while (Date.now() < end) await one(server);
  }));
  await watch;
  await server.idle(2000);
  const metrics = await server.metrics();
  const preempted = [...metrics].find(([key]) => key.startsWith('pagefuse:num_preemptions_total'))[1];
  if (most > 0) assert.ok(most <= 1.05 * least, `resident memory from ${least} to ${most} bytes`);
  assert.ok(seen.whole > 0 && seen.left > 0);
  assert.equal(await server.stop(), 0);
  console.log(`${seen.whole} whole (${seen.streams} streams, ${answers.size} different), ${seen.left} left, ${preempted} preemptions` +
    (most > 0 ? `, ${(least / 1e6).toFixed(1)} to ${(most / 1e6).toFixed(1)} MB` : ''));
});
