"""Hardware profiles: what an engine step costs on hardware that need not be here.

Pure arithmetic over data files. The emulation and the planner read the same costs.
"""

from __future__ import annotations

from pilotfish.emulation.profiles.drafter import DrafterForm, ProfiledDrafter
from pilotfish.emulation.profiles.hardware_profile import HardwareProfile, load_profile, profile_names, profile_to_yaml
from pilotfish.emulation.profiles.step_cost import MeasuredCost, RooflineCost, ScaledCost, StepCost

__all__ = [
    "DrafterForm",
    "HardwareProfile",
    "MeasuredCost",
    "ProfiledDrafter",
    "RooflineCost",
    "ScaledCost",
    "StepCost",
    "load_profile",
    "profile_names",
    "profile_to_yaml",
]
