"""Readers of model files. They own bytes, names and metadata; they do not know what a model computes."""
