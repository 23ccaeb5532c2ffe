"""Fixtures of the integration tests. Every test gets its own gateway and its own peers, all on free ports."""

import asyncio
import contextlib
import ctypes
import faulthandler
import json
import os
import shutil
import subprocess

import pytest
import pytest_asyncio

from harness.certificates import CertificateAuthority
from harness.conventions import ConventionUpstream
from harness.created_sessions import Sessions
from harness.credentials import Issuer
from harness.gateway import BINARY, Gateway
from harness.https import listening
from harness.ports import release_ports
from harness.processes import send_signals_without_reaping
from harness.raw import RawUpstream
from harness.receiver import config as webhook_config
from harness.recorder import RecordingUpstream
from harness.replicas import CALM_LEASE, Databases, Replica, Replicas
from harness.sanitizer import skip_load
from harness.tokens import TokenFile
from harness.upstream import Upstream


def pytest_sessionstart():
    if not BINARY.exists():
        pytest.exit(f"{BINARY} is not there: 'make build' makes it, or set DRAWBRIDGE_BINARY", returncode=2)


def pytest_collection_modifyitems(items):
    skip_load(items)
    # Load tests run one after another (`--dist loadgroup`), since two loads at once would measure each other. They
    # start first: they wait most of the time, so the other tests fit beside them.
    load = [item for item in items if item.get_closest_marker("load")]
    for item in load:
        item.add_marker(pytest.mark.xdist_group("load"))
    items.sort(key=lambda item: item.get_closest_marker("load") is None)


# A teardown stops servers, which takes seconds on a busy machine.
_TEARDOWN_LIMIT = 180

_standard_error = pytest.StashKey[int]()


def pytest_configure(config):
    # Here, pytest does not capture standard error.
    config.stash[_standard_error] = os.dup(2)
    send_signals_without_reaping()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    # pytest-timeout does not limit the teardown of a test that has failed. A teardown that hangs ends this process with
    # a stack trace. Then pytest-xdist reports the test, and starts another process.
    faulthandler.dump_traceback_later(_TEARDOWN_LIMIT, exit=True, file=item.config.stash[_standard_error])
    try:
        # Code after this `yield` runs after the fixtures have stopped their servers.
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
    release_ports()


@pytest.fixture
def measured(record_property):
    """Records a number worth reading. The run shows it at the end, and no test fails because of it."""

    def note(text):
        record_property("measured", text)

    return note


def pytest_terminal_summary(terminalreporter):
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    lines = [
        f"{report.nodeid.partition('::')[2]}: {value}"
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, value in report.user_properties
        if name == "measured"
    ]
    if lines:
        terminalreporter.section("measured")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    """A certificate authority for the whole run."""
    return CertificateAuthority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="session")
def certificate(authority):
    """A server certificate for localhost from `authority`."""
    return authority.issue("DNS:localhost", "IP:127.0.0.1")


@pytest.fixture
def tokens(tmp_path):
    """A file of static tokens, empty at first."""
    return TokenFile(tmp_path)


@pytest.fixture(scope="session")
def issuer(tmp_path_factory):
    """An issuer of JSON Web Tokens."""
    return Issuer(tmp_path_factory.mktemp("issuer"))


