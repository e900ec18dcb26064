"""Writes small children's stories out of a simulated world, to train the bundled story model on.

Nothing here is copied from a corpus: every sentence pattern is our own. It knows nothing of gristmill.
"""
