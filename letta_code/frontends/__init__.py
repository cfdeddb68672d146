"""Turn events into output, answers into decisions."""
