"""The rights of clients: static tokens, JSON Web Tokens of PyJWT and joserfc, cookies, and files that change."""

import asyncio
import base64
import hashlib
import hmac
import json
import signal
import time

import jwt
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from joserfc import jwt as joserfc_jwt
from joserfc.jwk import OctKey

from harness.credentials import AUDIENCE, ISSUER, KINDS, READERS, Issuer, openssl, with_tokens
from harness.gateway import Gateway, run
from harness.tokens import bearer
from harness.waiting import eventually

JSON = {"Content-Type": "application/json"}


# ------------------------------------------------------------------------------------------------------- Static tokens


async def test_an_unknown_token_gets_401_without_details(gateway_for, upstream, tokens):
    token = tokens.add("ci", scopes="send")
    gateway = await gateway_for(upstream, env=with_tokens(tokens))
    client = gateway.client()
    for value in [
        f"Bearer {token}x",
        f"Bearer {token[:-1]}",
        f"Bearer {token.swapcase()}",
        "Bearer",
        "Bearer ",
        f"Bearer {token} {token}",
        f"Basic {base64.b64encode(token.encode()).decode()}",
        f"bearer={token}",
        token,
        "Bearer " + "a" * 20_000,
    ]:
        response = await client.send("x", headers={"Authorization": value})
        response.problem(401)
        assert response.headers["WWW-Authenticate"].startswith('Bearer realm="drawbridge"')
        assert token not in response.body.decode() + str(response.headers)
    assert (await client.send("x", headers={"Authorization": f"bEARER   {token}"})).status == 202
    twice = [("Authorization", f"Bearer {token}")] * 2
    (await client.request("POST", "/v1/messages", data="x", headers=twice)).problem(400)
    for name in ("token", "access_token"):
        (await client.request("GET", "/v1/messages", params={name: token})).problem(401)
        (await client.request("POST", "/v1/messages", params={name: token}, headers=bearer(token))).problem(400)


async def test_equal_idempotency_keys_of_two_clients_are_independent(gateway_for, upstream, tokens):
    first, second = tokens.add("a", scopes="send"), tokens.add("b", scopes="send")
    gateway = await gateway_for(upstream, env={**with_tokens(tokens), "DRAWBRIDGE_HTTP_IDEMPOTENCY_KEYS": "8"})
    client = gateway.client()

    async def send(token, key):
        return await client.send("x", headers={**bearer(token), "Idempotency-Key": key})

    ids = {(await send(token, "k")).json["id"] for token in (first, first, second)}
    assert len(ids) == 2
    # Each principal may use a quarter of the keys.
    assert (await send(first, "l")).status == 202
    assert (await send(first, "m")).problem(503)["type"] == "/errors/too-many-keys"
    assert (await send(second, "m")).status == 202


# ------------------------------------------------------------------------------------------------------------- Cookies


