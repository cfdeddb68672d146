"""Shell commands as processes: started, kept together, shut in, and ended with all they started."""
