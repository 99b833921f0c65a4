"""Reports as single HTML files that open from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2

from pilotfish.bench.tables import number


def render_page(template: Path, **values: Any) -> str:
    """A template that extends page.html.jinja, which needs `result` (date, machine, conditions) and `charts`
    [(title, explanation, SVG)]; `number` is there too."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["number"] = number
    return environment.get_template(template.name).render(values)
