"""Judges a run from the accounts of its clients and of its upstream. This needs no process."""

import enum
import itertools
from dataclasses import dataclass

#: In seconds. A frame may be sent before the next connection opens, and read a little later.
WRITE_SLACK = 0.5


class Loss(enum.Enum):
    """When Redis may lose confirmed data."""

    NEVER = "never"
    #: If a server without the data becomes the primary, although another replica has confirmed them, and the holder is
    #: lost too (docs/scaling.md, "These limits apply").
    BEHIND = "if a server that is behind becomes the primary"
    #: At each failover or restart.
    ANY = "at any time"


@dataclass(frozen=True)
class Promises:
    """The promises of docs/scaling.md and docs/replicas.md for a kind of Redis."""

    loss: Loss
    #: Whether at most one gateway holds a session. Without WAIT, a second gateway may take it at a primary that was
    #: replaced.
    has_one_holder: bool

    @classmethod
    def of(cls, *, sentinels, replicas, waits):
        if not sentinels:
            return cls(Loss.ANY, True)
        if not waits:
            return cls(Loss.ANY, False)
        return cls(Loss.BEHIND if waits < replicas else Loss.NEVER, True)


class Losses:
    """Facts that prove a loss of confirmed data, each with the times between which the data was stored."""

    def __init__(self, promises):
        self._promises = promises
        self._noted = []

    def note(self, since, at, text):
        self._noted.append((since, at, text))

    def __len__(self):
        return len(self._noted)

    def faults(self, may_lack=lambda since, at: False):
        """The losses that are not permitted. `may_lack` says whether Redis may have lost what was stored then."""
        if self._promises.loss is Loss.ANY:
            return []
        is_strict = self._promises.loss is Loss.NEVER
        return [text for since, at, text in self._noted if is_strict or not may_lack(since, at)]


class Pushes:
    """The content of each push by its id, and the time at which a client first received it, for all clients.

    `sent` contains the time at which the upstream has sent each push.
    """

    def __init__(self, sent=()):
        self.contents = {}
        self._sent = sent
        self._seen = {}

    def note(self, id, content, at):
        """Records a content. If the same id had a different content before, returns that content, otherwise None."""
        self._seen.setdefault(id, at)
        other = self.contents.setdefault(id, content)
        return None if other == content else other

    def seen(self, id):
        return self._seen[id]

    def sent(self, id):
        number = self.number(id)
        return self._sent[number - 1] if 0 < number <= len(self._sent) else self._seen[id]

    def number(self, id):
        """The member `n` of the push; 0 if the push is not known."""
        return self.contents.get(id, (0, 0, 0))[2]


def position(id):
    """The term and the number of a push."""
    _, term, number = id.split(".")
    return int(term), int(number)


def judge_logs(logs):
    """All gateways must have the same log of ids and reasons of gaps."""
    faults = []
    for number, log in enumerate(logs[1:], 1):
        if log == logs[0]:
            continue
        place = next((i for i, pair in enumerate(zip(log, logs[0], strict=False)) if pair[0] != pair[1]), "end")
        ends = [(each[:2], each[-2:]) for each in (logs[0], log)]
        faults.append(f"the logs of gateways 0 and {number} differ at {place}: {len(logs[0])}, {len(log)}; {ends}")
    return faults


def judge_readers(readers, pushes, log, promises, losses):
    """Each reader must have each push of the log, and a gap `store` at each push that only other readers saw."""
    faults, final = [], set(log)
    lost = set(pushes.contents) - final
    for id in sorted(lost):
        losses.note(pushes.sent(id), pushes.seen(id), f"{id} was seen and is not in the log")
    for reader in readers:
        missing = final - reader.ids
        if not promises.has_one_holder:
            # A gap `store` may replace pushes of the log, since a lost branch has its own readers.
            missing = {id for id in missing if not lies_before_a_gap(id, reader.seen)}
        if missing:
            faults.append(f"reader {reader.number} lacks {len(missing)} pushes of the log: {sorted(missing)[:5]}")
        if promises.has_one_holder:
            faults += [
                f"reader {reader.number} lacks {id}, which others saw, without a gap `store`"
                for id in sorted(lost - reader.ids)
                if not lies_at_a_gap(id, reader.seen)
            ]
    return faults


def lies_at_a_gap(id, seen):
    """Whether the reader has a gap `store` at the place of the push."""
    term, number = position(id)
    return any(
        (before is None or before[1] < number) and after[0] >> 32 > term >> 32
        for before, after in _gaps_of_the_store(seen)
    )


def lies_before_a_gap(id, seen):
    """Whether the reader continued after the push with a gap `store`."""
    term, number = position(id)
    return any(after[1] > number and after[0] >> 32 >= term >> 32 for _, after in _gaps_of_the_store(seen))


def _gaps_of_the_store(seen):
    """The deliveries before and after each gap `store` or `restart`."""
    last, reasons = None, frozenset()
    for kind, value in seen:
        if kind == "gap":
            reasons |= value
            continue
        if reasons & {"store", "restart"}:
            yield last, (kind, value)
        last, reasons = (kind, value), frozenset()


def judge_connections(connections, owners, freezes, promises):
    """After a gateway has opened the next connection, no other gateway may have a connection or write to it.

    `owners` contains the gateway of each connection, by number. `freezes` contains the gateway, beginning and end of
    each stop. A stopped gateway cannot close its connection, but must not write to it when it continues.
    """
    faults = []
    for connection, following in itertools.pairwise(connections):
        if not promises.has_one_holder:
            if connection.closed is None:
                faults.append(f"connection {connection.number} was never closed")
            continue
        late = [at for at, _ in connection.writes if at > following.opened + WRITE_SLACK]
        if late:
            faults.append(
                f"connection {connection.number} was written to {late[0] - following.opened:.2f} s "
                f"after number {following.number} was opened"
            )
        owner = owners.get(connection.number)
        thaws = [
            end for member, start, end in freezes if member is owner is not None and start < following.opened <= end
        ]
        latest = max([following.opened, *thaws]) + WRITE_SLACK
        if connection.closed is None or connection.closed > latest:
            faults.append(f"connections {connection.number} and {following.number} were open side by side")
    return faults


def judge_content(seconds, *, never_done, crashes, releases, steps, gaps, posts, reads):
    """Checks that a run of two minutes or more was useful. `posts` and `reads`: numbers of successes and requests."""
    if seconds < 120:
        return []
    faults = [f"never carried out: {kind}" for kind in sorted(never_done)]
    for count, what in ((crashes, "take-over"), (releases, "release")):
        if not count:
            faults.append(f"no {what} was measured")
    if not steps:
        faults.append("no clock was stepped")
    if not gaps:
        faults.append("no reader has a gap")
    # The limits are far below the usual 10 to 60 POSTs and 4 to 10 polls per second, and far above a run that mostly
    # refuses requests.
    for (succeeded, requests), rate, what in ((posts, 2, "POSTs"), (reads, 1, "reads")):
        if succeeded < requests / 2 or succeeded < rate * seconds:
            faults.append(f"only {succeeded} of {requests} {what} succeeded")
    return faults
