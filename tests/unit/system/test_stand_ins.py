"""Laws of stand-ins for unused modules."""

import sys
from types import ModuleType

from apiext.system.stand_ins import StandIn, standing_in, value_of


def test_a_stand_in_imports_its_module_when_it_is_used() -> None:
    sys.modules.pop("colorsys", None)
    with standing_in(["colorsys"]):
        from colorsys import rgb_to_hls
    assert "colorsys" not in sys.modules
    assert isinstance(rgb_to_hls, StandIn)
    assert rgb_to_hls(1.0, 1.0, 1.0) == (0.0, 1.0, 0.0)
    import colorsys

    assert value_of(rgb_to_hls) is colorsys.rgb_to_hls


def test_an_imported_module_is_not_replaced() -> None:
    import json

    with standing_in(["json"], {"os": ModuleType("os")}):
        assert sys.modules["json"] is json
        assert not isinstance(sys.modules["os"], StandIn)
        assert sys.modules["os"].__spec__ is not None
    assert sys.modules["json"] is json
