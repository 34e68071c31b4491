"""Validation of label selectors and field selectors.

Upstream: apimachinery pkg/apis/meta/v1/validation.
"""

from collections.abc import Iterator

from apiext.documents.document import View
from apiext.meta.fields import FieldError, child, forbidden, invalid, item, required
from apiext.meta.syntax import label_value, qualified_name


def _values_errors(expression: View, path: str, operators: bool) -> Iterator[FieldError]:
    """Yield the errors of an operator, and of the number of its values.

    An unknown operator is an error only if ``operators`` is true.
    """
    operator, values = expression.get("operator") or "", expression.get("values") or ()
    if operator in ("In", "NotIn"):
        if not values:
            yield required(child(path, "values"), "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden(child(path, "values"), text)
    elif operators:
        yield invalid(child(path, "operator"), operator, "not a valid selector operator")


def label_requirement_errors(
    expression: View, path: str, values: bool = True, operators: bool = True
) -> Iterator[FieldError]:
    """Yield the validation errors of a label requirement.

    Label values are validated only if ``values`` is true. An unknown operator is an error only if ``operators`` is
    true.
    """
    yield from _values_errors(expression, path, operators)
    key = expression.get("key") or ""
    yield from (invalid(child(path, "key"), key, fault) for fault in qualified_name(key))
    if values:
        for index, value in enumerate(expression.get("values") or ()):
            yield from (invalid(item(child(path, "values"), index), value, fault) for fault in label_value(value))


def field_requirement_errors(expression: View, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of a field requirement.

    As upstream, an unknown operator is valid.
    """
    if not expression.get("key"):
        yield required(child(path, "key"), "must be specified")
    yield from _values_errors(expression, path, operators=False)


def selector_errors(selector: View | None, path: str, *, values: bool = True) -> Iterator[FieldError]:
    """Yield the errors of a v1 LabelSelector.

    Validate values in its expressions only if ``values`` is true.
    """
    if selector is None:
        return
    for key, value in sorted((selector.get("matchLabels") or {}).items()):
        at = child(path, "matchLabels")
        yield from (invalid(at, key, fault) for fault in qualified_name(key))
        yield from (invalid(at, value, fault) for fault in label_value(value))
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        yield from label_requirement_errors(expression, item(child(path, "matchExpressions"), index), values)
