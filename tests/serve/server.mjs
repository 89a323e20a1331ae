// SPDX-License-Identifier: Apache-2.0
// What the scripts beside this share: a server that is started and ended, calls to it, and bytes that no client sends.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
export const recall = path.join(root, 'models/gemma3_recall');
export const demo = readFileSync(path.join(recall, 'demo.txt'), 'utf8');
export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// The program that is tested: the first argument of a script.
export function binary() {
  if (process.argv[2]) return path.resolve(process.argv[2]);
  console.error(`usage: node ${path.basename(process.argv[1])} PAGEFUSE ...`);
  process.exit(2);
}

const running = new Set();
process.on('exit', () => running.forEach((child) => child.kill('SIGKILL')));

export class Server {
  // Resolves when it serves. `flags` come behind those that all need.
  static async start(flags = [], model = recall) {
    const server = new Server();
    const all = ['serve', model, '--port', '0', '--log', 'json', ...flags];
    server.child = spawn(binary(), all, { stdio: ['ignore', 'pipe', 'pipe'] });
    running.add(server.child);
    server.log = '';
    server.child.stderr.on('data', (data) => { server.log += data; });
    server.ended = new Promise((done) => server.child.on('close', (code, signal) => {
      running.delete(server.child);
      done(signal ?? code);
    }));
    let said = '';
    await new Promise((done, fail) => {
      server.child.stdout.on('data', (data) => {
        said += data;
        if (said.includes('\n')) done();
      });
      server.ended.then((code) => fail(new Error(`ended with ${code} before it served: ${server.log}`)));
    });
    server.url = /serving (\S+) at (\S+)/.exec(said)[2];
    server.model = /serving (\S+) at (\S+)/.exec(said)[1];
    server.port = Number(new URL(server.url).port);
    return server;
  }
  // Exit status, or the signal that ended it.
  stop(signal = 'SIGTERM') {
    this.child.kill(signal);
    return this.ended;
  }

  get(route, headers = {}) { return fetch(this.url + route, { headers }); }
  post(route, body, { headers = {}, signal } = {}) {
    return fetch(this.url + route, {
      method: 'POST', headers: { 'content-type': 'application/json', ...headers },
      body: typeof body === 'string' || body instanceof Blob ? body : JSON.stringify(body), signal,
    });
  }
  async metrics(headers = {}) {
    const values = new Map();
    for (const line of (await (await this.get('/metrics', headers)).text()).split('\n')) {
      const space = line.lastIndexOf(' ');
      if (line && line[0] !== '#') values.set(line.slice(0, space), Number(line.slice(space + 1)));
    }
    return values;
  }
  // Of the metric whose labels contain all of `labels`.
  async metric(name, labels = [], headers = {}) {
    for (const [key, value] of await this.metrics(headers)) {
      if (key.startsWith(`pagefuse:${name}{`) && labels.every((one) => key.includes(one))) return value;
    }
    return undefined;
  }
  // Waits until nobody is answered and no page is held; fails after `ms`. Resolves to the milliseconds that it took.
  async idle(ms, headers = {}) {
    const start = Date.now();
    let last;
    do {
      last = {
        running: await this.metric('num_requests_running', [], headers),
        waiting: await this.metric('num_requests_waiting', [], headers),
        held: await this.metric('pages', ['state="held"'], headers),
      };
      if (last.running === 0 && last.waiting === 0 && last.held === 0) return Date.now() - start;
      await sleep(10);
    } while (Date.now() < start + ms);
    assert.fail(`still at work after ${ms} ms: ${JSON.stringify(last)}`);
  }
  residentBytes() {
    return 1024 * Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${this.child.pid}/status`, 'utf8'))[1]);
  }
}

// Data of a stream of events as they come, without "[DONE]".
export async function* events(response) {
  let text = '';
  const decoder = new TextDecoder();
  for await (const piece of response.body) {
    text += decoder.decode(piece, { stream: true });
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      const data = text.slice(0, end).split('\n').filter((line) => line.startsWith('data: ')).map((line) => line.slice(6)).join('\n');
      text = text.slice(end + 2);
      if (data === '[DONE]') return;
      if (data) yield JSON.parse(data);
    }
  }
  assert.fail('the stream ended without [DONE]');
}

// What comes back for these bytes until the other side closes, or `enough` says so of the text. `pieces`: strings in
// latin1, buffers, or numbers of milliseconds to wait.
export async function raw(port, pieces, { ms = 5000, enough = () => false } = {}) {
  const socket = net.connect(port, '127.0.0.1');
  let text = '';
  const over = new Promise((done) => {
    socket.on('data', (data) => {
      text += data.toString('latin1');
      if (enough(text)) done('enough');
    });
    socket.on('close', () => done('closed'));
    socket.on('error', () => done('closed'));
    setTimeout(() => done('late'), ms).unref();
  });
  for (const piece of pieces) {
    if (typeof piece === 'number') await sleep(piece);
    else if (!socket.destroyed) socket.write(typeof piece === 'string' ? Buffer.from(piece, 'latin1') : piece);
  }
  const how = await over;
  socket.destroy();
  const status = Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1] ?? 0);
  return { text, how, status };
}

// A whole reply whose length the header says.
export function isWhole(text) {
  const end = text.indexOf('\r\n\r\n');
  if (end < 0) return false;
  const length = /content-length: (\d+)/i.exec(text.slice(0, end));
  return length !== null && text.length >= end + 4 + Number(length[1]);
}

// Runs `check` and ends the program as a test does.
export async function main(check) {
  try {
    await check();
    process.exit(0);
  } catch (error) {
    console.error(error);
    process.exit(1);
  }
}
