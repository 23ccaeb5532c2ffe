"""The address of a client behind a proxy, from the PROXY protocol and X-Forwarded-For."""

import asyncio
import contextlib
import struct

import pytest

from harness.https import Ciphertext, connect, counts, exchange, listening, trusting
from harness.reverse_proxies import HAProxy
from harness.waiting import eventually

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
REQUEST = b"GET /v1/session HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


PORTS = struct.pack("!HH", 4711, 80)


def version_2(command=0x21, family=0x11, body=b"\xcb\x00\x71\x07\x7f\0\0\1" + PORTS):
    return SIGNATURE + bytes([command, family]) + struct.pack("!H", len(body)) + body


@pytest.fixture
def proxied_for(gateway_for, upstream):
    async def proxied_for(*arguments, trusted="127.0.0.1", required="required", env=None, **settings):
        env = (env or {}) | {"DRAWBRIDGE_HTTP_TRUSTED_PROXIES": trusted, "DRAWBRIDGE_HTTP_PROXY_PROTOCOL": required}
        env |= {"DRAWBRIDGE_LOG_ACCESS": "all"} | {f"DRAWBRIDGE_{name}": value for name, value in settings.items()}
        return await gateway_for(upstream, *arguments, env=env)

    return proxied_for


@pytest.fixture
def secure_proxied_for(proxied_for, certificate):
    """Like `proxied_for`, with an HTTPS listener."""

    async def secure_proxied_for(**options):
        arguments, env = listening(certificate)
        return await proxied_for(*arguments, env=env, **options)

    return secure_proxied_for


async def response(gateway, *pieces):
    """The bytes that the gateway sends until it closes; empty if there are none."""
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection(*gateway.address())
        with contextlib.closing(writer):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            return await asyncio.wait_for(reader.read(), 20)
    return b""


async def logged_client(gateway, request):
    """The client that the access log names for this request."""

    def lines():
        return [line for line in gateway.records if line["message"] == "request"]

    seen = len(lines())
    await request
    await eventually(lambda: len(lines()) > seen, what="the request is logged")
    return lines()[-1]["client"]


async def client_of(gateway, *pieces, through=response):
    async def request():
        assert (await through(gateway, *pieces)).startswith(b"HTTP/1.1 200")

    return await logged_client(gateway, request())


async def refused(gateway):
    return (await gateway.metrics())["drawbridge_http_proxy_headers_refused_total"]


async def test_both_versions_name_the_client(proxied_for):
    gateway = await proxied_for()
    assert await client_of(gateway, b"PROXY TCP4 203.0.113.7 127.0.0.1 4711 80\r\n", REQUEST) == "203.0.113.7:4711"
    assert await client_of(gateway, b"PROXY TCP6 2001:db8::7 ::1 4711 80\r\n" + REQUEST) == "[2001:db8::7]:4711"
    assert await client_of(gateway, version_2() + REQUEST) == "203.0.113.7:4711"
    six = bytes.fromhex("20010db8000000000000000000000007") + bytes(16) + PORTS
    assert await client_of(gateway, version_2(family=0x21, body=six + b"\x04\0\x02xx"), REQUEST) == "[2001:db8::7]:4711"
    # The header arrives byte by byte.
    header = version_2() + REQUEST
    assert await client_of(gateway, *[header[i : i + 1] for i in range(len(header))]) == "203.0.113.7:4711"
    # The proxy connects for itself, or does not know the client.
    for header in (
        version_2(command=0x20),
        version_2(family=0),
        b"PROXY UNKNOWN\r\n",
        version_2(0x21, 0x31, bytes(216)),
    ):
        assert (await client_of(gateway, header, REQUEST)).startswith("127.0.0.1:")


@pytest.mark.parametrize(
    "header",
    [
        REQUEST,
        b"PROXY TCP4 203.0.113.7 127.0.0.1 4711\r\n",
        b"PROXY TCP4 203.0.113.07 127.0.0.1 4711 80\r\n",
        b"PROXY TCP4 203.0.113.7  127.0.0.1 4711 80\r\n",
        b"PROXY TCP4 203.0.113.7 127.0.0.1 04711 80\r\n",
        b"PROXY TCP4 203.0.113.7 127.0.0.1 4711 65536\r\n",
        b"PROXY TCP6 203.0.113.7 127.0.0.1 4711 80\r\n",
        b"PROXY TCP4 203.0.113.7 127.0.0.1 4711 80\n" + REQUEST,
        b"PROXY UNKNOWN " + b"x" * 107,
        version_2(command=0x11),
        version_2(command=0x22),
        version_2(family=0x12),
        version_2(body=bytes(11)),
        version_2(body=bytes(12) + b"\x04\0\x05xx"),
        version_2(body=bytes(5000)),
    ],
)
async def test_a_malformed_header_ends_the_connection(proxied_for, header):
    gateway = await proxied_for()
    for count in (1, 2):
        assert await response(gateway, header + REQUEST) == b""
        assert await refused(gateway) == count
    # The usual cause is the configuration of the proxy, which does not change within a minute. One line is thus enough.
    assert (await gateway.logs(is_about_header, what="the header"))["level"] == "info"
    assert len([record for record in gateway.records if is_about_header(record)]) == 1


