"""Reverse proxies in front of the gateway: nginx, HAProxy and Envoy with their default settings."""

import json
import os

from .program import Program


class ReverseProxy(Program):
    """Passes every request to the gateway at `target`, a host and a port. `settings` are lines of its configuration."""

    def __init__(self, folder, target, *settings):
        super().__init__(folder)
        self.target = target
        self.settings = settings

    def configuration(self):
        raise NotImplementedError

    def write_configuration(self):
        path = self._folder / f"{self.program}-{self.port}.conf"
        path.write_text(self.configuration())
        return path


class Nginx(ReverseProxy):
    """nginx, which by default sends HTTP/1.0 to the gateway. It buffers responses unless the gateway forbids it."""

    program = "nginx"

    def arguments(self):
        return ["-p", self._folder, "-c", self.write_configuration(), "-e", "stderr"]

    def configuration(self):
        # The built-in folders for temporary files belong to root.
        folders = "\n".join(f"  {name}_temp_path {name};" for name in _TEMPORARY_FILES)
        return f"""
{"user root;" if os.geteuid() == 0 else ""}
daemon off;
pid nginx-{self.port}.pid;
events {{}}
http {{
{folders}
{"".join(f"  {setting};" for setting in self.settings)}
  access_log off;
{self.server()}
}}
"""

    def server(self):
        host, port = self.target
        return f"""
  server {{
    listen 127.0.0.1:{self.port};
    location / {{ proxy_pass http://{host}:{port}; }}
  }}"""


_TEMPORARY_FILES = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


class HAProxy(ReverseProxy):
    """HAProxy, which has no default timeouts, and warns about that.

    The timeouts here are from Debian's configuration and the manual.
    """

    program = "haproxy"

    def arguments(self):
        return ["-db", "-f", self.write_configuration()]

    def servers(self):
        """The lines of the backend."""
        return "  server gateway {}:{}".format(*self.target)

    def configuration(self):
        settings = "\n".join(f"  {setting}" for setting in self.settings)
        return f"""
defaults
  mode http
  timeout connect 5000
  timeout client 50000
  timeout server 50000
{settings}
frontend clients
  bind 127.0.0.1:{self.port}
  default_backend gateway
backend gateway
{self.servers()}
"""


class CheckingHAProxy(HAProxy):
    """HAProxy in front of several gateways. It checks the /readyz of each, as docs/operations.md recommends."""

    def __init__(self, folder, gateways):
        # On a busy machine, a slow check must not fail: without any server, HAProxy would respond with 503.
        super().__init__(folder, None, "option httpchk GET /readyz", "timeout check 10s", "option redispatch")
        self.gateways = gateways

    def servers(self):
        return "\n".join(
            f"  server s{number} {api[0]}:{api[1]} check port {management[1]} inter 200 fall 1 rise 1"
            for number, (api, management) in enumerate(self.gateways)
        )


class Envoy(ReverseProxy):
    """Envoy. It ends a request after 15 seconds, and announces this limit (`x-envoy-expected-rq-timeout-ms`)."""

    program = "envoy"

    def arguments(self):
        # Several instances of Envoy may run on this machine.
        return ["--disable-hot-restart", "--concurrency", "1", "-l", "error", "-c", self.write_configuration()]

    def write_configuration(self):
        # The suffix of the file selects the parser.
        return super().write_configuration().rename(self._folder / f"envoy-{self.port}.json")

    def configuration(self):
        filters = "envoy.extensions.filters"
        router = {"@type": f"type.googleapis.com/{filters}.http.router.v3.Router"}
        route = {"match": {"prefix": "/"}, "route": {"cluster": "gateway"}}
        manager = {
            "@type": f"type.googleapis.com/{filters}.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "clients",
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
            "http_filters": [{"name": "envoy.filters.http.router", "typed_config": router}],
        }
        chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        listener = {"address": self.at(*self.address), "filter_chains": [chain]}
        endpoints = [{"lb_endpoints": [{"endpoint": {"address": self.at(*self.target)}}]}]
        assignment = {"cluster_name": "gateway", "endpoints": endpoints}
        cluster = {"name": "gateway", "load_assignment": assignment}
        return json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}})

    @staticmethod
    def at(host, port):
        return {"socket_address": {"address": host, "port_value": port}}


REVERSE_PROXIES = [Nginx, HAProxy, Envoy]
