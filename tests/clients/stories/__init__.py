"""Programs as users of a client library write them: each runs by itself, with KUBECONFIG set, and fails loudly."""
