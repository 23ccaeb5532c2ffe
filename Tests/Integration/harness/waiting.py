"""Waiting for facts. A test does not sleep: it names a fact, and a deadline after which it fails."""

import asyncio
import inspect
import time


async def eventually(fact, *, within=30.0, what=None):
    """Calls `fact` (plain or async) until its result is true, and returns the result.

    `within` only ends a test that has failed, so it leaves time for a busy machine. `what` names the fact, as a text or
    as a function that returns a text.
    """
    deadline = time.monotonic() + within
    while True:
        outcome = fact()
        if inspect.isawaitable(outcome):
            outcome = await outcome
        if outcome:
            return outcome
        if time.monotonic() > deadline:
            name = what() if callable(what) else what or inspect.getsource(fact).strip()
            raise AssertionError(f"not within {within} s: {name}; last: {outcome!r}")
        await asyncio.sleep(0.01)
