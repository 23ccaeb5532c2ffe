"""The checker of `make soak-redis`: an account with one mistake gets one fault, and a correct account gets none."""

import random

import pytest

from harness.recorder import Connection, RecordingUpstream
from harness.redis_chaos.clients import Clients, Posts, Reader, Workers
from harness.redis_chaos.judge import (
    Loss,
    Losses,
    Promises,
    Pushes,
    judge_connections,
    judge_content,
    judge_logs,
    judge_readers,
)

STRICT = Promises(Loss.NEVER, True)
RECOMMENDED = Promises(Loss.BEHIND, True)
SINGLE = Promises(Loss.ANY, True)
NO_WAIT = Promises(Loss.ANY, False)


def term(counter):
    return counter << 32 | 7


def id_of(counter, number):
    return f"p-6f550ed34e92.{term(counter)}.{number}"


def push(counter, number, *, connection=1, count=None, n=None):
    """A push as a reader receives it. Pushes of one connection are numbered from 1."""
    data = {"c": connection, "k": count or number, "n": n or number}
    return {"id": id_of(counter, number), "data": data}


def gap(*reasons):
    return {"reason": reasons[0], "reasons": list(reasons)}


class Account:
    """The account of all clients. `reads` adds what one reader receives: pushes, and gaps, which have no id."""

    def __init__(self, promises=STRICT):
        self.promises = promises
        self.losses = Losses(promises)
        self.pushes = Pushes()
        self.readers = []
        self.upstream = RecordingUpstream()
        self.upstream.connections.append(Connection(1, 0.0))
        self.clients = Clients(None, random.Random(1))
        self.posts = Posts(self.clients, self.upstream, random.Random(1), 0, promises, self.losses)
        self.workers = Workers(self.clients, random.Random(1), promises, self.losses)

    def reads(self, *deliveries):
        reader = Reader(len(self.readers), self.clients, random.Random(1), self.pushes)
        for delivery in deliveries:
            (reader.note if "id" in delivery else reader.note_gap)(delivery)
        self.readers.append(reader)

    def message(self, label, state, *, arrived=1, at=0.0):
        self.posts.note_accepted(label, f"d-{label}", at)
        self.posts.note_state(f"d-{label}", state)
        for _ in range(arrived):
            self.arrives(label, at)

    def arrives(self, label, at=0.0):
        self.upstream.connections[0].writes.append((at, label))

    def faults(self, log=(), may_lack=lambda since, at: False):
        self.posts.compare()
        faults = judge_readers(self.readers, self.pushes, log, self.promises, self.losses)
        for each in (self.clients, self.posts, self.workers, *self.readers):
            faults += each.faults
        return faults + self.losses.faults(may_lack)


@pytest.fixture
def account():
    return Account()


def only(faults, text):
    assert len(faults) == 1, faults
    assert text in faults[0]


# -- Accounts without a fault ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("promises", [STRICT, RECOMMENDED, SINGLE, NO_WAIT])
def test_an_account_without_errors_has_no_fault(promises):
    account = Account(promises)
    account.reads(push(1, 1), push(1, 2), gap("upstream"), push(2, 3, connection=2, count=1, n=9))
    account.reads(push(1, 1), push(1, 2), gap("upstream"), push(2, 3, connection=2, count=1, n=9))
    for label, state in (("a", "confirmed"), ("b", "unknown")):
        account.message(label, state)
    account.message("c", "unknown", arrived=0)
    account.upstream.connections[0].closed = 5.0
    account.message("d", "expired", arrived=0)
    account.posts.refused["e"] = "store-failed"
    account.workers.note_lease(1, "first", began=0, now=0.1)
    # The lease has expired, so another worker gets the push.
    account.workers.note_lease(1, "second", began=3.1, now=3.2)
    account.workers.acknowledged[1] = (3.2, 3.3)
    log = [id_of(1, 1), id_of(1, 2), id_of(2, 3)]
    assert account.faults(log) == []
    assert judge_logs([[*log, ("upstream",)]] * 3) == []


def test_consecutive_connections_have_no_fault():
    connections = [Connection(1, 0, closed=5, writes=[(4.9, "a")]), Connection(2, 5.1)]
    assert judge_connections(connections, {1: "a", 2: "b"}, [], STRICT) == []


