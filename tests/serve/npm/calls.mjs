// SPDX-License-Identifier: Apache-2.0
// Calls of tools by random weights: with `required` and by name all of them are valid by ajv, in every format of calls, whole and
// streamed; and conversations with calls and their results through the clients of OpenAI and of Anthropic.
//   node calls.mjs PAGEFUSE NODE_MODULES [CALLS]
import assert from 'node:assert/strict';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { formats, makeByteChat, tokens } from '../byte_chat.mjs';
import { newAjv, together } from '../judge.mjs';
import { Server, events, main } from '../server.mjs';

if (!process.argv[3]) {
  console.error('usage: node calls.mjs PAGEFUSE NODE_MODULES [CALLS]');
  process.exit(2);
}
const modules = process.argv[3];
const ajv = await newAjv(modules);
const most = Number(process.argv[4] ?? 500);
const load = async (name) => (await import(pathToFileURL(path.resolve(modules, name)))).default;

const object = (properties, others = {}) => ({ type: 'object', properties, additionalProperties: false, ...others });
// Of values that every format can be held to.
const flat = {
  weather: object({ city: { type: 'string' }, unit: { type: 'string', enum: ['celsius', 'fahrenheit'] }, days: { type: 'integer', minimum: 1, maximum: 14 } }, { required: ['city', 'days'] }),
  switch_light: object({ on: { type: 'boolean' }, level: { type: 'integer', minimum: 0, maximum: 100 } }, { required: ['on'] }),
  'get-time': object({}),
  optional: object({ a: { type: 'string' }, b: { type: 'integer' }, c: { type: 'boolean' } }),
};
const nested = {
  search: object({ query: { type: 'string', minLength: 1, maxLength: 40 }, tags: { type: 'array', items: { enum: ['a', 'b', 'c"d', 'é'] }, maxItems: 3 }, since: { type: 'string', format: 'date' } }, { required: ['query', 'tags'] }),
  book: object({ guest: object({ name: { type: 'string', maxLength: 20 }, age: { type: 'integer', minimum: 0, maximum: 120 } }, { required: ['name'] }), nights: { type: 'integer', exclusiveMinimum: 0, maximum: 30 }, room: { const: 'double' } }, { required: ['guest', 'nights', 'room'] }),
  draw: object({ shape: { $ref: '#/$defs/shape' } }, { required: ['shape'], $defs: { shape: { anyOf: [object({ r: { type: 'integer', minimum: 1 } }, { required: ['r'] }), object({ parts: { type: 'array', items: { $ref: '#/$defs/shape' }, maxItems: 2 } }, { required: ['parts'] })] } } }),
};
// Lists and objects are JSON here, and texts stand as they are.
const mixed = { ...flat, book: object({ guest: nested.book.properties.guest, kinds: { type: 'array', items: { type: 'integer' }, maxItems: 2 } }, { required: ['guest'] }), draw: nested.draw };
const toolsOf = { hermes: { ...flat, ...nested }, deepseek_v3: { ...flat, ...nested }, deepseek_v31: { ...flat, ...nested }, llama3_json: { ...flat, ...nested }, deepseek_v32: mixed, functiongemma: flat };
const listOf = (schemas) => Object.entries(schemas).map(([name, parameters]) => ({ type: 'function', function: { name, description: `does ${name}`, parameters } }));
const messages = [{ role: 'user', content: 'Do it.' }];
const byName = (name) => ({ type: 'function', function: { name } });
// The ends of texts, so that calls end.
const ends = Object.fromEntries([...Buffer.from('"]}')].map((end) => [end, 6]));
const endsOf = (format) => (toolsOf[format] === flat ? { [tokens.firstMark - 2]: 8 } : format === 'deepseek_v32' ? { ...ends, 60: 6 } : ends);

function checkCall(format, call, names) {
  assert.equal(call.type, 'function');
  assert.match(call.id, /^call_/);
  assert.ok(names.includes(call.function.name), call.function.name);
  const value = JSON.parse(call.function.arguments);
  const isValid = ajv.compile(toolsOf[format][call.function.name]);
  assert.ok(isValid(value), `${format}: ${call.function.name}(${call.function.arguments}): ${ajv.errorsText(isValid.errors)}`);
}

// The whole of a streamed answer's choices, as a reply that is not streamed has it.
async function joined(response) {
  const choices = [];
  for await (const chunk of events(response)) {
    for (const { index, delta, finish_reason: finish } of chunk.choices) {
      choices[index] ??= { message: { content: null, tool_calls: [] }, finish_reason: null };
      const choice = choices[index];
      if (delta.content) choice.message.content = (choice.message.content ?? '') + delta.content;
      for (const piece of delta.tool_calls ?? []) {
        const calls = choice.message.tool_calls;
        if (piece.id) {
          assert.equal(piece.index, calls.length, 'calls come in order');
          calls.push({ id: piece.id, type: piece.type, function: { name: piece.function.name, arguments: '' } });
        }
        calls[piece.index].function.arguments += piece.function.arguments ?? '';
      }
      choice.finish_reason = finish ?? choice.finish_reason;
    }
  }
  return choices;
}

