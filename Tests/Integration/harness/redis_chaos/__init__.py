"""Gateways that share a session on Redis, while everything that they depend on fails. See `run.py`."""
