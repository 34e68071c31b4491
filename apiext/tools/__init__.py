"""Commands besides the server: storage migration, offline validation of definitions, envtest assets, kubeconfigs."""