# -- Pushes ---------------------------------------------------------------------------------------------------------


def test_a_push_that_is_missing_between_two_is_a_fault(account):
    account.reads(push(1, 1), push(1, 3))
    only(account.faults([id_of(1, 1), id_of(1, 3)]), "follows number 1 without a gap")


@pytest.mark.parametrize(
    "second", [push(1, 2, connection=2), push(1, 2, count=3)], ids=["of another connection", "not the next one of it"]
)
def test_a_number_that_hides_a_missing_push_is_a_fault(account, second):
    account.reads(push(1, 1), second)
    only(account.faults([id_of(1, 1), id_of(1, 2)]), "without a gap")


def test_a_repeated_push_is_a_fault_unless_the_store_has_lost_data(account):
    account.reads(push(1, 1), push(1, 2), gap("upstream"), push(1, 2))
    account.reads(push(1, 1), push(1, 2), gap("store"), push(1, 2))
    only(account.faults([id_of(1, 1), id_of(1, 2)]), "reader 0")


def test_an_id_with_two_contents_is_a_fault(account):
    account.reads(push(1, 1))
    account.reads(push(1, 1, n=2))
    only(account.faults([id_of(1, 1)]), "is (1, 1, 1) and (1, 1, 2)")


def test_a_push_that_a_reader_did_not_get_is_a_fault(account):
    account.reads(push(1, 1), gap("upstream"), push(2, 3, connection=2, count=2))
    only(account.faults([id_of(1, 1), id_of(2, 2), id_of(2, 3)]), "lacks 1 pushes of the log")


def _lost_push(promises, reason):
    """One reader has received number 2 of the first term, which was then lost."""
    account = Account(promises)
    account.reads(push(1, 1), push(1, 2), gap("store"), push(3, 2, connection=2, count=1, n=3))
    account.reads(push(1, 1), gap(reason), push(3, 2, connection=2, count=1, n=3))
    return account, [id_of(1, 1), id_of(3, 2)]


def test_a_lost_push_is_at_a_gap_of_the_store():
    account, log = _lost_push(SINGLE, "store")
    assert account.faults(log) == []
    account, log = _lost_push(SINGLE, "upstream")
    only(account.faults(log), "without a gap `store`")


def test_data_that_wait_confirmed_may_not_be_lost():
    account, log = _lost_push(STRICT, "store")
    only(account.faults(log, lambda since, at: True), "was seen and is not in the log")


def test_with_fewer_replicas_only_what_redis_has_lost_may_be_lost():
    for may_lack in (True, False):
        account, log = _lost_push(RECOMMENDED, "store")
        assert len(account.faults(log, lambda since, at, may_lack=may_lack: may_lack)) == 1 - may_lack


def test_without_wait_readers_of_one_gateway_may_have_their_own_branch():
    log = [id_of(1, 1), id_of(1, 2), id_of(3, 3)]
    last = push(3, 3, connection=3, count=1)
    branch = push(2, 2, connection=2, count=1, n=9)
    whole = [push(1, 1), push(1, 2), gap("upstream"), last]
    account = Account(NO_WAIT)
    account.reads(push(1, 1), gap("upstream"), branch, gap("store"), last)
    account.reads(*whole)
    assert account.faults(log) == []
    # Without a gap that has the reason `store`, no push of the log may be missing.
    account = Account(NO_WAIT)
    account.reads(push(1, 1), gap("upstream"), branch, gap("upstream"), last)
    account.reads(*whole)
    only(account.faults(log), "reader 0 lacks 1 pushes of the log")


def test_logs_that_differ_are_a_fault():
    log = [id_of(1, 1), ("upstream",), id_of(2, 2)]
    only(judge_logs([log, [id_of(1, 1), ("store",), id_of(2, 2)], log]), "gateways 0 and 1 differ at 1")
    only(judge_logs([log, log, log[:2]]), "gateways 0 and 2 differ at end")


# -- Messages -------------------------------------------------------------------------------------------------------


def test_a_message_that_arrived_twice_is_a_fault(account):
    account.message("a", "unknown", arrived=2)
    only(
        account.faults(), "a arrived 2 times: d-a accepted at 0.000, unknown; on connection 1 at 0.000; on connection 1"
    )


