"""The agent: sessions, turns, prompts and state. Knows no terminal, no Git library and no SDK."""
