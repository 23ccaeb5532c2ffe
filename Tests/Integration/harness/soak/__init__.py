"""A long run of everything at once, which accounts for each message: `make soak`."""