@pytest_asyncio.fixture
async def start():
    """Starts any peer that has `start` and `stop`. Stops all peers after the test, the latest first."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(peer):
            await peer.start()
            stack.push_async_callback(peer.stop)
            return peer

        yield start


@pytest_asyncio.fixture
async def upstream(start):
    """A well-behaved upstream with permessage-deflate, over `ws`."""
    return await start(Upstream())


@pytest_asyncio.fixture
async def gateway_for(start, tmp_path):
    """`await gateway_for(upstream, "--flag", …, config=…)`: a running gateway in front of that upstream."""
    count = 0

    async def gateway_for(upstream, *arguments, ready=True, **options):
        nonlocal count
        count += 1
        folder = tmp_path / f"gateway-{count}"
        folder.mkdir()
        if upstream is not None:
            arguments = ("--upstream", upstream.url, *arguments)
        gateway = await start(Gateway(*arguments, folder=folder, **options))
        if ready:
            await gateway.ready()
        return gateway

    return gateway_for


@pytest.fixture
def hooked(gateway_for, upstream):
    """`await hooked(webhook, …)`: a gateway with these webhooks."""

    async def hooked(*webhooks, more=None, **options):
        return await gateway_for(upstream, config=webhook_config(*webhooks, **(more or {})), **options)

    return hooked


@pytest.fixture
def https_for(gateway_for, upstream, certificate):
    """`await https_for(NAME=value)`: a gateway with an HTTPS listener and these settings."""

    async def https_for(certificate=certificate, **settings):
        arguments, env = listening(certificate)
        env |= {f"DRAWBRIDGE_{name}": str(value) for name, value in settings.items()}
        return await gateway_for(upstream, *arguments, env=env)

    return https_for


@pytest_asyncio.fixture
async def sessions_for(gateway_for):
    """`await sessions_for(config)`: a gateway with only this configuration, and a client that creates sessions."""

    async def sessions_for(config, *, arguments=(), **options):
        return Sessions(await gateway_for(None, *arguments, config=config, ready=False, **options))

    return sessions_for


@pytest_asyncio.fixture
async def gateway(gateway_for, upstream):
    """A gateway whose session with `upstream` is ready."""
    return await gateway_for(upstream)


@pytest_asyncio.fixture
async def client(gateway):
    return gateway.client()


@pytest_asyncio.fixture
async def raw_upstream(start):
    """`await raw_upstream(behave)`: an upstream made of bytes; see harness/raw.py."""

    async def raw_upstream(behave):
        return await start(RawUpstream(behave))

    return raw_upstream


@pytest.fixture(scope="session")
def curl():
    path = shutil.which("curl")
    assert path, "curl is missing: scripts/setup test installs it"
    return path


@pytest.fixture
def store_path(tmp_path):
    """A path for a gateway's store, alone in its folder."""
    folder = tmp_path / "data"
    folder.mkdir()
    return folder / "drawbridge.db"


@pytest.fixture
def mounted(tmp_path):
    """`mounted(options)`: a tmpfs, which is unmounted at the end of the test."""
    if os.getuid() != 0:
        pytest.skip("a file system of its own needs root")
    folders = []
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(options):
        folder = tmp_path / f"mounted-{len(folders)}"
        folder.mkdir()
        if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, options.encode()) != 0:
            pytest.skip(f"mount: {os.strerror(ctypes.get_errno())}")
        folders.append(folder)
        return folder

    yield mount
    for folder in folders:
        subprocess.run(["umount", "-l", folder], check=False)


@pytest.fixture
def scripted(start, gateway_for):
    """`await scripted(script)`: the scripted server, the gateway in front of it, and a client."""

    async def scripted(script, *, version=4, ready=True, upstream=None, options=None, **socketio):
        server = await start(ConventionUpstream(script, **(options or {})))
        settings = {"kind": "socketio", "url": server.url, "socketio": {"version": version, **socketio}}
        # The timeout is longer than a test, so a shutdown that waits for the queue without a reason fails.
        config = {"upstream": {**settings, **(upstream or {})}, "shutdown": {"flush": "10m"}}
        gateway = await gateway_for(None, config=json.dumps(config), ready=ready)
        # Tests of reloads change this configuration.
        server.configuration = config
        return server, gateway, gateway.client()

    return scripted


@pytest_asyncio.fixture
async def recorder(start):
    """An upstream that records its connections and pushes numbers."""
    return await start(RecordingUpstream())


@pytest_asyncio.fixture
async def replicas_for(start, tmp_path, recorder):
    """`await replicas_for(count)`: gateways that are ready, on a Redis of their own.

    The default tenure is so long that no gateway loses its sessions because the machine is busy.
    """

    async def replicas_for(count=3, *, databases=None, lease=CALM_LEASE, **options):
        databases = await start(databases or Databases(tmp_path))
        members = [Replica(number, tmp_path, recorder, databases, lease=lease, **options) for number in range(count)]
        await asyncio.gather(*(start(member) for member in members))
        return await Replicas(members, databases, recorder).ready()

    return replicas_for
