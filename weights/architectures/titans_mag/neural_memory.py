"""Neural memory: a small network per head that learns its weights while it reads a text.

Behrouz, Zhong, Mirrokni 2025, "Titans: Learning to Memorize at Test Time", arXiv 2501.00663, section 3.
For keys k, values v and the loss ℓ(M; k, v) = ½‖M(k) − v‖²:

    S_t = η_t S_{t−1} − θ_t ∇ℓ(M; k_t, v_t)      surprise with momentum η
    M_t = (1 − α_t) M_{t−1} + S_t                forgetting α
    y_t = M_t(q_t)

θ, η and α depend on the token. The gradient is taken at the weights at the beginning of the token's
chunk (section 3.2), so a chunk is a few matrix products: with p_t = Π (1 − α), m_t = Π η,

    M_t = p_t M_0 + c_t S_0 − Σ_s W_ts θ_s g_s,   W_ts = Σ_{s ≤ j ≤ t} (p_t / p_j) (m_j / m_s)

and every g_s is an outer product for each matrix of the network. A token's gradient is scaled down to
the norm `bound` if its norm is larger. All is computed in the dtype of the inputs, float32 in models.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

#: Matrices of the network of each head, [batch, heads, out, in].
Network = list[torch.Tensor]


@dataclass
class Rates:
    """Rates of tokens: step size, log of momentum and of keeping, [batch, heads, tokens] each."""

    step: torch.Tensor
    log_momentum: torch.Tensor
    log_keep: torch.Tensor
    #: 1 for a token that is read, 0 for padding, which changes nothing. None: all are read.
    real: torch.Tensor | None = None

    def part(self, first: int, last: int) -> Rates:
        """Return the rates of the tokens `first` … `last` − 1."""
        step, momentum, keep = (
            rate[..., first:last] for rate in (self.step, self.log_momentum, self.log_keep)
        )
        real = None if self.real is None else self.real[..., first:last]
        return Rates(step, momentum, keep, real)


@dataclass
class MemoryState:
    """State of a memory between tokens."""

    #: Weights, their momenta, and the weights at the beginning of the current chunk.
    weights: Network
    momenta: Network
    anchor: Network
    #: Tokens read, [batch] int64.
    count: torch.Tensor

    def selected(self, rows: torch.Tensor) -> MemoryState:
        """Return a copy with these rows of the batch, in this order."""
        weights, momenta, anchor = (
            [tensor[rows] for tensor in part] for part in (self.weights, self.momenta, self.anchor)
        )
        return MemoryState(weights, momenta, anchor, self.count[rows])


def begin(initial: Network, rows: int) -> MemoryState:
    """Return the MemoryState before the first token; `initial` are matrices [heads, out, in]."""
    weights = [matrix.expand(rows, *matrix.shape) for matrix in initial]
    count = torch.zeros(rows, dtype=torch.int64, device=weights[0].device)
    return MemoryState(weights, [torch.zeros_like(matrix) for matrix in weights], weights, count)


def read(
    state: MemoryState,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    rates: Rates,
    chunk: int,
    bound: float,
    lengths: torch.Tensor | None = None,
) -> tuple[torch.Tensor, MemoryState]:
    """Return (answers [batch, heads, tokens, size], new state) after reading tokens.

    `query`, `key`, `value` are [batch, heads, tokens, size]. `lengths`, [batch], are the rows' numbers
    of real tokens if padding follows them; only a new text may have padding. Rows at different places
    of their chunks are read token by token.
    """
    total, count = query.shape[2], state.count
    first = int(count[0])
    uniform = first == 0 if lengths is not None else bool((count == first).all())
    if lengths is not None and not uniform:
        raise ValueError("only a new text may be padded")
    answers, at = [], 0
    while at < total:
        last = min(total, at + chunk - (first + at) % chunk) if uniform else at + 1
        if not uniform:
            state = _anchored(state, (count + at) % chunk == 0)
        elif lengths is not None:
            state = _anchored(state, at < lengths)
        elif (first + at) % chunk == 0:
            state = MemoryState(state.weights, state.momenta, state.weights, count)
        part = (query[:, :, at:last], key[:, :, at:last], value[:, :, at:last])
        answer, state = _chunk(state, *part, rates.part(at, last), bound)
        answers.append(answer)
        at = last
    read_ = torch.full_like(count, total) if lengths is None else lengths
    state = MemoryState(state.weights, state.momenta, state.anchor, count + read_)
    return torch.cat(answers, dim=2), state


def _anchored(state: MemoryState, fresh: torch.Tensor) -> MemoryState:
    """Return the state with the present weights as anchor in the rows where `fresh` is True."""
    pairs = zip(state.weights, state.anchor, strict=True)
    where = fresh[:, None, None, None]
    anchor = [torch.where(where, now, before) for now, before in pairs]
    return MemoryState(state.weights, state.momenta, anchor, state.count)


def _chunk(
    state: MemoryState,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    rates: Rates,
    bound: float,
) -> tuple[torch.Tensor, MemoryState]:
    """Return (answers [batch, heads, tokens, size], new state) after tokens of one chunk."""
    keep, carry, write, momentum_end = _decays(rates)
    inputs, errors = surprise(state.anchor, key, value, bound)
    activations, weights, momenta = query, [], []
    for layer, (x, error) in enumerate(zip(inputs, errors, strict=True)):
        matrix, momentum = state.weights[layer], state.momenta[layer]
        if layer:
            activations = F.silu(activations)
        step = rates.step[..., None] * error
        scores = (activations @ x.transpose(-1, -2)) * write
        activations = (
            keep * (activations @ matrix.mT) + carry * (activations @ momentum.mT) - scores @ step
        )
        # The last row of `write` says how much of each token's step is in the weights at the end.
        changes = (step * write[..., -1, :, None]).mT @ x
        weights.append(keep[..., -1:, :] * matrix + carry[..., -1:, :] * momentum - changes)
        old_momentum = momentum_end[..., :1, None] * momentum
        momenta.append(old_momentum - (step * momentum_end[..., 1:, None]).mT @ x)
    return activations, MemoryState(weights, momenta, state.anchor, state.count)


def surprise(
    network: Network, key: torch.Tensor, value: torch.Tensor, bound: float
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return (inputs x, errors e) of each matrix of the network; its gradient of ℓ is e xᵀ.

    The gradient of each token is scaled down to the norm `bound` if it is larger.
    """
    first = key @ network[0].mT
    if len(network) == 1:
        inputs, errors = [key], [first - value]
    else:
        hidden = F.silu(first)
        error = hidden @ network[1].mT - value
        sigmoid = torch.sigmoid(first)
        slope = sigmoid * (1 + first * (1 - sigmoid))
        inputs, errors = [key, hidden], [(error @ network[1]) * slope, error]
    squares = [(x * x).sum(-1) * (e * e).sum(-1) for x, e in zip(inputs, errors, strict=True)]
    norm = torch.sqrt(sum(squares[1:], squares[0]) + 1e-12)
    scale = (bound / norm).clamp(max=1.0)[..., None]
    return inputs, [e * scale for e in errors]


def _decays(rates: Rates) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (p_t and c_t [..., tokens, 1], W_ts [..., tokens, tokens], shares [..., 1 + tokens]).

    The shares are those of S_0 and of each token's step in S at the end of the chunk.
    """
    log_decay, carried = rates.log_keep.cumsum(-1), rates.log_momentum.cumsum(-1)
    later = torch.ones(
        log_decay.shape[-1], log_decay.shape[-1], dtype=torch.bool, device=log_decay.device
    ).tril()
    decay = _ratios(log_decay, later)
    if rates.real is not None:
        decay = decay * rates.real[..., None, :]
    momentum = _ratios(carried, later)
    start = carried.exp()[..., None]
    at_end = torch.cat([start[..., -1, :], momentum[..., -1, :]], dim=-1)
    return log_decay.exp()[..., None], decay @ start, decay @ momentum, at_end


def _ratios(logarithm: torch.Tensor, later: torch.Tensor) -> torch.Tensor:
    """Return exp(l_t − l_s) where t is s or later, else 0, [..., tokens t, tokens s]."""
    difference = logarithm[..., :, None] - logarithm[..., None, :]
    return difference.masked_fill(~later, -torch.inf).exp()
