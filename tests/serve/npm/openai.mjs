// SPDX-License-Identifier: Apache-2.0
// OpenAI's own client for every route of models, completions and chat completions, whole and streamed: answers, choices, seeds,
// stops, logprobs, usage, errors, and that 32 streams at one time give what each gives alone.
//   node openai.mjs PAGEFUSE NODE_MODULES
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { Server, demo, main } from '../server.mjs';

if (!process.argv[3]) {
  console.error('usage: node openai.mjs PAGEFUSE NODE_MODULES');
  process.exit(2);
}
const { default: OpenAI } = await import(pathToFileURL(path.resolve(process.argv[3], 'openai/index.mjs')));

const [facts, question] = demo.trimEnd().split('\n');
const messages = [{ role: 'system', content: facts }, { role: 'user', content: question }];
const answer = '86 nails.';

const collect = async (stream) => {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
};
const chatText = (chunks, index = 0) => chunks.flatMap((chunk) => chunk.choices).filter((choice) => choice.index === index).map((choice) => choice.delta.content ?? '').join('');
const plainText = (chunks, index = 0) => chunks.flatMap((chunk) => chunk.choices).filter((choice) => choice.index === index).map((choice) => choice.text).join('');
const finishes = (chunks) => chunks.flatMap((chunk) => chunk.choices).map((choice) => choice.finish_reason).filter(Boolean);

async function checkModels(client, model) {
  const list = await client.models.list();
  assert.equal(list.data.length, 1);
  assert.equal(list.data[0].id, model);
  assert.equal(list.data[0].object, 'model');
  assert.equal((await client.models.retrieve(model)).max_model_len, 8192);
  const pages = [];
  for await (const one of client.models.list()) pages.push(one.id);
  assert.deepEqual(pages, [model]);
}

async function checkChat(client, model) {
  const body = { model, messages };
  const whole = await client.chat.completions.create(body);
  assert.equal(whole.object, 'chat.completion');
  assert.equal(whole.choices[0].message.content.trim(), answer);
  assert.equal(whole.choices[0].message.role, 'assistant');
  assert.equal(whole.choices[0].finish_reason, 'stop');
  assert.equal(whole.choices[0].logprobs, null);
  assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);
  assert.match(whole.id, /^chatcmpl-/);
  assert.equal(whole._request_id, whole.id);
  const chunks = await collect(await client.chat.completions.create({ ...body, stream: true, stream_options: { include_usage: true } }));
  assert.equal(chatText(chunks).trim(), answer);
  assert.deepEqual(finishes(chunks), ['stop']);
  assert.ok(chunks.filter((chunk) => chunk.choices[0]?.delta.content).length > 3, 'in pieces');
  assert.ok(chunks.every((chunk) => chunk.id === chunks[0].id && chunk.object === 'chat.completion.chunk'));
  assert.equal(chunks[0].choices[0].delta.role, 'assistant');
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.equal(chunks.at(-1).usage.completion_tokens, whole.usage.completion_tokens);
  assert.ok(chunks.at(-1).usage.prompt_tokens_details.cached_tokens > 0, 'the facts were known');
  const helper = client.chat.completions.stream(body);
  assert.equal((await helper.finalChatCompletion()).choices[0].message.content.trim(), answer);
  const parts = messages.map(({ role, content }) => ({ role, content: [{ type: 'text', text: content }] }));
  assert.equal((await client.chat.completions.create({ model, messages: parts })).choices[0].message.content.trim(), answer);
}

async function checkCompletions(client, model) {
  const body = { model, prompt: demo, max_tokens: 32 };
  const whole = await client.completions.create(body);
  assert.equal(whole.object, 'text_completion');
  assert.equal(whole.choices[0].text.trim(), answer);
  const chunks = await collect(await client.completions.create({ ...body, stream: true, stream_options: { include_usage: true } }));
  assert.equal(plainText(chunks), whole.choices[0].text);
  assert.equal(chunks.at(-1).usage.total_tokens, whole.usage.total_tokens);
  const echo = await client.completions.create({ ...body, echo: true });
  assert.equal(echo.choices[0].text, demo + whole.choices[0].text);
  const several = await client.completions.create({ ...body, prompt: [demo, 'a', demo] });
  assert.deepEqual(several.choices.map((choice) => choice.index), [0, 1, 2]);
  assert.equal(several.choices[2].text, whole.choices[0].text);
  const { tokens } = await client.post('../tokenize', { body: { prompt: demo } }).catch(() => ({}));
  if (tokens) assert.equal((await client.completions.create({ ...body, prompt: tokens })).choices[0].text, whole.choices[0].text);
}

