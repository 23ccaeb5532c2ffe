"""Reasons why a target may be missed, by the kind of figure. The results show the reasons of missed targets."""

_NOTES = {
    "post": """
        POST: the floor does one read and one write per request and no other work. The C bridge does the work of a
        bridge and needs 1.4 times the time of the floor. Beyond that, Drawbridge refuses more malformed requests,
        records the delivery state of each message and pings the upstream for confirmations. With one core for the
        clients the rate also depends on them; the processor time per request does not.""",
    "connections": """
        A connection per POST: the floor, which only accepts, reads, responds and closes, needs two thirds of the
        time. Drawbridge also counts the connection against its limits, starts a task for it, and sets its
        deadlines. nchan forwards nothing.""",
    "batches": """
        Batches: each message has its own frame, delivery state and entry in the response. They take 2,560
        instructions per message, so the time depends on the machine.""",
    "poll": """
        Short poll: the floor sends a constant response, and the C bridge accepts one form of query. Drawbridge
        parses head and query, negotiates format and coding, and responds with the fields of all kinds of clients
        (`Link`, `ETag`, `Vary`). Three quarters of its time are the kernel's.""",
    "fanout": """
        Fan-out: a delivery includes the next poll of the same client, which is parsed, routed and held with a
        deadline. That is two thirds of the instructions. The floor has no cursors or deadlines.""",
    "latency": """
        Latency: most of the time is that of waking a sleeping processor, and differs between runs more than between
        servers. At 10,000 pushes per second a response contains all pushes that arrived since the last one.""",
    "echo": """
        Round trip: two turns of the event loop per message. At 100 messages per second most of the time is that of
        waking a processor that sleeps. The 99th percentile differs between runs more than between servers.""",
    "receive": """
        Receiving: each push is also rendered, once for all clients, and stored in the buffer under its lock.""",
    "tls": """
        TLS: ciphertext is copied through a separate queue to OpenSSL. With small records, the number of calls
        dominates.""",
    "held": """
        Held polls: each needs the state of its connection, a task with its frames, and a deadline.""",
    "streams": """
        Event streams: each needs the state of its connection, a position and a timer for its next keep-alive.""",
    "session": """
        Sessions: each needs a state machine, a queue, the states of its messages, and a task that reads.""",
    "spread": """
        Many sessions: each connection has its own frames, pings and pongs, so nothing is sent together. The C
        bridge needs 1.5 times the time as well. The rest is in the program: 35,000 instructions per POST to one of
        100 sessions, against 15,200 to one session.""",
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
