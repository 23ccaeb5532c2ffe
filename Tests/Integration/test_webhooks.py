"""Webhooks: consumers whose worker is the gateway."""

import asyncio
import json
import os
import re
import sys
import time
from datetime import UTC, datetime

import aiohttp
import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from harness.gateway import PROJECT, run
from harness.ports import reserve_port
from harness.receiver import Receiver, config, new_secret, settled, state, webhook
from harness.waiting import eventually


async def test_pushes_are_delivered_in_order_signed_and_as_polls_return_them(hooked, start, upstream):
    receiver = await start(Receiver())
    gateway = await hooked(webhook(receiver))
    client = gateway.client()
    here = await client.here()
    await upstream.push("a", '{"b": 1}', b"\0\xff")
    deliveries = await receiver.has(3)
    polled = (await client.poll(cursor=here)).messages
    assert [delivery.push for delivery in deliveries] == polled
    for delivery, message in zip(deliveries, polled, strict=True):
        assert delivery.is_signed_with(receiver.secret)
        assert delivery.id == "msg_" + message["id"].removeprefix("p-").replace(".", "_")
        assert delivery.headers["Content-Type"] == "application/json"
        assert abs(int(delivery.headers["webhook-timestamp"]) - time.time()) < 60
        with pytest.raises(WebhookVerificationError):
            delivery.is_signed_with(new_secret())
    assert len(receiver.connections) == 1, "the connection is kept"
    consumer = await settled(gateway, messages=0)
    assert consumer["webhook"] == {
        "origin": f"http://127.0.0.1:{receiver.port}", "state": "active", "requests": 0, "next_attempt": None,
        "last_failure": None,
    }  # fmt: skip
    metrics = await gateway.metrics()
    assert metrics.samples["drawbridge_webhook_attempts_total", 'webhook="hook",result="delivered"'] == 3
    assert metrics["drawbridge_webhook_attempt_seconds_count"] == 3
    assert metrics["drawbridge_webhook_lag_messages"] == 0
    assert metrics["drawbridge_webhook_disabled"] == 0
    assert "hidden" not in gateway.output
    assert receiver.secret not in gateway.output


async def test_both_secrets_of_a_rotation_sign(hooked, start, upstream, tmp_path):
    receiver = await start(Receiver())
    old, new = new_secret(), new_secret()
    file = tmp_path / "secret"
    file.write_text(old + "\n")
    settings = webhook(receiver, secrets=[f"${{file:{file}}}"])
    gateway = await hooked(settings)
    await upstream.push("before")
    (first,) = await receiver.has(1)
    assert first.is_signed_with(old)
    gateway.rewrite(config({**settings, "secrets": [f"${{file:{file}}}", new]}))
    gateway.signal(1)
    await gateway.logs(lambda record: record["message"] == "configuration reloaded", what="the reload")
    await upstream.push("during")
    during = (await receiver.has(2))[1]
    assert during.is_signed_with(old)
    assert during.is_signed_with(new)
    file.write_text(new)
    gateway.rewrite(config(settings))
    gateway.signal(1)
    await eventually(lambda: gateway.output.count("configuration reloaded") == 2, what="the second reload")
    await upstream.push("after")
    after = (await receiver.has(3))[2]
    assert after.is_signed_with(new)
    with pytest.raises(WebhookVerificationError):
        after.is_signed_with(old)
    assert receiver.payloads == ["before", "during", "after"]


async def test_dead_letters_can_be_read_and_sent_again_manually(hooked, start, upstream):
    works = False
    receiver = await start(Receiver(lambda n, delivery: 204 if works or delivery.data == "good" else 500))
    gateway = await hooked(webhook(receiver, retries=["50ms", "50ms"]))
    client = gateway.client()
    await upstream.push("bad", "good")
    await receiver.has(4)
    assert receiver.payloads == ["bad"] * 3 + ["good"]
    await settled(gateway, messages=1)
    letters = (await client.request("GET", "/v1/consumers/hook/dead")).json
    assert [(letter["data"], letter["reason"], letter["deliveries"]) for letter in letters["messages"]] == [
        ("bad", "rejected", 3)
    ]
    works = True
    assert (await client.request("POST", "/v1/consumers/hook/dead/retry")).json == {"retried": 1}
    again = (await receiver.has(5))[4]
    assert again.data == "bad"
    assert again.id == receiver.deliveries[0].id
    await settled(gateway, messages=0)


