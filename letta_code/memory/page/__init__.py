"""An agent's memory as one HTML page: `content` collects what it shows, `html` writes it."""
