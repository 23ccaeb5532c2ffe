"""The JSON Schema of the configuration: it equals the file in `config`, and it agrees with the gateway."""

import json
import re
from typing import ClassVar

import jsonschema
import pytest
import yaml

from harness.gateway import PROJECT, run

KEPT = PROJECT / "config/drawbridge.schema.json"
# The gateway accepts each of these texts, too.
VALID = [
    "upstream: {url: 'ws://h/', reconnect: {minimum: 500ms, maximum: 30}, queue: {bytes: 1MiB, messages: '10'}}",
    "upstream: {url: 'ws://h/', headers: {Origin: a, X-Number: 5}, close_codes: {4000-4099: park, 1013: backoff}}",
    "upstream: {url: 'ws://h/', headers: ['Origin: a'], subprotocols: one, tls: {minimum_version: 1.3}}",
    "upstream: {url: '${env:PATH}'}\nhttp: {connections: '${env:NUMBER}'}\nlog: {level: '${env:LEVEL}'}",
    "upstream: {url: 'ws://h/', on_open: [{send: a, expect: {json: {/type: ok, /code: 7}}, timeout: 5s}, {send: b}]}",
    "upstream: {url: 'ws://h/', heartbeat: {server: {match: [{prefix: a}, b]}}, correlation: jsonrpc}",
    "upstream: {url: 'ws://h/', correlation: {request: /id, reply: /id}, topic: {rules: [{match: a, topic: b}]}}",
    "upstream: {url: 'ws://h/', correlation: {protocol: jsonrpc, ids: sequence}}",
    "upstream: {url: 'ws://h/', failure: {match: {json: {/a: b}}, cause: c}}",
    "upstream: {url: 'ws://h/', failure: [{match: a, cause: b}]}",
    "upstream: {url: 'ws://h/', correlation: {request: /1, reply: [{pointer: /1, match: a}, {pointer: /2}]}}",
    "upstream: {url: 'ws://h/', correlation: {request: /id, reply: /id, ids: string, match: {contains: a}}}",
    "upstream: {url: 'ws://h/', kind: socketio, socketio: {version: 3, namespaces: [/, {name: /a, required: false}]}}",
    "upstream: {url: 'ws://h/'}\nlisteners:\nlog: {access: off, format: json}\nstore: {wait_replicas: auto}\nloops: 2",
    "upstream: {url: {command: [a, b], pointer: /url, error: /error, timeout: 10}}",
    "upstream: {url: 'ws://h/', close_codes: {4007: forget}, close_code: 4000}",
    "sessions: {a: {upstream: {url: {file: /a}}}}",
    "sessions: {a: {upstream: {url: 'ws://h/'}, delivery: {messages: 5}, webhooks: []}}",
    "profiles: {a: {variables: {v: {pattern: '[a-z]+', maximum_length: 9}}, upstream: {url: 'ws://h/{v}'}}}",
    "upstream: {url: 'ws://h/'}\nlimits: {address: {requests: 100/s burst 200}}",
]
INVALID = {
    "upstream: {url: 'ws://h/'}\nlistener: {}": "listener",
    "upstream: {url: 'ws://h/', heartbeat: {intervall: 5s}}": "intervall",
    "upstream: {url: 'ws://h/', heartbeat: {interval: 5 s}}": "interval",
    "upstream: {url: 'ws://h/', heartbeat: {interval: 0}}": "interval",
    "upstream: {url: 'ws://h/', heartbeat: {ping: 1}}": "ping",
    "upstream: {url: 'ws://h/', queue: {messages: many}}": "messages",
    "upstream: {url: 'ws://h/', queue: {messages: -1}}": "messages",
    "upstream: {url: 'ws://h/', queue: {bytes: 1MB}}": "bytes",
    "upstream: {url: 'ws://h/', reconnect: {strategy: sometimes}}": "strategy",
    "upstream: {url: 'ws://h/', reconnect: {factor: 0.5}}": "factor",
    "upstream: {url: 'ws://h/', close_codes: {4000: later}}": "close_codes",
    "upstream: {url: 'ws://h/', on_open: [{sent: a}]}": "on_open",
    "upstream: {url: 'ws://h/', heartbeat: {server: {match: {jsn: {/a: b}}}}}": "match",
    "upstream: {url: 'ws://h/', correlation: {request: /id}}": "correlation",
    "upstream: {url: 'ws://h/', correlation: {protocol: jsonrpc, ids: number}}": "correlation",
    "upstream: {url: 'ws://h/', correlation: {request: /id, reply: [{match: a}]}}": "correlation",
    "upstream: {url: 'ws://h/', on_open: [{expect: a, refuse: {contains: b}}]}": "on_open",
    "upstream: {url: 'ws://h/', topic: {rules: [{topic: b}]}}": "rules",
    "upstream: {url: 'ws://h/', kind: socketio, socketio: {namespaces: [{nam: /a}]}}": "namespaces",
    "upstream: [ws://h/]": "upstream",
    "upstream: {url: {}}": "url",
    "upstream: {url: {comand: [a]}}": "url",
    "upstream: {url: 'ws://h/'}\nloops: many": "loops",
    "upstream: {url: 'ws://h/'}\nlog: {level: loud}": "level",
    "upstream: {url: 'ws://h/'}\nauthentication: {certificates: [{name: 'dns:a', scopes: [write]}]}": "scopes",
    "upstream: {url: 'ws://h/'}\nwebhooks: [{name: a, url: 'https://h/'}]": "webhooks",
    "sessions: {a: {upstream: {url: 'ws://h/'}, listeners: {}}}": "sessions",
    "sessions: {a: {upstream: {url: 'ws://h/', urll: a}}}": "sessions",
    "profiles: {a: {variables: {v: {length: 9}}, upstream: {url: 'ws://h/{v}'}}}": "profiles",
}
ENVIRONMENT = {"PATH": "ws://h/", "NUMBER": "10", "LEVEL": "debug"}


