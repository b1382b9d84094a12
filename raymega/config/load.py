"""How the text of a config becomes a `Config`: every fault found at once, each with its place and its way out."""

from typing import Any

from raymega.config.schema import Config


def schema() -> dict[str, Any]:
    """The JSON schema of a config file."""
    return Config.model_json_schema()
