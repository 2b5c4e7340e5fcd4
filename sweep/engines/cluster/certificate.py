"""A certificate that one process makes for itself, for TLS between machines that know its fingerprint beforehand.

Nobody vouches for it: who connects compares its fingerprint with the one that came by another way (RFC 5280 calls it
self-signed). The standard library speaks TLS, but cannot make a key; what is missing there is one multiplication on the
curve P-256 and a few fields of DER.

Sources: NIST SP 800-186 (the curve), SEC 1 4.1.3 (ECDSA), RFC 5915 (the private key), RFC 5280 (the certificate).
"""

from __future__ import annotations

import hashlib
import os
import secrets
import ssl

# P-256: y^2 = x^3 - 3 x + b modulo _P; the multiples of (_X, _Y) are _N points.
_P = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_X = 0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296
_Y = 0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5

_ECDSA_SHA256 = bytes.fromhex("300a06082a8648ce3d040302")
_P256 = bytes.fromhex("06082a8648ce3d030107")
_KEY_ON_P256 = bytes.fromhex("301306072a8648ce3d0201") + _P256
_NAME = bytes.fromhex("3010310e300c06035504030c05") + b"sweep"  # CN=sweep, of issuer and subject
_ALWAYS = bytes.fromhex("301e170d") + b"200101000000Z" + b"\x17\x0d" + b"491231235959Z"  # machines' clocks may differ

_Point = tuple[int, int] | None  # None: the point at infinity


def make() -> tuple[str, str]:
    """Return a new private key and its certificate, in PEM."""
    secret, nonce = (1 + secrets.randbelow(_N - 1) for _ in range(2))
    public = _multiply(secret)
    assert public is not None
    point = b"\0\4" + b"".join(value.to_bytes(32, "big") for value in public)
    number = _der(0x02, b"\1" + secrets.token_bytes(15))
    signed = _der(
        0x30, number, _ECDSA_SHA256, _NAME, _ALWAYS, _NAME, _der(0x30, _KEY_ON_P256, _der(0x03, point))
    )  # without a version it is of version 1, which has no extensions
    signature = _der(0x30, *map(_integer, _sign(secret, nonce, signed)))
    certificate = _der(0x30, signed, _ECDSA_SHA256, _der(0x03, b"\0" + signature))
    key = _der(
        0x30, _integer(1), _der(0x04, secret.to_bytes(32, "big")), _der(0xA0, _P256), _der(0xA1, _der(0x03, point))
    )
    pem = ssl.DER_cert_to_PEM_cert(key).replace("CERTIFICATE", "EC PRIVATE KEY")
    return pem, ssl.DER_cert_to_PEM_cert(certificate)


def fingerprint(certificate: bytes) -> str:
    """Return the SHA-256 of a certificate in DER, in hexadecimal."""
    return hashlib.sha256(certificate).hexdigest()


def server_context() -> tuple[ssl.SSLContext, str]:
    """Return a context for a server with a certificate of its own, and the fingerprint of that."""
    key, certificate = make()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # nobody comes back with one
    file = os.memfd_create("key")  # OpenSSL reads it from a file: the key is on no disk
    try:
        os.write(file, (key + certificate).encode())
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
    return context, fingerprint(ssl.PEM_cert_to_DER_cert(certificate))


def client_context() -> ssl.SSLContext:
    """Return a context for a client that compares the server's fingerprint itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _multiply(factor: int) -> _Point:
    """Return a multiple of the base point, by doubling and adding."""
    result: _Point = None
    power: _Point = (_X, _Y)
    while factor:
        if factor & 1:
            result = _add(result, power)
        power = _add(power, power)
        factor >>= 1
    return result


def _add(one: _Point, other: _Point) -> _Point:
    if one is None or other is None:
        return one or other
    (x1, y1), (x2, y2) = one, other
    if x1 == x2 and (y1 + y2) % _P == 0:
        return None
    above, below = (3 * x1 * x1 - 3, 2 * y1) if one == other else (y2 - y1, x2 - x1)
    slope = above * pow(below, -1, _P) % _P
    x = (slope * slope - x1 - x2) % _P
    return x, (slope * (x1 - x) - y1) % _P


def _sign(secret: int, nonce: int, data: bytes) -> tuple[int, int]:
    """Return r and s of ECDSA with SHA-256."""
    point = _multiply(nonce)
    assert point is not None
    r = point[0] % _N
    return r, pow(nonce, -1, _N) * (int.from_bytes(hashlib.sha256(data).digest(), "big") + r * secret) % _N


def _der(tag: int, *parts: bytes) -> bytes:
    """Return a field of DER with a tag, its length and its content."""
    content = b"".join(parts)
    size = len(content)
    length = (
        bytes([size]) if size < 128 else b"\x81" + bytes([size]) if size < 256 else b"\x82" + size.to_bytes(2, "big")
    )
    return bytes([tag]) + length + content


def _integer(value: int) -> bytes:
    return _der(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))
