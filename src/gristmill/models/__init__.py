"""The decoder, and the naming and checking that turns a checkpoint into one."""
