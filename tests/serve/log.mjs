// SPDX-License-Identifier: Apache-2.0
// Every line of the log is JSON, finished requests stand in it with what they cost, and no prompt or answer does, whatever is
// sent where.
//   node log.mjs PAGEFUSE
import assert from 'node:assert/strict';
import { Server, events, main, raw } from './server.mjs';

const secret = 'Xylophone-7731';
const user = (content) => [{ role: 'user', content }];

await main(async () => {
  const server = await Server.start();
  const say = async (route, body, status) => {
    const reply = await server.post(route, body);
    const text = await reply.text();
    assert.equal(reply.status, status, text);
    return text;
  };
  const plain = JSON.parse(await say('/v1/completions', { prompt: secret, max_tokens: 3 }, 200));
  await say('/v1/chat/completions', { messages: user(secret), max_tokens: 3, wonder: 1, stop: [secret], cache_salt: secret, user: secret }, 200);
  for await (const event of events(await server.post('/v1/completions', { prompt: secret, max_tokens: 3, stream: true }))) assert.ok(event);
  await say('/v1/completions', { prompt: secret.repeat(1000) }, 400);
  await say('/v1/completions', { prompt: secret, temperature: secret }, 400);
  await say('/v1/completions', `{"prompt":"${secret}"`, 400);
  await say('/v1/completions', { prompt: secret, model: secret }, 404);
  await say('/v1/chat/completions', { messages: [{ role: secret, content: secret }] }, 400);
  await say('/tokenize', { prompt: secret }, 200);
  await raw(server.port, [`GET /${secret} HTTP/1.1\r\nHost: ${secret}\r\nAuthorization: Bearer ${secret}\r\nConnection: close\r\n\r\n`]);
  assert.equal(await server.stop(), 0);
  const lines = server.log.split('\n').filter(Boolean).map((line) => JSON.parse(line));
  for (const line of lines) {
    assert.match(line.time, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    assert.equal(typeof line.event, 'string');
  }
  assert.ok(!server.log.includes(secret.slice(0, 9)), 'no prompt stands in it');
  const request = lines.find((line) => line.event === 'request' && line.id === plain.id);
  assert.equal(request.tokens, plain.usage.completion_tokens);
  assert.equal(request.prompt_tokens, plain.usage.prompt_tokens);
  assert.equal(request.finish, plain.choices[0].finish_reason);
  assert.equal(lines.filter((line) => line.event === 'request').length, 3);
  assert.equal(lines.filter((line) => line.event === 'refused' && line.status === 400).length, 4);
  assert.equal(lines.filter((line) => line.event === 'ignored').length, 1);
  assert.deepEqual([lines.find((line) => line.event !== 'remark').event, lines.at(-2).event, lines.at(-1).event], ['start', 'drain', 'end']);
});
