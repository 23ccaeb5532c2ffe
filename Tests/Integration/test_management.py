"""The management listener: probes for orchestrators, and metrics for monitoring."""

from harness.waiting import eventually


async def test_livez_is_up_even_if_the_upstream_is_down(gateway_for, upstream):
    await upstream.kill()
    gateway = await gateway_for(upstream, ready=False)
    assert (await gateway.manage("/livez")).status == 200
    assert (await gateway.manage("/readyz")).status == 503
    await upstream.start()
    await gateway.ready()
    assert (await gateway.manage("/readyz")).status == 200
    await upstream.kill()

    async def is_unready():
        return (await gateway.manage("/readyz")).status == 503

    await eventually(is_unready, what="/readyz says that the upstream is gone")
    assert (await gateway.manage("/livez")).status == 200


async def test_metrics_count_requests_messages_and_connections(gateway, upstream):
    before = await gateway.metrics()
    client = gateway.client()
    cursor = await client.here()
    for number in range(10):
        await client.accepted(f"message {number}")
    await upstream.has_received(10)
    await upstream.push("one", "two")
    await client.collect(2, cursor)
    after = await gateway.metrics()
    grown = {name: value - before.samples.get(key, 0) for key, value in after.samples.items() for name in [key[0]]}
    assert 10 in grown.values(), "something counts messages that were sent"
    assert 2 in grown.values(), "something counts messages that were received"
    assert all(name.startswith(("drawbridge_", "process_")) for name, _ in after.samples)
    assert {name for name, _ in after.samples if name.endswith("_total")} <= after.types


async def test_the_content_type_of_metrics_is_what_scrapers_expect(gateway):
    response = await gateway.manage("/metrics")
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")


async def test_the_management_paths_are_not_on_the_public_listener(gateway):
    for path in ("/metrics", "/livez", "/readyz"):
        (await gateway.client().request("GET", path)).problem(404)


async def test_the_management_listener_serves_only_the_api_of_the_public_paths(gateway):
    assert (await gateway.manage("/v1/messages?wait=0")).status == 200
    assert (await gateway.manage("/openapi.yaml")).status == 404


async def test_the_session_document_has_the_state(gateway, upstream):
    session = await gateway.client().session()
    assert session["state"] == "ready"
    assert session["desired"] == "up"


async def test_the_log_is_json_lines_without_payloads(gateway, upstream):
    client = gateway.client()
    cursor = await client.here()
    await client.accepted("SECRET-PAYLOAD-UP", headers={"Authorization": "Bearer SECRET-TOKEN"})
    await upstream.has_received(1)
    await upstream.push("SECRET-PAYLOAD-DOWN")
    await client.collect(1, cursor)
    await gateway.stop()
    assert "SECRET" not in gateway.output
    assert all(isinstance(record, dict) for record in gateway.records)
