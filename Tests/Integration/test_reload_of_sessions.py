"""SIGHUP with named sessions. Each session is changed by its name, and no session is added or removed."""

import signal

from harness.gateway import Gateway
from harness.upstream import Upstream
from harness.waiting import eventually


def config(*sessions, default=None):
    lines = [f"upstream: {{url: '{default.url}'}}\n"] if default else []
    lines.append("sessions:\n")
    lines += [f"  {name}: {{upstream: {{url: '{upstream.url}'}}}}\n" for name, upstream in sessions]
    return "".join(lines)


async def test_a_reload_changes_each_session_by_its_name(start, tmp_path):
    first, market, news, moved = [await start(Upstream()) for _ in range(4)]
    gateway = await start(
        Gateway(config=config(("market", market), ("news", news), default=first), folder=tmp_path),
    )
    for upstream in (first, market, news):
        await eventually(lambda upstream=upstream: len(upstream.requests) == 1, what="each session connects")

    gateway.rewrite(config(("news", news), ("market", moved), ("more", moved), default=first))
    gateway.signal(signal.SIGHUP)
    warning = await gateway.logs(lambda record: "settings" in record, what="the settings that need a restart")
    assert warning["settings"] == "sessions.more"
    await eventually(lambda: market.closes == [(1000, "")], what="the session that has moved leaves")
    assert len(moved.requests) == 1
    assert [len(upstream.requests) for upstream in (first, news)] == [1, 1], "nothing has changed for the others"


async def test_only_a_reload_without_a_change_makes_new_connections_for_all(start, tmp_path):
    first, market = await start(Upstream()), await start(Upstream())
    text = config(("market", market), default=first)
    gateway = await start(Gateway(config=text, folder=tmp_path))
    for upstream in (first, market):
        await eventually(lambda upstream=upstream: len(upstream.requests) == 1, what="each session connects")

    async def reload(text):
        reloads = len(reloads_so_far())
        gateway.rewrite(text)
        gateway.signal(signal.SIGHUP)
        await eventually(lambda: len(reloads_so_far()) > reloads, what="the end of the reload")

    def reloads_so_far():
        return [record for record in gateway.records if record["message"] == "configuration reloaded"]

    # Settings that need a restart, and settings that need no new connection, also count as changes.
    await reload("log: {level: debug}\n" + text)
    await reload("log: {level: debug}\nloops: 3\n" + text)
    assert [len(upstream.requests) for upstream in (first, market)] == [1, 1]
    # The file is unchanged. The gateway reads certificates and credentials again, even while a change waits for a
    # restart.
    await reload("log: {level: debug}\nloops: 3\n" + text)
    for upstream in (first, market):
        await eventually(lambda upstream=upstream: len(upstream.requests) == 2, what="a new connection")


async def test_a_change_of_topics_applies_to_the_next_push_and_keeps_the_connection(start, tmp_path):
    upstream = await start(Upstream())
    text = "upstream: {{url: '" + upstream.url + "', topic: {{pointer: {}}}}}\n"
    gateway = await start(Gateway(config=text.format("/a"), folder=tmp_path))
    await gateway.ready()
    client = gateway.client()

    async def topic_of_a_push(number):
        await upstream.push('{"a": "first", "b": "second"}')
        await client.collect(number, "earliest")
        return (await client.poll(last=1, wait=0)).messages[0]["topic"]

    assert await topic_of_a_push(1) == "first"
    gateway.rewrite(text.format("/b"))
    gateway.signal(signal.SIGHUP)
    await gateway.logs(lambda record: record["message"] == "configuration reloaded", what="the end of the reload")
    assert await topic_of_a_push(2) == "second"
    assert len(upstream.requests) == 1
    # The file is unchanged. The gateway reads certificates and credentials again, so it makes a new connection.
    gateway.signal(signal.SIGHUP)
    await eventually(lambda: len(upstream.requests) == 2, what="a new connection")


async def test_a_reload_does_not_need_the_files_of_a_removed_session(start, tmp_path, authority, certificate):
    market, news, moved = (
        await start(Upstream(certificate=certificate)),
        await start(Upstream()),
        await start(Upstream()),
    )
    authorities = tmp_path / "market.pem"
    authorities.write_bytes(authority.path.read_bytes())
    removed = f"  market: {{upstream: {{url: '{market.url}', tls: {{ca_file: {authorities}, system_ca: false}}}}}}\n"
    gateway = await start(Gateway(config=config(("news", news)) + removed, folder=tmp_path))
    await eventually(lambda: len(market.requests) == len(news.requests) == 1, what="each session connects")
    authorities.unlink()
    gateway.rewrite(config(("news", moved)))
    gateway.signal(signal.SIGHUP)
    await eventually(lambda: len(moved.requests) == 1, what="the other session moves")
    assert len(market.requests) == 1, "the removed session goes on as it is"


async def test_a_reload_that_contradicts_the_queue_is_refused(start, tmp_path):
    """The queue keeps its settings until a restart. Its redelivery needs pings, which the new settings disable."""
    upstream = await start(Upstream())
    text = "upstream: {{url: '" + upstream.url + "'{}}}\n"
    gateway = await start(Gateway(config=text.format(", queue: {redeliver: unconfirmed}"), folder=tmp_path))
    await eventually(lambda: len(upstream.requests) == 1, what="the session connects")
    gateway.rewrite(text.format(", heartbeat: {ping: false}"))
    gateway.signal(signal.SIGHUP)
    error = await gateway.logs(lambda record: record["level"] == "error", what="that the reload is refused")
    assert error["message"] == "the new configuration is not valid; the old one remains in effect"
    assert error["reason"].startswith("'upstream.queue.redeliver' cannot be used: 'unconfirmed' needs")
    assert len(upstream.requests) == 1


async def test_the_default_session_is_not_added_by_a_reload(start, tmp_path):
    market, first = await start(Upstream()), await start(Upstream())
    gateway = await start(Gateway(config=config(("market", market)), folder=tmp_path))
    await eventually(lambda: len(market.requests) == 1, what="the session connects")
    gateway.rewrite(config(("market", market), default=first))
    gateway.signal(signal.SIGHUP)
    warning = await gateway.logs(lambda record: "settings" in record, what="the settings that need a restart")
    assert warning["settings"] == "upstream.url"
    await gateway.logs(lambda record: record["message"] == "configuration reloaded", what="the end of the reload")
    assert first.requests == []
