// SPDX-License-Identifier: Apache-2.0
// 200 connections that send a byte of a header now and then, and 200 that do so with a body: /health is answered within 50 ms
// throughout, or within others on a machine that does much else, and they are ended when their time is over.
//   node slow.mjs PAGEFUSE [SECONDS [MILLISECONDS]]
import assert from 'node:assert/strict';
import net from 'node:net';
import { Server, main, sleep } from './server.mjs';

const clients = 200;
const json = 'Content-Type: application/json\r\n';

// Sends `first`, and then a byte each 3 seconds.
function drip(port, first) {
  const socket = net.connect(port, '127.0.0.1');
  socket.on('error', () => {});
  socket.on('data', (data) => { socket.status ??= Number(/ (\d+) /.exec(data)?.[1]); });
  socket.on('close', () => clearInterval(socket.drips));
  socket.write(first);
  socket.drips = setInterval(() => socket.write('a'), 3000);
  return socket;
}

await main(async () => {
  const seconds = Number(process.argv[3] ?? 14), patience = Number(process.argv[4] ?? 50);
  const server = await Server.start();
  const header = Array.from({ length: clients }, () => drip(server.port, 'GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: '));
  const body = Array.from({ length: clients }, () => drip(server.port, `POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n${json}Content-Length: 4000\r\n\r\n`));
  const times = [];
  for (const end = Date.now() + 1000 * seconds; Date.now() < end; await sleep(20)) {
    const start = performance.now();
    const health = await server.get('/health');
    await health.text();
    times.push(performance.now() - start);
    assert.equal(health.status, 200);
  }
  times.sort((a, b) => a - b);
  const at = (part) => times[Math.min(times.length - 1, Math.floor(part * times.length))].toFixed(1);
  console.log(`/health ${times.length} times: ${at(0.5)} ms, 99 %: ${at(0.99)}, at most ${at(1)}`);
  assert.ok(Number(at(1)) < patience, `within ${patience} ms`);
  if (seconds > 12) {
    assert.equal(header.filter((socket) => socket.status === 408).length, clients, 'headers that take over 10 s are ended');
    assert.ok(header.every((socket) => socket.closed));
  }
  [...header, ...body].forEach((socket) => socket.destroy());
  await server.idle(5000);
  assert.equal(await server.stop(), 0);
});
