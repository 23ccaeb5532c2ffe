"""Calls: each call has one outcome, and no reply reaches another client."""

import asyncio
import collections
import contextlib
import json

from ..raw import reset

NAME = "calls"
_CALLERS = 8
_KINDS = ("now",) * 12 + ("late", "late", "missing", "doubled", "shapeless", "delayed", "delayed")


class Calls:
    """The account of all calls, and the server that replies to them."""

    def __init__(self):
        self.context = None
        self._number = 0
        #: The number of times that the upstream received each request.
        self._arrivals = collections.Counter()
        self.outcomes = collections.Counter()
        self.late = 0
        self._tasks = set()

    def __str__(self):
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        return f"{sum(self.outcomes.values())} calls: {outcomes}; {self.late} late replies found"

    # -- The upstream -----------------------------------------------------------------------------------------------

    def arrived(self, request, peer):
        number, kind = request["params"]
        self._arrivals[number] += 1
        if self._arrivals[number] > 1:
            self.context.faults.add(NAME, f"request {number} ({kind}) arrived {self._arrivals[number]} times")
        reply = json.dumps({"jsonrpc": "2.0", "result": number * 2, "id": request["id"]}).encode()
        match kind:
            case "now":
                peer.send(reply)
            case "doubled":
                peer.send(reply)
                peer.send(reply)
            case "shapeless":
                peer.send(json.dumps({"id": request["id"], "method": "no reply"}).encode())
            case "delayed" | "late":
                asyncio.get_running_loop().call_later(0.2 if kind == "delayed" else 1.5, peer.send, reply)

    # -- Clients ----------------------------------------------------------------------------------------------------

    async def run(self, context, rate):
        self.context = context
        await asyncio.gather(*(self._call(index, rate / _CALLERS) for index in range(_CALLERS)))
        await asyncio.gather(*self._tasks)

    async def _call(self, index, rate):
        context = self.context
        random = context.random(f"caller {index}")
        pace = context.pace(rate)
        while not context.is_over:
            await pace.step()
            self._number += 1
            number, kind = self._number, random.choice(_KINDS)
            # Many clients use the same id: 1 or "1".
            token = random.choice((1, "1", f"caller {index}"))
            body = json.dumps({"jsonrpc": "2.0", "id": token, "method": "double", "params": [number, kind]})
            if random.random() < 0.05:
                await self._leave(body, random)
                continue
            response = await context.client.request(
                "POST",
                "/v1/call",
                data=body,
                params={"wait": "1s" if kind in ("late", "missing", "shapeless") else "5s"},
                headers={"Content-Type": "application/json"},
            )
            self._judge(number, kind, token, response)

    async def _leave(self, body, random):
        fields = f"{self.context.fields}Content-Length: {len(body)}\r\n"
        request = f"POST /v1/call HTTP/1.1\r\nHost: x\r\n{fields}\r\n{body}".encode()
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(*self.context.gateway.address())
            writer.write(request)
            await asyncio.sleep(random.choice((0, 0.002, 0.1)))
            reset(writer)
        self.outcomes["left"] += 1

    def _fault(self, number, kind, text):
        self.context.faults.add(NAME, f"call {number} ({kind}): {text}")

    def _judge(self, number, kind, token, response):
        arrivals = self._arrivals[number]
        if response.status == 200:
            self.outcomes["replied"] += 1
            if response.json != {"jsonrpc": "2.0", "result": number * 2, "id": token}:
                self._fault(number, kind, f"got the reply {response.body[:200]}")
            if kind in ("missing", "shapeless"):
                self._fault(number, kind, "got a reply that was never sent")
            return
        outcome = response.problem(response.status)["type"].removeprefix("/errors/")
        self.outcomes[outcome] += 1
        if outcome in ("upstream-down", "queue-full"):
            if arrivals:
                self._fault(number, kind, f"{outcome} says that it was not sent, and it arrived")
        elif outcome == "reply-timeout":
            if kind == "late" and arrivals:
                task = asyncio.create_task(self._find_late_reply(number, token, response.headers["Location"]))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        elif outcome != "upstream-closed":
            self._fault(number, kind, f"{response.status} {response.body[:200]}")

    async def _find_late_reply(self, number, token, location):
        """The delivery must show the reply, unless the connection was lost before."""
        for _ in range(8):
            await asyncio.sleep(0.5)
            delivery = (await self.context.client.request("GET", location)).json
            if reply := delivery.get("reply"):
                self.late += 1
                if reply != {"jsonrpc": "2.0", "result": number * 2, "id": token}:
                    self._fault(number, "late", f"the delivery shows the reply {reply}")
                return

    async def finish(self):
        samples = await self.context.gateway.metrics()
        if waiting := samples["drawbridge_calls"]:
            self.context.faults.add(NAME, f"{waiting:.0f} calls are left")
