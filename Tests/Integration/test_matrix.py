"""Every operation of openapi.yaml, with every kind of credentials, wherever the gateway is that gets the request.

The rows are the paths of openapi.yaml. Each is requested with its methods, with GET, HEAD and OPTIONS, and with a
method that it does not have. `expected` has the rules of the contract.
"""

import asyncio
import dataclasses
import functools

import pytest

from harness.matrix import (
    ADMIN,
    ALLOWED,
    CONTRACT,
    LIMITED,
    MANAGEMENT,
    METHODS,
    NONE,
    OPERATIONS,
    PARTS,
    PUBLIC,
    REVOKED,
    UNSAFE,
    cells,
)
from harness.matrix_scene import TOPICS, Scene
from harness.waiting import eventually


@dataclasses.dataclass(frozen=True)
class Answer:
    status: int
    problem: str | None = None
    challenge: str | None = None

    @property
    def is_done(self):
        """Whether the request is executed."""
        return self.problem is None


HELD, CLOSED, CLOSING, DRAINING, MOVING = "held", "closed", "closed between head and body", "draining", "moving"

BEARER = 'Bearer realm="drawbridge"'
UNAUTHORIZED = Answer(401, "unauthorized", BEARER)
_ENDED = 'error="invalid_token", error_description="the credentials are no longer valid"'
EXPIRED = Answer(401, "unauthorized", f"{BEARER}, {_ENDED}")
NOT_ALLOWED = Answer(405, "method-not-allowed")
FORBIDDEN = Answer(403, "insufficient-scope")


def expected(cell, place):
    """The rules of the contract, in the order in which they apply."""
    operation, credentials = cell.operation, cell.credentials
    if cell.method == "OPTIONS":
        return Answer(204)
    if cell.path in MANAGEMENT:
        return Answer(operation.status) if operation else NOT_ALLOWED
    if operation and operation.scopes is PUBLIC:
        return Answer(operation.status)
    if credentials is NONE:
        return UNAUTHORIZED
    # These credentials were valid for the head, so nothing else is reported.
    if credentials is REVOKED:
        return EXPIRED
    is_put = cell.method == "PUT" and cell.path == "/v1/sessions/{name}"
    if credentials.sessions != "*":
        # A session that the credentials do not allow does not exist. A client cannot create it, and cannot reload all.
        if is_put or cell.path == "/v1/reload":
            return FORBIDDEN
        if cell.session and (operation or "{name}" not in cell.path):
            return Answer(404, "not-found")
    # PUT creates a session, so /v1/sessions/{name} has its methods for every name.
    exists = "{name}" in cell.path and (is_put or operation is None)
    if place == CLOSED and cell.session not in (None, "/v1") and not exists:
        return Answer(404, "not-found")
    if operation is None:
        return NOT_ALLOWED
    if not cell.scopes & operation.scopes:
        needed = " ".join(name for name in ("send", "receive", "call", "admin") if name in operation.scopes)
        return Answer(403, "insufficient-scope", f'{BEARER}, error="insufficient_scope", scope="{needed}"')
    # These credentials allow only some topics, so they do not allow a consumer of all topics.
    if credentials is LIMITED and "{consumer}" in cell.path:
        return FORBIDDEN
    if place == CLOSING:
        return Answer(410, "session-closed")
    if is_put and place == DRAINING:
        return Answer(503, "too-many-sessions")
    if place == DRAINING and cell.path == "/v1/reload" and cell.method == "POST":
        return Answer(503, "shutting-down")
    return Answer(operation.status)


def faults(cell, response, answer):
    """The differences between a response and the contract."""
    problem = None
    if response.status >= 400 and cell.method != "HEAD":
        problem = response.problem(response.status)["type"].removeprefix("/errors/")
    if response.status != answer.status or (cell.method != "HEAD" and problem != answer.problem):
        yield f"{response.status} {problem} {response.body[:200]} instead of {answer}"
        return
    allow = ", ".join(ALLOWED[cell.path]) if cell.method == "OPTIONS" or answer.status == 405 else None
    if response.headers.get("Allow") != allow:
        yield f"Allow is {response.headers.get('Allow')} instead of {allow}"
    challenge = response.headers.get("WWW-Authenticate")
    if challenge != answer.challenge:
        yield f"WWW-Authenticate is {challenge} instead of {answer.challenge}"
    row = CONTRACT[cell.path].get("get" if cell.method == "HEAD" else cell.method.lower())
    if row and str(response.status) not in row["responses"]:
        yield f"openapi.yaml does not have the status {response.status}"
    if cell.method == "HEAD" and response.body:
        yield "the response to HEAD has content"
    if answer == EXPIRED and cell.method != "HEAD" and "nothing was done" not in response.json["detail"]:
        yield f"the detail is {response.json['detail']}"
    if cell.path == "/v1/messages" and cell.method == "GET" and answer.status == 200:
        topics = [message["topic"] for message in response.json["messages"]]
        if topics != [topic for topic in TOPICS if cell.credentials is not LIMITED or topic != "secret"]:
            yield f"the messages have the topics {topics}"


