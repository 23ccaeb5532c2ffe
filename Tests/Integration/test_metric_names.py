"""The names, kinds and labels of the metrics. Users' dashboards and alerts depend on them.

`DRAWBRIDGE_WRITE_GOLDEN=1 pytest Tests/Integration/test_metric_names.py` writes `Tests/Golden/metrics.txt`. Only a
major version may remove or change a line: check the difference.
"""

import json
import os
import re

from harness import golden
from harness.client import exchanges
from harness.created_sessions import profile
from harness.https import listening
from harness.receiver import new_secret
from harness.redis import RedisServer
from harness.store import storing
from harness.tokens import bearer

_FILE = golden.FOLDER / "metrics.txt"


def described(page):
    """For each metric of a page, its kind and the labels of its samples. The labels are None while it has no sample."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    labels = dict.fromkeys(kinds)
    for name, text in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", page, re.MULTILINE):
        metric = name if name in kinds else re.sub(r"_(bucket|sum|count)$", "", name)
        labels[metric] = (labels[metric] or set()) | set(re.findall(r'(\w+)="', text)) - {"le"}
    return {name: (kind, labels[name]) for name, kind in kinds.items()}


async def test_every_metric_has_its_name_kind_and_labels(
    gateway_for, upstream, start, tmp_path, store_path, tokens, certificate
):
    database = await start(RedisServer(tmp_path))
    redis = {"engine": "redis", "url": f"redis://127.0.0.1:{database.port}", "prefix": "drawbridge"}
    hook = {"name": "hook", "url": "http://127.0.0.1:1/", "secrets": [new_secret()]}
    hook |= {"addresses": {"allow": ["127.0.0.1"]}}
    arguments, https = listening(certificate)
    pages = []
    for config, env in (
        (json.dumps({"sessions": {"other": {"upstream": {"url": upstream.url}}}}), {}),
        (json.dumps({"webhooks": [hook]}), storing(store_path)),
        (json.dumps({"store": redis, "listeners": {"peers": "127.0.0.1:0"}}), {}),
    ):
        gateway = await gateway_for(upstream, config=config, env=env)
        await exchanges(gateway, upstream)
        pages.append(await gateway.manage("/metrics"))
        upstream.received.clear()
    secured = {**https, "DRAWBRIDGE_AUTHENTICATION_TOKENS": str(tokens.path)}
    client = bearer(tokens.add("me", scopes="admin"))
    gateway = await gateway_for(upstream, *arguments, config=profile(upstream.url + "{symbol}"), env=secured)
    document = {"profile": "market", "variables": {"symbol": "a"}}
    created = await gateway.client().request("PUT", "/v1/sessions/a", json=document, headers=client)
    assert created.status == 201, created.body
    pages.append(await gateway.manage("/metrics"))

    found = {}
    for page in pages:
        for name, (kind, labels) in described(page.body.decode()).items():
            before = found.get(name, (kind, None))[1]
            found[name] = kind, before if labels is None else labels | (before or set())
    if "DRAWBRIDGE_WRITE_GOLDEN" in os.environ:
        lines = [" ".join([name, kind, *sorted(labels or ())]) for name, (kind, labels) in found.items()]
        _FILE.write_text("".join(f"{line}\n" for line in sorted(lines)))
    known = {name: (kind, set(labels)) for name, kind, *labels in map(str.split, _FILE.read_text().splitlines())}
    assert sorted(found) == sorted(known)
    for name, (kind, labels) in found.items():
        assert kind == known[name][0], name
        # Some metrics have a sample only after their first event.
        assert labels is None or labels == known[name][1], name
