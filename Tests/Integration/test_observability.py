"""The dashboard, the alert rules and the histograms, with a real Prometheus that scrapes a running gateway."""

import asyncio
import json
import re
import shutil
import subprocess

import aiohttp
import pytest

from harness.deployed import manifest
from harness.gateway import PROJECT
from harness.https import listening
from harness.program import find
from harness.prometheus import (
    RULE_TESTS,
    RULES,
    Prometheus,
    alerts,
    dashboard_queries,
    dashboard_units,
    dashboard_variables,
    metric_names,
)
from harness.receiver import Receiver, config, webhook
from harness.tokens import bearer
from harness.upstream import Upstream
from harness.waiting import eventually

JSON = {"Content-Type": "application/json"}
CALLS = {"DRAWBRIDGE_UPSTREAM_CORRELATION": "jsonrpc"}


class Replier(Upstream):
    """Replies to a call after the number of seconds in its parameter."""

    async def _react(self, connection, message):
        request = json.loads(message)
        if "id" in request:
            await asyncio.sleep(request["params"])
            await connection.send(json.dumps({"id": request["id"], "result": True}))


class Traffic:
    """Repeats all activities that the dashboard shows: messages, polls, streams, calls and a consumer."""

    def __init__(self, gateway, upstream, token, recorder):
        self.gateway = gateway
        self.upstream = upstream
        self.token = token
        #: The recorder is the upstream of the gateways on Redis.
        self.recorder = recorder

    async def run(self):
        async with aiohttp.ClientSession(self.gateway.url(), headers=bearer(self.token)) as self.http:
            await self._request("PUT", "/v1/consumers/jobs", {"share": True})
            async with asyncio.TaskGroup() as group:
                for step in (self._send, self._poll, self._stream, self._call, self._work, self._push):
                    group.create_task(self._repeat(step))

    async def _repeat(self, step):
        while True:
            await step()

    async def _request(self, method, path, content=None):
        async with self.http.request(method, path, json=content) as response:
            body = await response.read()
            assert response.status < 300, (path, response.status, body)
            return json.loads(body)

    async def _send(self):
        await self._request("POST", "/v1/messages", {})
        await self._request("GET", "/v1/session")
        await asyncio.sleep(0.05)

    async def _poll(self):
        await self._request("GET", "/v1/messages?wait=5&cursor=latest")

    async def _stream(self):
        async with self.http.get("/v1/messages", headers={"Accept": "text/event-stream"}) as response:
            assert response.status == 200
            async for _ in response.content:
                pass

    async def _call(self):
        await self._request("POST", "/v1/call", {"id": 1, "params": 0.01})

    async def _work(self):
        batch = await self._request("POST", "/v1/consumers/jobs/receive?wait=5")
        if leases := [message["lease"] for message in batch["messages"]]:
            await self._request("POST", "/v1/consumers/jobs/settle", {"ack": leases})

    async def _push(self):
        await self.upstream.push('{"news":1}')
        self.recorder.push()
        await asyncio.sleep(0.05)


