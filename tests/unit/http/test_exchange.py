"""Request targets: queries are parsed as by the standard library, except malformed queries."""

import re
from urllib.parse import parse_qs, unquote

from hypothesis import given
from hypothesis import strategies as st

from apiext.http.exchange import split_target


@given(
    st.lists(
        st.sampled_from(("a", "b", "=", "&", "+", "%", "%3D", "%26", "%C3", "%A9", "%2b", "%2C", "%2c", ";", "é", "?")),
        max_size=12,
    )
)
def test_queries_are_read_as_the_standard_library_does(parts: list[str]) -> None:
    text = "".join(parts)
    kept = [part for part in text.split("&") if ";" not in part and not re.search("%(?![0-9A-Fa-f]{2})", part)]
    assert split_target(f"/p?{text}") == ("/p", parse_qs("&".join(kept), keep_blank_values=True))


def test_paths_are_decoded_and_lose_their_host() -> None:
    assert split_target("/a%2Fb%20c") == (unquote("/a%2Fb%20c"), {})
    assert split_target("http://host:80/x?y") == ("/x", {"y": [""]})
    assert split_target("http://host") == ("/", {})
    assert split_target("*") == ("*", {})
    assert split_target("/a%2") == ("", {})