class Loader(yaml.SafeLoader):
    """YAML 1.2 as editors read it: `off` is text, and so are all keys."""

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] in ("int", "float", "null")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(true|false)$"), list("tf"))


def texts(value):
    """The value with keys that are text, as in JSON."""
    if isinstance(value, dict):
        return {str(key): texts(each) for key, each in value.items()}
    return [texts(each) for each in value] if isinstance(value, list) else value


def load(text):
    return texts(yaml.load(text, Loader))


@pytest.fixture(scope="module")
def validator():
    schema = json.loads(KEPT.read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


async def test_the_committed_schema_is_the_schema_of_the_program():
    status, schema, _ = await run("schema")
    assert status == 0
    assert schema == KEPT.read_text(), "update it: drawbridge schema >config/drawbridge.schema.json"


@pytest.mark.parametrize(
    "path",
    [
        PROJECT / "config/drawbridge.yaml",
        PROJECT / "packaging/drawbridge.yaml",
        *sorted((PROJECT / "config/profiles").glob("*.yaml")),
        *sorted((PROJECT / "deploy").glob("*/config/drawbridge.yaml")),
    ],
    ids=lambda path: str(path.relative_to(PROJECT)),
)
def test_configurations_of_this_repository_are_valid(validator, path):
    validator.validate(load(path.read_text()))


@pytest.mark.parametrize("text", VALID)
async def test_configurations_that_the_gateway_accepts_are_valid(validator, tmp_path, text):
    assert await check(tmp_path, text) == 0
    validator.validate(load(text))


@pytest.mark.parametrize("text", INVALID)
async def test_invalid_configurations_are_refused_by_the_gateway(validator, tmp_path, text):
    assert await check(tmp_path, text) == 78
    errors = list(validator.iter_errors(load(text)))
    places = [str(part) for error in errors for part in error.absolute_path]
    names = [name for error in errors for name in re.findall("'([^']*)'", error.message)]
    assert INVALID[text] in places + names


async def check(folder, text):
    path = folder / "drawbridge.yaml"
    path.write_text(text)
    status, _, error = await run("check-config", "--config", path, env=ENVIRONMENT)
    assert status in (0, 78), error
    return status


def test_each_setting_of_the_reference_has_a_description(validator):
    def settings(value, schema):
        for key, each in value.items():
            member = schema["properties"][key]
            while "$ref" in member:
                member = validator.schema["definitions"][member["$ref"].rpartition("/")[2]]
            if "properties" in member and isinstance(each, dict):
                yield from settings(each, member)
            else:
                yield key, member

    for key, member in settings(load((PROJECT / "config/drawbridge.yaml").read_text()), validator.schema):
        assert len(member["description"]) > 10, key
