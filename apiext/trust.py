"""Which certificates are good enough: those that Go takes, whatever this version of Python refuses by itself."""

import ssl


def as_go(context: ssl.SSLContext) -> ssl.SSLContext:
    """Return the context; it takes certificates that lack extensions of RFC 5280, and an intermediate as a root.

    From 3.13 on Python's default contexts refuse the former, which many an authority made by hand has.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def load_pair(context: ssl.SSLContext, certificate: str, key: str | None = None) -> None:
    """Have the context show a certificate (PEM files; without a key it is in the same one).

    Raises OSError, and ValueError for a key that wants a pass phrase.
    """
    context.load_cert_chain(certificate, key, password=_nobody)


def _nobody() -> str:
    raise ValueError("its key wants a pass phrase, which nobody is there to type")  # OpenSSL would wait for one
