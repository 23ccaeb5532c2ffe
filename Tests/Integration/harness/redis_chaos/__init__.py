"""Gateways that share a session on Redis, while everything that they need fails. See `run.py`."""
