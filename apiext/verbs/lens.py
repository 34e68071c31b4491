"""The part of an object that an update sees, and how it is put back: the object and its status, or its scale."""

from apiext.catalog.accessors import AccessorError
from apiext.documents.document import Document, View
from apiext.meta import status
from apiext.meta.fields import invalid
from apiext.meta.names import GroupKind
from apiext.verbs import identity, ownership
from apiext.verbs.call import Call
from apiext.verbs.objects import accepted


class Lens:
    """The object itself: the lens of the main endpoint and of /status. ``partial``: it shows another kind."""

    __slots__ = ()
    partial = False

    def show(self, call: Call, stored: View, raw: bytes) -> View:
        """Return what the client changes of a stored object."""
        call.exact = call.served.codec.exact(raw)
        return identity.projected(call.endpoint, stored)

    def settle(self, call: Call, shown: Document) -> None:
        """Settle the namespace of a changed object."""
        identity.settle_namespace(call, shown)

    def embed(self, call: Call, stored: View, shown: Document) -> Document:
        """Return the whole object with what was shown of it put back."""
        new = _embedded(call, stored, shown)
        new["metadata"] = dict(new["metadata"])
        return new

    def own(self, call: Call, stored: View, shown: View, new: Document) -> None:
        """Set managedFields of the whole object, if those that were shown are not its own."""

    def complete(self, call: Call, new: Document) -> Document:
        """Return the validated object with what a decoder would have filled in."""
        return new

    def accept(self, call: Call, new: Document) -> Document:
        """Return the object without fields that no decoder has pruned."""
        return new

    def review(self, call: Call, stored: View, shown: View) -> View:
        """Return the old object as the validating moment of admission sees it."""
        return shown


class ScaleLens(Lens):
    """The scale of an object, which shows another kind (SRV-007…010)."""

    __slots__ = ()
    partial = True

    def show(self, call: Call, stored: View, raw: bytes) -> View:
        call.exact = False
        return ownership.with_owners(call, identity.projected(call.endpoint, stored), stored)

    def settle(self, call: Call, shown: Document) -> None:
        """Leave the namespace alone."""
        # upstream: rest.BeforeUpdate, which sees no Scale

    def embed(self, call: Call, stored: View, shown: Document) -> Document:
        replicas = (shown.get("spec") or {}).get("replicas") or 0
        if call.served.model.typed and replicas < 0:  # a Scale of a built-in kind has a rule of its own
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
        return call.endpoint.project(stored)  # upstream: only who may change a Scale sees its owners


_WHOLE, _SCALE = Lens(), ScaleLens()


def lens_of(call: Call) -> Lens:
    """Return the lens of the call's endpoint."""
    return _SCALE if call.endpoint.partial else _WHOLE


def _embedded(call: Call, stored: View, shown: Document) -> Document:
    try:
        return call.endpoint.embed(stored, shown)
    except AccessorError as error:
        raise status.unknown(str(error)) from error
    except ValueError as error:
        raise status.bad_request(str(error)) from error