const said = (choice) => [choice.message.content, choice.finish_reason, (choice.message.tool_calls ?? []).map((call) => call.function)];

// Answers until there are `wanted` calls; what reaches max_tokens is counted apart.
async function checkFormat(server, format, wanted) {
  const schemas = toolsOf[format];
  const names = Object.keys(schemas);
  const count = { calls: 0, answers: 0, cut: 0, several: 0 };
  const choices = ['required', ...names.map(byName)];
  await together(8, Array.from({ length: Math.ceil(wanted / 4) }), async (_, seed) => {
    if (count.calls >= wanted) return;
    const choice = seed % 2 === 0 ? 'required' : choices[1 + (seed >> 1) % names.length];
    const parallel = seed % 4 !== 2;
    const body = { messages, tools: listOf(schemas), tool_choice: choice, parallel_tool_calls: parallel, n: 8, seed, temperature: 1 + (seed % 3) / 2, max_tokens: 1500, logit_bias: endsOf(format) };
    const response = await server.post('/v1/chat/completions', body);
    const reply = await response.json();
    assert.equal(response.status, 200, JSON.stringify(reply));
    const whole = reply.choices;
    if (seed % 5 === 0) {
      const pieces = await joined(await server.post('/v1/chat/completions', { ...body, stream: true }));
      assert.deepEqual(pieces.map(said), whole.map(said), 'streamed as whole');
    }
    for (const { message, finish_reason: finish } of whole) {
      ++count.answers;
      if (finish === 'length') {
        ++count.cut;
        continue;
      }
      assert.equal(finish, 'tool_calls', `${format}: ${JSON.stringify(message)}`);
      assert.equal(message.content, null, `${format}: nothing but calls`);
      const calls = message.tool_calls;
      assert.ok(calls.length >= 1);
      if (!parallel || choice !== 'required') assert.equal(calls.length, 1);
      count.several += calls.length > 1;
      const allowed = choice === 'required' ? names : [choice.function.name];
      for (const call of calls) checkCall(format, call, allowed);
      count.calls += calls.length;
    }
  });
  assert.ok(count.calls >= wanted, `${format}: ${JSON.stringify(count)}`);
  assert.ok(count.several > 0, `${format}: several calls in one answer`);
  return count;
}

// Schemas that a format cannot be held to are refused where calls are promised, and only there.
async function checkLimits(server, format) {
  const tool = (parameters, strict = false) => [{ type: 'function', function: { name: 'f', parameters, strict } }];
  const text = object({ a: { type: 'string', minLength: 2 } }, { required: ['a'] });
  const list = object({ a: { type: 'array', items: { type: 'integer' } } }, { required: ['a'] });
  const refused = format === 'functiongemma' ? [text, list] : format === 'deepseek_v32' ? [text] : [];
  refused.push({ type: 'object', patternProperties: { a: {} } }, { type: 'string' }, { type: 'object', properties: { a: { type: 'text' } } });
  const ask = (body) => server.post('/v1/chat/completions', { messages, max_tokens: 8, ...body });
  for (const parameters of refused) {
    for (const body of [{ tools: tool(parameters), tool_choice: 'required' }, { tools: tool(parameters), tool_choice: byName('f') }]) {
      const response = await ask(body);
      const { error } = await response.json();
      assert.equal(response.status, 400, `${format}: ${JSON.stringify(parameters)}`);
      assert.equal(error.param, 'tools');
      assert.match(error.message, /"f".*expected/s);
    }
    assert.equal((await ask({ tools: tool(parameters) })).status, 200, `${format}: nothing was promised`);
  }
}

// With `auto` and the opening mark made likely, calls are held to their schemas from the mark on, and texts are texts.
async function checkAuto(server, format) {
  const names = Object.keys(toolsOf[format]);
  const count = { calls: 0, texts: 0 };
  await together(8, Array.from({ length: 12 }), async (_, seed) => {
    const bias = { ...endsOf(format), [tokens.firstMark]: seed % 3 ? 8 : -100, [tokens.end]: 6 };
    const response = await server.post('/v1/chat/completions', { messages, tools: listOf(toolsOf[format]), n: 4, seed, temperature: 1, max_tokens: 1500, logit_bias: bias });
    const reply = await response.json();
    assert.equal(response.status, 200, JSON.stringify(reply));
    for (const { message, finish_reason: finish } of reply.choices) {
      if (finish === 'length') continue;
      assert.equal(finish, message.tool_calls ? 'tool_calls' : 'stop');
      if (!message.tool_calls) ++count.texts;
      for (const call of message.tool_calls ?? []) {
        checkCall(format, call, names);
        ++count.calls;
      }
    }
  });
  assert.ok(count.calls > 0 && count.texts > 0, `${format}: ${JSON.stringify(count)}`);
  return count;
}

