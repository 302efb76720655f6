"""Studies of the methods in ``theses.optim``."""