@pytest.mark.timeout(180)
async def test_every_query_of_the_dashboard_and_of_the_alert_rules_returns_data(
    start, gateway_for, replicas_for, recorder, tmp_path, store_path, certificate, tokens, measured
):
    upstream = await start(Replier())
    arguments, env = listening(certificate)
    token = tokens.add("tester", scopes="send,receive,call,admin")
    env |= {
        **CALLS,
        "DRAWBRIDGE_STORE_ENGINE": "sqlite",
        "DRAWBRIDGE_STORE_PATH": str(store_path),
        "DRAWBRIDGE_AUTHENTICATION_TOKENS": str(tokens.path),
    }
    settings = config(webhook(await start(Receiver())))
    gateway = await gateway_for(upstream, *arguments, env=env, config=settings)
    # Two further gateways, for the metrics of a store in Redis: a holder and a follower.
    replicas = await replicas_for(2)
    targets = [each.address("management") for each in (gateway, *(replica.gateway for replica in replicas))]
    prometheus = await start(Prometheus(tmp_path, targets))
    traffic = asyncio.create_task(Traffic(gateway, upstream, token, recorder).run())
    try:
        queries = dashboard_queries()
        assert len(queries) > 50
        missing = set(queries.values())

        async def all_return_data():
            if traffic.done():
                traffic.result()
            for query in list(missing):
                if await prometheus.has_data(query):
                    missing.discard(query)
            return not missing

        try:
            await eventually(all_return_data, within=60)
        except AssertionError:
            raise AssertionError(f"no data: {[name for name, query in queries.items() if query in missing]}") from None

        # The dashboard's variables have values, the rules are evaluated, and all metrics in them exist.
        for name, (series, label) in dashboard_variables().items():
            found = await prometheus.ask("series", **{"match[]": series})
            assert any(label in labels for labels in found), name
        names = set(await prometheus.ask("label/__name__/values"))
        for name, rule in alerts().items():
            await prometheus.ask("query", query=rule["expr"])
            assert metric_names(rule["expr"]) <= names, (name, metric_names(rule["expr"]) - names)

        async def all_are_healthy():
            groups = (await prometheus.ask("rules"))["groups"]
            rules = [rule for group in groups for rule in group["rules"]]
            assert {rule["name"] for rule in rules} == alerts().keys()
            return all(rule["health"] == "ok" for rule in rules)

        await eventually(all_are_healthy, what="each rule was evaluated")
        active = []

        async def none_is_active():
            active[:] = [alert["labels"]["alertname"] for alert in (await prometheus.ask("alerts"))["alerts"]]
            # This alert is expected: the certificate of the tests is valid for about a day.
            return set(active) <= {"DrawbridgeCertificateExpires"}

        # A rule that was evaluated before the first metrics were read stays pending until its next evaluation.
        await eventually(none_is_active, what=lambda: f"no other alert is active: {active}")
        measured(f"{len(queries)} queries of the dashboard and {len(alerts())} alert rules return data")
    finally:
        traffic.cancel()
        await asyncio.gather(traffic, return_exceptions=True)


def test_each_alert_fires_when_it_should_and_only_then():
    promtool = find("promtool")
    subprocess.run([promtool, "check", "rules", RULES], check=True)
    subprocess.run([promtool, "test", "rules", RULE_TESTS], check=True)
    tested = RULE_TESTS.read_text()
    for name in alerts():
        # Each alert is tested at least twice: in a gateway without problems, and with its problem.
        assert len(re.findall(rf"alertname: {name}\b", tested)) >= 2, name


def test_prometheus_accepts_the_configurations_in_operations(tmp_path):
    shutil.copy(RULES, tmp_path)
    text = (PROJECT / "docs/operations.md").read_text()
    blocks = [block for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "scrape_configs" in block]
    assert len(blocks) == 2
    for block in blocks:
        path = tmp_path / "prometheus.yml"
        # Debian's Prometheus does not support Kubernetes.
        path.write_text(block.replace("kubernetes_sd_configs: [{role: endpointslice}]", "static_configs: []"))
        subprocess.run([find("promtool"), "check", "config", path], check=True)
        # The rules find the job by its name.
        assert re.search(r"job_name: drawbridge\b", block)
    service, port = re.search(r"regex: (\S+);(\S+)", blocks[1]).groups()
    assert port in [each["name"] for each in manifest("Service", service)["spec"]["ports"]]


def test_each_query_of_the_dashboard_has_the_unit_of_its_axis():
    for name, (unit, query) in dashboard_units().items():
        # With `vector()`, the query would return data even if the name of the metric were wrong.
        assert "vector(" not in query, name
        if re.search(r"_bytes(_total)?\{", query):
            assert unit == ("Bps" if "rate(" in query else "bytes"), (name, unit)
        else:
            assert unit not in ("Bps", "bytes"), (name, unit)
        if "_seconds_bucket" in query or re.search(r"_age_seconds\{", query):
            assert unit == "s", (name, unit)


def test_operations_explains_each_alert_and_histogram():
    text = (PROJECT / "docs/operations.md").read_text()
    for name in alerts():
        assert f"`{name}`" in text, name
    for query in dashboard_queries().values():
        for name in metric_names(query):
            if name.endswith("_bucket"):
                assert f"`{name.removesuffix('_bucket')}" in text, name


