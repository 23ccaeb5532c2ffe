"""A long run of all loads at once, which accounts for each message: `make soak`."""
