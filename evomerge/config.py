"""Settings of a run. Names are those of the source documents; where they had several names for one
thing, one is the setting and the others are renamed on the way in. What cannot be honoured is
refused with the reason. `docs/settings.md` is the table; a test reads it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from evomerge.corpus.domains import DOMAINS
from evomerge.errors import ConfigError
from evomerge.fitness.composite import Weighting
from evomerge.recipe import PIPELINES, SPECIES

#: Other names in the source documents → the setting.
RENAMED = {
    "max_generations": "generations",
    "elite_count": "elite_size",
    "mutation_strength": "mutation_sigma",
    "plateau_patience": "convergence_patience",
    "plateau_threshold": "convergence_threshold",
    "diversity_reseed_threshold": "reseed_diversity",
    "fitness_subset_size": "search_windows",
    "evaluation_weights": "fitness_weights",
    "dare_threshold": "dare_drop",
    "ties_threshold": "ties_density",
}

#: Settings of the source documents that are refused, and why.
REFUSED = {
    "selection_pressure": "elite-loser selects by rank: use elite_size and mutants_per_elite",
    "dare_amplification": "DARE divides by 1 - p, which fixes the amplification: use dare_drop",
    "frankenmerge_layers": "layers are chosen by measuring; a fixed choice belongs in a recipe",
    "dfs_merge_ratio": "deep feature selection has no ratio: it weights rows by importance",
    "linear_weight": "weights per model are genes of the recipe and are searched",
    "slerp_t": "t is a gene of the recipe and is searched",
    "merge_operators": "give dare_drop and ties_density themselves, not nested",
    "fitness_device": "one device does both: use device",
    "mixed_precision": "merging never rounds twice; for evaluation in bfloat16 set evaluation_dtype",
    "enable_parallel": "start a second process with `forge evo --resume RUN` instead",
    "num_workers": "start a second process with `forge evo --resume RUN` instead",
    "enable_caching": "scores are never measured twice: the log has them",
    "checkpoint_every": "every event is a checkpoint: resume with `forge evo --resume RUN`",
    "checkpoint_dir": "the log is the checkpoint: use the home folder (FORGE_HOME)",
    "use_holdout_validation": "always on: the test slice is read once, by the final report",
    "wandb_project": "a run does not depend on who looks: use WANDB_PROJECT and `forge evo --wandb`",
    "early_stopping": "set convergence_patience to 0 to switch early stopping off",
}

#: Strategies of this program; the first is for people who do not choose.
STRATEGIES = ("auto", "elite-loser", "tournament", "cma-es", "nsga2")
#: Who gives one of these and no strategy means elite-loser, as the source documents do.
ELITE_LOSERS = {
    "mutants_per_elite", "keep_elites", "techniques", "dare_drop", "ties_density", "elite_size",
}  # fmt: skip
#: What nsga2 can weigh, beside domain/NAME.
OBJECTIVES = ("perplexity", "accuracy", "speed", "memory")
#: Entry points at which other packages register theirs.
ENTRY_POINTS = "evomerge.strategies"

_DOMAINS_ONLY = {"perplexity": 0.0, "accuracy": 0.0, "speed": 0.0, "memory": 0.0}


class EvoMergeConfig(BaseModel):
    """Everything that decides how a run goes, the models and the data apart."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    #: Breeding steps after generation 0.
    generations: int = Field(default=50, ge=0, le=10_000)
    population_size: int = Field(default=8, ge=1, le=512)
    elite_size: int = Field(default=2, ge=1)
    mutants_per_elite: int = Field(default=3, ge=1)
    #: Elites stay and compete with their children: (μ + λ).
    keep_elites: bool = False
    #: Who decides: one of STRATEGIES, or a registered one. Where it is not said, but a setting is that
    #: elite-loser is known by: that one.
    strategy: str = "auto"

    #: tournament: candidates drawn for each parent; share of children with two parents.
    tournament_size: int = Field(default=3, ge=1)
    crossover_rate: float = Field(default=0.7, ge=0, le=1)
    #: The continuous genome (all but elite-loser): merge techniques that candidates may be of, how many
    #: groups the layers are cut into, and what has genes of its own.
    species: tuple[str, ...] = ("task_arithmetic", "ties")
    layer_groups: int = Field(default=4, ge=1, le=64)
    genome_detail: Literal["whole", "layers", "parts", "full"] = "layers"
    #: cma-es: standard deviation of the first generation, of a gene's whole range.
    search_sigma: float = Field(default=0.1, gt=0, le=0.5)
    #: nsga2: what is weighed against each other.
    objectives: tuple[str, ...] = ("perplexity", "accuracy")
    #: tournament, by items: "attraction" pairs a parent with the one that solves what it does not,
    #: "sharing" lets parents win by what few others solve; or both.
    niching: Literal["none", "attraction", "sharing", "both"] = "none"
    #: Data flow space (tournament, cma-es, nsga2): how often a block may come in a path through the
    #: layers, 0: no paths; blocks of a path at most, None: half as many more as the models have.
    path_repeats: int = Field(default=0, ge=0, le=4)
    path_blocks: int | None = Field(default=None, ge=1)
    #: Turn mutation up where it helps, down where it does not (elite-loser, tournament).
    adaptive_mutation: bool = False
    #: Techniques of new candidates: all alike, or by what theirs were worth so far.
    technique_selection: Literal["uniform", "earned"] = "uniform"

    #: Budgets: the search ends before the generation that would go beyond; None: without limit.
    max_evaluations: int | None = Field(default=None, ge=1)
    max_items: int | None = Field(default=None, ge=1)
    #: Hours by the clock since the start, pauses not counted; hours that tasks took.
    max_hours: float | None = Field(default=None, gt=0)
    max_device_hours: float | None = Field(default=None, gt=0)

    #: What a mutant changes: the weights, the recipe's genes, or both.
    mutation: Literal["weights", "genes", "both"] = "both"
    #: Share of elements that weight noise touches.
    mutation_rate: float = Field(default=0.01, gt=0, le=1)
    #: Norm of the noise relative to the tensor's task vector; with "absolute", its deviation.
    mutation_sigma: float = Field(default=0.2, gt=0)
    mutation_relative_to: Literal["task_vector", "absolute"] = "task_vector"
    #: Standard deviation of a gene's change (log scale for positive genes).
    gene_sigma: float = Field(default=0.25, gt=0)

    #: Techniques that pipelines may use; each stage needs at least one of its two.
    techniques: tuple[str, ...] = ("linear", "slerp", "dare", "ties", "frankenmerge", "dfs")
    dare_drop: float = Field(default=0.5, ge=0, lt=1)
    ties_density: float = Field(default=0.2, gt=0, le=1)

    #: Weights, or the name of a scheme: composite, or domains (a quarter each).
    fitness_weights: Weighting = Weighting()
    normalise: Literal["best_source", "none"] = "best_source"
    #: Windows, questions and problems drawn from the search slice, per domain and generation.
    search_windows: int = Field(default=48, ge=1)
    search_questions: int = Field(default=24, ge=0)
    search_problems: int = Field(default=8, ge=0)
    #: A candidate is dropped early whose perplexity is so many times the worst source's; 0: never.
    gate_perplexity: float = Field(default=2.0, ge=0)
    #: Error rate at which one that is clearly worse than the best source is dropped early; 0: never.
    stop_error: float = Field(default=0.0, ge=0, lt=0.5)
    #: Tokens of a window; the model's own limit where that is smaller.
    context: int = Field(default=512, ge=8)
    #: Tokens of a forward pass; None: 4096, fewer for a large vocabulary; "probe": measured first.
    batch_tokens: Annotated[int, Field(ge=1, le=1 << 24)] | Literal["probe"] | None = None
    #: What evaluation computes in; "probe": bfloat16 where it is measured to be faster and equal.
    evaluation_dtype: Literal["model", "bfloat16", "probe"] = "model"
    #: "probe": full batches of windows are compiled where that is measured to pay and equal.
    evaluation_compile: Literal["off", "probe"] = "off"

    convergence_threshold: float = Field(default=0.001, ge=0)
    #: Generations without improvement before stopping; 0 never stops early.
    convergence_patience: int = Field(default=5, ge=0)

    #: Weight of a candidate's own mean distance in its selection score.
    diversity_weight: float = Field(default=0.0, ge=0)
    #: Below this, a warning; below `reseed_diversity`, new random pipelines.
    min_diversity: float = Field(default=0.3, ge=0)
    reseed_diversity: float = Field(default=0.2, ge=0)

    #: Take items of well-known benchmarks too (`lm-eval:` data).
    allow_benchmarks: bool = False

    seed: int = Field(default=0, ge=0)
    device: str = "cpu"
    #: Refuse sources whose settings differ instead of warning.
    strict: bool = False

    @model_validator(mode="before")
    @classmethod
    def _known_names(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        for name in data:
            if name in REFUSED:
                raise ValueError(f"setting {name} is refused: {REFUSED[name]}")
        renamed = {RENAMED.get(name, name): value for name, value in data.items()}
        if len(renamed) < len(data):
            raise ValueError("a setting is given under two of its names")
        if "strategy" not in renamed and ELITE_LOSERS & renamed.keys():
            renamed["strategy"] = "elite-loser"
        if "evaluation_weights" in data:
            renamed["fitness_weights"] = {**_DOMAINS_ONLY, "domains": data["evaluation_weights"]}
        return renamed

    @field_validator("batch_tokens", mode="before")
    @classmethod
    def _tokens(cls, value: Any) -> Any:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if value is None or value == "probe" or (whole and 1 <= value <= 1 << 24):
            return value
        raise ValueError(f'give 1 to {1 << 24} tokens, or "probe"; it is {value!r}')

    @field_validator("fitness_weights", mode="before")
    @classmethod
    def _scheme(cls, value: Any) -> Any:
        if value == "composite":
            return Weighting()
        if value == "domains":
            return {**_DOMAINS_ONLY, "domains": dict.fromkeys(DOMAINS, 1 / len(DOMAINS))}
        return value

    @field_validator("fitness_weights", mode="after")
    @classmethod
    def _weights_count(cls, value: Weighting) -> Weighting:
        numbers = value.parts.values()
        if min(numbers) < 0 or sum(numbers) <= 0:
            raise ValueError("fitness_weights must not be negative and must not all be zero")
        return value

    @field_validator("species", "objectives", mode="after")
    @classmethod
    def _some(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        known = SPECIES if info.field_name == "species" else OBJECTIVES
        strange = [name for name in value if name not in known and not name.startswith("domain/")]
        if info.field_name == "species":
            strange = [name for name in value if name not in known]
        if strange or not value or len(set(value)) < len(value):
            raise ValueError(
                f"give some of {', '.join(known)}, each once; it is {', '.join(value)}"
            )
        return value

    @model_validator(mode="after")
    def _adds_up(self) -> EvoMergeConfig:
        if self.strategy != "elite-loser":
            return self
        losers = self.population_size - self.elite_size
        children, rest = divmod(losers, 3)
        mutants = self.elite_size * self.mutants_per_elite
        if losers < 0 or rest or mutants + children != self.population_size:
            raise ValueError(
                f"the population does not add up: {self.elite_size} elites give "
                f"{self.elite_size} x {self.mutants_per_elite} = {mutants} mutants, "
                f"{self.population_size} - {self.elite_size} = {losers} losers give "
                f"{losers} / 3 = {losers / 3:.4g} merges, together {mutants + losers / 3:.4g}, "
                f"not {self.population_size}. 8 = 2 x 3 + 6 / 3 and 4 = 1 x 3 + 3 / 3 add up"
            )
        if not self.pipelines:
            raise ValueError(
                "techniques must keep one of linear|slerp, one of dare|ties and one of "
                f"frankenmerge|dfs, and no other; they are {', '.join(self.techniques)}"
            )
        return self

    def depths(self, blocks: int) -> int:
        """Layer groups of a model with so many blocks."""
        return min(self.layer_groups, blocks)

    def longest_path(self, blocks: int) -> int:
        """Blocks that a candidate may have, of models with so many."""
        if not self.path_repeats:
            return blocks
        return self.path_blocks or blocks + blocks // 2

    @property
    def pipelines(self) -> tuple[int, ...]:
        """The numbers of the pipelines that `techniques` allow."""
        if not set(self.techniques) <= {stage for names in PIPELINES for stage in names}:
            return ()
        return tuple(n for n, names in enumerate(PIPELINES) if set(names) <= set(self.techniques))


def parse(data: dict[str, Any]) -> EvoMergeConfig:
    """A config from a dictionary. Raises ConfigError naming the setting and what is wrong."""
    try:
        return EvoMergeConfig.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(e) for e in error.errors())) from error


def _explain(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    what = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        known = ", ".join(sorted(EvoMergeConfig.model_fields))
        return f"setting {where} is not known. The settings are: {known}."
    got = "" if error["type"] == "value_error" else f" (it is {error.get('input')!r})"
    return f"{'setting ' + where + ': ' if where else ''}{what}{got}."
