"""Models that gristmill did not make: small random checkpoints, with the libraries that say what they must compute."""
