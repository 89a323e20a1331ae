# SPDX-License-Identifier: Apache-2.0
"""render_templates.py CONVERSATIONS TEMPLATE...: what Jinja makes of chat templates, set up as the library transformers does.

Writes a JSON list for each template, of texts, or null where rendering fails. Needs jinja2 (Debian's python3-jinja2).
"""
import datetime
import json
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)
OWN = {'bos_token': '<bos>', 'eos_token': '<eos>', 'pad_token': '<pad>', 'unk_token': '<unk>'}


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks what a model wrote, prints it as it is."""
    tags = {'generation'}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(['name:endgeneration'], drop_needle=True)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters['tojson'] = tojson
    env.globals['raise_exception'] = raise_exception
    env.globals['strftime_now'] = NOW.strftime
    return env


def rendered(source, conversation):
    try:
        return environment().from_string(source).render(**{'tools': None, 'documents': None, **OWN, **conversation})
    except Exception:  # whatever goes wrong: there is no text
        return None


def main():
    with open(sys.argv[1], encoding='utf-8') as file:
        conversations = json.load(file)
    out = []
    for path in sys.argv[2:]:
        with open(path, encoding='utf-8') as file:
            source = file.read()
        out.append([rendered(source, conversation) for conversation in conversations])
    print('[\n' + ',\n'.join('[\n' + ',\n'.join(json.dumps(text, ensure_ascii=False) for text in texts) + '\n]' for texts in out) + '\n]')


main()
