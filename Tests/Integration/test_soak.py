"""A minute of `make soak`: everything at once, and each message is accounted for."""

import pytest

from harness.soak.run import SoakRun


@pytest.mark.load
@pytest.mark.timeout(300)
async def test_every_message_of_the_soak_test_is_accounted_for(tmp_path, measured):
    run = SoakRun(50, seed=20261122, folder=tmp_path)
    accounts = await run.run()
    for name, text, _, _ in accounts:
        measured(f"{name}: {text}")
    assert [(name, faults) for name, _, count, faults in accounts if count] == []
    # A run without events would prove nothing.
    assert run.posts.states["confirmed"] > 200
    assert run.workers.handled > 200
    assert run.calls.outcomes["replied"] > 50
    assert sum(run.disruptions.done.values()) >= 5
    assert run.sessions.ends["deleted"] >= 5
    assert run.sessions.ends["idle"] >= 5
    assert run.sessions.states["confirmed"] > 50
