"""The HTTPS listener: versions, ciphers, certificates of both sides, resumption, and clients that break TLS."""

import asyncio
import contextlib
import fcntl
import json
import shlex
import shutil
import signal
import socket
import ssl
import struct
import termios
import warnings
from types import SimpleNamespace

import pytest

from harness.certificates import CertificateAuthority
from harness.gateway import PROJECT, run
from harness.https import BROKEN, blocking, connect, counts, exchange, is_held, listening, metric, trusting, works
from harness.waiting import eventually


async def test_messages_pass_both_ways(https_for, upstream, authority):
    gateway = await https_for()
    stream = await connect(gateway, trusting(authority))
    status, body = await exchange(stream, "/v1/messages", "Content-Type: text/plain", method="POST", body=b"hello")
    assert status == 202
    assert await upstream.has_received(1) == ["hello"]
    cursor = json.loads(body)["cursor"]
    held = asyncio.create_task(exchange(stream, f"/v1/messages?cursor={cursor}&wait=20"))
    await eventually(lambda: is_held(gateway, 1), what="the poll is held")
    await upstream.push("reply")
    assert json.loads((await held)[1])["messages"][0]["data"] == "reply"
    stream[1].close()


async def test_large_bodies_pass_both_ways(https_for, upstream, authority):
    gateway = await https_for()
    stream = await connect(gateway, trusting(authority))
    text = "".join(f"{number:07} " for number in range(100_000))
    status, body = await exchange(stream, "/v1/messages", "Content-Type: text/plain", method="POST", body=text.encode())
    assert status == 202
    assert await upstream.has_received(1) == [text]
    await upstream.push(*[text[:200_000]] * 5)
    texts = []
    while len(texts) < 5:
        cursor = json.loads(body)["cursor"]
        _, body = await exchange(stream, f"/v1/messages?cursor={cursor}&max_bytes=67108864&wait=5")
        texts += [message["data"] for message in json.loads(body)["messages"]]
    assert texts == [text[:200_000]] * 5
    stream[1].close()


