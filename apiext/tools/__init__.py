"""Commands besides the server, such as storage migration.

The other commands are offline validation, envtest assets, kubeconfigs and completion.
"""
