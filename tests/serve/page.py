#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""page.py CHROMIUM URL --with-key URL --key KEY [--screenshots DIR]: talks with a model over the page of `pagefuse serve`.

Status 1, and a line for each, where the page is otherwise than it should be: an answer comes token by token, what looks like markup stays
text, Stop gives the pages of the cache back, errors are told, and neither console nor the page's policy complains.
"""
import argparse
import json
import pathlib
import re
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
from open_pages import MEASURE, MISSED, LEAST_CONTRAST, Browser, screenshot  # noqa: E402

PATIENCE = 30  # s
FACTS = "The red box holds 12 pins. The tin cup holds 45 keys."
MARKUP = "<img src=x onerror=\"window.hurt=1\"><script>window.hurt=1</script>"

# The request goes on as it is, but that its answer has no end of its own.
ENDLESS = """(() => {
  const real = window.fetch;
  window.fetch = (path, init) => {
    if (init.body) init = {...init, body: JSON.stringify({...JSON.parse(init.body), ignore_eos: true, max_tokens: 3000})};
    return real(path, init);
  };
  window.undo = () => { window.fetch = real; };
  window.states = new Set();
  window.watch = new MutationObserver(() => {
    const content = document.querySelector('.writing .content');
    if (content) window.states.add(content.textContent);
  });
  window.watch.observe(document.getElementById('log'), {childList: true, subtree: true, characterData: true});
})()"""

# An answer with all that may come, in pieces that cut events and characters.
SCRIPTED = """(() => {
  const real = window.fetch, chunk = (delta, finish) => 'data: ' + JSON.stringify({choices: [{index: 0, delta, finish_reason: finish || null}]}) + '\\n\\n';
  window.asked = [];
  window.fetch = (path, init) => {
    if (!init.body) return real(path, init);
    window.asked.push(JSON.parse(init.body));
    const text = ': ping\\n\\n' + chunk({role: 'assistant', content: ''}) + chunk({reasoning: 'I think ', reasoning_content: 'I think '}) +
      chunk({reasoning: MARKUP, reasoning_content: MARKUP}) + chunk({content: 'Like **this** `a<b`: é' + MARKUP + '\\n```c\\nint x;\\n'}) + chunk({content: MARKUP + '\\n```\\nend'}) +
      chunk({tool_calls: [{index: 0, id: 'call_1', type: 'function', function: {name: 'look_up', arguments: ''}}]}) +
      chunk({tool_calls: [{index: 0, function: {arguments: '{"q": "' + '<b>"}'}}]}) + chunk({}, 'tool_calls') +
      'data: {"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 16}}}\\n\\ndata: [DONE]\\n\\n';
    const bytes = new TextEncoder().encode(text);
    return Promise.resolve(new Response(new ReadableStream({start(out) {
      for (let i = 0; i < bytes.length; i += 7) out.enqueue(bytes.slice(i, i + 7));
      out.close();
    }}), {headers: {'Pagefuse-Ignored': 'tools'}}));
  };
  window.undo = () => { window.fetch = real; };
})()""".replace("MARKUP", json.dumps(MARKUP).replace("/", "\\/"))


def fetch(url):
    with urllib.request.urlopen(url, timeout=PATIENCE) as reply:
        return reply.headers, reply.read().decode()


def figure(url, name):
    found = re.search(rf"^\S*{name} (\S+)$", fetch(url + "/metrics")[1], re.M)
    return float(found.group(1)) if found else 0.0


class Page:
    """A tab with the page, and what is wrong with it."""

    def __init__(self, browser, url, width=1000, scheme="light"):
        self.browser, self.url, self.wrong = browser, url, []
        self.target = browser.new_tab()
        self.size(width, scheme)
        browser.call("Page.navigate", url=url + "/")
        browser.wait_for("Page.loadEventFired")

    def size(self, width, scheme, height=700):
        self.browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.width, self.height = width, height

    def get(self, expression):
        return self.browser.evaluate(expression)

    def expect(self, what, expression, wanted=True):
        found = self.get(expression)
        if found != wanted:
            self.wrong.append(f"{what}: expected {wanted!r}, got {found!r}")

    def wait(self, what, expression):
        end = time.monotonic() + PATIENCE
        while not self.get(expression):
            if time.monotonic() > end:
                sys.exit(f"{what}: not so after {PATIENCE} s; the page says {self.get('document.body.innerText')!r}")
            time.sleep(0.02)

    def wait_for_model(self):
        self.wait("the model", "!document.getElementById('send').disabled && document.getElementById('model').textContent !== ''")

    def wait_for_end(self):
        self.wait("the end of an answer", "!document.querySelector('.writing') && document.getElementById('stop').hidden")

    def key(self, key, code, number, modifiers=0, text=None):
        more = {"text": text} if text else {}
        self.browser.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=code, windowsVirtualKeyCode=number, modifiers=modifiers, **more)
        self.browser.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=code, windowsVirtualKeyCode=number, modifiers=modifiers)

    def say(self, text):
        self.get("document.getElementById('input').focus()")
        for i, line in enumerate(text.split("\n")):
            if i > 0:
                self.key("Enter", "Enter", 13, modifiers=8, text="\r")  # with Shift
            self.browser.call("Input.insertText", text=line)
        self.key("Enter", "Enter", 13, text="\r")

    def look(self, name):
        seen = self.get(MEASURE)
        if seen["wide"] > 0:
            self.wrong.append(f"{name}: {seen['wide']} px wider than the window of {self.width}")
        if seen["contrast"] < LEAST_CONTRAST:
            self.wrong.append(f"{name}: contrast of {seen['contrast']:.1f} at \"{seen['text']}\"")
        self.wrong.extend(f"{name}: {missed}" for missed in self.get(MISSED))

    def complaints(self):
        for event in self.browser.events:
            name, value = event.get("method"), event.get("params", {})
            if name == "Log.entryAdded" and value["entry"]["level"] in ("error", "warning"):
                self.wrong.append(f"console: {value['entry']['text']}")
            elif name == "Runtime.exceptionThrown":
                self.wrong.append(f"script: {value['exceptionDetails']}")
            elif name == "Runtime.consoleAPICalled":
                self.wrong.append(f"console: {value['type']}: {[one.get('value') for one in value['args']]}")
            elif name == "Page.javascriptDialogOpening":
                self.wrong.append("something opened a dialogue")
            elif name == "Network.requestWillBeSent" and not value["request"]["url"].startswith(self.url + "/"):
                self.wrong.append(f"asks for {value['request']['url'][:80]}")

    def close(self):
        self.browser.session = None
        self.browser.call("Target.closeTarget", targetId=self.target)


LAST_CONTENT = "[...document.querySelectorAll('.content')].pop().textContent"
LAST_META = "[...document.querySelectorAll('.meta')].pop().textContent"
HURT = "window.hurt === undefined && document.querySelectorAll('main img, main script').length === 0"


def headers(page):
    """What a browser is told to forbid."""
    for path, kind in (("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript"), ("/page.svg", "image/svg+xml")):
        found, body = fetch(page.url + path)
        policy = found["Content-Security-Policy"]
        if "default-src 'self'" not in policy or "frame-ancestors 'none'" not in policy or "unsafe" in policy:
            page.wrong.append(f"{path}: the policy is {policy!r}")
        if found["X-Content-Type-Options"] != "nosniff" or found["Referrer-Policy"] != "no-referrer":
            page.wrong.append(f"{path}: headers {found.items()}")
        if not found["Content-Type"].startswith(kind) or not body.strip():
            page.wrong.append(f"{path}: {found['Content-Type']}, {len(body)} characters")
    if re.search(r"<style|<script>|style=|\son\w+=", fetch(page.url + "/")[1]):
        page.wrong.append("the page has inline style or script")


def conversation(page):
    page.get(f"document.getElementById('system').value = {json.dumps(FACTS)}")
    page.say("What does the red box hold?")
    page.wait_for_end()
    page.expect("the first answer", LAST_CONTENT, "12 pins.")
    page.say("What does the tin cup hold?")
    page.wait_for_end()
    page.expect("the second answer", LAST_CONTENT, "45 keys.")
    page.expect("its figures", f"/^\\d+ tokens · (.* tokens\\/s · )?the first after .* s · \\d+ of \\d+ prompt tokens from the cache$/.test({LAST_META})")
    page.expect("a reader is told", "document.getElementById('said').textContent.trim()", "45 keys.")
    page.wait("figures below", "/^\\d+ running · \\d+ waiting · cache .* % in use · .* tokens\\/s$/.test(document.getElementById('figures').textContent)")


def two_lines(page):
    page.say("What does\nthe red box hold?")
    page.wait_for_end()
    page.expect("a question of two lines", "[...document.querySelectorAll('.user .text')].pop().textContent", "What does\nthe red box hold?")


def markup(page):
    page.say(MARKUP)
    page.wait_for_end()
    page.expect("markup of a question", "[...document.querySelectorAll('.user .text')].pop().textContent", MARKUP)
    page.expect("markup of a question does nothing", HURT)


def stop(page, how):
    page.get(ENDLESS)
    before = figure(page.url, r'cancelled_total\{.*during="writing"\}')
    page.say("What does the red box hold?")
    page.wait("an answer that grows", "window.states.size >= 5")
    states = page.get("[...window.states]")
    if not all(later.startswith(earlier.rstrip()) for earlier, later in zip(states, states[1:])):
        page.wrong.append(f"an answer that does not grow: {states}")
    if not figure(page.url, r'pages\{.*state="held"\}') > 0:
        page.wrong.append("no page of the cache is held while an answer is written")
    how()
    page.wait_for_end()
    end = time.monotonic() + 2
    while figure(page.url, r'pages\{.*state="held"\}') > 0 or figure(page.url, r"num_requests_running\{.*\}") > 0:
        if time.monotonic() > end:
            page.wrong.append("pages are held 2 s after Stop")
            break
        time.sleep(0.02)
    if figure(page.url, r'cancelled_total\{.*during="writing"\}') != before + 1:
        page.wrong.append("the server knows nothing of an answer that was stopped")
    page.expect("an answer that was stopped", f"/^\\d+ tokens · [\\d.]+ tokens\\/s · .* · stopped$/.test({LAST_META})")
    page.get("window.watch.disconnect(); window.undo()")


def scripted(page):
    page.get(SCRIPTED)
    page.get("document.getElementById('tools').value = '[{\"type\": \"function\"}]'")
    page.say("Use a tool.")
    page.wait_for_end()
    last = "[...document.querySelectorAll('.answer')].pop()"
    page.expect("reasoning", f"{last}.querySelector('.thought .text').textContent", "I think " + MARKUP)
    page.expect("reasoning is closed", f"{last}.querySelector('.thought').open", False)
    page.expect("content", f"{last}.querySelector('.content .text').textContent", "Like this a<b: é" + MARKUP)
    page.expect("code", f"{last}.querySelector('pre code').textContent", "int x;\n" + MARKUP)
    page.expect("a call", f"{last}.querySelector('.call').textContent", 'Calls look_up with{"q": "<b>"}')
    page.expect("figures", f"/^20 tokens .*16 of 30 prompt tokens from the cache · the server knows nothing of: tools$/.test({LAST_META})")
    page.expect("markup of an answer does nothing", HURT)
    page.say("found it")
    page.wait_for_end()
    page.expect("the result of a call", "JSON.stringify(window.asked[1].messages.slice(-2).map((m) => [m.role, m.tool_call_id || m.tool_calls[0].id]))",
                '[["assistant","call_1"],["tool","call_1"]]')
    page.get("document.getElementById('tools').value = ''; window.undo()")


def new_chat(page):
    page.get("document.getElementById('new').click()")
    page.expect("a new chat", "document.querySelectorAll('article').length === 0 && !document.getElementById('welcome').hidden")


def refused(page):
    """What the server refuses is told, and may be changed and sent again."""
    page.get("document.getElementById('tokens').value = '100000000'")
    page.say("What?")
    page.wait_for_end()
    page.expect("an error", "/^The server refused this \\(400\\): .*tokens/.test([...document.querySelectorAll('.wrong')].pop().textContent)")
    page.expect("the question stays", "document.getElementById('input').value", "What?")
    page.get("document.getElementById('tokens').value = ''; document.getElementById('input').value = ''")


def asks_for_key(browser, url, key, wrong):
    page = Page(browser, url)
    page.wait("a field for the key", "!document.getElementById('keyform').hidden && document.getElementById('send').disabled")
    for given in ("another", key):
        page.get("document.getElementById('key').focus()")
        browser.call("Input.insertText", text=given)
        page.key("Enter", "Enter", 13, text="\r")
        if given == key:
            page.wait_for_model()
        else:
            page.wait("the field again", "!document.getElementById('keyform').hidden && /key/.test(document.getElementById('hello').textContent)")
    page.say("What does the red box hold?")
    page.wait_for_end()
    page.expect("an answer", "document.querySelectorAll('.wrong').length", 0)
    page.look("key")
    wrong.extend(page.wrong)
    page.close()


def pictures(page, folder):
    """The conversation, wide and narrow, light and dark, with the settings open and closed."""
    for width in (900, 400):
        for scheme in ("light", "dark"):
            page.size(width, scheme, 620 if width == 900 else 700)
            for opened in ("false", "true"):
                page.get(f"document.getElementById('settings').open = {opened}; document.getElementById('log').scrollTop = 1e6")
                name = f"serve-{width}-{scheme}{'-settings' if opened == 'true' else ''}"
                page.look(name)
                page.expect(f"{name}: all of the settings", "[document.querySelector('#settings > div').getBoundingClientRect()].every("
                            "(box) => box.left >= 0 && box.right <= innerWidth && box.bottom <= innerHeight)")
                if folder:
                    screenshot(page.browser, folder / f"{name}.png", page.width, page.height)
    page.get("document.getElementById('settings').open = false")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("browser")
    parser.add_argument("url")
    parser.add_argument("--with-key")
    parser.add_argument("--key")
    parser.add_argument("--screenshots", type=pathlib.Path)
    flags = parser.parse_args()
    wrong = []
    with tempfile.TemporaryDirectory() as home:
        browser = Browser(flags.browser, home)
        page = Page(browser, flags.url)
        page.wait_for_model()
        headers(page)
        page.look("welcome")
        conversation(page)
        pictures(page, flags.screenshots)
        page.size(1000, "light")
        two_lines(page)
        markup(page)
        stop(page, lambda: page.get("document.getElementById('stop').click()"))
        stop(page, lambda: page.key("Escape", "Escape", 27))
        scripted(page)
        pictures(page, None)
        if flags.screenshots:
            screenshot(browser, flags.screenshots / "serve-parts.png", page.width, page.height)
        new_chat(page)
        page.complaints()
        refused(page)  # of which the console tells too
        wrong.extend(page.wrong)
        page.close()
        if flags.with_key:
            asks_for_key(browser, flags.with_key, flags.key, wrong)
        browser.close()
    for one in wrong:
        print(one)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
