"""May this call run? Modes, rules, what a path or a command would touch, and which files are special."""
