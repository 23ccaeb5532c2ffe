"""Files that are slow to read: certificates and secrets whose content comes late, or never."""

import asyncio
import fcntl
import os
import re
import signal
from pathlib import Path

import pytest

from harness.fifo import Fifo
from harness.upstream import Upstream
from harness.waiting import eventually


async def failure_about(gateway, word):
    async def reported():
        said = (await gateway.client().session())["last_failure"] or ""
        return said if word in said else None

    return await eventually(reported, what=f"a failure about {word!r}")


# -- A reload ----------------------------------------------------------------------------------------------------------


async def test_an_outdated_attempt_does_not_change_the_tls_settings(
    start, gateway_for, authority, certificate, tmp_path
):
    """The attempt reads its CA file while a reload sets pins. Its outdated result must not replace the pins."""
    upstream = await start(Upstream(certificate=certificate))
    slow = Fifo(tmp_path / "ca.fifo")
    config = "upstream:\n  url: {}\n  tls: {{ca_file: {}, pins: [{}]}}\n"
    config += "  timeouts: {{files: 1m}}\n"
    starting = gateway_for(None, config=config.format(upstream.url, slow.path, ""), ready=False)
    gateway, _ = await asyncio.gather(starting, slow.feed(authority.path.read_bytes()))
    # The first attempt reads the file again, and waits.
    descriptor = await slow.is_read()
    # No key has this pin.
    pin = "A" * 43 + "="
    gateway.rewrite(config.format(upstream.url, authority.path, pin))
    gateway.signal(signal.SIGHUP)
    await failure_about(gateway, "key is not pinned")
    with os.fdopen(descriptor, "wb") as file:
        file.write(authority.path.read_bytes())
    attempts = (await gateway.client().session())["failed_attempts"]

    async def has_tried_again():
        session = await gateway.client().session()
        assert session["connections"] == 0, "connected without a look at the pins"
        return session["failed_attempts"] >= attempts + 3

    await eventually(has_tried_again, what="three more attempts")
    assert "key is not pinned" in (await gateway.client().session())["last_failure"]


# -- Files that hang ---------------------------------------------------------------------------------------------------


class HungFile:
    """A file whose `open` hangs, as on a lost mount, because this process holds a lease on it (fcntl(2))."""

    def __init__(self, path, content):
        path.write_bytes(content)
        self.path = path
        self._file = path.open("r+b")

    def hang(self):
        # The kernel sends this signal when a process opens the file. By default, it would end this process.
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        try:
            fcntl.fcntl(self._file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:
            pytest.skip(f"the file system of {self.path} has no leases: {error}")

    def recover(self):
        fcntl.fcntl(self._file, fcntl.F_SETLEASE, fcntl.F_UNLCK)


@pytest.fixture
def hung_file(tmp_path):
    return lambda content: HungFile(tmp_path / "hung", content)


def threads(gateway):
    return len(list(Path(f"/proc/{gateway.process.pid}/task").iterdir()))


HUNG = {
    "a credential": (
        "  credential: {{file: {file}, header: 'Authorization: Bearer ${{credential}}'}}\n",
        "secret file '{file}' cannot be read: not finished after",
    ),
    "a secret of on_open": (
        "  on_open: [{{send: '${{json:${{file:{file}}}}}'}}]\n",
        "secret file '{file}' cannot be read: not finished after",
    ),
    "a CA file": (
        "  tls: {{ca_file: {file}, system_ca: false}}\n",
        "CA file {file} cannot be read: not finished after",
    ),
}


@pytest.mark.parametrize("name", HUNG)
async def test_a_file_that_hangs_fails_each_attempt_and_occupies_one_thread(
    name, start, gateway_for, authority, certificate, hung_file
):
    section, expected = HUNG[name]
    upstream = await start(Upstream(certificate=certificate))
    file = hung_file(authority.path.read_bytes() if name == "a CA file" else b"token\n")
    config = f"upstream:\n  url: {upstream.url}\n  timeouts: {{files: 500ms}}\n" + section.format(file=file.path)
    if "tls" not in section:
        config += f"  tls: {{ca_file: {authority.path}, system_ca: false}}\n"
    gateway = await gateway_for(None, config=config)
    before = threads(gateway)
    file.hang()
    upstream.reset_connections()
    assert "('upstream.timeouts.files')" in await failure_about(gateway, expected.format(file=file.path))
    attempts = (await gateway.client().session())["failed_attempts"]

    async def has_tried_again():
        return (await gateway.client().session())["failed_attempts"] >= attempts + 5

    await eventually(has_tried_again, what="five more attempts")
    assert threads(gateway) <= before + 1
    file.recover()
    await gateway.ready()


async def test_a_reload_with_a_hanging_file_fails_without_effect(start, gateway_for, authority, certificate, hung_file):
    upstream = await start(Upstream(certificate=certificate))
    file = hung_file(authority.path.read_bytes())
    config = "upstream:\n  url: {}\n  timeouts: {{files: 500ms}}\n  tls: {{ca_file: {}, system_ca: false}}\n"
    gateway = await gateway_for(None, config=config.format(upstream.url, authority.path))
    file.hang()
    gateway.rewrite(config.format(upstream.url, file.path))
    gateway.signal(signal.SIGHUP)
    reason = rf"CA file {re.escape(str(file.path))} cannot be read: not finished after [0-9.]+ s \('upstream.timeouts"
    await eventually(lambda: re.search(reason, gateway.output), what="the log says what hangs")
    assert (await gateway.client().session())["state"] == "ready"
    # SIGTERM takes effect, although the file still hangs.
    gateway.signal()
    assert await gateway.exit_status() == 0


async def test_a_credential_may_come_from_a_fifo(upstream, gateway_for, tmp_path):
    fifo = Fifo(tmp_path / "token")
    config = (
        f"upstream:\n  url: {upstream.url}\n"
        f"  credential: {{file: {fifo.path}, header: 'Authorization: Bearer ${{credential}}'}}\n"
    )
    gateway = await gateway_for(None, config=config, ready=False)
    await fifo.feed(b"first\n")
    await gateway.ready()
    assert upstream.requests[0].headers["Authorization"] == "Bearer first"


async def test_a_fifo_without_a_writer_fails_at_the_timeout(upstream, gateway_for, tmp_path):
    fifo = Fifo(tmp_path / "token")
    config = (
        f"upstream:\n  url: {upstream.url}\n  timeouts: {{files: 100ms}}\n"
        f"  credential: {{file: {fifo.path}, header: 'Authorization: Bearer ${{credential}}'}}\n"
    )
    gateway = await gateway_for(None, config=config, ready=False)
    reported = await failure_about(gateway, "('upstream.timeouts.files')")
    assert f"secret file '{fifo.path}' cannot be read: " in reported


# -- Commands ----------------------------------------------------------------------------------------------------------


async def test_a_failed_command_is_detected_even_if_sigchld_was_ignored(upstream, gateway_for):
    """Some parents leave SIGCHLD ignored. The kernel then keeps no exit status, and a failure looks like a success."""
    config = (
        f"upstream:\n  url: {upstream.url}\n  credential:\n"
        "    command: [sh, -c, 'echo half a token; exit 3']\n    header: 'Authorization: ${credential}'\n"
    )
    ignoring = ("sh", "-c", 'trap \'\' CHLD; exec "$0" "$@"')
    gateway = await gateway_for(None, config=config, prefix=ignoring, ready=False)
    reported = await failure_about(gateway, "the credential's command")
    assert reported == "the credential's command 'sh' failed with exit status 3"
    assert upstream.requests == []
