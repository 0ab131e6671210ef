"""Writes `data/keys/deepspeed-VERSION.txt`: the settings that the installed DeepSpeed reads from its JSON.

Run with the Python that has deepspeed. Its parser takes unknown keys at the top, and in sections that are no pydantic models, in
silence: what it looks up is noted by a dictionary that writes down what it is asked for; models are asked for their fields.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from pathlib import Path
from typing import Any

import deepspeed
import pydantic
from deepspeed.runtime import config

TARGET = Path(__file__).parents[1] / "src/shardmeter/data/keys"
BATCH = {"train_batch_size": 1, "train_micro_batch_size_per_gpu": 1}
FREE = ("optimizer.params", "scheduler.params", "tensor_parallel.partition_config", "data_efficiency")
"""Sections that pass what lies in them to code of the user's choice, or to many readers."""
ELSEWHERE = ("optimizer.params", "scheduler.params", "pipeline.stages", "pipeline.partition", "pipeline.seed_layers",
             "pipeline.activation_checkpoint_interval", "pipeline.pipe_partitioned", "pipeline.grad_partitioned",
             "pipeline.use_reentrant", "sequence_parallel_size")  # fmt: skip
"""Read outside the parser: by the pipeline's engine, by who sets the groups up."""


class Asked(dict[str, Any]):
    """A dictionary that notes every key it is asked for."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__(given)
        self.asked: set[str] = set()

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """As of any dictionary."""
        self.asked.add(key)
        return super().get(key, default)

    def keys(self) -> Any:
        """Itself: membership of it is noted too."""
        return self


def fields(model: type[pydantic.BaseModel], above: str) -> set[str]:
    """Paths of a model's fields and of the models in them, by the names that JSON uses."""
    found = set()
    for name, field in model.model_fields.items():
        path = f"{above}.{field.alias or name}"
        found.add(path)
        inner = [
            one for one in _types(field.annotation) if isinstance(one, type) and issubclass(one, pydantic.BaseModel)
        ]
        for one in inner:
            found |= fields(one, path)
    return found


def _types(annotation: Any) -> list[Any]:
    return list(getattr(annotation, "__args__", ())) or [annotation]


WRONG = {"key_that_nobody_has": 0}


def section(name: str) -> set[str]:
    """Paths below one key of the top: of its model where it is one, else those that the parser looks up."""
    model = _model(name)
    if model is not None:
        return fields(model, name)
    inner = Asked(WRONG)
    with contextlib.suppress(Exception):
        config.DeepSpeedConfig(BATCH | {name: inner})
    return {f"{name}.{key}" for key in inner.asked - set(WRONG)}


def _model(name: str) -> Any:
    """The model of a section, which says its name where it refuses a key; None where there is none."""
    try:
        config.DeepSpeedConfig(BATCH | {name: WRONG})
    except pydantic.ValidationError as error:
        model = {one.__name__: one for one in _models(pydantic.BaseModel)}[error.title]
        for step in error.errors()[0]["loc"][:-1]:  # a section of several, read as one model
            model = _types(model.model_fields[str(step)].annotation)[0]
        return model
    except Exception:  # noqa: BLE001  (a number, a text or a flag, which is refused in its own way)
        return None
    return None


def _models(model: type[Any]) -> list[type[Any]]:
    return [model, *(one for below in model.__subclasses__() for one in _models(below))]


def found() -> list[str]:
    """Every path, sorted."""
    asked = Asked(dict(BATCH))
    config.DeepSpeedConfig(asked)
    removed = set(config._REMOVED_TOP_LEVEL_CONFIG_KEYS)  # noqa: SLF001
    paths = (asked.asked - removed) | set(ELSEWHERE) | {f"{free}.*" for free in FREE}
    for name in asked.asked - removed:
        paths |= section(name)
    return sorted(paths)


def main() -> None:
    """Write the file."""
    TARGET.mkdir(exist_ok=True)
    head = f"# settings of DeepSpeed {deepspeed.__version__}; written by scripts/keys_of_deepspeed.py, {dt.datetime.now(tz=dt.UTC).date()}"
    (TARGET / f"deepspeed-{deepspeed.__version__}.txt").write_text("\n".join([head, *found()]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
