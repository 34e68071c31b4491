"""aiohttp is imported without its client, and is complete for code that uses it."""

import subprocess
import sys

import pytest

SERVER_ONLY = """
import sys
import apiext.http.server
assert "aiohttp.web_protocol" in sys.modules
loaded = sorted(name for name in sys.modules if name in ("aiohttp.client", "aiohttp.connector"))
assert not loaded, loaded
"""
WHOLE = """
import aiohttp
web = aiohttp.web
from aiohttp import ClientSession, hdrs
import aiohttp.client
assert ClientSession is aiohttp.client.ClientSession
assert aiohttp.web is web is sys.modules["aiohttp.web"] and aiohttp.hdrs is hdrs
assert type(aiohttp) is type(sys), type(aiohttp)
from importlib.metadata import version
from aiohttp.http import SERVER_SOFTWARE
assert aiohttp.__version__ == version("aiohttp") and version("aiohttp") in SERVER_SOFTWARE
try:
    aiohttp.nothing
except AttributeError:
    pass
else:
    raise AssertionError("a name that nobody defines")
"""
BEFORE = """
import aiohttp
whole = aiohttp.ClientSession
import apiext.http.server
assert aiohttp is sys.modules["aiohttp"] and aiohttp.ClientSession is whole
"""


@pytest.mark.parametrize(
    "program",
    [SERVER_ONLY, SERVER_ONLY + WHOLE, "import sys" + BEFORE],
    ids=["without its client", "whole when asked", "imported before"],
)
def test_what_is_imported(program: str) -> None:
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