// Drawn by seed: the same ones again, others from another seed, and choices that differ.
async function checkDraws(client, model) {
  const body = { model, messages: [{ role: 'user', content: 'The' }], max_tokens: 24, temperature: 1.5, n: 4, seed: 11 };
  const texts = (reply) => reply.choices.map((choice) => choice.message.content);
  const first = texts(await client.chat.completions.create(body));
  assert.deepEqual(texts(await client.chat.completions.create(body)), first);
  assert.notDeepEqual(texts(await client.chat.completions.create({ ...body, seed: 12 })), first);
  assert.ok(new Set(first).size > 1);
  const chunks = await collect(await client.chat.completions.create({ ...body, stream: true }));
  assert.deepEqual(first.map((_, index) => chatText(chunks, index)), first);
  assert.equal(finishes(chunks).length, 4);
  const plain = await client.completions.create({ model, prompt: 'The', max_tokens: 24, temperature: 1.5, n: 3, seed: -5 });
  assert.equal(plain.choices.length, 3);
}

async function checkEnds(client, model) {
  const body = { model, messages, max_completion_tokens: 32 };
  const text = (reply) => reply.choices[0].message.content;
  const stopped = await client.chat.completions.create({ ...body, stop: ['nai', 'never'] });
  assert.equal(text(stopped).trim(), '86');
  assert.equal(stopped.choices[0].finish_reason, 'stop');
  assert.equal(stopped.choices[0].stop_reason, 'nai');
  const streamed = await collect(await client.chat.completions.create({ ...body, stop: 'nai', stream: true }));
  assert.equal(chatText(streamed), text(stopped));
  const short = await client.chat.completions.create({ ...body, max_completion_tokens: 2 });
  assert.equal(short.choices[0].finish_reason, 'length');
  assert.equal(short.usage.completion_tokens, 2);
  assert.equal((await client.completions.create({ model, prompt: demo, stop: '.' })).choices[0].text.trim(), '86 nails');
}

async function checkLogprobs(client, model) {
  const body = { model, messages, logprobs: true, top_logprobs: 3 };
  const whole = (await client.chat.completions.create(body)).choices[0];
  const { content } = whole.logprobs;
  assert.equal(Buffer.concat(content.map((token) => Buffer.from(token.bytes))).toString().trimEnd(), whole.message.content.trimEnd());
  for (const token of content) {
    assert.ok(token.logprob <= 0);
    assert.equal(token.top_logprobs.length, 3);
    assert.deepEqual([token.top_logprobs[0].token, token.top_logprobs[0].logprob], [token.token, token.logprob], 'the likeliest one was taken');
  }
  const chunks = await collect(await client.chat.completions.create({ ...body, stream: true }));
  assert.deepEqual(chunks.flatMap((chunk) => chunk.choices[0]?.logprobs?.content ?? []), content);
  const lists = (await client.completions.create({ model, prompt: demo, logprobs: 2 })).choices[0].logprobs;
  assert.equal(lists.tokens.length, lists.token_logprobs.length);
  assert.ok(lists.top_logprobs.every((top) => Object.keys(top).length >= 2));
  assert.equal(lists.text_offset[0], 0);
}

// What streams at one time give, bit for bit, is what each gives alone.
async function checkTogether(client, model) {
  const requests = Array.from({ length: 32 }, (_, i) => ({
    model, messages: [{ role: 'system', content: facts.slice(0, 100 + 50 * i) }, { role: 'user', content: question }],
    max_tokens: 40, logprobs: true, top_logprobs: 2, stream: true, ignore_eos: true, ...(i % 2 ? { temperature: 0.9, seed: i } : {}),
  }));
  const run = async (request) => {
    const chunks = await collect(await client.chat.completions.create(request));
    return JSON.stringify([chatText(chunks), chunks.flatMap((chunk) => chunk.choices[0]?.logprobs?.content ?? [])]);
  };
  const together = await Promise.all(requests.map(run));
  for (let i = 0; i < requests.length; ++i) assert.equal(together[i], await run(requests[i]), `stream ${i}`);
  assert.ok(new Set(together).size > 20, 'they are not all alike');
}

// A stream that is aborted frees what it had.
async function checkAbort(server, client, model) {
  const stream = await client.chat.completions.create({ model, messages, max_tokens: 4000, ignore_eos: true, stream: true });
  for await (const chunk of stream) if (chunk.choices[0].delta.content) break;
  await server.idle(5000);
}

