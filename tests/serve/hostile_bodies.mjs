// SPDX-License-Identifier: Apache-2.0
// Bodies that are refused, for hostile.mjs: name, route, body, status, param, what the message says.

const completions = '/v1/completions';
const chat = '/v1/chat/completions';
const messages = [{ role: 'user', content: 'a' }];

// Text that is no JSON, or more of it than is taken.
function badTexts() {
  const deep = (n) => '{"prompt":'.concat('['.repeat(n), ']'.repeat(n), '}');
  const texts = [
    ['nothing', '', /line 1, column 1/],
    ['no JSON', 'hello', /line 1/],
    ['half an object', '{"prompt":"a"', /line 1, column 14/],
    ['a place in line 3', '{"prompt":"a",\n"n":1,\n x}', /line 3/],
    ['a comma too many', '{"prompt":"a",}', /line 1/],
    ['a comment', '{"prompt":"a"/* */}', /line 1/],
    ['text behind the end', '{"prompt":"a"} {}', /line 1/],
    ['a NUL behind the end', '{"prompt":"a"}\0{}', /line 1/],
    ['a NUL in a text', '{"prompt":"a\0b"}', /line 1/],
    ['a line break in a text', '{"prompt":"a\nb"}', /line 1/],
    ['NaN', '{"prompt":"a","temperature":NaN}', /line 1/],
    ['Infinity', '{"prompt":"a","temperature":Infinity}', /line 1/],
    ['a number out of range', '{"prompt":"a","temperature":1e999}', /line 1/],
    ['a number with a leading zero', '{"prompt":"a","n":01}', /line 1/],
    ['half a surrogate pair', '{"prompt":"\\ud800"}', /line 1/],
    ['an escape that is none', '{"prompt":"\\x41"}', /line 1/],
    ['a name twice', '{"prompt":"a","prompt":"b"}', /twice/],
    ['a name twice inside', '{"prompt":"a","logit_bias":{"1":1,"1":2}}', /twice/],
    ['a name twice by escapes', '{"prompt":"a","\\u0070rompt":"b"}', /twice/],
    ['single quotes', "{'prompt':'a'}", /line 1/],
    ['a list', '[]', /expected an object/],
    ['a number', '1', /expected an object/],
    ['null', 'null', /expected an object/],
    ['65 levels', deep(65), /deeper than 64/],
    ['10^6 levels', deep(1e6), /deeper than 64/],
    ['10^6 open lists', '['.repeat(1e6), /deeper than 64/],
    ['10^6 values', `{"prompt":[${'1,'.repeat(1e6)}1]}`, /more than 100000 values/],
    ['10^5 names', `{${Array.from({ length: 1e5 }, (_, i) => `"a${i}":1`).join()}}`, /more than 100000 values/],
    ['a number of 10^6 digits', `{"prompt":"a","n":${'9'.repeat(1e6)}}`, undefined],
    ['a fraction of 10^6 digits', `{"prompt":"a","n":0.${'0'.repeat(1e6)}1}`, /n: expected an integer/],
  ];
  return [completions, chat].flatMap((route) => texts.map(([name, text, said]) => [`${name} to ${route}`, route, text, 400, undefined, said]));
}

// UTF-8 that is none, as bytes.
function badBytes() {
  const around = (bytes) => new Blob(['{"prompt":"', new Uint8Array(bytes), '"}']);
  const kinds = { 'a byte that begins nothing': [0x80], 'a pair cut off': [0xc3], 'an overlong slash': [0xc0, 0xaf], 'a surrogate': [0xed, 0xa0, 0x80],
    'beyond U+10FFFF': [0xf4, 0x90, 0x80, 0x80], 'five bytes': [0xf8, 0x88, 0x80, 0x80, 0x80], 'UTF-16': [0xff, 0xfe, 0x41, 0] };
  return Object.entries(kinds).map(([name, bytes]) => [name, completions, around(bytes), 400, undefined, /line 1/]);
}

