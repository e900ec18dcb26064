"""Trains small models from text. `data`, `sources`, `presets`, `settings` and `report` know no torch."""