async function checkErrors(server, client, model) {
  const chat = (more) => () => client.chat.completions.create({ model, messages, ...more });
  const plain = (more) => () => client.completions.create({ model, prompt: 'a', ...more });
  const user = (content) => [{ role: 'user', content }];
  const { BadRequestError, NotFoundError } = OpenAI;
  const errors = [
    [chat({ model: 'gpt-5' }), NotFoundError, 404, 'model', 'model_not_found'],
    [plain({ model: 'gpt-5' }), NotFoundError, 404, 'model', 'model_not_found'],
    [() => client.models.retrieve('gpt-5'), NotFoundError, 404, 'model', 'model_not_found'],
    [() => client.embeddings.create({ model, input: 'a', encoding_format: 'float' }), NotFoundError, 404],
    [chat({ messages: [] }), BadRequestError, 400, 'messages'],
    [chat({ messages: undefined }), BadRequestError, 400, 'messages'],
    [chat({ messages: [{ role: 'robot', content: 'a' }] }), BadRequestError, 400, 'messages[0].role'],
    [chat({ messages: user([{ type: 'image_url', image_url: { url: 'https://a.example/b.png' } }]) }), BadRequestError, 400, 'messages[0].content[0].type'],
    [chat({ messages: user([{ type: 'input_audio', input_audio: { data: '', format: 'wav' } }]) }), BadRequestError, 400, 'messages[0].content[0].type'],
    [chat({ temperature: 3 }), BadRequestError, 400, 'temperature'],
    [chat({ temperature: 'hot' }), BadRequestError, 400, 'temperature'],
    [chat({ top_p: -1 }), BadRequestError, 400, 'top_p'],
    [chat({ n: 100 }), BadRequestError, 400, 'n'],
    [chat({ store: true }), BadRequestError, 400, 'store'],
    [chat({ modalities: ['text', 'audio'] }), BadRequestError, 400, 'modalities'],
    [chat({ top_logprobs: 2 }), BadRequestError, 400, 'top_logprobs'],
    [chat({ logprobs: true, top_logprobs: 21 }), BadRequestError, 400, 'top_logprobs'],
    [chat({ max_tokens: 100000 }), BadRequestError, 400, 'messages', 'context_length_exceeded'],
    [chat({ messages: user('a'.repeat(9000)) }), BadRequestError, 400, 'messages', 'context_length_exceeded'],
    [plain({ prompt: [] }), BadRequestError, 400, 'prompt'],
    [plain({ best_of: 3 }), BadRequestError, 400, 'best_of'],
    [plain({ suffix: 'b' }), BadRequestError, 400, 'suffix'],
    [plain({ logit_bias: { 1: 200 } }), BadRequestError, 400, 'logit_bias.1'],
    [plain({ stop: Array(17).fill('a') }), BadRequestError, 400, 'stop'],
    [chat({ temperature: 3, stream: true }), BadRequestError, 400, 'temperature'],
  ];
  for (const [call, kind, status, param, code] of errors) {
    const error = await call().then(() => assert.fail(`expected ${status} for ${param}`), (caught) => caught);
    assert.ok(error instanceof kind, `${error}`);
    assert.equal(error.status, status);
    if (param) assert.equal(error.param, param, `${error}`);
    if (code) assert.equal(error.code, code);
    assert.ok(error.message.length > 10 && error.type, 'says what is wrong');
  }
  return errors.length;
}

async function checkKeys() {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'pagefuse-keys-'));
  writeFileSync(path.join(folder, 'keys'), 'right\n');
  const server = await Server.start(['--api-key-file', path.join(folder, 'keys')]);
  const with_key = (apiKey) => new OpenAI({ baseURL: `${server.url}/v1`, apiKey, maxRetries: 0 });
  assert.equal((await with_key('right').chat.completions.create({ model: server.model, messages })).choices[0].message.content.trim(), answer);
  await assert.rejects(with_key('wrong').models.list(), OpenAI.AuthenticationError);
  assert.equal(await server.stop(), 0);
  rmSync(folder, { recursive: true });
}

await main(async () => {
  const server = await Server.start();
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
  const { model } = server;
  await checkModels(client, model);
  await checkChat(client, model);
  await checkCompletions(client, model);
  await checkDraws(client, model);
  await checkEnds(client, model);
  await checkLogprobs(client, model);
  await checkTogether(client, model);
  await checkAbort(server, client, model);
  const errors = await checkErrors(server, client, model);
  assert.equal((await server.get('/health')).status, 200);
  await server.idle(2000);
  assert.equal(await server.stop(), 0);
  await checkKeys();
  console.log(`openai: all routes, ${errors} kinds of errors, 32 streams as alone`);
});
