"""The machine's network changes while the gateway runs: routes, addresses, links, and packets that are lost.

Waits and heartbeats are so long that they cannot cause the observed effects, or the session's history names the cause.
"""

import contextlib
import os
import sys
from pathlib import Path

import pytest
import pytest_asyncio

from harness import deny_netlink
from harness.namespaces import Cable, needs_namespaces
from harness.upstream import Upstream
from harness.waiting import eventually

# A limit that is longer than any test, so it is never reached.
NEVER = "1h"
NO_HEARTBEAT = {"DRAWBRIDGE_UPSTREAM_HEARTBEAT_INTERVAL": NEVER, "DRAWBRIDGE_UPSTREAM_HEARTBEAT_TIMEOUT": NEVER}
ENDLESS_BACKOFF = {f"DRAWBRIDGE_UPSTREAM_RECONNECT_{name}": NEVER for name in ("MINIMUM", "BASE", "MAXIMUM")}
# Any connection counts as stable, so the gateway reconnects within 250 ms.
ALWAYS_STABLE = {"DRAWBRIDGE_UPSTREAM_RECONNECT_RESET_AFTER": "0s"}
# A busy machine alone must not make a connection look dead.
QUICK_HEARTBEAT = {"DRAWBRIDGE_UPSTREAM_HEARTBEAT_INTERVAL": "300ms", "DRAWBRIDGE_UPSTREAM_HEARTBEAT_TIMEOUT": "2s"}


@pytest.fixture(params=[4, 6], ids=["IPv4", "IPv6"])
def cable(request):
    with contextlib.ExitStack() as stack:
        cable = Cable(request.param)
        cable.start()
        stack.callback(cable.stop)
        yield cable


@pytest_asyncio.fixture
async def upstream(start, cable):
    return await start(Upstream(host=cable.host, listener=cable.listener))


@pytest_asyncio.fixture
async def gateway_behind(gateway_for, cable, tmp_path):
    """`await gateway_behind(upstream, env)`: a gateway in the namespace at the near end of the cable."""

    async def gateway_behind(upstream, *environments, ready=True):
        sockets = [f"unix:{tmp_path}/{name}.sock" for name in ("api", "management")]
        env = {name: value for environment in environments for name, value in environment.items()}
        arguments = ("--listen", sockets[0], "--management", sockets[1])
        return await gateway_for(upstream, *arguments, ready=ready, env=env, prefix=cable.prefix())

    return gateway_behind


async def reaches(client, state):
    async def session_in_state():
        session = await client.session()
        return session if session["state"] == state else None

    return await eventually(session_in_state, what=f"the session is {state}")


def causes(session, to, after=0):
    """The causes of the session's transitions to the state `to` after the transition number `after`, oldest first."""
    return [entry["cause"] for entry in session["history"] if entry["to"] == to and entry["sequence"] > after]


async def has_just_attempted(client):
    """Waits for an attempt that an offline session makes by itself, every five seconds.

    An attempt that a change of the network caused does not count. Within five seconds after it, a further change would
    only shorten the wait.
    """

    async def session_after_attempt():
        session = await client.session()
        is_waiting = session["state"] == "offline" and (session["next_attempt_in_seconds"] or 0) > 4
        return is_waiting and causes(session, "resolving")[-1] == "wait ended"

    await eventually(session_after_attempt, what="an attempt of the session itself")


@needs_namespaces
async def test_without_a_route_a_session_is_offline_until_a_route_appears(cable, upstream, gateway_behind):
    cable.remove_route()
    gateway = await gateway_behind(upstream, ENDLESS_BACKOFF, ready=False)
    client = gateway.client()
    session = await reaches(client, "offline")
    assert session["failed_attempts"] == 0, "no attempt was made"
    assert "unreachable" in session["last_failure"]
    await client.accepted("waits for the route")
    await has_just_attempted(client)
    cable.add_route()
    assert await upstream.has_received(1) == ["waits for the route"]
    session = await client.session()
    # The session tries by itself every five seconds, but the network change caused the last attempt.
    assert causes(session, "resolving")[-1] == "network changed"
    assert (await gateway.metrics())["drawbridge_network_changes_total"] >= 1


@needs_namespaces
async def test_a_route_that_disappears_and_returns_causes_a_reconnect(cable, upstream, gateway_behind):
    gateway = await gateway_behind(upstream, QUICK_HEARTBEAT, ALWAYS_STABLE, ENDLESS_BACKOFF)
    client = gateway.client()
    cable.remove_route()
    session = await reaches(client, "offline")
    assert session["failed_attempts"] == 0
    await has_just_attempted(client)
    latest = (await client.session())["history"][-1]["sequence"]
    cable.add_route()
    session = await reaches(client, "ready")
    # The first attempt after the change may fail, since an IPv6 address is not usable at once.
    assert "network changed" in causes(session, "resolving", after=latest)
    assert session["connections"] == 2


@needs_namespaces
async def test_a_new_address_or_route_ends_a_backoff(cable, upstream, gateway_behind):
    await upstream.kill()
    gateway = await gateway_behind(upstream, ENDLESS_BACKOFF, ready=False)
    client = gateway.client()
    session = await reaches(client, "backoff")
    assert session["next_attempt_in_seconds"] > 3000
    await upstream.start()
    cable.add_route("10.99.0.0/16" if cable.family == 4 else "fd99::/32")
    session = await reaches(client, "ready")
    assert causes(session, "resolving") == ["request", "network changed"]


