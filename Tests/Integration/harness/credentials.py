"""An issuer of JSON Web Tokens, and settings for credentials."""

import base64
import json
import secrets
import subprocess
import time

import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

TOPICS = {"DRAWBRIDGE_UPSTREAM_TOPIC_POINTER": "/topic"}
AUDIENCE = "https://gateway.example"
ISSUER = "https://issuer.example"


def with_tokens(tokens):
    return {"DRAWBRIDGE_AUTHENTICATION_TOKENS": str(tokens.path), **TOPICS}


def openssl(*arguments, stdin=None):
    return subprocess.run(("openssl", *arguments), input=stdin, check=True, capture_output=True).stdout


# The command of OpenSSL that makes a key of each algorithm.
KINDS = {
    "RS256": ("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"),
    "ES256": ("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"),
    "EdDSA": ("genpkey", "-algorithm", "ed25519"),
}


READERS = {"RS256": RSAKey, "ES256": ECKey, "EdDSA": OKPKey}


class Issuer:
    """An issuer with one key of each algorithm. Its JWK Set contains the public keys."""

    def __init__(self, folder):
        self.path = folder / "keys.json"
        self.private = {algorithm: openssl(*command) for algorithm, command in KINDS.items()}
        self.public = {name: openssl("pkey", "-pubout", stdin=key) for name, key in self.private.items()}
        self.private["HS256"] = secrets.token_bytes(32)
        self.jwks = []
        for algorithm, key in self.public.items():
            jwk = READERS[algorithm].import_key(key).as_dict()
            self.jwks.append({**jwk, "kid": algorithm, "alg": algorithm, "use": "sig"})
        secret = base64.urlsafe_b64encode(self.private["HS256"]).rstrip(b"=").decode()
        self.jwks.append({"kty": "oct", "k": secret, "kid": "HS256", "alg": "HS256"})
        self.save()

    def save(self):
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"keys": self.jwks}))
        new.replace(self.path)

    def settings(self, **more):
        return {
            "DRAWBRIDGE_AUTHENTICATION_JWT_KEYS": str(self.path),
            "DRAWBRIDGE_AUTHENTICATION_JWT_AUDIENCE": AUDIENCE,
            "DRAWBRIDGE_AUTHENTICATION_JWT_ISSUER": ISSUER,
            "DRAWBRIDGE_AUTHENTICATION_JWT_LEEWAY": "0s",
            **TOPICS,
            **more,
        }

    @staticmethod
    def claims(**changes):
        now = time.time()
        claims = {
            "iss": ISSUER,
            "sub": "me",
            "aud": AUDIENCE,
            "iat": int(now),
            "exp": now + 600,
            "scope": "send receive",
        }
        claims.update(changes)
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, algorithm="ES256", headers=None, **changes):
        return jwt.encode(
            self.claims(**changes), self.private[algorithm], algorithm, headers={"kid": algorithm, **(headers or {})}
        )