#: The header fields whose values depend on the moment.
VOLATILE = {"date", "content-length"}


def head_faults(responses):
    """The differences between the header fields of GET and HEAD."""
    of_get = {
        (cell.path, cell.root, cell.credentials): each for cell, each in responses.items() if cell.method == "GET"
    }
    for cell, response in responses.items():
        if cell.method == "HEAD":
            pair = [
                {name.lower(): value for name, value in each.headers.items() if name.lower() not in VOLATILE}
                for each in (of_get[cell.path, cell.root, cell.credentials], response)
            ]
            if pair[0] != pair[1]:
                yield f"{cell}: the fields are {pair[1]}, with GET {pair[0]}"
            if "Content-Length" not in response.headers:
                yield f"{cell}: Content-Length is missing"


def form(response):
    """The parts of a response that do not depend on the gateway or on the moment."""
    is_document = response.body and response.headers["Content-Type"].endswith("json")
    return response.status, sorted(name.lower() for name in response.headers), is_document and sorted(response.json)


class Walk:
    """The requests of a matrix to one gateway of a scene."""

    def __init__(self, scene, gateway, matrix, place):
        self._scene, self._gateway, self._matrix, self._place = scene, gateway, matrix, place
        self._before = {}
        self._faults = []
        self.responses = {}

    async def send(self, cell, end=None):
        return await self._scene.send(self._gateway, cell, end, is_allowed=expected(cell, self._place).is_done)

    async def begin(self):
        """The requests with REVOKED, without the last byte. Their credentials are removed."""
        partial = {cell: await self.send(cell, -1) for cell in self._matrix if cell.credentials is REVOKED}
        await self._scene.revoke()
        return partial

    async def note(self):
        """Notes the state before the requests."""
        self._before = {cell: await self._scene.state(self._gateway, cell) for cell in self._matrix}

    async def finish(self, cell, partial):
        """Completes a request, and checks its response."""
        response, answer = await partial.finish(), expected(cell, self._place)
        self.responses[cell] = response
        self._faults += [f"{cell}: {fault}" for fault in faults(cell, response, answer)]
        if self._place == DRAINING and cell.listener == "api" and response.headers.get("Connection") != "close":
            self._faults.append(f"{cell}: the connection stays open")
        if cell.path == "/v1/reload" and response.status == 202:
            # The next reload begins when this reload has ended.
            await eventually(lambda: self._has_reloaded(response.json["reloads"] + 1), what="the reload")

    async def _has_reloaded(self, count):
        return (await self._scene.ask(self._gateway, "GET", "/v1/reload"))["reloads"] == count

    async def all(self):
        """Sends all requests, one after another."""
        partial = await self.begin()
        await self.note()
        await self.rest(partial)

    async def rest(self, partial):
        for cell in self._matrix:
            await self.finish(cell, partial.get(cell) or await self.send(cell))
        await self.check()

    async def check(self):
        """Checks what the requests have changed, and that each HEAD has got the header fields of its GET."""
        ask = functools.partial(self._scene.ask, self._gateway)
        is_open = (await ask("GET", "/v1/session"))["desired"] == "up"
        if not is_open:
            self._faults.append("a refused PATCH of /v1/session has closed the session")
        # The upstream gets these messages last.
        for root in {cell.root for cell in self._matrix if PARTS.match(cell.path)}:
            if is_open and self._place not in (CLOSED, CLOSING):
                last = f"the last message of {root}"
                await ask("POST", f"{root}/messages", last, 202)
                await eventually(lambda last=last: last in self._scene.upstream.heard, what=last)
        for cell in self._matrix:
            before, after = self._before[cell], await self._scene.state(self._gateway, cell)
            # The state of a reload is the number of all reloads.
            if cell.path != "/v1/reload" and (before != after) != self._changes(cell):
                self._faults.append(f"{cell}: {before} has become {after}")
        reloads = sum(self._changes(cell) for cell in self._matrix if cell.path == "/v1/reload")
        if not await self._has_reloaded(reloads):
            self._faults.append("a refused POST of /v1/reload has reloaded the configuration")
        self._faults += head_faults(self.responses)
        assert not self._faults, f"{len(self._faults)} faults, {len(self._matrix)} cells:\n" + "\n".join(self._faults)

    def _changes(self, cell):
        return expected(cell, self._place).is_done and cell.is_change


# ---------------------------------------------------------------------------------------------------------- The tests


def test_the_table_has_every_operation():
    operations = {f"{name.upper()} {path}" for path, row in CONTRACT.items() for name in row if name.upper() in METHODS}
    assert operations == OPERATIONS.keys()


