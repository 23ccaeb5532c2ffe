"""Sessions that clients of several principals create from a profile, use, and close or leave until they are idle.

Their messages and pushes are accounted for like the messages and pushes of other loads. At the end, nothing of the
sessions remains.
"""

import asyncio
import collections
import contextlib
import json
import secrets
from dataclasses import dataclass

from ..client import Batch
from ..kills import FINAL
from ..waiting import eventually
from .reads import Continuity, Pushes

NAME = "created sessions"
_OWNERS = 8
#: The number of sessions in use at the same time.
_LIVES = 16
#: Seconds without use after which the gateway closes a session. No client is that slow, even on a busy machine.
IDLE = 8
#: The session of clients that create it and then close their connections.
ABORTED = "aborted"


class Room:
    """The upstream's side of one session. The name of the room is the path of the session's connections."""

    def __init__(self, name, account, upstream):
        self.name = name
        self._account = account
        self._upstream = upstream
        self.pushed = 0
        self.arrivals = collections.Counter()

    def push(self):
        self.pushed += 1
        self._upstream.send({"n": self.pushed, "room": self.name}, to=self.name)

    def arrived(self, label):
        """Called when a message arrives whose label begins with this room's name. The upstream replies with a push."""
        self.arrivals[label] += 1
        if self.arrivals[label] > 1:
            self._account.fault(f"{label} arrived {self.arrivals[label]} times")
        if self.name != ABORTED and not label.startswith(f"{self.name} "):
            self._account.fault(f"{label} arrived in the session {self.name}")
        self.push()


@dataclass
class _Message:
    label: str
    #: A state of the gateway, or `refused`.
    state: str
    path: str = ""


class Sessions:
    """The account of all sessions that clients create."""

    def __init__(self):
        self.context = None
        self.upstream = None
        self._number = 0
        self._live = set()
        self.tokens = [secrets.token_urlsafe(16) for _ in range(_OWNERS)]
        self.ends = collections.Counter()
        self.states = collections.Counter()
        self.created = self.read = self.gaps = self.accepted = 0

    def __str__(self):
        ends = ", ".join(f"{count} {end}" for end, count in sorted(self.ends.items()))
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items()))
        return (
            f"{self.created} by {_OWNERS} principals: {ends}; {sum(self.states.values())} messages: {states}; "
            f"{self.read} pushes read, {self.gaps} gaps reported"
        )

    def fault(self, text, history=()):
        self.context.faults.add(NAME, text, history)

    def disturb(self):
        """Records that a hand-over was disturbed. Pushes from this time may come twice or out of order."""
        for life in self._live:
            life.pushes.disturb(0, life.room.pushed + 100)

    async def run(self, context, rate):
        self.context = context
        self.upstream.rooms[ABORTED] = Room(ABORTED, self, self.upstream)
        pace = context.pace(rate)
        await asyncio.gather(*(self._run(index, pace) for index in range(_LIVES)))

    async def _run(self, index, pace):
        random = self.context.random(f"session {index}")
        # This lane uses one name again and again.
        again = f"again-{index}"
        cursor = None
        while not self.context.is_over:
            await pace.step()
            self._number += 1
            is_again = random.random() < 0.3
            name = again if is_again else f"s{self._number}"
            life = _Life(self, name, f"r{self._number}", random)
            self._live.add(life)
            try:
                await life.run(cursor if is_again else None)
            finally:
                self._live.discard(life)
            if is_again:
                cursor = life.cursor
            self.read += life.pushes.read
            self.gaps += life.pushes.gaps

    async def finish(self):
        """No session and no connection may remain. Every accepted message must have one final state."""
        context = self.context

        async def none():
            return (await context.gateway.metrics())["drawbridge_created_sessions"] == 0

        try:
            await eventually(none, within=IDLE + 30, what="no created session is left")
            await eventually(
                lambda: not any(peer.room for peer in self.upstream.peers), what="no connection of theirs is left"
            )
        except AssertionError as error:
            self.fault(str(error))
        metrics = await context.gateway.metrics()
        created, closed = metrics["drawbridge_sessions_created_total"], metrics["drawbridge_sessions_closed_total"]
        if created != closed or created < self.created:
            self.fault(
                f"{created:.0f} are created and {closed:.0f} closed, and the clients have created {self.created}"
            )
        ends = {
            state: metrics.samples["drawbridge_outbound_messages_total", f'session="(created)",state="{state}"']
            for state in FINAL
        }
        if sum(ends.values()) != self.accepted:
            self.fault(f"{self.accepted} messages were accepted, and the gateway counts the ends {ends}")
        for state in FINAL:
            if ends[state] < self.states[state]:
                self.fault(f"{self.states[state]} messages are {state}, and the gateway counts {ends[state]:.0f}")


