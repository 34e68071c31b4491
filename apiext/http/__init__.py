"""The HTTP interface: listener, filters, routes, representations, streams."""

from apiext.http import aiohttp_import as aiohttp_import  # before anything imports a part of aiohttp
