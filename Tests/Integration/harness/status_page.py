"""The status page in Chromium, used as a person uses it."""

from axe_playwright_python.base import AXE_FILE_PATH
from playwright.async_api import expect

from .browser import Chromium

expect.set_options(timeout=30_000)

# Chromium's report of an error response, or of a gateway that has ended. Neither is a fault of the page.
_NETWORK = "Failed to load resource"


class StatusPage:
    """An open page. Records its reports, and the addresses from which it has loaded. `stop` ends the browser."""

    def __init__(self, gateway, **options):
        self._url = gateway.url("management") + "/"
        self._options = options
        self._chromium = Chromium()
        self._messages = []
        self.requests = []

    async def start(self):
        await self._chromium.start()
        self.page = await self._chromium.page(**self._options)
        self.page.on("console", lambda message: self._messages.append((message.type, message.text)))
        self.page.on("pageerror", lambda error: self._messages.append(("exception", str(error))))
        self.page.on("request", lambda request: self.requests.append(request))
        self.response = await self.page.goto(self._url)
        return self

    async def stop(self):
        await self._chromium.stop()

    def __getitem__(self, selector):
        return self.page.locator(selector)

    def session(self, name):
        return self.page.locator(f"#sessions tr[data-key='{name}']")

    async def follow(self):
        """Follows the messages, unless the page already follows them because it may show payloads."""
        await expect(self["#details-part"]).to_be_visible()
        if await self["#follow"].text_content() == "Follow":
            await self["#follow"].click()
        await expect(self["#tail-state"]).to_have_text("following")

    async def is_connected(self):
        await expect(self["#headline"]).to_contain_text("Connected to ")

    async def is_closed(self):
        await expect(self["#headline"]).to_contain_text("Disconnected by an operator")

    def requested(self, text, since=0):
        """The requests whose URL contains `text`, without the first `since` requests of the page."""
        return [request for request in self.requests[since:] if text in request.url]

    async def violations(self):
        """The faults that axe finds. axe is injected as a script, so the page needs the option `bypass_csp`."""
        if not await self.page.evaluate("'axe' in window"):
            await self.page.evaluate(AXE_FILE_PATH.read_text() + "; undefined")
        return [
            (item["id"], [node["html"][:200] + node["failureSummary"] for node in item["nodes"]])
            for item in (await self.page.evaluate("axe.run()"))["violations"]
        ]

    def errors(self, *, network=False):
        """The errors on the console. With `network`, also failed requests."""
        return [item for item in self._messages if network or not item[1].startswith(_NETWORK)]