@pytest.mark.parametrize("closed", [None, 1.0])
def test_a_message_that_is_unknown_without_a_connection_that_has_ended_is_a_fault(account, closed):
    account.upstream.connections[0].closed = closed
    account.message("a", "unknown", arrived=0, at=2.0)
    only(account.faults(), "a (d-a) is unknown and never arrived, and no connection has ended since")


def test_each_id_of_a_repeated_message_is_compared():
    account = Account(SINGLE)
    account.upstream.connections[0].closed = 5.0
    account.message("a", "unknown", arrived=0)
    account.posts.note_accepted("a", "d-2", 1.0)
    account.posts.note_state("d-2", "confirmed")
    only(account.faults(), "a (d-2) was confirmed and never arrived")


def test_a_confirmed_message_that_never_arrived_is_a_fault(account):
    account.message("a", "confirmed", arrived=0)
    only(account.faults(), "was confirmed and never arrived")


@pytest.mark.parametrize("state", ["expired", "replaced", "rejected"])
def test_a_message_that_was_not_sent_and_arrived_is_a_fault(account, state):
    account.message("a", state)
    only(account.faults(), f"is {state} and arrived")


def test_a_refused_message_that_arrived_is_a_fault(account):
    for label in ("refused", "refused and unclear", "refused and accepted"):
        account.posts.refused[label] = "store-failed"
        account.arrives(label)
    account.posts.unclear.add("refused and unclear")
    account.posts.note_accepted("refused and accepted", "d-1", 0)
    account.posts.note_state("d-1", "confirmed")
    only(account.faults(), "refused got store-failed and arrived")


def test_a_message_without_a_state_is_a_fault(account):
    account.posts.note_accepted("a", "d-a", 0)
    only(account.faults(), "has no state")


def test_a_final_state_changes_only_if_a_confirmation_was_not_stored(account):
    account.message("a", "confirmed")
    account.posts.note_state("d-a", "unknown")
    assert account.faults() == []
    account.posts.note_state("d-a", "confirmed")
    only(account.faults(), "was unknown and became confirmed")


def test_an_id_of_two_messages_is_a_fault(account):
    for label in ("a", "b"):
        account.posts.note_accepted(label, "d-1", 0)
    account.posts.note_state("d-1", "expired")
    only(account.faults(), "was given to a and b")


def test_two_ids_of_a_message_are_a_fault(account):
    for number in (1, 2):
        account.posts.note_accepted("a", f"d-{number}", 0)
        account.posts.note_state(f"d-{number}", "expired")
    only(account.faults(), "a has the ids d-1 and d-2")


def test_a_problem_that_cannot_occur_is_a_fault(account):
    account.clients.note("post", 503, "store-failed", b"")
    account.clients.note("post", 409, "idempotency-key-in-progress", b"", also={(409, "idempotency-key-in-progress")})
    assert account.faults() == []
    account.clients.note("read", 502, "outcome-unknown", b"")
    only(account.faults(), "read got 502")


# -- Leases ---------------------------------------------------------------------------------------------------------


def test_a_push_with_two_live_leases_is_a_fault(account):
    account.workers.note_lease(1, "first", began=0, now=0.1)
    account.workers.note_lease(1, "second", began=2, now=2.5)
    only(account.faults(), "1 has the leases first and second")


def test_leases_are_not_compared_across_a_step_of_a_clock_nor_without_wait(account):
    workers = account.workers
    workers.note_lease(1, "first", began=0, now=0.1)
    workers.forget_leases(clocks_differ=True)
    workers.note_lease(1, "second", began=0.2, now=0.3, period=1)
    workers.forget_leases()
    # The third lease was requested before the end of the step.
    workers.note_lease(1, "third", began=0.4, now=0.5, period=1)
    workers.note_lease(1, "fourth", began=0.6, now=0.7, period=2)
    assert account.faults() == []
    workers.note_lease(1, "fifth", began=0.8, now=0.9, period=2)
    only(account.faults(), "1 has the leases fourth and fifth")
    other = Account(NO_WAIT)
    for lease in ("first", "second"):
        other.workers.note_lease(1, lease, began=0, now=0.1)
    assert other.faults() == []


