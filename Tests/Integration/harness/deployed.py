"""The files of deploy/. A test replaces only their addresses and paths."""

import itertools
import json
import os
import re

import yaml

from .gateway import PROJECT
from .reverse_proxies import Envoy, HAProxy, Nginx, ReverseProxy

DEPLOY = PROJECT / "deploy"
MANIFESTS = list(yaml.safe_load_all((DEPLOY / "kubernetes/drawbridge.yaml").read_text()))
COMPOSE = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())


def manifest(kind, name="drawbridge"):
    (found,) = (each for each in MANIFESTS if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def pod():
    return manifest("StatefulSet")["spec"]["template"]


def container():
    (only,) = pod()["spec"]["containers"]
    return only


def replaced(path, replacements):
    """The text of a file with replacements. Each replaced text must exist, or the test would run something else."""
    text = (DEPLOY / path).read_text()
    for old, new in replacements.items():
        assert old in text, (path, old)
        text = text.replace(old, new)
    return text


def gateway_settings(path):
    """The gateway settings that the first comment of a proxy's file requires."""
    lines = (DEPLOY / path).read_text().splitlines()
    first = next(
        number for number, line in enumerate(lines) if line.startswith("# In the configuration of the gateway")
    )
    settings = itertools.takewhile(lambda line: re.match("#$|#   ", line), lines[first + 1 :])
    return "".join(line.removeprefix("#   ").lstrip("#") + "\n" for line in settings)


class _Deployed:
    """A deployed proxy in front of `targets`: pairs of the addresses of a client listener and a management listener."""

    # Whether the file names two gateways. Otherwise, it names one gateway on the machine of the proxy.
    has_two_gateways = False
    # Whether the gateway notices when a client disconnects.
    passes_aborts = True
    # Whether the proxy refuses a body that is too large for the gateway.
    limits_bodies = False
    # Further settings with which the proxy compresses responses. The file does not contain them.
    compression = ()

    def __init__(self, folder, *targets, compresses=False):
        super().__init__(folder, None, *(self.compression if compresses else ()))
        self.targets = targets if len(targets) > 1 else 2 * targets

    @property
    def gateway(self):
        """The address of the only gateway."""
        (host, port), _ = self.targets[0]
        return f"{host}:{port}"

    def check(self):
        """The arguments for the proxy's own check of its file."""
        raise NotImplementedError


class DeployedNginx(_Deployed, Nginx):
    path = "nginx/drawbridge.conf"
    limits_bodies = True
    compression = ("gzip on", "gzip_proxied any", "gzip_types application/json")

    def check(self):
        return ["-t", "-p", self._folder, "-c", self.write_configuration(), "-e", "stderr"]

    def server(self):
        return replaced(
            self.path,
            {"127.0.0.1:8080": self.gateway, "listen 80;": f"listen 127.0.0.1:{self.port};"},
        )


class DeployedHAProxy(_Deployed, HAProxy):
    path = "haproxy/haproxy.cfg"
    has_two_gateways = True
    compression = ("compression algo gzip", "compression type application/json")

    def check(self):
        return ["-c", "-f", self.write_configuration()]

    def configuration(self):
        replacements = {"bind :80": f"bind 127.0.0.1:{self.port}"}
        for number, ((host, port), (_, management)) in enumerate(self.targets, 1):
            address = f"192.0.2.1{number}:8080"
            # The file has the address once with a check port and once without.
            replacements[f"{address} check port 9090"] = f"{host}:{port} check port {management}"
            replacements[address] = f"{host}:{port}"
        settings = "".join(f"    {setting}\n" for setting in self.settings)
        replacements["    mode http\n"] = f"    mode http\n{settings}"
        return replaced(self.path, replacements)


_TYPES = "type.googleapis.com/envoy.extensions"


class DeployedEnvoy(_Deployed, Envoy):
    path = "envoy/envoy.yaml"
    has_two_gateways = True
    compression = (
        json.dumps(
            {
                "name": "envoy.filters.http.compressor",
                "typed_config": {
                    "@type": f"{_TYPES}.filters.http.compressor.v3.Compressor",
                    "response_direction_config": {"common_config": {"content_type": ["application/json"]}},
                    "compressor_library": {
                        "name": "gzip",
                        "typed_config": {"@type": f"{_TYPES}.compression.gzip.compressor.v3.Gzip"},
                    },
                },
            }
        ),
    )

    def check(self):
        return ["--mode", "validate", "-l", "warning", "-c", self.write_configuration()]

    def write_configuration(self):
        return super().write_configuration().rename(self._folder / f"envoy-{self.port}.yaml")

    def configuration(self):
        filters = "".join(f"                  - {setting}\n" for setting in self.settings)
        replacements = {
            "address: 0.0.0.0, port_value: 80": f"address: 127.0.0.1, port_value: {self.port}",
            "http_filters:\n": f"http_filters:\n{filters}",
        }
        management = "health_check_config: {port_value: 9090}"
        text = replaced(self.path, replacements)
        for number, ((host, port), (_, port_of_management)) in enumerate(self.targets, 1):
            before, address, after = text.partition(f"192.0.2.1{number}, port_value: 8080")
            assert address
            text = f"{before}{host}, port_value: {port}" + after.replace(
                management, f"health_check_config: {{port_value: {port_of_management}}}", 1
            )
        return text


class DeployedApache(_Deployed, ReverseProxy):
    """Apache with the modules that the file requires, and the relevant modules of Debian's default."""

    program = "apache2"
    path = "apache/drawbridge.conf"
    passes_aborts = False
    modules = ("mpm_event", "authz_core", "filter", "deflate", "reqtimeout", "proxy", "proxy_http", "headers")
    compression = ("AddOutputFilterByType DEFLATE application/json",)

    def arguments(self):
        return ["-DFOREGROUND", "-f", self.write_configuration()]

    def check(self):
        return ["-t", "-f", self.write_configuration()]

    def configuration(self):
        modules = "\n".join(f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so" for name in self.modules)
        site = replaced(self.path, {"127.0.0.1:8080": self.gateway, "*:80>": f"127.0.0.1:{self.port}>"})
        settings = "\n".join(self.settings)
        return f"""
ServerRoot {self._folder}
DefaultRuntimeDir {self._folder}
PidFile apache-{self.port}.pid
ErrorLog /dev/stderr
{"User www-data" if os.geteuid() == 0 else ""}
{"Group www-data" if os.geteuid() == 0 else ""}
{modules}
ServerName localhost
Listen 127.0.0.1:{self.port}
{settings}
{site}
"""


class DeployedCaddy(_Deployed, ReverseProxy):
    program = "caddy"
    path = "caddy/Caddyfile"
    compression = ("encode {", "gzip", "minimum_length 1", "match {", "header Content-Type application/json", "}", "}")

    def arguments(self):
        return ["run", "--adapter", "caddyfile", "--config", self.write_configuration()]

    def environment(self):
        return {"XDG_DATA_HOME": str(self._folder), "XDG_CONFIG_HOME": str(self._folder)}

    def check(self):
        return ["validate", "--adapter", "caddyfile", "--config", self.write_configuration()]

    def configuration(self):
        # The site has no TLS, since its certificate would come from the Internet.
        site = "\n\t".join([f"http://gateway.example.org:{self.port} {{", "bind 127.0.0.1", *self.settings])
        replacements = {"gateway.example.org {": site, "127.0.0.1:8080": self.gateway}
        return "{\n\tadmin off\n}\n" + replaced(self.path, replacements)


class DeployedVarnish(_Deployed, ReverseProxy):
    program = "varnishd"
    path = "varnish/drawbridge.vcl"
    passes_aborts = False

    def arguments(self):
        folder = self._folder / f"varnish-{self.port}"
        own = ["-F", "-j", "none", "-n", folder, "-T", "none", "-s", "malloc,16m"]
        return [*own, "-a", f"127.0.0.1:{self.port}", "-f", self.write_configuration()]

    def check(self):
        return ["-C", "-j", "none", "-n", self._folder / "varnish-check", "-f", self.write_configuration()]

    def configuration(self):
        host, _, port = self.gateway.rpartition(":")
        return replaced(self.path, {'"127.0.0.1"': f'"{host}"', '"8080"': f'"{port}"'})


class DeployedLighttpd(_Deployed, ReverseProxy):
    program = "lighttpd"
    path = "lighttpd/drawbridge.conf"
    limits_bodies = True
    passes_aborts = False
    compression = (
        'server.modules += ( "mod_deflate" )',
        'deflate.mimetypes = ( "application/json" )',
        'deflate.allowed-encodings = ( "gzip" )',
        "deflate.min-compress-size = 1",
    )

    def arguments(self):
        return ["-D", "-f", self.write_configuration()]

    def check(self):
        return ["-tt", "-f", self.write_configuration()]

    def configuration(self):
        host, _, port = self.gateway.rpartition(":")
        site = replaced(self.path, {'"host" => "127.0.0.1", "port" => 8080': f'"host" => "{host}", "port" => {port}'})
        settings = "\n".join(self.settings)
        return f"""
server.document-root = "{self._folder}"
server.upload-dirs = ( "{self._folder}" )
server.bind = "127.0.0.1"
server.port = {self.port}
{settings}
{site}
"""


class DeployedSquid(_Deployed, ReverseProxy):
    program = "squid"
    path = "squid/drawbridge.conf"
    limits_bodies = True

    def arguments(self):
        return ["-N", "-d", "1", "-f", self.write_configuration()]

    def check(self):
        return ["-k", "parse", "-f", self.write_configuration()]

    def configuration(self):
        host, _, port = self.gateway.rpartition(":")
        site = replaced(
            self.path,
            {"http_port 80 ": f"http_port 127.0.0.1:{self.port} ", "127.0.0.1 parent 8080": f"{host} parent {port}"},
        )
        return f"""
pid_filename none
cache_log /dev/null
access_log none
netdb_filename none
pinger_enable off
shutdown_lifetime 0 seconds
coredump_dir /
visible_hostname localhost
{site}
"""


DEPLOYED_PROXIES = [
    DeployedNginx,
    DeployedHAProxy,
    DeployedEnvoy,
    DeployedApache,
    DeployedCaddy,
    DeployedVarnish,
    DeployedLighttpd,
    DeployedSquid,
]
