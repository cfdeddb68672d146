"""The agent's memory: blocks in a Git repository, and the prompt compiled from one commit of it."""
