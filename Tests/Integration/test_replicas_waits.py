"""Requests that wait for the next holder of a session end when the time of their clients is over."""

import asyncio
import json

from harness.replicas import LEASE
from harness.waiting import eventually


async def test_the_loss_of_a_holder_sends_no_message_after_its_ttl(replicas_for, recorder):
    recorder.respond = lambda text: json.dumps({"jsonrpc": "2.0", "result": True, "id": json.loads(text).get("id")})
    settings = {"upstream": {"url": recorder.url, "correlation": "jsonrpc"}}
    replicas = await replicas_for(lease=LEASE, settings=settings)
    holder = await replicas.holder()
    clients = [member.client() for member in await replicas.followers()]

    def call(client, number, wait):
        body = {"jsonrpc": "2.0", "id": number, "method": "m"}
        return client.request("POST", f"/v1/call?wait={wait}", json=body)

    assert (await call(clients[0], 0, "10s")).status == 200
    await holder.kill()
    # Each request waits until the holder's tenure has ended, which takes much longer than its own time.
    late = [client.send(json.dumps({"late": n}), headers={"TTL": "1"}) for n, client in enumerate(clients)]
    late += [client.send(json.dumps({"late": 2 + n}), headers={"TTL": "0"}) for n, client in enumerate(clients)]
    calls = [call(client, 100 + n, "500ms") for n, client in enumerate(clients)]
    patient = [client.send(json.dumps({"patient": n})) for n, client in enumerate(clients)]
    late, calls, patient = await asyncio.gather(asyncio.gather(*late), asyncio.gather(*calls), asyncio.gather(*patient))
    assert {response.problem(503)["type"].rpartition("/")[2] for response in late} == {"upstream-down"}
    # The forwarding gateway cannot know whether the holder executed a call that was written to its connection.
    assert {response.problem(response.status)["type"].rpartition("/")[2] for response in calls} <= {
        "holder-unavailable",
        "outcome-unknown",
    }
    assert [response.status for response in patient[:2]] == [202, 202]
    expected = {json.dumps({"patient": n}) for n in range(2)}
    await eventually(lambda: expected <= set(recorder.received), what="the patient messages are sent")
    assert not [text for text in recorder.received if "late" in text or json.loads(text).get("id", 0) in (100, 101)]