@pytest.fixture
def scene(start, gateway_for, tokens, tmp_path):
    """`await scene(store, …)`: the gateways of a test."""

    async def scene(store, count=1):
        return await Scene(start, gateway_for, tokens, tmp_path, store).begin(count)

    return scene


ROOTS = ("/v1", "/v1/sessions/made")


STORES = pytest.mark.parametrize("store", ["memory", "sqlite", "redis"])


@STORES
async def test_every_operation_follows_the_contract_where_the_session_is_held(scene, store):
    scene = await scene(store)
    matrix = list(cells(*ROOTS))
    await scene.prepare(matrix, *ROOTS)
    await Walk(scene, scene.first, matrix, HELD).all()


async def test_another_gateway_than_the_holder_responds_like_the_holder(scene):
    scene = await scene("redis", 2)
    matrix = list(cells(*ROOTS))
    await scene.prepare(matrix, *ROOTS)
    there, here = Walk(scene, scene.last, matrix, HELD), Walk(scene, scene.first, matrix, HELD)
    await there.all()
    for cell in matrix:
        # These requests have changed nothing, so the responses are comparable.
        if cell.method not in UNSAFE and cell.credentials is not REVOKED:
            await here.finish(cell, await here.send(cell))
    differences = [
        f"{cell}: {form(there.responses[cell])} instead of {form(response)}"
        for cell, response in here.responses.items()
        if form(there.responses[cell]) != form(response)
    ]
    assert not differences, "\n".join(differences)


@STORES
async def test_a_closed_session_does_not_exist(scene, store):
    scene = await scene(store, 2 if store == "redis" else 1)
    matrix = [cell for cell in cells("/v1/sessions/made") if cell.session]
    await scene.prepare(matrix, "/v1/sessions/made")

    walk = Walk(scene, scene.last, matrix, CLOSED)
    partial = await walk.begin()
    await scene.close(*(each["session"] for each in await scene.sessions(scene.first)))
    await walk.note()
    await walk.rest(partial)


@STORES
async def test_a_request_for_a_session_that_closes_before_its_body_gets_410(scene, store):
    scene = await scene(store, 2 if store == "redis" else 1)
    root = "/v1/sessions/made"
    matrix = [cell for cell in cells(root) if cell.root == root and cell.operation and cell.credentials is ADMIN]
    matrix = [cell for cell in matrix if cell.method != "OPTIONS"]
    await scene.prepare(matrix, root)
    walk = Walk(scene, scene.last, matrix, CLOSING)
    partial = {cell: await walk.send(cell, -1) for cell in matrix}
    await scene.revoke()
    await scene.close("made")
    await walk.note()
    await walk.rest(partial)


@STORES
async def test_a_gateway_that_drains_still_follows_the_contract(scene, store):
    scene = await scene(store)
    matrix = list(cells("/v1"))
    await scene.prepare(matrix, "/v1")
    walk = Walk(scene, scene.first, matrix, DRAINING)
    # The gateway has read only the first bytes of these requests when it begins to drain.
    partial = {
        cell: await walk.send(cell, 3) for cell in matrix if cell.listener == "api" and cell.credentials is not REVOKED
    }
    partial |= await walk.begin()
    last = await walk.send(matrix[0], -1)
    await walk.note()
    scene.first.signal()
    await scene.first.logs(lambda record: record["message"] == "draining", what="the drain")
    await walk.rest(partial)
    await last.finish()
    assert await scene.first.exit_status() == 0


def needs_holder(cell):
    """Whether another gateway cannot respond. Every gateway has the pushes, and the list of created sessions."""
    is_read = cell.path == "/v1/messages" and cell.method not in UNSAFE
    answer = expected(cell, MOVING)
    # The holder knows the topics of a consumer.
    is_forwarded = answer.is_done or (cell.credentials is LIMITED and answer == FORBIDDEN)
    return cell.session and cell.method != "OPTIONS" and is_forwarded and not is_read


async def test_requests_at_another_gateway_are_executed_while_the_session_moves_to_it(scene):
    """The holder shuts down, and waits for the close frames of its upstreams until all requests have arrived."""
    scene = await scene("redis", 2)
    matrix = list(cells(*ROOTS))
    await scene.prepare(matrix, *ROOTS)
    walk = Walk(scene, scene.last, matrix, MOVING)
    partial = await walk.begin()
    await walk.note()
    count = len(scene.upstream.peers)
    scene.upstream.postpones_close = True
    scene.first.signal()
    await eventually(lambda: len(scene.upstream.closing) == count, what="the holder closes all connections")
    waiting = []
    for cell in matrix:
        finished = walk.finish(cell, partial.get(cell) or await walk.send(cell))
        if needs_holder(cell):
            waiting.append(asyncio.create_task(finished))
        else:
            await finished
    scene.upstream.close()
    await asyncio.gather(*waiting)
    assert await scene.first.exit_status() == 0
    await walk.check()
