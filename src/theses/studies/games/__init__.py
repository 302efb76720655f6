"""Studies of the methods in ``theses.games``."""
