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
others = ("attr", "email.parser", "email.policy", "html", "http.client", "mimetypes", "urllib.request")
assert not sys.modules.keys() & set(others)
from aiohttp import helpers, web_protocol
assert web_protocol._ErrInfo(400, None, "x") == web_protocol._ErrInfo(400, None, "x")
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
STANDING_IN = (
    """
media_type = ("text/html", {"charset": "utf-8"})
assert helpers.parse_content_type("text/html; charset=utf-8") == media_type
assert helpers.parse_mimetype("text/html; charset=utf-8").parameters["charset"] == "utf-8"
assert helpers.proxies_from_env() == {}
assert web_protocol.html_escape("<") == "&lt;"
"""
    + WHOLE
    + """
import email.policy, html, urllib.request
assert helpers.HTTP is email.policy.HTTP and helpers.getproxies is urllib.request.getproxies
assert web_protocol.html_escape is html.escape
assert helpers.parse_content_type("text/html; charset=utf-8") == media_type
"""
)
BEFORE = """
import aiohttp
whole = aiohttp.ClientSession
import apiext.http.server
assert aiohttp is sys.modules["aiohttp"] and aiohttp.ClientSession is whole
"""


@pytest.mark.parametrize(
    "program",
    [SERVER_ONLY, SERVER_ONLY + WHOLE, SERVER_ONLY + STANDING_IN, "import sys" + BEFORE],
    ids=["without its client", "complete on use", "names of other modules", "imported before"],
)
def test_aiohttp_client_is_imported_only_on_use(program: str) -> None:
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
