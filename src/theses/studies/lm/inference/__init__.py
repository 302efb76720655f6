"""Studies of the methods in ``theses.lm.inference``."""
