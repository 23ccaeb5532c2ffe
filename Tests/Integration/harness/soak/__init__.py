"""A long run of everything at once, in which each message is accounted for: `make soak`."""
