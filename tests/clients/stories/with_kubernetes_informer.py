"""The informer of the official Python client: it prints each added and deleted config map."""

from __future__ import annotations

import threading

from kubernetes import client, config
from kubernetes.informer import SharedInformer

config.load_kube_config()
informer = SharedInformer(client.CoreV1Api().list_namespaced_config_map, namespace="default")
informer.add_event_handler("ADDED", lambda it: print(f"+{it.metadata.name}", flush=True))
informer.add_event_handler("DELETED", lambda it: print(f"-{it.metadata.name}", flush=True))
informer.start()
threading.Event().wait()
