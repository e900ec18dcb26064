"""The key-value cache: which blocks belong to whom, and the arrays behind them."""
