"""A scenario as a YAML file has it: one field a line, in the order in which it is said."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any


def text(scenario: Mapping[str, Any], width: int = 120) -> str:
    """The lines of the file, of about `width` letters at most."""
    import ruamel.yaml

    writer, out = ruamel.yaml.YAML(typ="safe"), io.StringIO()
    writer.default_flow_style, writer.sort_base_mapping_type_on_output = None, False  # type: ignore[assignment]
    writer.width, writer.allow_unicode = width, True
    writer.dump(json.loads(json.dumps(scenario)), out)
    return out.getvalue()
