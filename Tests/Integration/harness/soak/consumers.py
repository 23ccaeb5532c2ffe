"""Workers that divide pushes, die with leases, and acknowledge late. Each push must be handled, dead, or in a gap."""

import asyncio
import contextlib
import json
from datetime import datetime

from ..raw import reset
from .reads import number_of

NAME = "consumers"
_CONSUMER = "workers"
_PATH = f"/v1/consumers/{_CONSUMER}"
_VISIBILITY = 3.0
_WORKERS = 6


def _seconds(timestamp):
    return datetime.fromisoformat(timestamp).timestamp()


class Workers:
    """The account of one work-sharing consumer."""

    def __init__(self):
        self.context = None
        self._start = 0
        #: The leases by the numbers of pushes that are not settled.
        self._leases = {}
        #: For each key, the number of the push that blocks others, because it is leased, delayed or expired.
        self._blocking = {}
        self._acknowledged = set()
        #: The numbers of pushes whose acknowledgement or rejection may have arrived.
        self._sent = set()
        self._dead = set()
        #: Dead letters that will be delivered again, in any order.
        self._retried = set()
        self._newest = {}
        self._checked = 0
        self.missing = 0
        self.uncertain = 0
        self.handled = self.repeated = self.died = self.lost = self.dead = 0
        self._events = {}

    def __str__(self):
        return (
            f"{self.handled} acknowledged, {self.dead} dead letters, {self.missing} in gaps; {self.repeated} delivered "
            f"again, {self.lost} leases lost, {self.died} workers died"
        )

    def _fault(self, text, number=None):
        self.context.faults.add(NAME, text, self._events.get(number, ()))

    def _note(self, number, event):
        self._events.setdefault(number, []).append((self.context.now, event))

    # -- Workers ----------------------------------------------------------------------------------------------------

    async def run(self, context, rate):
        self.context = context
        settings = {"share": True, "order_by": "/key", "visibility": f"{int(_VISIBILITY)}s", "max_deliveries": 1000}
        response = await context.client.request("PUT", _PATH, json=settings)
        assert response.status == 201, response.body
        self._start = self._checked = number_of(response.json["position"])
        await asyncio.gather(self._operate(), *(self._work(index, rate / _WORKERS) for index in range(_WORKERS)))

    async def _work(self, index, rate):
        context = self.context
        random = context.random(f"worker {index}")
        pace = context.pace(rate)
        while not context.is_over:
            await pace.step()
            if random.random() < 0.03:
                self.died += 1
                await self._receive_and_die(random)
                continue
            query = {"wait": "2", "limit": str(random.choice((1, 5, 20)))}
            response = await context.client.request("POST", f"{_PATH}/receive", params=query)
            assert response.status == 200, response.body
            taken = self._taken(index, response.json)
            if taken:
                await self._treat(index, taken, random)

    async def _receive_and_die(self, random):
        """A worker that dies while its response is on the way. Its leases expire."""
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(*self.context.gateway.address())
            writer.write(
                f"POST {_PATH}/receive?wait=1&limit=3 HTTP/1.1\r\nHost: x\r\n"
                f"{self.context.fields}Content-Length: 0\r\n\r\n".encode()
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1), random.choice((0.005, 0.3)))
            reset(writer)

    async def _treat(self, index, taken, random):
        """Handles the messages of a worker in a random way."""
        kind = random.random()
        leases = [lease for _, lease in taken]
        if kind < 0.04:
            # The worker dies while it works.
            self.died += 1
            return
        if kind < 0.06:
            # The worker is stalled and acknowledges late.
            await asyncio.sleep(_VISIBILITY * random.uniform(0.9, 1.3))
        document = {"ack": leases}
        if kind > 0.96:
            document = {"release": leases[:1], "ack": leases[1:], "delay": random.choice(("0s", "500ms"))}
        elif kind > 0.94:
            document = {"reject": leases[:1], "ack": leases[1:]}
        elif kind > 0.90:
            await self._settle({"extend": leases}, dict(map(reversed, taken)))
        await self._settle(document, dict(map(reversed, taken)))

    async def _settle(self, document, numbers):
        for name, leases in document.items():
            if name == "delay":
                continue
            for lease in leases:
                number = numbers[lease]
                self._note(number, f"{name} of {lease}")
                if name in ("ack", "reject"):
                    self._sent.add(number)
                # From now on another worker may get the push.
                if name != "extend" and self._leases.get(number, ("",))[0] == lease:
                    del self._leases[number]
        response = await self.context.client.request("POST", f"{_PATH}/settle", json=document)
        if response.status == 409:
            self.lost += len(numbers)
            assert response.problem(409)["type"] == "/errors/lease-lost", response.body
            return
        assert response.status in (200, 207), response.body
        for result in response.json["results"]:
            number = numbers[result["lease"]]
            state = result.get("state", "lost")
            self._note(number, f"{result['lease']} is {state}")
            if state == "acknowledged":
                self._acknowledge(number)
            elif state == "dead":
                self._dead.add(number)
                self._unblock(number)
            elif state == "extended" and number in self._leases:
                self._leases[number] = (result["lease"], _seconds(result["expires"]))
            elif state == "lost":
                self.lost += 1

    def _acknowledge(self, number):
        if number not in self._acknowledged:
            self.handled += 1
        self._acknowledged.add(number)
        self._unblock(number)

    def _unblock(self, number):
        for key, blocking in list(self._blocking.items()):
            if blocking == number:
                del self._blocking[key]

    # -- Received pushes ---------------------------------------------------------------------------------------------

    def _taken(self, index, batch):
        now = datetime.now().timestamp()
        taken = []
        if batch["gap"]:
            # The pushes that blocked others with their keys may be in the gap.
            self._blocking.clear()
        for message in batch["messages"]:
            number, lease = number_of(message["id"]), message["lease"]
            self._note(number, f"{lease} for worker {index}, delivery {message['deliveries']}")
            before = self._leases.get(number)
            # Times in the response have a resolution of one millisecond, and so does the offset between the clocks.
            if before and now < before[1] - 0.003:
                self._fault(f"push {number} has two leases at a time: {before[0]} and {lease}", number)
            if number in self._acknowledged:
                self._fault(f"push {number} is delivered after it was acknowledged", number)
            if number in self._dead and number not in self._retried:
                self._fault(f"push {number} is delivered after it was dead", number)
            if message["deliveries"] > 1:
                self.repeated += 1
            self._judge_order(number, message.get("data"), message["deliveries"])
            self._leases[number] = (lease, _seconds(message["expires"]))
            taken.append((number, lease))
        return taken

    def _judge_order(self, number, data, deliveries):
        """Checks that a push is not delivered before an earlier push of its key is settled."""
        if not isinstance(data, dict) or "key" not in data or number in self._retried:
            return
        key = data["key"]
        blocking = self._blocking.get(key)
        if blocking is not None and blocking < number and not self._may_be_settled(blocking):
            self._fault(f"push {number} of key {key} is handed out before {blocking} is settled", blocking)
        if deliveries == 1 and number < self._newest.get(key, 0) and not self._was_handed_out(number):
            self._fault(f"push {number} of key {key} comes after {self._newest[key]}", number)
        self._newest[key] = max(number, self._newest.get(key, 0))
        self._blocking[key] = number

    def _may_be_settled(self, number):
        return number in self._sent or number in self._dead or number in self._retried

    def _was_handed_out(self, number):
        return len(self._events.get(number, ())) > 1

    # -- The operator -----------------------------------------------------------------------------------------------

    async def _operate(self):
        """Retries or removes dead letters, and compares the account with the consumer that the gateway shows."""
        random = self.context.random("operator")
        pace = self.context.pace(0.2 / self.context.rate)
        while not self.context.is_over:
            await pace.step()
            await self._check()
            await self._handle_dead_letters(random.random() < 0.5)

    async def _handle_dead_letters(self, retries):
        client = self.context.client
        letters = (await client.request("GET", f"{_PATH}/dead")).json["messages"]
        if not letters:
            return
        if retries:
            self._retried |= {number_of(letter["id"]) for letter in letters}
            # A further dead letter may have been added meanwhile.
            response = await client.request("POST", f"{_PATH}/dead/retry")
            if response.json["retried"] != len(letters):
                self._retried |= self._dead
        else:
            response = await client.request("DELETE", f"{_PATH}/dead")
            self.dead += response.json["removed"]

    async def _check(self, *, is_last=False):
        """All pushes up to the position must be settled or reported as missing. Later pushes may also be missing."""
        state = (await self.context.client.request("GET", _PATH)).json
        position, missed = number_of(state["position"]), state["missed"]
        for number in range(self._checked + 1, position + 1):
            if number in self._acknowledged or number in self._dead:
                pass
            elif number in self._sent or number in self._retried:
                self.uncertain += 1
            else:
                self.missing += 1
            self._forget(number)
        self._checked = max(self._checked, position)
        if missed < self.missing or (is_last and missed > self.missing + self.uncertain):
            self._fault(
                f"{self.missing} pushes up to {position} were not settled, {self.uncertain} perhaps, "
                f"and the gateway reports {missed} as missing"
            )
        if state["leases"] > 1000:
            self._fault(f"there are {state['leases']} leases")
        return state

    def _forget(self, number):
        """Forgets a push before the position. A retried dead letter comes again later, so it is kept."""
        if number in self._dead or number in self._retried:
            return
        self._acknowledged.discard(number)
        self._sent.discard(number)
        self._leases.pop(number, None)
        self._events.pop(number, None)

    async def finish(self):
        """Handles the remaining pushes. Afterwards, no push may be leased or left."""
        deadline = self.context.now + 60
        while self.context.now < deadline:
            response = await self.context.client.request(
                "POST", f"{_PATH}/receive", params={"wait": "1", "limit": "500"}
            )
            if taken := self._taken("last", response.json):
                await self._settle({"ack": [lease for _, lease in taken]}, dict(map(reversed, taken)))
                continue
            state = await self._check()
            if not state["lag"] and not state["leases"]:
                break
        else:
            self._fault(f"the workers do not finish: {json.dumps(state)}")
        await self._check(is_last=True)
        await self._handle_dead_letters(False)
        for name in (_CONSUMER, "reader"):
            response = await self.context.client.request("DELETE", f"/v1/consumers/{name}")
            assert response.status == 204, response.body
