"""Gateways with sessions, consumers, leases, dead letters and deliveries for every cell of the matrix."""

import asyncio
import itertools
import json
import re
import string

from .frames import CLOSE, FramePeer, FrameServer
from .matrix import ALL, CREDENTIALS, OPERATIONS, REVOKED, SESSION
from .partial_requests import PartialRequest, request
from .redis import RedisServer
from .tokens import bearer
from .waiting import eventually


class Upstream(FrameServer):
    """Records messages, and replies to calls. It can postpone its close frames."""

    def __init__(self):
        super().__init__(_Peer)
        self.heard = []
        self.closing = []
        self.postpones_close = False

    @property
    def names(self):
        """The names of the cells whose messages have arrived."""
        return {name for text in self.heard for name in re.findall(r'"(m\d+)"', text)}

    def push(self, *texts):
        for peer in self.peers:
            for text in texts:
                peer.send(text.encode())

    def close(self):
        self.postpones_close = False
        for peer, payload in self.closing:
            peer.obey(CLOSE, payload)


class _Peer(FramePeer):
    def received(self, opcode, payload):
        text = payload.decode()
        self.server.heard.append(text)
        if '"method"' in text:
            self.send(json.dumps({"jsonrpc": "2.0", "id": json.loads(text)["id"], "result": 0}).encode())

    def obey(self, opcode, payload):
        if opcode == CLOSE and self.server.postpones_close:
            self.server.closing.append((self, payload))
            return
        super().obey(opcode, payload)


# A gateway waits for the close frames that the upstream postpones.
_ENV = {"DRAWBRIDGE_UPSTREAM_TIMEOUTS_CLOSING": "10m"}
#: The topics of the pushes.
TOPICS = ["orders.1", "orders.2", "secret", "orders.3"]
_PUSHES = [json.dumps({"topic": topic}) for topic in TOPICS]


