"""wss: who is trusted, and what is told when somebody is not."""

import pytest

from harness.certificates import CertificateAuthority
from harness.upstream import Upstream
from harness.waiting import eventually


async def test_a_certificate_of_a_given_authority_is_trusted(gateway_for, start, authority, certificate):
    upstream = await start(Upstream(certificate=certificate))
    gateway = await gateway_for(upstream, "--ca-file", authority.path)
    await gateway.client().accepted("hello")
    assert await upstream.has_received(1) == ["hello"]


async def test_an_unknown_authority_is_refused(gateway_for, start, certificate):
    upstream = await start(Upstream(certificate=certificate))
    gateway = await gateway_for(upstream, ready=False)
    assert await failure(gateway)
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("names", "days"), [(["DNS:other.example"], 1), (["IP:127.0.0.2"], 1)], ids=["another host", "another address"]
)
async def test_a_certificate_for_somebody_else_is_refused(gateway_for, start, authority, names, days):
    upstream = await start(Upstream(certificate=authority.issue(*names, days=days)))
    gateway = await gateway_for(upstream, "--ca-file", authority.path, ready=False)
    assert await failure(gateway)
    assert upstream.requests == []


async def test_another_authority_of_the_same_name_is_refused(gateway_for, start, authority, tmp_path):
    impostor = CertificateAuthority(tmp_path)
    upstream = await start(Upstream(certificate=impostor.issue("DNS:localhost")))
    gateway = await gateway_for(upstream, "--ca-file", authority.path, ready=False)
    assert await failure(gateway)
    assert upstream.requests == []


async def test_an_upstream_without_tls_behind_a_wss_url_is_told(gateway_for, start):
    upstream = await start(Upstream())
    gateway = await gateway_for(None, "--upstream", f"wss://localhost:{upstream.port}/", ready=False)
    assert await failure(gateway)


async def failure(gateway):
    """What the session tells of its failed attempt, and that it is about TLS."""

    async def told():
        return (await gateway.client().session()).get("last_failure")

    failed = await eventually(told, what="the session tells of a failure")
    assert "tls" in str(failed).lower() or "certificate" in str(failed).lower()
    return failed
