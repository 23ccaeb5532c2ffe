"""Addresses that sessions of clients must not reach, whatever the name, notation or redirect."""

import itertools
from pathlib import Path

from harness.created_sessions import profile
from harness.nameserver import Nameserver, needs_nameserver
from harness.namespaces import Cable, needs_namespaces
from harness.ports import reserve_port
from harness.upstream import Upstream

# Hosts of a URL that mean this machine, a private network or a metadata service. They need no name server.
HOSTS = [
    "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7F.0.0.1", "0177.0.0.1", "017700000001", "127.0.0.1.",
    "127.0.0.01", "00000177.0.0.1", "0x7f.0x0.0x0.0x1", "127.0.257", "0", "0.0.0.0", "0.1.2.3",
    "localhost", "LocalHost", "localhost.", "a.localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback",
    "169.254.169.254", "2852039166", "0xa9fea9fe", "169.254.43518", "0xa9.254.0251.0xfe", "100.100.100.200",
    "192.0.0.192", "168.63.129.16", "10.0.0.1", "10.1", "012.0.0.1", "192.168.1.1", "192.168.257", "172.16.0.1",
    "100.64.0.1", "169.254.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "192.88.99.1", "192.0.2.1",
    "198.51.100.1", "203.0.113.1", "198.18.0.1",
]  # fmt: skip

# Attempts to end the host early, or to use characters that a resolver may map.
TRICKS = [
    "public.example@127.0.0.1", "user:password@127.0.0.1", "public.example\\@127.0.0.1", "127.0.0.1:80", "127.0.0.1/x",
    "127.0.0.1#x", "127.0.0.1?x", "127.0.0.1\\x", "127.0.0.1%00.public.example", "127.0.0.1\0", "127.0.0.1\t",
    "127.0.0.1\r\nHost: x", "[::1]", "::1", "[::ffff:127.0.0.1]", "::ffff:7f00:1", "fe80::1%eth0", "127%2e0.0.1",
    "127\u30020\u30020\u30021", "127\uff0e0\uff0e0\uff0e1", "\uff11\uff12\uff17.0.0.1", "\u0661\u0662\u0667.0.0.1",
    "\u2460\u2461\u2466.\u24ea.\u24ea.\u2460", "\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3", "-", "a b", "",
]  # fmt: skip

ANY_HOST = "{host: {}}, hosts: ['*']"

# IPv6 addresses. If they contain an IPv4 address, it is 127.0.0.2. In a URL they have brackets.
SIXES = [
    "::", "::1", "::127.0.0.2", "::ffff:127.0.0.2", "::ffff:7f00:2", "0:0:0:0:0:FFFF:7F00:0002", "::ffff:0:127.0.0.2",
    "64:ff9b::7f00:2", "64:ff9b:1::7f00:2", "2002:7f00:2::1", "2001:0:4136:e378:8000:63bf:80ff:fffd",
    "2600::5efe:127.0.0.2", "fe80::1", "fd00::1", "fd00:ec2::254", "fd20:ce::254", "::ffff:169.254.169.254",
    "fec0::1", "ff02::1", "2001:db8::1", "2001:2::1", "100::1",
]  # fmt: skip


async def test_no_host_of_a_client_is_this_machine_or_a_private_network(sessions_for):
    sessions = await sessions_for(profile("ws://{host}:9/", allow="", variables=ANY_HOST))
    for host in HOSTS:
        detail = (await sessions.put("x", host=host)).problem(422)["detail"]
        assert "refused unless" in detail or "this machine" in detail, (host, detail)
    for host in TRICKS:
        (await sessions.put("x", host=host)).problem(422)
    assert (await sessions.list())["sessions"] == []


# glibc looks up IPv6 addresses only if the machine has one.
HAS_IPV6 = any(not line.endswith(" lo") for line in Path("/proc/net/if_inet6").read_text().splitlines())


