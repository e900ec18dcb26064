"""How fast the machine and a model on it are. It measures; how results are shown is the command's affair."""
