"""Text to token ids and back. It owns vocabularies; it does not know what a model computes."""
