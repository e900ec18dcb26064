"""gristmill against other implementations: same numbers, same tokens."""
