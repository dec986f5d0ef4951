"""Chromium without a window, spoken to over its debugging pipe: what a page shows, at a width and after its scripts."""

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE = 60  # seconds

# Wider than the window, with nothing around it that scrolls; or clipped by what is around it.
CUT = """[...document.querySelectorAll("body *")].filter(element => {
  if (!element.checkVisibility()) return false;
  if (element.closest(".visually-hidden, .sidebar-drawer, .toc-drawer, svg")) return false;
  const style = getComputedStyle(element);
  if (["hidden", "clip"].includes(style.overflowX)) return element.scrollWidth > element.clientWidth + 1;
  if (element.getBoundingClientRect().right <= innerWidth + 1) return false;
  for (let box = element.parentElement; box !== document.body; box = box.parentElement)
    if (["auto", "scroll"].includes(getComputedStyle(box).overflowX)) return false;
  return true;
}).map(element => `${element.tagName} ${element.className}: ${element.textContent.slice(0, 60)}`)"""
# Words that are on two lines; a hyphen ends a word.
SPLIT = r"""(() => {
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walk.nextNode());) {
    const parent = node.parentElement;
    if (!parent.checkVisibility() || parent.closest("svg, script, style, select")) continue;
    for (const word of node.data.matchAll(/[\p{L}\p{N}_]+/gu)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1) found.push(word[0]);
    }
  }
  return found;
})()"""


def find():
    """The path of a browser, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One tab. A message is JSON and a zero byte, in both directions."""

    def __init__(self, requests, answers):
        self.requests, self.answers = requests, answers
        self.numbers = itertools.count(1)
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def call(self, method, **params):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.requests.write(json.dumps(message).encode() + b"\0")
        self.requests.flush()
        while True:  # events come in between
            answer = json.loads(self._read())
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer)
                return answer["result"]

    def _read(self):
        message = bytearray()
        while (byte := self.answers.read(1)) != b"\0":
            assert byte, "the browser has ended"
            message += byte
        return message

    def evaluate(self, expression):
        """The value of an expression of JavaScript; promises are awaited."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def open(self, url, width=1400, height=900):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && document.fonts.ready.then(() => true)")

    def wait(self, expression):
        """Return the value of an expression as soon as it is true."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if value := self.evaluate(expression):
                return value
            time.sleep(0.05)
        message = f"not true within {PATIENCE} s: {expression}"
        raise AssertionError(message)


@contextlib.contextmanager
def page(executable, home):
    """Start a browser that keeps its files in `home`, and give its tab."""
    inbound, requests = os.pipe()
    answers, outbound = os.pipe()
    # The browser reads from 3 and writes to 4; a shell puts the pipes there.
    command = 'exec "$0" "$@" 3<&"$IN" 4>&"$OUT"'
    flags = ["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with subprocess.Popen(
        ["/bin/bash", "-c", command, executable, *flags, f"--user-data-dir={home}", "about:blank"],
        env={**os.environ, "IN": str(inbound), "OUT": str(outbound)},
        pass_fds=(inbound, outbound),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        os.close(inbound)
        os.close(outbound)
        try:
            with open(requests, "wb") as writing, open(answers, "rb") as reading:  # noqa: PTH123  (descriptors)
                yield Page(writing, reading)
        finally:
            process.terminate()
