"""HTTP client for webhooks: connections, TLS, proxies, credentials, circuit breakers."""
