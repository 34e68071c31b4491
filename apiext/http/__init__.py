"""The HTTP interface: listener, filters, routes, representations, streams."""

from apiext.http import aiohttp_import as aiohttp_import  # must precede every other import of aiohttp