@needs_nameserver
async def test_every_address_of_a_name_is_checked_at_every_connection(sessions_for, start, tmp_path):
    """Here 127.0.0.1 is allowed, like a public address, and 127.0.0.2 is refused, like a private address."""
    upstream, hidden = await start(Upstream()), Upstream(host="127.0.0.2")
    hidden.port = upstream.port
    await start(hidden)
    refused = {
        "127.0.0.2.nip.example": (["127.0.0.2"], "loopback"),
        "127.0.0.2.nip.example.": (None, "loopback"),
        "alias.example": (["inner.example"], "loopback"),
        "inner.example": (["innermost.example"], "loopback"),
        "innermost.example": (["127.0.0.2"], "loopback"),
        "private.example": (["10.1.2.3", "192.168.0.1"], "private"),
        "metadata.example": (["169.254.169.254"], "metadata"),
    }
    if HAS_IPV6:
        refused |= {f"six{index}.example": ([six], "refused unless") for index, six in enumerate(SIXES)}
        refused["both.example"] = (["10.1.2.3", "::1"], "refused unless")
    names = {
        "rebinding.example": [["127.0.0.1"], ["127.0.0.2"]],
        "mixed.example": [["127.0.0.2", "127.0.0.1", "::1", "fd00::1"]],
        **{name: [addresses] for name, (addresses, _) in refused.items() if addresses},
    }
    server = await start(Nameserver(tmp_path, names))
    config = profile(f"ws://{{host}}:{upstream.port}/", variables=ANY_HOST)
    sessions = await sessions_for(config, prefix=server.prefix)

    await sessions.created("rebinding", host="rebinding.example")
    await sessions.ready("rebinding")
    await upstream.stop()
    await sessions.failure("rebinding", "rebinding.example: the address is loopback")
    await upstream.start()

    await sessions.created("mixed", host="mixed.example")
    await sessions.ready("mixed")
    for name, (_, kind) in refused.items():
        session = name.replace(".", "-")
        await sessions.created(session, host=name)
        await sessions.failure(session, kind)
    assert hidden.requests == [], "nothing has reached the hidden upstream"


@needs_nameserver
async def test_a_fallback_url_is_checked_like_the_first(sessions_for, start, tmp_path):
    hidden = await start(Upstream(host="127.0.0.2"))
    server = await start(Nameserver(tmp_path, {"hidden.example": [["127.0.0.2"]]}))
    fallback = f", fallback_urls: ['ws://{{host}}:{hidden.port}/']"
    config = profile(f"ws://127.0.0.1:{reserve_port()}/", variables=ANY_HOST, allow="127.0.0.1/32", extra=fallback)
    sessions = await sessions_for(config, prefix=server.prefix)
    assert "refused unless" in (await sessions.put("a", host="127.0.0.2")).problem(422)["detail"]
    await sessions.created("b", host="hidden.example")
    await sessions.failure("b", "hidden.example: the address is loopback")
    assert hidden.requests == []


