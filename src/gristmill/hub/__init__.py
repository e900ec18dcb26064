"""Models of the Hugging Face hub: their names, and the store of those that were pulled."""
