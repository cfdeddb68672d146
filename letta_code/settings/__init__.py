"""What the person set, what comes with a project, and which folders they trust."""
