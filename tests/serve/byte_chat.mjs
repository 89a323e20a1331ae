// SPDX-License-Identifier: Apache-2.0
// Makes models that chat and call tools out of models/gemma3_A18, whose weights are random: what they say is noise, so that nothing but
// the constraint of an answer makes it right. Token n is byte n, but for bytes that UTF-8 does not have: these are special tokens and
// the marks of the format.
//   node byte_chat.mjs FORMAT FOLDER
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
const templates = path.join(root, 'tests/data/text/answer_templates');
const deepSeekMarks = ['<｜tool▁calls▁begin｜>', '<｜tool▁calls▁end｜>', '<｜tool▁call▁begin｜>', '<｜tool▁call▁end｜>', '<｜tool▁sep｜>'];

// Formats of calls: the template, the marks that are tokens, and whether these are special (those of Qwen are not).
export const formats = {
  hermes: { template: 'hermes_thinking.jinja', marks: ['<tool_call>', '</tool_call>'], special: false },
  deepseek_v3: { template: 'fenced.jinja', marks: deepSeekMarks, special: true },
  deepseek_v31: { template: 'sections.jinja', marks: deepSeekMarks, special: true },
  deepseek_v32: { template: 'dsml.jinja', marks: ['｜DSML｜'], special: false },
  llama3_json: { template: 'python_tag.jinja', marks: ['<|python_tag|>'], special: true },
  functiongemma: { template: 'bare_keys.jinja', marks: ['<start_function_call>', '<end_function_call>', '<escape>'], special: true },
};

export const tokens = { end: 0xFF, begin: 0xFE, think: 0xFD, thinkEnd: 0xFC, firstMark: 0xFB };

// The character that stands for each byte in tokenizers of bytes.
function byteNames() {
  const printable = (byte) => (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(printable(byte) ? byte : next++));
}

function tokenizer({ marks, special }) {
  const names = byteNames();
  const added = [];
  const add = (id, content, isSpecial) => {
    names[id] = content;
    added.push({ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: isSpecial });
  };
  add(tokens.end, '<eos>', true);
  add(tokens.begin, '<bos>', true);
  add(tokens.think, '<think>', false);
  add(tokens.thinkEnd, '</think>', false);
  marks.forEach((mark, i) => add(tokens.firstMark - i, mark, special));
  added.sort((a, b) => a.id - b.id);
  const bytes = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false };
  return {
    version: '1.0', truncation: null, padding: null, added_tokens: added, normalizer: null, pre_tokenizer: bytes, post_processor: null,
    decoder: bytes,
    model: {
      type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null, fuse_unk: false,
      byte_fallback: false, ignore_merges: false, vocab: Object.fromEntries(names.map((name, id) => [name, id])), merges: [],
    },
  };
}

// Into the folder; one below the machine's folder for such, which goes with the program, if there is none.
export function makeByteChat(format, folder) {
  if (!folder) {
    const made = mkdtempSync(path.join(os.tmpdir(), 'pagefuse-bytes-'));
    process.on('exit', () => rmSync(made, { recursive: true, force: true }));
    folder = path.join(made, format);
  }
  const source = path.join(root, 'models/gemma3_A18');
  const write = (name, value) => writeFileSync(path.join(folder, name), `${JSON.stringify(value, null, 1)}\n`);
  mkdirSync(folder, { recursive: true });
  copyFileSync(path.join(source, 'model.onnx'), path.join(folder, 'model.onnx'));
  // Positions of the model are those that it is asked for; prompts in bytes are long.
  const config = JSON.parse(readFileSync(path.join(source, 'config.json'), 'utf8'));
  write('config.json', { ...config, max_position_embeddings: 16384 });
  write('generation_config.json', { bos_token_id: tokens.begin, eos_token_id: tokens.end, do_sample: true });
  write('tokenizer.json', tokenizer(formats[format]));
  write('tokenizer_config.json', { bos_token: '<bos>', eos_token: '<eos>', clean_up_tokenization_spaces: false, tokenizer_class: 'PreTrainedTokenizerFast' });
  copyFileSync(path.join(templates, formats[format].template), path.join(folder, 'chat_template.jinja'));
  return folder;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (!formats[process.argv[2]] || !process.argv[3]) {
    console.error(`usage: node byte_chat.mjs ${Object.keys(formats).join('|')} FOLDER`);
    process.exit(2);
  }
  makeByteChat(process.argv[2], path.resolve(process.argv[3]));
}