@needs_namespaces
async def test_a_link_that_returns_ends_a_backoff(cable, upstream, gateway_behind):
    await upstream.kill()
    gateway = await gateway_behind(upstream, ENDLESS_BACKOFF, ready=False)
    client = gateway.client()
    await reaches(client, "backoff")
    await upstream.start()
    cable.set_link("down")
    cable.set_link("up")
    if cable.family == 6:
        # The kernel forgets the addresses when the link is removed.
        cable.add_address()
    cable.add_route()
    assert (await reaches(client, "ready"))["connections"] == 1


@needs_namespaces
async def test_a_connection_whose_address_was_removed_is_closed(cable, upstream, gateway_behind):
    gateway = await gateway_behind(upstream, NO_HEARTBEAT, ENDLESS_BACKOFF)
    client = gateway.client()
    cable.remove_address()

    # The state may have changed again. The kernel reports the address before it removes the routes, so an attempt can
    # begin and fail in between.
    async def loss():
        return causes(await client.session(), "offline")

    assert (await eventually(loss, what="the session was offline"))[0] == "address gone"
    detail = f"this machine no longer has the connection's local address {cable.near_address}"
    await gateway.logs(lambda record: record.get("detail") == detail, what="the lost address")
    cable.add_address()
    cable.add_route()
    await reaches(client, "ready")
    await client.accepted("over the new connection")
    assert (await upstream.has_received(1))[-1] == "over the new connection"


@needs_namespaces
async def test_a_ready_connection_is_checked_and_kept(cable, upstream, gateway_behind):
    gateway = await gateway_behind(upstream, NO_HEARTBEAT)
    client = gateway.client()
    assert (await client.session())["round_trip_seconds"] is None, "nothing was pinged yet"
    cable.add_route("10.99.0.0/16" if cable.family == 4 else "fd99::/32")

    async def probed():
        session = await client.session()
        return session if session["round_trip_seconds"] is not None else None

    session = await eventually(probed, what="a ping gets its pong")
    assert session["state"] == "ready"
    assert session["generation"] == 1
    assert upstream.connected == 1


@needs_namespaces
async def test_ignored_network_changes_have_no_effect(cable, upstream, gateway_behind):
    await upstream.kill()
    ignore = {"DRAWBRIDGE_UPSTREAM_NETWORK_CHANGES": "ignore"}
    gateway = await gateway_behind(upstream, ENDLESS_BACKOFF, ignore, ready=False)
    await reaches(gateway.client(), "backoff")
    assert not any("netlink" in name for name in gateway.sockets())
    assert "drawbridge_network_changes_total" not in (await gateway.manage("/metrics")).body.decode()


@needs_namespaces
@pytest.mark.parametrize("cable", [4], indirect=True, ids=["IPv4"])
async def test_an_upstream_that_disappears_without_fin_causes_a_reconnect(cable, upstream, gateway_behind, measured):
    # The kernel would not give up before this time, so the heartbeat must notice the loss.
    patient = {"DRAWBRIDGE_UPSTREAM_TIMEOUTS_USER": NEVER}
    brief = {"DRAWBRIDGE_UPSTREAM_TIMEOUTS_CONNECT": "500ms"}
    heartbeat = {"DRAWBRIDGE_UPSTREAM_HEARTBEAT_INTERVAL": "1s", "DRAWBRIDGE_UPSTREAM_HEARTBEAT_TIMEOUT": "1s"}
    gateway = await gateway_behind(upstream, heartbeat, patient, brief)
    client = gateway.client()
    # All bytes are confirmed before the cut. Unconfirmed bytes could also show the loss.
    response = await client.request("POST", "/v1/messages?until=confirmed&wait=50s", data=b"before")
    assert response.json["state"] == "confirmed"
    cable.cut(upstream.port)
    session = await eventually(lambda: lost(client), what="the silence is noticed")
    causes_of_loss = [entry["cause"] for entry in session["history"] if entry["from"] in ("ready", "suspect")]
    assert causes_of_loss[-1] == "silence"
    assert upstream.connected == 1, "the upstream was not notified, and still has the connection"
    await client.accepted("after")
    cable.mend(upstream.port)
    await reaches(client, "ready")
    assert (await upstream.has_received(2))[-1] == "after"
    entries = session["history"]
    quiet = next(entry for entry in entries if entry["to"] == "suspect")
    end = next(entry for entry in entries if entry["cause"] == "silence")
    measured(f"silent for {quiet['seconds_ago'] - end['seconds_ago']:.2f} s after half of the 1 s deadline")


async def lost(client):
    session = await client.session()
    return session if session["state"] not in ("ready", "suspect") else None


async def test_without_netlink_the_gateway_logs_one_line_and_continues(gateway_for, start):
    upstream = await start(Upstream())
    prefix = (sys.executable, str(Path(deny_netlink.__file__)))
    gateway = await gateway_for(upstream, prefix=prefix)
    await gateway.client().accepted("all the same")
    assert await upstream.has_received(1) == ["all the same"]
    records = [record for record in gateway.records if "network" in record["message"]]
    assert len(records) == 1
    assert records[0]["level"] == "warning"
    assert "socket netlink" in records[0]["reason"]


async def test_watching_the_network_needs_no_privilege(gateway_for, start):
    upstream = await start(Upstream())
    # The gateway has no capability at all, as in a hardened container. A user other than root has none anyway, and may
    # not run setpriv with these options.
    none = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs") if os.geteuid() == 0 else ()
    gateway = await gateway_for(upstream, prefix=none)
    assert any("netlink" in name for name in gateway.sockets())
    assert not [record for record in gateway.records if record["level"] in ("warning", "error")]
