"""What is served, as frozen values."""
