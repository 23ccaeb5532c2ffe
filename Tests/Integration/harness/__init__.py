"""The peers of the gateway under test: real clients, real upstreams, and peers that misbehave on purpose."""
