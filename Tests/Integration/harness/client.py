"""A client of the gateway's API, based on aiohttp."""

import base64
import json
from dataclasses import dataclass

import aiohttp


@dataclass
class Response:
    """One HTTP response, read to its end."""

    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    def problem(self, status):
        """The problem details of an error response (RFC 9457), after a check of the members that every problem has."""
        assert self.status == status, (self.status, self.body[:500])
        assert self.headers["Content-Type"].split(";")[0] == "application/problem+json"
        problem = self.json
        for field, kind in (("type", str), ("title", str), ("detail", str), ("retryable", bool), ("request_id", str)):
            assert isinstance(problem.get(field), kind), (field, problem)
        assert problem["status"] == status
        assert problem["detail"].strip()
        return problem


@dataclass
class Batch:
    """The response to one poll, after a check of its form."""

    messages: list
    cursor: str
    more: bool
    gap: dict | None

    @classmethod
    def of(cls, response):
        assert response.status == 200, (response.status, response.body[:500])
        assert response.headers["Content-Type"].split(";")[0] == "application/json"
        assert "no-store" in response.headers["Cache-Control"]
        batch = response.json
        assert response.headers["Gateway-Cursor"] == batch["cursor"]
        return cls(batch["messages"], batch["cursor"], batch["more"], batch["gap"])

    @property
    def payloads(self):
        """The payloads: text as str, binary data as bytes, and JSON in `data` as its value."""
        return [
            base64.b64decode(message["data_base64"], validate=True) if message["type"] == "binary" else message["data"]
            for message in self.messages
        ]


class Client:
    """A client of one session of one gateway. Like a browser, it may reuse every connection."""

    def __init__(self, base, *, unix=None, session=None, headers=None):
        self.base = base
        # The paths of the default session need no name.
        self.root = f"/v1/sessions/{session}" if session else "/v1"
        self._session_path = self.root if session else "/v1/session"
        connector = aiohttp.UnixConnector(unix) if unix else aiohttp.TCPConnector(limit=0)
        self._http = aiohttp.ClientSession(
            base, connector=connector, headers=headers, timeout=aiohttp.ClientTimeout(total=90)
        )

    async def close(self):
        await self._http.close()

    async def request(self, method, path, **options):
        async with self._http.request(method, path, allow_redirects=False, **options) as response:
            return Response(response.status, response.headers, await response.read())

    async def send(self, body, *, type=None, headers=None):
        """POST of one message: `str` as text, `bytes` as binary, unless `type` says otherwise."""
        kind = type or ("text/plain; charset=utf-8" if isinstance(body, str) else "application/octet-stream")
        data = body.encode() if isinstance(body, str) else body
        return await self.request(
            "POST", f"{self.root}/messages", data=data, headers={"Content-Type": kind, **(headers or {})}
        )

    async def accepted(self, body, **options):
        """POST of one message that must be accepted. Returns the description of its delivery."""
        response = await self.send(body, **options)
        assert response.status == 202, (response.status, response.body[:500])
        return response.json

    async def get(self, headers=None, **parameters):
        query = {name: str(value) for name, value in parameters.items()}
        return await self.request("GET", f"{self.root}/messages", params=query, headers=headers)

    async def poll(self, **parameters):
        return Batch.of(await self.get(**parameters))

    async def here(self):
        """The current cursor. Later pushes come after it."""
        return (await self.poll(wait=0)).cursor

    async def collect(self, count, cursor, *, rounds=2000, **parameters):
        """Polls from `cursor` until `count` messages have arrived. Returns the payloads and the cursor after them."""
        payloads = []
        for _ in range(rounds):
            batch = await self.poll(cursor=cursor, wait=10, **parameters)
            assert batch.gap is None, batch.gap
            payloads += batch.payloads
            cursor = batch.cursor
            if len(payloads) >= count:
                break
        return payloads, cursor

    async def session(self):
        response = await self.request("GET", self._session_path)
        assert response.status == 200, (response.status, response.body[:500])
        return response.json


async def exchanges(gateway, upstream):
    """Sends one message in each direction."""
    client = gateway.client()
    here = await client.here()
    await client.accepted("down")
    assert await upstream.has_received(1) == ["down"]
    await upstream.push("up")
    assert (await client.collect(1, here))[0] == ["up"]
