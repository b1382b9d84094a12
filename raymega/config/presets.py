"""The configs that ship: `raymega train nano`. Each is a file of raymega/presets, to be read as an example too."""

from importlib.resources import files

FOLDER = "presets"


def preset_names() -> tuple[str, ...]:
    """Names of the presets, sorted."""
    folder = files("raymega") / FOLDER
    return tuple(sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml")))


def preset_text(name: str) -> str:
    """The text of the preset `name`, which is one of `preset_names`."""
    return (files("raymega") / FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
