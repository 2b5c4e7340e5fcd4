"""A certificate that one process makes for itself, for TLS between machines that know its fingerprint beforehand.

Nobody vouches for it: who connects compares its fingerprint with the one that came by another way.
"""

from __future__ import annotations

import hashlib
import os
import ssl
from datetime import datetime


def server_context() -> tuple[ssl.SSLContext, str]:
    """Return a context for a server with a key and a certificate of its own, and the fingerprint of that."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sweep")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1))  # machines' clocks may differ
        .not_valid_after(datetime(2049, 12, 31))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # nobody comes back with one
    file = os.memfd_create("key")  # OpenSSL reads it from a file: the key is on no disk
    try:
        os.write(file, key.private_bytes(pem, *plain) + certificate.public_bytes(pem))
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
    return context, fingerprint(certificate.public_bytes(serialization.Encoding.DER))


def fingerprint(certificate: bytes) -> str:
    """Return the SHA-256 of a certificate in DER, in hexadecimal."""
    return hashlib.sha256(certificate).hexdigest()


def client_context() -> ssl.SSLContext:
    """Return a context for a client that compares the server's fingerprint itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
