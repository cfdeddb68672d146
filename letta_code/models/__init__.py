"""What the agent may ask: one adapter for each wire dialect behind one door (`base.Model`)."""
