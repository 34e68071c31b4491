"""Recognise mail addresses as Go's net/mail does: RFC 5322 with Go's exceptions (VAL-006)."""

import base64
import binascii
import re

from apiext.schema import limits
from apiext.schema.addresses import strict_ip

_SPACE = " \t"
_DOT_ATOM = re.compile(r"[^\x00-\x20\x7f()<>\[\]:;@\\,\"]+")
_QUOTED = re.compile(r'"((?:[^\x00-\x08\x0a-\x1f\x7f"\\]|\\[^\x00-\x08\x0a-\x1f\x7f])*)"')
_LITERAL = re.compile(r"\[([^\x00-\x20\x7f\[\]\\]*)\]")
_CHARSETS = frozenset(("utf-8", "iso-8859-1", "us-ascii"))
_Q_TEXT = re.compile(r"(?:=[0-9a-fA-F]{2}|[ -<>-~\n\r\t])*\Z")


class _NotMail(Exception):
    """The error of a text that is not a single address."""


class _Scanner:
    """A scanner of one address; ``rest`` is the unread text. Its methods raise _NotMail."""

    __slots__ = ("rest",)

    def __init__(self, text: str) -> None:
        self.rest = text

    def skip_space(self) -> None:
        self.rest = self.rest.lstrip(_SPACE)

    def take(self, char: str) -> bool:
        """Consume the next character if it is ``char``; return whether it is."""
        if self.rest.startswith(char):
            self.rest = self.rest[1:]
            return True
        return False

    def match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Consume the match of a pattern."""
        found = pattern.match(self.rest)
        if found is None:
            raise _NotMail
        self.rest = self.rest[found.end() :]
        return found

    def comment(self) -> str:
        """Consume a comment after its opening parenthesis; return its text."""
        depth, place, text = 1, 0, self.rest
        while place < len(text) and depth:
            if text[place] == "\\" and place + 1 < len(text):
                place += 1
            elif text[place] == "(":
                depth += 1
            elif text[place] == ")":
                depth -= 1
            place += 1
        if depth:
            raise _NotMail
        self.rest = text[place:]
        return text[: place - 1].replace("\\", "")

    def skip_comments(self) -> None:
        """Skip spaces and comments."""
        self.skip_space()
        while self.take("("):
            self.comment()
            self.skip_space()

    def address_spec(self) -> None:
        """Consume local part, @ and domain."""
        self.skip_space()
        if self.rest.startswith('"'):
            if not self.match(_QUOTED)[1]:
                raise _NotMail
        else:
            self.atom()
        if not self.take("@"):
            raise _NotMail
        self.skip_space()
        if self.rest.startswith("["):
            if not strict_ip(self.match(_LITERAL)[1]):
                raise _NotMail
        else:
            self.atom()

    def atom(self) -> None:
        """Consume a dot-atom."""
        text = self.match(_DOT_ATOM)[0]
        if text.startswith(".") or text.endswith(".") or ".." in text:
            raise _NotMail

    def phrase(self) -> None:
        """Consume the words of a display name, up to the first part that is not a word."""
        # ``words`` counts plain words. When a plain word follows a run of encoded words that has text, ``words`` also
        # counts this run as one word. While ``words`` is 0, comments are not skipped.
        words, encoded = 0, False  # upstream: encoded words count only if a plain word follows
        while True:
            if words:
                self.skip_comments()
            self.skip_space()
            if not self.rest:
                return
            try:
                kind = self.word()
            except _NotMail:
                if words or encoded:
                    return
                raise
            if kind is None:
                words, encoded = words + 1 + encoded, False
            else:
                encoded = encoded or kind

    def word(self) -> bool | None:
        """Consume a word; return None for a plain word, else whether the encoded word contains text."""
        if self.rest.startswith('"'):
            self.match(_QUOTED)
            return None
        text = self.match(_DOT_ATOM)[0]
        found = _encoded(text)
        if found is None:
            return None
        charset, content = found
        if charset not in _CHARSETS:
            raise _NotMail
        return bool(content)

    def mailbox(self, groups: bool) -> int:
        """Consume an address (or a group, if ``groups`` is true); return the number of addresses."""
        self.skip_space()
        if not self.rest:
            raise _NotMail
        start = self.rest
        try:
            self.address_spec()
        except _NotMail:
            self.rest = start
        else:
            self.skip_space()
            if self.take("(") and any(_foreign(word) for word in re.split(r"[ \t]+", self.comment())):
                raise _NotMail
            return 1
        if not self.rest.startswith("<"):
            self.phrase()
        self.skip_space()
        if groups and self.take(":"):
            return self.group()
        if not self.take("<"):
            raise _NotMail
        self.address_spec()
        if not self.take(">"):
            raise _NotMail
        return 1

    def group(self) -> int:
        """Consume the addresses of a group; return their number."""
        self.skip_space()
        if self.take(";"):
            self.skip_comments()
            return 0
        count = 0
        while True:
            self.skip_space()
            count += self.mailbox(groups=False)
            self.skip_comments()
            if self.take(";"):
                self.skip_comments()
                return count
            if not self.take(","):
                raise _NotMail


def _foreign(word: str) -> bool:
    found = _encoded(word)
    return found is not None and found[0] not in _CHARSETS


def _encoded(word: str) -> tuple[str, str] | None:
    """Return charset and text of a well-formed encoded word (RFC 2047), or None."""
    if len(word) < 8 or not word.startswith("=?") or not word.endswith("?=") or word.count("?") != 4:
        return None
    charset, encoding, text = word[2:-2].split("?")
    if not charset or encoding not in ("B", "b", "Q", "q"):
        return None
    if encoding in "Qq":
        return (charset.lower(), text) if _Q_TEXT.match(text) else None
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return charset.lower(), text


def email(text: str) -> bool:
    """Return whether Go's mail.ParseAddress accepts the text as one address.

    The address may have a name or not. Return False for a text of more than MAX_MAIL characters.
    """
    if len(text) > limits.MAX_MAIL:
        return False
    scanner = _Scanner(text)
    try:
        count = scanner.mailbox(groups=True)
        scanner.skip_comments()
    except _NotMail:
        return False
    return not scanner.rest and count == 1
