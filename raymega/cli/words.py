"""Arguments that several verbs have, said once."""

from typing import Annotated

import typer

Sets = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Lay a value over the config; repeatable.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for programs.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's name (below ./runs), or its directory.")]
Step = Annotated[str, typer.Option(metavar="auto|STEP", help="Which checkpoint; auto: the newest whole one.")]