// A schema binds what follows the reasoning.
async function checkReasoning(format, flags) {
  const server = await Server.start(['--check-paging', 'never', ...flags], makeByteChat(format));
  const schema = object({ a: { type: 'integer', minimum: 0, maximum: 99 } }, { required: ['a'] });
  const format_of = { type: 'json_schema', json_schema: { name: 's', schema } };
  const count = { reasoned: 0, direct: 0 };
  for (let seed = 0; seed < 8; ++seed) {
    const response = await server.post('/v1/chat/completions', {
      messages, n: 8, seed, temperature: 1, max_tokens: 800, response_format: format_of, logit_bias: { [tokens.thinkEnd]: 5, [tokens.think]: seed % 2 ? 8 : -100 },
    });
    const reply = await response.json();
    assert.equal(response.status, 200, JSON.stringify(reply));
    let reasoned = 0;
    for (const { message, finish_reason: finish } of reply.choices) {
      if (message.reasoning) ++reasoned;
      assert.equal(message.reasoning, message.reasoning_content);
      if (finish === 'length') continue;
      ajv.validate(schema, JSON.parse(message.content)) || assert.fail(message.content);
      ++count[message.reasoning ? 'reasoned' : 'direct'];
    }
    const counted = reply.usage.completion_tokens_details.reasoning_tokens;
    assert.ok(reasoned ? counted > 0 && counted < reply.usage.completion_tokens : counted === 0);
  }
  const response = await server.post('/v1/chat/completions', {
    messages, n: 8, seed: 9, temperature: 1, max_tokens: 800, tools: listOf(flat), tool_choice: 'required', logit_bias: { ...ends, [tokens.thinkEnd]: 5, [tokens.think]: 8 },
  });
  const { choices } = await response.json();
  const called = choices.filter(({ message }) => message.reasoning && message.tool_calls);
  assert.ok(called.length > 0, 'reasons, and then calls');
  called.filter((choice) => choice.finish_reason === 'tool_calls').forEach(({ message }) => message.tool_calls.forEach((call) => checkCall(format, call, Object.keys(flat))));
  assert.ok(count.reasoned > 0, JSON.stringify(count));
  assert.equal(await server.stop(), 0);
  return count;
}

// Turns with calls and their results.
async function checkTurns(server) {
  const call = (id, name, value) => ({ id, type: 'function', function: { name, arguments: JSON.stringify(value) } });
  const turns = [{ role: 'user', content: 'weather?' }, { role: 'assistant', content: null, tool_calls: [call('call_1', 'weather', { city: 'Köln', days: 2 }), call('call_2', 'get-time', {})] },
    { role: 'tool', tool_call_id: 'call_1', content: '{"rain":true}' }, { role: 'tool', tool_call_id: 'call_2', content: '12:00' }];
  const one = [turns[0], { ...turns[1], tool_calls: turns[1].tool_calls.slice(0, 1) }, turns[2]];
  for (const list of server.format === 'llama3_json' ? [one] : [one, turns]) {
    const response = await server.post('/v1/chat/completions', { messages: list, tools: listOf(flat), max_tokens: 20, seed: 1 });
    const reply = await response.json();
    assert.equal(response.status, 200, `${server.format}: ${JSON.stringify(reply)}`);
    assert.ok(reply.usage.completion_tokens > 0);
  }
}

