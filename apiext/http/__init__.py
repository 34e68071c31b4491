"""Everything that knows HTTP: listener, filters, routes, representations, streams."""

from apiext.http import serving as serving  # before anything imports a part of aiohttp
