"""The configuration, declared once: frozen dataclasses, validated when they are made.

One YAML file serves every process; each reads its own section. `load_config` turns YAML, variables of
the environment and `section.key=value` overrides into a `Config`; everything else gets its part passed in.
"""

from __future__ import annotations

from pilotfish.config.config import Config, config_from_dict, config_from_yaml, config_to_yaml, load_config
from pilotfish.config.deployment import (
    AutoscalingConfig,
    DeploymentConfig,
    OrchestratorPoolConfig,
    PoolConfig,
    ScaledPoolConfig,
)
from pilotfish.config.draft import DraftConfig
from pilotfish.config.emulation import EmulationConfig
from pilotfish.config.engine import DEFAULT_KV_CACHE_TOKENS, AttentionKernels, CpuKernels, EngineConfig, Quantization
from pilotfish.config.environment import (
    default_cache_dir,
    default_config_file,
    environment,
    service_environment,
    setting_variables,
)
from pilotfish.config.learning import LearningConfig
from pilotfish.config.orchestrator import HttpConfig, OrchestratorConfig, RoutingConfig
from pilotfish.config.paths import with_absolute_paths
from pilotfish.config.security import InternalSecurityConfig, PublicSecurityConfig, SecurityConfig
from pilotfish.config.speculation import SpeculationConfig
from pilotfish.config.steps import StepsConfig
from pilotfish.config.target import InTargetDrafterConfig, TargetConfig
from pilotfish.config.telemetry import TelemetryConfig, TracingConfig

__all__ = [
    "DEFAULT_KV_CACHE_TOKENS",
    "AttentionKernels",
    "AutoscalingConfig",
    "Config",
    "CpuKernels",
    "DeploymentConfig",
    "DraftConfig",
    "EmulationConfig",
    "EngineConfig",
    "HttpConfig",
    "InTargetDrafterConfig",
    "InternalSecurityConfig",
    "LearningConfig",
    "OrchestratorConfig",
    "OrchestratorPoolConfig",
    "PoolConfig",
    "PublicSecurityConfig",
    "Quantization",
    "RoutingConfig",
    "ScaledPoolConfig",
    "SecurityConfig",
    "SpeculationConfig",
    "StepsConfig",
    "TargetConfig",
    "TelemetryConfig",
    "TracingConfig",
    "config_from_dict",
    "config_from_yaml",
    "config_to_yaml",
    "default_cache_dir",
    "default_config_file",
    "environment",
    "load_config",
    "service_environment",
    "setting_variables",
    "with_absolute_paths",
]
