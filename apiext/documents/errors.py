"""What is wrong with a text that should be JSON or YAML."""


class DecodeError(ValueError):
    """A text that is no document; the message is Go's inner error, without any prefix."""
