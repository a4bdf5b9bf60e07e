"""What a user writes to name a controller: a short text, or the same as a JSON object."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from specsim.errors import InputError
from specsim.policies.controller_file import names_file, read_controller_file


class PolicyConfig(BaseModel):
    """One policy by name, with its options. A text `NAME:opt=value,opt=value` reads as one.

    name     a key of BUDGETS, ARMS or CALIBRATORS, or (for the drafter) a drafter's own name
    options  by name; those left out keep their defaults
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    options: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return _parse_policy(value) if isinstance(value, str) else value

    def __str__(self) -> str:
        options = ",".join(f"{name}={_as_text(value)}" for name, value in self.options.items())
        return f"{self.name}:{options}" if options else self.name


class ControllerConfig(BaseModel):
    """A controller. A text `BUDGET[:opt=value,...][@DRAFTER[:opt=value,...]]` or a controller file's path reads as one.

    budget      how deep, and how much is verified
    drafter     which drafter: a drafter policy, or a drafter's own name (None: the only one)
    calibrator  raw score to acceptance chance
    label       what tables call it (None: its text)
    state       what it has learned, as `Controller.state_dict` says it (None: nothing)
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    budget: PolicyConfig
    drafter: PolicyConfig | None = None
    calibrator: PolicyConfig = PolicyConfig(name="identity")
    label: str | None = None
    state: dict[str, JsonValue] | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return _parse_controller(value) if isinstance(value, str) else value

    def __str__(self) -> str:
        calibrator = "" if self.calibrator == PolicyConfig(name="identity") else f"~{self.calibrator}"
        drafter = "" if self.drafter is None else f"@{self.drafter}"
        return f"{self.budget}{calibrator}{drafter}"


def parse(spec: str) -> ControllerConfig:
    """Read a controller's text.

    spec    `BUDGET[:opt=value,...][~CALIBRATOR[:opt=value,...]][@DRAFTER[:opt=value,...]]`, or a controller file's path
    Raises  InputError when it does not follow that grammar, or the file is no controller file
    """
    return ControllerConfig(**_parse_controller(spec))


def _parse_controller(spec: str) -> dict[str, Any]:
    if names_file(spec):
        return _from_file(spec)
    left, at, drafter = spec.partition("@")
    budget, tilde, calibrator = left.partition("~")
    parts = {"budget": budget}
    if at:
        parts["drafter"] = drafter
    if tilde:
        parts["calibrator"] = calibrator
    if "@" in drafter or "~" in drafter or "~" in calibrator:
        raise InputError(f"controller {spec!r}: at most one ~CALIBRATOR, then at most one @DRAFTER")
    return {role: PolicyConfig(**_parse_policy(text.strip(), spec)) for role, text in parts.items()}


def _from_file(path: str) -> dict[str, Any]:
    document = read_controller_file(path)
    try:
        ControllerConfig.model_validate(document)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in ("config", *fault["loc"]))
        message = " ".join(fault["msg"].split()).removeprefix("Value error, ")
        raise InputError(f"controller file {path}: {where}: {message[:1].lower()}{message[1:]}") from None
    return document


def _parse_policy(text: str, spec: str | None = None) -> dict[str, Any]:
    where = f"controller {spec or text!r}" if spec is None else f"controller {spec!r}"
    name, colon, rest = text.partition(":")
    if not name:
        raise InputError(f"{where}: a policy's name is missing; write BUDGET[:opt=value,...][@DRAFTER[:opt=value,...]]")
    options: dict[str, str] = {}
    for item in rest.split(",") if colon else ():
        option, equals, value = (part.strip() for part in item.partition("="))
        if not (option and equals and value):
            raise InputError(f"{where}: {item!r} is no option of {name}; write opt=value, with commas between")
        if option in options:
            raise InputError(f"{where}: option {option} of {name} is given twice")
        options[option] = value
    return {"name": name, "options": options}


def _as_text(value: JsonValue, separator: str = "/") -> str:
    if isinstance(value, list):
        return separator.join(_as_text(item, ":") for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)
