"""The verbs: decisions about objects, where admission, catalog and storage meet."""
