"""Error feedback: the columns that are not yet rounded make up for each column's rounding error.

GPTQ (Frantar et al. 2023, arXiv 2210.17323, algorithm 1). Rounding of column j to q_j leaves the
error e = (w_j − q_j) / U_jj; the later columns k become w_k − e U_jk, where H⁻¹ = Uᵀ U is the
Cholesky decomposition of the inverse of the damped gram H. With these changes the later columns make
tr((W − Q) H (W − Q)ᵀ) least. Columns are updated immediately within a block, and beyond it by one
matrix product a block (section 3.3, step 2).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from agent_forge.runs.errors import ConfigError

#: Columns of a block.
BLOCK = 128
#: How often damping is made ten times larger if the gram cannot be inverted.
TRIES = 3

#: (column's number in the matrix, [rows, ≥ 1] columns of its block that are left, itself first) →
#: the column's quantised values, [rows].
Quantise = Callable[[int, torch.Tensor], torch.Tensor]


def inverse_factor(gram: torch.Tensor, damping: float) -> torch.Tensor:
    """Return U, upper triangular [columns, columns] float64, with Uᵀ U the inverse of the damped gram.

    `damping` times the mean of the diagonal is added to the diagonal. If the sum is not positive
    definite, by rounding, damping is made ten times larger, in `TRIES` tries at most. A gram of zeros
    counts as the identity. Raises ConfigError if no damping helps: such a matrix is no gram.
    """
    mean = float(gram.diagonal().mean())
    identity = torch.eye(len(gram), dtype=torch.float64)
    if mean == 0.0:
        return identity
    for _ in range(TRIES):
        lower, failed = torch.linalg.cholesky_ex(gram + identity * (damping * mean))
        if not failed:
            upper, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
            if not failed:
                return upper
        damping = max(damping, 1e-6) * 10.0
    raise ConfigError("the gram is not positive definite: it is no mean of x xᵀ")


def fed_back(
    matrix: torch.Tensor,
    gram: torch.Tensor,
    quantise: Quantise,
    damping: float = 0.01,
    block: int = BLOCK,
    ordered: bool = False,
) -> torch.Tensor:
    """Return the quantised columns with error feedback, [rows, columns] in the dtype of `matrix`.

    `matrix` is float32 or float64; all but the factor is computed in that dtype. `quantise` is called
    once for each column, and stores the codes itself. The order is from the first column to the last
    or, if `ordered`, from the column with the largest inputs to that with the smallest. Then the most
    columns are left to make up for the gravest errors. Raises ConfigError.
    """
    if ordered:
        order = torch.sort(gram.diagonal(), descending=True, stable=True).indices
        within = matrix[:, order], gram[order][:, order]
        levels = fed_back(*within, lambda j, ahead: quantise(int(order[j]), ahead), damping, block)
        return levels[:, order.argsort()]
    factor = inverse_factor(gram, damping).to(matrix.dtype)
    left, done = matrix.clone(), torch.empty_like(matrix)
    columns = matrix.shape[1]
    for start in range(0, columns, block):
        end = min(start + block, columns)
        part, upper = left[:, start:end], factor[start:end, start:end]
        errors = torch.empty_like(part)
        for j in range(end - start):
            done[:, start + j] = quantise(start + j, part[:, j:])
            errors[:, j] = (part[:, j] - done[:, start + j]) / upper[j, j]
            part[:, j + 1 :] -= errors[:, j, None] * upper[j, j + 1 :]
        left[:, end:] -= errors @ factor[start:end, end:]
    return done
