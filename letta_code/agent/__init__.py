"""One turn and what it needs. Knows no terminal, no Git and no SDK."""