def is_about_header(record):
    return "without a valid header" in record["message"]


async def test_a_peer_that_is_not_trusted_cannot_name_a_client(proxied_for):
    gateway = await proxied_for(trusted="10.0.0.0/8")
    assert await response(gateway, b"PROXY TCP4 203.0.113.7 127.0.0.1 4711 80\r\n" + REQUEST) == b""
    line = await gateway.logs(lambda line: "its peer is not in" in line["message"], what="the refusal")
    assert line["peer"].startswith("127.0.0.1:")


async def test_a_missing_header_ends_the_connection(proxied_for):
    gateway = await proxied_for(HTTP_HEAD_TIMEOUT="1s")
    for start in (b"", b"PROXY TCP4 203.0.113.7", SIGNATURE):
        assert await response(gateway, start) == b""


async def test_connections_are_counted_by_the_client(proxied_for):
    gateway = await proxied_for(HTTP_CONNECTIONS_PER_ADDRESS="2")

    async def connected(host):
        try:
            reader, writer = await asyncio.open_connection(*gateway.address())
            writer.write(f"PROXY TCP4 {host} 127.0.0.1 4711 80\r\n".encode() + REQUEST.replace(b"close", b"keep-alive"))
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        except (OSError, EOFError):
            return None
        assert head.startswith(b"HTTP/1.1 200")
        return writer

    first, second = [await connected("203.0.113.1") for _ in range(2)]
    assert first is not None
    assert second is not None
    assert await connected("203.0.113.1") is None
    others = [await connected(f"203.0.113.{number}") for number in range(2, 6)]
    assert all(others)
    first.close()

    async def is_free():
        writer = await connected("203.0.113.1")
        if writer:
            writer.close()
        return bool(writer)

    await eventually(is_free, what="the place of the closed connection is free")
    for writer in (second, *others):
        writer.close()


async def test_connections_without_their_headers_are_not_counted_by_the_proxy(proxied_for):
    gateway = await proxied_for(HTTP_CONNECTIONS_PER_ADDRESS="2")
    streams = [await asyncio.open_connection(*gateway.address()) for _ in range(10)]

    async def are_open():
        # The ten connections and the connection that reads the metrics are open.
        return (await gateway.metrics())["drawbridge_http_connections"] == 11

    await eventually(are_open, what="all are accepted")
    for number, (reader, writer) in enumerate(streams):
        writer.write(f"PROXY TCP4 203.0.113.{number} 127.0.0.1 4711 80\r\n".encode() + REQUEST)
        assert (await asyncio.wait_for(reader.read(), 20)).startswith(b"HTTP/1.1 200")
        writer.close()
    # Connections whose header contains no client count as connections of the proxy.
    unknown = [await asyncio.open_connection(*gateway.address()) for _ in range(3)]
    responses = []
    for reader, writer in unknown:
        writer.write(b"PROXY UNKNOWN\r\n" + REQUEST.replace(b"close", b"keep-alive"))
        try:
            responses.append(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20))
        except (OSError, EOFError):
            responses.append(b"")
    assert [response[:12] for response in responses] == [b"HTTP/1.1 200", b"HTTP/1.1 200", b""]
    for _, writer in unknown:
        writer.close()


@pytest.mark.parametrize("header", [b"PROXY UNKNOWN\r\n", version_2(family=0), version_2(command=0x20)])
async def test_a_client_that_the_header_does_not_name_cannot_forward(proxied_for, header):
    gateway = await proxied_for()
    request = REQUEST.replace(b"Conn", b"X-Forwarded-For: 203.0.113.7\r\nConn")
    assert (await client_of(gateway, header + request)).startswith("127.0.0.1:")


