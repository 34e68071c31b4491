"""The served resources as frozen values: endpoints, codecs, validation and columns of each version."""
