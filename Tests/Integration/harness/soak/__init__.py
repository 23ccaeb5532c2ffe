"""A long run of everything at once that accounts for each message: `make soak`."""
