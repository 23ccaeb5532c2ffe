"""A new connection replaces the old connection. No message is lost or doubled, and a failure changes nothing."""

import asyncio
import collections
import contextlib
import itertools
import signal
import socket

import pytest
from websockets.asyncio.server import broadcast
from websockets.exceptions import ConnectionClosed

from harness.raw import frame, read_frame, read_head, reset, upgrade
from harness.upstream import Upstream
from harness.waiting import eventually

HAND_OVERS = 100


class Broadcaster(Upstream):
    """Sends one numbered stream to every connection, from its greeting on."""

    def __init__(self, *, greets=False, **options):
        super().__init__(**options)
        self._greets = greets
        self.greeted = 0
        self.pushed = 0
        self._subscribers = []

    async def _converse(self, connection):
        if self._greets:
            # Acts like a server that must look something up first: the connection is open, but gets nothing yet.
            await asyncio.sleep(0)
            self.greeted += 1
            await connection.send(f"hello {self.greeted}")
        self._subscribers.append(connection)
        try:
            await super()._converse(connection)
        finally:
            self._subscribers.remove(connection)

    async def broadcast_until(self, stopped):
        while not stopped.is_set():
            self.pushed += 1
            for connection in list(self._subscribers):
                # If this connection has ended, the other connections still get the push.
                with contextlib.suppress(ConnectionClosed):
                    await connection.send(f"push {self.pushed}")
            await asyncio.sleep(0)


async def generation(client):
    session = await client.session()
    return session["generation"] if session["state"] in ("ready", "suspect") else None


async def hand_over(gateway, client, upstream):
    before = await generation(client)
    gateway.signal(signal.SIGHUP)

    async def is_over():
        now = await generation(client)
        return now is not None and now > before and upstream.connected == 1

    await eventually(is_over, what="the successor is ready and the old connection closed")


@pytest.mark.load
@pytest.mark.timeout(240)
@pytest.mark.parametrize("greets", [False, True])
async def test_a_hundred_hand_overs_under_load_lose_nothing(start, gateway_for, measured, greets):
    upstream = await start(Broadcaster(greets=greets))
    env = {
        "DRAWBRIDGE_UPSTREAM_OVERLAP": "100ms",
        "DRAWBRIDGE_DELIVERY_MESSAGES": "1000000",
        "DRAWBRIDGE_DELIVERY_BYTES": "1GiB",
    }
    gateway = await gateway_for(upstream, env=env)
    client = gateway.client()
    cursor = await client.here()
    stopped = asyncio.Event()
    pushing = asyncio.create_task(upstream.broadcast_until(stopped))
    got = []
    posted = []

    async def read():
        nonlocal cursor
        while not stopped.is_set():
            batch = await client.poll(cursor=cursor, wait=1)
            assert batch.gap is None
            got.extend(batch.payloads)
            cursor = batch.cursor

    async def post():
        for number in itertools.count():
            if stopped.is_set():
                return
            response = await client.send(f"post {number}")
            if response.status == 202:
                posted.append(f"post {number}")

    working = [asyncio.create_task(read()), asyncio.create_task(post())]
    for _ in range(HAND_OVERS):
        await hand_over(gateway, client, upstream)
    stopped.set()
    await asyncio.gather(pushing, *working)

    def pushes():
        return [payload for payload in got if payload.startswith("push")]

    async def all_read():
        nonlocal cursor
        batch = await client.poll(cursor=cursor, wait=0)
        got.extend(batch.payloads)
        cursor = batch.cursor
        return got and got[-1] == f"push {upstream.pushed}"

    await eventually(all_read, what="the last push is read")
    counts = collections.Counter(pushes())
    first = int(pushes()[0].split()[1])
    assert [name for name, count in counts.items() if count > 1] == [], "passed on twice"
    assert sorted(int(name.split()[1]) for name in counts) == list(range(first, upstream.pushed + 1)), "lost"
    if greets:
        assert {f"hello {number}" for number in range(2, upstream.greeted + 1)} <= set(got)

    await eventually(lambda: len(upstream.received) >= len(posted), what="every accepted post arrives")
    assert sorted(upstream.received) == sorted(posted)
    session = await client.session()
    assert session["messages"]["unknown"] == 0
    assert len(upstream.requests) == HAND_OVERS + 1
    measured(f"{HAND_OVERS} hand-overs, {len(counts)} pushes and {len(posted)} posts, none lost or doubled")


