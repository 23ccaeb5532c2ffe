"""wss: the trusted servers and clients, and the error for any other."""

import asyncio
import contextlib
import shutil
import socket
import ssl
import threading
from types import SimpleNamespace

import pytest

from harness.certificates import CertificateAuthority
from harness.client import exchanges
from harness.ports import reserve_port
from harness.proxy import SOCKSProxy
from harness.raw import RawUpstream, frame, read_frame, read_head, upgrade
from harness.upstream import Upstream
from harness.waiting import eventually

TEXT, CLOSE = 1, 8
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


class TLSUpstream(Upstream):
    """An upstream with a TLS context of the test. Records the names that clients request by SNI; None is no name."""

    def __init__(self, context, *, name="localhost", host="127.0.0.1"):
        super().__init__(host=host, certificate=SimpleNamespace(server_context=lambda: context))
        self.server_names = []
        self._name = name
        context.sni_callback = lambda connection, name, context: self.server_names.append(name)

    @property
    def url(self):
        return f"wss://{self._name}:{self.port}/"

    @property
    def peers(self):
        """The certificate of each connected client."""
        return [connection.transport.get_extra_info("peercert") for connection in self._open]


class Strict:
    """A TLS server in a thread that only makes handshakes. asyncio would end a failed handshake without its alert."""

    def __init__(self, context):
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self.url = f"wss://localhost:{self._listener.getsockname()[1]}/"

    async def start(self):
        self._thread.start()

    async def stop(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        await asyncio.to_thread(self._thread.join)

    def _serve(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(5)
            with connection, contextlib.suppress(OSError):
                secure = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
                try:
                    secure.do_handshake()
                finally:
                    # A FIN follows the alert. A reset could overtake the alert.
                    secure.shutdown(socket.SHUT_WR)
                    while connection.recv(65536):
                        pass


async def failure(gateway):
    """The error that the session reports for its failed attempt."""

    async def reported():
        return (await gateway.client().session())["last_failure"]

    return await eventually(reported, what="the session reports a failure")


# -- Trust ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_certificate_of_a_given_authority_is_trusted(version, gateway_for, start, authority, certificate):
    upstream = await start(TLSUpstream(certificate.server_context(version=version)))
    gateway = await gateway_for(upstream, "--ca-file", authority.path)
    await exchanges(gateway, upstream)
    assert upstream.server_names == ["localhost"]


async def test_tls_1_2_can_be_refused(gateway_for, start, authority, certificate):
    upstream = await start(Strict(certificate.server_context(version=ssl.TLSVersion.TLSv1_2)))
    config = f'upstream:\n  tls:\n    minimum_version: "1.3"\n    ca_file: {authority.path}\n'
    gateway = await gateway_for(upstream, config=config, ready=False)
    assert "the peer does not speak TLS 1.3, the only version allowed here" in await failure(gateway)


REFUSED = {
    "expired": ({"days": 1, "starts_in": -3}, "expired at"),
    "not yet valid": ({"days": 3, "starts_in": 2}, "is not valid before"),
    "self-signed": (
        {"self_signed": True},
        "is self-signed: to trust it, configure it as CA file ('upstream.tls.ca_file' or --ca-file",
    ),
    "another host": ({"names": ["DNS:other.example"]}, "is not for localhost: it covers other.example"),
    "an address only": ({"names": ["IP:127.0.0.1"]}, "is not for localhost"),
    "no name at all": ({"names": [], "common_name": "localhost"}, "is not for localhost: it names no host at all"),
    "a wildcard one label too high": ({"names": ["DNS:*"]}, "is not for localhost"),
    "made for clients": ({"for_clients": True}, "is rejected"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_an_invalid_certificate_is_refused(name, gateway_for, start, authority):
    options, expected = REFUSED[name]
    names = options.get("names", ["DNS:localhost"])
    issued = authority.issue(*names, **{key: value for key, value in options.items() if key != "names"})
    upstream = await start(TLSUpstream(issued.server_context()))
    gateway = await gateway_for(upstream, "--ca-file", authority.path, ready=False)
    reported = await failure(gateway)
    assert reported.startswith("TLS: ")
    assert expected in reported
    assert upstream.requests == []


async def test_an_unknown_authority_is_refused(gateway_for, start, certificate):
    upstream = await start(TLSUpstream(certificate.server_context()))
    gateway = await gateway_for(upstream, ready=False)
    reported = await failure(gateway)
    assert "issuer CN = Drawbridge test CA is not trusted" in reported
    assert "'upstream.tls.ca_file' or --ca-file" in reported
    assert upstream.requests == []


async def test_another_authority_of_the_same_name_is_refused(gateway_for, start, authority, tmp_path):
    impostor = CertificateAuthority(tmp_path)
    upstream = await start(TLSUpstream(impostor.issue("DNS:localhost").server_context()))
    gateway = await gateway_for(upstream, "--ca-file", authority.path, ready=False)
    assert await failure(gateway)
    assert upstream.requests == []


async def test_a_self_signed_certificate_can_be_trusted_by_name(gateway_for, start, authority):
    issued = authority.issue("DNS:localhost", self_signed=True)
    upstream = await start(TLSUpstream(issued.server_context()))
    await exchanges(await gateway_for(upstream, "--ca-file", issued.chain), upstream)


async def test_verification_can_be_turned_off_explicitly(gateway_for, start, authority):
    issued = authority.issue("DNS:other.example", days=1, starts_in=-3)
    upstream = await start(TLSUpstream(issued.server_context()))
    gateway = await gateway_for(upstream, config="upstream:\n  tls:\n    verify: false\n")
    await exchanges(gateway, upstream)
    assert "not verified" in gateway.output


# -- Names and addresses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("address", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
async def test_an_address_is_compared_with_addresses(address, family, gateway_for, start, authority):
    try:
        socket.create_server((address, 0), family=family).close()
    except OSError:
        pytest.skip(f"this machine has no {address}")
    name = f"[{address}]" if ":" in address else address
    upstream = await start(TLSUpstream(authority.issue(f"IP:{address}").server_context(), name=name, host=address))
    gateway = await gateway_for(upstream, "--ca-file", authority.path)
    await exchanges(gateway, upstream)
    # RFC 6066 section 3: an address is not a server name.
    assert upstream.server_names == [None]


@pytest.mark.parametrize("names", [["DNS:127.0.0.1"], ["IP:127.0.0.2"], ["DNS:localhost"]])
async def test_an_address_is_not_compared_with_names(names, gateway_for, start, authority):
    upstream = await start(TLSUpstream(authority.issue(*names).server_context(), name="127.0.0.1"))
    gateway = await gateway_for(upstream, "--ca-file", authority.path, ready=False)
    assert "is not for 127.0.0.1" in await failure(gateway)


async def test_the_expected_name_can_be_configured(gateway_for, start, authority):
    upstream = await start(TLSUpstream(authority.issue("DNS:inside.example").server_context(), name="127.0.0.1"))
    config = f"upstream:\n  tls:\n    server_name: inside.example\n    ca_file: {authority.path}\n"
    await exchanges(await gateway_for(upstream, config=config), upstream)
    assert upstream.server_names == ["inside.example"]


async def test_the_final_dot_of_a_name_is_not_in_certificates(gateway_for, start, authority):
    """The final dot means 'from the root' and is not sent (RFC 6066 section 3). The proxy looks up the name."""
    proxy = await start(SOCKSProxy(resolves={"upstream.example.": "127.0.0.1"}))
    issued = authority.issue("DNS:upstream.example")
    upstream = await start(TLSUpstream(issued.server_context(), name="upstream.example."))
    gateway = await gateway_for(upstream, "--proxy", proxy.url(), "--ca-file", authority.path)
    await exchanges(gateway, upstream)
    assert upstream.server_names == ["upstream.example"]


# -- Pins --------------------------------------------------------------------------------------------------------------


async def test_only_a_pinned_key_is_accepted(gateway_for, start, authority, certificate):
    upstream = await start(TLSUpstream(certificate.server_context()))
    other = authority.issue("DNS:localhost")
    config = "upstream:\n  tls:\n    ca_file: {}\n    pins: [{}]\n"
    right = await gateway_for(upstream, config=config.format(authority.path, f'"{other.pin}", "{certificate.pin}"'))
    await exchanges(right, upstream)
    before = len(upstream.requests)
    wrong = await gateway_for(upstream, config=config.format(authority.path, f'"{other.pin}"'), ready=False)
    reported = await failure(wrong)
    assert "the peer's key is not pinned" in reported
    # The error shows the pin to configure if this key is the right key.
    assert certificate.pin in reported
    assert len(upstream.requests) == before


# -- Our own certificate -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_client_certificate_is_sent_on_request(version, gateway_for, start, authority, certificate):
    own = authority.issue(for_clients=True, common_name="the gateway")
    context = certificate.server_context(version=version, client_authority=authority)
    upstream = await start(TLSUpstream(context))
    config = "upstream:\n  tls:\n" + "".join(
        f"    {key}: {path}\n"
        for key, path in (
            ("ca_file", authority.path),
            ("client_certificate", own.chain),
            ("client_key", own.key),
        )
    )
    gateway = await gateway_for(upstream, config=config)
    assert [peer["subject"] for peer in upstream.peers] == [((("commonName", "the gateway"),),)]
    await exchanges(gateway, upstream)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_missing_client_certificate_is_reported(version, gateway_for, start, authority, certificate):
    upstream = await start(Strict(certificate.server_context(version=version, client_authority=authority)))
    gateway = await gateway_for(upstream, "--ca-file", authority.path, ready=False)
    assert "requires a client certificate and none is configured" in await failure(gateway)


async def test_a_changed_client_certificate_is_read_at_the_next_attempt(
    gateway_for, start, authority, certificate, tmp_path
):
    def put(issued):
        # A new file replaces the old file, as with tools that rotate certificates.
        for source, target in ((issued.chain, "own.pem"), (issued.key, "own.key")):
            shutil.copy(source, tmp_path / f"{target}.new")
        for target in ("own.pem", "own.key"):
            (tmp_path / f"{target}.new").rename(tmp_path / target)

    put(authority.issue(for_clients=True, common_name="first"))
    upstream = await start(TLSUpstream(certificate.server_context(client_authority=authority)))
    config = (
        f"upstream:\n  tls:\n    ca_file: {authority.path}\n"
        f"    client_certificate: {tmp_path}/own.pem\n    client_key: {tmp_path}/own.key\n"
    )
    gateway = await gateway_for(upstream, config=config)
    assert upstream.peers[0]["subject"] == ((("commonName", "first"),),)
    put(authority.issue(for_clients=True, common_name="second"))
    upstream.reset_connections()
    await eventually(lambda: len(upstream.requests) == 2 and upstream.connected == 1, what="the gateway reconnects")
    assert upstream.peers[0]["subject"] == ((("commonName", "second"),),)

    # A file that cannot be used makes the attempt fail with a reason. The next usable file takes effect.
    (tmp_path / "own.pem").write_text("nonsense")
    upstream.reset_connections()
    reported = await failure_about(gateway, "client certificate file")
    assert "has no certificate: it must be PEM text" in reported
    put(authority.issue(for_clients=True, common_name="third"))
    await gateway.ready()
    await eventually(lambda: upstream.connected == 1, what="the gateway is back")
    assert upstream.peers[0]["subject"] == ((("commonName", "third"),),)


async def failure_about(gateway, word):
    async def reported():
        said = (await gateway.client().session())["last_failure"] or ""
        return said if word in said else None

    return await eventually(reported, what=f"a failure about {word}")


async def test_the_client_certificate_is_not_sent_after_a_redirection(gateway_for, start, authority, certificate):
    own = authority.issue(for_clients=True, common_name="the gateway")
    context = certificate.server_context()
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(authority.path)
    upstream = await start(TLSUpstream(context))

    async def redirects(reader, writer):
        await read_head(reader)
        location = f"Location: {upstream.url}"
        writer.write(f"HTTP/1.1 302 Found\r\n{location}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()

    first = RawUpstream(redirects)
    await first.start(ssl=certificate.server_context(client_authority=authority))
    try:
        config = (
            f"upstream:\n  url: wss://localhost:{first.port}/\n  tls:\n    ca_file: {authority.path}\n"
            f"    client_certificate: {own.chain}\n    client_key: {own.key}\n"
        )
        await gateway_for(None, config=config)
        # `{}` means that the server requested a certificate and got none.
        assert upstream.peers in ([None], [{}])
    finally:
        await first.stop()


# -- Servers without TLS, and bad ends ---------------------------------------------------------------------------------


async def test_an_upstream_without_tls_at_a_wss_url_is_reported(gateway_for, raw_upstream):
    async def behave(reader, writer):
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    upstream = await raw_upstream(behave)
    gateway = await gateway_for(None, "--upstream", f"wss://localhost:{upstream.port}/", ready=False)
    assert "does not speak TLS on this port" in await failure(gateway)


async def silent(reader, writer):
    while await reader.read(65536):
        pass


async def drips(reader, writer):
    """Sends a record that never ends."""
    await reader.read(1)
    writer.write(b"\x16\x03\x03\x40\x00")
    while not writer.is_closing():
        writer.write(b"\x02")
        await writer.drain()
        await asyncio.sleep(0.02)


async def hangs_up(reader, writer):
    await reader.read(1)


@pytest.mark.parametrize(
    ("behave", "expected"),
    [
        (silent, "the TLS handshake with the upstream did not complete within"),
        (drips, "the TLS handshake with the upstream did not complete within"),
        (hangs_up, "closed the connection during the TLS handshake"),
    ],
)
async def test_an_endless_handshake_ends_at_the_timeout(behave, expected, raw_upstream, gateway_for):
    upstream = await raw_upstream(behave)
    config = f"upstream:\n  url: wss://localhost:{upstream.port}/\n  timeouts:\n    tls: 300ms\n"
    gateway = await gateway_for(None, config=config, ready=False)
    assert expected in await failure(gateway)
    await eventually(lambda: upstream.connections >= 3, what="the gateway reconnects")


async def test_an_altered_record_ends_the_connection(gateway_for, start, authority, certificate):
    """A relay between gateway and upstream flips one bit after the upgrade."""
    upstream = await start(TLSUpstream(certificate.server_context()))
    flips = asyncio.Event()

    async def relay(reader, writer):
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", upstream.port)

        async def back():
            while data := await far_reader.read(65536):
                if flips.is_set():
                    flips.clear()
                    data = data[:-1] + bytes([data[-1] ^ 1])
                writer.write(data)
                await writer.drain()

        async def forth():
            while data := await reader.read(65536):
                far_writer.write(data)
                await far_writer.drain()

        try:
            await asyncio.wait(
                [asyncio.ensure_future(back()), asyncio.ensure_future(forth())], return_when="FIRST_COMPLETED"
            )
        finally:
            far_writer.close()

    middle = await start(RawUpstream(relay))
    url = f"wss://localhost:{middle.port}/"
    gateway = await gateway_for(None, "--upstream", url, "--ca-file", authority.path)
    flips.set()
    await upstream.push("never seen")
    assert "a record failed its integrity check" in await failure(gateway)
    batch = await gateway.client().poll(cursor="earliest", wait=0)
    assert "never seen" not in batch.payloads
    await gateway.ready()


def over_tls(behave, certificate):
    """An upstream that sends raw bytes (`behave`), behind TLS."""

    class Secure(RawUpstream):
        async def start(self):
            return await super().start(ssl=certificate.server_context())

    return Secure(behave)


async def test_close_notify_without_a_close_frame_is_an_abnormal_closure(gateway_for, start, authority, certificate):
    async def behave(reader, writer):
        await upgrade(reader, writer, then=frame(TEXT, b"last words"))
        # asyncio sends close_notify when it closes.
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    upstream = await start(over_tls(behave, certificate))
    url = f"wss://localhost:{upstream.port}/"
    gateway = await gateway_for(None, "--upstream", url, "--ca-file", authority.path, ready=False)
    assert (await gateway.client().collect(1, "earliest"))[0] == ["last words"]
    assert await failure(gateway) == "the upstream ended the stream without a close frame"


CUT = ", and TLS without close_notify: it may have been truncated"


def cut_off_behind(data):
    """Sends FIN without close_notify, which an attacker on the path can also do."""

    async def behave(reader, writer):
        await upgrade(reader, writer, then=data)
        await writer.drain()
        writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
        await reader.read()

    return behave


async def test_truncation_between_messages_is_reported(gateway_for, start, authority, certificate):
    upstream = await start(over_tls(cut_off_behind(frame(TEXT, b"whole")), certificate))
    url = f"wss://localhost:{upstream.port}/"
    gateway = await gateway_for(None, "--upstream", url, "--ca-file", authority.path, ready=False)
    assert (await gateway.client().collect(1, "earliest"))[0] == ["whole"]
    assert await failure(gateway) == "the upstream ended the stream without a close frame" + CUT


async def test_truncation_inside_a_message_is_reported_and_the_message_dropped(
    gateway_for, start, authority, certificate
):
    behave = cut_off_behind(frame(TEXT, b"half of it", length=20))

    upstream = await start(over_tls(behave, certificate))
    url = f"wss://localhost:{upstream.port}/"
    gateway = await gateway_for(None, "--upstream", url, "--ca-file", authority.path, ready=False)
    assert await failure(gateway) == "the upstream ended the stream inside a message" + CUT
    await eventually(lambda: upstream.connections >= 2, what="the gateway reconnects")
    batch = await gateway.client().poll(cursor="earliest", wait=0)
    assert all(message["type"] != "text" for message in batch.messages)


async def test_a_clean_closing_handshake_is_completed(gateway_for, start, authority, certificate):
    """The server's close_notify follows the close frame and its response. The gateway reports no failure of TLS."""
    received = asyncio.get_running_loop().create_future()

    async def behave(reader, writer):
        await upgrade(reader, writer, then=frame(CLOSE, b"\x03\xe9bye"))
        opcode, payload = await read_frame(reader)
        if not received.done():
            received.set_result((opcode, payload[:2]))
        writer.close()

    upstream = await start(over_tls(behave, certificate))
    url = f"wss://localhost:{upstream.port}/"
    gateway = await gateway_for(None, "--upstream", url, "--ca-file", authority.path, ready=False)
    assert await asyncio.wait_for(received, 30) == (CLOSE, b"\x03\xe9")
    assert await failure(gateway) == "the upstream closed the connection with 1001: bye"


def responses(data):
    async def behave(reader, writer):
        await read_head(reader)
        writer.write(data)
        await writer.drain()
        if data:
            await reader.read()

    return behave


@pytest.mark.parametrize(
    ("data", "port"),
    [
        (b"\x15\x03\x01\x00\x02\x02\x46", 0),
        (b"\x15", 0),
        (b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n", 0),
        (b"", 443),
    ],
    ids=["a TLS alert", "its first byte", "words", "the end, on a port like 8443"],
)
async def test_ws_to_a_tls_port_has_a_hint(data, port, start, gateway_for):
    server = RawUpstream(responses(data))
    if port:
        server.port = reserve_port(range(10_443, 32_000, 1000))
    await start(server)
    gateway = await gateway_for(server, ready=False)
    assert ": if this is a TLS port, use wss:// in the URL" in await failure(gateway)
