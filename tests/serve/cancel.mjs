// SPDX-License-Identifier: Apache-2.0
// 200 clients leave while queued, while their prompt is read, while they are written to, and in streams: nobody is
// answered and no page is held a second later, or after other milliseconds on a machine that does much else.
//   node cancel.mjs PAGEFUSE [MILLISECONDS]
import assert from 'node:assert/strict';
import net from 'node:net';
import { Server, main, sleep } from './server.mjs';

const clients = 200;
const patience = Number(process.argv[3] ?? 1000);
const took = [];
const answer = (more) => ({ max_tokens: 4000, ignore_eos: true, ...more });
const chat = (text, more) => ['/v1/chat/completions', answer({ messages: [{ role: 'user', content: text }], ...more })];

function connect(server, [route, body]) {
  const text = JSON.stringify(body);
  const socket = net.connect(server.port, '127.0.0.1');
  socket.on('error', () => {});
  socket.received = 0;
  socket.on('data', (data) => { socket.received += data.length; });
  socket.write(`POST ${route} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`);
  return socket;
}
// In turn: closed in order, reset, or with its writing side alone.
function leave(socket, i) {
  if (i % 3 === 0) socket.resetAndDestroy();
  else if (i % 3 === 1) socket.destroy();
  else socket.end();
}

// Waits for what must be so before they leave.
async function until(what, check) {
  for (let i = 0; i < 1000; ++i) {
    if (await check()) return;
    await sleep(5);
  }
  assert.fail(`never: ${what}`);
}

async function round(server, name, request, ready) {
  const sockets = Array.from({ length: clients }, (_, i) => connect(server, request(i)));
  await until(name, () => ready(sockets));
  sockets.forEach(leave);
  took.push(`${name} ${await server.idle(patience).catch((error) => assert.fail(`${name}: ${error.message}`))} ms`);
  sockets.forEach((socket) => socket.destroy());
  const health = await server.get('/health');
  assert.equal(health.status, 200);
  await health.text();
}

await main(async () => {
  const server = await Server.start(['--cache-tokens', '12288']);
  const working = (least) => async () => {
    const metrics = await server.metrics();
    const sum = (name) => [...metrics].filter(([key]) => key.startsWith(`pagefuse:${name}{`)).reduce((all, [, value]) => all + value, 0);
    return sum('num_requests_running') + sum('num_requests_waiting') >= least;
  };
  const long = (i) => `${i} ${'The tin vase holds 47 seeds. '.repeat(100)}`;
  await round(server, 'queued', () => chat('a'), working(clients));
  await round(server, 'reading', (i) => chat(long(i)), working(clients / 2));
  await round(server, 'at once', (i) => chat(long(i)), async () => true);
  await round(server, 'streaming', () => chat('a', { stream: true }), async (sockets) => sockets.filter((socket) => socket.received > 0).length >= 32);
  await round(server, 'samples', () => chat('a', { stream: true, n: 3, temperature: 1, seed: 1 }), working(clients / 2));
  await round(server, 'several prompts', () => ['/v1/completions', answer({ prompt: ['a', 'b'], stream: true })], working(clients / 2));
  const cancelled = await server.metrics();
  const total = [...cancelled].filter(([key]) => key.startsWith('pagefuse:cancelled_total{')).reduce((all, [, value]) => all + value, 0);
  assert.ok(total >= 4 * clients, `cancelled: ${total}`);
  // Whoever asks now is answered as if nobody had been there.
  const reply = await (await server.post('/v1/completions', { prompt: 'The tin vase holds 47 seeds.\nWhat does the tin vase hold?', max_tokens: 16 })).json();
  assert.match(reply.choices[0].text, /47 seeds/);
  assert.equal(await server.stop(), 0);
  console.log(`${total} requests cancelled: ${took.join(', ')}`);
});
