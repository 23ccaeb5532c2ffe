"""Stores as text: how to write and read them, and the story that leaves records of all kinds in a store."""

import json
import re
import sqlite3

from .conventions import ConventionUpstream
from .gateway import PROJECT
from .socketio import OPEN
from .upstream import Upstream
from .waiting import eventually

FOLDER = PROJECT / "Tests/Golden"
#: The boot id in the store. No machine has this id, so a gateway assumes that the machine was restarted.
_NO_BOOT = "00000000-0000-0000-0000-000000000000"
_HISTORY = "{HISTORY}"


# -- SQLite -----------------------------------------------------------------------------------------------------------


def sqlite_text(path):
    """The database as SQL. Afterwards, the database has no write-ahead log."""
    with sqlite3.connect(path) as database:
        database.execute("UPDATE meta SET value = ? WHERE name = 'boot'", (_NO_BOOT,))
        database.commit()
        lines = [f"PRAGMA {name}={database.execute(f'PRAGMA {name}').fetchone()[0]};" for name in _PRAGMAS]
        return "\n".join([*lines, *database.iterdump()]) + "\n"


_PRAGMAS = ("application_id", "user_version")


def load_sqlite(text, path):
    with sqlite3.connect(path) as database:
        database.executescript(text)
    database.close()


# -- Redis ------------------------------------------------------------------------------------------------------------


async def redis_text(server):
    """All keys as commands for redis-cli. A placeholder replaces the history, which belongs to the server."""
    client, history = server.client, (await server.history()).encode()
    commands = []
    for key in sorted([key async for key in client.scan_iter()]):
        match await client.type(key):
            case b"string":
                commands.append([b"SET", key, await client.get(key)])
            case b"hash":
                commands += [[b"HSET", key, *pair] for pair in sorted((await client.hgetall(key)).items())]
            case b"zset":
                pairs = await client.zrange(key, 0, -1, withscores=True)
                commands += [[b"ZADD", key, str(int(score)).encode(), member] for member, score in pairs]
            case b"stream":
                for entry, fields in await client.xrange(key):
                    commands.append([b"XADD", key, entry, *(part for pair in fields.items() for part in pair)])
            case other:
                raise AssertionError(f"{key} has the type {other}")
    lines = [" ".join(_quoted(part) for part in command) for command in commands]
    # The text contains no real port, since a gateway would try to connect to the address of every other gateway.
    text = re.sub(r"address=127\.0\.0\.1:\d+", "address=127.0.0.1:1", "\n".join(lines))
    return text.replace(history.decode(), _HISTORY) + "\n"


def _quoted(part):
    text = part.decode("latin-1").replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[^ -~]", lambda byte: f"\\x{ord(byte[0]):02x}", text) + '"'


def _unquoted(text):
    plain = re.sub(r"\\(x..|.)", lambda found: chr(int(found[1][1:], 16)) if len(found[1]) > 1 else found[1], text)
    return plain.encode("latin-1")


async def load_redis(text, server):
    text = text.replace(_HISTORY, await server.history())
    for line in text.splitlines():
        if not line.startswith("#"):
            await server.client.execute_command(*map(_unquoted, re.findall(r'"((?:[^"\\]|\\.)*)"', line)))


# -- Upstreams --------------------------------------------------------------------------------------------------------


class PlainUpstream(Upstream):
    """Replies to calls of `add`. One message of the story is too large for this upstream."""

    async def _react(self, connection, message):
        if message == "too large":
            await connection.close(1009)
        elif isinstance(message, str) and '"method":"add"' in message:
            await connection.send(json.dumps({"jsonrpc": "2.0", "id": json.loads(message)["id"], "result": 3}))