def test_a_repeated_push_after_its_acknowledgement_is_a_fault(account):
    other = Account(SINGLE)
    for each in (account, other):
        each.workers.acknowledged[1] = (0.9, 1.0)
        each.workers.note_lease(1, "again", began=9, now=9)
    only(account.faults(), "came again after its acknowledgement")
    assert other.faults() == []


def test_a_lease_that_arrives_after_its_end_is_no_fault_and_a_valid_one_is(account):
    for number in (1, 2):
        account.workers.note_lease(number, "second", began=4, now=4.1, left=3)
        account.workers.note_lease(number, "first", began=0.5, now=4.5, left=-1)
    account.workers.acknowledged[1] = (4.6, 4.7)
    account.workers.note_lease(1, "first", began=0.5, now=5, left=-1)
    assert account.faults() == []
    account.workers.note_lease(2, "first", began=0.5, now=5, left=2)
    only(account.faults(), "2 has the leases second and first")
    account.workers.faults.clear()
    account.workers.note_lease(1, "first", began=0.5, now=9, left=2)
    only(account.faults(), "1 came again after its acknowledgement")


# -- Connections ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", ["frozen", "awake"])
def test_a_write_after_the_next_connection_was_opened_is_a_fault(owner):
    """This also applies to a gateway that was stopped until then, although its connection is closed in time."""
    first = Connection(1, 0, closed=6.0 if owner == "frozen" else 5.2, writes=[(4.0, "a"), (6.0, "b")])
    faults = judge_connections([first, Connection(2, 5.0)], {1: owner, 2: "other"}, [("frozen", 2.0, 6.0)], STRICT)
    only(faults, "connection 1 was written to 1.00 s after number 2 was opened")


def test_a_connection_that_is_never_closed_is_a_fault():
    connections = [Connection(1, 0), Connection(2, 5)]
    only(judge_connections(connections, {}, [], STRICT), "connections 1 and 2 were open side by side")
    only(judge_connections(connections, {}, [], NO_WAIT), "connection 1 was never closed")


def test_only_a_stopped_gateway_excuses_that_its_own_connection_is_open():
    connections = [Connection(1, 0, closed=8.1), Connection(2, 5)]
    freezes = [("frozen", 2.0, 8.0)]
    assert judge_connections(connections, {1: "frozen"}, freezes, STRICT) == []
    assert judge_connections(connections, {1: "awake"}, freezes, NO_WAIT) == []
    for owners in ({1: "awake"}, {1: "awake", 2: "frozen"}, {}, {1: None}):
        only(judge_connections(connections, owners, freezes, STRICT), "were open side by side")
    # The gateway continued before the overlap, or was stopped after it began.
    for interval in ((2.0, 4.9), (5.1, 8.0)):
        only(judge_connections(connections, {1: "frozen"}, [("frozen", *interval)], STRICT), "side by side")


# -- The required content of a run -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"never_done": {"cut"}}, "never carried out: cut"),
        ({"crashes": 0}, "no take-over was measured"),
        ({"releases": 0}, "no release was measured"),
        ({"steps": 0}, "no clock was stepped"),
        ({"gaps": 0}, "no reader has a gap"),
        ({"posts": (490, 1000)}, "only 490 of 1000 POSTs succeeded"),
        ({"posts": (239, 240)}, "only 239 of 240 POSTs succeeded"),
        ({"reads": (0, 0)}, "only 0 of 0 reads succeeded"),
    ],
)
def test_a_long_run_without_the_intended_failures_has_a_fault(changed, fault):
    content = {"never_done": set(), "crashes": 1, "releases": 1, "steps": 1, "gaps": 1}
    content |= {"posts": (500, 1000), "reads": (120, 130)}
    assert judge_content(120, **content) == []
    assert judge_content(120, **{**content, **changed}) == [fault]
    assert judge_content(20, **{**content, **changed}) == []


def test_each_kind_of_redis_has_its_promises():
    assert Promises.of(sentinels=True, replicas=2, waits=2) == STRICT
    assert Promises.of(sentinels=True, replicas=2, waits=1) == RECOMMENDED
    assert Promises.of(sentinels=True, replicas=1, waits=1) == STRICT
    assert Promises.of(sentinels=True, replicas=2, waits=0) == NO_WAIT
    assert Promises.of(sentinels=False, replicas=0, waits=0) == SINGLE