class Scene:
    """The gateways of one test, and the state that their matrix concerns.

    `first` is the holder of all sessions.
    """

    def __init__(self, start, gateway_for, tokens, tmp_path, store):
        self._start, self._gateway_for, self._folder, self._store = start, gateway_for, tmp_path, store
        self.tokens = {}
        for credentials in CREDENTIALS[1:]:
            for scopes in {credentials.scopes(operation) for operation in [*OPERATIONS.values(), None]}:
                lists = {"scopes": ",".join(sorted(scopes)), "sessions": credentials.sessions}
                # All tokens have one name, so that the clients may use the same created sessions.
                self.tokens[credentials.name, scopes] = tokens.add("me", **lists, topics=credentials.topics)
        self._file = tokens
        self._leases = {}
        self._ids = {}

    async def begin(self, count=1):
        """Starts the gateways one after another."""
        self.upstream = await self._start(Upstream())
        settings = self._settings()
        if self._store == "sqlite":
            settings["store"]["path"] = str(self._folder / "store")
        if self._store == "redis":
            database = await self._start(RedisServer(self._folder))
            settings["store"] |= {"prefix": "matrix", "url": f"redis://127.0.0.1:{database.port}", "lease": "30s"}
            settings["listeners"] = {"peers": "127.0.0.1:0"}
        self.gateways = [await self._gateway_for(None, config=json.dumps(settings), env=_ENV) for _ in range(count)]
        self.first, self.last = self.gateways[0], self.gateways[-1]
        return self

    def _settings(self):
        upstream = {"url": self.upstream.url, "correlation": "jsonrpc", "topic": {"pointer": "/topic"}}
        return {
            "upstream": upstream | {"dials": {"per_second": 10000, "burst": 10000, "at_once": 1000}},
            "profiles": {"market": {"addresses": {"allow": ["127.0.0.1"]}, "upstream": upstream}},
            "created_sessions": {"per_principal": 1000},
            "authentication": {"tokens": str(self._file.path)},
            "http": {"head_timeout": "10m", "body_timeout": "10m", "management_connections": 4096},
            "shutdown": {"drain": "10m", "flush": "10m"},
            "store": {"engine": self._store},
            # With one loop, a response shows that the gateway has read all earlier requests.
            "loops": 1,
        }

    # -- State --------------------------------------------------------------------------------------------------------

    async def ask(self, gateway, method, target, body="", *statuses):
        """A request of the administrator. Management listeners serve it during a drain, too."""
        message = request(method, target, bearer(self.tokens["admin", ALL]), body.encode())
        response = await (await PartialRequest.begin(gateway.address("management"), message)).finish()
        assert response.status in (statuses or (200,)), (method, target, response.status, response.body)
        return response.json if response.body else None

    async def prepare(self, matrix, *roots):
        """Creates the sessions, consumers, leases, dead letters and deliveries that the cells need."""
        named = [cell.target for cell in matrix if cell.needs("name")]
        for root in {*named, *(root for root in roots if root != "/v1")}:
            await self.ask(self.first, "PUT", root, SESSION, 201)
        sessions = [f"/v1/sessions/{each['session']}" for each in await self.sessions(self.first)]
        for session in sessions:
            await self._is_ready(self.first, session)
        self.upstream.push(*_PUSHES)
        for root in roots:
            self._ids[root] = (await self.ask(self.first, "POST", f"{root}/messages", "first", 202))["id"]
            await self._has_pushes(self.first, root)
        await asyncio.gather(*(self._prepare_consumer(cell) for cell in matrix if cell.needs("consumer")))
        for gateway in self.gateways[1:]:

            async def has_copy(gateway=gateway):
                return len(await self.sessions(gateway)) == len(sessions)

            await eventually(has_copy, what="the gateway knows all sessions")
            for session in sessions:
                await self._is_ready(gateway, session)
            for root in roots:
                await self._has_pushes(gateway, root)

    async def sessions(self, gateway):
        return (await self.ask(gateway, "GET", "/v1/sessions"))["sessions"]

    async def _is_ready(self, gateway, session):
        async def is_ready():
            return (await self.ask(gateway, "GET", session, "", 200, 404, 503)).get("state") == "ready"

        await eventually(is_ready, what=f"{session} is ready")

    async def _has_pushes(self, gateway, root):
        async def has_pushes():
            poll = await self.ask(gateway, "GET", f"{root}/messages?cursor=earliest&wait=0")
            return len(poll["messages"]) == len(_PUSHES)

        await eventually(has_pushes, what="the pushes have arrived")

    async def _prepare_consumer(self, cell):
        path = f"{cell.root}/consumers/{cell.name}"
        settings = {"share": True, "start": "earliest", "visibility": "1h"}
        await self.ask(self.first, "PUT", path, json.dumps(settings), 201)
        received = await self.ask(self.first, "POST", f"{path}/receive?limit=2")
        dead, self._leases[cell] = (message["lease"] for message in received["messages"])
        await self.ask(self.first, "POST", f"{path}/settle", json.dumps({"reject": [dead]}))

    async def state(self, gateway, cell):
        """What the request may change."""
        if cell.path == "/v1/reload":
            return (await self.ask(gateway, "GET", "/v1/reload"))["reloads"]
        if "{consumer}" in cell.path:
            found = await self.ask(gateway, "GET", f"{cell.root}/consumers/{cell.name}", "", 200, 404)
            return (found["leases"], found["dead"]["messages"]) if "leases" in found else None
        if "{name}" in cell.path:
            return (await self.ask(gateway, "GET", cell.target, "", 200, 404)).get("desired")
        return cell.name in self.upstream.names

    async def close(self, *names):
        """Closes sessions, except the default session, which is configured."""
        for name in set(names) - {"default"}:
            await self.ask(self.first, "DELETE", f"/v1/sessions/{name}", "", 204)

        async def are_closed():
            lists = [await self.sessions(gateway) for gateway in self.gateways]
            return not any(each["session"] in names for each in itertools.chain(*lists) if each["session"] != "default")

        await eventually(are_closed, what="all gateways have closed the sessions")

    # -- Requests -----------------------------------------------------------------------------------------------------

    async def send(self, gateway, cell, end=None, *, is_allowed):
        """Sends the bytes of a request up to `end`.

        The default session must stay open for the other requests, so an allowed PATCH opens it. A PATCH that the
        gateway must refuse would close it, so that its execution would be noticed.
        """
        token = self.tokens.get((cell.credentials.name, cell.scopes))
        desired = "up" if is_allowed and cell.path == "/v1/session" else "down"
        target = string.Template(cell.target).substitute(id=self._ids.get(cell.root, "d-0"))
        body = string.Template(cell.operation.body if cell.operation else "").substitute(
            name=cell.name, desired=desired, lease=self._leases.get(cell, "")
        )
        message = request(cell.method, target, bearer(token) if token else {}, (body or "a body").encode())
        return await PartialRequest.begin(gateway.address(cell.listener), message, end)

    async def revoke(self):
        """Removes the credentials of REVOKED when the gateways have read all heads that were sent."""
        token = self.tokens[REVOKED.name, ALL]
        for gateway in self.gateways:
            message = request("GET", "/v1/session", bearer(token))
            response = await (await PartialRequest.begin(gateway.address(), message)).finish()
            assert response.status == 200, response.body
        self._file.remove(token)
        for gateway in self.gateways:

            async def is_removed(gateway=gateway):
                response = await (await PartialRequest.begin(gateway.address(), message)).finish()
                return response.status in (401, 429)

            await eventually(is_removed, what="the token is removed")
