// SPDX-License-Identifier: Apache-2.0
// Answers of random weights to 200 schemas, judged by ajv: each that ends is valid, and each schema has one that ends.
//   node schemas.mjs PAGEFUSE NODE_MODULES [ANSWERS]
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { makeByteChat } from '../byte_chat.mjs';
import { Server, main, root } from '../server.mjs';
import { newAjv, together } from '../judge.mjs';

if (!process.argv[3]) {
  console.error('usage: node schemas.mjs PAGEFUSE NODE_MODULES [ANSWERS]');
  process.exit(2);
}
const ajv = await newAjv(process.argv[3]);
const answers = Number(process.argv[4] ?? 20);
const cases = JSON.parse(readFileSync(path.join(root, 'tests/serve/schemas.json'), 'utf8'));
// The ends of texts, lists and objects, which noise seldom says by itself, and what texts need that must have "x.z" in them or end
// in "ü".
const ends = Object.fromEntries([...Buffer.from('"]}xzü')].map((end) => [end, 8]));

// One request for half of the answers.
async function ask(server, { name, schema }, index, half) {
  const response = await server.post('/v1/chat/completions', {
    messages: [{ role: 'user', content: name }], n: answers / 2, seed: 2 * index + half, temperature: half ? 2 : 1,
    logit_bias: half ? ends : {}, max_tokens: 1000, response_format: { type: 'json_schema', json_schema: { name: 'answer', schema, strict: true } },
  });
  const reply = await response.json();
  assert.equal(response.status, 200, `${name}: ${JSON.stringify(reply)}`);
  return reply.choices;
}

function judge({ name, schema }, choices) {
  const isValid = ajv.compile(schema);
  let stopped = 0;
  for (const { finish_reason: finish, message } of choices) {
    assert.ok(finish === 'stop' || finish === 'length', `${name}: ${finish}`);
    if (finish !== 'stop') continue;
    ++stopped;
    let document;
    assert.doesNotThrow(() => { document = JSON.parse(message.content); }, `${name}: ${message.content}`);
    assert.ok(isValid(document), `${name}: ${message.content}: ${ajv.errorsText(isValid.errors)}`);
  }
  assert.equal(choices.length, answers);
  assert.ok(stopped > 0, `${name}: none of ${answers} answers ended`);
  return stopped;
}

await main(async () => {
  const server = await Server.start(['--reasoning', 'none', '--check-paging', 'never'], makeByteChat('hermes'));
  let stopped = 0;
  const failures = [];
  await together(16, cases, async (one, index) => {
    const choices = [...await ask(server, one, index, 0), ...await ask(server, one, index, 1)];
    try {
      stopped += judge(one, choices);
    } catch (error) {
      failures.push(error.message);
    }
  });
  await server.idle(2000);
  assert.equal(await server.stop(), 0);
  assert.deepEqual(failures, []);
  const all = cases.length * answers;
  console.log(`schemas: ${cases.length} schemas, ${all} answers: ${stopped} ended, all valid; ${all - stopped} reached max_tokens`);
});
