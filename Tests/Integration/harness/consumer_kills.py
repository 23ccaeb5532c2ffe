"""Consumers of a gateway that is killed again and again: workers that divide pushes, and a reader that acknowledges."""

import asyncio

KEYS = 20
#: A kill loses the leases of the workers, and each lease blocks its key until it expires. Most gateways live longer
#: than a lease.
_VISIBILITY = "100ms"
#: Seconds within which a worker must get a push while any push is left.
_PATIENCE = 30
_WORKERS = "/v1/consumers/workers"
_READER = "/v1/consumers/reader"


class ConsumerRun:
    """`request(method, path, **options)` returns the response of the running gateway, or None if it was killed."""

    def __init__(self, request, chance):
        self._request = request
        self._chance = chance
        self.faults = []
        # Numbers of pushes whose acknowledgement got 200, and of pushes whose acknowledgement was sent.
        self._acknowledged = set()
        self._sent = set()
        self._newest = {}
        self._leases = {}
        self._read = set()
        self.deliveries = 0
        self.refused = 0

    async def create(self):
        workers = {
            "share": True,
            "start": "earliest",
            "order_by": "/key",
            "visibility": _VISIBILITY,
            "max_deliveries": 1000,
        }
        for path, settings in ((_WORKERS, workers), (_READER, {"start": "earliest"})):
            response = await self._request("PUT", path, json=settings)
            assert response.status == 201, response.body

    def _unexpected(self, what, response):
        """Whether the response is unusable. Status 503 is possible while a store is closed or replaced."""
        if response is None:
            return True
        if response.status == 503:
            self.refused += 1
            return True
        if response.status not in (200, 207, 409):
            self.faults.append(f"{what} got {response.status}: {response.body[:200]}")
        return response.status not in (200, 207)

    def _note(self, message):
        number, key = message["data"]["n"], message["data"]["key"]
        if number in self._acknowledged:
            self.faults.append(f"{number} came again after its acknowledgement got 200")
        newest = self._newest.get(key, 0)
        if number < newest and number not in self._leases:
            self.faults.append(f"{number} came the first time behind {newest}")
        if number > newest and newest and newest not in self._sent:
            self.faults.append(f"{number} came before {newest} of the same key was settled")
        if self._leases.setdefault(message["lease"], number) != number:
            self.faults.append(f"{message['lease']} is {self._leases[message['lease']]} and {number}")
        self._leases[number] = message["lease"]
        self._newest[key] = max(newest, number)
        self.deliveries += 1

    async def work(self, is_over):
        while not is_over():
            limit = self._chance.choice((1, 5, 20))
            response = await self._request("POST", _WORKERS + "/receive", params={"wait": "200ms", "limit": str(limit)})
            if self._unexpected("a receive", response):
                await asyncio.sleep(0.005)
                continue
            messages = response.json["messages"]
            for message in messages:
                self._note(message)
            chosen = [message for message in messages if self._chance.random() < 0.9]
            if not chosen:
                continue
            self._sent.update(message["data"]["n"] for message in chosen)
            response = await self._request(
                "POST", _WORKERS + "/settle", json={"ack": [message["lease"] for message in chosen]}
            )
            if self._unexpected("a settlement", response):
                continue
            for message, result in zip(chosen, response.json["results"], strict=True):
                if result["status"] == 200:
                    self._acknowledged.add(message["data"]["n"])

    async def read(self, is_over):
        cursor, seen, confirmed = None, 0, 0
        while not is_over():
            params = {"wait": "200ms", "limit": "50"} | ({"ack": cursor} if cursor else {})
            response = await self._request("POST", _READER + "/receive", params=params)
            if self._unexpected("the reader", response):
                # The reader acts as if it had lost its memory. Acknowledged pushes are not delivered to it again.
                cursor = None
                await asyncio.sleep(0.005)
                continue
            if cursor:
                confirmed = seen
            numbers = [message["data"]["n"] for message in response.json["messages"]]
            if numbers and numbers[0] <= confirmed:
                self.faults.append(f"the reader got {numbers[0]} again after {confirmed} was acknowledged")
            self._read.update(numbers)
            cursor, seen = response.json["cursor"], max([confirmed, *numbers])

    def has_read(self, number):
        return any(read >= number for read in self._read)

    async def judge(self, pushed):
        """Call it while the last gateway runs and no worker does."""

        loop = asyncio.get_running_loop()
        progress = loop.time()
        # This may take long: a worker gets only one push of each key at a time.
        while not pushed <= self._sent and loop.time() < progress + _PATIENCE:
            response = await self._request("POST", _WORKERS + "/receive", params={"wait": "1s", "limit": "1000"})
            messages = response.json["messages"]
            for message in messages:
                self._note(message)
                self._sent.add(message["data"]["n"])
            if messages:
                leases = [message["lease"] for message in messages]
                await self._request("POST", _WORKERS + "/settle", json={"ack": leases})
                progress = loop.time()
        state = (await self._request("GET", _WORKERS)).json
        if state["missed"] or state["dead"]["messages"]:
            self.faults.append(f"the workers missed {state['missed']} and rejected {state['dead']['messages']}")
        lost = pushed - self._sent
        if lost:
            self.faults.append(f"no worker got {sorted(lost)[:10]}, {len(lost)} in all")
        lost = pushed - self._read
        if lost:
            self.faults.append(f"the reader did not get {sorted(lost)[:10]}, {len(lost)} in all")
