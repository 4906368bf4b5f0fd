"""A classifier of texts by their beginnings: the nearest centroid of a model's hidden states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

#: Added to a deviation that is divided by.
SMALL = 1e-6


@dataclass(frozen=True)
class Classifier:
    """Centroids of domains, in units of the deviation within domains."""

    domains: tuple[str, ...]
    #: [domains, width] and [width], float64.
    centroids: torch.Tensor
    deviation: torch.Tensor

    def nearest(self, rows: torch.Tensor) -> list[str]:
        """Return the domain whose centroid is nearest to each row [rows, width]."""
        apart = (rows[:, None, :] - self.centroids[None]) / self.deviation
        return [self.domains[i] for i in apart.square().sum(dim=2).argmin(dim=1).tolist()]


def fitted(rows: Mapping[str, torch.Tensor]) -> Classifier:
    """Return the classifier of some rows [rows, width] of each domain."""
    domains = tuple(sorted(rows))
    centroids = torch.stack([rows[domain].mean(dim=0) for domain in domains])
    within = torch.cat([rows[d] - centroids[i] for i, d in enumerate(domains)])
    return Classifier(domains, centroids, within.square().mean(dim=0).sqrt() + SMALL)