async def test_a_block_of_mapped_addresses_trusts_the_ipv4_addresses(proxied_for):
    gateway = await proxied_for(trusted="::ffff:127.0.0.0/104", required="off")
    assert await client_of(gateway, REQUEST.replace(b"Conn", b"X-Forwarded-For: 203.0.113.7\r\nConn")) == "203.0.113.7"
    with pytest.raises(AssertionError, match=r"exit 78\)(?s:.*)trusted_proxies"):
        await proxied_for(trusted="::ffff:127.0.0.0/95", required="off")


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("198.51.100.1, 203.0.113.7", "203.0.113.7"),
        ("198.51.100.1, 203.0.113.7, 127.0.0.9", "203.0.113.7"),
        ("127.0.0.8, 127.0.0.9", "127.0.0.8"),
        ("203.0.113.7, nonsense, 127.0.0.9", "127.0.0.9"),
        ("203.0.113.7:4711", "203.0.113.7"),
        ("[2001:db8::7]:4711", "2001:db8::7"),
        ("203.0.113.7, nonsense", None),
        ("", None),
    ],
)
async def test_the_client_is_the_rightmost_address_that_is_not_a_trusted_proxy(proxied_for, forwarded, client):
    gateway = await proxied_for(trusted="127.0.0.0/8", required="off")
    named = await client_of(gateway, REQUEST.replace(b"Conn", f"X-Forwarded-For: {forwarded}\r\nConn".encode()))
    assert named.startswith("127.0.0.1:") if client is None else named == client


async def test_an_untrusted_peer_cannot_forward(proxied_for):
    gateway = await proxied_for(trusted="10.0.0.0/8", required="off")
    named = await client_of(gateway, REQUEST.replace(b"Conn", b"X-Forwarded-For: 203.0.113.7\r\nConn"))
    assert named.startswith("127.0.0.1:")


async def test_several_field_lines_are_one_list(proxied_for):
    gateway = await proxied_for(trusted="127.0.0.0/8", required="off")
    lines = b"X-Forwarded-For: 198.51.100.1\r\nX-Forwarded-For: 203.0.113.7\r\nX-Forwarded-For: 127.0.0.9\r\nConn"
    assert await client_of(gateway, REQUEST.replace(b"Conn", lines)) == "203.0.113.7"


FORWARDED = REQUEST.replace(b"Conn", b"X-Forwarded-For: 203.0.113.7\r\nConn")


@pytest.mark.parametrize(
    ("trusted", "is_trusted"), [("::1", True), ("::/120", True), ("::2/127", False), ("127.0.0.0/8", False)]
)
async def test_a_proxy_of_ipv6_is_trusted_by_its_block(proxied_for, trusted, is_trusted):
    forwarded = await proxied_for("--listen", "[::1]:0", trusted=trusted, required="off")
    named = await client_of(forwarded, FORWARDED)
    assert named == "203.0.113.7" if is_trusted else named.startswith("[::1]:")
    gateway = await proxied_for("--listen", "[::1]:0", trusted=trusted)
    header = b"PROXY TCP6 2001:db8::7 ::1 4711 80\r\n"
    if is_trusted:
        assert await client_of(gateway, header, REQUEST) == "[2001:db8::7]:4711"
    else:
        assert await response(gateway, header, REQUEST) == b""


async def unix_response(gateway, *pieces):
    path = gateway.addresses("api")[-1].removeprefix("unix:")
    reader, writer = await asyncio.open_unix_connection(path)
    with contextlib.closing(writer), contextlib.suppress(OSError):
        writer.writelines(pieces)
        return await asyncio.wait_for(reader.read(), 20)
    return b""


async def test_a_proxy_on_a_unix_socket_is_trusted_if_the_setting_says_unix(proxied_for, tmp_path):
    header = b"PROXY TCP4 203.0.113.7 127.0.0.1 4711 80\r\n"

    async def gateway(name, **options):
        return await proxied_for("--listen", f"unix:{tmp_path}/{name}", **options)

    trusting_it = await gateway("1", trusted="unix")
    assert await client_of(trusting_it, header, REQUEST, through=unix_response) == "203.0.113.7:4711"
    forwarding = await gateway("2", trusted="unix", required="off")
    assert await client_of(forwarding, FORWARDED, through=unix_response) == "203.0.113.7"
    assert await unix_response(await gateway("3", trusted="127.0.0.1"), header, REQUEST) == b""
    other = await gateway("4", trusted="127.0.0.1", required="off")
    assert "203.0.113.7" not in await client_of(other, FORWARDED, through=unix_response)


# ----------------------------------------------------------------------------------------------------------- Before TLS


