"""A write as admission plug-ins receive it, and the warnings and audit annotations they add."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct, field

from apiext.admission import limits
from apiext.admission.rounds import Reinvocation, Rounds
from apiext.catalog.served import ServedResource, ServedVersion
from apiext.documents.document import View
from apiext.meta.names import GroupKind, GroupResource


class Requester(Protocol):
    """The fields of an authenticated user that plug-ins read."""

    @property
    def name(self) -> str:
        """The user name."""

    @property
    def groups(self) -> Sequence[str]:
        """The names of the user's groups."""

    @property
    def uid(self) -> str:
        """The user's uid, empty when there is none."""

    @property
    def extra(self) -> Sequence[tuple[str, Sequence[str]]]:
        """Extra attributes of the user, as pairs of a name and its values."""


class Form(NamedTuple):
    """The form of a write that a plug-in receives.

    It has the group and version of the resource, and the group, version and kind of the objects. They are those of the
    request, unless the plug-in's rules match the resource only in another version. Then the form has this version, and
    the server converts the objects.
    """

    group: str
    version: str
    kind_group: str
    kind_version: str
    kind: str

    @property
    def api_version(self) -> str:
        """The apiVersion of objects of the kind."""
        return f"{self.kind_group}/{self.kind_version}" if self.kind_group else self.kind_version


class Traces(Struct):
    """Results of plug-ins besides allow and deny: warnings and audit annotations (ADM-013).

    The client receives the warnings; the annotations are for the audit log. ``premises`` is namespace → revision: the
    write commits only if the namespace still has this revision. At the end of the write, or of its dry run, the server
    calls each function in ``on_end``: with True after a success, with False after a failure.
    """

    warnings: list[str] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)
    premises: dict[str, int] = field(default_factory=dict)
    on_end: list[Callable[[bool], None]] = field(default_factory=list)

    def warn(self, text: str) -> None:
        """Add a warning for the client of the write.

        Add nothing if the write already has this text or limits.MAX_WARNINGS_ADDED warnings.
        """
        if len(self.warnings) < limits.MAX_WARNINGS_ADDED and text not in self.warnings:
            self.warnings.append(text)


class RequestOptions(Protocol):
    """The options of a request."""

    def document(self) -> View:
        """Return the options as an object."""


class Attributes(Struct):
    """One write or connection: the operation is CREATE, UPDATE, DELETE or CONNECT.

    ``old`` is None on CREATE and CONNECT. ``new`` is None on DELETE; on CONNECT, it has the options of the connection,
    such as PodExecOptions. ``deadline`` is a time of the event loop, in seconds (0: no deadline). ``definition`` is the
    resource of the request, and ``served`` is its version. ``rounds`` is None until a mutating plug-in calls ``enter``.
    """

    operation: str
    resource: GroupResource
    version: str
    kind: GroupKind
    subresource: str
    namespace: str | None
    name: str
    user: Requester
    dry_run: bool
    new: View | None = None
    old: View | None = None
    request_options: RequestOptions | None = None
    served: ServedVersion | None = None
    definition: ServedResource | None = None
    deadline: float = 0.0
    traces: Traces = field(default_factory=Traces)
    size: int = 0  # bytes of the object, 0 if unknown
    rounds: Rounds | None = None
    _form: Form | None = None

    def enter(self, plugin: str, new: View | None) -> tuple[Rounds, Reinvocation]:
        """Begin a round of calls of a mutating plug-in.

        Return the rounds of the write (rounds.py), and the state of the plug-in.
        """
        if self.rounds is None:
            self.rounds = Rounds()
        return self.rounds, self.rounds.enter(plugin, new)

    @property
    def form(self) -> Form:
        """The Form of the request itself, before any conversion for a plug-in."""
        if self._form is None:
            found = form_of(self.served, self.subresource) if self.served is not None else None
            self._form = found or Form(self.resource.group, self.version, self.kind.group, self.version, self.kind.kind)
        return self._form

    @property
    def options(self) -> View | None:
        """The options of the request as an object, None if ``request_options`` is None.

        The kind of this object depends on the operation: for a patch, it is CreateOptions or UpdateOptions.
        """
        if self.request_options is None:
            return None
        found = self.request_options.document()
        # upstream: plug-ins receive UpdateOptions for a patch, too
        # So the kind comes from the operation of the write, unless the write is a delete.
        return found if self.operation == "DELETE" else {**found, "kind": f"{self.operation.capitalize()}Options"}

    @property
    def plugin_namespace(self) -> str:
        """The namespace that plug-ins receive: for a Namespace its own name, as upstream."""
        if self.resource.resource == NAMESPACES.resource and self.resource == NAMESPACES:
            return self.name
        return self.namespace or ""

    @property
    def name_for_denial(self) -> str:
        """The name of the object in a denial: its name, else its generateName, else ``Unknown``."""
        metadata = (self.new or {}).get("metadata") or {}
        # upstream: a denial calls an object without a name Unknown
        return self.name or metadata.get("name") or metadata.get("generateName") or "Unknown"


NAMESPACES = GroupResource("", "namespaces")


def form_of(served: ServedVersion, subresource: str) -> Form | None:
    """Return the Form of the endpoint of a subresource.

    Return None if the version has no such endpoint.
    """
    endpoint = served.endpoints.get(subresource)
    if endpoint is None:
        return None
    group, version, model = served.names.group, served.names.version, endpoint.model
    if endpoint.partial:
        return Form(group, version, model.group, model.version, model.kind)
    return Form(group, version, group, version, model.kind)
