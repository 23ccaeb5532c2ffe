"""Chromium without a window, driven by Playwright."""

import atexit
import contextlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from playwright.async_api import async_playwright

from .program import find
from .waiting import eventually

# The flags of Playwright that matter here. They prevent requests and slower timers in the background, and set the same
# colours everywhere.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-renderer-backgrounding",
    "--disable-sync",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--mute-audio",
    "--no-default-browser-check",
    "--no-first-run",
    "--password-store=basic",
)


class _Process:
    """One browser for all tests of a process, since its start takes longer than many tests.

    Each test has contexts of its own.
    """

    def __init__(self):
        self._process = None
        self._folder = None

    async def start(self):
        """Starts the browser, and returns the address of its remote control."""
        if self._process is None or self._process.poll() is not None:
            self._launch(find("chromium"))
        process, port = self._process, self._folder / "DevToolsActivePort"

        def is_ready():
            return process.poll() is not None or (port.exists() and len(port.read_text().splitlines()) == 2)

        await eventually(is_ready, what="chromium has started")
        if process.poll() is not None:
            lines = (self._folder / "log").read_text(errors="replace").splitlines()
            pytest.skip(f"chromium does not start: {' '.join(lines[:1])}")
        number, path = port.read_text().splitlines()
        return f"ws://127.0.0.1:{number}{path}"

    def _launch(self, program):
        self._folder = Path(tempfile.mkdtemp(prefix="chromium-"))
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                (program, *_FLAGS, "--remote-debugging-port=0", f"--user-data-dir={self._folder}", "about:blank"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        atexit.register(self._stop, self._process)

    @staticmethod
    def _stop(process):
        process.terminate()
        process.wait()


_process = _Process()


class Chromium:
    """Debian's Chromium: Playwright's own build is not installed."""

    def __init__(self):
        self._stack = contextlib.AsyncExitStack()
        self._browser = None
        self._contexts = []

    async def start(self):
        endpoint = await _process.start()
        playwright = await self._stack.enter_async_context(async_playwright())
        self._browser = await playwright.chromium.connect_over_cdp(endpoint)
        return self

    async def open(self, address, html):
        """A page with this content, whose origin is the server at `address`. The server does not get the request."""
        page = await self.page()
        url = "http://{}:{}/page".format(*address)

        async def serve(route):
            await route.fulfill(body=html, content_type="text/html; charset=utf-8")

        await page.route(url, serve)
        await page.goto(url)
        return page

    async def page(self, **options):
        """An empty page in its own context, for example with another width or colour scheme."""
        self._contexts.append(await self._browser.new_context(**options))
        return await self._contexts[-1].new_page()

    async def visit(self, url):
        """The page that a server sends."""
        page = await self.page()
        await page.goto(url)
        return page

    async def stop(self):
        """Closes the pages of this test."""
        if self._browser:
            for context in self._contexts:
                await context.close()
            await self._browser.close()
        await self._stack.aclose()
