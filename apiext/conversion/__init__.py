"""Documents of one version become those of another, by asking a webhook."""
