"""Several addresses of one name (RFC 8305): a dead address costs a quarter of a second, not the connect timeout."""

import contextlib

import pytest
import pytest_asyncio

from harness.namespaces import Cable, needs_namespaces
from harness.upstream import Upstream
from harness.waiting import eventually

pytestmark = needs_namespaces

NAME = "upstream.example"
SIX, FOUR = "fd88::1", "10.88.0.1"


class TwoFamilies(Cable):
    """A cable with addresses of both families, and a hosts file that gives the upstream one address of each."""

    def __init__(self, folder):
        super().__init__()
        self._hosts = folder / "hosts"

    def start(self):
        super().start()
        self._hosts.write_text(f"{SIX} {NAME}\n{FOUR} {NAME}\n")
        six = ("ip", "-6", "address", "add")
        self.far.run(*six, "fd77::1/64", "dev", "cable", "nodad")
        self.far.run(*six, f"{SIX}/128", "dev", "lo", "nodad")
        self.near.run(*six, "fd77::2/64", "dev", "cable", "nodad")
        self.near.run("ip", "-6", "route", "add", "fd88::/32", "via", "fd77::1")

    def prefix(self):
        # The gateway has its own mount namespace, which ends with it and shows this hosts file instead of the machine's
        # file.
        in_place = 'mount --bind "$0" /etc/hosts && exec "$@"'
        return (*super().prefix(), "unshare", "--mount", "sh", "-c", in_place, str(self._hosts))

    def listener_at(self, host):
        """Makes the listening socket of an upstream at this address; see `Upstream`."""

        def listener(port):
            self.family, self.host = (6, SIX) if host == SIX else (4, FOUR)
            return self.listener(port)

        return listener

    def blackhole(self, host, *answer):
        """Drops packets to this address, or rejects them as `answer` says."""
        tool = "ip6tables" if host == SIX else "iptables"
        rule = ("-A", "INPUT", "-p", "tcp", "-d", host, "-j", *(answer or ("DROP",)))
        self.far.run(tool, "-w", *rule)


@pytest.fixture
def cable(tmp_path):
    with contextlib.ExitStack() as stack:
        cable = TwoFamilies(tmp_path)
        stack.callback(cable.stop)
        cable.start()
        yield cable


@pytest_asyncio.fixture
async def connect(start, gateway_for, cable, tmp_path):
    """`await connect(SIX, FOUR)`: upstreams at these addresses, on one port, and a gateway that resolves their name."""

    async def connect(*hosts, ready=True, env=None):
        upstreams = []
        for host in hosts:
            upstream = Upstream(host=host, listener=cable.listener_at(host))
            upstream.port = upstreams[0].port if upstreams else 0
            upstreams.append(await start(upstream))
        sockets = [f"unix:{tmp_path}/{name}.sock" for name in ("api", "management")]
        url = f"ws://{NAME}:{upstreams[0].port}/"
        arguments = ("--upstream", url, "--listen", sockets[0], "--management", sockets[1])
        gateway = await gateway_for(None, *arguments, prefix=cable.prefix(), ready=ready, env=env)
        return gateway, upstreams

    return connect


async def seconds_connecting(gateway):
    """The time from `connecting` to `upgrading`, by the session's own clock."""
    history = (await gateway.client().session())["history"]
    assert [entry["to"] for entry in history] == ["resolving", "connecting", "upgrading", "ready"]
    return history[1]["seconds_ago"] - history[2]["seconds_ago"]


async def test_if_both_addresses_respond_the_first_is_used(connect):
    _, (six, four) = await connect(SIX, FOUR)
    assert (six.connected, four.connected) == (1, 0)


async def test_a_dead_first_address_delays_by_a_quarter_of_a_second(connect, cable, measured):
    cable.blackhole(SIX)
    gateway, (upstream,) = await connect(FOUR)
    assert upstream.connected == 1
    took = await seconds_connecting(gateway)
    measured(f"{took:.3f} s")
    # The gateway waits for the first address at least this long, but far less than the connect timeout of ten seconds.
    assert 0.24 < took < 5


async def test_a_refused_first_address_causes_no_delay(connect, cable, measured):
    cable.blackhole(SIX, "REJECT", "--reject-with", "tcp-reset")
    gateway, (upstream,) = await connect(FOUR)
    assert upstream.connected == 1
    took = await seconds_connecting(gateway)
    measured(f"{took:.3f} s")
    assert took < 5


async def test_a_dead_last_address_causes_no_delay(connect, cable):
    cable.blackhole(FOUR)
    _, (upstream,) = await connect(SIX)
    assert upstream.connected == 1


async def test_if_all_addresses_are_dead_the_timeout_ends_the_attempt(connect, cable):
    cable.blackhole(SIX)
    cable.blackhole(FOUR)
    gateway, _ = await connect(FOUR, ready=False, env={"DRAWBRIDGE_UPSTREAM_TIMEOUTS_CONNECT": "1s"})

    async def reported():
        return (await gateway.client().session())["last_failure"]

    assert (
        await eventually(reported, what="the session reports a failure")
        == "the upstream did not respond to the TCP handshake within 1 s ('upstream.timeouts.connect')"
    )
