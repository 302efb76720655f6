"""Studies of the methods in ``theses.data``."""
