"""The files of deploy/: whether tools accept them, whether they agree, and whether a gateway runs with them."""

import asyncio
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from compose_spec import PyCompose

from harness import inheritance
from harness.deployed import COMPOSE, DEPLOY, MANIFESTS, container, manifest, pod, replaced
from harness.gateway import BINARY, PROJECT, run
from harness.ports import reserve_port
from harness.sanitizer import options
from harness.tokens import TokenFile
from harness.waiting import eventually

# No client needs this pause in these tests, so it would only take time.
NO_PAUSE = {"DRAWBRIDGE_SHUTDOWN_PAUSE": "0s"}
TOKENS = "/run/secrets/drawbridge/tokens"
UPSTREAM_TOKEN = "/run/secrets/drawbridge/upstream-token"


def seconds(text):
    """The seconds of a duration in settings and units, such as `1m30s`, `5s` or `2s`."""
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)(ms|s|m|h)", text))


async def shutdown_seconds(tmp_path, config):
    """The longest time that a shutdown may take with these settings."""
    path = tmp_path / "drawbridge.yaml"
    path.write_text(config)
    status, settings, err = await run("check-config", "--all", "--config", path)
    assert status == 0, err
    steps = ("shutdown.pause", "shutdown.drain", "shutdown.flush", "upstream.timeouts.closing")
    times = [re.search(rf"^{re.escape(step)}: (\S+)", settings, re.MULTILINE)[1] for step in steps]
    return sum(map(seconds, times)) + 3


@pytest.fixture
def secrets(tmp_path):
    """Copies of the files that the configurations name. `secrets(text)` replaces their paths in a text."""
    tokens = TokenFile(tmp_path)
    token = tokens.add("client", scopes="send,receive")
    upstream_token = tmp_path / "upstream-token"
    upstream_token.write_text("s3cret\n")

    def settings(text):
        for old, new in {
            TOKENS: tokens.path,
            "/etc/drawbridge/tokens": tokens.path,
            UPSTREAM_TOKEN: upstream_token,
            "engine: sqlite": f"engine: sqlite\n  path: {tmp_path}/drawbridge.db",
        }.items():
            text = text.replace(old, str(new))
        assert "/run/" not in text
        return text

    settings.token = token
    return settings


# -- Kubernetes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.30", kubernetes_validate.latest_version()])
def test_kubernetes_accepts_every_member_of_the_manifests(version):
    for each in MANIFESTS:
        kubernetes_validate.validate(each, version, strict=True)


