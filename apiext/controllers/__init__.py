"""Controllers: each reconciles the objects that its keys name, in the background."""
