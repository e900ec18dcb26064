"""From requests to tokens. One thread owns everything here."""