def test_the_manifests_name_existing_objects():
    labels = pod()["metadata"]["labels"]
    ports = {port["name"] for port in container()["ports"]}
    for each in MANIFESTS:
        selector = each.get("spec", {}).get("selector") or each.get("spec", {}).get("podSelector")
        if selector:
            assert labels == selector.get("matchLabels", selector), each["metadata"]["name"]
        if each["kind"] == "Service":
            assert {port["targetPort"] for port in each["spec"]["ports"]} <= ports
    assert manifest("Service", manifest("StatefulSet")["spec"]["serviceName"])
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container()[probe]["httpGet"]["port"] in ports
    policy = manifest("NetworkPolicy")["spec"]
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == ports
    volumes = {volume["name"]: volume for volume in pod()["spec"]["volumes"]}
    claims = {claim["metadata"]["name"] for claim in manifest("StatefulSet")["spec"]["volumeClaimTemplates"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container()["volumeMounts"]}
    assert mounts.keys() == volumes.keys() | claims
    assert manifest("ConfigMap", volumes["config"]["configMap"]["name"])
    (variable,) = container()["env"]
    assert Path(variable["value"]).parent == Path(mounts["config"])
    assert Path(variable["value"]).name in manifest("ConfigMap")["data"]
    assert {str(Path(path).parent) for path in (TOKENS, UPSTREAM_TOKEN)} == {mounts["secrets"]}


def test_the_pod_has_only_the_rights_that_it_needs():
    """The profile `restricted` of the Pod Security Standards, and a read-only root file system."""
    spec = pod()["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert (spec["securityContext"]["runAsNonRoot"], spec["securityContext"]["runAsUser"]) == (True, 65532)
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


async def test_a_gateway_runs_with_the_config_map_and_serves_the_probes(gateway_for, upstream, secrets):
    config = secrets(manifest("ConfigMap")["data"]["drawbridge.yaml"])
    gateway = await gateway_for(
        None, config=config.replace("wss://example.org/socket", upstream.url), ready=False, env=NO_PAUSE
    )
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        path = container()[probe]["httpGet"]["path"]

        async def passes(path=path):
            return (await gateway.manage(path)).status == 200

        await eventually(passes, what=path)
    assert upstream.requests[0].headers["Authorization"] == "Bearer s3cret"
    assert (await gateway.client().get(wait=0)).status == 401
    client = gateway.client(headers={"Authorization": f"Bearer {secrets.token}"})
    await client.accepted("hello")
    assert await upstream.has_received(1) == ["hello"]
    # All pods have this upstream. If no pod were ready without it, no client could queue a message.
    await upstream.kill()

    async def is_lost():
        return (await gateway.manage("/readyz")).status == 503

    await eventually(is_lost, what="the gateway notices")
    assert (await gateway.manage(container()["readinessProbe"]["httpGet"]["path"])).status == 200
    await client.accepted("queued")


async def test_kubernetes_waits_for_the_whole_shutdown(tmp_path, secrets):
    steps = await shutdown_seconds(tmp_path, secrets(manifest("ConfigMap")["data"]["drawbridge.yaml"]))
    steps += container()["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert steps <= pod()["spec"]["terminationGracePeriodSeconds"]


# -- Compose ----------------------------------------------------------------------------------------------------------


def test_compose_accepts_every_member_of_the_file():
    PyCompose.from_yaml((DEPLOY / "compose/compose.yaml").read_text()).validate()
    with pytest.raises(ValueError, match="imag"):
        PyCompose.from_yaml("services: {a: {imag: x}}")


def test_the_service_has_only_the_rights_that_it_needs():
    service = COMPOSE["services"]["drawbridge"]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert (DEPLOY / "compose" / service["build"]["context"] / "Dockerfile").resolve() == PROJECT / "Dockerfile"


async def test_compose_waits_for_the_whole_shutdown(tmp_path, secrets):
    config = secrets((DEPLOY / "compose/config/drawbridge.yaml").read_text())
    assert await shutdown_seconds(tmp_path, config) <= seconds(COMPOSE["services"]["drawbridge"]["stop_grace_period"])


# -- The image --------------------------------------------------------------------------------------------------------


def test_hadolint_finds_no_fault_in_the_dockerfile():
    hadolint = Path(sys.executable).parent / "hadolint"
    result = subprocess.run([hadolint, PROJECT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "")


# -- systemd ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def systemd_analyze():
    return shutil.which("systemd-analyze") or pytest.skip("systemd-analyze is missing: scripts/setup test installs it")


@pytest.fixture
def units(tmp_path):
    """The units, with the program under test in place of the installed program."""
    paths = {name: tmp_path / f"drawbridge.{name}" for name in ("service", "socket")}
    paths["service"].write_text(replaced("systemd/drawbridge.service", {"/usr/bin/drawbridge": str(BINARY)}))
    paths["socket"].write_text(replaced("systemd/drawbridge.socket", {}))
    return paths


def test_systemd_accepts_the_units_without_a_warning(units, systemd_analyze):
    command = [systemd_analyze, "verify", "--man=no", *units.values()]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def test_the_service_is_confined(units, systemd_analyze):
    """The exposure has a range from 0 (none) to 10. The remaining exposure is the network, which a gateway needs."""
    command = [systemd_analyze, "security", "--offline=true", "--threshold=15", "--no-pager", units["service"]]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


async def test_the_command_of_the_service_runs_with_the_socket_of_systemd(units, upstream, tmp_path):
    unit = units["service"].read_text()
    command = re.search(r"^ExecStart=(.+)$", unit, re.MULTILINE)[1].split()
    state = tmp_path / "state"
    state.mkdir()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor,
    ):
        management = f"127.0.0.1:{reserve_port()}"
        config = tmp_path / "drawbridge.yaml"
        config.write_text(
            f"upstream: {{url: '{upstream.url}'}}\nlisteners: {{management: ['{management}']}}\n"
            "store: {engine: sqlite}\n"
        )
        assert command[-1] == "/etc/drawbridge/drawbridge.yaml"
        supervisor.bind(str(tmp_path / "notify"))
        name = re.search(r"^FileDescriptorName=(.+)$", units["socket"].read_text(), re.MULTILINE)[1]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            inheritance.__file__,
            name,
            str(server.fileno()),
            *command[:-1],
            config,
            cwd=state,
            pass_fds=[server.fileno()],
            env={"NOTIFY_SOCKET": str(tmp_path / "notify"), **options()},
        )
        try:
            assert await asyncio.to_thread(received, supervisor) == b"READY=1"
            reader, writer = await asyncio.open_connection(*server.getsockname())
            writer.write(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi")
            assert (await asyncio.wait_for(reader.readline(), 30)).startswith(b"HTTP/1.1 202 ")
            writer.close()
            assert await upstream.has_received(1) == ["hi"]
            # The store is in the working directory, which is the StateDirectory of the unit.
            assert (state / "drawbridge.db").exists()
            process.terminate()
            assert await asyncio.wait_for(process.wait(), 30) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def received(supervisor):
    supervisor.settimeout(30)
    return supervisor.recv(4096)


async def test_systemd_waits_for_the_whole_shutdown(units, tmp_path):
    limit = re.search(r"^TimeoutStopSec=(.+)$", units["service"].read_text(), re.MULTILINE)[1]
    assert await shutdown_seconds(tmp_path, "upstream: {url: 'ws://x/'}\n") <= seconds(limit)


def test_systemd_restarts_the_service_while_a_failure_may_pass(units):
    """By default, systemd allows five starts in ten seconds (systemd.unit(5)). Afterwards, the socket fails, too."""
    unit = units["service"].read_text()
    assert "StartLimit" not in unit
    assert 5 * seconds(re.search(r"^RestartSec=(.+)$", unit, re.MULTILINE)[1]) > 10


async def test_exit_codes_that_another_start_does_not_repair_are_not_retried(units, tmp_path):
    unit = units["service"].read_text()
    codes = re.search(r"^RestartPreventExitStatus=(.+)$", unit, re.MULTILINE)[1].split()
    (tmp_path / "bad.yaml").write_text("upstream: {ulr: x}\n")
    for arguments in (
        ["serve", "--nonsense"],
        ["serve", "--config", "/nowhere"],
        ["serve", "--config", tmp_path / "bad.yaml"],
    ):
        status, _, _ = await run(*arguments)
        assert str(status) in codes


# -- Proxies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["envoy", "sidecar"])
async def test_envoy_has_the_limits_of_the_gateway(tmp_path, name):
    (cluster,) = yaml.safe_load((DEPLOY / f"envoy/{name}.yaml").read_text())["static_resources"]["clusters"]
    (options,) = cluster["typed_extension_protocol_options"].values()
    path = tmp_path / "drawbridge.yaml"
    path.write_text("upstream: {url: 'ws://x/'}\n")
    _, text, _ = await run("check-config", "--all", "--config", path)
    settings = dict(re.findall(r"^(\S+): (\S+)", text, re.MULTILINE))
    # Envoy must close an idle connection before the gateway does. Otherwise, a request could meet the gateway's close.
    idle = options["common_http_protocol_options"]["idle_timeout"]
    assert seconds(idle) < seconds(settings["http.idle_timeout"])
    (limits,) = cluster["circuit_breakers"]["thresholds"]
    for limit in ("max_connections", "max_pending_requests", "max_requests"):
        assert limits[limit] >= int(settings["http.connections"]), limit


def test_a_sidecar_of_another_pod_reaches_the_gateways_and_their_health_checks():
    (cluster,) = yaml.safe_load((DEPLOY / "envoy/sidecar.yaml").read_text())["static_resources"]["clusters"]
    stateful = manifest("StatefulSet")
    service = manifest("Service", stateful["spec"]["serviceName"])
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    assert [
        (endpoint["endpoint"]["address"]["socket_address"], endpoint["endpoint"]["health_check_config"])
        for endpoint in cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    ] == [
        (
            {
                "address": f"{stateful['metadata']['name']}-{number}.{service['metadata']['name']}",
                "port_value": ports["http"],
            },
            {"port_value": ports["management"]},
        )
        for number in range(stateful["spec"]["replicas"])
    ]
    rules = manifest("NetworkPolicy")["spec"]["ingress"]
    sidecars = [rule for rule in rules if {"port": "management"} in rule["ports"] and {"port": "http"} in rule["ports"]]
    assert [peer["podSelector"]["matchLabels"] for rule in sidecars for peer in rule["from"]] == [
        {"drawbridge-sidecar": "true"}
    ]
    assert 'drawbridge-sidecar: "true"' in (PROJECT / "docs/sidecar.md").read_text()
