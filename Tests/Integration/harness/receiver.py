"""Receivers of webhooks, which verify signatures with the `standardwebhooks` library, and gateway settings for them."""

import base64
import json
import os
from dataclasses import dataclass

from aiohttp import web
from standardwebhooks.webhooks import Webhook

from .ports import reserve_port
from .waiting import eventually


def new_secret():
    return "whsec_" + base64.b64encode(os.urandom(24)).decode()


@dataclass
class Delivery:
    """One request: its headers, its body, and the push in it."""

    headers: dict
    body: bytes
    path: str

    @property
    def id(self):
        return self.headers["webhook-id"]

    @property
    def push(self):
        return json.loads(self.body)

    @property
    def data(self):
        return self.push["data"]

    def is_signed_with(self, secret):
        return Webhook(secret).verify(self.body, self.headers) == self.push


class Receiver:
    """Responds to request number n, counted from 1, with `respond(n, delivery)`: a status, or a whole response."""

    def __init__(self, respond=lambda n, delivery: 204, *, certificate=None, host="127.0.0.1"):
        self.deliveries = []
        self.connections = set()
        self.secret = new_secret()
        self.port = 0
        self.host = host
        self.respond = respond
        self._certificate = certificate
        self._runner = None

    @property
    def url(self):
        name = "localhost" if self._certificate else self.host
        return f"{'https' if self._certificate else 'http'}://{name}:{self.port}/hooks?key=hidden"

    @property
    def payloads(self):
        return [delivery.data for delivery in self.deliveries]

    async def start(self):
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/{path:.*}", self._receive)
        self._runner = web.AppRunner(app, keepalive_timeout=60, shutdown_timeout=0.1)
        await self._runner.setup()
        tls = self._certificate.server_context() if self._certificate else None
        self.port = self.port or reserve_port()
        site = web.TCPSite(self._runner, self.host, self.port, ssl_context=tls)
        await site.start()
        return self

    async def _receive(self, request):
        self.connections.add(request.transport.get_extra_info("peername"))
        delivery = Delivery(dict(request.headers), await request.read(), request.path)
        self.deliveries.append(delivery)
        response = self.respond(len(self.deliveries), delivery)
        if hasattr(response, "__await__"):
            response = await response
        return response if isinstance(response, web.Response) else web.Response(status=response)

    async def has(self, count, **options):
        await eventually(lambda: len(self.deliveries) >= count, what=f"{count} requests reach the receiver", **options)
        return self.deliveries

    async def stop(self):
        if self._runner:
            await self._runner.cleanup()
            self._runner = None


def webhook(receiver, *, name="hook", secrets=None, url=None, allow=True, **options):
    """The settings of a webhook. By default it retries within a second."""
    return {
        "name": name,
        "url": url or receiver.url,
        "secrets": secrets or [receiver.secret],
        "retries": ["100ms", "100ms", "100ms"],
        **({"addresses": {"allow": ["127.0.0.0/8"]}} if allow else {}),
        **options,
    }


def config(*webhooks, **more):
    # JSON is YAML.
    return json.dumps({"webhooks": list(webhooks), **more})


async def state(gateway, name="hook"):
    """The state of a webhook's consumer."""
    response = await gateway.client().request("GET", f"/v1/consumers/{name}")
    assert response.status == 200, response.body
    return response.json


async def settled(gateway, **expected):
    """Waits until no push is left after the webhook's position. Returns its state."""

    async def is_settled():
        consumer = await state(gateway)
        return consumer if consumer["lag"] == 0 and consumer["leases"] == 0 else None

    consumer = await eventually(is_settled, what="everything is settled")
    for name, value in expected.items():
        assert consumer["dead"][name] == value, consumer
    return consumer
