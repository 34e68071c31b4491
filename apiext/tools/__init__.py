"""Commands besides the server: storage migration, offline validation, envtest assets, kubeconfigs, completion."""
