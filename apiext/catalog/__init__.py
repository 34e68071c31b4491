"""The served resources as frozen values.

A served resource contains the endpoints, codecs, validation and columns of each of its versions.
"""
