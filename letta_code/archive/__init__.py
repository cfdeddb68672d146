"""Long-term passages of an agent: kept outside the prompt, found by words and by meaning."""
