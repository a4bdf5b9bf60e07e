"""`specsim schema`: what a study file may hold, for editors and for checking."""

from __future__ import annotations

import json

import typer


def schema() -> None:
    """Print the JSON schema of a study file (`specsim compare --config`)."""
    from specsim.config import StudyConfig

    typer.echo(json.dumps(StudyConfig.model_json_schema(), indent=2))