class ChatUpstream(ConventionUpstream):
    """A Socket.IO server with two namespaces. With `recovers`, it restores the state that a client requests."""

    def __init__(self, *, recovers):
        super().__init__(self._play)
        self.recovers = recovers
        self.connects = []

    async def _play(self, conversation):
        await conversation.say(OPEN)
        number = len(self.conversations)
        for namespace, name in (("", "p"), ("/admin,", "q")):
            connect = await conversation.hear()
            self.connects.append(connect)
            asked = re.search(r'"pid":"(\w+)"', connect)
            pid = asked[1] if asked and self.recovers else f"{name}{number}"
            await conversation.say(f"40{namespace}" + json.dumps({"sid": "x", "pid": pid}))
        while True:
            heard = await conversation.hear()
            if isinstance(heard, str) and (call := re.fullmatch(r'42(\d+)\["ask"\]', heard)):
                await conversation.say(f'43{call[1]}["reply"]')


def configuration(plain, chat, *, tick=None, store=None, listeners=None):
    """The configuration of a gateway with these upstreams. `tick` is the upstream of created sessions."""
    config = {
        "upstream": {
            "url": plain.url,
            "on_open": [{"send": '{"op":"resume","after":${cursor}}'}],
            "cursor": {"pointer": "/seq", "initial": "0"},
            "topic": {"pointer": "/channel"},
            "correlation": "jsonrpc",
            "subscriptions": {
                "add": {"match": {"json": {"/op": "sub"}}, "key": "/id"},
                "remove": {"match": {"json": {"/op": "unsub"}}, "key": "/id"},
            },
        },
        "delivery": {"messages": 20},
        "shutdown": {"flush": "100ms"},
        "sessions": {
            "chat": {
                "upstream": {
                    "kind": "socketio",
                    "url": chat.url,
                    "socketio": {"namespaces": ["/", "/admin"]},
                    "reconnect": {"base": "20ms", "maximum": "100ms"},
                }
            }
        },
    }
    if store:
        config |= {"store": store}
    if listeners:
        config |= {"listeners": listeners}
    if tick:
        variables = {"symbol": {"pattern": "[a-z]{1,8}"}}
        addresses = {"allow": ["127.0.0.1"]}
        config |= {
            "profiles": {
                "market": {
                    "variables": variables,
                    "addresses": addresses,
                    "upstream": {"url": tick.url + "{symbol}"},
                }
            },
            "created_sessions": {"total": 8, "idle_after": "1h"},
        }
    return json.dumps(config)


# -- The story --------------------------------------------------------------------------------------------------------

JSON = {"Content-Type": "application/json"}
KEPT = {"TTL": "36000"}
LINES = {"Content-Type": "application/x-ndjson"}


async def put(client, name, **settings):
    response = await client.request("PUT", f"{client.root}/consumers/{name}", json=settings)
    assert response.status in (200, 201), response.body


async def receive(client, name, **parameters):
    query = {key: str(value) for key, value in parameters.items()}
    response = await client.request("POST", f"{client.root}/consumers/{name}/receive", params=query)
    assert response.status == 200, response.body
    return response.json


async def settle(client, name, **leases):
    return await client.request("POST", f"{client.root}/consumers/{name}/settle", json=leases)


async def state_of(client, delivery):
    return (await client.request("GET", f"{client.root}/deliveries/{delivery}")).json["state"]


async def becomes(client, delivery, *states):
    async def has_become():
        return await state_of(client, delivery) in states

    await eventually(has_become, what=lambda: f"delivery {delivery} becomes {states}")


