"""Static tokens, and the file with their hashes, which the gateway reads."""

import hashlib
import secrets


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


class TokenFile:
    """A file of static tokens. Every change replaces the whole file."""

    def __init__(self, folder):
        self.path = folder / "tokens"
        self._lines = {}
        self._save()

    def add(self, name, **lists):
        token = secrets.token_urlsafe(32)
        words = [f"{key}={value}" for key, value in lists.items()]
        self._lines[token] = " ".join([name, "sha256:" + hashlib.sha256(token.encode()).hexdigest(), *words])
        self._save()
        return token

    def remove(self, token):
        del self._lines[token]
        self._save()

    def _save(self):
        new = self.path.with_suffix(".new")
        new.write_text("".join(line + "\n" for line in self._lines.values()))
        new.replace(self.path)