async def test_a_redirect_is_checked_like_the_url(sessions_for, raw_upstream, start):
    hidden = await start(Upstream(host="127.0.0.2"))
    port = hidden.port
    targets = {
        "address": f"ws://127.0.0.2:{port}/", "number": f"ws://2130706434:{port}/", "octal": f"ws://0177.0.0.2:{port}/",
        "hexadecimal": f"WS://0X7F000002:{port}/", "short": f"ws://127.2:{port}/", "dot": f"ws://127.0.0.2.:{port}/",
        "unspecified": f"ws://0.0.0.0:{port}/", "userinfo": f"ws://public.example@127.0.0.2:{port}/",
        "password": f"ws://public.example:80@127.0.0.2:{port}/", "relative": f"//127.0.0.2:{port}/",
        "metadata": "http://169.254.169.254/latest/meta-data/", "private": "ws://192.168.0.1/",
        "carrier": "ws://100.64.0.1/", "multicast": "ws://224.0.0.1/", "benchmark": "ws://198.18.0.1/",
        **{f"six{index}": f"ws://[{six}]:{port}/" for index, six in enumerate(SIXES)},
        "twice": f"ws://a@b@127.0.0.2:{port}/", "backslash": f"ws://public.example\\@127.0.0.2:{port}/",
        "zone": f"ws://[::1%25lo]:{port}/",
    }  # fmt: skip
    refused = dict.fromkeys(targets, "refused unless 'addresses.allow' of the profile has it")
    # These are neither addresses nor names.
    targets |= {
        "slash": f"ws:\\\\127.0.0.2:{port}/", "percent": f"ws://127%2e0%2e0%2e2:{port}/",
        "wide": f"ws://127\u30020\u30020\u30022:{port}/",
    }  # fmt: skip
    refused |= {"slash": "not a WebSocket URL", "percent": "cannot resolve", "wide": "not a WebSocket URL"}
    statuses = itertools.cycle(("301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"))

    async def redirect(reader, writer):
        way = (await reader.readuntil(b"\r\n\r\n")).decode().split()[1][1:]
        writer.write(f"HTTP/1.1 {next(statuses)}\r\nLocation: {targets[way]}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()

    entrance = await raw_upstream(redirect)
    # The gateway must not use a proxy of the environment.
    proxy = dict.fromkeys(
        ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"), f"http://127.0.0.2:{port}"
    )
    config = profile(f"{entrance.url.rstrip('/')}/{{symbol}}", allow="127.0.0.1/32")
    sessions = await sessions_for(config, env=proxy)
    for way, reason in refused.items():
        await sessions.created(way, symbol=way)
        await sessions.failure(way, reason)
    assert hidden.requests == [], "nothing has reached the hidden upstream"


@needs_nameserver
async def test_a_redirect_to_a_name_is_checked_by_its_address(sessions_for, raw_upstream, start, tmp_path):
    hidden = await start(Upstream(host="127.0.0.2"))
    server = await start(Nameserver(tmp_path, {"hidden.example": [["127.0.0.2"]]}))

    async def redirect(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        target = f"ws://hidden.example:{hidden.port}/"
        writer.write(f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()

    entrance = await raw_upstream(redirect)
    sessions = await sessions_for(profile(f"{entrance.url}{{symbol}}", allow="127.0.0.1/32"), prefix=server.prefix)
    await sessions.created("name", symbol="A")
    await sessions.failure("name", "hidden.example: the address is loopback")
    assert hidden.requests == [], "nothing has reached the hidden upstream"


@needs_namespaces
async def test_the_addresses_of_this_machine_are_refused_although_they_are_public(sessions_for, start, tmp_path):
    cable = Cable()
    cable.start()
    try:
        # The last two addresses belong to one network, so the kernel sends to the second address from the first.
        own = ((4, "1.2.3.4/32"), (6, "2600:1234::1/128"), (4, "1.2.4.5/24"), (4, "1.2.4.6/24"))
        for family, address in own:
            cable.near.run("ip", f"-{family}", "address", "add", address, "dev", "cable")
        sockets = [f"unix:{tmp_path}/{name}.sock" for name in ("api", "management")]
        config = (
            f"profiles:\n  four: {{variables: {ANY_HOST}, upstream: {{url: 'ws://{{host}}:9/'}}}}\n"
            "  six: {upstream: {url: 'ws://[2600:1234::1]:9/'}}\n"
        )
        sessions = await sessions_for(
            config, arguments=("--listen", sockets[0], "--management", sockets[1]), prefix=cable.prefix()
        )
        assert (await sessions.put("four", profile="four", host="1.2.3.4")).status == 201
        await sessions.failure("four", "1.2.3.4: the address belongs to this machine")
        assert (await sessions.put("second", profile="four", host="1.2.4.6")).status == 201
        await sessions.failure("second", "1.2.4.6: the address belongs to this machine")
        assert (await sessions.put("six", profile="six")).status == 201
        await sessions.failure("six", "the address belongs to this machine")
    finally:
        cable.stop()
