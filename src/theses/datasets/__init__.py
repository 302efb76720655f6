"""Loaders and generators of the data that several methods use.

None downloads, and none falls back to something else: missing data raises.
"""
