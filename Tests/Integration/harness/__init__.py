"""The peers of the gateway under test: real clients, real upstreams, and ones that misbehave on purpose."""
