"""A certificate, and a proxy that speaks TLS for a PostgreSQL server: that of the tests is built without it."""

import contextlib
import ipaddress
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

SSL_REQUEST = (8).to_bytes(4, "big") + (80877103).to_bytes(4, "big")


def make_certificate(directory: Path) -> tuple[str, str]:
    """The files of a certificate for 127.0.0.1 and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = directory / "cert.pem", directory / "key.pem"
    files[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(files[0]), str(files[1])


@contextlib.contextmanager
def tls_before(port: int, certificate: tuple[str, str]) -> Iterator[int]:
    """The port of a proxy in front of the server, which takes connections with TLS only."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener, port, context), daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket, port: int, context: ssl.SSLContext) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_connect, args=(client, port, context), daemon=True).start()


def _connect(client: socket.socket, port: int, context: ssl.SSLContext) -> None:
    with client, contextlib.suppress(OSError):
        if client.recv(8) != SSL_REQUEST:
            return
        client.sendall(b"S")
        with context.wrap_socket(client, server_side=True) as secure:
            _copy_both(secure, port)


def _copy_both(secure: ssl.SSLSocket, port: int) -> None:
    """Copy in one thread, as a connection with TLS is not safe in two."""
    with socket.create_connection(("127.0.0.1", port)) as server:
        others: dict[socket.socket, socket.socket] = {secure: server, server: secure}
        while True:
            ready = [secure] if secure.pending() else select.select([*others], [], [])[0]
            for source in ready:
                data = source.recv(65536)
                if not data:
                    return
                others[source].sendall(data)
