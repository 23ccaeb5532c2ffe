"""A certificate authority for one test run, made with the openssl command."""

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


@dataclass(frozen=True)
class Certificate:
    """A server certificate and its key, as PEM files."""

    chain: Path
    key: Path

    def server_context(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.chain, self.key)
        return context


class CertificateAuthority:
    """Issues server certificates below `folder`; `path` is what the gateway is told to trust."""

    def __init__(self, folder, name="Drawbridge test CA"):
        self.folder = Path(folder)
        self.path = self.folder / "ca.pem"
        self._key = self.folder / "ca.key"
        self._issued = 0
        openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
            *("-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign,cRLSign"),
            *("-keyout", self._key, "-out", self.path),
        )

    def issue(self, *names, days=1):
        """A certificate for `names`, each written as openssl does: `DNS:localhost`, `IP:127.0.0.1`."""
        self._issued += 1
        stem = self.folder / f"server-{self._issued}"
        key, request, chain, extensions = (stem.with_suffix(s) for s in (".key", ".csr", ".pem", ".ext"))
        extensions.write_text(f"subjectAltName={','.join(names)}\nextendedKeyUsage=serverAuth\n")
        openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=drawbridge test"),
            *("-keyout", key, "-out", request),
        )
        openssl(
            *("x509", "-req", "-in", request, "-CA", self.path, "-CAkey", self._key, "-CAcreateserial"),
            *("-extfile", extensions, "-days", days, "-out", chain),
        )
        return Certificate(chain, key)
