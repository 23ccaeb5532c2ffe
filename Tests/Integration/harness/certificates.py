"""A certificate authority for one test run, with certificates for its servers and clients."""

import base64
import hashlib
import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, as PEM files."""

    chain: Path
    key: Path

    def server_context(self, *, version=None, client_authority=None):
        """A context for a server. With `client_authority`, clients must present a certificate from that authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.chain, self.key)
        if version:
            context.minimum_version = context.maximum_version = version
        if client_authority:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(client_authority.path)
        return context

    @property
    def pin(self):
        """Base64 of the SHA-256 of the certificate's SubjectPublicKeyInfo."""
        certificate = x509.load_pem_x509_certificate(self.chain.read_bytes())
        key = certificate.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return base64.b64encode(hashlib.sha256(key).digest()).decode()


class CertificateAuthority:
    """Issues certificates below `folder`. `path` is the authority's own certificate, which the gateway trusts."""

    def __init__(self, folder, name="Drawbridge test CA"):
        self.folder = Path(folder)
        self.path = self.folder / "ca.pem"
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._issued = 0
        builder = _builder(self._name, self._name, self._key.public_key(), days=2)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        self.path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, *names, days=1, starts_in=0, self_signed=False, for_clients=False, common_name="drawbridge test"):
        """A certificate for `names`, each in OpenSSL's form: `DNS:localhost`, `IP:127.0.0.1`, `URI:spiffe://a/b`.

        It begins an hour before `starts_in` days from now and is valid for `days`. Negative numbers make an expired
        certificate.
        """
        self._issued += 1
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        issuer = subject if self_signed else self._name
        builder = _builder(subject, issuer, key.public_key(), days=days, starts_in=starts_in)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        purpose = ExtendedKeyUsageOID.CLIENT_AUTH if for_clients else ExtendedKeyUsageOID.SERVER_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(map(_name, names)), critical=False)
        certificate = builder.sign(key if self_signed else self._key, hashes.SHA256())
        stem = self.folder / f"issued-{self._issued}"
        issued = Certificate(stem.with_suffix(".pem"), stem.with_suffix(".key"))
        issued.chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        issued.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return issued


def _builder(subject, issuer, key, *, days, starts_in=0):
    # The certificate begins an hour earlier, since the clocks of two processes may differ.
    start = datetime.now(UTC) + timedelta(days=starts_in, hours=-1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=days))
    )


def _usage(*, signs_certificates):
    return x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text):
    kind, _, value = text.partition(":")
    kinds = {
        "DNS": x509.DNSName,
        "IP": lambda address: x509.IPAddress(ipaddress.ip_address(address)),
        "URI": x509.UniformResourceIdentifier,
    }
    return kinds[kind](value)
