"""What a shell command would do, read from its syntax tree without running anything."""
