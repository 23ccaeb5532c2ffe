"""Envoy with deploy/envoy/sidecar.yaml, on the ports of the tests."""

import asyncio
import json

import aiohttp
import yaml

from .gateway import PROJECT
from .ports import reserve_port
from .raw import RawUpstream, read_head, reset
from .reverse_proxies import Envoy

CONFIGURATION = PROJECT / "deploy/envoy/sidecar.yaml"


class Sidecar(Envoy):
    """Envoy in front of gateways, which are pairs of the address of the API and the port of the management listener.

    Envoy does not check a gateway whose port is None. `change(cluster)` may change the settings of the cluster.
    """

    def __init__(self, folder, gateways, change=None):
        super().__init__(folder, None)
        self.gateways = gateways
        self.admin_port = reserve_port()
        self._change = change

    def configuration(self):
        configuration = yaml.safe_load(CONFIGURATION.read_text())
        configuration["admin"]["address"] = self.at("127.0.0.1", self.admin_port)
        resources = configuration["static_resources"]
        resources["listeners"][0]["address"] = self.at(*self.address)
        cluster = resources["clusters"][0]
        endpoints = cluster["load_assignment"]["endpoints"][0]
        assert len(endpoints["lb_endpoints"]) == 2
        endpoints["lb_endpoints"] = [
            {"endpoint": {"address": self.at(*api), "health_check_config": {"port_value": management or api[1]}}}
            for api, management in self.gateways
        ]
        if any(management is None for _, management in self.gateways):
            del cluster["health_checks"]
        if self._change:
            self._change(cluster)
        return json.dumps(configuration)

    async def stats(self, name):
        """The value of a counter or gauge of the cluster."""
        url = f"http://127.0.0.1:{self.admin_port}/stats"
        only = {"filter": rf"^cluster\.drawbridge\.{name}$"}
        async with aiohttp.ClientSession() as http, http.get(url, params=only) as response:
            return int((await response.text()).partition(": ")[2] or 0)


class Loser(RawUpstream):
    """Passes requests with content to `target`. Instead of every second response, it resets the connection."""

    def __init__(self, target):
        super().__init__(self._relay)
        self.target = target
        self.requests = 0
        self.lost = 0

    @property
    def address(self):
        return "127.0.0.1", self.port

    async def _relay(self, reader, writer):
        far_reader, far_writer = await asyncio.open_connection(*self.target)
        try:
            while True:
                head, fields = await read_head(reader)
                far_writer.write(head + await reader.readexactly(int(fields.get("content-length", 0))))
                head, fields = await read_head(far_reader)
                content = await far_reader.readexactly(int(fields.get("content-length", 0)))
                self.requests += 1
                if self.requests % 2:
                    self.lost += 1
                    return reset(writer)
                writer.write(head + content)
        finally:
            far_writer.close()
