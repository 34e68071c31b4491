"""Programs as users of a client library write them.

Each is started with KUBECONFIG, and exits with an error if it fails.
"""
