"""Which certificates are good enough: those that Go takes, whatever this version of Python refuses by itself."""

import ssl


def as_go(context: ssl.SSLContext) -> ssl.SSLContext:
    """Return the context; it takes certificates that lack extensions of RFC 5280, and an intermediate as a root.

    From 3.13 on Python's default contexts refuse the former, which many an authority made by hand has.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
