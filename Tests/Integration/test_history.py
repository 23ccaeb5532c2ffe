"""The rates of the last minutes, which the gateway keeps for the status page."""

from harness.tokens import bearer
from harness.waiting import eventually


async def test_the_history_has_samples_from_before_its_first_reader(gateway_for, upstream, tokens):
    token = tokens.add("a", scopes="send,receive")
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_AUTHENTICATION_TOKENS": str(tokens.path)})
    await upstream.push("one", "two", "three")
    response = await gateway.client().request("POST", "/v1/messages", data="x", headers=bearer(token))
    assert response.status == 202

    async def samples():
        return (await gateway.manage("/history")).json["samples"]

    await eventually(samples, what="the first interval has ended")

    async def is_counted():
        rows = await samples()
        return sum(row["received_per_second"] for row in rows) > 0 and rows[-1]["round_trip_seconds"] is not None

    await eventually(is_counted, what="the messages and a round trip are in the history")
    rows = await samples()
    assert sum(row["accepted_per_second"] for row in rows) > 0
    assert [row["seconds_ago"] for row in rows] == sorted((row["seconds_ago"] for row in rows), reverse=True)
    (await gateway.client().request("GET", "/history", headers=bearer(token))).problem(404)
