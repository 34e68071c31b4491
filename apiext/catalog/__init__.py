"""The served resources as frozen values.

They contain the endpoints, codecs, validation and columns of each version.
"""
