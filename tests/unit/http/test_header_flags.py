"""Flags about headers, with kube-apiserver's errors for invalid values."""

import pytest

from apiext.config import ConfigError, HeaderConfig, ProxyConfig
from apiext.http import header_flags
from apiext.http.browsers import header_filter

PINS = "regular expression does not pin to start/end of host in the origin header"
ORIGINS = "--cors-allowed-origins has an invalid regular expression: "
DIRECTIVES = "--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains"
GOAWAY = "--goaway-chance can not be less than 0 or greater than 0.02"


def read(warnings: list[str] | None = None, **given: str) -> tuple[HeaderConfig, ProxyConfig]:
    values = {name: default for name, _, default, _ in header_flags.FLAGS}
    values |= {name.replace("_", "-"): value for name, value in given.items()}
    return header_flags.read(values, (warnings if warnings is not None else []).append)


@pytest.mark.rows("LIM-005", "AUT-001")
def test_defaults_install_no_header_filter() -> None:
    assert read() == (HeaderConfig(), ProxyConfig())
    assert header_filter(HeaderConfig(), tls=True) is None, "no filter where there is nothing to add"
    assert header_filter(HeaderConfig(hsts=("preload",)), tls=False) is None
    assert header_filter(HeaderConfig(hsts=("preload",)), tls=True) is not None


@pytest.mark.rows("LIM-005")
def test_list_flags_are_parsed_as_csv() -> None:
    found, _ = read(
        cors_allowed_origins='//a\\.b(:|$),"//c{1,2}:"', strict_transport_security_directives="max-age=1,preload"
    )
    assert found.cors_origins == ("//a\\.b(:|$)", "//c{1,2}:")
    assert found.hsts == ("max-age=1", "preload")
    assert read(cors_allowed_origins="//a:\n//b:")[0].cors_origins == ("//a:",)  # upstream: the first line


@pytest.mark.rows("LIM-005")
@pytest.mark.parametrize("text", ["//a:", "^https://a$", "//a(:|$)", "^a:", "//a$"])
def test_pinned_cors_origins_are_accepted(text: str) -> None:
    assert read(cors_allowed_origins=text)[0].cors_origins == (text,)


@pytest.mark.rows("LIM-005", "AUT-001")
@pytest.mark.parametrize(
    ("flag", "text", "why"),
    [
        ("cors_allowed_origins", "good.example", ORIGINS + PINS),
        ("cors_allowed_origins", "//good.example", ORIGINS + PINS),
        ("cors_allowed_origins", "good.example$", ORIGINS + PINS),
        (
            "cors_allowed_origins",
            "//a(:|$",
            f"{ORIGINS}error parsing regexp: missing closing ): `//a(:|$`, help: List of",
        ),
        ("cors_allowed_origins", ",//a:", "empty value in --cors-allowed-origins, help: List of allowed origins"),
        ("strict_transport_security_directives", "foo", DIRECTIVES),
        ("strict_transport_security_directives", "max-age", DIRECTIVES),
        ("strict_transport_security_directives", "max-age=1=2", DIRECTIVES),
        ("strict_transport_security_directives", "max-age=1,", "empty value in strict-transport-security-directives"),
        ("goaway_chance", "0.5", GOAWAY),
        ("goaway_chance", "-1", GOAWAY),
        ("goaway_chance", "nan", GOAWAY),
        ("goaway_chance", "x", "--goaway-chance x: expected a number"),
        ("requestheader_username_headers", " ", 'empty value in "requestheader-username-headers"'),
        ("requestheader_group_headers", "a,", 'empty value in "requestheader-group-headers"'),
        ("requestheader_extra_headers_prefix", "a, ", 'empty value in "requestheader-extra-headers-prefix"'),
        ("requestheader_allowed_names", "a, ", 'empty value in "requestheader-allowed-names"'),
        (
            "requestheader_uid_headers",
            "X-Uid",
            "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API aggregation "
            "will not work",
        ),
    ],
)
def test_invalid_values_are_refused(flag: str, text: str, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(**{flag: text})
    assert str(refused.value).startswith(why)


def test_all_errors_are_reported_together() -> None:
    with pytest.raises(ConfigError) as refused:
        read(goaway_chance="3", cors_allowed_origins="a")
    assert str(refused.value).startswith(f"[{GOAWAY}, {ORIGINS}")


@pytest.mark.rows("AUT-001")
def test_nonstandard_username_header_is_warned_about() -> None:
    warnings: list[str] = []
    _, found = read(warnings, requestheader_username_headers="X-User", requestheader_group_headers="x-remote-group")
    assert found.user_headers == ("X-User",)
    assert warnings == ["--requestheader-username-headers is set without specifying the standard X-Remote-User header"]