async function checkOpenAi(server) {
  const OpenAI = await load('openai/index.mjs');
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
  const body = { model: server.model, messages, tools: listOf(flat), tool_choice: 'required', temperature: 1, logit_bias: ends, max_tokens: 1500, seed: 3 };
  const whole = (await client.chat.completions.create(body)).choices[0];
  assert.equal(whole.finish_reason, 'tool_calls');
  whole.message.tool_calls.forEach((call) => checkCall('hermes', call, Object.keys(flat)));
  const streamed = (await client.chat.completions.stream(body).finalChatCompletion()).choices[0];
  assert.deepEqual(streamed.message.tool_calls.map((call) => [call.function.name, call.function.arguments]), whole.message.tool_calls.map((call) => [call.function.name, call.function.arguments]));
  // The calls answered, in chat and in responses.
  const results = whole.message.tool_calls.map((call) => ({ role: 'tool', tool_call_id: call.id, content: 'done' }));
  const next = await client.chat.completions.create({ ...body, messages: [...messages, whole.message, ...results], tool_choice: 'none', max_tokens: 10 });
  assert.ok(next.usage.completion_tokens > 0);

  const tools = Object.entries(flat).map(([name, parameters]) => ({ type: 'function', name, parameters, strict: true }));
  const wanted = { model: server.model, input: 'Do it.', tools, tool_choice: { type: 'function', name: 'switch_light' }, temperature: 1, max_output_tokens: 1500, store: false };
  const response = await client.responses.create(wanted);
  const calls = response.output.filter((item) => item.type === 'function_call');
  assert.equal(response.status, 'completed');
  assert.equal(calls.length, 1);
  assert.equal(calls[0].name, 'switch_light');
  ajv.validate(flat.switch_light, JSON.parse(calls[0].arguments)) || assert.fail(calls[0].arguments);
  const input = [{ role: 'user', content: 'Do it.' }, ...response.output, { type: 'function_call_output', call_id: calls[0].call_id, output: 'done' }];
  const after = await client.responses.create({ ...wanted, input, tool_choice: 'none', max_output_tokens: 10 });
  assert.ok(after.usage.output_tokens > 0);
  let pieces = '', done = null;
  for await (const event of await client.responses.create({ ...wanted, stream: true })) {
    if (event.type === 'response.function_call_arguments.delta') pieces += event.delta;
    if (event.type === 'response.function_call_arguments.done') done = event.arguments;
  }
  assert.equal(pieces, done);
  ajv.validate(flat.switch_light, JSON.parse(done)) || assert.fail(done);
  const schema = object({ a: { enum: ['x', 'y'] } }, { required: ['a'] });
  const formed = await client.responses.create({ model: server.model, input: 'Do it.', store: false, max_output_tokens: 100, text: { format: { type: 'json_schema', name: 's', schema, strict: true } } });
  ajv.validate(schema, JSON.parse(formed.output_text)) || assert.fail(formed.output_text);
}

async function checkAnthropic(server) {
  const Anthropic = await load('@anthropic-ai/sdk/index.mjs');
  const client = new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0 });
  const tools = Object.entries(flat).map(([name, schema]) => ({ name, input_schema: schema }));
  const body = { model: server.model, max_tokens: 1500, messages, tools, tool_choice: { type: 'tool', name: 'switch_light' }, temperature: 1 };
  const whole = await client.messages.create(body);
  assert.equal(whole.stop_reason, 'tool_use');
  const uses = whole.content.filter((block) => block.type === 'tool_use');
  assert.equal(uses.length, 1);
  assert.equal(uses[0].name, 'switch_light');
  ajv.validate(flat.switch_light, uses[0].input) || assert.fail(JSON.stringify(uses[0].input));
  const streamed = await client.messages.stream(body).finalMessage();
  assert.equal(streamed.stop_reason, 'tool_use');
  ajv.validate(flat.switch_light, streamed.content.find((block) => block.type === 'tool_use').input) || assert.fail('streamed input');
  const turns = [...messages, { role: 'assistant', content: whole.content }, { role: 'user', content: [{ type: 'tool_result', tool_use_id: uses[0].id, content: 'done' }] }];
  const next = await client.messages.create({ ...body, messages: turns, tool_choice: { type: 'none' }, max_tokens: 10 });
  assert.ok(next.usage.output_tokens > 0);
  const any = await client.messages.create({ ...body, tools: tools.slice(1, 3), tool_choice: { type: 'any', disable_parallel_tool_use: true } });
  assert.equal(any.content.filter((block) => block.type === 'tool_use').length, 1);
}

await main(async () => {
  const said_of = [];
  for (const format of Object.keys(formats)) {
    const server = await Server.start(['--reasoning', 'none', '--check-paging', 'never'], makeByteChat(format));
    server.format = format;
    const count = await checkFormat(server, format, format === 'hermes' ? most : Math.ceil(most / 5));
    await checkLimits(server, format);
    const auto = format === 'llama3_json' || format === 'deepseek_v32' ? null : await checkAuto(server, format);
    await checkTurns(server);
    if (format === 'hermes') {
      await checkOpenAi(server);
      await checkAnthropic(server);
    }
    await server.idle(2000);
    assert.equal(await server.stop(), 0);
    said_of.push(`${format}: ${count.calls} of ${count.calls} calls valid in ${count.answers} answers, ${count.cut} reached max_tokens${auto ? `; auto: ${auto.calls} calls, ${auto.texts} texts` : ''}`);
  }
  const { reasoned, direct } = await checkReasoning('hermes', []);
  const forced = await checkReasoning('deepseek_v3', []);
  console.log(`calls:\n  ${said_of.join('\n  ')}\n  schemas behind reasoning: ${reasoned} answers that reason, ${direct} that do not; begun by the template: ${forced.reasoned}`);
});
