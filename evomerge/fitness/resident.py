"""One model object per architecture; candidates' weights are swapped into it.

No re-instantiation and no copy: parameters are pointed at the candidate's tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from evomerge.errors import SourceError
from evomerge.tensors import HEADS


class ResidentModel:
    """A causal language model in evaluation mode whose weights can be replaced."""

    def __init__(self, folder: Path, device: str, tied: bool) -> None:
        """Build the architecture of the model folder `folder` (its weights are not read)."""
        from transformers import AutoConfig, AutoModelForCausalLM

        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        config.tie_word_embeddings = tied
        config.use_cache = False
        with torch.device("meta"):
            self.module: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        self.device = torch.device(device)
        self.config = config
        self._materialise_buffers(config)
        self.module.eval()
        self.vocabulary = int(config.get_text_config().vocab_size)

    @classmethod
    def from_module(cls, module: Any) -> ResidentModel:
        """Around a module that is there already, on its own device."""
        model = cls.__new__(cls)
        model.module, model.config = module.eval(), module.config
        model.device = next(module.parameters()).device
        model.vocabulary = int(module.config.get_text_config().vocab_size)
        return model

    def _materialise_buffers(self, config: Any) -> None:
        """Buffers (rotary frequencies and the like) come from a real, throw-away construction."""
        from transformers import AutoModelForCausalLM

        settings = {**config.to_dict(), "num_hidden_layers": 1}
        if settings.get("layer_types"):
            settings["layer_types"] = settings["layer_types"][:1]
        small = type(config).from_dict(settings)
        donor = dict(
            AutoModelForCausalLM.from_config(small, trust_remote_code=False).named_buffers()
        )
        for name, buffer in list(self.module.named_buffers()):
            if buffer.device.type != "meta":
                continue
            if name not in donor:
                raise SourceError(
                    f"the architecture keeps a buffer ({name}) in every block; models like that "
                    "are not supported yet"
                )
            parent, _, leaf = name.rpartition(".")
            setattr(self.module.get_submodule(parent), leaf, donor[name].to(self.device))

    def load(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Point every parameter at its tensor. Raises SourceError where names do not match."""
        own = dict(self.module.named_parameters())
        missing = sorted(set(own) - set(weights))
        strange = sorted(set(weights) - set(own) - set(HEADS.values()))
        if missing or strange:
            raise SourceError(
                f"the model's tensors do not fit its config.json: missing {missing[:3]}, "
                f"unexpected {strange[:3]}"
            )
        with torch.no_grad():
            for name in own:
                parent, _, leaf = name.rpartition(".")
                module = self.module.get_submodule(parent)
                tensor = weights[name].to(self.device)
                module._parameters[leaf] = torch.nn.Parameter(tensor, requires_grad=False)
        self.module.tie_weights()

    @property
    def positions(self) -> int | None:
        """The longest sequence that the architecture takes; None where it does not say."""
        limit = getattr(self.config.get_text_config(), "max_position_embeddings", None)
        return int(limit) if limit else None

    @torch.inference_mode()
    def logits(self, ids: torch.Tensor) -> torch.Tensor:
        """[batch, length] int64 → [batch, length, vocabulary], in the model's dtype."""
        return self.module(input_ids=ids.to(self.device), use_cache=False).logits

    @torch.inference_mode()
    def continued(
        self, ids: torch.Tensor, mask: torch.Tensor, limit: int, until: Any
    ) -> torch.Tensor:
        """[batch, length] int64, padded on the left where `mask` is 0 → the most likely next tokens,
        [batch, ≤ limit] int64 on the CPU.

        `until` is a transformers StoppingCriteria. What the folder says about sampling does not count.
        """
        from transformers import GenerationConfig

        how = GenerationConfig(
            do_sample=False, max_new_tokens=limit, use_cache=True, pad_token_id=0, eos_token_id=None
        )
        found = self.module.generate(
            input_ids=ids.to(self.device),
            attention_mask=mask.to(self.device),
            generation_config=how,
            stopping_criteria=[until],
        )
        return found[:, ids.shape[1] :].cpu()