class Story:
    """The events before the end of a gateway. `leases` and `deliveries` name its ids for the next program."""

    def __init__(self, gateway, plain, chat):
        self.gateway, self.plain, self.chat = gateway, plain, chat
        self.client, self.chatting = gateway.client(), gateway.client(session="chat")
        self.deliveries = {"default": {}, "chat": {}}
        self.leases = {}
        self._seq = 0

    async def push(self, count):
        """Pushes JSON with a topic, a key, and a number that serves as the upstream's cursor."""
        for _ in range(count):
            self._seq += 1
            await self.plain.push(json.dumps({"channel": f"a.{self._seq % 2}", "seq": self._seq, "key": self._seq % 5}))
        await self._shows(f'"seq": {self._seq},')

    async def _shows(self, text):
        async def is_shown():
            return text.encode() in (await self.client.get(last=1, wait=0)).body

        await eventually(is_shown, what=f"the push with {text} is shown")

    async def _is_connected(self, count):
        def is_connected():
            return (len(self.plain.requests), self.plain.connected) == (count, 1)

        await eventually(is_connected, what=f"connection {count} of the upstream")

    async def post(self, label, body, *, client=None, **options):
        """Posts messages, and returns the id of the last message."""
        client = client or self.client
        response = await client.send(body, **options)
        assert response.status == 202, (label, response.status, response.body)
        ids = [result["id"] for result in response.json.get("results", [response.json])]
        known = self.deliveries["chat" if client is self.chatting else "default"]
        known |= {label: ids[0]} if len(ids) == 1 else {f"{label} {number}": id for number, id in enumerate(ids, 1)}
        return ids[-1]

    async def confirmed(self, label, body, **options):
        await becomes(self.client, await self.post(label, body, **options), "confirmed")

    async def tell(self):
        # Retention removes earlier pushes and some of these. A hundred pushes are enough that the store also removes
        # the old pushes from its file.
        await self.plain.push(*["x"] * 100)
        await self.push(5)
        await self._consume()
        await self._send()
        await self._chat()
        await self._queue()

    async def _consume(self):
        """Makes leases in every state, dead letters for both reasons, and dead letters that were retried or removed."""
        client = self.client
        share = {"share": True, "start": "latest"}
        await put(client, "workers", **share, visibility="10h", max_deliveries=3, order_by="/key", topics=["a.*"])
        await put(client, "quick", **share, visibility="100ms", max_deliveries=1)
        await put(client, "retried", **share, visibility="10h")
        await put(client, "reader", start="latest", idle="365d")
        await put(client, "removed")
        await client.request("DELETE", "/v1/consumers/removed")
        await self.push(10)
        await self.plain.push("plain täxt", b"\x00\xff")
        await self._shows("AP8=")

        messages = (await receive(client, "workers", limit=5, wait=10))["messages"]
        one, two, three, four, five = (message["lease"] for message in messages)
        self.leases = {"acknowledged": one, "extended": three, "released": four, "leased": five}
        response = await settle(client, "workers", ack=[one], reject=[two], extend=[three])
        assert response.status == 200, response.body
        response = await settle(client, "workers", release=[four], delay="10h")
        assert response.status == 200, response.body
        first = await receive(client, "reader", limit=2, wait=10)
        await receive(client, "reader", ack=first["cursor"], limit=1)
        await receive(client, "quick", limit=1, wait=10)

        async def is_dead():
            return (await client.request("GET", "/v1/consumers/quick")).json["dead"]["messages"] == 1

        await eventually(is_dead, what="a message of the quick consumer is a dead letter")
        for retries in (True, False):
            leases = [message["lease"] for message in (await receive(client, "retried", limit=2, wait=10))["messages"]]
            assert (await settle(client, "retried", reject=leases)).status == 200
            method, path = ("POST", "dead/retry") if retries else ("DELETE", "dead")
            assert (await client.request(method, f"/v1/consumers/retried/{path}")).status in (200, 204)

    async def _send(self):
        """Makes messages in every final state, subscriptions and calls."""
        await self.confirmed("text", "text")
        await self.confirmed("binary", b"\x00\x01")
        await self.confirmed("batch", "1\n2\n3\n", headers={"Idempotency-Key": "batch"}, type=LINES["Content-Type"])
        for number in (1, 2, 3):
            await self.confirmed(f"sub {number}", f'{{"op":"sub","id":{number}}}', headers=JSON)
        await self.confirmed("unsub", '{"op":"unsub","id":1}', headers=JSON)
        for method, status, wait in (("add", 200, "20s"), ("never", 504, "200ms")):
            body = f'{{"jsonrpc":"2.0","id":7,"method":"{method}"}}'
            response = await self.client.request("POST", f"/v1/call?wait={wait}", data=body)
            assert response.status == status, response.body
            if status == 504:
                self.deliveries["default"]["call"] = response.headers["Location"].rpartition("/")[2]
        await becomes(self.client, self.deliveries["default"]["call"], "confirmed")
        rejected = await self.post("rejected", "too large")
        await becomes(self.client, rejected, "rejected")
        await self._is_connected(2)
        await self.push(8)
        # The connection ends before the upstream has read the message.
        self.plain.pause_reading()
        unknown = await self.post("unknown", "lost")
        await becomes(self.client, unknown, "written")
        await self.plain.kill()
        await becomes(self.client, unknown, "unknown")
        await self.plain.start()
        await self._is_connected(3)
        await self.push(3)

    async def _chat(self):
        """Two connections to a server that restores no state, and one connection whose state can be restored."""
        await self.chat.last.say('42["one",1,"o1"]')
        await self._has_chatted(1)
        self.chat.last.connection.transport.abort()
        await self.chat.has_conversations(2)
        await eventually(lambda: len(self.chat.connects) == 4, what="both namespaces are joined again")
        await self.chat.last.say('42["two",{"a":[1]},"o2"]', '451-/admin,["three",{"_placeholder":true,"num":0},"o3"]')
        await self.chat.last.say(b"\x01\x02")
        await self._has_chatted(3)
        event = json.dumps({"event": "said", "args": ["hello"]})
        said = await self.post("said", event, client=self.chatting, type="application/json")
        await becomes(self.chatting, said, "confirmed")
        response = await self.chatting.request("POST", f"{self.chatting.root}/call", json={"event": "ask", "args": []})
        assert response.status == 200, response.body

    async def _has_chatted(self, count):
        async def has_chatted():
            return len([seen for seen in await transcript(self.chatting) if isinstance(seen, dict)]) == count

        await eventually(has_chatted, what=f"{count} events are pushes")

    async def _queue(self):
        """The upstreams end. The first three messages then have been sent, and all later messages are queued."""
        await self.plain.kill()
        await self.chat.stop()
        expired = await self.post("expired", "short", headers={"TTL": "1"})
        await becomes(self.client, expired, "expired")
        await self.post("replaced", "first of a topic", headers={**KEPT, "Topic": "t"})
        await self.post("topic", "second of a topic", headers={**KEPT, "Topic": "t"})
        await self.post("keyed", "with a key", headers={**KEPT, "Idempotency-Key": "single"})
        await self.post("queued batch", "4\n5\n", type=LINES["Content-Type"], headers=KEPT)
        event = {
            "event": "file",
            "args": [{"_placeholder": True, "num": 0}],
            "attachments": ["AQID"],
            "namespace": "/admin",
        }
        body = json.dumps(event)
        await self.post("event", body, client=self.chatting, type="application/json", headers=KEPT)
        await self.post("queued", b"\x00\xff\n", headers=KEPT)

    async def observed(self):
        """The state of both sessions as clients see it."""
        return {
            "leases": self.leases,
            "deliveries": self.deliveries,
            "default": await observed(self.client, self.deliveries["default"]),
            "chat": await observed(self.chatting, self.deliveries["chat"]),
        }


async def transcript(client):
    """All pushes and gaps, in order."""
    cursor, seen = "earliest", []
    while True:
        batch = await client.poll(cursor=cursor, wait=0, limit=1)
        seen += [f"gap {batch.gap['reason']}"] if batch.gap else []
        seen += batch.messages
        if not batch.more and not batch.messages:
            return seen
        cursor = batch.cursor


async def observed(client, deliveries):
    async def document(path):
        return (await client.request("GET", f"{client.root}/{path}")).json

    consumers = {consumer["name"]: consumer for consumer in (await document("consumers"))["consumers"]}
    for consumer in consumers.values():
        # Removes the term, which depends on the run.
        consumer["position"] = int(consumer["position"].rpartition(".")[2])
    shared = [name for name, consumer in consumers.items() if consumer["share"]]
    return {
        "transcript": await transcript(client),
        "deliveries": {label: await document(f"deliveries/{id}") for label, id in deliveries.items()},
        "consumers": consumers,
        "dead": {name: await document(f"consumers/{name}/dead") for name in shared},
    }