class Responder(Upstream):
    """Broadcasts one numbered stream to every connection, and responds `ok` to each message after `delay`."""

    def __init__(self, *, delay=0.0, upgrade_delay=0.0, **options):
        async def wait(connection, request):
            await asyncio.sleep(upgrade_delay)

        super().__init__(process_request=wait, **options)
        self._delay = delay
        self._responding = set()
        self.pushed = 0
        self.responses = 0

    async def _react(self, connection, message):
        if self._delay:
            task = asyncio.create_task(self._respond(connection))
            self._responding.add(task)
            task.add_done_callback(self._responding.discard)
        else:
            await self._respond(connection)

    async def _respond(self, connection):
        # This is the working time of the upstream, not a wait of the test.
        await asyncio.sleep(self._delay)
        with contextlib.suppress(ConnectionClosed):
            await connection.send("ok")
            self.responses += 1

    async def broadcast_until(self, stopped):
        while not stopped.is_set():
            self.pushed += 1
            broadcast(self._open, f"push {self.pushed}")
            await asyncio.sleep(0.002)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("posts", [False, True], ids=["pushes", "pushes and responses"])
@pytest.mark.parametrize("redeliver", ["never", "unconfirmed"])
async def test_reloads_during_a_hand_over_neither_lose_nor_duplicate_nor_reorder(start, gateway_for, posts, redeliver):
    """Fifteen reloads, a third of a second apart, with an upgrade that takes 200 ms and an overlap of half a second."""
    upstream = await start(Responder(delay=0.05 if posts else 0, upgrade_delay=0.2))
    env = {"DRAWBRIDGE_UPSTREAM_OVERLAP": "500ms", "DRAWBRIDGE_UPSTREAM_QUEUE_REDELIVER": redeliver}
    gateway = await gateway_for(upstream, env=env)
    client = gateway.client()
    cursor = await client.here()
    stopped = asyncio.Event()
    reloaded = asyncio.Event()
    pushing = asyncio.create_task(upstream.broadcast_until(stopped))
    got = []
    posted = 0

    async def read():
        nonlocal cursor
        while not (reloaded.is_set() and posted == got.count("ok") and f"push {upstream.pushed}" in got[-50:]):
            batch = await client.poll(cursor=cursor, wait=1)
            assert batch.gap is None
            got.extend(batch.payloads)
            cursor = batch.cursor

    async def post():
        nonlocal posted
        while posts and not stopped.is_set():
            await client.accepted(f"post {posted}")
            posted += 1

    async def reload():
        for _ in range(15):
            gateway.signal(signal.SIGHUP)
            await asyncio.sleep(1 / 3)

    reading = asyncio.create_task(read())
    posting = asyncio.create_task(post())
    await reload()
    before = await client.session()

    async def is_over():
        session = await client.session()
        return session["state"] == "ready" and session["next_attempt_in_seconds"] is None and upstream.connected == 1

    await eventually(is_over, what="the last hand-over is over")
    assert before["connections"] > 1
    stopped.set()
    await asyncio.gather(pushing, posting)
    reloaded.set()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(reading, 30)
    numbers = [int(payload.split()[1]) for payload in got if payload.startswith("push")]
    assert numbers == list(range(numbers[0], upstream.pushed + 1)), "lost, doubled or out of order"
    assert got.count("ok") == posted == upstream.responses
    assert len(upstream.received) == posted
    if redeliver == "never":
        assert upstream.received == [f"post {number}" for number in range(posted)]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("delay", [0, 0.05], ids=["at once", "late"])
async def test_equal_responses_are_each_delivered_across_hand_overs(start, gateway_for, delay):
    upstream = await start(Responder(delay=delay))
    # A fast machine posts more messages than the number of pushes that are kept by default.
    env = {"DRAWBRIDGE_UPSTREAM_OVERLAP": "200ms", "DRAWBRIDGE_DELIVERY_MESSAGES": "1000000"}
    gateway = await gateway_for(upstream, env=env)
    client = gateway.client()
    cursor = await client.here()
    stopped = asyncio.Event()
    posted = 0

    async def post():
        nonlocal posted
        while not stopped.is_set():
            await client.accepted("question")
            posted += 1

    posting = asyncio.create_task(post())
    for _ in range(15):
        await hand_over(gateway, client, upstream)
    stopped.set()
    await posting
    await eventually(lambda: upstream.responses == posted, what="the upstream has responded to all")
    got = []

    async def all_read():
        nonlocal cursor
        batch = await client.poll(cursor=cursor, wait=0)
        got.extend(batch.payloads)
        cursor = batch.cursor
        return len(got) >= posted and not batch.more

    await eventually(all_read, what=f"{posted} responses are delivered")
    assert got == ["ok"] * posted


