"""What stands in the way of a target, by the figure's kind: printed where one is missed, and only there."""

_NOTES = {
    "post": """
        POST: the floor costs one read and one write. Drawbridge adds the check of head and body, a frame to
        the upstream, and the account by which a client can ask what became of its message. With one core
        for the clients the rate also depends on them; the processor time a request does not.""",
    "poll": """
        Short poll: the floor's answer is a constant. Drawbridge parses head and query, looks into the
        buffer under its lock, and renders a head.""",
    "fanout": """
        Fan-out: a delivery includes the next poll of the same client. Each wakes a task, writes, reads and
        parses the next request, and registers again, with a deadline; the floor has neither task nor cursor
        nor deadline.""",
    "latency": """
        Latency: two tasks are woken, the session's and the poll's, on top of the system calls of the floor.
        At 10,000 pushes a second an answer holds whatever came meanwhile.""",
    "receive": """
        Receiving: whatever arrives is also rendered, once for all readers, and goes into the buffer under
        its lock.""",
    "tls": """
        TLS: ciphertext passes a queue of our own on its way to OpenSSL, and with small records the calls
        count.""",
    "held": """
        Held polls: each keeps its connection's state, a task with its frames, and a deadline.""",
    "session": """
        Sessions: each keeps its machine, its queue and its account of messages, and a task that reads.""",
    "inflate": """
        permessage-deflate: every message is also checked to be UTF-8, and its frame to be in order.""",
    "utf8": """
        UTF-8: this is the standard library's validator. A table-driven one in C would be faster on such text by a
        few times, and slower on ASCII, which most messages are.""",
    "deflate": """
        permessage-deflate: what was compressed is also masked and framed.""",
}


def note(key: str) -> str | None:
    text = _NOTES.get(key.split("_")[0])
    return " ".join(text.split()) if text else None
