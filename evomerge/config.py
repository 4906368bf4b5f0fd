"""Settings of a run of EvoMerge.

Names are those of the source documents. If the documents had several names for one thing, one name
is the setting and the others are renamed on input. A setting that cannot be honoured is refused
with the reason. `docs/settings.md` is the table; a test reads it.
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

from evaluation.data.domains import DOMAINS
from evomerge.fitness.composite import Weighting
from evomerge.recipes.recipe import PIPELINES, SPECIES
from runs.errors import ConfigError
from runs.system.plain_text import shown

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

#: Strategies of this program; the first is for users who choose none.
STRATEGIES = ("auto", "elite-loser", "tournament", "cma-es", "nsga2")
#: Settings that imply elite-loser if no strategy is given, as in the source documents.
ELITE_LOSERS = {
    "mutants_per_elite", "keep_elites", "techniques", "dare_drop", "ties_density", "elite_size",
}  # fmt: skip
#: Objectives of nsga2, beside domain/NAME.
OBJECTIVES = ("perplexity", "accuracy", "speed", "memory")
#: Group of entry points with which other packages register strategies.
ENTRY_POINTS = "evomerge.strategies"

_DOMAINS_ONLY = {"perplexity": 0.0, "accuracy": 0.0, "speed": 0.0, "memory": 0.0}


class EvoMergeConfig(BaseModel):
    """Everything that decides how a run goes, the models and the data apart."""

    # The string under a setting is its description in the schema.
    # Forms and `forge settings` show the description.
    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

    generations: int = Field(default=50, ge=0, le=10_000)
    """Breeding steps after generation 0."""
    population_size: int = Field(default=8, ge=1, le=512)
    """Candidates of a generation; with elite-loser, elite_size times mutants_per_elite and a third
    of the others must add up to it."""
    elite_size: int = Field(default=2, ge=1)
    """The best of a generation, of whom the champion is chosen (elite-loser, tournament);
    elite-loser mutates them, tournament keeps them."""
    mutants_per_elite: int = Field(default=3, ge=1)
    """Mutants of each elite (elite-loser)."""
    keep_elites: bool = False
    """Elites stay and compete with their children, μ + λ (elite-loser)."""
    strategy: str = "auto"
    """Who decides: auto, elite-loser, tournament, cma-es, nsga2, or one that a package registers;
    see docs/search.md. Not said: auto, or elite-loser where a setting is that it is known by,
    and in the Python API."""

    tournament_size: int = Field(default=3, ge=1)
    """Candidates drawn for each parent (tournament)."""
    crossover_rate: float = Field(default=0.7, ge=0, le=1)
    """Share of children with two parents (tournament)."""
    species: tuple[str, ...] = ("task_arithmetic", "ties")
    """Merge techniques that candidates may be of (all but elite-loser); also dare_linear,
    dare_ties, slerp and the four pipelines that end in dfs. cma-es and nsga2 use the first."""
    layer_groups: int = Field(default=4, ge=1, le=64)
    """Groups that the layers are cut into, where genome_detail is layers or full (all but
    elite-loser)."""
    genome_detail: Literal["whole", "layers", "parts", "full"] = "layers"
    """What has genes of its own (all but elite-loser); whole: all tensors share them; layers:
    every layer group; parts: attention, mlp, rest, embedding and head; full: all of these in
    every layer group. auto goes from whole by layers to full."""
    search_sigma: float = Field(default=0.1, gt=0, le=0.5)
    """Standard deviation of the first generation, of a gene's whole range (cma-es)."""
    objectives: tuple[str, ...] = ("perplexity", "accuracy")
    """What is weighed against each other (nsga2); also speed, memory, domain/NAME."""
    niching: Literal["none", "attraction", "sharing", "both"] = "none"
    """How parents are chosen by items (tournament); attraction: the second is the one that does
    best where the first does badly; sharing: the first wins by what few others reach; both."""
    path_repeats: int = Field(default=0, ge=0, le=4)
    """How often a block may come in a path through the layers, to 4; 0: no paths (tournament,
    cma-es, nsga2)."""
    path_blocks: int | None = Field(default=None, ge=1)
    """Blocks of a path at most, no fewer than the models have; not said: half as many more."""
    adaptive_mutation: bool = False
    """Steps grow where more than a fifth of the mutants are better than their parents, and shrink
    where fewer are (elite-loser, tournament)."""
    technique_selection: Literal["uniform", "earned"] = "uniform"
    """Which techniques new candidates are of; uniform: all alike; earned: those whose candidates
    were in the better half come more often (elite-loser, tournament)."""

    max_evaluations: int | None = Field(default=None, ge=1)
    """The search ends before the generation that would go beyond so many, if it cost what the last
    one did, and never before generation 0 has ended; sources count, the final report does not."""
    max_items: int | None = Field(default=None, ge=1)
    """The search ends before the generation that would go beyond so many windows, questions and
    problems scored, as for max_evaluations."""
    max_hours: float | None = Field(default=None, gt=0)
    """The search ends before the generation that would go beyond so many hours by the clock since
    the start, pauses not counted, as for max_evaluations."""
    max_device_hours: float | None = Field(default=None, gt=0)
    """The search ends before the generation that would go beyond so many hours of tasks, as for
    max_evaluations."""

    mutation: Literal["weights", "genes", "both"] = "both"
    """What a mutant changes: weights, the recipe's genes, or both (elite-loser, tournament)."""
    mutation_rate: float = Field(default=0.01, gt=0, le=1)
    """Share of elements that a mutant's weight noise touches (elite-loser, tournament)."""
    mutation_sigma: float = Field(default=0.2, gt=0)
    """Norm of a mutant's weight noise relative to the tensor's task vector; with
    mutation_relative_to absolute, its standard deviation (elite-loser, tournament)."""
    mutation_relative_to: Literal["task_vector", "absolute"] = "task_vector"
    """What a mutant's weight noise is measured by; absolute is the source documents' literal form
    (elite-loser, tournament)."""
    gene_sigma: float = Field(default=0.25, gt=0)
    """How far a mutant's genes move; the scale and density of a pipeline by this standard
    deviation of their logarithms, others in proportion (elite-loser, tournament)."""

    techniques: tuple[str, ...] = ("linear", "slerp", "dare", "ties", "frankenmerge", "dfs")
    """Which pipelines may be used: each stage needs at least one of its two (elite-loser)."""
    dare_drop: float = Field(default=0.5, ge=0, lt=1)
    """Share of a task vector that dare drops in the first pipelines (elite-loser); genes from then
    on."""
    ties_density: float = Field(default=0.2, gt=0, le=1)
    """Share of a task vector that ties keeps in the first pipelines (elite-loser); genes from then
    on."""

    fitness_weights: Weighting = Weighting()
    """What each part of fitness counts; also domains: a weight for each; or the name of a scheme,
    composite (this) or domains (code, math, multilingual, data a quarter each)."""
    normalise: Literal["best_source", "none"] = "best_source"
    """What a part of fitness is measured by; best_source: 1 is the best source on the same items;
    none: the source documents' raw formula."""
    search_windows: int = Field(default=48, ge=1)
    """Windows drawn per domain and generation."""
    search_questions: int = Field(default=24, ge=0)
    """Questions drawn per domain and generation, of every grade its share."""
    search_problems: int = Field(default=8, ge=0)
    """Problems drawn per domain and generation, of every grade its share; their replies are
    generated and verified."""
    gate_perplexity: float = Field(default=2.0, ge=0)
    """A candidate whose perplexity on the first windows is so many times the worst source's is
    dropped; 0: never."""
    stop_error: float = Field(default=0.0, ge=0, lt=0.5)
    """Error rate at which a candidate that is clearly worse than the best source is dropped early;
    0: never."""
    context: int = Field(default=512, ge=8)
    """Tokens of a window; the model's own limit where that is smaller."""
    batch_tokens: Annotated[int, Field(ge=1, le=1 << 24)] | Literal["probe"] | None = None
    """Tokens of a forward pass, 1 to 16,777,216; unset: 4096, fewer for a large vocabulary; probe:
    measured when the run starts, see docs/fitness.md."""
    evaluation_dtype: Literal["auto", "model", "bfloat16", "probe"] = "auto"
    """What evaluation computes in; auto: bfloat16 if the processor has instructions for it and no
    source's perplexity changes by more than 0.5 %; model: the weights' own; bfloat16; or probe: as
    auto, but only if it is also timed to be faster, whatever the processor."""
    evaluation_compile: Literal["off", "probe"] = "off"
    """Compiled passes: off, or probe: full batches of windows are compiled where that is measured
    to pay and to change no perplexity by more than 0.5 %."""

    convergence_threshold: float = Field(default=0.001, ge=0)
    """The search ends when the champion has improved by less than this share over the last
    convergence_patience generations, all in all; 0 never stops early."""
    convergence_patience: int = Field(default=5, ge=0)
    """Generations over which the champion must improve by convergence_threshold, with auto three
    times as many, once for each stage of its search; 0 never stops early."""

    diversity_weight: float = Field(default=0.0, ge=0)
    """Weight of a candidate's own distance from the others in the score that it is selected by."""
    min_diversity: float = Field(default=0.3, ge=0)
    """A diversity below this is a warning."""
    reseed_diversity: float = Field(default=0.2, ge=0)
    """At a diversity below this the losers' places go to new random pipelines (elite-loser)."""

    allow_benchmarks: bool = False
    """Take lm-eval: tasks of well-known benchmarks as objectives too."""

    seed: int = Field(default=0, ge=0)
    """All random numbers come from it."""
    device: str = "cpu"
    """What computes: cpu or cuda:N."""
    strict: bool = False
    """Refuse sources whose settings differ, instead of warning."""

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
        """Return the number of layer groups of a model with `blocks` blocks."""
        return min(self.layer_groups, blocks)

    def longest_path(self, blocks: int) -> int:
        """Return the most blocks that a candidate may have if its models have `blocks` blocks."""
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
    """Parse a config from a dictionary. Raises ConfigError naming the setting and the fault."""
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
    got = "" if error["type"] == "value_error" else f" (it is {shown(error.get('input'))})"
    return f"{'setting ' + where + ': ' if where else ''}{what}{got}."
