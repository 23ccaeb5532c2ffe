"""Half a minute of `make soak-redis`: gateways, Redis, Sentinels and networks fail, and nothing is lost silently."""

import pytest

from harness.redis_chaos.run import ChaosRun


@pytest.mark.load
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "seconds"), [("with WAIT", 20), ("without", 12)])
async def test_nothing_is_lost_silently_whatever_fails(tmp_path, measured, kind, seconds):
    run = ChaosRun(seconds, seed=1, folder=tmp_path, sentinels=kind == "with WAIT")
    verdict = await run.run()
    measured(str(verdict))
    assert verdict.faults == []
    # A run in which nothing happens would show nothing.
    assert verdict.states["confirmed"] > 50
    assert verdict.counts["connections"] > 1
    assert sum(verdict.done.values()) >= 3