@pytest.mark.parametrize(
    ("method", "fields", "status"),
    [
        ("GET", {"Sec-Fetch-Site": "same-origin"}, 200),
        ("HEAD", {"Sec-Fetch-Site": "same-origin"}, 200),
        ("GET", {"Origin": "https://app.example"}, 200),
        ("GET", {"Origin": "https://app.example", "Sec-Fetch-Site": "cross-site"}, 200),
        ("GET", {}, 401),
        ("GET", {"Sec-Fetch-Site": "none"}, 401),
        ("GET", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("GET", {"Sec-Fetch-Site": "same-site"}, 403),
        ("GET", {"Origin": "https://evil.example"}, 403),
        ("POST", {"Sec-Fetch-Site": "same-origin"}, 401),
        ("POST", {"Origin": "https://app.example"}, 401),
        ("PATCH", {"Sec-Fetch-Site": "same-origin"}, 401),
    ],
)
async def test_the_cookie_only_allows_reading_from_this_origin(gateway_for, upstream, tokens, method, fields, status):
    token = tokens.add("a", scopes="send,receive,admin")
    env = {**with_tokens(tokens), "DRAWBRIDGE_HTTP_ORIGINS": "https://app.example"}
    gateway = await gateway_for(upstream, env=env)
    client = gateway.client()
    path = "/v1/messages?wait=0" if method in ("GET", "HEAD") else "/v1/messages"
    cookie = {"Cookie": f"a=b; drawbridge_token={token}; c=d"}
    response = await client.request(method, path, headers={**fields, **cookie}, data=b"" if method == "POST" else None)
    assert response.status == status
    if status == 401:
        detail = response.problem(401)["detail"]
        assert detail.startswith("the cookie drawbridge_token counts only for GET and HEAD, with Sec-Fetch-Site: ")
        assert detail.endswith(": send Authorization: Bearer and a token")
        without = await client.request(method, path, headers=fields, data=b"" if method == "POST" else None)
        detail = without.problem(401)["detail"]
        assert detail == "the request has no credentials: send Authorization: Bearer and a token"


async def test_a_second_cookie_of_the_same_name_is_refused(gateway_for, upstream, tokens):
    token = tokens.add("a", scopes="receive")
    gateway = await gateway_for(upstream, env=with_tokens(tokens))
    client = gateway.client()
    fields = {"Sec-Fetch-Site": "same-origin", "Cookie": f"drawbridge_token={token}; drawbridge_token=x"}
    (await client.get(fields, wait=0)).problem(401)


# ----------------------------------------------------------------------------------------------------- JSON Web Tokens


def b64(data):
    data = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


async def test_tokens_of_two_libraries_and_all_algorithms_are_accepted(gateway_for, upstream, issuer):
    gateway = await gateway_for(upstream, env=issuer.settings())
    client = gateway.client()
    for algorithm, key in issuer.private.items():
        header = {"alg": algorithm, "kid": algorithm}
        key = READERS.get(algorithm, OctKey).import_key(key)
        by_joserfc = joserfc_jwt.encode(header, issuer.claims(), key, algorithms=[algorithm])
        for token in (issuer.token(algorithm), by_joserfc):
            response = await client.send("x", headers=bearer(token))
            assert response.status == 202, (algorithm, response.body)
    only = issuer.token(scope="receive", drawbridge={"topics": ["a"]})
    (await client.send("x", headers=bearer(only))).problem(403)
    (await client.get(bearer(only), wait=0, topic="b")).problem(403)
    assert (await client.get(bearer(only), wait=0, topic="a")).status == 200
    nowhere = issuer.token(drawbridge={"sessions": []})
    (await client.send("x", headers=bearer(nowhere))).problem(404)


def attacks(issuer):
    """The attacks of RFC 8725 and similar attacks. Each has a name and a token that the gateway must refuse."""
    now = int(time.time())
    good = issuer.token()
    header, claims, signature = good.split(".")
    es256 = {"alg": "ES256", "kid": "ES256"}
    yield "alg none", f"{b64({'alg': 'none'})}.{claims}."
    yield "alg none with a kid", f"{b64({'alg': 'none', 'kid': 'ES256'})}.{claims}."
    yield "alg None", f"{b64({'alg': 'nOnE'})}.{claims}."
    yield "no signature", f"{header}.{claims}."
    yield "two parts", f"{header}.{claims}"
    for name in ("RS256", "ES256"):
        forged = f"{b64({'alg': 'HS256', 'kid': name})}.{claims}"
        mac = hmac.new(issuer.public[name], forged.encode(), hashlib.sha256).digest()
        yield f"HMAC with the public key of {name}", f"{forged}.{b64(mac)}"
    other = Issuer.claims()
    yield "another key", jwt.encode(other, openssl(*KINDS["ES256"]), "ES256", headers={"kid": "ES256"})
    yield "a kid of nobody", issuer.token(headers={"kid": "nobody"})
    yield "a kid that is a path", issuer.token(headers={"kid": "../../../dev/null"})
    yield "a kid that is SQL", issuer.token(headers={"kid": "x' OR '1'='1"})
    yield "the kid of another algorithm", issuer.token(headers={"kid": "RS256"})
    for field, value in [
        ("jku", "https://evil.example/keys"),
        ("x5u", "https://evil.example/chain"),
        ("jwk", issuer.jwks[1]),
        ("crit", ["exp"]),
    ]:
        yield f"with {field}", _signed(issuer, {**es256, field: value}, other)
    yield "for another audience", issuer.token(aud="https://other.example")
    yield "for a longer audience", issuer.token(aud=AUDIENCE + "/x")
    yield "for no audience", issuer.token(aud=None)
    yield "of another issuer", issuer.token(iss="https://evil.example")
    yield "of no issuer", issuer.token(iss=None)
    yield "of no subject", issuer.token(sub=None)
    yield "expired", issuer.token(exp=now - 2)
    yield "without an end", issuer.token(exp=None)
    yield "with an end in words", _signed(issuer, es256, {**other, "exp": "never"})
    yield "with an infinite end", _signed(issuer, es256, json.dumps({**other, "exp": 0})[:-2] + "1e999}")
    yield "not yet valid", issuer.token(nbf=now + 60)
    yield "too large", issuer.token(pad="x" * 8192)
    repeated = json.dumps(other)[:-1] + ', "aud": "https://other.example"}'
    yield "with a member twice", _signed(issuer, es256, repeated)
    yield "with a header member twice", _signed(issuer, '{"alg":"ES256","kid":"ES256","alg":"none"}', other)
    yield "of another type", _signed(issuer, {**es256, "typ": "secevent+jwt"}, other)
    yield "nested", _signed(issuer, {**es256, "cty": "JWT"}, good.encode())
    yield "with changed claims", f"{header}.{b64(Issuer.claims(scope='admin'))}.{signature}"
    yield "with padding", f"{header}.{claims}.{signature}="
    yield "with another last bit", good[:-1] + chr(ord(good[-1]) ^ 1)
    yield "encrypted", ".".join([header, claims, signature, b64(b"x"), b64(b"y")])


def _signed(issuer, header, claims):
    """A JWS over any header and payload, signed with the algorithm that the header names."""

    def part(value):
        if isinstance(value, bytes):
            return b64(value)
        return b64(value.encode() if isinstance(value, str) else value)

    text = f"{part(header)}.{part(claims)}"
    key = serialization.load_pem_private_key(issuer.private["ES256"], None)
    r, s = decode_dss_signature(key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{text}.{b64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


async def test_every_attack_of_rfc_8725_gets_401(gateway_for, upstream, issuer):
    gateway = await gateway_for(upstream, env=issuer.settings())
    client = gateway.client()
    # This shows that `_signed` itself works: the gateway accepts a good token from it.
    good = _signed(issuer, {"alg": "ES256", "kid": "ES256"}, Issuer.claims())
    assert (await client.send("x", headers=bearer(good))).status == 202
    count = 0
    for name, token in attacks(issuer):
        response = await client.send("x", headers=bearer(token))
        assert response.status == 401, (name, response.status, response.body)
        assert 'error="invalid_token"' in response.headers["WWW-Authenticate"], name
        count += 1
    assert count > 30
    metrics = await gateway.metrics()
    assert metrics["drawbridge_requests_unauthenticated_total"] == count


async def test_an_issuer_cannot_sign_for_another_issuer(gateway_for, upstream, issuer, tmp_path):
    other = "https://other.example"
    owners = {"ES256": ISSUER, "RS256": other}
    jwks = [{**jwk, "iss": owners[jwk["kid"]]} for jwk in issuer.jwks if jwk["kid"] in owners]
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": jwks}))
    env = issuer.settings(
        DRAWBRIDGE_AUTHENTICATION_JWT_KEYS=str(path), DRAWBRIDGE_AUTHENTICATION_JWT_ISSUER=f"{ISSUER},{other}"
    )
    gateway = await gateway_for(upstream, env=env)
    client = gateway.client()
    for algorithm, owner in owners.items():
        for claimed in (ISSUER, other):
            response = await client.send("x", headers=bearer(issuer.token(algorithm, iss=claimed)))
            assert response.status == (202 if claimed == owner else 401), (algorithm, claimed, response.body)
    # These keys do not name their issuer.
    path.write_text(json.dumps({"keys": issuer.jwks}))
    status, _, err = await run("check-config", "--upstream", "ws://127.0.0.1:1/", env=env)
    assert status == 78
    assert "'iss'" in err


# -------------------------------------------------------------------------------------------------- Files that change


async def test_tokens_are_rotated_under_load_without_a_failed_request(gateway_for, upstream, tokens):
    current = tokens.add("ci", scopes="send,receive")
    gateway = await gateway_for(upstream, env=with_tokens(tokens))
    statuses, is_over = [], asyncio.Event()

    async def load():
        client = gateway.client()
        while not is_over.is_set():
            statuses.append((await client.get(bearer(current), wait=0)).status)

    tasks = [asyncio.create_task(load()) for _ in range(8)]
    client = gateway.client()

    async def becomes(token, *expected):
        async def has_status():
            return (await client.get(bearer(token), wait=0)).status in expected

        await eventually(has_status, what=f"the token gets one of {expected}")

    def uses(count):
        return lambda: len(statuses) > count

    for number in range(2):
        old, new = current, tokens.add(f"ci-{number}", scopes="send,receive")
        await becomes(new, 200)
        current = new
        await eventually(uses(len(statuses) + 100), what="the clients use the new token")
        tokens.remove(old)
        # Status 429 is possible, because the test itself has sent many wrong tokens by then.
        await becomes(old, 401, 429)
    is_over.set()
    await asyncio.gather(*tasks)
    assert set(statuses) == {200}


async def test_a_bad_file_keeps_the_tokens_that_were_valid(gateway_for, upstream, tokens):
    token = tokens.add("a", scopes="send")
    gateway = await gateway_for(upstream, env=with_tokens(tokens))
    good = tokens.path.read_text()
    tokens.path.write_text(good + "broken line\n")
    record = await gateway.logs(lambda record: "remains in effect" in record["message"], what="the bad file")
    assert "line 2" in record["reason"]
    assert (await gateway.client().send("x", headers=bearer(token))).status == 202
    assert (await gateway.metrics())["drawbridge_access_files_valid"] == 0
    tokens.path.write_text(good)

    async def is_valid():
        return (await gateway.metrics())["drawbridge_access_files_valid"] == 1

    await eventually(is_valid, what="the file is valid again")


async def test_a_bad_file_of_keys_does_not_keep_a_removed_token(gateway_for, upstream, tokens, issuer, tmp_path):
    keys = tmp_path / "keys.json"
    keys.write_text(issuer.path.read_text())
    token, web = tokens.add("a", scopes="send"), issuer.token()
    env = {**issuer.settings(DRAWBRIDGE_AUTHENTICATION_JWT_KEYS=str(keys)), **with_tokens(tokens)}
    gateway = await gateway_for(upstream, env=env)
    client = gateway.client()
    keys.unlink()
    await gateway.logs(lambda record: "remains in effect" in record["message"], what="the file of keys is gone")
    tokens.remove(token)

    async def is_refused():
        return (await client.send("x", headers=bearer(token))).status == 401

    await eventually(is_refused, what="the removed token is refused")
    # Keys that were valid before remain valid.
    assert (await client.send("x", headers=bearer(web))).status == 202
    assert (await gateway.metrics())["drawbridge_access_files_valid"] == 0


async def test_a_file_that_is_being_written_takes_no_effect(start, tmp_path, upstream, tokens):
    """The file takes no effect even if the configuration changes meanwhile and the gateway reads the file again."""
    token = tokens.add("a", scopes="send")
    text = f"upstream: {{url: '{upstream.url}'}}\nauthentication: {{tokens: '{tokens.path}'}}\n"
    env = {"DRAWBRIDGE_RELOAD": "watch"}
    gateway = await start(Gateway(config=text, env=env, folder=tmp_path))
    await gateway.ready()
    client = gateway.client()
    whole = tokens.path.read_text()

    def reloads():
        return sum(record["message"] == "configuration reloaded" for record in gateway.records)

    # The part that is written so far has no token, and differs each time the gateway reads it.
    for number in range(2):
        with tokens.path.open("w") as file:
            gateway.rewrite(text + f"log: {{access: {'all' if number == 0 else 'errors'}}}\n")
            while reloads() <= number:
                file.write("# Tokens\n")
                file.flush()
                assert (await client.send("x", headers=bearer(token))).status == 202
    tokens.path.write_text(whole)
    new = tokens.add("b", scopes="send")

    async def is_accepted():
        return (await client.send("x", headers=bearer(new))).status == 202

    await eventually(is_accepted, what="the whole file takes effect")
    assert (await client.send("x", headers=bearer(token))).status == 202


async def test_pem_keys_are_rotated_under_load_without_a_failed_request(gateway_for, upstream, tmp_path):
    pairs = [openssl(*KINDS["ES256"]) for _ in range(3)]
    public = [openssl("pkey", "-pubout", stdin=key) for key in pairs]
    path = tmp_path / "keys.pem"

    def publish(*numbers):
        new = path.with_suffix(".new")
        new.write_bytes(b"".join(public[number] for number in numbers))
        new.replace(path)

    def token(number):
        return jwt.encode(Issuer.claims(), pairs[number], "ES256")

    publish(0)
    env = {
        "DRAWBRIDGE_AUTHENTICATION_JWT_KEYS": str(path),
        "DRAWBRIDGE_AUTHENTICATION_JWT_AUDIENCE": AUDIENCE,
        "DRAWBRIDGE_LIMITS_FAILED_AUTHENTICATIONS": "none",
    }
    gateway = await gateway_for(upstream, env=env)
    current, statuses, is_over = token(0), [], asyncio.Event()

    async def load():
        client = gateway.client()
        while not is_over.is_set():
            statuses.append((await client.get(bearer(current), wait=0)).status)

    tasks = [asyncio.create_task(load()) for _ in range(4)]
    client = gateway.client()
    for number in (1, 2):
        publish(number - 1, number)

        async def has_status(status, token):
            return (await client.get(bearer(token), wait=0)).status == status

        new, old = token(number), current
        await eventually(lambda new=new: has_status(200, new), what="the new key is in effect")
        current, count = new, len(statuses)
        await eventually(lambda count=count: len(statuses) > count + 50, what="the clients use the new key")
        publish(number)
        await eventually(lambda old=old: has_status(401, old), what="the old key is gone")
    is_over.set()
    await asyncio.gather(*tasks)
    assert set(statuses) == {200}


async def test_a_signal_reads_the_files_again(gateway_for, upstream, tokens):
    gateway = await gateway_for(upstream, env=with_tokens(tokens))
    token = tokens.add("late", scopes="send")
    gateway.signal(signal.SIGHUP)

    async def is_accepted():
        return (await gateway.client().send("x", headers=bearer(token))).status == 202

    await eventually(is_accepted, what="the token is accepted")


@pytest.mark.parametrize(
    ("setting", "content", "hint"),
    [
        ("TOKENS", None, "cannot be read"),
        ("TOKENS", "a sha256:00 scopes=send\n", "line 1"),
        ("TOKENS", f"a sha256:{'0' * 64} scopes=fly\n", "line 1"),
        ("JWT_KEYS", "{", "keys"),
        ("JWT_KEYS", '{"keys":[{"kty":"oct","k":"c2hvcnQ"}]}', "key"),
    ],
)
async def test_an_invalid_file_makes_the_start_and_check_config_exit_with_78(tmp_path, setting, content, hint):
    path = tmp_path / "file"
    if content is not None:
        path.write_text(content)
    env = {f"DRAWBRIDGE_AUTHENTICATION_{setting}": str(path), "DRAWBRIDGE_AUTHENTICATION_JWT_AUDIENCE": "a"}
    for command in ("check-config", "serve"):
        status, _, err = await run(command, "--upstream", "ws://127.0.0.1:1/", env=env)
        assert status == 78, err
        assert str(path) in err
        assert hint in err


# ------------------------------------------------------------------------------------------------- The command and logs


async def test_the_command_prints_a_token_and_its_line(gateway_for, upstream, tmp_path):
    status, line, token = await run("token", "billing", "--scopes", "send", "--sessions", "default")
    assert status == 0
    token = token.strip()
    assert token not in line
    assert line.startswith("billing sha256:")
    assert line.endswith(" scopes=send sessions=default\n")
    path = tmp_path / "tokens"
    path.write_text(line)
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_AUTHENTICATION_TOKENS": str(path)})
    await gateway.client().accepted("x", headers=bearer(token))
    for arguments in [(), ("a b",), ("#a",), ("a", "b"), ("a", "--scope", "send")]:
        status, out, _ = await run("token", *arguments)
        assert (status, out) == (64, ""), arguments


async def test_the_log_names_principals_and_why_a_token_is_refused(gateway_for, upstream, tokens, issuer):
    token = tokens.add("billing", scopes="send")
    env = {**issuer.settings(), **with_tokens(tokens), "DRAWBRIDGE_LOG_LEVEL": "debug", "DRAWBRIDGE_LOG_ACCESS": "all"}
    gateway = await gateway_for(upstream, env=env)
    client = gateway.client()
    for name, credentials, status, principal in [
        ("r1", token, 202, "billing"),
        ("r2", issuer.token(sub="me"), 202, f"{ISSUER} me"),
        ("r3", issuer.token(scope="receive"), 403, f"{ISSUER} me"),
        ("r4", issuer.token(headers={"kid": "nobody"}), 401, "-"),
    ]:
        response = await client.send("x", headers={**bearer(credentials), "X-Request-Id": name})
        assert response.status == status
        line = await gateway.logs(
            lambda record, name=name: record["message"] == "request" and record["request_id"] == name, what=name
        )
        assert line["principal"] == principal
    refused = await gateway.logs(
        lambda record: record["message"] == "request refused" and record["request_id"] == "r4", what="the refusal"
    )
    assert refused["detail"] == "no configured key has the 'kid' and 'alg' of the JWT"
    # The response contains less than the log.
    assert "kid" not in response.body.decode()


async def test_no_token_is_in_the_log_or_a_response(gateway_for, upstream, tokens, issuer):
    token = tokens.add("a", scopes="send,receive")
    web = issuer.token()
    env = {**issuer.settings(), **with_tokens(tokens), "DRAWBRIDGE_LOG_LEVEL": "trace", "DRAWBRIDGE_LOG_ACCESS": "all"}
    gateway = await gateway_for(upstream, env=env)
    client = gateway.client()
    for secret in (token, web, token + "wrong", web + "wrong"):
        fields = [bearer(secret), {"Cookie": f"drawbridge_token={secret}", "Sec-Fetch-Site": "same-origin"}]
        for headers in fields:
            for path in ("/v1/messages?wait=0", "/v1/messages?wait=x", "/nowhere", f"/v1/messages?token={secret[:6]}"):
                response = await client.request("GET", path, headers=headers)
                assert secret not in response.body.decode() + str(response.headers)
    assert (await client.get(bearer(web), wait=0)).status == 200
    assert token[:20] not in gateway.output
    assert web.split(".")[1][:20] not in gateway.output
    assert web.split(".")[2][:20] not in gateway.output
