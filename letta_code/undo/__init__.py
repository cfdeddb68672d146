"""Taking back what the agent did to files: contents kept before a change, and their way back to the disk."""