# -- Histograms -------------------------------------------------------------------------------------------------------


class Histogram:
    """The number of observed durations between two readings, and their sum."""

    def __init__(self, gateway, name, labels=""):
        self._gateway, self._name, self._labels = gateway, name, labels
        self._before = 0, 0

    async def _read(self):
        samples = (await self._gateway.metrics()).samples
        buckets = [
            value
            for (name, labels), value in samples.items()
            if name == f"{self._name}_bucket" and labels.startswith(self._labels)
        ]
        assert buckets == sorted(buckets), buckets
        assert buckets[-1] == samples[f"{self._name}_count", self._labels]
        return buckets[-1], samples[f"{self._name}_sum", self._labels]

    async def begin(self):
        self._before = await self._read()
        return self

    async def change(self):
        after = await self._read()
        return tuple(now - then for now, then in zip(after, self._before, strict=True))

    async def counts(self, count):
        """Waits for `count` further durations. The gateway counts a response after sending it."""

        async def is_counted():
            return (await self.change())[0] >= count

        await eventually(is_counted, what=f"{count} in {self._name}")
        assert (await self.change())[0] == count
        return (await self.change())[1]


async def test_request_durations_are_counted_by_kind_without_held_requests(gateway, upstream):
    client = gateway.client()
    send, poll, push = [
        await Histogram(gateway, f"drawbridge_{name}_seconds", label).begin()
        for name, label in (
            ("http_request", 'request="send"'),
            ("http_request", 'request="poll"'),
            ("push_delivery", 'to="poll"'),
        )
    ]
    for _ in range(3):
        await client.accepted("a")
    cursor = await client.here()
    assert 0 < await send.counts(3) < 3
    await poll.counts(1)
    held = asyncio.create_task(client.get(cursor=cursor, wait=20))

    async def is_held():
        return (await gateway.metrics())["drawbridge_polls_held"] == 1

    await eventually(is_held, what="the poll is held")
    await upstream.push("news")
    assert (await held).json["messages"]
    assert 0 < await push.counts(1) < 1
    # The push existed before the poll, so its delay is due to the client and is not counted for the gateway.
    await client.get(cursor=cursor, wait=20)
    await poll.counts(2)
    await push.counts(1)


async def test_a_call_takes_as_long_as_the_upstream_needs(start, gateway_for):
    upstream = await start(Replier())
    gateway = await gateway_for(upstream, env=CALLS)
    calls = await Histogram(gateway, "drawbridge_call_seconds").begin()
    response = await gateway.client().request("POST", "/v1/call", data='{"id":1,"params":0.3}', headers=JSON)
    assert response.status == 200
    assert 0.3 <= await calls.counts(1) < 10


async def test_a_confirmation_takes_until_the_upstream_responds_to_a_ping(gateway, upstream):
    client = gateway.client()
    confirmations = await Histogram(gateway, "drawbridge_confirmation_seconds").begin()
    upstream.pause_reading()
    loop = asyncio.get_running_loop()
    began = loop.time()
    await client.accepted("late")
    # The test measures this delay, during which the upstream does not read.
    await eventually(lambda: loop.time() - began > 0.3, what="time passes")
    upstream.resume_reading()
    assert 0.25 <= await confirmations.counts(1) < 10


async def test_a_post_that_is_stored_first_takes_until_then(gateway_for, upstream, store_path):
    env = {"DRAWBRIDGE_STORE_ENGINE": "sqlite", "DRAWBRIDGE_STORE_PATH": str(store_path)}
    gateway = await gateway_for(upstream, env={**env, "DRAWBRIDGE_STORE_SYNC": "always"})
    send = await Histogram(gateway, "drawbridge_http_request_seconds", 'request="send"').begin()
    commits = await Histogram(gateway, "drawbridge_store_commit_seconds").begin()
    for _ in range(5):
        await gateway.client().accepted("a")
    assert 0 < await send.counts(5) < 5
    assert (await commits.change())[0] >= 5