async def test_curl_trusts_the_certificate(https_for, authority, curl):
    gateway = await https_for()
    port = gateway.address("https")[1]
    for version in ("--http1.1", "--http1.0", "--http2"):
        process = await asyncio.create_subprocess_exec(
            *(curl, "-sS", version, "--cacert", str(authority.path), f"https://localhost:{port}/v1/session"),
            *("--resolve", f"localhost:{port}:127.0.0.1"),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        assert process.returncode == 0, version
        assert json.loads(out)["state"] == "ready"


async def test_the_certificate_for_a_trial_works_as_documented(https_for, curl, tmp_path):
    page = (PROJECT / "docs/https.md").read_text()
    (command,) = [line for line in page.splitlines() if line.startswith("    openssl req ")]
    made = await asyncio.create_subprocess_exec(*shlex.split(command), cwd=tmp_path, stderr=asyncio.subprocess.DEVNULL)
    assert await made.wait() == 0
    gateway = await https_for(SimpleNamespace(chain=tmp_path / "fullchain.pem", key=tmp_path / "key.pem"))
    port = gateway.address("https")[1]
    for host in ("localhost", "127.0.0.1"):
        process = await asyncio.create_subprocess_exec(
            *(curl, "-sS", "--cacert", "fullchain.pem", f"https://{host}:{port}/v1/session"),
            *("--resolve", f"localhost:{port}:127.0.0.1"),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        assert process.returncode == 0, host
        assert json.loads(out)["state"] == "ready"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_tls_session_is_resumed(https_for, authority, version):
    gateway = await https_for()
    context = trusting(authority, version=version)

    def twice():
        request = b"GET /v1/session HTTP/1.1\r\nHost: localhost\r\n\r\n"
        session = None
        reused = []
        for _ in range(2):
            with blocking(gateway, context, session) as connection:
                connection.sendall(request)
                assert connection.recv(4096).startswith(b"HTTP/1.1 200")
                reused.append(connection.session_reused)
                session = connection.session
        return reused

    assert await asyncio.to_thread(twice) == [False, True]
    assert await metric(gateway, "tls_handshakes_resumed_total") == 1


async def test_old_versions_weak_ciphers_and_foreign_protocols_are_refused(https_for, authority):
    gateway = await https_for()
    assert await works(gateway, trusting(authority, version=ssl.TLSVersion.TLSv1_2))
    with warnings.catch_warnings(action="ignore"):
        old = trusting(authority, version=ssl.TLSVersion.TLSv1_1)
    old.set_ciphers("ALL:@SECLEVEL=0")
    weak = trusting(authority, version=ssl.TLSVersion.TLSv1_2)
    weak.set_ciphers("ECDHE-ECDSA-AES128-SHA:AES128-SHA:@SECLEVEL=0")
    foreign = trusting(authority)
    foreign.set_alpn_protocols(["h2"])
    for context, alert in (
        (old, "protocol.version"),
        (weak, "handshake.failure"),
        (foreign, "no.application.protocol"),
    ):
        with pytest.raises(ssl.SSLError, match=f"(?i)alert.{alert}"):
            await connect(gateway, context)
    both = trusting(authority)
    both.set_alpn_protocols(["h2", "http/1.1"])
    _, writer = await connect(gateway, both)
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    writer.close()
    await eventually(lambda: counts(gateway, "tls_handshakes_failed_total", 3), what="three failures are counted")


@pytest.mark.skipif(not shutil.which("sslscan"), reason="sslscan is not installed")
async def test_sslscan_finds_nothing_weak(https_for):
    gateway = await https_for()
    process = await asyncio.create_subprocess_exec(
        *("sslscan", "--no-colour", "--no-check-certificate", "{}:{}".format(*gateway.address("https"))),
        stdout=asyncio.subprocess.PIPE,
    )
    out = (await process.communicate())[0].decode()
    accepted = [line.split() for line in out.splitlines() if line.startswith(("Accepted", "Preferred"))]
    assert {line[1] for line in accepted} == {"TLSv1.2", "TLSv1.3"}, out
    assert all("GCM" in line[4] or "CHACHA20" in line[4].upper() for line in accepted), out
    for version in ("SSLv2", "SSLv3", "TLSv1.0", "TLSv1.1"):
        assert f"{version:<9} disabled" in out, out
    assert "Session renegotiation not supported" in out, out


async def test_client_certificates_are_verified(https_for, authority, tmp_path):
    gateway = await https_for(LISTENERS_TLS_CLIENT_CA=authority.path, LISTENERS_TLS_CLIENT_CERTIFICATES="required")
    other = CertificateAuthority(tmp_path, "another CA")
    good = authority.issue("DNS:client.example", for_clients=True)
    assert await works(gateway, trusting(authority, client=good))
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        for client, alert in [
            (None, "CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE"),
            (other.issue("DNS:client.example", for_clients=True), "UNKNOWN_CA"),
            (authority.issue("DNS:client.example", for_clients=True, days=1, starts_in=-3), "CERTIFICATE_EXPIRED"),
            (authority.issue("DNS:client.example"), "UNSUPPORTED_CERTIFICATE|BAD_CERTIFICATE"),
        ]:
            with pytest.raises(ssl.SSLError, match=alert):
                await works(gateway, trusting(authority, client=client, version=version))
    await eventually(lambda: counts(gateway, "tls_handshakes_failed_total", 8), what="eight failures are counted")


async def test_an_optional_client_certificate_is_verified_and_prevents_resumption(https_for, authority, tmp_path):
    gateway = await https_for(LISTENERS_TLS_CLIENT_CA=authority.path, LISTENERS_TLS_CLIENT_CERTIFICATES="optional")
    assert await works(gateway, trusting(authority))
    good = trusting(authority, client=authority.issue("DNS:client.example", for_clients=True))
    wrong = CertificateAuthority(tmp_path, "another CA").issue("DNS:client.example", for_clients=True)
    with pytest.raises(ssl.SSLError, match="UNKNOWN_CA"):
        await works(gateway, trusting(authority, client=wrong))

    def offers_no_session():
        with blocking(gateway, good) as connection:
            connection.sendall(b"GET /v1/session HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
            return not connection.session.has_ticket

    assert await asyncio.to_thread(offers_no_session)


async def test_another_protocol_on_a_port_for_https_is_named_once_a_minute_in_the_log(https_for):
    gateway = await https_for()

    async def sends(data):
        reader, writer = await asyncio.open_connection(*gateway.address("https"))
        writer.write(data)
        with contextlib.suppress(ConnectionError):
            response = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        return response

    def logged(part):
        lines = [record for record in gateway.records if record["message"] == "a connection does not speak TLS"]
        return [record for record in lines if part in record["reason"]]

    for _ in range(2):
        for method in (b"GET", b"PATCH", b"M-SEARCH"):
            assert (await sends(method + b" / HTTP/1.1\r\nHost: localhost\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
        for header in (b"PROXY TCP4 192.0.2.1 192.0.2.2 4711 443\r\n", b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c"):
            assert b"HTTP" not in await sends(header + bytes(12))
    for part in ("plain HTTP", "the PROXY protocol"):
        await eventually(lambda part=part: logged(part), what="the line")
        (record,) = logged(part)
        assert record["level"] == "info"
        assert record["client"].startswith("127.0.0.1:")
    assert await metric(gateway, "tls_handshakes_failed_total") == 10


async def test_plain_http_on_the_https_port_gets_an_explanation(https_for):
    gateway = await https_for()
    reader, writer = await asyncio.open_connection(*gateway.address("https"))
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    response = await asyncio.wait_for(reader.read(), 20)
    assert response.startswith(b"HTTP/1.1 400 ")
    assert response.endswith(b"This port accepts HTTPS only: use an https:// URL")
    writer.close()


async def test_slow_and_broken_handshakes_end_at_the_deadline_of_the_head(https_for, authority):
    gateway = await https_for(HTTP_HEAD_TIMEOUT="1s")
    clients = []
    for first in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01", b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc" + bytes(1000)):
        reader, writer = await asyncio.open_connection(*gateway.address("https"))
        writer.write(first)
        clients.append((reader, writer))
    for garbage in (b"\x80\x2e\x01\x00\x02", b"\xff" * 100_000, b"\x16\x03\x01\x00\x05hello"):
        reader, writer = await asyncio.open_connection(*gateway.address("https"))
        writer.write(garbage)
        clients.append((reader, writer))
    # A handshake without a request also counts as a slow request.
    clients.append(await connect(gateway, trusting(authority)))
    for reader, writer in clients:
        with contextlib.suppress(*BROKEN):
            await asyncio.wait_for(reader.read(), 20)
        writer.close()
    # The connection that sent no byte counts as a probe, not as a failed handshake.
    await eventually(lambda: counts(gateway, "tls_handshakes_failed_total", 6), what="six failures are counted")
    await eventually(lambda: counts(gateway, "connections", 1), what="only the test's own connection is open")


async def test_a_poll_ends_when_its_client_closes(https_for, authority):
    gateway = await https_for()
    streams = [await connect(gateway, trusting(authority)) for _ in range(2)]
    polls = [asyncio.create_task(exchange(stream, "/v1/messages?wait=50")) for stream in streams]
    await eventually(lambda: is_held(gateway, 2), what="both polls are held")
    # The first client ends with close_notify, the second client without it.
    streams[0][1].close()
    streams[1][1].transport.abort()
    await eventually(lambda: is_held(gateway, 0), what="no poll is held")
    for poll in polls:
        poll.cancel()


async def test_a_connection_ends_with_close_notify(https_for, authority):
    gateway = await https_for()

    def read_to_the_end():
        with blocking(gateway, trusting(authority)) as connection:
            connection.sendall(b"GET /v1/session HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            received = b""
            # An end without close_notify raises SSLEOFError.
            while piece := connection.recv(4096):
                received += piece
            return received

    assert (await asyncio.to_thread(read_to_the_end)).startswith(b"HTTP/1.1 200")


async def test_a_client_that_does_not_read_is_reset(https_for, upstream, authority):
    gateway = await https_for(HTTP_WRITE_TIMEOUT="1s", HTTP_WRITE_MINIMUM_RATE="0")
    await upstream.push(*["x" * 500_000] * 20)
    await eventually(lambda: holds(gateway, 20), what="the pushes are there")

    def never_read():
        connection = blocking(gateway, trusting(authority))
        request = b"GET /v1/messages?cursor=earliest&max_bytes=67108864&wait=0 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        connection.sendall(request * 4)
        return connection

    connection = await asyncio.to_thread(never_read)
    await eventually(lambda: counts(gateway, "readers_slow_total", 1), what="the slow reader is reset")
    assert await metric(gateway, "unsent_bytes") == 0
    connection.close()


async def test_stalled_handshakes_are_limited_together(https_for, authority):
    most, more = 2048, 20
    gateway = await https_for(HTTP_HEAD_TIMEOUT="60s")
    clients = []
    for _ in range(most + more):
        clients.append(socket.create_connection(gateway.address("https"), timeout=20))
        clients[-1].sendall(b"\x16")
    await eventually(lambda: counts(gateway, "connections_refused_total", more), what="the oldest are reset")
    await gateway.logs(lambda line: "TLS handshakes are in progress" in line["message"], what="the limit")
    # The gateway now refuses neither a client at the same address nor a client at another address.
    assert await works(gateway, trusting(authority))
    assert await works(gateway, trusting(authority), source="127.0.0.2")
    for client in clients:
        client.close()
    await eventually(lambda: counts(gateway, "connections", 1), what="they have ended")


def stopped(gateway, act):
    """Makes a client act while the gateway is stopped, so that the gateway finds all effects at once."""
    gateway.signal(signal.SIGSTOP)
    try:
        return act()
    finally:
        gateway.signal(signal.SIGCONT)


POST = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\nx"


async def test_requests_before_a_reset_are_limited_by_their_address(https_for, authority):
    gateway = await https_for(LIMITS_ADDRESS_MESSAGES="2/h")
    connection = await asyncio.to_thread(blocking, gateway, trusting(authority))
    connection.sendall(b"GET /v1/session HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (await asyncio.to_thread(connection.recv, 4096)).startswith(b"HTTP/1.1 200")

    def send_and_reset():
        connection.sendall(POST * 5)
        # Waits until the kernel of the gateway has the bytes (SIOCOUTQ).
        while struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]:
            pass
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    stopped(gateway, send_and_reset)

    async def are_refused():
        return (await gateway.metrics())["drawbridge_requests_limited_total"] == 3

    await eventually(are_refused, what="three of five are refused")


async def test_a_request_is_served_after_a_half_close_without_close_notify(https_for, authority):
    gateway = await https_for()
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        connection = await asyncio.to_thread(blocking, gateway, trusting(authority, version=version))

        def send_and_close(connection=connection):
            connection.sendall(POST)
            # `socket.shutdown` of the base class is used, because SSLSocket.shutdown forgets the TLS session.
            socket.socket.shutdown(connection, socket.SHUT_WR)

        stopped(gateway, send_and_close)
        assert (await asyncio.to_thread(connection.recv, 4096)).startswith(b"HTTP/1.1 202")
        connection.close()


async def test_an_endless_chain_of_certificates_is_refused(https_for, authority, tmp_path):
    gateway = await https_for(LISTENERS_TLS_CLIENT_CA=authority.path, LISTENERS_TLS_CLIENT_CERTIFICATES="required")
    good = authority.issue("DNS:client.example", for_clients=True)
    assert await works(gateway, trusting(authority, client=good))
    one = good.chain.read_bytes()
    size = len(
        ssl.PEM_cert_to_DER_cert(one.decode().partition("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----\n")
    )
    long = type(good)(tmp_path / "long.pem", good.key)
    long.chain.write_bytes(one * (50_000 // size))
    with pytest.raises(BROKEN):
        await works(gateway, trusting(authority, client=long))


async def holds(gateway, count):
    stream = await gateway.client().get(cursor="earliest", limit=100, wait=0, max_bytes=67108864)
    return len(stream.json["messages"]) == count


async def test_check_config_reports_files_that_cannot_be_used(certificate, authority):
    async def check(chain, key):
        _, env = listening(certificate)
        env |= {"DRAWBRIDGE_LISTENERS_TLS_CERTIFICATE": str(chain), "DRAWBRIDGE_LISTENERS_TLS_KEY": str(key)}
        env["DRAWBRIDGE_LISTENERS_HTTPS"] = "127.0.0.1:0"
        return await run("check-config", "--upstream", "ws://127.0.0.1:1/", env=env)

    assert (await check(certificate.chain, certificate.key))[0] == 0
    other = authority.issue("DNS:localhost")
    for chain, key, text in [
        (certificate.chain, other.key, "does not match the certificate"),
        (certificate.chain, "/nowhere", "key file /nowhere cannot be read"),
        (certificate.key, certificate.key, "has no certificate"),
        ("", "", "listeners.tls.certificate"),
    ]:
        status, out, err = await check(chain, key)
        assert status == 78
        assert text in out + err


async def test_a_client_certificate_has_the_rights_of_its_rule(https_for, authority):
    gateway = await https_for(
        LISTENERS_TLS_CLIENT_CA=authority.path,
        LISTENERS_TLS_CLIENT_CERTIFICATES="optional",
        AUTHENTICATION_CERTIFICATES='[{name: "dns:billing.example", scopes: [send]}]',
    )
    billing = authority.issue("DNS:billing.example", for_clients=True)
    other = authority.issue("DNS:other.example", for_clients=True, common_name="billing.example")
    for client, post, poll in [(billing, 202, 403), (other, 401, 401), (None, 401, 401)]:
        stream = await connect(gateway, trusting(authority, client=client))
        assert (await exchange(stream, "/v1/messages", method="POST", body=b"x"))[0] == post
        assert (await exchange(stream, "/v1/messages?wait=0"))[0] == poll
        stream[1].close()
