"""Sanitizers: their options, and measurements that have no meaning with one.

`scripts/test --sanitize` sets the variable. All other tests run as usual.
"""

import os

import pytest

_SANITIZER = os.environ.get("DRAWBRIDGE_SANITIZER")


def options():
    """The sanitizer's variables, for a program that starts with an environment of its own."""
    return {name: os.environ[name] for name in ("ASAN_OPTIONS", "TSAN_OPTIONS") if name in os.environ}


def memory_is_judged():
    """Skips the rest of a test under a sanitizer. Call it when only the measurement of memory is left."""
    if _SANITIZER:
        pytest.skip(f"memory is not judged under the {_SANITIZER} sanitizer: it keeps what the program frees")


def skip_load(items):
    """Skips the tests that are marked 'load' under a sanitizer."""
    if _SANITIZER:
        reason = f"load is for the program as it ships: under the {_SANITIZER} sanitizer it is several times slower"
        for item in items:
            if item.get_closest_marker("load"):
                item.add_marker(pytest.mark.skip(reason=reason))
