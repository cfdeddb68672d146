"""What the model may do: files, search, shell, memory, plan; and the rules of what needs a question."""
