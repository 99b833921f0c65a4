"""The Ray Serve application: what `serve deploy` imports, and `python -m pilotfish.serve_app` runs on this machine."""

from __future__ import annotations

from pilotfish.serve_app.compose import build_draft, build_orchestrator, build_target, build_trainer

__all__ = ["build_draft", "build_orchestrator", "build_target", "build_trainer"]
