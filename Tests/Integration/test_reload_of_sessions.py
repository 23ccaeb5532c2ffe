"""SIGHUP with named sessions: each is changed by its name, and none is added or removed."""

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
    warning = await gateway.tells(lambda record: "settings" in record, what="what needs a restart")
    assert warning["settings"] == "sessions.more"
    await eventually(lambda: market.closes == [(1000, "")], what="the session that has moved leaves")
    assert len(moved.requests) == 1
    # Nothing has changed for the others. They hand over all the same, to read credentials and certificates anew.
    for upstream in (first, news):
        await eventually(lambda upstream=upstream: len(upstream.requests) == 2, what="a new connection")


async def test_the_default_session_is_not_added_by_a_reload(start, tmp_path):
    market, first = await start(Upstream()), await start(Upstream())
    gateway = await start(Gateway(config=config(("market", market)), folder=tmp_path))
    await eventually(lambda: len(market.requests) == 1, what="the session connects")
    gateway.rewrite(config(("market", market), default=first))
    gateway.signal(signal.SIGHUP)
    warning = await gateway.tells(lambda record: "settings" in record, what="what needs a restart")
    assert warning["settings"] == "upstream.url"
    await gateway.tells(
        lambda record: record["message"] == "the configuration was read again", what="the end of the reload"
    )
    assert first.requests == []
