"""A real Prometheus that scrapes gateways, and the queries of the dashboard and of the alert rules."""

import json
import re

import aiohttp
import yaml

from .gateway import PROJECT
from .program import Program
from .waiting import eventually

DASHBOARD = PROJECT / "deploy/grafana/drawbridge.json"
RULES = PROJECT / "deploy/prometheus/alerts.yml"
RULE_TESTS = PROJECT / "deploy/prometheus/alerts.test.yml"

# The values that Grafana inserts: all jobs, instances and sessions, and an interval of at least four scrapes.
_VARIABLES = {"$job": ".*", "$instance": ".*", "$session": ".*", "$__rate_interval": "4s"}


def dashboard_queries():
    """Each query of the dashboard as Grafana sends it, by its panel and letter."""
    dashboard = json.loads(DASHBOARD.read_text())
    queries = {}
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            queries[f"{panel['id']} {panel['title']} {target['refId']}"] = _inserted(target["expr"])
    return queries


def dashboard_units():
    """For each query of the dashboard, its unit and the query itself, by panel and letter."""
    units = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            field = panel["fieldConfig"]
            unit = field["defaults"].get("unit")
            for override in field["overrides"]:
                matcher = override["matcher"]["options"]
                if re.search(matcher.strip("/"), target["legendFormat"]):
                    unit = next(each["value"] for each in override["properties"] if each["id"] == "unit")
            units[f"{panel['id']} {panel['title']} {target['refId']}"] = unit, target["expr"]
    return units


def dashboard_variables():
    """For each variable of the dashboard, by its name: the series whose labels provide its values, and the label."""
    dashboard = json.loads(DASHBOARD.read_text())
    variables = {}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            variables[variable["name"]] = _inserted(found[1]), found[2]
    return variables


def _inserted(query):
    for name, value in _VARIABLES.items():
        query = query.replace(name, value)
    assert "$" not in query, f"a variable that the dashboard does not have: {query}"
    return query


def alerts():
    """The alert rules, by name."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def metric_names(expression):
    return set(re.findall(r"\b(?:drawbridge|process)_\w+|\bup\b", expression))


class Prometheus(Program):
    """Scrapes the management listeners of `targets` four times a second, as the job `drawbridge`."""

    program = "prometheus"

    def __init__(self, folder, targets):
        super().__init__(folder)
        self._targets = ["{}:{}".format(*target) for target in targets]

    def arguments(self):
        path = self._folder / "prometheus.yml"
        path.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "250ms", "scrape_timeout": "250ms", "evaluation_interval": "500ms"},
                    "rule_files": [str(RULES)],
                    "scrape_configs": [{"job_name": "drawbridge", "static_configs": [{"targets": self._targets}]}],
                }
            )
        )
        return [
            f"--config.file={path}",
            f"--storage.tsdb.path={self._folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        ]

    async def start(self):
        await super().start()
        await eventually(self._is_ready, what="Prometheus has read its own storage")

    async def _is_ready(self):
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{self.port}/-/ready") as response:
            return response.status == 200

    async def ask(self, path, **parameters):
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{self.port}") as http,
            http.get(f"/api/v1/{path}", params=parameters) as response,
        ):
            document = await response.json()
            assert document["status"] == "success", (path, parameters, document)
            return document["data"]

    async def has_data(self, query):
        """Whether the query returns a number now. A quantile without observations is NaN."""
        result = (await self.ask("query", query=query))["result"]
        return any(series["value"][1] != "NaN" for series in result)
