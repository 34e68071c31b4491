"""Validate ``spec.conversion``: strategy, webhook address, review versions and CA bundle.

See CRD-035…037.
"""

from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote_from_bytes, unquote, unquote_to_bytes

from apiext.cel.library import urls
from apiext.crd.bundles import bundle_fault
from apiext.documents.document import View
from apiext.meta.fields import (
    INVALID,
    FieldError,
    as_many_as_shown,
    child,
    forbidden,
    go_value,
    invalid,
    item,
    not_supported,
    required,
)
from apiext.meta.syntax import dns1035_label, dns1123_subdomain

STRATEGIES = ("None", "Webhook")
REVIEW_VERSIONS = ("v1", "v1beta1")
_FORM = "; desired format: https://host[/path]"
_UNUSED = "should not be set when strategy is not set to Webhook"


def conversion_errors(conversion: View, path: str, *, recognized: bool, check_bundle: bool) -> Iterator[FieldError]:
    """Yield the errors of ``spec.conversion`` in the stored form.

    The stored form is v1beta1, with ``webhookClientConfig``. If ``recognized`` is true, the server must support at
    least one of the review versions. If ``check_bundle`` is true, the CA bundle must be valid.
    """
    strategy = conversion.get("strategy") or ""
    if not strategy:
        yield required(child(path, "strategy"))
    elif strategy not in STRATEGIES:
        yield not_supported(child(path, "strategy"), strategy, STRATEGIES)
    client, reviews = conversion.get("webhookClientConfig"), conversion.get("conversionReviewVersions")
    at_client, at_reviews = child(path, "webhookClientConfig"), child(path, "conversionReviewVersions")
    if strategy != "Webhook":
        if client is not None:
            yield forbidden(at_client, _UNUSED)
        if reviews:
            yield forbidden(at_reviews, _UNUSED)
        return
    if client is None:
        yield required(at_client, "required when strategy is set to Webhook")
    else:
        yield from _client_errors(client, at_client, check_bundle)
    yield from review_errors(reviews, at_reviews, recognized=recognized)


def address_errors(client: View, path: str) -> Iterator[FieldError]:
    """Yield the errors of a webhook's address: a URL, or a service (CRD-036, VER-009)."""
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        yield required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _url_errors(url, child(path, "url"))
    else:
        yield from _service_errors(service or {}, child(path, "service"))


def _client_errors(client: View, path: str, check_bundle: bool) -> Iterator[FieldError]:
    yield from address_errors(client, path)
    bundle = client.get("caBundle")
    if check_bundle and bundle:
        fault = bundle_fault(bundle)
        if fault:
            yield invalid(child(path, "caBundle"), bundle, f"unable to load root certificates: {fault}")


def review_errors(
    reviews: Sequence[str] | None, path: str, missing: str = "", *, recognized: bool
) -> Iterator[FieldError]:
    """Yield the errors of a webhook's review versions.

    ``missing`` is the error text for an empty list. If ``recognized`` is true, the server must support at least one of
    the review versions.
    """
    if not reviews:
        yield required(path, missing)
        return
    seen: set[str] = set()
    for index, review in enumerate(reviews):
        if review in seen:
            yield invalid(item(path, index), review, "duplicate version")
            continue
        seen.add(review)
        for fault in dns1035_label(review):
            yield invalid(item(path, index), review, fault)
    if recognized and not recognizes(reviews):
        yield invalid(path, list(reviews), f"must include at least one of {', '.join(REVIEW_VERSIONS)}")


def recognizes(reviews: Sequence[str]) -> bool:
    """Return whether this server supports at least one of the review versions."""
    return any(review in REVIEW_VERSIONS for review in reviews)


def _url_errors(url: str, path: str) -> Iterator[FieldError]:
    """Yield the errors of a webhook's URL (CRD-036).

    As upstream, an error shows only the invalid part of the URL.
    """
    try:
        parts = urls.parse(url, request=False)
    except ValueError as error:
        yield required(path, f"url must be a valid URL: {error}{_FORM}")
        return
    if parts.scheme != "https":
        yield invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}")
    if not parts.host:
        yield invalid(path, "", f"host must be specified{_FORM}")
    if parts.user is not None:
        yield invalid(path, _user(parts.user), "user information is not permitted in the URL")
    if fragment := unquote(url.partition("#")[2]):
        yield invalid(path, fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield invalid(path, parts.query, "query parameters are not permitted in the URL")


def _user(given: str) -> str:
    """Return the user information of a URL as Go prints it, with only the necessary escapes."""
    return ":".join(quote_from_bytes(unquote_to_bytes(part), "$&+,;=") for part in given.split(":", 1))


def _service_errors(service: View, path: str) -> Iterator[FieldError]:
    """Yield the errors of a webhook's service reference (VER-009)."""
    # upstream: name and namespace are swapped, so an error names the wrong field
    if not service.get("namespace"):
        yield required(child(path, "name"))
    if not service.get("name"):
        yield required(child(path, "namespace"))
    port = service.get("port", 443)
    if not 1 <= port <= 65535:
        yield invalid(child(path, "port"), port, "port is not valid: must be between 1 and 65535, inclusive")
    yield from _service_path_errors(service.get("path"), child(path, "path"))


def _service_path_errors(given: str | None, path: str) -> Iterator[FieldError]:
    if given is None or given in ("", "/"):
        return
    if not given.startswith("/"):
        yield invalid(path, given, "must start with a '/'")
    # upstream: the first byte of the path is dropped, even if it is not a slash
    rest = given.encode()[1:].decode("utf-8", "replace")
    faults, shown = _segment_faults(rest.removesuffix("/").split("/")), f"Invalid value: {go_value(given)}"
    yield from as_many_as_shown(FieldError(INVALID, path, f"{shown}: {fault}") for fault in faults)


def _segment_faults(segments: Iterable[str]) -> Iterator[str]:
    for index, segment in enumerate(segments):
        if not segment:
            yield f"segment[{index}] may not be empty"
            continue
        for fault in dns1123_subdomain(segment):
            yield f"segment[{index}]: {fault}"
