"""The files of deploy/ as they are, but for addresses and paths, which a test replaces."""

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


class _Deployed:
    """In front of the gateways at `targets`: pairs of the addresses of their listeners for clients and management."""

    def __init__(self, folder, *targets):
        super().__init__(folder, None)
        self.targets = targets if len(targets) > 1 else 2 * targets


class DeployedNginx(_Deployed, Nginx):
    def server(self):
        (host, port), _ = self.targets[0]
        return replaced(
            "nginx/drawbridge.conf",
            {"127.0.0.1:8080": f"{host}:{port}", "listen 80;": f"listen 127.0.0.1:{self.port};"},
        )


class DeployedHAProxy(_Deployed, HAProxy):
    def configuration(self):
        replacements = {"bind :80": f"bind 127.0.0.1:{self.port}"}
        for number, ((host, port), (_, management)) in enumerate(self.targets, 1):
            line = f"server drawbridge{number} 192.0.2.1{number}:8080 check port 9090"
            replacements[line] = f"server drawbridge{number} {host}:{port} check port {management}"
        return replaced("haproxy/haproxy.cfg", replacements)


class DeployedEnvoy(_Deployed, Envoy):
    def write_configuration(self):
        return super().write_configuration().rename(self._folder / f"envoy-{self.port}.yaml")

    def configuration(self):
        replacements = {"address: 0.0.0.0, port_value: 80": f"address: 127.0.0.1, port_value: {self.port}"}
        management = "health_check_config: {port_value: 9090}"
        text = replaced("envoy/envoy.yaml", replacements)
        for number, ((host, port), (_, port_of_management)) in enumerate(self.targets, 1):
            before, address, after = text.partition(f"192.0.2.1{number}, port_value: 8080")
            assert address
            text = f"{before}{host}, port_value: {port}" + after.replace(
                management, f"health_check_config: {{port_value: {port_of_management}}}", 1
            )
        return text


DEPLOYED_PROXIES = [DeployedNginx, DeployedHAProxy, DeployedEnvoy]
