// SPDX-License-Identifier: Apache-2.0
// SIGTERM while 50 streams run: all end whole, new requests are refused meanwhile, and the program ends with 0. A second one
// ends it at once; what runs longer than it may is told so in its stream.
//   node drain.mjs PAGEFUSE
import assert from 'node:assert/strict';
import { Server, events, main, raw, sleep, isWhole } from './server.mjs';

const body = (tokens) => ({ prompt: 'a', max_tokens: tokens, ignore_eos: true, stream: true, stream_options: { include_usage: true } });

// Resolves to what the stream said at its end, when `begun` has its first event.
function stream(server, tokens) {
  let tell;
  const begun = new Promise((done) => { tell = done; });
  const whole = (async () => {
    const response = await server.post('/v1/completions', body(tokens));
    assert.equal(response.status, 200);
    let usage = null, finish = null, error = null;
    for await (const event of events(response)) {
      tell();
      error ??= event.error ?? null;
      finish ??= event.choices?.[0]?.finish_reason ?? null;
      usage ??= event.usage ?? null;
    }
    return { usage, finish, error };
  })();
  whole.catch(() => {});
  return { begun: Promise.race([begun, whole]), whole };
}

async function checkDrain() {
  const server = await Server.start();
  const spare = await raw(server.port, ['GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n'], { enough: isWhole });
  assert.equal(spare.status, 200);
  const streams = Array.from({ length: 50 }, () => stream(server, 600));
  await Promise.all(streams.map(({ begun }) => begun));
  const ended = server.stop();
  await sleep(50);
  const refused = await server.post('/v1/completions', { prompt: 'a', max_tokens: 1 });
  assert.equal(refused.status, 503);
  assert.equal((await refused.json()).error.code, 'draining');
  assert.equal(refused.headers.get('retry-after'), '1');
  assert.equal((await server.get('/health')).status, 503);
  for (const { whole } of streams) {
    const { usage, finish, error } = await whole;
    assert.equal(error, null);
    assert.equal(finish, 'length');
    assert.equal(usage.completion_tokens, 600);
  }
  assert.equal(await ended, 0);
}

// `--drain-seconds 1`: longer ones end as cancelled, with an event that says so.
async function checkTooLong() {
  const server = await Server.start(['--drain-seconds', '1']);
  const streams = Array.from({ length: 20 }, () => stream(server, 8000));
  await Promise.all(streams.map(({ begun }) => begun));
  const ended = server.stop();
  let told = 0;
  for (const { whole } of streams) {
    const { usage, error } = await whole;
    if (error) {
      assert.equal(error.code, 'cancelled');
      ++told;
    } else {
      assert.equal(usage.completion_tokens, 8000);
    }
  }
  assert.ok(told > 0, 'some are ended');
  assert.equal(await ended, 0);
}

async function checkSecond() {
  const server = await Server.start();
  const streams = Array.from({ length: 20 }, () => stream(server, 8000));
  await Promise.all(streams.map(({ begun }) => begun));
  const ended = server.stop();
  await sleep(100);
  const start = Date.now();
  server.child.kill('SIGTERM');
  assert.equal(await ended, 0);
  assert.ok(Date.now() - start < 2000, `${Date.now() - start} ms`);
  await Promise.allSettled(streams.map(({ whole }) => whole));
}

await main(async () => {
  await checkDrain();
  await checkTooLong();
  await checkSecond();
});
