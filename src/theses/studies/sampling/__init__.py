"""Studies of the methods in ``theses.sampling``."""
