"""Studies of the methods in ``theses.graphs``."""
