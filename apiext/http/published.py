"""Documents computed from the catalog: discovery and OpenAPI, with ETags (DIS-101…108, OAS-001, OAS-002)."""

from apiext.catalog.served import Catalog
from apiext.http.exchange import Exchange, Reply


def discovery(exchange: Exchange, parts: list[str], catalog: Catalog) -> Reply | None:
    return None


def openapi(exchange: Exchange, parts: list[str], catalog: Catalog) -> Reply | None:
    return None


def paths(catalog: Catalog) -> list[str]:
    return ["/api", "/apis"]
