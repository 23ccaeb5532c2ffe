"""Which losses `make soak-redis` permits: writes that a later primary lacks, as the histories of the servers show."""

import pytest

from harness.recorder import Connection
from harness.redis_chaos.histories import Histories, LostWrites

#: Seconds. A holder that is connected for this time after a failover has written everything again.
LEASE = 3


class Servers:
    """Servers whose samples the test defines."""

    def __init__(self):
        self.histories = Histories()

    def primary(self, server, at, id, offset, *, after=None):
        """`after` contains the previous history, and the offset of the first write in it that this history lacks."""
        before, end = after or ("0" * 40, -1)
        state = {"role": "master", "master_replid": id, "master_repl_offset": offset}
        self.histories.note(server, at, at, state | {"master_replid2": before, "second_repl_offset": end})

    def replica(self, server, at, id, offset, link="up"):
        state = {"role": "slave", "master_replid": id, "master_repl_offset": offset, "master_link_status": link}
        self.histories.note(server, at, at, state)

    def runs(self, start, end, id, primary, *replicas):
        """One offset is written in each second, and all replicas have it at once."""
        for at in range(start, end + 1):
            self.primary(primary, at, id, at)
            for replica in replicas:
                self.replica(replica, at, id, at)

    def permits(self, at, *connections):
        return LostWrites(self.histories.losses(), connections, LEASE).may_lack(at, at)


@pytest.fixture
def servers():
    servers = Servers()
    servers.runs(0, 10, "h1", "a", "b", "c")
    return servers


def _lost(at):
    """The connection of a holder that is lost at this time."""
    return Connection(1, 0, closed=at)


def test_a_replica_with_all_writes_loses_none(servers):
    servers.primary("b", 11, "h2", 10, after=("h1", 11))
    servers.replica("c", 12, "h2", 11)
    assert not any(servers.permits(at) for at in range(14))


def test_a_planned_failover_loses_what_the_other_replica_confirms_meanwhile(servers):
    # `b` became the primary, while `c` still followed the old primary.
    servers.primary("b", 11, "h2", 10, after=("h1", 11))
    for at in (11, 12, 13):
        servers.primary("a", at, "h1", at)
        servers.replica("c", at, "h1", at)
    servers.primary("b", 14, "h2", 12)
    servers.replica("c", 14, "h2", 12)
    servers.primary("b", 20, "h2", 20)
    assert [at for at in range(20) if servers.permits(at, _lost(at))] == [10, 11, 12, 13]


def test_what_no_replica_has_confirmed_may_not_be_lost(servers):
    # The primary continued alone, and confirmed writes, which would be a fault of the gateway.
    for at in (11, 12, 13):
        servers.primary("a", at, "h1", at)
    servers.primary("b", 14, "h2", 10, after=("h1", 11))
    servers.replica("c", 15, "h2", 10)
    assert not any(servers.permits(at, _lost(at)) for at in range(16))


def test_a_loss_beside_a_holder_that_continues_is_not_permitted(servers):
    for at in (11, 12, 13):
        servers.primary("a", at, "h1", at)
        servers.replica("c", at, "h1", at)
    servers.primary("b", 14, "h2", 10, after=("h1", 11))
    servers.replica("c", 15, "h2", 10)
    servers.primary("b", 20, "h2", 20)
    assert servers.permits(12, _lost(13), Connection(2, 16))
    # The holder was lost before it could write again what the new primary lacks.
    assert servers.permits(12, Connection(1, 0, closed=14 + LEASE - 0.1))
    assert not servers.permits(12, Connection(1, 0, closed=14 + LEASE))
    assert not servers.permits(12, Connection(1, 0))


def test_a_server_that_was_started_again_has_what_it_had_before(servers):
    # `a` was killed, `b` became the primary with `c`, and then `a` without having followed `b`.
    servers.primary("b", 11, "h2", 10, after=("h1", 11))
    servers.runs(12, 15, "h2", "b", "c")
    servers.replica("a", 14, "random", 0, link="down")
    servers.primary("a", 16, "h3", 0, after=("random", 1))
    # The history gets another id when the first replica connects.
    servers.primary("a", 17, "h4", 0)
    servers.replica("c", 17, "h4", 0)
    servers.runs(18, 25, "h4", "a", "c", "b")
    assert [at for at in range(24) if servers.permits(at, _lost(at))] == [11, 12, 13, 14, 15]


def test_a_former_primary_that_returns_lacks_all_histories_since(servers):
    # `b` was promoted, then `c`, and then `a`, which has followed neither of them.
    servers.primary("b", 11, "h2", 10, after=("h1", 11))
    servers.runs(12, 14, "h2", "b", "c")
    servers.primary("c", 15, "h3", 14, after=("h2", 15))
    servers.runs(16, 18, "h3", "c", "b")
    servers.replica("a", 18, "h1", 10, link="down")
    servers.primary("a", 19, "h4", 10, after=("h1", 11))
    servers.replica("b", 20, "h4", 10)
    servers.runs(21, 30, "h4", "a", "b", "c")
    assert [at for at in range(30) if servers.permits(at, _lost(at))] == [11, 12, 13, 14, 15, 16, 17, 18]


def test_a_primary_that_no_gateway_could_use_loses_nothing(servers):
    servers.primary("b", 11, "h2", 10, after=("h1", 11))
    servers.runs(12, 14, "h2", "b", "c")
    # The former primary is started again, and a Sentinel makes it a replica.
    servers.primary("a", 13, "h3", 0)
    servers.runs(15, 20, "h2", "b", "c", "a")
    assert not any(servers.permits(at, _lost(at)) for at in range(20))


def test_a_later_failover_does_not_lose_what_was_written_again(servers):
    for at in (11, 12):
        servers.primary("a", at, "h1", at)
        servers.replica("c", at, "h1", at)
    servers.primary("b", 13, "h2", 10, after=("h1", 11))
    servers.runs(14, 20, "h2", "b", "a", "c")
    # The holder has continued, and is lost in the second failover. All replicas have the same content then.
    servers.primary("c", 21, "h3", 20, after=("h2", 21))
    servers.replica("a", 22, "h3", 20)
    servers.primary("c", 30, "h3", 30)
    assert not servers.permits(12, Connection(1, 0, closed=21))


def test_only_the_time_in_which_a_write_was_stored_counts(servers):
    for at in (11, 12, 13):
        servers.primary("a", at, "h1", at)
        servers.replica("c", at, "h1", at)
    servers.primary("b", 14, "h2", 10, after=("h1", 11))
    servers.replica("c", 15, "h2", 10)
    servers.primary("b", 20, "h2", 20)
    lost = LostWrites(servers.histories.losses(), [], LEASE)
    assert lost.may_lack(5, 12)
    assert lost.may_lack(12, 18)
    assert not lost.may_lack(5, 9)
    assert not lost.may_lack(14, 18)
