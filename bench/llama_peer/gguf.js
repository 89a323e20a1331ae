// Writes a GGUF file of Gemma 3 1B's dimensions with random weights: enough to measure speed.
//
//   node gguf.js q4_0|q8_0|bf16 FILE
'use strict';
const fs = require('fs');

const kEmbedding = 1152, kLayers = 26, kFeedForward = 6912, kHeads = 4, kHeadSize = 256;
const kVocabulary = 262144;

// Blocks of 32 numbers: a scale in float16, then the codes.
const kTypes = {
  f32: {id: 0, block: 1, bytes: 4},
  q4_0: {id: 2, block: 32, bytes: 18},
  q8_0: {id: 8, block: 32, bytes: 34},
  bf16: {id: 30, block: 1, bytes: 2},
};
const kHalfScale = 0x1c00;  // 2^-8 as float16
const kBfloat = {exponent: 0x3c00, others: 0x807f};  // 2^-7 to 2^-6 of either sign
const kAlignment = 32;

class Writer {
  constructor() { this.parts = []; }
  number(bytes, write) {
    const buffer = Buffer.alloc(bytes);
    write(buffer);
    this.parts.push(buffer);
    return this;
  }
  u32(x) { return this.number(4, b => b.writeUInt32LE(x)); }
  u64(x) { return this.number(8, b => b.writeBigUInt64LE(BigInt(x))); }
  f32(x) { return this.number(4, b => b.writeFloatLE(x)); }
  string(text) {
    this.u64(Buffer.byteLength(text));
    this.parts.push(Buffer.from(text));
    return this;
  }
  bytes() { return Buffer.concat(this.parts); }
}

// An array of values that append(writer, x) writes.
function array(writer, type, values, append) {
  writer.u32(9).u32(type).u64(values.length);
  for (const value of values) append(writer, value);
  return writer;
}

const kValue = {
  u32: (w, x) => w.u32(4).u32(x),
  f32: (w, x) => w.u32(6).f32(x),
  string: (w, x) => w.u32(8).string(x),
  strings: (w, list) => array(w, 8, list, (to, x) => to.string(x)),
  floats: (w, list) => array(w, 6, list, (to, x) => to.f32(x)),
  ints: (w, list) => array(w, 5, list, (to, x) => to.u32(x)),
};

// A vocabulary that no text needs: three special tokens, the bytes, and names.
function tokens() {
  const kNormal = 1, kControl = 3, kByte = 6;
  const text = [], types = [];
  for (let i = 0; i < kVocabulary; ++i) {
    const byte = i - 3;
    text.push(i < 3 ? ['<unk>', '<s>', '</s>'][i]
              : byte < 256 ? `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>` : `t${i}`);
    types.push(i < 3 ? kControl : byte < 256 ? kByte : kNormal);
  }
  return {text, types};
}

function metadata() {
  const u32 = {
    'gemma3.context_length': 8192, 'gemma3.embedding_length': kEmbedding,
    'gemma3.block_count': kLayers, 'gemma3.feed_forward_length': kFeedForward,
    'gemma3.attention.head_count': kHeads, 'gemma3.attention.head_count_kv': 1,
    'gemma3.attention.key_length': kHeadSize, 'gemma3.attention.value_length': kHeadSize,
    'gemma3.attention.sliding_window': 512, 'gemma3.vocab_size': kVocabulary,
  };
  const f32 = {'gemma3.attention.layer_norm_rms_epsilon': 1e-6, 'gemma3.rope.freq_base': 1e6};
  const {text, types} = tokens();
  return [
    ['general.architecture', 'string', 'gemma3'],
    ['tokenizer.ggml.model', 'string', 'llama'],
    ['tokenizer.ggml.tokens', 'strings', text],
    ['tokenizer.ggml.scores', 'floats', text.map(() => 0)],
    ['tokenizer.ggml.token_type', 'ints', types],
    ...Object.entries(u32).map(([key, x]) => [key, 'u32', x]),
    ...Object.entries(f32).map(([key, x]) => [key, 'f32', x]),
  ];
}

