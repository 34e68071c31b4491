"""The part of an object that an endpoint's client changes: the object itself, or its scale."""

from apiext.catalog.accessors import AccessorError
from apiext.documents.document import Document, View
from apiext.meta import status
from apiext.meta.fields import invalid
from apiext.meta.names import GroupKind
from apiext.verbs import identity, ownership
from apiext.verbs.call import Call
from apiext.verbs.objects import accepted


class EndpointPart:
    """The part for the main endpoint and /status: the complete object.

    ``partial`` is true for an endpoint with another kind, such as Scale.
    """

    __slots__ = ()
    partial = False

    def show(self, call: Call, stored: View, raw: bytes) -> View:
        """Return the part of a stored object that the client changes.

        Set ``call.exact`` (see verbs/call.py).
        """
        call.exact = call.served.codec.is_normalized(raw)
        return identity.projected(call.endpoint, stored)

    def settle(self, call: Call, new: Document) -> None:
        """Set the namespace of a changed object."""
        identity.settle_namespace(call, new)

    def embed(self, call: Call, stored: View, shown: Document) -> Document:
        """Return the complete object with the changed part."""
        new = _embedded(call, stored, shown)
        new["metadata"] = dict(new["metadata"])
        return new

    def own(self, call: Call, stored: View, shown: View, new: Document) -> None:
        """Set managedFields of the complete object, if the part has different managedFields."""

    def complete(self, call: Call, new: Document) -> Document:
        """Return the validated object, with defaults if no decoder has set them."""
        return new

    def accept(self, call: Call, new: Document) -> Document:
        """Return the object, pruned if no decoder has pruned it."""
        return new

    def review(self, call: Call, stored: View, shown: View) -> View:
        """Return the old object for validating admission."""
        return shown


class ScalePart(EndpointPart):
    """The part for /scale: an object of kind Scale (SRV-007…010)."""

    __slots__ = ()
    partial = True

    def show(self, call: Call, stored: View, raw: bytes) -> View:
        call.exact = False
        return ownership.with_owners(call, identity.projected(call.endpoint, stored), stored)

    def settle(self, call: Call, new: Document) -> None:
        """Do nothing: the namespace of a Scale is not set."""
        # upstream: rest.BeforeUpdate gets the object, not the Scale

    def embed(self, call: Call, stored: View, shown: Document) -> Document:
        replicas = (shown.get("spec") or {}).get("replicas") or 0
        if call.served.model.typed and replicas < 0:  # only built-in kinds have this rule for a Scale
            error = invalid("spec.replicas", replicas, "must be greater than or equal to 0")
            raise status.invalid(GroupKind(call.endpoint.model.group, call.endpoint.model.kind), call.name, [error])
        return super().embed(call, stored, shown)

    def own(self, call: Call, stored: View, shown: View, new: Document) -> None:
        ownership.object_entries(call, stored, shown, new)

    def complete(self, call: Call, new: Document) -> Document:
        return call.served.shaping.complete(new) if call.served is call.resource.storage else new

    def accept(self, call: Call, new: Document) -> Document:
        return accepted(call, new)

    def review(self, call: Call, stored: View, shown: View) -> View:
        return call.endpoint.project(stored)  # upstream: validating admission gets a Scale without managedFields


_WHOLE, _SCALE = EndpointPart(), ScalePart()


def part_of(call: Call) -> EndpointPart:
    """Return the part of an object that the endpoint of a call changes."""
    return _SCALE if call.endpoint.partial else _WHOLE


def _embedded(call: Call, stored: View, shown: Document) -> Document:
    try:
        return call.endpoint.embed(stored, shown)
    except AccessorError as error:
        raise status.unknown(str(error)) from error
    except ValueError as error:
        raise status.bad_request(str(error)) from error
