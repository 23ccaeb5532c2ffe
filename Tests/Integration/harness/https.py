"""Clients of an HTTPS listener: Python's TLS, and clients that control single records."""

import asyncio
import hmac
import socket
import ssl
import struct

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

#: The errors of a client whose connection or handshake is refused.
BROKEN = (OSError, EOFError, asyncio.IncompleteReadError)


def trusting(authority, *, client=None, version=None):
    """The context of a client that trusts `authority`. If `client` is given, the client has this certificate."""
    context = ssl.create_default_context(cafile=authority.path)
    # With OpenSSL 3, Python sets this option, which makes an end without close_notify no error.
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    if version:
        context.minimum_version = context.maximum_version = version
    if client:
        context.load_cert_chain(client.chain, client.key)
    return context


def listening(certificate):
    """The arguments and the environment of a gateway with an HTTPS listener."""
    return ("--listen-https", "127.0.0.1:0"), {
        "DRAWBRIDGE_LISTENERS_TLS_CERTIFICATE": str(certificate.chain),
        "DRAWBRIDGE_LISTENERS_TLS_KEY": str(certificate.key),
    }


async def connect(gateway, context, source=None):
    return await asyncio.open_connection(
        *gateway.address("https"),
        ssl=context,
        server_hostname="localhost",
        local_addr=(source, 0) if source else None,
    )


async def exchange(stream, target="/v1/session", *fields, method="GET", body=b""):
    """Sends a request. Returns the status and the body."""
    reader, writer = stream
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *fields]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)).decode()
    size = next(line for line in head.split("\r\n") if line.lower().startswith("content-length:")).split(":")[1]
    return int(head.split()[1]), await asyncio.wait_for(reader.readexactly(int(size)), 30)


async def works(gateway, context, source=None):
    """Whether a new connection is served."""
    stream = await connect(gateway, context, source)
    try:
        return (await exchange(stream))[0] == 200
    finally:
        stream[1].close()


def blocking(gateway, context, session=None, *, receive_buffer=None):
    """A connection with blocking sockets, which can resume a session. An end without close_notify is an error."""
    plain = socket.socket()
    if receive_buffer:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    plain.settimeout(30)
    plain.connect(gateway.address("https"))
    return context.wrap_socket(plain, server_hostname="localhost", session=session, suppress_ragged_eofs=False)


def served(stream):
    """The certificate that the gateway has presented."""
    return stream[1].get_extra_info("ssl_object").getpeercert(binary_form=True)


async def metric(gateway, name):
    return (await gateway.metrics())[f"drawbridge_http_{name}"]


async def counts(gateway, name, count):
    return await metric(gateway, name) == count


async def is_held(gateway, count):
    return (await gateway.metrics())["drawbridge_polls_held"] == count


class Ciphertext:
    """A TLS client whose records the test passes on. The test can thus cut the client's output anywhere."""

    def __init__(self, context):
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        #: All bytes that the server has sent, and the decrypted part of them.
        self.received = bytearray()
        self.plaintext = bytearray()

    def handshake(self):
        """Continues the handshake. Returns whether it is complete."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def take(self):
        """The bytes to send."""
        return self._outgoing.read()

    def put(self, data):
        self.received += data
        self._incoming.write(data)

    def read(self):
        try:
            while piece := self.tls.read(65536):
                self.plaintext += piece
        except ssl.SSLWantReadError:
            pass
        return self.plaintext


class RecordWriter:
    """A client that can write any record after its handshake, and does not have to read."""

    def __init__(self, address, context, keys, *, receive_buffer=4096):
        context.keylog_filename = str(keys)
        if context.maximum_version == ssl.TLSVersion.TLSv1_2:
            context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(30)
        self.socket.connect(address)
        client = Ciphertext(context)
        while not client.handshake():
            self.socket.sendall(client.take())
            piece = self.socket.recv(65536)
            assert piece
            client.put(piece)
        self.socket.sendall(client.take())
        lines = [line.split() for line in keys.read_text().splitlines() if not line.startswith("#")]
        secrets = {label: bytes.fromhex(secret) for label, _, secret in lines}
        if client.tls.version() == "TLSv1.3":
            assert client.tls.cipher()[0] == "TLS_AES_256_GCM_SHA384"
            self._use(secrets["CLIENT_TRAFFIC_SECRET_0"])
            return
        # RFC 5246 §5 and §6.3. The first record is a ServerHello, whose random follows 11 bytes.
        label, client_random, _ = lines[-1]
        seed = b"key expansion" + client.received[11:43] + bytes.fromhex(client_random)

        def mac(data):
            return hmac.digest(secrets[label], data, "sha256")

        first = mac(seed)
        block = mac(first + seed) + mac(mac(first) + seed)
        self._secret, self._cipher, self._salt = None, AESGCM(block[:16]), block[32:36]
        # The client has sent its Finished.
        self._number = 1

    def _use(self, secret):
        """Derives the keys of TLS 1.3 (RFC 8446 §7.3)."""
        self._secret, self._number = secret, 0
        self._cipher, self._iv = AESGCM(_expand(secret, "key", 32)), _expand(secret, "iv", 12)

    def record(self, kind, data):
        number = struct.pack("!Q", self._number)
        self._number += 1
        if self._secret is None:
            sealed = self._cipher.encrypt(
                self._salt + number, data, number + struct.pack("!BHH", kind, 0x0303, len(data))
            )
            return struct.pack("!BHH", kind, 0x0303, 8 + len(sealed)) + number + sealed
        nonce = bytes(a ^ b for a, b in zip(self._iv, bytes(4) + number, strict=True))
        head = struct.pack("!BHH", 23, 0x0303, len(data) + 17)
        return head + self._cipher.encrypt(nonce, data + bytes([kind]), head)

    def key_update(self):
        """Sends a key update. Later records use new keys, and so must the server's records (RFC 8446 §4.6.3)."""
        record = self.record(22, b"\x18\0\0\x01\x01")
        self._use(_expand(self._secret, "traffic upd", 48))
        return record

    def send(self, data):
        """Sends a record of application data."""
        self.socket.sendall(self.record(23, data))

    def read_to_the_end(self):
        received = b""
        try:
            while piece := self.socket.recv(65536):
                received += piece
        except ConnectionError:
            pass
        return received


def _expand(secret, label, length):
    """HKDF-Expand-Label (RFC 8446 §7.1) for at most one block."""
    text = b"tls13 " + label.encode()
    return hmac.digest(secret, struct.pack("!HB", length, len(text)) + text + b"\0\x01", "sha384")[:length]
