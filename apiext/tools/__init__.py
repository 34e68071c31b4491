"""Commands beside the server: storage migration, definitions judged offline, kube-apiserver's place in envtest."""
