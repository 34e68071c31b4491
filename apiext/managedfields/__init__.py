"""Field ownership: paths, sets, typed values, the apply updater."""
