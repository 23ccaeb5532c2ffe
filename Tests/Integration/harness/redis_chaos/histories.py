"""The histories of the Redis servers, and the writes that each history lacks.

A *history* is a line of writes with a replication id. It begins when a server becomes the primary, with the content of
that server: another history up to an offset. `Histories` needs no process; `watch` feeds it from the servers.
"""

import asyncio
import contextlib
import math
import time
from dataclasses import dataclass, field

from redis.asyncio import Redis
from redis.exceptions import RedisError

#: Seconds between two samples of a server.
_SAMPLING = 0.02


@dataclass(frozen=True)
class Interval:
    """Writes at these times are in a history of which another server became the primary without them."""

    start: float
    end: float
    #: The time at which the other server was seen as the primary.
    promoted: float


@dataclass
class _History:
    id: str
    created: float
    #: The id of the history that this history continues, and the last offset that both have. The id is None for the
    #: first history.
    parent: str | None
    end: float
    #: The offset before its first own write.
    first: int
    #: The times and offsets of samples of its primary.
    written: list = field(default_factory=list)
    #: The greatest offset of a replica, and the last time at which a replica was connected.
    replicated: float = -math.inf
    latest: float = -math.inf

    @property
    def was_used(self):
        """Whether gateways may have used it: their WAIT needs a replica."""
        return self.latest > -math.inf


class Histories:
    """Learns the histories from samples of INFO replication, in the order of their times."""

    def __init__(self):
        self._histories = {}
        #: The content of each server: a history, and the offset up to which the server has it.
        self._contents = {}

    def note(self, server, before, after, state):
        """Records a sample that was requested at `before` and received at `after`."""
        id, offset = state["master_replid"], state["master_repl_offset"]
        history = self._histories.get(id)
        if state["role"] == "master":
            history = history or self._begin(server, after, state)
            history.written.append((before, offset))
            # The server has all writes of its own, including the writes after its last sample.
            self._contents[server] = (id, math.inf)
        elif history is not None:
            # Before a server that was started again has the content of its primary, it has another id.
            self._contents[server] = (id, offset)
            if state["master_link_status"] == "up":
                history.replicated = max(history.replicated, offset)
                history.latest = max(history.latest, after)

    def _begin(self, server, at, state):
        id, first = state["master_replid"], state["master_repl_offset"]
        parent, end = self._contents.get(server, (None, math.inf))
        if state["master_replid2"] in self._histories:
            parent, end = state["master_replid2"], state["second_repl_offset"] - 1
            first = end
        self._histories[id] = _History(id, at, parent, end, first)
        return self._histories[id]

    def _lacks(self, history):
        """For each earlier history, the offset after which its writes are missing in this history."""
        path, end = {}, math.inf
        current = history
        while current is not None:
            path[current.id] = end
            current, end = self._histories.get(current.parent), current.end
        earlier = (other for other in self._histories.values() if other.created < history.created)
        ends = ((other.id, path.get(other.id, other.first)) for other in earlier)
        return {id: end for id, end in ends if end < math.inf}

    def losses(self):
        """The intervals of writes that a replica has confirmed, and that a later primary with a replica lacks."""
        for history in self._histories.values():
            if not history.was_used:
                continue
            parent = self._histories.get(history.parent)
            while parent and not parent.was_used:
                parent = self._histories.get(parent.parent)
            before = self._lacks(parent) if parent else {}
            for id, end in self._lacks(history).items():
                other = self._histories[id]
                # If the history before it lacks the same writes, they were lost earlier.
                if other.replicated > end and before.get(id) != end:
                    start = max((at for at, offset in other.written if offset <= end), default=other.created)
                    until = min(other.latest, history.written[-1][0]) + _SAMPLING
                    yield Interval(start, until, history.created)


class LostWrites:
    """Decides whether Redis may have lost a write."""

    def __init__(self, intervals, connections, lease):
        self.intervals = list(intervals)
        self._connections = connections
        self._lease = lease

    def may_lack(self, since, at):
        """Whether a write between these times may be lost: a later primary lacks it, and its holder was lost too."""
        return any(
            since <= each.end and at >= each.start and not self._continues(since, each.promoted + self._lease)
            for each in self.intervals
        )

    def _continues(self, since, until):
        """Whether one gateway was the holder all the time. It then writes again what the new primary lacks."""
        return any(each.opened <= since and (each.closed is None or each.closed >= until) for each in self._connections)


async def watch(servers, histories):
    """Samples each server until the task is cancelled. A server that is stopped or has ended has no samples."""
    await asyncio.gather(*(_watch(server, histories) for server in servers))


async def _watch(server, histories):
    # A stopped server does not respond, and its samples would otherwise come late.
    client = Redis(host="127.0.0.1", port=server.port, socket_timeout=0.5, socket_connect_timeout=0.5)
    try:
        while True:
            before = time.monotonic()
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                state = await client.info("replication")
                histories.note(server.port, before, time.monotonic(), state)
            await asyncio.sleep(_SAMPLING)
    finally:
        await client.aclose()
