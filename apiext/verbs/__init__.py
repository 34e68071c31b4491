"""What each verb means: where admission, catalog and storage meet."""
