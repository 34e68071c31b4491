"""Controllers, which reconcile objects in background tasks."""
