"""Messages to the upstream: single messages, batches, repetitions with a key, and requests that are cut off."""

import asyncio
import collections
import contextlib
from dataclasses import dataclass, field

from ..kills import FINAL, Receipts
from ..raw import reset

#: Seconds for which a final message is remembered, since it may arrive again. They exceed the time for which a
#: connection hangs.
_GRACE = 20.0
#: Seconds for which a message may be queued.
TTL = 60
#: Seconds after which a message without an id counts as final. It has no id if its client was cut off.
_FORGET = TTL + _GRACE


@dataclass
class Post:
    label: str
    posted: float
    ttl: int | None = None
    id: str | None = None
    #: Whether the client was cut off before the response.
    is_cut: bool = False
    state: str = "unanswered"
    final_at: float = 0.0
    arrivals: int = 0
    events: list = field(default_factory=list)

    @property
    def sequence(self):
        return int(self.id.partition(".")[2]) if self.id else None


class Posts:
    """The account of all messages: their responses, and the messages that the upstream received."""

    NAME = "posts"

    def __init__(self):
        self.context = None
        self._known = {}
        self._pending = {}
        #: Final messages that are still remembered.
        self._recent = collections.deque()
        self._cut = collections.deque()
        #: Messages in the order of their first arrivals, until that order was checked.
        self._order = collections.deque()
        self._last = 0
        self._number = 0
        self.states = collections.Counter()
        self.refused = 0
        self.repeated = 0
        self.cut = 0

    def __str__(self):
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items()))
        return (
            f"{sum(self.states.values())} messages: {states}; "
            f"{self.refused} refused, {self.repeated} repeated, {self.cut} cut off"
        )

    def _fault(self, text, post=None):
        self.context.faults.add(self.NAME, f"{post.label}: {text}" if post else text, post.events if post else ())

    # -- Posting ----------------------------------------------------------------------------------------------------

    async def run(self, context, rate):
        self.context = context
        random = context.random("posts")
        pace = context.pace(rate)
        kinds = [(self._single, 10), (self._batch, 3), (self._repeats, 3), (self._cut_off, 2)]
        asking = asyncio.create_task(self._ask())
        posting = set()
        while not context.is_over:
            await pace.step()
            (kind,) = random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])
            task = asyncio.create_task(kind(random))
            posting.add(task)
            # A post that waits for a state must not delay the next post. The number of such posts is always small.
            while len(posting) > 16 or any(task.done() for task in posting):
                done, posting = await asyncio.wait(posting, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
            if asking.done():
                break
        if posting:
            await asyncio.gather(*posting)
        await asking

    def _new(self, random, **more):
        self._number += 1
        post = Post(f"p{self._number}", self.context.now, **more)
        post.events.append((post.posted, "posted"))
        self._known[post.label] = post
        # Some messages are so large that they are not written at once.
        size = 200_000 if random.random() < 0.01 else random.randrange(200)
        return post, f"{post.label} {'.' * size}"

    async def _single(self, random):
        ttl = random.choice((None, None, None, None, 0, 1, 5))
        post, body = self._new(random, ttl=ttl)
        headers = {} if ttl is None else {"TTL": str(ttl)}
        if random.random() < 0.1:
            headers["Topic"] = random.choice("xyz")
        if random.random() < 0.1:
            headers["Prefer"] = "wait=5"
            query = {"until": random.choice(("written", "confirmed"))}
        else:
            query = {}
        response = await self.context.client.request(
            "POST", "/v1/messages", data=body, params=query, headers={"Content-Type": "text/plain", **headers}
        )
        self._answered(post, response)

    async def _batch(self, random):
        posts, lines = zip(*(self._new(random) for _ in range(random.choice((2, 5, 20)))), strict=True)
        response = await self.context.client.send("\n".join(lines), type="application/x-ndjson")
        if response.status == 503:
            for post in posts:
                self._refuse(post, 503)
            return
        assert response.status in (202, 207), (response.status, response.body[:500])
        for post, result in zip(posts, response.json["results"], strict=True):
            if "id" in result:
                self._accept(post, result["id"])
            else:
                assert result["status"] == 503, result
                self._refuse(post, 503)

    async def _repeats(self, random):
        """Sends the same request several times, and may cut one of them off. Together they are one message."""
        post, body = self._new(random)
        headers = {"Content-Type": "text/plain", "Idempotency-Key": post.label}
        if random.random() < 0.3:
            await self._send_and_reset(body, f"Idempotency-Key: {post.label}\r\n", random)
        attempts = random.choice((2, 3))
        while (attempts and not self.context.is_over) or post.id is None:
            responses = await asyncio.gather(
                *(
                    self.context.client.request("POST", "/v1/messages", data=body, headers=headers)
                    for _ in range(random.choice((1, 2)))
                )
            )
            for response in responses:
                # The other requests get 409 while the first request is being accepted.
                if response.status in (200, 202):
                    self._answered(post, response)
                    self.repeated += 1
                else:
                    assert response.status in (409, 503), (response.status, response.body[:500])
            attempts = max(0, attempts - 1)
            if post.id is None:
                await asyncio.sleep(0.1)

    async def _cut_off(self, random):
        post, body = self._new(random, is_cut=True)
        self.cut += 1
        self._cut.append(post)
        await self._send_and_reset(body, "", random)

    async def _send_and_reset(self, body, fields, random):
        request = (
            f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n{self.context.fields}{fields}"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
        ).encode()
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(*self.context.gateway.address())
            writer.write(request[: random.randrange(1, len(request) + 1)])
            # The kernel may send the bytes of the request before the reset, or drop them.
            await asyncio.sleep(random.choice((0, 0.001, 0.02)))
            reset(writer)

    def _answered(self, post, response):
        if response.status == 503:
            self._refuse(post, 503)
            return
        assert response.status in (200, 202), (response.status, response.body[:500])
        self._accept(post, response.json["id"])

    def _accept(self, post, id):
        if post.id is None:
            post.id, post.state = id, "queued"
            post.events.append((self.context.now, f"accepted as {id}"))
            self._pending[id] = post
        elif post.id != id:
            self._fault(f"a repeat has the id {id}, and the first {post.id}", post)

    def _refuse(self, post, status):
        post.events.append((self.context.now, f"refused with {status}"))
        post.state = "refused"
        post.final_at = self.context.now
        self.refused += 1
        self._recent.append(post)

    # -- The states of messages --------------------------------------------------------------------------------------

    def arrived(self, label, connection):
        post = self._known.get(label)
        if post is None:
            self._fault(f"{label} arrived, and no message with this label is under way")
            return
        post.arrivals += 1
        post.events.append((self.context.now, f"arrived on connection {connection}"))
        if post.arrivals > 1:
            self._fault(f"arrived {post.arrivals} times", post)
        else:
            self._order.append(post)
        if post.state in ("refused", "expired", "replaced", "rejected"):
            self._fault(f"arrived after it was {post.state}", post)

    async def _ask(self):
        """Records the final state of every message, and reads it again later, since it must not change."""
        context = self.context
        async with Receipts(context.gateway.address(), context.fields) as receipts:
            while not context.is_over or self._pending or self._unanswered():
                asked = list(self._pending.values())
                for post, state in zip(asked, await receipts.states(p.id for p in asked), strict=True):
                    if state in FINAL:
                        self._settle(post, state)
                await self._forget(receipts, context.now)
                await asyncio.sleep(0.1)
            await self._forget(receipts, float("inf"))
        self._check_order()
        for post in self._order:
            self._fault("has no id, although it arrived", post)

    def _unanswered(self):
        return any(post.state == "unanswered" and not post.is_cut for post in self._known.values())

    def _settle(self, post, state):
        del self._pending[post.id]
        post.state = state
        post.final_at = self.context.now
        post.events.append((post.final_at, f"is {state}"))
        self.states[state] += 1
        self._recent.append(post)
        if state == "confirmed" and post.arrivals != 1:
            self._fault(f"was confirmed, and arrived {post.arrivals} times", post)
        if state in ("expired", "replaced", "rejected") and post.arrivals:
            self._fault(f"is {state}, and arrived", post)
        waited = post.final_at - post.posted
        if state == "expired" and (TTL if post.ttl is None else post.ttl) - waited > 0.1:
            self._fault(f"expired after {waited:.3f} s, and its TTL is {post.ttl} s", post)

    async def _forget(self, receipts, now):
        old = []
        while self._recent and now - self._recent[0].final_at > _GRACE:
            old.append(self._recent.popleft())
        accepted = [post for post in old if post.id]
        for post, state in zip(accepted, await receipts.states(p.id for p in accepted), strict=True):
            if state != post.state:
                self._fault(f"was {post.state}, and became {state}", post)
        while self._cut and now - self._cut[0].posted > _FORGET:
            post = self._cut.popleft()
            post.state = "cut"
            old.append(post)
        for post in old:
            self._known.pop(post.label, None)
        self._check_order()

    def _check_order(self):
        """Messages must arrive in the order of their numbers. A message that was cut off has no known number."""
        while self._order and (self._order[0].id or self._order[0].is_cut):
            post = self._order.popleft()
            if post.id is None:
                continue
            if post.sequence < self._last:
                self._fault(f"arrived after number {self._last}", post)
            self._last = max(self._last, post.sequence)

    @property
    def unsettled(self):
        return len(self._pending)
