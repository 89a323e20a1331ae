// SPDX-License-Identifier: Apache-2.0
// What no client should send: each gets its status, and after it the server is healthy and holds no page.
//   node hostile.mjs PAGEFUSE
import assert from 'node:assert/strict';
import { writeFileSync, mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { Server, isWhole, main, raw, recall } from './server.mjs';
import { badBodies, badFields } from './hostile_bodies.mjs';

const host = 'Host: 127.0.0.1\r\n';
const json = 'Content-Type: application/json\r\n';
const good = '{"prompt":"a","max_tokens":1}';
const post = (headers, body = good, route = '/v1/completions') => `POST ${route} HTTP/1.1\r\n${host}${json}${headers}\r\n${body}`;
const length = (body) => `Content-Length: ${Buffer.byteLength(body, 'latin1')}\r\n`;
const chunked = 'Transfer-Encoding: chunked\r\n';
const closed = true;

// Name, pieces, expected status, whether the connection is closed. 0: no reply at all.
const framing = [
  ['a good request', [post(length(good))], 200],
  ['a good request in chunks', [post(chunked, `5\r\n${good.slice(0, 5)}\r\n${(good.length - 5).toString(16)}\r\n${good.slice(5)}\r\n0\r\n\r\n`)], 200],
  ['a byte at a time', [...post(length(good))], 200],
  ['two lengths that agree', [post(length(good) + length(good))], 400, closed],
  ['two lengths that differ', [post(length(good) + 'Content-Length: 5\r\n')], 400, closed],
  ['a list of lengths', [post(`Content-Length: ${good.length}, ${good.length}\r\n`)], 400, closed],
  ['length and chunks', [post(length(good) + chunked, '0\r\n\r\n')], 400, closed],
  ['chunks and length', [post(chunked + length(good), '0\r\n\r\n')], 400, closed],
  ['two encodings', [post(chunked + chunked, '0\r\n\r\n')], 400, closed],
  ['gzip, chunked', [post('Transfer-Encoding: gzip, chunked\r\n', '0\r\n\r\n')], 400, closed],
  ['chunked, identity', [post('Transfer-Encoding: chunked, identity\r\n', '0\r\n\r\n')], 400, closed],
  ['identity', [post('Transfer-Encoding: identity\r\n')], 400, closed],
  ['xchunked', [post('Transfer-Encoding: xchunked\r\n', '0\r\n\r\n')], 400, closed],
  ['an encoding with a vertical tab', [post('Transfer-Encoding:\x0bchunked\r\n', '0\r\n\r\n')], 400, closed],
  ['white space before the colon', [post(`Content-Length : ${good.length}\r\n`)], 400, closed],
  ['a folded header', [post(length(good) + 'X-A: b\r\n c\r\n')], 400, closed],
  ['a length folded', [post('Content-Length:\r\n 29\r\n')], 400, closed],
  ['a bare CR in a header', [post(length(good) + 'X-A: b\rX-B: c\r\n')], 400, closed],
  ['a bare LF behind a header', [post(length(good) + 'X-A: b\nX-B: c\r\n')], 400, closed],
  ['a bare CR behind the request line', [`GET /health HTTP/1.1\r${host}\r\n\r\n`], 400, closed],
  ['a CR before the request line', [`\r\nGET /health HTTP/1.1\r\n${host}\r\n`], 400, closed],
  ['an empty line and two lengths', [`\r\n\r\n${post(length(good) + length(good))}`], 400, closed],
  ['a NUL in a header', [post(length(good) + 'X-A: \0\r\n')], 400, closed],
  ['a NUL in the target', [`GET /health\0 HTTP/1.1\r\n${host}\r\n`], 400, closed],
  ['a control byte in a header', [post(length(good) + 'X-A: \x01\r\n')], 400, closed],
  ['a control byte in a name', [post(length(good) + 'X\x01A: b\r\n')], 400, closed],
  ['a header without a name', [post(length(good) + ': b\r\n')], 400, closed],
  ['a header without a colon', [post(length(good) + 'nothing\r\n')], 400, closed],
  ['a negative length', [post('Content-Length: -1\r\n')], 400, closed],
  ['a length with a sign', [post('Content-Length: +29\r\n')], 400, closed],
  ['a length in hexadecimal', [post('Content-Length: 0x1d\r\n')], 400, closed],
  ['an empty length', [post('Content-Length: \r\n')], 400, closed],
  ['a length of 2^64 - 1', [post('Content-Length: 18446744073709551615\r\n')], 400, closed],
  ['a length of 2^63', [post('Content-Length: 9223372036854775808\r\n')], 400, closed],
  ['a length of 10^17', [post('Content-Length: 100000000000000000\r\n')], 413, closed],
  ['a length one beyond the limit', [post(`Content-Length: ${(4 << 20) + 1}\r\n`)], 413, closed],
  ['a chunk of 2^64 - 1', [post(chunked, 'ffffffffffffffff\r\n' + good)], [400, 413], closed],
  ['a chunk of 2^64', [post(chunked, '10000000000000000\r\n' + good)], [400, 413], closed],
  ['a chunk of 2^64 + 29', [post(chunked, `1000000000000001d\r\n${good}\r\n0\r\n\r\n`)], [400, 413], closed],
  ['a chunk of 2^63', [post(chunked, '8000000000000000\r\n' + good)], [400, 413], closed],
  ['chunks that add up to 2^64', [post(chunked, `1d\r\n${good}\r\nffffffffffffffe3\r\n`)], [400, 413], closed],
  ['a chunk of a negative size', [post(chunked, `-1d\r\n${good}\r\n0\r\n\r\n`)], 400, closed],
  ['a chunk of no size', [post(chunked, `\r\n${good}\r\n0\r\n\r\n`)], 400, closed],
  ['a chunk of 0x1d', [post(chunked, `0x1d\r\n${good}\r\n0\r\n\r\n`)], 400, closed],
  ['a chunk with a bare LF', [post(chunked, `1d\n${good}\r\n0\r\n\r\n`)], 400, closed],
  ['a chunk with a bare CR in its extension', [post(chunked, `1d;a\rb\r\n${good}\r\n0\r\n\r\n`)], 400, closed],
  ['a chunk longer than it says', [post(chunked, `1c\r\n${good}\r\n0\r\n\r\n`)], 400, closed],
  ['a chunk with a long extension', [post(chunked, `1d;${'a'.repeat(1 << 18)}\r\n${good}\r\n0\r\n\r\n`)], [400, 413, 431], closed],
  ['a trailer that is none', [post(chunked, `1d\r\n${good}\r\n0\r\nbroken\r\n\r\n`)], 400, closed],
  ['a trailer of 1 MiB', [post(chunked, `1d\r\n${good}\r\n0\r\nX: ${'a'.repeat(1 << 20)}\r\n\r\n`)], [400, 413, 431], closed],
  ['10^5 chunks of a byte', [post(chunked, '1\r\n \r\n'.repeat(1e5) + `1d\r\n${good}\r\n0\r\n\r\n`)], 200],
  ['10^5 headers', [post('A: b\r\n'.repeat(1e5))], 431, closed],
  ['a header of 1 MiB', [`GET /health HTTP/1.1\r\n${host}X: ${'a'.repeat(1 << 20)}\r\n\r\n`], 431, closed],
  ['a header that does not end', [`GET /health HTTP/1.1\r\nX: ${'a'.repeat(20000)}`], 431, closed],
  ['a target of 3000 bytes', [`GET /${'a'.repeat(3000)} HTTP/1.1\r\n${host}\r\n`], 414, closed],
  ['a method of 5000 bytes', [`${'A'.repeat(5000)} / HTTP/1.1\r\n${host}\r\n`], [400, 404], false],
  ['no host', ['GET /health HTTP/1.1\r\n\r\n'], 400, closed],
  ['two hosts', [`GET /health HTTP/1.1\r\n${host}${host}\r\n`], 400, closed],
  ['a foreign host', ['GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n'], 403],
  ['a host that begins like ours', ['GET /health HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n\r\n'], 403],
  ['a host with a user', ['GET /health HTTP/1.1\r\nHost: 127.0.0.1@evil.example\r\n\r\n'], 403],
  ['a target that is a URL', [`GET http://127.0.0.1/health HTTP/1.1\r\n${host}\r\n`], 400, closed],
  ['a target of an authority', [`CONNECT 127.0.0.1:80 HTTP/1.1\r\n${host}\r\n`], 400, closed],
  ['a target of *', [`OPTIONS * HTTP/1.1\r\n${host}\r\n`], 400, closed],
  ['a target with a space', [`GET /health x HTTP/1.1\r\n${host}\r\n`], 400, closed],
  ['a target that is no ASCII', [`GET /h\xe4lth HTTP/1.1\r\n${host}\r\n`], 400, closed],
  ['no version', [`GET /health\r\n${host}\r\n`], 400, closed],
  ['HTTP/2.0', [`GET /health HTTP/2.0\r\n${host}\r\n`], [400, 505], closed],
  ['the preface of HTTP/2', ['PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'], [400, 505], closed],
  ['HTTP/0.9', ['GET /health\r\n\r\n'], 400, closed],
  ['chunks of HTTP/1.0', [`POST /v1/completions HTTP/1.0\r\n${host}${json}${chunked}\r\n1d\r\n${good}\r\n0\r\n\r\n`], 400, closed],
  ['a TLS hello', ['\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n'], 400, closed],
  ['random bytes', [Buffer.from(Array.from({ length: 4096 }, (_, i) => (i * 7919 + 13) % 251)), '\r\n\r\n'], 400, closed],
  ['only an end of header', ['\r\n\r\n'], 400, closed],
  ['an unknown expectation', [post(length(good) + 'Expect: wonders\r\n')], [200, 417], false],
  ['an upgrade', [`GET /health HTTP/1.1\r\n${host}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n`], 200],
  ['a request smuggled in a body', [post(length(good), good + `GET /nowhere HTTP/1.1\r\n${host}\r\n`)], 200],
  ['a path that goes up', [`GET /../../etc/passwd HTTP/1.1\r\n${host}\r\n`], 404],
  ['an unknown route', [`GET /v1/nothing HTTP/1.1\r\n${host}\r\n`], 404],
  ['a model with a path', [`GET /v1/models/..%2f..%2fetc HTTP/1.1\r\n${host}\r\n`], 404],
  ['another method', [`GET /v1/completions HTTP/1.1\r\n${host}\r\n`], 405],
  ['a method nobody knows', [`BREW /v1/completions HTTP/1.1\r\n${host}\r\n`], 405],
  ['another content type', [`POST /v1/completions HTTP/1.1\r\n${host}Content-Type: text/plain\r\n${length(good)}\r\n${good}`], 415],
  ['no content type', [`POST /v1/completions HTTP/1.1\r\n${host}${length(good)}\r\n${good}`], 415],
  ['a content type in a trailer', [`POST /v1/completions HTTP/1.1\r\n${host}${chunked}\r\n1d\r\n${good}\r\n0\r\n${json}\r\n`], 415],
];

async function healthy(server, name, headers = {}) {
  const health = await server.get('/health', headers);
  assert.equal(health.status, 200, `health after: ${name}`);
  await health.text();
  await server.idle(2000, headers);
}

async function checkFraming(server) {
  for (const [name, pieces, expected, ends] of framing) {
    const reply = await raw(server.port, pieces, { enough: (text) => !ends && isWhole(text) });
    const wanted = [expected].flat();
    assert.ok(wanted.includes(reply.status), `${name}: expected ${wanted}, got ${reply.status}: ${reply.text.slice(0, 400)}`);
    if (ends) assert.equal(reply.how, 'closed', `${name}: the connection is closed`);
    if (reply.status === 405) assert.match(reply.text, /\r\nAllow: POST\r\n/);
    if (reply.status >= 400) {
      assert.equal(typeof JSON.parse(reply.text.split('\r\n\r\n')[1]).error.message, 'string', name);
    }
    await healthy(server, name);
  }
}

async function checkBody(server, [name, route, body, status, param, text]) {
  const reply = await server.post(route, body);
  const said = await reply.text();
  assert.equal(reply.status, status, `${name}: ${said.slice(0, 300)}`);
  const { error } = JSON.parse(said);
  if (param !== undefined) assert.equal(error.param, param, `${name}: ${said.slice(0, 300)}`);
  if (text) assert.match(error.message, text, name);
  await healthy(server, name);
}

// Members that do nothing are told of, in the reply and in the log.
async function checkIgnored(server) {
  const reply = await server.post('/v1/completions', { prompt: 'a', max_tokens: 1, wonder: 1, 'b\r\nX-Evil: 1': 2 });
  assert.equal(reply.status, 200);
  assert.equal(reply.headers.get('pagefuse-ignored'), 'wonder, b??X-Evil??1');
  assert.equal(reply.headers.get('x-evil'), null);
  assert.match(server.log, /"event":"ignored".*wonder/);
}

// A server with bounds of its own and a key.
async function checkBounds() {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'pagefuse-hostile-'));
  const keys = path.join(folder, 'keys');
  writeFileSync(keys, 'first\nsecond\n');
  const server = await Server.start(['--api-key-file', keys, '--strict', '--max-waiting', '2', '--max-body', '64KiB', '--max-connections', '300', '--allowed-host', 'known.example']);
  const key = { authorization: 'Bearer second' };
  try {
    const body = { prompt: 'a', max_tokens: 1 };
    for (const [headers, status] of [[{}, 401], [{ authorization: 'Bearer third' }, 401], [{ authorization: 'Bearer ' }, 401], [{ authorization: 'second' }, 401],
      [{ 'x-api-key': 'secon' }, 401], [{ 'x-api-key': 'second\x00'.slice(0, 6) }, 200], [key, 200], [{ 'x-api-key': 'first' }, 200]]) {
      assert.equal((await server.post('/v1/completions', body, { headers })).status, status, JSON.stringify(headers));
    }
    assert.equal((await server.get('/metrics')).status, 401);
    assert.equal((await server.get('/health')).status, 200);
    const named = await raw(server.port, ['GET /health HTTP/1.1\r\nHost: KNOWN.example:80\r\n\r\n'], { enough: isWhole });
    assert.equal(named.status, 200);
    const strict = await server.post('/v1/completions', { ...body, wonder: 1 }, { headers: key });
    assert.equal(strict.status, 400);
    assert.equal((await strict.json()).error.param, 'wonder');
    assert.equal((await server.post('/v1/completions', JSON.stringify({ prompt: 'a'.repeat(1 << 16) }), { headers: key })).status, 413);
    await checkQueue(server, key);
    await healthy(server, 'bounds', key);
  } finally {
    assert.equal(await server.stop(), 0);
    rmSync(folder, { recursive: true });
  }
}

// More requests than may wait: some are told so, the others are answered.
async function checkQueue(server, key) {
  const body = { prompt: 'a', max_tokens: 200, ignore_eos: true };
  const replies = await Promise.all(Array.from({ length: 200 }, () => server.post('/v1/completions', body, { headers: key })));
  const full = replies.filter((reply) => reply.status === 429);
  assert.ok(full.length > 0, 'some are refused');
  for (const reply of replies) {
    assert.ok([200, 429].includes(reply.status), `${reply.status}`);
    if (reply.status === 429) assert.equal(reply.headers.get('retry-after'), '1');
    await reply.text();
  }
}

await main(async () => {
  const server = await Server.start();
  await checkFraming(server);
  const bodies = [...badBodies(server.model), ...badFields()];
  const wrong = [];
  for (const one of bodies) await checkBody(server, one).catch((error) => wrong.push(error.message));
  assert.deepEqual(wrong, []);
  await checkIgnored(server);
  assert.equal(await server.stop(), 0);
  await checkBounds();
  console.log(`${framing.length} framings and ${bodies.length} bodies of ${path.basename(recall)}`);
});