export function badBodies(model) {
  const long = 'a'.repeat(9000);
  return [
    ...badTexts(), ...badBytes(),
    ['no prompt', completions, {}, 400, 'prompt'],
    ['an empty prompt list', completions, { prompt: [] }, 400, 'prompt'],
    ['129 prompts', completions, { prompt: Array(129).fill('a') }, 400, 'prompt'],
    ['a token beyond the vocabulary', completions, { prompt: [1, 1e6] }, 400, undefined, /1000000/],
    ['a negative token', completions, { prompt: [-1] }, 400],
    ['a token of 2^63', completions, '{"prompt":[9223372036854775808]}', 400],
    ['a token of 2^64', completions, '{"prompt":[18446744073709551616]}', 400],
    ['a prompt beyond the context', completions, { prompt: long }, 400, undefined, /9\d\d\d tokens.*8192/],
    ['max_tokens beyond the context', completions, { prompt: 'a', max_tokens: 9000 }, 400, 'max_tokens', /9000.*8192/],
    ['a chat beyond the context', chat, { messages: [{ role: 'user', content: long }] }, 400, 'messages', /8192/],
    ['an unknown model', completions, { model: 'gpt-5', prompt: 'a' }, 404, 'model', new RegExp(model)],
    ['an unknown model of chat', chat, { model: 'gpt-5', messages }, 404, 'model'],
    ['a suffix', completions, { prompt: 'a', suffix: 'b' }, 400, 'suffix'],
    ['best_of', completions, { prompt: 'a', best_of: 2 }, 400, 'best_of'],
    ['echo with logprobs', completions, { prompt: 'a', echo: true, logprobs: 1 }, 400, 'echo'],
    ['no messages', chat, {}, 400, 'messages'],
    ['empty messages', chat, { messages: [] }, 400, 'messages'],
    ['messages of texts', chat, { messages: ['a'] }, 400, 'messages[0]'],
    ['an unknown role', chat, { messages: [...messages, { role: 'robot', content: 'a' }] }, 400, 'messages[1].role'],
    ['a role of another type', chat, { messages: [{ role: 1, content: 'a' }] }, 400, 'messages[0].role'],
    ['no role', chat, { messages: [{ content: 'a' }] }, 400, 'messages[0].role'],
    ['no content', chat, { messages: [{ role: 'user' }] }, 400, 'messages[0].content'],
    ['content of another type', chat, { messages: [{ role: 'user', content: 1 }] }, 400, 'messages[0].content'],
    ['an image', chat, { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'file:///etc/passwd' } }] }] }, 400, 'messages[0].content[0].type'],
    ['a part without a text', chat, { messages: [{ role: 'user', content: [{ type: 'text' }] }] }, 400, 'messages[0].content[0].text'],
    ['a part that is a text', chat, { messages: [{ role: 'user', content: ['a'] }] }, 400, 'messages[0].content[0]'],
    ['calls of a user', chat, { messages: [{ role: 'user', content: 'a', tool_calls: [] }] }, 400, 'messages[0].tool_calls'],
    ['a call without a name', chat, { messages: [{ role: 'assistant', tool_calls: [{ function: {} }] }] }, 400, 'messages[0].tool_calls[0].function.name'],
    ['store', chat, { messages, store: true }, 400, 'store'],
    ['audio', chat, { messages, audio: {} }, 400, 'audio'],
    ['modalities', chat, { messages, modalities: ['text', 'audio'] }, 400, 'modalities'],
    ['a search', chat, { messages, web_search_options: {} }, 400, 'web_search_options'],
    ['functions of old', chat, { messages, functions: [] }, 400, 'functions'],
    ['top_logprobs alone', chat, { messages, top_logprobs: 2 }, 400, 'top_logprobs'],
    ['options of no stream', chat, { messages, stream_options: { include_usage: true } }, 400, 'stream_options'],
    ['a bias of no token', completions, { prompt: 'a', logit_bias: { x: 1 } }, 400, 'logit_bias'],
    ['a bias that is too large', completions, { prompt: 'a', logit_bias: { 1: 101 } }, 400, 'logit_bias.1'],
    ['a bias beyond the vocabulary', completions, { prompt: 'a', logit_bias: { 1000000: 1 } }, 400, 'logit_bias', /0 to 255/],
    ['1025 biases', completions, { prompt: 'a', logit_bias: Object.fromEntries(Array.from({ length: 1025 }, (_, i) => [i, 1])) }, 400, 'logit_bias'],
    ['17 stops', completions, { prompt: 'a', stop: Array(17).fill('a') }, 400, 'stop'],
    ['an empty stop', completions, { prompt: 'a', stop: '' }, 400, 'stop'],
    ['a stop token beyond the vocabulary', completions, { prompt: 'a', stop_token_ids: [1e9] }, 400, 'stop_token_ids', /0 to 255/],
    ['a negative stop token', chat, { messages, stop_token_ids: [-1] }, 400, 'stop_token_ids'],
    ['tokens of another type', '/detokenize', { tokens: ['a'] }, 400, 'tokens'],
    ['no tokens', '/detokenize', {}, 400, 'tokens'],
    ['neither prompt nor messages', '/tokenize', {}, 400, 'prompt'],
    ['a prompt of another type', '/tokenize', { prompt: 1 }, 400, 'prompt'],
  ];
}

// Each field with each type that it does not have, and with numbers beyond its range.
const kinds = { text: 'x', number: 1.5, flag: true, list: [[]], object: { a: 1 } };
const fields = {
  number: ['temperature', 'top_p', 'min_p', 'frequency_penalty', 'presence_penalty', 'repetition_penalty'],
  integer: ['max_tokens', 'n', 'seed', 'top_k', 'min_tokens'],
  flag: ['stream', 'ignore_eos', 'skip_special_tokens'],
  text: ['model', 'cache_salt'],
  list: ['stop_token_ids'],
  object: ['logit_bias'],
};
const own = {
  [completions]: { prompt: 'a', more: { integer: ['logprobs'], flag: ['echo'] } },
  [chat]: { messages, more: { integer: ['max_completion_tokens'], flag: ['logprobs', 'add_generation_prompt'], text: ['reasoning_effort'], object: ['chat_template_kwargs'], list: ['documents'] } },
};
const ranges = { temperature: [-0.1, 2.1], top_p: [-1, 0, 1.1], min_p: [-0.1, 1.1], frequency_penalty: [-2.1, 2.1], presence_penalty: [-2.1, 2.1],
  repetition_penalty: [0, 11], n: [0, -1, 17, 1e18], top_k: [-2, 1e12], min_tokens: [-1, 1e12], max_tokens: [-1, 1e12] };

export function badFields() {
  const cases = [];
  for (const [route, { more, ...base }] of Object.entries(own)) {
    for (const [type, names] of [...Object.entries(fields), ...Object.entries(more)]) {
      for (const name of names) {
        for (const [kind, value] of Object.entries(kinds)) {
          if (kind === type || (name === 'documents' && kind === 'list')) continue;
          const param = type === 'object' && kind === 'object' ? undefined : name;
          cases.push([`${name} as ${kind} to ${route}`, route, { ...base, [name]: value }, kind === 'text' && name === 'model' ? 404 : 400, param]);
        }
      }
    }
    for (const [name, values] of Object.entries(ranges)) {
      for (const value of values) cases.push([`${name} ${value} to ${route}`, route, { ...base, [name]: value }, 400, name]);
    }
  }
  return cases;
}
