// SPDX-License-Identifier: Apache-2.0
// The part of constrained.sh that makes the tokenizer, starts the server and measures: PAGEFUSE FOLDER ROUNDS.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { Server, main } from '../tests/serve/server.mjs';

const [folder, rounds] = [process.argv[3], Number(process.argv[4])];
const sequences = Number(process.env.SEQUENCES ?? 8);
const length = Number(process.env.TOKENS ?? 64);
const weights = process.env.WEIGHTS ?? 'int4';
const vocabulary = 262144;

// The bytes, and then words, half of them behind a blank, some with what JSON has around words. The same ones each time.
function makeTokens() {
  const printable = (byte) => (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
  let next = 256;
  const names = new Set(Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(printable(byte) ? byte : next++)));
  let state = 1;
  const draw = (most) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor(state / 2 ** 32 * most);
  };
  const pick = (list) => list[draw(list.length)];
  names.add('<eos>');
  while (names.size < vocabulary) {
    let word = '';
    for (let size = 2 + draw(8); size > 0; --size) word += pick('eeeettaaooinnsrhhdlucmfywgpbvkxqjz');
    if (draw(5) === 0) word = word[0].toUpperCase() + word.slice(1);
    if (draw(40) === 0) word = pick(['"', '{"', '":"', '","', '":', '",']) + (draw(2) ? word : '');
    if (draw(40) === 0) word += pick(['"', '",', '":', '"}', ',', '.']);
    if (draw(50) === 0) word = String(draw(1000));
    names.add((draw(2) ? 'Ġ' : '') + word);
  }
  return [...names];
}

function makeTokenizer() {
  const names = makeTokens();
  const end = names.indexOf('<eos>');
  const bytes = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false };
  const added = [{ id: end, content: '<eos>', single_word: false, lstrip: false, rstrip: false, normalized: false, special: true }];
  const model = { type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null, fuse_unk: false, byte_fallback: false, ignore_merges: false, vocab: Object.fromEntries(names.map((name, id) => [name, id])), merges: [] };
  const write = (name, value) => writeFileSync(path.join(folder, name), JSON.stringify(value));
  write('tokenizer.json', { version: '1.0', truncation: null, padding: null, added_tokens: added, normalizer: null, pre_tokenizer: bytes, post_processor: null, decoder: bytes, model });
  write('tokenizer_config.json', { eos_token: '<eos>', clean_up_tokenization_spaces: false, tokenizer_class: 'PreTrainedTokenizerFast' });
  write('generation_config.json', { eos_token_id: end, do_sample: true });
}

// More than the tokens suffice for.
const schema = {
  type: 'array', minItems: 1000,
  items: {
    type: 'object', additionalProperties: false, required: ['name', 'price', 'kind', 'tags'],
    properties: { name: { type: 'string' }, price: { type: 'integer', minimum: 0 }, kind: { enum: ['new', 'used', 'unknown'] }, tags: { type: 'array', items: { type: 'string', maxLength: 40 } }, note: { type: ['string', 'null'] } },
  },
};

// Tokens a second of all sequences together.
async function measure(server, seed, constrained) {
  const start = performance.now();
  const replies = await Promise.all(Array.from({ length: sequences }, async (_, i) => {
    const body = { prompt: `List ${i}: `, temperature: 1, seed: 100 * seed + i, max_tokens: length, ignore_eos: true };
    if (constrained) body.structured_outputs = { json: schema };
    const response = await server.post('/v1/completions', body);
    const reply = await response.json();
    assert.equal(response.status, 200, JSON.stringify(reply));
    return reply.usage.completion_tokens;
  }));
  assert.ok(replies.every((tokens) => tokens === length), 'answers of one length');
  return sequences * length * 1000 / (performance.now() - start);
}

const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];

await main(async () => {
  makeTokenizer();
  const server = await Server.start(['--weights', weights, '--check-paging', 'never', '--drafts', 'off', '--prefix-reuse', 'off'], folder);
  const rates = { free: [], constrained: [] };
  await measure(server, 0, false);
  await measure(server, 0, true);
  for (let round = 1; round <= rounds; ++round) {
    rates.free.push(await measure(server, round, false));
    rates.constrained.push(await measure(server, round, true));
  }
  assert.equal(await server.stop(), 0);
  const shown = (name) => `${name} ${median(rates[name]).toFixed(2)} tokens/s (${rates[name].map((rate) => rate.toFixed(1)).join(', ')})`;
  console.log(`${sequences} sequences, ${length} tokens each, ${weights}: ${shown('free')}; ${shown('constrained')}; ratio ${(median(rates.constrained) / median(rates.free)).toFixed(3)}`);
});
