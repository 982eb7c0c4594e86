"""The HTTP server: the only place that imports aiohttp, and only when it is run."""
