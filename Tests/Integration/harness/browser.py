"""Chromium without a window, driven by Playwright."""

import contextlib

import pytest
from playwright.async_api import Error, async_playwright

from .program import find


class Chromium:
    """Debian's Chromium: Playwright's own build is not installed."""

    def __init__(self):
        self._stack = contextlib.AsyncExitStack()
        self._browser = None

    async def start(self):
        path = find("chromium")
        playwright = await self._stack.enter_async_context(async_playwright())
        try:
            self._browser = await playwright.chromium.launch(executable_path=path)
        except Error as error:
            await self._stack.aclose()
            pytest.skip(f"chromium does not start: {error.message.splitlines()[0]}")
        return self

    async def open(self, address, html):
        """A page with this content whose origin is the server at `address`; that server does not see the request."""
        page = await self._browser.new_page()
        url = "http://{}:{}/page".format(*address)

        async def serve(route):
            await route.fulfill(body=html, content_type="text/html; charset=utf-8")

        await page.route(url, serve)
        await page.goto(url)
        return page

    async def page(self, **options):
        """An empty page in a context of its own, such as with another width or colour scheme."""
        return await (await self._browser.new_context(**options)).new_page()

    async def visit(self, url):
        """The page that a server sends."""
        page = await self._browser.new_page()
        await page.goto(url)
        return page

    async def stop(self):
        if self._browser:
            await self._browser.close()
        await self._stack.aclose()
