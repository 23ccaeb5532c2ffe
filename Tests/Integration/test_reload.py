"""A changed configuration file takes effect by itself, in whatever way it is replaced."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from harness import deny_netlink
from harness.gateway import Gateway
from harness.streams import RawStream
from harness.waiting import eventually

WATCH = {"DRAWBRIDGE_RELOAD": "watch"}


async def watching(start, folder, upstream, text="", *, config=None, ready=True, **options):
    """A gateway with its configuration file in `folder`, or at the path `config`."""
    content = f"upstream: {{url: '{upstream.url}'}}\n" + text
    arguments = []
    if config:
        arguments, content = ["--config", config], None
    gateway = await start(Gateway(*arguments, config=content, env=WATCH, folder=folder, **options))
    gateway.base = f"upstream: {{url: '{upstream.url}'}}\n"
    if ready:
        await gateway.ready()
    return gateway


def reloads(gateway):
    return [record for record in gateway.records if record["message"] == "configuration reloaded"]


async def reloaded(gateway, count):
    return await eventually(lambda: len(reloads(gateway)) >= count and reloads(gateway), what=f"reload {count}")


async def test_a_file_that_is_written_renamed_or_created_again_takes_effect(start, tmp_path, upstream):
    gateway = await watching(start, tmp_path, upstream)
    file = tmp_path / "drawbridge.yaml"
    client = gateway.client()

    # The file is rewritten in place. It enables the access log.
    gateway.rewrite(gateway.base + "log: {access: all}\n")
    assert (await reloaded(gateway, 1))[0]["changed"]
    await client.get(wait=0)
    await gateway.logs(lambda record: record["message"] == "request", what="a request")

    # A rename replaces the file, as with an editor.
    (tmp_path / "new").write_text(gateway.base + "log: {access: 'off'}\n")
    (tmp_path / "new").rename(file)
    await reloaded(gateway, 2)

    # The file is removed. The old configuration stays in use.
    file.unlink()
    await gateway.logs(lambda record: record["message"].startswith("cannot read the new configuration"), what="that")

    async def succeeded():
        return (await gateway.metrics())["drawbridge_config_reload_success"] == 1

    async def failed():
        return not await succeeded()

    # The metrics may change a little later than the log.
    await eventually(failed, what="the metric says so, too")
    file.write_text(gateway.base + "log: {access: errors}\n")
    await reloaded(gateway, 3)
    await eventually(succeeded, what="the metric says that the reload has succeeded")
    assert len(upstream.requests) == 1, "the session keeps its connection"
    assert (await client.get(wait=0)).status == 200


async def test_a_volume_of_kubernetes_takes_effect(start, tmp_path, upstream):
    """The file is a link to `..data/drawbridge.yaml`, and `..data` is a link to a folder, which is replaced.

    A secret is mounted in the same way.
    """
    secret = f"{{Authorization: 'Bearer ${{file:{tmp_path / 'token'}}}'}}"

    def publish(version, text):
        folder = tmp_path / f"..{version}"
        folder.mkdir()
        (folder / "drawbridge.yaml").write_text(f"upstream: {{url: '{upstream.url}', headers: {secret}}}\n" + text)
        (folder / "token").write_text(f"token-{version}\n")
        (tmp_path / "..data_tmp").symlink_to(folder.name)
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")

    publish(1, "")
    for name in ("drawbridge.yaml", "token"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    gateway = await watching(start, None, upstream, config=tmp_path / "drawbridge.yaml")
    for version, text in ((2, "log: {level: debug}\n"), (3, "log: {access: all}\n")):
        publish(version, text)
        await eventually(
            lambda token=f"Bearer token-{version}": upstream.requests[-1].headers["Authorization"] == token,
            what=f"a hand-over with the secret of version {version}",
        )
    # The gateway sees the second replacement only if it watches the folder to which the link leads after the first
    # replacement.
    client = gateway.client()

    async def logs_requests():
        await client.get(wait=0)
        return any(record["message"] == "request" for record in gateway.records)

    await eventually(logs_requests, what="version 3 is in effect")


async def test_a_held_poll_and_a_stream_outlive_a_reload(start, tmp_path, upstream):
    gateway = await watching(start, tmp_path, upstream)
    stream = await RawStream.open(gateway.address())
    poll = asyncio.create_task(gateway.client().get(wait=50))

    async def is_held():
        return (await gateway.metrics())["drawbridge_polls_held"] == 1

    await eventually(is_held, what="the poll is held")
    # This change needs a hand-over.
    gateway.rewrite(f"upstream: {{url: '{upstream.url}', headers: {{X-Version: '2'}}}}\nlog: {{access: all}}\n")
    await reloaded(gateway, 1)
    await eventually(lambda: len(upstream.requests) == 2 and upstream.connected == 1, what="a hand-over")
    assert not poll.done()
    await upstream.push("news")
    assert [message["data"] for message in (await poll).json["messages"]] == ["news"]
    assert "news" in (await stream.has(1))[0].data
    stream.close()


async def test_a_secret_that_the_file_names_takes_effect(start, tmp_path, upstream):
    secret = tmp_path / "token"
    secret.write_text("first\n")
    text = f"upstream: {{url: '{upstream.url}', headers: {{Authorization: 'Bearer ${{file:{secret}}}'}}}}\n"
    config = tmp_path / "drawbridge.yaml"
    config.write_text(text)
    await watching(start, None, upstream, config=config)
    assert upstream.requests[0].headers["Authorization"] == "Bearer first"
    (tmp_path / "new").write_text("second\n")
    (tmp_path / "new").rename(secret)
    await eventually(lambda: len(upstream.requests) == 2, what="a hand-over with the new secret")
    assert upstream.requests[1].headers["Authorization"] == "Bearer second"


async def test_an_invalid_file_is_reported_and_not_applied(start, tmp_path, upstream):
    gateway = await watching(start, tmp_path, upstream)
    before = (await gateway.metrics())["drawbridge_config_reload_success_time_seconds"]
    assert before > 0
    gateway.rewrite(gateway.base + "shutdown: {drain: soon}\n")
    error = await gateway.logs(lambda record: record["message"].startswith("the new configuration"), what="the error")
    assert "drawbridge.yaml:2:" in error["reason"]

    async def is_reported():
        return (await gateway.metrics())["drawbridge_config_reload_success"] == 0

    await eventually(is_reported, what="the metric reports it")
    assert (await gateway.client().get(wait=0)).status == 200
    gateway.rewrite(gateway.base)
    await reloaded(gateway, 1)

    async def is_successful():
        metrics = await gateway.metrics()
        time = metrics["drawbridge_config_reload_success_time_seconds"]
        return metrics["drawbridge_config_reload_success"] == 1 and time >= before

    await eventually(is_successful, what="the metrics report success")


async def test_the_same_content_makes_no_new_connection_but_sighup_does(start, tmp_path, upstream):
    gateway = await watching(start, tmp_path, upstream)
    gateway.rewrite(gateway.base)
    assert not (await reloaded(gateway, 1))[0]["changed"]
    assert len(upstream.requests) == 1
    gateway.signal(signal.SIGHUP)
    await eventually(lambda: len(upstream.requests) == 2, what="a hand-over")


async def test_sighup_after_a_change_that_has_taken_effect_makes_no_new_connection(start, tmp_path, upstream):
    gateway = await watching(start, tmp_path, upstream)
    client = gateway.client()
    gateway.rewrite(gateway.base + "log: {access: all}\n")
    await reloaded(gateway, 1)
    gateway.signal(signal.SIGHUP)
    await reloaded(gateway, 2)
    # If the last reload had requested a hand-over, it would have begun before this message was sent.
    await client.send("afterwards")
    await upstream.has_received(1)
    session = (await client.request("GET", "/v1/session")).json
    assert "replacing" not in [transition["to"] for transition in session["history"]]
    assert len(upstream.requests) == 1
    # The next reload finds no change.
    gateway.signal(signal.SIGHUP)
    await eventually(lambda: len(upstream.requests) == 2, what="a hand-over")


async def test_a_thousand_consecutive_changes_cause_few_reloads(start, tmp_path, upstream):
    gateway = await watching(start, tmp_path, upstream)
    for number in range(1000):
        (tmp_path / "new").write_text(gateway.base + f"shutdown: {{drain: {number}ms}}\n")
        (tmp_path / "new").rename(tmp_path / "drawbridge.yaml")
    # The last file takes effect: a client that does not finish its request delays the shutdown for at most this time.
    (tmp_path / "new").write_text(gateway.base + "shutdown: {drain: 50ms}\nlog: {access: all}\n")
    (tmp_path / "new").rename(tmp_path / "drawbridge.yaml")
    client = gateway.client()

    async def is_last():
        await client.get(wait=0)
        return any(record["message"] == "request" for record in gateway.records)

    await eventually(is_last, what="the last configuration is in effect")
    assert len(reloads(gateway)) <= 20
    _, writer = await asyncio.open_connection(*gateway.address())
    writer.write(b"GET /v1/mess")
    gateway.signal()
    assert await gateway.exit_status() == 0
    writer.close()


async def test_fewer_pushes_are_kept_without_a_restart(start, tmp_path, upstream):
    gateway = await watching(start, tmp_path, upstream)
    client = gateway.client()
    await upstream.push(*(f"push {number}" for number in range(10)))
    _, cursor = await client.collect(10, "earliest")
    gateway.rewrite(gateway.base + "delivery: {messages: 3}\n")
    await reloaded(gateway, 1)
    response = await client.get(cursor="earliest", wait=0)
    assert [message["data"] for message in response.json["messages"]] == ["push 7", "push 8", "push 9"]
    gateway.rewrite(gateway.base)
    await reloaded(gateway, 2)
    await upstream.push("another")
    assert (await client.collect(1, cursor))[0] == ["another"]
    assert len(upstream.requests) == 1


async def test_without_inotify_only_sighup_reloads(start, tmp_path, upstream):
    prefix = (sys.executable, Path(deny_netlink.__file__), "--inotify")
    gateway = await watching(start, tmp_path, upstream, prefix=prefix)
    warning = await gateway.logs(lambda record: "cannot watch the configuration" in record["message"], what="that")
    assert "send SIGHUP" in warning["message"]
    gateway.rewrite(gateway.base + "log: {access: all}\n")
    gateway.signal(signal.SIGHUP)
    assert (await reloaded(gateway, 1))[0]["changed"]


async def test_a_configuration_from_a_pipe_is_read_once(start, tmp_path, upstream):
    """The gateway does not watch the files in the configuration either, since a reload would find the pipe empty."""
    secret = tmp_path / "secret"
    secret.write_text("first")
    reading, writing = os.pipe()
    headers = f"headers: ['X-Secret: ${{file:{secret}}}']"
    os.write(writing, f"upstream: {{url: '{upstream.url}', {headers}}}\n".encode())
    os.close(writing)
    gateway = await watching(start, None, upstream, config=f"/dev/fd/{reading}", pass_fds=(reading,))
    os.close(reading)
    assert upstream.requests[0].headers["X-Secret"] == "first"
    watched = [path.readlink().name for path in Path(f"/proc/{gateway.process.pid}/fd").iterdir()]
    assert "anon_inode:inotify" not in watched
    assert (await gateway.client().get(wait=0)).status == 200
