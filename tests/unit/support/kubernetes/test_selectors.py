from __future__ import annotations

import pytest

from tests.support.kubernetes.selectors import selector

POD = {"metadata": {"name": "a", "labels": {"app": "x", "tier": "draft"}}}


@pytest.mark.parametrize(
    ("labels", "fields", "selects"),
    [
        ("", "", True),
        ("app=x", "", True),
        ("app==x,tier=draft", "", True),
        ("app=y", "", False),
        ("app!=y", "", True),
        ("app!=x", "", False),
        ("app", "", True),
        ("!app", "", False),
        ("!other", "", True),
        ("tier in (draft, target)", "", True),
        ("tier in (target),app=x", "", False),
        ("tier notin (target)", "", True),
        ("", "metadata.name=a", True),
        ("", "metadata.name=b", False),
    ],
)
def test_selectors(labels: str, fields: str, selects: bool) -> None:
    assert selector(labels, fields)(POD) is selects
