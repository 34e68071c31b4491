"""Behaviours of msgspec Structs on which the server relies (decision 35).

Dataclasses do not have them.
"""

import ast
import copy
import pickle
from pathlib import Path

import pytest
from msgspec.structs import replace

from apiext.cel.ast import Ident
from apiext.config import EtcdConfig
from apiext.http.negotiation import JSON, Wanted
from apiext.kms.provider import CurrentKey, DataKey
from apiext.storage.indexes import Dimension
from apiext.tools.access import Access
from tests.support.configs import config_of
from tests.support.shared import ROOT

SECRET = "correct horse battery staple"


@pytest.mark.parametrize(
    "value",
    [
        config_of(Path("data"), token=SECRET),
        config_of(Path("data"), etcd=EtcdConfig(password=SECRET)),
        EtcdConfig(password=SECRET),
        DataKey(1, SECRET.encode(), "key", "hash"),
        CurrentKey(SECRET.encode(), "key", "hash", b"", 0.0),
        Access("http://127.0.0.1", {"Authorization": f"Bearer {SECRET}"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_secret_is_in_a_repr(value: object) -> None:
    assert SECRET not in repr(value)
    assert SECRET not in repr([value])


def test_computed_field_is_updated_by_replace() -> None:
    json = Wanted(JSON)
    table = replace(json, kind="Table")
    assert (json.plain, table.plain, replace(table, kind="").plain) == (True, False, True)
    assert [copy.copy(table).plain, pickle.loads(pickle.dumps(table)).plain] == [False, False]


def test_configuration_survives_pickle() -> None:
    config = config_of(Path("data"), token=SECRET, etcd=EtcdConfig(("http://127.0.0.1:1",)))
    assert pickle.loads(pickle.dumps(config)) == config


def test_dimensions_are_equal_by_their_key() -> None:
    one, same = Dimension("label:a", lambda _: ""), Dimension("label:a", lambda _: "x", "other")
    assert one == same
    assert len({one, same, Dimension("label:b", lambda _: "")}) == 2


def test_nodes_are_equal_by_identity() -> None:
    assert Ident(1, "a") != Ident(1, "a")
    assert len({Ident(1, "a"), Ident(1, "a")}) == 2


@pytest.mark.slow
def test_no_module_imports_dataclasses() -> None:
    importers = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "apiext").rglob("*.py")
        if "conformance" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.ImportFrom) and node.module == "dataclasses")
        or (isinstance(node, ast.Import) and any(name.name == "dataclasses" for name in node.names))
    ]
    assert importers == []
