"""Fields and their lines in a file."""

from __future__ import annotations

import pytest

from apiext.tools.places import Places

TEXT = b"""\
apiVersion: apiextensions.k8s.io/v1
spec:
  versions:
    - name: v1
      schema:
        openAPIV3Schema:
          properties:
            a.b: {type: string}
            spec:
              properties: {c: {type: x}}
      additionalPrinterColumns:
        - jsonPath: .a
    - name: v2
  conversion:
    webhook:
      clientConfig:
        url: x
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("", 1),
        ("spec", 2),
        ("spec.versions[1].name", 13),
        ("spec.versions[0].schema.openAPIV3Schema.properties[a.b].type", 8),
        ("spec.versions[0].schema.openAPIV3Schema.properties.spec.unknown", 9),
        ("spec.validation.openAPIV3Schema.properties[spec].properties[c].type", 10),
        ("spec.additionalPrinterColumns[0].JSONPath", 12),
        ("spec.conversion.webhookClientConfig.url", 17),
        ("spec.version", 4),
        ("spec.versions[7].name", 3),
        ("metadata.name", 1),
    ],
)
def test_a_field_is_found_on_its_line(path: str, line: int) -> None:
    assert Places(TEXT, 1).line(path) == line


def test_field_of_list_item_is_found_on_its_line() -> None:
    text = b"kind: List\nitems:\n- spec: {a: 1}\n- spec:\n    a: 1\n"
    assert Places(text, 11).line("spec.a", "items[1]") == 15
    assert Places(text, 11).line("", "items[1]") == 14


def test_malformed_document_gives_its_first_line() -> None:
    assert Places(b"a: [", 5).line("a") == 5
    assert Places(b"\xff\xfe\xfa", 5).line("a") == 5
