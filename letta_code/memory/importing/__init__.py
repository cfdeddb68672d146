"""Taking in what other programs and people keep as memory: what is there (`sources`), what it is and where it
goes (`kinds`, `rules_files`), the text it becomes (`texts`), and what that changes (`plan`)."""
