"""Files that take their time: certificates and secrets that come late, or never."""

import asyncio
import os
import signal

from harness.fifo import Fifo
from harness.upstream import Upstream
from harness.waiting import eventually


async def failure_about(gateway, word):
    async def told():
        said = (await gateway.client().session())["last_failure"] or ""
        return said if word in said else None

    return await eventually(told, what=f"a failure about {word!r}")


# -- A reload ----------------------------------------------------------------------------------------------------------


async def test_an_attempt_that_a_reload_has_outdated_changes_no_tls_settings(
    start, gateway_for, authority, certificate, tmp_path
):
    """The attempt reads its CA file while a reload brings pins; what it read must not replace them."""
    upstream = await start(Upstream(certificate=certificate))
    slow = Fifo(tmp_path / "ca.fifo")
    config = "upstream:\n  url: {}\n  tls: {{ca_file: {}, pins: [{}]}}\n"
    starting = gateway_for(None, config=config.format(upstream.url, slow.path, ""), ready=False)
    gateway, _ = await asyncio.gather(starting, slow.feed(authority.path.read_bytes()))
    # The first attempt reads the file again, and waits.
    descriptor = await slow.is_read()
    # No key has this pin.
    pin = "A" * 43 + "="
    gateway.rewrite(config.format(upstream.url, authority.path, pin))
    gateway.signal(signal.SIGHUP)
    await failure_about(gateway, "none of the pinned ones")
    with os.fdopen(descriptor, "wb") as file:
        file.write(authority.path.read_bytes())
    attempts = (await gateway.client().session())["failed_attempts"]

    async def has_tried_again():
        session = await gateway.client().session()
        assert session["connections"] == 0, "connected without a look at the pins"
        return session["failed_attempts"] >= attempts + 3

    await eventually(has_tried_again, what="three more attempts")
    assert "none of the pinned ones" in (await gateway.client().session())["last_failure"]