async def test_clients_cannot_use_the_consumer_of_a_webhook(hooked, start, upstream):
    receiver = await start(Receiver())
    gateway = await hooked(webhook(receiver))
    client = gateway.client()
    for method, path, body in [
        ("PUT", "", {"share": True, "order_by": "all"}),
        ("DELETE", "", None),
        ("POST", "/receive?wait=0", None),
        ("POST", "/settle", {"ack": []}),
    ]:
        response = await client.request(method, f"/v1/consumers/hook{path}", json=body)
        problem = response.problem(409)
        assert problem["type"] == "/errors/consumer-conflict"
        assert "webhook" in problem["detail"]
    await upstream.push("a")
    await receiver.has(1)


async def held_receiver(start):
    """A receiver, and the event for which it waits before it responds."""
    release = asyncio.Event()

    async def respond(n, delivery):
        await release.wait()
        return 204

    return await start(Receiver(respond)), release


async def test_a_webhook_has_topics_and_concurrency(hooked, start, upstream):
    receiver, release = await held_receiver(start)
    only = webhook(receiver, topics=["orders.*"], concurrency=3, order_by="topic")
    gateway = await hooked(only, more={"upstream": {"topic": {"pointer": "/topic"}}})
    for number in range(3):
        for topic in ["orders.a", "orders.b", "other", "orders.a"]:
            await upstream.push(json.dumps({"topic": topic, "number": number}))
    await receiver.has(2)
    assert (await state(gateway))["webhook"]["requests"] == 2, "one request for each topic"
    release.set()
    await receiver.has(9)
    for topic, expected in {"orders.a": [0, 0, 1, 1, 2, 2], "orders.b": [0, 1, 2]}.items():
        assert [data["number"] for data in receiver.payloads if data["topic"] == topic] == expected
    await settled(gateway, messages=0)


async def test_a_reload_adds_changes_and_removes_webhooks(hooked, start, upstream):
    first, second = await start(Receiver()), await start(Receiver())
    gateway = await hooked(webhook(first))
    reloads = 0

    async def reload(*webhooks):
        nonlocal reloads
        gateway.rewrite(config(*webhooks))
        gateway.signal(1)
        reloads += 1
        await eventually(lambda: gateway.output.count("configuration reloaded") == reloads, what="a reload")

    await upstream.push("1")
    await first.has(1)
    await reload(webhook(first), webhook(second, name="new"))
    await eventually(lambda: exists(gateway, "new"), what="the new webhook exists")
    await upstream.push("2")
    await first.has(2)
    await second.has(1)
    await reload(webhook(second))
    await upstream.push("3")
    await second.has(2)
    assert (await state(gateway, "new"))["webhook"] is None, "what was removed is an ordinary consumer"
    assert (await state(gateway, "new"))["lag"] == 1
    await reload(webhook(second), webhook(first, name="new"))
    await first.has(3)
    assert first.payloads == [1, 2, 3]
    assert second.payloads == [2, 3]


async def test_a_webhook_that_is_removed_and_added_during_a_request_waits_for_it(hooked, start, upstream):
    receiver, release = await held_receiver(start)
    gateway = await hooked(webhook(receiver))
    await upstream.push("a", "b")
    await receiver.has(1)
    for count, webhooks in enumerate(([], [webhook(receiver)]), 1):
        gateway.rewrite(config(*webhooks))
        gateway.signal(1)
        await eventually(lambda count=count: gateway.output.count("configuration reloaded") == count, what="a reload")

        async def is_applied(webhooks=webhooks):
            return bool((await state(gateway))["webhook"]) == bool(webhooks)

        await eventually(is_applied, what="the reload is applied")
    assert receiver.payloads == ["a"], "no second request for the same push"
    release.set()
    await receiver.has(2)
    assert receiver.payloads == ["a", "b"]
    await settled(gateway, messages=0)


async def exists(gateway, name):
    return (await gateway.client().request("GET", f"/v1/consumers/{name}")).status == 200


