// SPDX-License-Identifier: Apache-2.0
// Anthropic's own client over the Messages API, whole and streamed.
//   node messages.mjs PAGEFUSE NODE_MODULES
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';
import { Server, demo, main } from '../server.mjs';

if (!process.argv[3]) {
  console.error('usage: node messages.mjs PAGEFUSE NODE_MODULES');
  process.exit(2);
}
const Anthropic = createRequire(`${path.resolve(process.argv[3])}/x.js`)('@anthropic-ai/sdk').default;
const server = await Server.start();
const base = server.url;
const client = new Anthropic({ baseURL: base, apiKey: 'none', maxRetries: 0 });
const [facts, question] = demo.trim().split('\n');
const answer = '86 nails.';
const ask = {
  model: 'gemma3_recall', max_tokens: 64, system: facts,
  messages: [{ role: 'user', content: question }],
};

const post = (path, body, method = 'POST') => fetch(base + path, {
  method, headers: { 'content-type': 'application/json', authorization: `Bearer ${'none'}` },
  body: body && JSON.stringify(body),
});

const checks = {
  async 'a whole answer'() {
    const message = await client.messages.create({ ...ask, metadata: { user_id: 'me' } });
    assert.equal(message.type, 'message');
    assert.equal(message.role, 'assistant');
    assert.equal(message.content.length, 1);
    assert.equal(message.content[0].text.trim(), answer);
    assert.equal(message.stop_reason, 'end_turn');
    assert.equal(message.stop_sequence, null);
    assert.ok(message.usage.output_tokens >= 3);
    assert.equal(message._request_id, message.id);
  },
  async 'a prompt that is known is told as read from the cache'() {
    const { usage } = await client.messages.create(ask);
    assert.ok(usage.cache_read_input_tokens > 100);
    assert.equal(usage.cache_creation_input_tokens, 0);
    const { input_tokens } = await client.messages.countTokens({ model: ask.model, system: facts, messages: ask.messages });
    assert.equal(usage.input_tokens + usage.cache_read_input_tokens, input_tokens);
  },
  async 'blocks, with marks of the cache'() {
    const cache_control = { type: 'ephemeral' };
    const message = await client.messages.create({
      ...ask, cache_control,
      system: [{ type: 'text', text: facts, cache_control }],
      messages: [
        { role: 'user', content: [{ type: 'text', text: question, cache_control }] },
        { role: 'assistant', content: [
          { type: 'thinking', thinking: 'hm', signature: 'x' },
          { type: 'redacted_thinking', data: 'x' },
          { type: 'text', text: answer }] },
        { role: 'user', content: question }],
    });
    assert.equal(message.content[0].text.trim(), answer);
  },
  async 'an answer goes back as it came'() {
    const first = await client.messages.create(ask);
    const messages = [...ask.messages, { role: 'assistant', content: first.content }, ...ask.messages];
    const message = await client.messages.create({ ...ask, messages });
    assert.equal(message.content[0].text.trim(), answer);
  },
  async 'why an answer ends'() {
    const cut = await client.messages.create({ ...ask, max_tokens: 1 });
    assert.equal(cut.stop_reason, 'max_tokens');
    assert.equal(cut.usage.output_tokens, 1);
    const stopped = await client.messages.create({ ...ask, stop_sequences: ['xyz', 'nail'] });
    assert.equal(stopped.stop_reason, 'stop_sequence');
    assert.equal(stopped.stop_sequence, 'nail');
    assert.equal(stopped.content[0].text.trim(), '86');
  },
  async 'events come in order'() {
    const types = [];
    let text = '';
    let delta;
    for await (const event of await client.messages.create({ ...ask, stream: true })) {
      types.push(event.type);
      if (event.type === 'content_block_delta') text += event.delta.text;
      if (event.type === 'message_delta') delta = event;
    }
    assert.equal(text.trim(), answer);
    assert.deepEqual(types.filter((type) => type !== 'content_block_delta'),
      ['message_start', 'content_block_start', 'content_block_stop', 'message_delta', 'message_stop']);
    assert.equal(delta.delta.stop_reason, 'end_turn');
    assert.ok(delta.usage.output_tokens >= 3);
  },
  async 'a ping follows the start of a stream'() {
    const text = await (await post('/v1/messages', { ...ask, stream: true })).text();
    const events = text.trim().split('\n\n');
    assert.match(events[0], /^event: message_start\ndata: /);
    assert.equal(events[1], 'event: ping\ndata: {"type": "ping"}');
    for (const event of events) {
      const [, name, data] = event.match(/^event: (\S+)\ndata: (.*)$/);
      assert.equal(JSON.parse(data).type, name);
    }
  },
  async 'the helper of streams'() {
    const stream = client.messages.stream({ ...ask, stop_sequences: ['nail'] });
    let text = '';
    stream.on('text', (piece) => { text += piece; });
    const message = await stream.finalMessage();
    assert.equal(message.content[0].text, text);
    assert.equal(text.trim(), '86');
    assert.equal(message.stop_reason, 'stop_sequence');
    assert.equal(message.stop_sequence, 'nail');
    assert.ok(message.usage.cache_read_input_tokens > 100);
  },
  async 'drawing'() {
    const message = await client.messages.create({ ...ask, temperature: 1, top_k: 1, top_p: 0.5 });
    assert.equal(message.content[0].text.trim(), answer);
    await client.messages.create({ ...ask, thinking: { type: 'enabled', budget_tokens: 1024 } });
    await client.messages.create({ ...ask, thinking: { type: 'disabled' } });
  },
  async 'parameters that are wrong'() {
    const tool = { name: 'f', input_schema: { type: 'object' } };
    const wrong = {
      max_tokens: 0, messages: [], temperature: 1.5, top_p: 'x', top_k: 'x', system: 5, stop_sequences: [''],
      tools: [tool],  // the template of this model shows none
      tool_choice: { type: 'perhaps' }, thinking: { type: 'deep' }, metadata: 5, container: 'x',
    };
    for (const [param, value] of Object.entries(wrong)) await refused({ ...ask, [param]: value }, param);
    const { max_tokens, ...without } = ask;
    await refused(without, 'max_tokens');
    await refused({ ...ask, tools: [{ type: 'web_search_20250305', name: 'web_search' }] }, 'tools[0].type');
  },
  async 'blocks that are wrong'() {
    const source = { type: 'base64', media_type: 'image/png', data: '' };
    for (const type of ['image', 'document']) {
      await refused({ ...ask, messages: [{ role: 'user', content: [{ type, source }] }] }, 'messages[0].content[0].type');
    }
    await refused({ ...ask, messages: [{ role: 'system', content: 'x' }] }, 'messages[0].role');
    await refused({ ...ask, messages: [{ role: 'user', content: [{ type: 'tool_result', tool_use_id: 'x' }] }] },
      'messages[0].content[0].tool_use_id');
    await refused({ ...ask, messages: [...ask.messages, { role: 'assistant', content: 'The' }] }, 'messages');
  },
  async 'errors before a request is read'() {
    await assert.rejects(client.messages.create({ ...ask, model: 'claude' }),
      (error) => error.status === 404 && error.error.error.type === 'not_found_error');
    for (const [path, method, status, type] of [
      ['/v1/messages', 'GET', 405, 'invalid_request_error'],
      ['/v1/messages/batches', 'POST', 404, 'not_found_error']]) {
      const reply = await post(path, method === 'GET' ? undefined : {}, method);
      assert.equal(reply.status, status);
      const body = await reply.json();
      assert.equal(body.type, 'error');
      assert.equal(body.error.type, type);
    }
    const text = await fetch(`${base}/v1/messages`, { method: 'POST', body: '{}', headers: { 'content-type': 'text/plain' } });
    assert.ok([401, 415].includes(text.status));
    assert.equal((await text.json()).type, 'error');
  },
};

async function refused(body, param) {
  for (const stream of [false, true]) {
    await assert.rejects(client.messages.create({ ...body, stream }), (error) => {
      assert.equal(error.status, 400, `${param}: ${error.message}`);
      assert.equal(error.error.type, 'error');
      assert.equal(error.error.error.type, 'invalid_request_error');
      assert.match(error.error.error.message, new RegExp(`^${param.replace(/[[\]]/g, '\\$&')}[.:]`));
      return true;
    });
  }
}

await main(async () => {
  for (const [name, check] of Object.entries(checks)) {
    await check();
    console.log(`ok ${name}`);
  }
  assert.equal(await server.stop(), 0);
});
