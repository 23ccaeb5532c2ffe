"""The account of every message, while the upstream dies at random moments under load.

`scripts/soak --deaths` runs it with a thousand deaths.
"""

import pytest

from harness.kills import KillRun, push_settings, settings
from harness.push_loss import PushRun


@pytest.mark.load
@pytest.mark.timeout(180)
@pytest.mark.parametrize("redeliver", ["never", "unconfirmed"])
async def test_every_message_ends_once_with_the_reported_state(start, gateway_for, measured, redeliver):
    run = KillRun(50, seed=20261121, redeliver=redeliver)
    await start(run.upstream)
    gateway = await gateway_for(run.upstream, env=settings(redeliver), ready=False)
    verdict = await run.run(gateway)
    measured(str(verdict))
    assert verdict.faults == []
    # A run in which no message was at risk would prove nothing.
    assert verdict.states["confirmed"] > 200
    assert verdict.states["unknown"] > 0
    if redeliver == "unconfirmed":
        assert verdict.doubled > 0


@pytest.mark.load
@pytest.mark.timeout(180)
async def test_no_push_is_missing_without_a_gap(start, gateway_for, measured):
    run = PushRun(50, seed=20261121)
    await start(run.upstream)
    gateway = await gateway_for(run.upstream, env=push_settings(), ready=False)
    verdict = await run.run(gateway)
    measured(str(verdict))
    assert verdict.faults == []
    assert verdict.read > 500
    # Whether one of fifty connections loses a push is chance. `scripts/soak --deaths` has a thousand connections.
    assert verdict.gaps > 0
