"""The hands of the brain on Ray: commands become calls of actors, and what comes of them events."""