@pytest.mark.parametrize(
    ("header", "client"),
    [
        (b"PROXY TCP4 203.0.113.7 127.0.0.1 4711 80\r\n", "203.0.113.7:4711"),
        (version_2(), "203.0.113.7:4711"),
        (version_2(command=0x20), "127.0.0.1:"),
        (b"PROXY UNKNOWN\r\n", "127.0.0.1:"),
    ],
)
@pytest.mark.parametrize("arrival", ["together", "apart", "byte by byte"])
async def test_the_header_is_sent_before_tls(secure_proxied_for, authority, header, client, arrival):
    gateway = await secure_proxied_for()

    async def request():
        reader, writer = await asyncio.open_connection(*gateway.address("https"))
        tls = Ciphertext(trusting(authority))
        first = True
        while not tls.handshake():
            data = tls.take()
            pieces = [data]
            if first:
                pieces = {"together": [header + data], "apart": [header, data]}.get(arrival) or [
                    bytes([byte]) for byte in header + data
                ]
            first = False
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            data = await asyncio.wait_for(reader.read(65536), 20)
            assert data
            tls.put(data)
        tls.tls.write(REQUEST)
        writer.write(tls.take())
        while b"\r\n\r\n" not in tls.read():
            tls.put(await asyncio.wait_for(reader.read(65536), 20))
        assert tls.plaintext.startswith(b"HTTP/1.1 200")
        writer.close()

    assert (await logged_client(gateway, request())).startswith(client)


async def test_without_its_header_no_handshake_begins(secure_proxied_for, authority):
    gateway = await secure_proxied_for()
    with pytest.raises((OSError, EOFError)):
        await connect(gateway, trusting(authority))
    assert await refused(gateway) == 1
    assert await counts(gateway, "tls_handshakes_failed_total", 0)


async def test_a_header_within_tls_is_a_malformed_request(secure_proxied_for, authority):
    gateway = await secure_proxied_for(required="off")
    reader, writer = await connect(gateway, trusting(authority))
    writer.write(b"PROXY TCP4 203.0.113.7 127.0.0.1 4711 80\r\n" + REQUEST)
    assert (await asyncio.wait_for(reader.read(), 20)).startswith(b"HTTP/1.1 400")
    writer.close()


async def test_a_trusted_proxy_forwards_over_https(secure_proxied_for, authority):
    gateway = await secure_proxied_for(required="off")

    async def request():
        stream = await connect(gateway, trusting(authority))
        assert (await exchange(stream, "/v1/session", "X-Forwarded-For: 203.0.113.7"))[0] == 200
        stream[1].close()

    assert await logged_client(gateway, request()) == "203.0.113.7"


# -------------------------------------------------------------------------------------------------------------- HAProxy


class ProxyProtocol(HAProxy):
    """HAProxy that sends the client's address with the PROXY protocol."""

    option = "send-proxy"

    def configuration(self):
        host, port = self.target
        return super().configuration().replace(f"{host}:{port}", f"{host}:{port} {self.option}")


class ProxyProtocol2(ProxyProtocol):
    option = "send-proxy-v2 proxy-v2-options ssl,unique-id,crc32c"


def is_from(named, source):
    """Whether the log shows a client at that address."""
    return named.rpartition(":")[0] == source


@pytest.mark.parametrize("kind", [ProxyProtocol, ProxyProtocol2])
async def test_haproxy_names_the_client(proxied_for, start, tmp_path, kind):
    gateway = await proxied_for()
    proxy = await start(kind(tmp_path, gateway.address()))
    # HAProxy itself connects from 127.0.0.1.
    for source in ("127.0.0.2", "127.0.0.3"):

        async def request(source=source):
            reader, writer = await asyncio.open_connection(*proxy.address, local_addr=(source, 0))
            writer.write(REQUEST)
            assert (await asyncio.wait_for(reader.read(), 20)).startswith(b"HTTP/1.1 200")
            writer.close()

        assert is_from(await logged_client(gateway, request()), source)
    assert await refused(gateway) == 0


@pytest.mark.parametrize("kind", [ProxyProtocol, ProxyProtocol2])
async def test_haproxy_passes_tls_and_names_the_client(secure_proxied_for, authority, start, tmp_path, kind):
    gateway = await secure_proxied_for(LIMITS_ADDRESS_REQUESTS="2/h")
    proxy = await start(kind(tmp_path, gateway.address("https"), "mode tcp"))
    for source in ("127.0.0.2", "127.0.0.3"):

        async def requests(source=source):
            stream = await asyncio.open_connection(
                *proxy.address, ssl=trusting(authority), server_hostname="localhost", local_addr=(source, 0)
            )
            # The limits apply to the client, not to the proxy.
            assert [(await exchange(stream))[0] for _ in range(3)] == [200, 200, 429]
            stream[1].close()

        assert is_from(await logged_client(gateway, requests()), source)
    assert await refused(gateway) == 0
    assert await counts(gateway, "tls_handshakes_failed_total", 0)
