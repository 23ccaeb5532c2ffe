"""Reasons why a target may be missed, by the kind of figure. The results show those of missed targets."""

_NOTES = {
    "post": """
        POST: the floor does one read and one write per request. Drawbridge also validates head and body, writes a
        frame to the upstream, and records the delivery state of the message. With one core for the clients the rate
        also depends on them; the processor time per request does not.""",
    "connections": """
        A connection per POST: the floor accepts, reads, responds and closes. Drawbridge also counts the connection
        against its limits, starts a task for it, and sets its deadlines.""",
    "batches": """
        Batches: each message has its own frame, delivery state and entry in the response.""",
    "poll": """
        Short poll: the floor sends a constant response. Drawbridge parses head and query, reads the buffer under
        its lock, and renders a head.""",
    "fanout": """
        Fan-out: a delivery includes the next poll of the same client. Each wakes a task, writes the response, parses
        the next request, and registers it with a deadline. The floor has no tasks, cursors or deadlines.""",
    "latency": """
        Latency: in addition to the system calls of the floor, two tasks are woken, one of the session and one of the
        poll. At 10,000 pushes per second a response contains all pushes that arrived since the last one.""",
    "echo": """
        Round trip: two tasks are woken per message, one of the session and one of the poll. At 100 messages per second
        most of the time is that of waking a processor that sleeps.""",
    "receive": """
        Receiving: each push is also rendered, once for all clients, and stored in the buffer under its lock.""",
    "tls": """
        TLS: ciphertext is copied through a separate queue to OpenSSL. With small records, the number of calls
        dominates.""",
    "held": """
        Held polls: each needs the state of its connection, a task with its frames, and a deadline.""",
    "session": """
        Sessions: each needs a state machine, a queue, the states of its messages, and a task that reads.""",
    "inflate": """
        permessage-deflate: each message is also checked to be UTF-8, and its frame to be valid.""",
    "utf8": """
        UTF-8: sixteen bytes are looked up at a time. Short texts cost the call and their last block.""",
    "deflate": """
        permessage-deflate: the compressed message is also masked and framed.""",
}


def note(key: str) -> str | None:
    text = _NOTES.get(key.split("_")[0])
    return " ".join(text.split()) if text else None
