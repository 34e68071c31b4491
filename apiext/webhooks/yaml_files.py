"""Read the server's YAML files.

The files may contain passwords and tokens, so no error message quotes their content.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported late, since few servers have YAML files (decision 36)
    import yaml

_WRONG_VALUES = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RecursionError,
)  # raised by the constructors of YAML tags


def load(path: Path) -> Any:
    """Return the content of a YAML file.

    Raises OSError, and ValueError with a message that does not quote the file.
    """
    import yaml

    # The errors of the C loader have only positions, while those of the Python loader quote the line. The C loader also
    # limits the depth.
    loader: Any = yaml.CSafeLoader
    try:
        return yaml.load(path.read_bytes(), Loader=loader)
    except yaml.constructor.ConstructorError as error:
        raise ValueError(f"a key or value that its tag does not allow{_place(error)}") from error
    except yaml.MarkedYAMLError as error:
        raise ValueError(f"{': '.join(filter(None, (error.context, error.problem)))}{_place(error)}") from error
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    except _WRONG_VALUES as error:
        raise ValueError("a value that its tag or its form does not allow") from error


def _place(error: "yaml.MarkedYAMLError") -> str:
    mark = error.problem_mark
    return "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
