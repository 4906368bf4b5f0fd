"""Modules to train: `build` makes them of a model's tensors; `Teacher` is a model to learn from."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.folders.model_config import described
from agent_forge.weights.folders.parameters import fill as parameters_of
from agent_forge.weights.folders.parameters import fill_buffers
from agent_forge.weights.recipes import Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.models import low_rank
from agent_forge.weights.training.models.sharding import whole
from agent_forge.weights.training.token_losses import token_losses

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Torch's tensors begin at multiples of this number of bytes; kernels may give others other last bits.
ALIGNED = 64
#: Tensor → its float32 copy, which frozen modules share; matrix of such a module → its bfloat16 copy.
_COPIES: MutableMapping[torch.Tensor, torch.Tensor] = WeakTensorKeyDictionary()
_HALVES: MutableMapping[torch.Tensor, torch.Tensor] = WeakTensorKeyDictionary()


def build(
    model: Tensors, device: str = "cpu", attention: str = "sdpa", frozen: bool = False
) -> PreTrainedModel:
    """Return a causal language model of transformers, float32, with copied weights unless `frozen`.

    If `frozen`, its parameters need no gradients, and are the given tensors themselves or one copy of
    each: all models of these weights share one memory. Raises SourceError if the config describes no
    such model, or names or shapes do not fit it.
    """
    from agent_forge.weights.architectures.auto import AutoModelForCausalLM
    from agent_forge.weights.architectures.auto_config import AutoConfig

    with described("the config describes no model that can be built"):
        config = AutoConfig.for_model(**dict(model.config))
        config.use_cache = False
        with torch.device("meta"):
            module = AutoModelForCausalLM.from_config(
                config, dtype=torch.float32, attn_implementation=attention, trust_remote_code=False
            )
    fill_buffers(module, torch.device("cpu"))
    for name, tensor in _fitting(module, model).items():
        parent, _, leaf = name.rpartition(".")
        value = _as_given(tensor) if frozen else _copied(tensor)
        parameter = torch.nn.Parameter(value, requires_grad=not frozen)
        module.get_submodule(parent)._parameters[leaf] = parameter
    module.tie_weights()
    if frozen:
        for layer in module.modules():
            if type(layer) is torch.nn.Linear:
                layer.forward = _cast_once(layer)
    return module.to(device)


def _cast_once(layer: torch.nn.Linear) -> Callable[..., torch.Tensor]:
    """Return a `forward` with the same bits for a layer whose matrix is not trained.

    Autocast casts the matrix in every pass, and a pass with gradients keeps that copy.
    """
    place = weakref.ref(layer)

    def forward(x: torch.Tensor) -> torch.Tensor:
        module = place()
        assert module is not None
        weight: torch.Tensor = module.weight
        if weight.dtype == torch.float32 and torch.is_autocast_enabled(x.device.type):
            if weight not in _HALVES and torch.is_grad_enabled():
                _HALVES[weight] = weight.detach().to(torch.get_autocast_dtype(x.device.type))
            weight = _HALVES.get(weight, weight)
        return F.linear(x, weight, module.bias)

    return forward


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous float32 copy of a tensor, in memory of torch."""
    return tensor.to(torch.float32, copy=True).contiguous()


def _as_given(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor itself if it is float32 and aligned as torch's own are, else its one copy."""
    usable = tensor.dtype == torch.float32 and tensor.is_contiguous()
    if usable and tensor.data_ptr() % ALIGNED == 0:
        return tensor
    if tensor not in _COPIES:
        _COPIES[tensor] = _copied(tensor)
    return _COPIES[tensor]


def fill(module: PreTrainedModel, model: Tensors) -> None:
    """Copy a model's weights into the parameters of a module. Raises SourceError if they differ."""
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        for name, tensor in _fitting(module, model).items():
            parameters[name].copy_(tensor)


def _fitting(module: PreTrainedModel, model: Tensors) -> dict[str, torch.Tensor]:
    """Return parameter name → tensor of a model. Raises SourceError unless names and shapes fit."""
    parameters = dict(module.named_parameters())
    tensors = dict(parameters_of(module, model.weights).tensors)
    if set(parameters) != set(tensors):
        name = sorted(set(parameters) ^ set(tensors))[0]
        raise SourceError(f"tensor {name} is only in one of the weights and their architecture")
    for name, parameter in parameters.items():
        if parameter.shape != tensors[name].shape:
            shapes = [*tensors[name].shape], [*parameter.shape]
            raise SourceError(f"tensor {name} has the shape {shapes[0]}, not {shapes[1]}")
    return tensors


def checkpoint_activations(module: PreTrainedModel) -> None:
    """Make a module compute its activations again in the backward pass instead of keeping them."""
    newer = getattr(module, "activation_checkpointing_enable", None)
    (newer or module.gradient_checkpointing_enable)({"use_reentrant": False})


def weights(module: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Return name → parameter of a module, tied ones once, in the processor's memory, adapters added.

    They are the module's own memory if they can be, which a further step changes.
    """
    return {name: whole(p).to("cpu").contiguous() for name, p in low_rank.merged(module)}


#: Role of the teacher among a training's inputs.
TEACHER = "teacher"


class Teacher:
    """A model whose predictions a training reads, and which is never trained."""

    def __init__(self, model: Tensors, device: torch.device, recipe: Train) -> None:
        """Build the model, frozen, in evaluation mode, on `device`. Raises SourceError."""
        module = build(model, str(device), recipe.attention, frozen=True)
        self._module = module.eval()
        self.vocabulary = int(module.config.get_text_config().vocab_size)

    def check_vocabulary(self, module: PreTrainedModel) -> None:
        """Raise ConfigError unless a module predicts the same tokens."""
        vocabulary = int(module.config.get_text_config().vocab_size)
        if self.vocabulary != vocabulary:
            raise ConfigError(
                f"the teacher predicts {self.vocabulary} tokens, the model {vocabulary}: they need one "
                "vocabulary"
            )

    @torch.no_grad()
    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits after each of the tokens [rows, tokens], [rows, tokens, vocabulary]."""
        return self._module(input_ids=tokens).logits

    @torch.no_grad()
    def token_losses(
        self, inputs: Mapping[str, torch.Tensor], places: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        """Return −log p in nats of targets [chosen] at chosen places: `token_losses` of the model."""
        return token_losses(self._module, inputs, places, targets)


def divergence(
    teacher_logits: torch.Tensor, logits: torch.Tensor, temperature: float = 1.0
) -> torch.Tensor:
    """Return the mean over tokens of KL(teacher ‖ model), nats, a scalar.

    Logits are [rows, tokens, vocabulary], and are divided by the temperature.
    """
    model_logs = _softened(logits, temperature).log_softmax(-1)
    teacher_logs = _softened(teacher_logits, temperature).log_softmax(-1)
    return F.kl_div(model_logs, teacher_logs, reduction="batchmean", log_target=True)


def _softened(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return logits [rows, tokens, vocabulary] over a temperature, [tokens, vocabulary] float32."""
    flat = logits.flatten(0, 1).float()
    return flat if temperature == 1.0 else flat / temperature
