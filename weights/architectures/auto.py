"""Auto class of transformers for causal language models that knows our own architectures, too."""

from __future__ import annotations

from transformers import AutoModelForCausalLM

from agent_forge.weights.architectures import auto_config  # noqa: F401 - registers the configurations
from agent_forge.weights.architectures.titans_mag.configuration_titans_mag import TitansMagConfig
from agent_forge.weights.architectures.titans_mag.modeling_titans_mag import TitansMagForCausalLM

AutoModelForCausalLM.register(TitansMagConfig, TitansMagForCausalLM)

__all__ = ["AutoModelForCausalLM"]
