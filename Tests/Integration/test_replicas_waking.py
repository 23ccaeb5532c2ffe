"""A holder that was stopped for longer than its tenure gives no wrong response when it continues."""

import asyncio
import json

from harness.replicas import LEASE
from harness.waiting import eventually

FINAL = {"confirmed", "expired", "replaced", "rejected", "unknown"}
MESSAGES = 60
KEYED = "Idempotency-Key: k\r\nContent-Type: text/plain; charset=utf-8\r\n"


class Question:
    """A request that waits in the socket of a stopped gateway."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer

    @classmethod
    async def ask(cls, member, method, target, body=None, fields=""):
        reader, writer = await asyncio.open_connection(*member.address)
        content = (body if isinstance(body, str) else json.dumps(body) if body else "").encode()
        length = "" if method == "GET" else f"Content-Length: {len(content)}\r\n"
        head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}{length}\r\n"
        writer.write(head.encode() + content)
        await writer.drain()
        return cls(reader, writer)

    async def response(self):
        """The status, the head in lower case, and the document."""
        head, _, body = (await asyncio.wait_for(self._reader.read(), 60)).partition(b"\r\n\r\n")
        self._writer.close()
        return int(head.split()[1]), head.decode().lower(), json.loads(body) if body else None


async def final(client, id):
    async def state():
        response = await client.request("GET", f"/v1/deliveries/{id}")
        return response.json if response.status == 200 and response.json["state"] in FINAL else None

    return (await eventually(state, within=60, what=f"{id} has a final state"))["state"]


async def test_a_suspended_holder_returns_no_outdated_state(replicas_for, recorder):
    # The rate is low, so most accepted messages are still queued when the holder stops.
    replicas = await replicas_for(lease=LEASE, settings={"upstream": {"url": recorder.url, "queue": {"rate": 20}}})
    first = await replicas.holder()
    asked = first.client()
    ids = [(await asked.accepted(f"before {n}"))["id"] for n in range(MESSAGES)]
    first.freeze()
    next_holder = await replicas.holder()
    client = next_holder.client()
    ids += [(await client.accepted(f"after {n}"))["id"] for n in range(10)]
    keyed = await client.send("keyed", headers={"Idempotency-Key": "k"})
    states = {id: await final(client, id) for id in [*ids, keyed.json["id"]]}
    assert list(states.values()).count("confirmed") > MESSAGES / 2, states
    assert (await client.request("PUT", "/v1/consumers/w", json={"share": True})).status == 201
    for _ in range(20):
        await recorder.push_one()

    async def read():
        batch = await client.poll(cursor="earliest", wait=0)
        return batch if len(batch.messages) == 20 else None

    read = await eventually(read, what="the pushes can be read")
    received = (await client.request("POST", "/v1/consumers/w/receive?limit=1&wait=5s")).json["messages"]

    # These requests arrive before the process continues, so they compete with everything else that it must notice then.
    ask = lambda *request, **more: Question.ask(first, *request, **more)  # noqa: E731
    deliveries = {id: await ask("GET", f"/v1/deliveries/{id}") for id in states}
    waiting = {id: await ask("GET", f"/v1/deliveries/{id}?wait=20s") for id in states}
    polls = [await ask("GET", f"/v1/messages?cursor={read.cursor}&wait={wait}") for wait in ("0s", "1s") * 5]
    documents = [await ask("GET", target) for target in ("/v1/session", "/v1/sessions") * 3]
    again = [await ask("POST", "/v1/messages", "keyed", fields=KEYED) for _ in range(5)]
    consumers = [await ask("GET", "/v1/consumers/w") for _ in range(5)]
    settled = await ask("POST", "/v1/consumers/w/settle", body={"ack": [received[0]["lease"]]})
    first.thaw()

    told = []
    for kind, questions in (("get", deliveries), ("wait", waiting)):
        for id, question in questions.items():
            status, _, document = await question.response()
            assert status == 200, document
            if document["state"] in FINAL and document["state"] != states[id]:
                told.append((kind, document, states[id]))
    assert not told
    for question in polls:
        status, head, document = await question.response()
        assert (status, document["messages"], document["gap"]) == (200, [], None), (head, document)
    for question in documents:
        status, _, document = await question.response()
        shown = document if "replica" in document else document["sessions"][0]
        assert status == 200
        assert not (shown["replica"]["holder"] or {"here": False})["here"], shown
    for question in again:
        status, _, document = await question.response()
        assert status in (200, 202), document
        assert document["id"] == keyed.json["id"]
    for question in consumers:
        status, _, document = await question.response()
        assert (status, document["name"]) == (200, "w")
    status, _, document = await settled.response()
    assert status == 200, document
    assert len(recorder.received) == len(set(recorder.received))
