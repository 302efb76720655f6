"""Studies of the methods in ``theses.decision``."""
