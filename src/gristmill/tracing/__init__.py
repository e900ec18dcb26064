"""Looking on while the engine runs: what a forward pass computes, and what the scheduler does."""
