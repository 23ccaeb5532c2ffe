"""Half a minute of `make soak-redis`: gateways, Redis, Sentinels and networks fail, and nothing is lost silently."""

import pytest
from chaos_redis import KINDS

from harness.redis_chaos.run import ChaosRun


@pytest.mark.load
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "seconds"), [("wait-all", 20), ("single", 12)])
async def test_no_failure_causes_silent_loss(tmp_path, measured, kind, seconds):
    run = ChaosRun(seconds, seed=1, folder=tmp_path, **KINDS[kind])
    verdict = await run.run()
    measured(str(verdict))
    assert verdict.faults == []
    # A run without events would prove nothing. It begins with one fault of each important kind.
    assert verdict.states["confirmed"] > 50
    assert verdict.done["kill_holder"] >= 1
    assert verdict.done["drain_holder"] >= 1
    assert verdict.done["failover"] >= (kind != "single")
    assert verdict.counts["connections"] > 2
    assert verdict.counts["gaps"] > 0
    assert sum(verdict.done.values()) >= 6
