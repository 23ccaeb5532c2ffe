"""The files of deploy/ as they are, but for addresses and paths, which a test replaces."""

import itertools
import re

import yaml

from .gateway import PROJECT
from .reverse_proxies import Envoy, HAProxy, Nginx

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
    """The text of a file with other addresses. Each must be there: else the test would try something else."""
    text = (DEPLOY / path).read_text()
    for old, new in replacements.items():
        assert old in text, (path, old)
        text = text.replace(old, new)
    return text


def gateway_settings(path):
    """What a file of a proxy demands of the configuration of the gateways, in its first comment."""
    lines = (DEPLOY / path).read_text().splitlines()
    first = next(
        number for number, line in enumerate(lines) if line.startswith("# In the configuration of the gateway")
    )
    settings = itertools.takewhile(lambda line: re.match("#$|#   ", line), lines[first + 1 :])
    return "".join(line.removeprefix("#   ").lstrip("#") + "\n" for line in settings)


class _Deployed:
    """In front of the gateways at `targets`: pairs of the addresses of their listeners for clients and management."""

    def __init__(self, folder, *targets):
        super().__init__(folder, None)
        self.targets = targets if len(targets) > 1 else 2 * targets


class DeployedNginx(_Deployed, Nginx):
    path = "nginx/drawbridge.conf"

    def server(self):
        (host, port), _ = self.targets[0]
        return replaced(
            self.path,
            {"127.0.0.1:8080": f"{host}:{port}", "listen 80;": f"listen 127.0.0.1:{self.port};"},
        )


class DeployedHAProxy(_Deployed, HAProxy):
    path = "haproxy/haproxy.cfg"

    def configuration(self):
        replacements = {"bind :80": f"bind 127.0.0.1:{self.port}"}
        for number, ((host, port), (_, management)) in enumerate(self.targets, 1):
            address = f"192.0.2.1{number}:8080"
            # Where it is checked, and where it is not.
            replacements[f"{address} check port 9090"] = f"{host}:{port} check port {management}"
            replacements[address] = f"{host}:{port}"
        return replaced(self.path, replacements)


class DeployedEnvoy(_Deployed, Envoy):
    path = "envoy/envoy.yaml"

    def write_configuration(self):
        return super().write_configuration().rename(self._folder / f"envoy-{self.port}.yaml")

    def configuration(self):
        replacements = {"address: 0.0.0.0, port_value: 80": f"address: 127.0.0.1, port_value: {self.port}"}
        management = "health_check_config: {port_value: 9090}"
        text = replaced(self.path, replacements)
        for number, ((host, port), (_, port_of_management)) in enumerate(self.targets, 1):
            before, address, after = text.partition(f"192.0.2.1{number}, port_value: 8080")
            assert address
            text = f"{before}{host}, port_value: {port}" + after.replace(
                management, f"health_check_config: {{port_value: {port_of_management}}}", 1
            )
        return text


DEPLOYED_PROXIES = [DeployedNginx, DeployedHAProxy, DeployedEnvoy]
