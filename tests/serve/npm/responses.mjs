// SPDX-License-Identifier: Apache-2.0
// OpenAI's own client over the Responses API, whole and streamed.
//   node responses.mjs PAGEFUSE NODE_MODULES
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';
import { Server, demo, main } from '../server.mjs';

if (!process.argv[3]) {
  console.error('usage: node responses.mjs PAGEFUSE NODE_MODULES');
  process.exit(2);
}
const OpenAI = createRequire(`${path.resolve(process.argv[3])}/x.js`)('openai').default;
const server = await Server.start();
const base = server.url;
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: 'none', maxRetries: 0 });
const [facts, question] = demo.trim().split('\n');
const answer = '86 nails.';
const ask = { model: 'gemma3_recall', instructions: facts, input: question };

const checks = {
  async 'a whole answer'() {
    const response = await client.responses.create({ ...ask, metadata: { a: 'b' }, user: 'me' });
    assert.equal(response.output_text.trim(), answer);
    assert.equal(response.object, 'response');
    assert.equal(response.status, 'completed');
    assert.equal(response.store, false);
    assert.deepEqual(response.metadata, { a: 'b' });
    assert.equal(response.output.length, 1);
    assert.equal(response.output[0].role, 'assistant');
    const { usage } = response;
    assert.ok(usage.input_tokens > 100 && usage.output_tokens >= 3);
    assert.equal(usage.total_tokens, usage.input_tokens + usage.output_tokens);
    assert.equal(usage.output_tokens_details.reasoning_tokens, 0);
  },
  async 'a prompt that is known is told as cached'() {
    const { usage } = await client.responses.create(ask);
    assert.ok(usage.input_tokens_details.cached_tokens > 100);
  },
  async 'items instead of a text'() {
    const input = [
      { role: 'developer', content: [{ type: 'input_text', text: facts }] },
      { type: 'message', role: 'user', content: [{ type: 'input_text', text: question }] },
      { type: 'message', role: 'assistant', id: 'msg_1', status: 'completed',
        content: [{ type: 'output_text', text: answer, annotations: [] }] },
      { type: 'reasoning', id: 'rs_1', summary: [] },
      { role: 'user', content: question },
    ];
    const response = await client.responses.create({ model: 'gemma3_recall', input });
    assert.equal(response.output_text.trim(), answer);
  },
  async 'an answer goes back as it came'() {
    const first = await client.responses.create(ask);
    const input = [{ role: 'user', content: question }, ...first.output, { role: 'user', content: question }];
    const response = await client.responses.create({ ...ask, input });
    assert.equal(response.output_text.trim(), answer);
  },
  async 'an answer that is cut off'() {
    const response = await client.responses.create({ ...ask, max_output_tokens: 1 });
    assert.equal(response.status, 'incomplete');
    assert.equal(response.incomplete_details.reason, 'max_output_tokens');
    assert.equal(response.output[0].status, 'incomplete');
    assert.equal(response.usage.output_tokens, 1);
  },
  async 'events come in order'() {
    const types = [];
    let text = '';
    let last;
    for await (const event of await client.responses.create({ ...ask, stream: true })) {
      assert.equal(event.sequence_number, types.length);
      types.push(event.type);
      if (event.type === 'response.output_text.delta') text += event.delta;
      if (event.type === 'response.output_text.done') assert.equal(event.text, text);
      last = event;
    }
    assert.equal(text.trim(), answer);
    assert.deepEqual(types.filter((type) => !type.endsWith('delta')),
      ['response.created', 'response.in_progress', 'response.output_item.added',
        'response.content_part.added', 'response.output_text.done', 'response.content_part.done',
        'response.output_item.done', 'response.completed']);
    assert.ok(types.filter((type) => type === 'response.output_text.delta').length >= 2);
    assert.equal(last.response.output[0].content[0].text, text);
    assert.ok(last.response.usage.output_tokens >= 3);
  },
  async 'a stream that is cut off'() {
    let last;
    for await (const event of await client.responses.create({ ...ask, stream: true, max_output_tokens: 1 })) last = event;
    assert.equal(last.type, 'response.incomplete');
    assert.equal(last.response.incomplete_details.reason, 'max_output_tokens');
  },
  async 'the helper of streams'() {
    const stream = client.responses.stream(ask);
    let text = '';
    stream.on('response.output_text.delta', (event) => { text += event.delta; });
    const response = await stream.finalResponse();
    assert.equal(response.output_text, text);
    assert.equal(text.trim(), answer);
    assert.equal(response.status, 'completed');
  },
  async 'logprobs'() {
    const wanted = { ...ask, include: ['message.output_text.logprobs'], top_logprobs: 3 };
    const response = await client.responses.create(wanted);
    const { logprobs, text } = response.output[0].content[0];
    assert.equal(logprobs.map((one) => one.token).join(''), text);
    for (const one of logprobs) {
      assert.ok(one.logprob <= 0 && one.top_logprobs.length === 3);
      assert.equal(one.top_logprobs[0].token, one.token);
    }
    const streamed = [];
    for await (const event of await client.responses.create({ ...wanted, stream: true })) {
      if (event.type === 'response.output_text.delta') streamed.push(...event.logprobs);
    }
    assert.deepEqual(streamed, logprobs);
  },
  async 'a seed draws the same twice'() {
    const drawn = async () => (await client.responses.create(
      { ...ask, temperature: 1.5, top_p: 0.9, seed: 7, max_output_tokens: 12 })).output_text;
    assert.equal(await drawn(), await drawn());
  },
  async 'parameters that are not to be had'() {
    const schema = { type: 'function', name: 'f', parameters: { type: 'object' }, strict: true };
    const wrong = {
      previous_response_id: 'resp_1', conversation: 'conv_1', background: true, store: true,
      prompt: { id: 'pmpt_1' }, truncation: 'auto', input: 5, temperature: 'hot', top_p: 2,
      max_output_tokens: 0, metadata: 'none', instructions: 3, top_logprobs: 2, tool_choice: 'maybe',
      tools: [schema],  // the template of this model shows none
    };
    for (const [param, value] of Object.entries(wrong)) {
      await refused({ ...ask, [param]: value }, param);
    }
    for (const type of ['web_search', 'file_search', 'code_interpreter', 'computer_use_preview', 'mcp', 'image_generation']) {
      await refused({ ...ask, tools: [{ type }] }, 'tools[0].type');
    }
  },
  async 'items that are wrong'() {
    const image = { type: 'input_image', image_url: 'data:,', detail: 'auto' };
    await refused({ ...ask, input: [] }, 'input');
    await refused({ ...ask, input: [{ role: 'user', content: [image] }] }, 'input[0].content[0].type');
    await refused({ ...ask, input: [{ role: 'owner', content: 'x' }] }, 'input[0].role');
    await refused({ ...ask, input: [{ type: 'item_reference', id: 'x' }] }, 'input[0].type');
    await refused({ ...ask, input: [{ type: 'function_call_output', call_id: 'x', output: 'y' }] }, 'input[0].call_id');
    await refused({ ...ask, text: { format: { type: 'grammar' } } }, 'text.format.type');
    await refused({ ...ask, include: ['file_search_call.results'] }, 'include[0]');
    await assert.rejects(client.responses.create({ ...ask, model: 'gpt-5' }),
      (error) => error.status === 404 && error.code === 'model_not_found');
  },
};

async function refused(body, param) {
  for (const stream of [false, true]) {
    await assert.rejects(client.responses.create({ ...body, stream }), (error) => {
      assert.equal(error.status, 400, `${param}: ${error.message}`);
      assert.equal(error.type, 'invalid_request_error');
      assert.equal(error.param, param);
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
