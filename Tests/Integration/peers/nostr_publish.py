"""Publishes an event on a Nostr relay: nostr_publish.py URL CONTENT. Fails unless the relay has accepted it."""

import asyncio
import json
import sys

import aiohttp
from aionostr.event import Event
from aionostr.key import PrivateKey


async def publish(url, content):
    key = PrivateKey()
    event = Event(pubkey=key.public_key.hex(), content=content, kind=1)
    event.sign(key.hex())
    async with aiohttp.ClientSession() as http, http.ws_connect(url) as relay:
        await relay.send_str(event.to_message())
        response = json.loads(await relay.receive_str())
        assert (response[0], response[2]) == ("OK", True), response


asyncio.run(publish(*sys.argv[1:]))
