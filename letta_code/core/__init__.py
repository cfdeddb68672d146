"""Values: identifiers, messages, events, tool types. No I/O, and no import of any other layer."""