async def test_the_queue_continues_when_the_old_connection_confirms_its_messages(gateway_for, raw_upstream):
    """With `redeliver: unconfirmed`, a message waits for earlier messages, but not for the end of the overlap."""
    connections = []
    received = []
    may_confirm = asyncio.Event()

    async def behave(reader, writer):
        connections.append(writer)
        is_old = len(connections) == 1
        await upgrade(reader, writer)
        pings = []

        async def confirm():
            await may_confirm.wait()
            for ping in pings:
                writer.write(frame(10, ping))

        confirming = asyncio.create_task(confirm()) if is_old else None
        try:
            while True:
                opcode, payload = await read_frame(reader)
                if opcode == 1:
                    received.append((is_old, payload.decode()))
                elif opcode == 9 and is_old and not may_confirm.is_set():
                    pings.append(payload)
                elif opcode in (8, 9):
                    writer.write(frame(opcode + 1 if opcode == 9 else 8, payload))
        finally:
            if confirming:
                confirming.cancel()

    upstream = await raw_upstream(behave)
    env = {"DRAWBRIDGE_UPSTREAM_OVERLAP": "60s", "DRAWBRIDGE_UPSTREAM_QUEUE_REDELIVER": "unconfirmed"}
    gateway = await gateway_for(upstream, env=env)
    client = gateway.client()
    await client.accepted("first")
    await eventually(lambda: received == [(True, "first")], what="the old connection has it")
    before = await generation(client)
    gateway.signal(signal.SIGHUP)

    async def has_taken_over():
        now = await generation(client)
        return now is not None and now > before

    await eventually(has_taken_over, what="the successor is ready")
    delivery = await client.accepted("second")
    may_confirm.set()
    await eventually(lambda: received == [(True, "first"), (False, "second")], what="the queue flows again")

    async def is_confirmed():
        response = await client.request("GET", f"/v1/deliveries/{delivery['id']}")
        return response.json["state"] == "confirmed"

    await eventually(is_confirmed, what="and is confirmed")


async def test_a_message_that_a_stalled_connection_has_begun_arrives_once(gateway_for, raw_upstream):
    """The message goes to the next connection only when its rest can no longer reach the stalled connection."""
    received = []
    successor = asyncio.Event()
    ends = asyncio.Event()
    old_is_over = asyncio.Event()
    accepted = 0

    async def read(reader, writer, name):
        while True:
            opcode, payload = await read_frame(reader)
            if opcode == 1:
                received.append((name, len(payload)))
            elif opcode in (8, 9):
                writer.write(frame(opcode + 1 if opcode == 9 else 8, payload))

    async def behave(reader, writer):
        nonlocal accepted
        accepted += 1
        if accepted == 1:
            # The message must not fit into the buffers between the gateway and this reader.
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            await upgrade(reader, writer)
            await ends.wait()
            try:
                await read(reader, writer, "stalled")
            finally:
                old_is_over.set()
        elif accepted == 2:
            await upgrade(reader, writer)
            reading = asyncio.create_task(read(reader, writer, "successor"))
            successor.set()
            await ends.wait()
            reading.cancel()
            reset(writer)
        else:
            # The next connection opens only when the stalled connection has ended.
            await old_is_over.wait()
            await upgrade(reader, writer)
            await read(reader, writer, "third")

    upstream = await raw_upstream(behave)
    # On a busy machine, so large a message may take longer than a pong usually takes.
    env = {"DRAWBRIDGE_UPSTREAM_OVERLAP": "60s", "DRAWBRIDGE_UPSTREAM_HEARTBEAT_TIMEOUT": "60s"}
    gateway = await gateway_for(upstream, env=env)
    client = gateway.client()
    size = 12 << 20
    delivery = await client.accepted("x" * size)
    before = await generation(client)
    gateway.signal(signal.SIGHUP)
    await successor.wait()

    async def has_taken_over():
        now = await generation(client)
        return now is not None and now > before

    await eventually(has_taken_over, within=30, what="the cut ends without the pong of the stalled connection")
    ends.set()
    await eventually(lambda: received, within=30, what="it arrives")
    await client.accepted("last")
    await eventually(lambda: received[-1][1] == 4, within=30, what="and what came after it")
    assert received == [("third", size), ("third", 4)]
    response = await client.request("GET", f"/v1/deliveries/{delivery['id']}")
    assert response.json["state"] in ("written", "confirmed")


