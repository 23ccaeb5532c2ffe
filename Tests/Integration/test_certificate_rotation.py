"""The certificate of the HTTPS listener is replaced while clients are connected and send requests."""

import asyncio

import pytest

from harness.certificates import Certificate
from harness.gateway import Gateway
from harness.https import connect, exchange, is_held, listening, served, trusting, works
from harness.waiting import eventually

CONNECTIONS = 1_000
HELD = 200


class Files:
    """The certificate and key that the gateway reads."""

    def __init__(self, folder):
        self.used = Certificate(folder / "used.pem", folder / "used.key")

    def use(self, certificate):
        self.use_key(certificate)
        self.use_chain(certificate)

    def use_key(self, certificate):
        self.used.key.write_bytes(certificate.key.read_bytes())

    def use_chain(self, certificate):
        self.used.chain.write_bytes(certificate.chain.read_bytes())


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


@pytest.mark.load
async def test_a_certificate_is_rotated_under_a_thousand_connections_without_a_failed_request(
    https_for, upstream, authority, files
):
    first, second = authority.issue("DNS:localhost"), authority.issue("DNS:localhost")
    files.use(first)
    # On a slow machine, connecting all of them takes minutes.
    gateway = await https_for(certificate=files.used, HTTP_IDLE_TIMEOUT="10m")
    context = trusting(authority)
    streams = []
    while len(streams) < CONNECTIONS:
        streams += await asyncio.gather(*(connect(gateway, context) for _ in range(50)))
    before = served(streams[0])
    held, busy = streams[:HELD], streams[HELD:]
    polls = [asyncio.create_task(exchange(stream, "/v1/messages?wait=50")) for stream in held]
    await eventually(lambda: is_held(gateway, HELD), what="the polls are held")

    # A failed request raises an error in its task, which fails the test.
    rounds, newest, is_over = [0] * 4, [before], asyncio.Event()

    async def use_again(number):
        """Repeats requests on each connection of one quarter."""
        while not is_over.is_set():
            for stream in busy[number :: len(rounds)]:
                assert (await exchange(stream))[0] == 200
            rounds[number] += 1

    async def connect_again():
        while not is_over.is_set():
            stream = await connect(gateway, context)
            newest.append(served(stream))
            assert (await exchange(stream))[0] == 200
            stream[1].close()

    load = [asyncio.create_task(use_again(number)) for number in range(len(rounds))]
    load += [asyncio.create_task(connect_again()) for _ in range(2)]

    def goes_on(fact):
        """Returns whether a fact is true. Raises the error of any failed task of the load."""
        for task in load:
            if task.done():
                task.result()
        return fact()

    await eventually(lambda: goes_on(lambda: min(rounds) >= 1), what="each connection has been used")
    files.use(second)
    gateway.signal(1)
    await eventually(lambda: goes_on(lambda: newest[-1] != before), what="new connections get the new certificate")
    done = list(rounds)
    await eventually(
        lambda: goes_on(lambda: all(now >= then + 2 for now, then in zip(rounds, done, strict=True))),
        what="each old connection has been used after the change",
    )
    is_over.set()
    await asyncio.gather(*load)
    # Once a connection got the new certificate, every later connection got it, too.
    change = newest.index(newest[-1])
    assert set(newest[:change]) == {before}
    assert len(set(newest[change:])) == 1
    assert not any(poll.done() for poll in polls)
    await upstream.push("after the change")
    for status, body in await asyncio.gather(*polls):
        assert status == 200
        assert b"after the change" in body
    for _, writer in streams:
        writer.transport.abort()


async def test_a_certificate_without_its_key_is_not_applied(https_for, authority, files):
    first, second = authority.issue("DNS:localhost"), authority.issue("DNS:localhost")
    files.use(first)
    gateway = await https_for(certificate=files.used)
    # The gateway notices the change without a signal.
    files.use_chain(second)
    await gateway.logs(lambda line: "the old one remains in use" in line["message"], what="the mismatch")
    context = trusting(authority)
    assert await works(gateway, context)
    # Now the key arrives, too.
    files.use_key(second)
    gateway.signal(1)
    await gateway.logs(lambda line: line["message"] == "certificate replaced", what="the new certificate")
    assert await works(gateway, context)


async def test_a_reload_between_the_two_files_keeps_the_old_pair_and_applies_the_rest(
    start, tmp_path, upstream, authority, files
):
    first, second = authority.issue("DNS:localhost"), authority.issue("DNS:localhost")
    files.use(first)
    text = f"upstream: {{url: '{upstream.url}'}}\n"
    arguments, env = listening(files.used)
    gateway = await start(Gateway(*arguments, config=text, env=env, folder=tmp_path))
    await gateway.ready()
    context = trusting(authority)

    async def certificate():
        stream = await connect(gateway, context)
        assert (await exchange(stream))[0] == 200
        stream[1].close()
        return served(stream)

    before = await certificate()
    files.use_chain(second)
    gateway.rewrite(text + "log: {access: all}\n")
    gateway.signal(1)
    await gateway.logs(lambda line: "the old one remains in use" in line["message"], what="the mismatch")
    reloaded = await gateway.logs(lambda line: line["message"] == "configuration reloaded", what="the reload")
    assert reloaded["changed"]
    assert (await gateway.metrics())["drawbridge_config_reload_success"] == 1
    assert await certificate() == before
    await gateway.logs(lambda line: line["message"] == "request", what="a request, which the new setting demands")
    # No further signal is sent.
    files.use_key(second)

    async def is_used():
        return await certificate() != before

    await eventually(is_used, what="the new pair is used")
