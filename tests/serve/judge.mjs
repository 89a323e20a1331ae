// SPDX-License-Identifier: Apache-2.0
// What the scripts that judge answers share: ajv with the formats that constraints know, and work done several at a time.
import { existsSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const date = /^(\d{4})-(\d\d)-(\d\d)$/;
const time = /^([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/i;

function isDate(text) {
  const found = date.exec(text);
  if (!found) return false;
  const [year, month, day] = found.slice(1).map(Number);
  const leap = year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
  const days = [31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
  return month >= 1 && month <= 12 && day >= 1 && day <= days[month - 1];
}

const formats = {
  date: isDate,
  time: (text) => time.test(text),
  'date-time': (text) => /^.{10}[Tt ]/.test(text) && isDate(text.slice(0, 10)) && time.test(text.slice(11)),
  uuid: /^[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}$/i,
  ipv4: /^((25[0-5]|2[0-4]\d|1?\d?\d)(\.(?!$)|$)){4}$/,
};

export async function newAjv(modules) {
  const { default: Ajv } = await import(pathToFileURL(path.resolve(modules, 'ajv/dist/2020.js')));
  const ajv = new Ajv({ strict: false, formats });
  // Nobody asks what was evaluated; ajv would try all of several schemas for it, of which each may try all of several again.
  ajv.opts.unevaluated = false;
  return ajv;
}

// Whether the package is there.
export const has = (modules, name) => existsSync(path.join(modules, name));

// `work` of each item, `most` at one time.
export async function together(most, items, work) {
  const waiting = [...items.entries()];
  const worker = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) await work(next[1], next[0]);
  };
  await Promise.all(Array.from({ length: most }, worker));
}