async def test_a_connection_is_replaced_at_its_maximum_age(start, gateway_for):
    upstream = await start(Broadcaster())
    await gateway_for(upstream, env={"DRAWBRIDGE_UPSTREAM_MAXIMUM_AGE": "200ms", "DRAWBRIDGE_UPSTREAM_OVERLAP": "10ms"})
    await eventually(lambda: len(upstream.requests) >= 4, what="three connections were replaced")
    await eventually(lambda: [code for code, _ in upstream.closes[:3]] == [1000] * 3, what="and closed in order")


async def test_a_failed_successor_leaves_the_old_connection_serving(upstream, gateway_for, tmp_path):
    config = "upstream:\n  url: {}\n"
    gateway = await gateway_for(None, ready=True, config=config.format(upstream.url))
    client = gateway.client()
    nobody = "ws://127.0.0.1:1/"
    gateway.rewrite(config.format(nobody))
    gateway.signal(signal.SIGHUP)

    async def has_failed():
        history = (await client.session())["history"]
        return any(entry["from"] == "replacing" and "failed" in entry["cause"] for entry in history)

    await eventually(has_failed, what="the successor failed")
    assert (await client.session())["state"] == "ready"
    await client.accepted("still here")
    assert await upstream.has_received(1) == ["still here"]
    assert upstream.closes == []


CREDENTIAL = 'upstream: {{url: "{}", credential: {{file: "{}", header: "Authorization: ${{credential}}"}}}}\n'


async def test_a_rotated_credential_takes_effect_with_a_log_line_and_a_metric(start, gateway_for, tmp_path):
    upstream = await start(Upstream())
    path = tmp_path / "credential"
    path.write_text("first\n")
    gateway = await gateway_for(None, config=CREDENTIAL.format(upstream.url, path))
    client = gateway.client()
    path.write_text("second\n")
    await hand_over(gateway, client, upstream)
    assert [request.headers["Authorization"] for request in upstream.requests] == ["first", "second"]
    session = await client.session()
    assert [entry["cause"] for entry in session["history"] if entry["to"] == "replacing"] == [
        "reload without a changed setting"
    ]
    assert session["last_failure"] is None
    assert session["connections"] == 2
    assert (await gateway.metrics())["drawbridge_session_connections_total"] == 2
    # The log shows both transitions at its default level.
    for change in ({"from": "ready", "to": "replacing"}, {"from": "replacing", "to": "ready"}):
        await gateway.logs(lambda record, change=change: change.items() <= record.items(), what=f"{change}")


async def test_a_rotated_credential_that_is_refused_leaves_the_old_connection_serving(start, gateway_for, tmp_path):
    asked = []

    def judge(connection, request):
        asked.append(request.headers["Authorization"])
        return connection.respond(401, "unknown token\n") if asked[-1] == "wrong" else None

    upstream = await start(Upstream(process_request=judge))
    path = tmp_path / "credential"
    path.write_text("right\n")
    gateway = await gateway_for(None, config=CREDENTIAL.format(upstream.url, path))
    client = gateway.client()
    path.write_text("wrong\n")
    gateway.signal(signal.SIGHUP)

    async def is_refused():
        session = await client.session()
        return session if session["last_failure"] else None

    session = await eventually(is_refused, what="the successor was refused")
    assert session["state"] == "ready"
    assert session["last_refusal"]["status"] == 401
    assert session["last_failure_seconds_ago"] is not None
    assert 25 < session["next_attempt_in_seconds"] <= 60
    assert session["history"][-1]["next_attempt_in_seconds"] >= 30
    warning = await gateway.logs(lambda record: "the old one stays in use" in record["message"], what="the refusal")
    assert warning["status"] == 401
    assert warning["url"] == upstream.url
    assert warning["next_attempt_in"] >= 30
    await client.accepted("still here")
    assert await upstream.has_received(1) == ["still here"]
    # The credential is right again, and the gateway notices the file at once.
    path.write_text("right again\n")
    await hand_over(gateway, client, upstream)
    assert asked == ["right", "wrong", "right again"]


