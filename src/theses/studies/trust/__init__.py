"""Studies of the methods in ``theses.trust``."""
