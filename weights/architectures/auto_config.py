"""Auto classes of transformers for configs and tokenizers that know our own architectures, too.

Modules import `AutoConfig` and `AutoTokenizer` from here, and `AutoModelForCausalLM` from `auto`.
Otherwise transformers would not know the `model_type` of our configs in this process.
"""

from __future__ import annotations

from transformers import AutoConfig, AutoTokenizer

from agent_forge.weights.architectures.titans_mag.configuration_titans_mag import TitansMagConfig

AutoConfig.register(TitansMagConfig.model_type, TitansMagConfig)

__all__ = ["AutoConfig", "AutoTokenizer"]
