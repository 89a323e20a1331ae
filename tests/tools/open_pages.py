#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""open_pages.py CHROMIUM PAGE... [--screenshots DIR]: opens pages as a browser shows them, at two widths, light and dark.

Status 1, and a line for each, where a page says something on the console, asks for anything over the network, is wider than
the window, has text that the background swallows, a link that leads to nothing that can be seen, or something that the keyboard
does not reach or a screen reader cannot name. Speaks the DevTools protocol over the browser's pipe, so that it needs nothing but
the browser.
"""
import argparse
import base64
import json
import os
import pathlib
import subprocess
import sys
import tempfile

WIDTHS = (1280, 800)
SCHEMES = ("light", "dark")
HEIGHT = 900
MOST_SHOWN = 6000  # px of a page, in a screenshot
LEAST_CONTRAST = 4.5  # what WCAG asks of text

# The contrast of each piece of text to what is painted behind it; the worst one with its text.
MEASURE = """(() => {
  const number = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.slice(0, 3).map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const rgb = number(getComputedStyle(element).backgroundColor);
      if (rgb.length === 3 || rgb[3] > 0) return rgb;
    }
    return matchMedia('(prefers-color-scheme: dark)').matches ? [18, 18, 18] : [255, 255, 255];
  };
  let worst = {contrast: 21, text: ''};
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.textContent.trim(), parent = walk.currentNode.parentElement;
    if (!text || parent.closest('script, title')) continue;
    const svg = parent.closest('svg'), box = svg && parent.closest('g');
    const paint = getComputedStyle(parent);
    const fore = light(number(svg ? paint.fill : paint.color));
    const back = light(box ? number(getComputedStyle(box.querySelector('rect')).fill) : behind(parent));
    const contrast = (Math.max(fore, back) + 0.05) / (Math.min(fore, back) + 0.05);
    if (contrast < worst.contrast) worst = {contrast, text: text.slice(0, 40)};
  }
  return {wide: document.documentElement.scrollWidth - innerWidth, contrast: worst.contrast, text: worst.text,
          dark: matchMedia('(prefers-color-scheme: dark)').matches,
          height: document.documentElement.scrollHeight, title: document.title};
})()"""

# The first link of a table, which may lead into a part that is closed, or else the last of the page.
FOLLOW = """(() => {
  const link = document.querySelector('td a') || [...document.querySelectorAll('a[href^="#"]')].pop();
  if (!link) return 'there is no link';
  link.click();
  const target = document.querySelector(':target');
  return target && target.getClientRects().length > 0 ? '' : link.getAttribute('href') + ' leads to nothing that can be seen';
})()"""

# What somebody who sees nothing, or has no mouse, would miss.
MISSED = """(() => {
  const wrong = [], seen = (element) => element.getClientRects().length > 0;
  const one = (selector, what) => document.querySelectorAll(selector).length === 1 || wrong.push(`expected one ${what}`);
  one('main', 'main part');
  one('h1', 'h1');
  if (!document.documentElement.lang) wrong.push('the language of the page is not told');
  let level = 0;
  for (const heading of document.querySelectorAll('h1, h2, h3, h4')) {
    const next = Number(heading.tagName[1]);
    if (next > level + 1) wrong.push(`h${next} "${heading.textContent}" follows h${level}`);
    level = next;
  }
  for (const table of document.querySelectorAll('table')) {
    if (!table.caption || !table.caption.textContent.trim()) wrong.push('a table has no caption');
    for (const row of table.tBodies[0].rows) {
      if (table.rows.length > 1 && !table.matches('.sides') && row.cells[0].tagName !== 'TH') {
        wrong.push(`a row of "${table.caption && table.caption.textContent}" has no title`);
        break;
      }
    }
  }
  for (const picture of document.querySelectorAll('svg, img')) {
    const name = picture.getAttribute('aria-label') || picture.getAttribute('alt');
    if (!name || (picture.matches('svg') && picture.getAttribute('role') !== 'img')) wrong.push('a picture has no name');
  }
  for (const part of document.querySelectorAll('*')) {
    const scrolls = ['auto', 'scroll'].includes(getComputedStyle(part).overflowX) && part.scrollWidth > part.clientWidth;
    if (scrolls && seen(part) && part.tabIndex < 0) wrong.push(`the keyboard cannot scroll ${part.className || part.tagName}`);
  }
  return wrong;
})()"""

# What has the focus, and whether that shows.
FOCUS = """(() => {
  const element = document.activeElement;
  if (!element || element === document.body) return 'nothing has the focus';
  const style = getComputedStyle(element);
  return style.outlineStyle === 'none' || style.outlineWidth === '0px' ? `the focus on "${element.textContent}" does not show` : '';
})()"""


class Browser:
    """A headless Chromium at the other end of two pipes."""

    def __init__(self, program, home):
        from_us, self.to_it = os.pipe()
        self.from_it, to_us = os.pipe()
        for end in (from_us, to_us):
            os.set_inheritable(end, True)
        # The browser takes descriptors 3 and 4.
        command = ["bash", "-c", f'exec 3<&{from_us} 4>&{to_us}; exec "$@"', "browser", program, "--headless=new", "--no-sandbox",
                   "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
                   "--remote-debugging-pipe", f"--user-data-dir={home}", "about:blank"]
        self.process = subprocess.Popen(command, pass_fds=(from_us, to_us), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(from_us)
        os.close(to_us)
        self.buffer, self.number, self.events = b"", 0, []
        self.session = None

    def _message(self):
        while b"\0" not in self.buffer:
            more = os.read(self.from_it, 1 << 20)
            if not more:
                sys.exit("the browser ended")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.to_it, json.dumps(request).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    sys.exit(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method):
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._message())

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            sys.exit(f"the measuring script failed: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def new_tab(self):
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.events = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return target

    def close(self):
        self.session = None
        self.call("Browser.close")
        self.process.wait()


def complaints(events, url):
    """What the page said on the console, and what else it asked for."""
    for event in events:
        name, value = event.get("method"), event.get("params", {})
        if name == "Log.entryAdded":
            yield f"console: {value['entry']['level']}: {value['entry']['text']}"
        elif name == "Runtime.exceptionThrown":
            yield f"script: {value['exceptionDetails']['text']}"
        elif name == "Runtime.consoleAPICalled":
            yield f"console: {value['type']}: {[one.get('value') for one in value['args']]}"
        elif name == "Network.requestWillBeSent" and value["request"]["url"].split("#")[0] != url:
            yield f"asks for {value['request']['url'][:80]}"


def screenshot(browser, path, width, height):
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    picture = browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
    path.write_bytes(base64.b64decode(picture["data"]))


def press_tab(browser):
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)


def wrongs(browser, page, width, scheme, screenshots):
    """What is wrong with the page at this width and scheme: first as it opens, then with all of its parts open."""
    url = page.resolve().as_uri()
    target = browser.new_tab()
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=HEIGHT, deviceScaleFactor=1, mobile=False)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.call("Page.navigate", url=url)
    browser.wait_for("Page.loadEventFired")
    for state in ("closed", "followed", "open"):
        if state == "followed":
            lost = browser.evaluate(FOLLOW)
            if lost:
                yield lost
        if state == "open":
            browser.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
        seen = browser.evaluate(MEASURE)
        if seen["dark"] != (scheme == "dark"):
            yield f"{state}: the browser does not show it {scheme}"
        if not seen["title"]:
            yield f"{state}: has no title"
        if seen["wide"] > 0:
            yield f"{state}: {seen['wide']} px wider than the window"
        if seen["contrast"] < LEAST_CONTRAST:
            yield f"{state}: contrast of {seen['contrast']:.1f} at \"{seen['text']}\""
        yield from (f"{state}: {missed}" for missed in browser.evaluate(MISSED))
        if screenshots:
            name = f"{page.stem}-{width}-{scheme}-{state}.png"
            screenshot(browser, screenshots / name, width, min(seen["height"], MOST_SHOWN))
    press_tab(browser)
    unfocused = browser.evaluate(FOCUS)
    if unfocused:
        yield f"tab key: {unfocused}"
    yield from complaints(browser.events, url)
    browser.session = None
    browser.call("Target.closeTarget", targetId=target)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("browser")
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    parser.add_argument("--screenshots", type=pathlib.Path)
    flags = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as home:
        browser = Browser(flags.browser, home)
        for page in flags.pages:
            for width in WIDTHS:
                for scheme in SCHEMES:
                    for wrong in wrongs(browser, page, width, scheme, flags.screenshots):
                        print(f"{page}, {width} px, {scheme}: {wrong}")
                        failed = True
        browser.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
