"""raymega trains large language models on clusters that lose machines."""

__version__ = "0.1.0"