// Names, dims (the summed one first) and types.
function tensors(type) {
  const heads = kHeads * kHeadSize;
  const list = [['token_embd.weight', [kEmbedding, kVocabulary], type],
                ['output_norm.weight', [kEmbedding], 'f32']];
  for (let layer = 0; layer < kLayers; ++layer) {
    const add = (name, dims, kind) => list.push([`blk.${layer}.${name}.weight`, dims, kind]);
    for (const name of ['attn_norm', 'post_attention_norm', 'ffn_norm', 'post_ffw_norm']) {
      add(name, [kEmbedding], 'f32');
    }
    for (const name of ['attn_q_norm', 'attn_k_norm']) add(name, [kHeadSize], 'f32');
    add('attn_q', [kEmbedding, heads], type);
    add('attn_k', [kEmbedding, kHeadSize], type);
    add('attn_v', [kEmbedding, kHeadSize], type);
    add('attn_output', [heads, kEmbedding], type);
    add('ffn_gate', [kEmbedding, kFeedForward], type);
    add('ffn_up', [kEmbedding, kFeedForward], type);
    add('ffn_down', [kFeedForward, kEmbedding], type);
  }
  return list;
}

function byteSize(dims, type) {
  const {block, bytes} = kTypes[type];
  return dims.reduce((a, b) => a * b, 1) / block * bytes;
}

const aligned = size => Math.ceil(size / kAlignment) * kAlignment;

function header(list) {
  const writer = new Writer();
  const entries = metadata();
  writer.parts.push(Buffer.from('GGUF'));
  writer.u32(3).u64(list.length).u64(entries.length);
  for (const [key, kind, value] of entries) kValue[kind](writer.string(key), value);
  let offset = 0;
  for (const [name, dims, type] of list) {
    writer.string(name).u32(dims.length);
    for (const dim of dims) writer.u64(dim);
    writer.u32(kTypes[type].id).u64(offset);
    offset += aligned(byteSize(dims, type));
  }
  const bytes = writer.bytes();
  return Buffer.concat([bytes, Buffer.alloc(aligned(bytes.length) - bytes.length)]);
}

// Blocks with codes without a pattern, to be repeated; numbers of bfloat16.
function pattern(type) {
  const {bytes} = kTypes[type];
  const blocks = 1 << 15;
  const buffer = Buffer.alloc(blocks * bytes);
  let state = 1;
  for (let i = 0; i < buffer.length; ++i) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    buffer[i] = state >>> 24;
  }
  for (let block = 0; block < blocks; ++block) {
    const at = block * bytes;
    const number = buffer.readUInt16LE(at) & kBfloat.others | kBfloat.exponent;
    buffer.writeUInt16LE(type === 'bf16' ? number : kHalfScale, at);
  }
  return buffer;
}

function ones(count) {
  const buffer = Buffer.alloc(count * 4);
  for (let i = 0; i < count; ++i) buffer.writeFloatLE(1, 4 * i);
  return buffer;
}

function main() {
  const [type, path] = process.argv.slice(2);
  if (!path || !kTypes[type]) {
    console.error('usage: gguf.js q4_0|q8_0|bf16 FILE');
    process.exit(1);
  }
  const list = tensors(type);
  const file = fs.openSync(path, 'w');
  fs.writeSync(file, header(list));
  const codes = pattern(type);
  for (const [, dims, kind] of list) {
    const size = byteSize(dims, kind);
    const from = kind === 'f32' ? ones(dims[0]) : codes;
    for (let done = 0; done < size;) {
      done += fs.writeSync(file, from, 0, Math.min(from.length, size - done));
    }
    fs.writeSync(file, Buffer.alloc(aligned(size) - size));
  }
  fs.closeSync(file);
}

main();