@pytest.mark.parametrize("way", ["silent", "closes", "hangs up"])
async def test_a_successor_that_never_gets_ready_leaves_the_old_connection_serving(
    start, gateway_for, raw_upstream, way
):
    upstream = await start(Upstream())

    async def behave(reader, writer):
        if way == "closes":
            await upgrade(reader, writer, then=frame(8, (1013).to_bytes(2, "big") + b"not yet"))
            # Reads the frames that the gateway has sent so far, through its response to the close frame.
            while not frames or frames[-1][0] != 8:
                frames.append(await read_frame(reader))
        else:
            await read_head(reader)
            if way == "silent":
                await reader.read()

    frames = []
    other = await raw_upstream(behave)
    config = "upstream:\n  url: {}\n  on_open: [{{send: hello, timeout: 2s}}]\n  timeouts: {{opening: 400ms}}\n"
    gateway = await gateway_for(None, config=config.format(upstream.url))
    client = gateway.client()
    gateway.rewrite(config.format(other.url).replace("{send: hello", "{send: hello, expect: welcome"))
    gateway.signal(signal.SIGHUP)

    async def has_failed():
        session = await client.session()
        return session if session["last_failure"] else None

    session = await eventually(has_failed, what="the successor failed")
    assert session["state"] == "ready"
    assert session["upstream"] == upstream.url
    assert session["next_attempt_in_seconds"] > 20
    assert session["history"][-1]["from"] == "replacing"
    if way == "closes":
        await eventually(
            lambda: frames[-1:] == [(8, (1013).to_bytes(2, "big"))], what="its close frame gets a close frame"
        )
    await client.accepted("still here")
    await eventually(lambda: "still here" in upstream.received, what="the old connection serves")
    assert upstream.closes == []


async def test_each_failure_is_reported_with_its_cause_and_url(start, gateway_for, raw_upstream):
    """The old connection closes while its successor waits for a response. The log reports two failures."""
    upstream = await start(Upstream())

    async def never_respond(reader, writer):
        await reader.read()

    silent = await raw_upstream(never_respond)
    config = "upstream:\n  url: {}\n  timeouts: {{opening: 2s}}\n"
    env = {"DRAWBRIDGE_UPSTREAM_RECONNECT_STRATEGY": "fixed", "DRAWBRIDGE_UPSTREAM_RECONNECT_BASE": "10m"}
    gateway = await gateway_for(None, config=config.format(upstream.url), env=env)
    client = gateway.client()
    gateway.rewrite(config.format(silent.url))
    gateway.signal(signal.SIGHUP)

    async def session_in(state):
        session = await client.session()
        return session if session["state"] == state else None

    await eventually(lambda: session_in("replacing"), what="the hand-over has begun")
    await upstream.stop(1012, "restart")
    session = await eventually(lambda: session_in("upgrading"), what="the old connection is gone")
    assert session["last_failure"] == "the upstream closed the connection with 1012: restart"
    assert session["upstream"] == silent.url, "what is being dialled"
    session = await eventually(lambda: session_in("backoff"), what="the successor failed too")
    assert "did not respond to the opening request within 2 s" in session["last_failure"]
    await gateway.logs(lambda record: record.get("detail") == session["last_failure"], what="the second failure")
    warnings = [record for record in gateway.records if record["level"] == "warning"]
    assert [(record["url"], record["detail"]) for record in warnings] == [
        (upstream.url, "the upstream closed the connection with 1012: restart"),
        (silent.url, session["last_failure"]),
    ]
    assert warnings[1]["phase"] == "upgrading"
    assert warnings[1]["next_attempt_in"] == 600
    assert (await gateway.metrics())["drawbridge_session_failures_total"] == 2


async def test_an_invalid_configuration_is_not_applied(upstream, gateway_for):
    config = f"upstream:\n  url: {upstream.url}\n"
    gateway = await gateway_for(None, config=config)
    gateway.rewrite(config + "  ulr: x\n")
    gateway.signal(signal.SIGHUP)
    await eventually(lambda: "did you mean 'url'" in gateway.output, what="the log says what is wrong")
    assert len(upstream.requests) == 1


async def test_settings_that_need_a_restart_are_named(upstream, gateway_for):
    config = f"upstream:\n  url: {upstream.url}\n"
    gateway = await gateway_for(None, config=config)
    gateway.rewrite(config + "delivery:\n  limit: 5\n")
    gateway.signal(signal.SIGHUP)
    await eventually(lambda: "delivery.limit" in gateway.output, what="the log names the setting")


async def test_a_reload_applies_new_certificates(start, gateway_for, authority, certificate):
    upstream = await start(Upstream(certificate=certificate))
    config = "upstream:\n  url: {}\n  tls:\n    ca_file: {}\n    system_ca: false\n"
    gateway = await gateway_for(None, config=config.format(upstream.url, authority.path))
    gateway.signal(signal.SIGHUP)
    await eventually(lambda: len(upstream.requests) == 2, what="it is connected anew")