class _Life:
    """One session from its creation to its end."""

    def __init__(self, account, name, room, random):
        self._account = account
        self._context = account.context
        self._name = name
        self._path = f"/v1/sessions/{name}"
        self._random = random
        self._owner = random.randrange(_OWNERS)
        self._messages = []
        self._last_use = 0.0
        self.room = Room(room, account, account.upstream)
        self.pushes = Pushes(NAME)
        self.pushes.context = account.context
        self._reader = Continuity(f"{name} ({room})", self.pushes)
        # The first push has the number 1.
        self._reader.start(".0")
        self.cursor = None

    def _fault(self, text):
        self._account.fault(f"{self._name} ({self.room.name}): {text}", self._reader.events[-12:])

    async def _request(self, method, path="", *, owner=None, headers=None, **options):
        token = self._account.tokens[self._owner if owner is None else owner]
        headers = {"Authorization": f"Bearer {token}", **(headers or {})}
        if path:
            self._last_use = self._context.now
        return await self._context.client.request(method, f"{self._path}{path}", headers=headers, **options)

    async def run(self, old_cursor):
        rooms = self._account.upstream.rooms
        rooms[self.room.name] = self.room
        await self._create()
        if old_cursor:
            await self._resume(old_cursor)
        for _ in range(self._random.choice((1, 2, 4))):
            await self._use()
        if self._random.random() < 0.2:
            await self._stand_off()
        end = self._random.choice((self._delete, self._delete, self._leave))
        if end == self._leave or self._random.random() < 0.5:
            await self._settle()
            await self._read_all()
        await end()
        await self._has_ended()
        del rooms[self.room.name]
        self._judge()

    # -- Using it ----------------------------------------------------------------------------------------------------

    def _put(self, owner=None):
        document = {"profile": "room", "variables": {"room": self.room.name}}
        return self._request("PUT", owner=owner, json=document)

    async def _create(self):
        self._last_use = self._context.now
        responses = await asyncio.gather(*(self._put() for _ in range(self._random.choice((1, 1, 1, 2)))))
        statuses = sorted(response.status for response in responses)
        assert statuses in ([201], [200, 201]), (statuses, responses[0].body)
        self._account.created += 1

    async def _resume(self, cursor):
        """Checks that a cursor of an earlier session with the same name gets the gap `restart`."""
        batch = Batch.of(await self._request("GET", "/messages", params={"cursor": cursor, "wait": "0"}))
        if not batch.gap or batch.gap["reason"] != "restart":
            self._fault(f"the cursor {cursor} of the session before gets the gap {batch.gap}")

    async def _use(self):
        random = self._random
        for _ in range(random.choice((0, 1, 3, 6))):
            self._take(*await self._post(random.choice(({}, {"ttl": "0"}, {"until": "written", "wait": "1"}))))
        for _ in range(random.choice((0, 1, 3, 20))):
            self.room.push()
        await self._poll(wait=random.choice((0, 1)), limit=random.choice((1, 10, 100)))

    async def _post(self, query):
        message = _Message(f"{self.room.name} {len(self._messages)}", "unanswered")
        self._messages.append(message)
        return message, await self._request(
            "POST", "/messages", data=message.label, params=query, headers={"Content-Type": "text/plain"}
        )

    def _take(self, message, response, *, may_be_closed=False):
        if response.status in (200, 202):
            message.state = response.json["state"]
            message.path = f"/deliveries/{response.json['id']}"
            self._account.accepted += 1
            return
        assert response.status == 503 or (may_be_closed and response.status in (404, 410)), (
            response.status,
            response.body,
        )
        message.state = "refused"

    async def _poll(self, **query):
        cursor = self.cursor or "earliest"
        query = {name: str(value) for name, value in query.items()}
        response = await self._request("GET", "/messages", params={"cursor": cursor, **query})
        self._received(Batch.of(response))

    def _received(self, batch):
        self._reader.gap(batch.gap)
        self._reader.messages(batch.messages)
        self.cursor = batch.cursor

    async def _stand_off(self):
        """Checks that no other principal can create, see or use the session."""
        other = (self._owner + 1) % _OWNERS
        if (status := (await self._put(other)).status) != 403:
            self._fault(f"another principal that creates it gets {status}")
        for method, path in (("GET", ""), ("GET", "/messages"), ("DELETE", "")):
            if (status := (await self._request(method, path, owner=other)).status) != 404:
                self._fault(f"another principal gets {status} for {method} {path}")

    async def _settle(self):
        """Waits for the final states of all messages."""
        for message in self._messages:
            while message.path and message.state not in FINAL:
                message.state = (await self._request("GET", message.path, params={"wait": "2"})).json["state"]

    async def _read_all(self):
        """The last push may be lost with its connection, so pushes are repeated until a push arrives."""
        deadline = self._context.now + 60
        while self._reader.number != self.room.pushed:
            if self._context.now > deadline:
                self._fault(f"push {self.room.pushed} does not come; the last one was {self._reader.number}")
                return
            before = self.cursor
            await self._poll(wait=1, limit=1000)
            if self.cursor == before:
                self.room.push()

    # -- Ending it ---------------------------------------------------------------------------------------------------

    async def _delete(self):
        """Deletes the session while messages, a held poll and waits for deliveries are in progress."""
        self._account.ends["deleted"] += 1
        posts = [asyncio.create_task(self._post({"until": "confirmed", "wait": "5"})) for _ in range(4)]
        held = asyncio.create_task(
            self._request("GET", "/messages", params={"cursor": self.cursor or "earliest", "wait": "20"})
        )
        waits = [
            (message, asyncio.create_task(self._request("GET", message.path, params={"wait": "5"})))
            for message in self._messages
            if message.path and message.state not in FINAL
        ]
        await asyncio.sleep(self._random.choice((0, 0.01, 0.1)))
        response = await self._request("DELETE", params={"code": self._random.choice(("1000", "1001", "3999"))})
        assert response.status == 204, (response.status, response.body)
        if (status := (await self._request("GET")).status) != 404:
            self._fault(f"GET after DELETE gets {status}")
        for post in posts:
            self._take(*await post, may_be_closed=True)
        for message, wait in waits:
            response = await wait
            if response.status == 200:
                message.state = response.json["state"]
            elif response.status not in (404, 410):
                self._fault(f"a wait for a delivery gets {response.status}")
        response = await held
        if response.status == 200:
            self._received(Batch.of(response))
        elif response.status not in (404, 410):
            self._fault(f"a held poll gets {response.status}")

    async def _leave(self):
        """Waits until the gateway closes the session because it is idle."""
        self._account.ends["idle"] += 1

        async def is_gone():
            await asyncio.sleep(0.25)
            return (await self._request("GET")).status == 404

        try:
            await eventually(is_gone, within=IDLE + 30, what="an idle session is closed")
        except AssertionError as error:
            self._fault(str(error))
        # A loop reads its clock once per turn, so a difference of 0.1 s is allowed.
        if (idle := self._context.now - self._last_use) < IDLE - 0.1:
            self._fault(f"was closed after {idle:.3f} s without use")

    async def _has_ended(self):
        """Waits until the upstream has seen the end of the session's connections."""
        upstream = self._account.upstream
        with contextlib.suppress(AssertionError):
            await eventually(lambda: not any(peer.room == self.room.name for peer in upstream.peers), what="the end")
            return
        self._fault("is closed, and its connection to the upstream is open")

    def _judge(self):
        for message in self._messages:
            arrivals = self.room.arrivals[message.label]
            if message.state == "confirmed" and not arrivals:
                self._fault(f"{message.label} was confirmed, and did not arrive")
            if message.state in ("refused", "expired", "replaced", "rejected") and arrivals:
                self._fault(f"{message.label} is {message.state}, and arrived")
            # After the end of a session, its client can no longer read the state of a message.
            state = "closed" if message.path and message.state not in FINAL else message.state
            self._account.states[state] += 1


def aborted_request():
    """Sends a request that creates a session. Its client then closes the connection."""
    body = json.dumps({"profile": "room", "variables": {"room": ABORTED}})
    return f"PUT /v1/sessions/{ABORTED} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}"