async def test_a_request_in_progress_ends_before_the_gateway(hooked, start, upstream):
    asked, release = asyncio.Event(), asyncio.Event()

    async def respond(n, delivery):
        asked.set()
        await release.wait()
        return 204

    receiver = await start(Receiver(respond))
    gateway = await hooked(webhook(receiver))
    await upstream.push("a", "b")
    await asyncio.wait_for(asked.wait(), 30)
    gateway.signal()
    await gateway.logs(lambda record: record["message"] == "draining", what="the drain")
    release.set()
    assert await gateway.exit_status() == 0
    assert receiver.payloads == ["a"], "no request begins during the shutdown"
    assert any(record["message"] == "stopped" and record["orderly"] for record in gateway.records)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"url": "ftp://a/"}, "it does not begin with http:// or https://"),
        (
            {"url": "http://user:word@10.0.0.1/"},
            "the address is private, which is refused unless 'addresses.allow' of the webhook",
        ),
        ({"secrets": ["x"]}, "use whsec_ and the base64 of 24 to 64 random bytes"),
        ({"secrets": []}, "needs 'secrets'"),
        ({"concurrency": 0}, "use a number from 1 to 64"),
        ({"retries": ["21h"]}, "use a duration from 10ms to 20h"),
        ({"name": "."}, "letters, digits, dots, hyphens and underscores"),
        ({"order_by": "topic"}, "has no effect with concurrency 1"),
        ({"ca_file": "/nowhere"}, "'[0].ca_file' cannot be used"),
        ({"colour": "red"}, "unknown key 'webhooks[0].colour'"),
    ],
)
async def test_check_config_says_what_is_wrong(change, message, tmp_path):
    path = tmp_path / "d.yaml"
    receiver = Receiver()
    settings = {**webhook(receiver, url="https://example.org/", allow=False), **change}
    path.write_text(config(settings, upstream={"url": "ws://127.0.0.1:1/"}))
    status, out, err = await run("check-config", "--config", path)
    assert status == 78, out + err
    assert message in out + err, out + err
    assert "word" not in (out + err).replace("underscore", ""), "no secret is shown"


def example(language):
    """The code blocks of docs/webhooks.md in that language."""
    return re.findall(rf"```{language}\n(.*?)```", (PROJECT / "docs/webhooks.md").read_text(), re.DOTALL)


async def test_the_receiver_of_the_page_verifies_and_repeats_nothing(hooked, upstream, tmp_path):
    (program,) = example("python")
    port, old, new = reserve_port(), new_secret(), new_secret()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        env={**os.environ, "PORT": str(port), "WEBHOOK_SECRETS": f"{old} {new}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await eventually(lambda: listens(port), what="the receiver listens")
        url = f"http://127.0.0.1:{port}/events"
        gateway = await hooked(
            webhook(None, url=url, name="old", secrets=[old]),
            webhook(None, url=url, name="both", secrets=[new_secret(), new]),
            webhook(None, url=url, name="foreign", secrets=[new_secret()], retries=[]),
        )
        await upstream.push("a", '{"order": 17}')
        lines = [await asyncio.wait_for(process.stdout.readline(), 30) for _ in range(2)]
        assert lines == [b"received a\n", b"received {'order': 17}\n"], (
            "each push once, although two webhooks deliver it"
        )
        for name in ["old", "both"]:
            await eventually(lambda name=name: lag(gateway, name, 0), what=f"{name} has delivered everything")

        async def refused():
            return (await state(gateway, "foreign"))["webhook"]["last_failure"]

        assert (await eventually(refused))["status"] == 401
        now = str(int(time.time()) - 600)
        body = b'{"data":"old"}'
        headers = {"webhook-id": "msg_x", "webhook-timestamp": now}
        headers["webhook-signature"] = Webhook(old).sign("msg_x", datetime.fromtimestamp(int(now), UTC), body.decode())
        async with aiohttp.ClientSession() as http, http.post(url, data=body, headers=headers) as response:
            assert response.status == 401, "a request of ten minutes ago is not genuine"
    finally:
        process.kill()
        await process.wait()


async def listens(port):
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def lag(gateway, name, expected):
    return (await state(gateway, name))["lag"] == expected


async def test_the_configuration_of_the_page_is_accepted(tmp_path):
    text, addresses = example("yaml")
    (tmp_path / "billing.secret").write_text(new_secret())
    path = tmp_path / "d.yaml"
    text = text.replace("billing.secret", str(tmp_path / "billing.secret"))
    path.write_text("upstream: {url: 'ws://127.0.0.1:1/'}\n" + text + addresses)
    status, out, err = await run("check-config", "--config", path)
    assert status == 0, out + err


async def test_check_config_shows_no_secrets(tmp_path):
    path = tmp_path / "d.yaml"
    receiver = Receiver()
    path.write_text(
        config(
            webhook(receiver, url="https://u:hidden@example.org/hidden?hidden"), upstream={"url": "ws://127.0.0.1:1/"}
        )
    )
    status, out, err = await run("check-config", "--config", path)
    assert status == 0, out + err
    assert "hidden" not in out + err
    assert receiver.secret not in out + err
    assert "https://example.org/***" in out
