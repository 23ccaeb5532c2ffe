"""The matrix of test_matrix.py: the operations of openapi.yaml, a valid request for each, and kinds of credentials."""

import dataclasses
import re

import yaml

from .gateway import PROJECT

ALL = frozenset({"send", "receive", "call", "admin"})
#: Any scope suffices.
ANY = ALL
#: No credentials are needed.
PUBLIC = None


@dataclasses.dataclass(frozen=True)
class Operation:
    """A valid request. Its body has placeholders for values of one cell."""

    #: The scopes of which one is needed.
    scopes: frozenset | None
    status: int = 200
    query: str = ""
    body: str = ""
    #: Whether the request changes the state that `Scene.state` reads.
    changes: bool = False


def _scopes(*names):
    return frozenset(names)


CALL = '{"jsonrpc":"2.0","id":1,"method":"$name"}'
SESSION = '{"profile":"market"}'
CHANGE = '{"desired":"$desired"}'

OPERATIONS = {
    "GET /openapi.yaml": Operation(PUBLIC),
    "GET /errors/{type}": Operation(PUBLIC),
    "GET /history": Operation(PUBLIC),
    "POST /v1/messages": Operation(_scopes("send"), 202, body='"$name"', changes=True),
    "GET /v1/messages": Operation(_scopes("receive"), query="cursor=earliest&wait=0"),
    "POST /v1/call": Operation(_scopes("call"), query="wait=50", body=CALL, changes=True),
    "GET /v1/deliveries/{id}": Operation(_scopes("send", "call")),
    "GET /v1/session": Operation(ANY),
    "PATCH /v1/session": Operation(_scopes("admin"), body=CHANGE),
    "GET /v1/sessions": Operation(ANY),
    "PUT /v1/sessions/{name}": Operation(ANY, 201, body=SESSION, changes=True),
    "GET /v1/sessions/{name}": Operation(ANY),
    "PATCH /v1/sessions/{name}": Operation(_scopes("admin"), body=CHANGE, changes=True),
    "DELETE /v1/sessions/{name}": Operation(ANY, 204, changes=True),
    "GET /v1/consumers": Operation(_scopes("receive")),
    "PUT /v1/consumers/{consumer}": Operation(_scopes("receive"), 201, body="{}", changes=True),
    "GET /v1/consumers/{consumer}": Operation(_scopes("receive")),
    "DELETE /v1/consumers/{consumer}": Operation(_scopes("receive"), 204, changes=True),
    "POST /v1/consumers/{consumer}/receive": Operation(_scopes("receive"), query="wait=50", changes=True),
    "POST /v1/consumers/{consumer}/settle": Operation(_scopes("receive"), body='{"ack":["$lease"]}', changes=True),
    "GET /v1/consumers/{consumer}/dead": Operation(_scopes("receive")),
    "DELETE /v1/consumers/{consumer}/dead": Operation(_scopes("receive"), changes=True),
    "POST /v1/consumers/{consumer}/dead/retry": Operation(_scopes("receive"), changes=True),
    "GET /v1/reload": Operation(_scopes("admin")),
    "POST /v1/reload": Operation(_scopes("admin"), 202, changes=True),
}

CONTRACT = yaml.safe_load((PROJECT / "Sources/Drivers/API/openapi.yaml").read_text())["paths"]
UNSAFE = ("POST", "PUT", "PATCH", "DELETE")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
#: The methods of each path, in the order of `Allow`. HEAD is supported wherever GET is, and OPTIONS on every path.
ALLOWED = {
    path: [name for name in METHODS if name.lower() in row or (name == "HEAD" and "get" in row) or name == "OPTIONS"]
    for path, row in CONTRACT.items()
}
#: The paths of the management listener need no credentials.
MANAGEMENT = {path for path, row in CONTRACT.items() if "servers" in row}
#: Paths that also exist below /v1/sessions/{name}.
PARTS = re.compile("/v1/(messages|call|deliveries|consumers)")


@dataclasses.dataclass(frozen=True)
class Credentials:
    name: str
    sessions: str = "*"
    topics: str = "*"

    def scopes(self, operation):
        needed = (operation and operation.scopes) or ANY
        if self.name == "without the scope":
            return ALL - needed or ALL - {"admin"}
        if self.name == "with the scope alone":
            return frozenset({max(needed)})
        return ALL


NONE, REVOKED = Credentials("without credentials"), Credentials("revoked between head and body")
LIMITED, ADMIN = Credentials("with some topics", topics="orders.*"), Credentials("admin")
CREDENTIALS = (
    NONE,
    Credentials("without the scope"),
    Credentials("with the scope alone"),
    Credentials("for another session", sessions="other"),
    LIMITED,
    ADMIN,
    REVOKED,
)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One request of the matrix."""

    number: int
    #: The path in openapi.yaml.
    path: str
    #: /v1, or the path of a session.
    root: str
    method: str
    credentials: Credentials

    @property
    def operation(self):
        """None if the path does not have the method."""
        return OPERATIONS.get(f"{'GET' if self.method == 'HEAD' else self.method} {self.path}")

    @property
    def scopes(self):
        return self.credentials.scopes(self.operation)

    @property
    def name(self):
        """The name of the session or consumer that only this request concerns."""
        return f"m{self.number}"

    @property
    def target(self):
        names = {"type": "not-found", "name": self.name, "consumer": self.name, "id": "$id"}
        target = self.path.format(**names).replace("/v1", self.root, 1)
        return f"{target}?{self.operation.query}" if self.operation and self.operation.query else target

    @property
    def session(self):
        """The path of the session that the request concerns; None if it concerns none."""
        if self.path == "/v1/session" or PARTS.match(self.path):
            return self.root
        return self.target if "{name}" in self.path else None

    @property
    def listener(self):
        return "management" if self.path in MANAGEMENT else "api"

    @property
    def is_change(self):
        """Whether the request changes something if it is executed."""
        return self.operation is not None and self.operation.changes and self.method in UNSAFE

    def needs(self, name):
        """Whether a session or consumer must exist for the request."""
        return f"{{{name}}}" in self.path and self.operation is not None and self.method != "PUT"

    def __str__(self):
        return f"{self.method} {self.target} {self.credentials.name}"


def cells(*roots):
    """The matrix for sessions with these paths."""
    number = 0
    # The reload is last, since it replaces the connections of all sessions.
    for path in sorted(CONTRACT, key=lambda path: path == "/v1/reload"):
        wrong = next(name for name in UNSAFE if name not in ALLOWED[path])
        for root in roots if PARTS.match(path) else ["/v1"]:
            for method in dict.fromkeys((*ALLOWED[path], "GET", "HEAD", wrong)):
                for credentials in CREDENTIALS:
                    number += 1
                    yield Cell(number, path, root, method, credentials)
